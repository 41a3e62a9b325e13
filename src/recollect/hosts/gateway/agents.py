"""The agents that `recollect wrap` can start, and how each gets the gateway's base URL for one run.

If you add an agent, also add its name to the choices of the command line, which must not import
this module, and to `caller`, which recognizes the agent's requests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recollect.core.formats.json_text import encode
from recollect.hosts.gateway.agent_routes import (
    FAMILIES,
    Routes,
    claude_routes,
    codex_routes,
    json_object,
    merge_objects,
    opencode_routes,
    pi_routes,
)
from recollect.hosts.gateway.upstream import Family
from recollect.system.durable import replace_file
from recollect.system.places import pi_folder

URL_VARIABLES: Final[Mapping[Family, str]] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}
"""Variables that Claude Code 2.1.325 and opencode 1.18.33 read; Codex and pi do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command and an environment that start an agent with the gateway's URL."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnUpstream:
    """The provider's URL that an agent uses without the gateway, if it is not the usual one."""

    url: str
    named_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedAgent:
    """One agent, and the places where it reads a base URL."""

    name: str
    """Its name, and its program's."""
    launch: Callable[[str, Routes], Launch]
    read_routes: Callable[[Sequence[str], Collection[Family]], Routes]
    """Reads the providers in use. Recollect uses no URL of a project's configuration, because the
    project's author could redirect the user's key."""
    families: tuple[Family, ...] = FAMILIES
    reads_variables: bool = True
    """True if the agent reads a base URL from environment variables."""

    def upstreams(self, routes: Routes | None = None) -> dict[Family, OwnUpstream]:
        """Return the unusual provider URLs that the agent would use without the gateway."""
        routes = self.read_routes((), ()) if routes is None else routes
        upstream_by_family = {
            family: OwnUpstream(url=route.url, named_by=f"{self.name}'s configuration")
            for family, route in routes.redirected.items()
            if route.url
        }
        for family, variable, url in self._variables():
            if self.reads_variables and family in routes.redirected:
                upstream_by_family.setdefault(family, OwnUpstream(url=url, named_by=variable))
        return upstream_by_family

    def find_ignored_variables(self) -> dict[Family, str]:
        """Return the variables with a base URL that the agent ignores."""
        return (
            {} if self.reads_variables else {family: name for family, name, _ in self._variables()}
        )

    def _variables(self) -> Iterator[tuple[Family, str, str]]:
        for family in self.families:
            variable = URL_VARIABLES[family]
            if url := os.environ.get(variable):
                yield family, variable, url


def _pi_launch(url: str, routes: Routes) -> Launch:
    own_folder, shown_folder = pi_folder(), Path(tempfile.mkdtemp(prefix="recollect-pi-"))
    own_folder.mkdir(parents=True, exist_ok=True)
    (own_folder / "sessions").mkdir(exist_ok=True)
    for path in own_folder.iterdir():
        if path.name != "models.json":
            (shown_folder / path.name).symlink_to(path)
    file = own_folder / "models.json"
    models = json_object(file.read_text(encoding="utf-8") if file.exists() else "")
    providers = dict(models.get("providers") or {})
    for family, route in routes.redirected.items():
        base = url if family == "anthropic" else f"{url}/v1"
        provider = {**(providers.get(route.provider) or {}), "baseUrl": base}
        for model in provider.get("models") or []:
            model.pop("baseUrl", None)
        providers[route.provider] = provider
    (shown_folder / "models.json").write_bytes(encode({**models, "providers": providers}))
    return Launch(environment={"PI_CODING_AGENT_DIR": str(shown_folder)})


def _opencode_launch(url: str, routes: Routes) -> Launch:
    # JSON in this variable comes last, and may hold settings of the user
    content = json_object(os.environ.get("OPENCODE_CONFIG_CONTENT", ""))
    base = {"options": {"baseURL": f"{url}/v1"}}
    providers = {route.provider: base for route in routes.redirected.values()}
    fields = encode(merge_objects(content, {"provider": providers} if providers else {}))
    return Launch(environment={"OPENCODE_CONFIG_CONTENT": fields.decode()} if providers else {})


def _codex_launch(url: str, routes: Routes) -> Launch:
    names = [route.provider for route in routes.redirected.values()]
    keys = [
        "openai_base_url" if name == "openai" else f"model_providers.{name}.base_url"
        for name in names
    ]
    return Launch(arguments=tuple(part for key in keys for part in ("-c", f'{key}="{url}/v1"')))


AGENTS: Final[Mapping[str, WrappedAgent]] = {
    agent.name: agent
    for agent in (
        WrappedAgent(
            name="claude",
            launch=lambda url, _: Launch(environment={"ANTHROPIC_BASE_URL": url}),
            read_routes=claude_routes,
            families=("anthropic",),
        ),
        WrappedAgent(
            name="codex",
            launch=_codex_launch,
            read_routes=codex_routes,
            families=("openai",),
            reads_variables=False,
        ),
        WrappedAgent(
            name="pi",
            launch=_pi_launch,
            read_routes=pi_routes,
            reads_variables=False,
        ),
        WrappedAgent(
            name="opencode",
            launch=_opencode_launch,
            read_routes=opencode_routes,
        ),
    )
}


@contextmanager
def prepare_launch(agent: WrappedAgent, url: str, routes: Routes | None = None) -> Iterator[Launch]:
    """Prepare an agent's command and environment, and delete temporary files afterwards."""
    launch = agent.launch(url, agent.read_routes((), ()) if routes is None else routes)
    try:
        yield launch
    finally:
        if agent.name == "pi":
            _take_back(Path(launch.environment["PI_CODING_AGENT_DIR"]), pi_folder())


def _take_back(shown_folder: Path, own_folder: Path) -> None:
    for path in shown_folder.iterdir():
        if not path.is_symlink() and path.name != "models.json":
            shutil.move(path, own_folder / path.name)  # keep the file if the agent has rewritten it
    shutil.rmtree(shown_folder)


def write_configuration(path: Path, content: bytes) -> None:
    """Replace a file atomically. The file keeps its mode, and a link stays a link."""
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, mode=mode)
