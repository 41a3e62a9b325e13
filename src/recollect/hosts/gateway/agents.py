"""The agents that `recollect wrap` can start, and how each gets the gateway's base URL for one run.

If you add an agent, also add its name to the choices of the command line, which must not import
this module, and to `caller`, which recognizes the agent's requests."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recollect.core.formats.json_text import encode
from recollect.errors import RecollectError
from recollect.hosts.gateway.upstream import Family
from recollect.system.durable import replace_file
from recollect.system.places import claude_code_folder, codex_folder, pi_folder

FAMILIES: Final[tuple[Family, ...]] = ("anthropic", "openai")
URL_VARIABLES: Final[Mapping[Family, str]] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}
"""Variables that Claude Code 2.1.325 and opencode 1.18.33 read; Codex and pi do not."""
CHATGPT: Final = "https://chatgpt.com/backend-api/codex"
"""Codex's provider if the user signed in with ChatGPT."""


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
    """One agent: its command, and the places where it reads a base URL."""

    name: str
    program: str
    launch: Callable[[str], Launch]
    configured_urls: Callable[[], Mapping[Family, str]]
    """Reads the base URLs in the user's configuration. Recollect never reads a project's
    configuration, because the project's author could redirect the user's key."""
    families: tuple[Family, ...] = FAMILIES
    reads_variables: bool = True
    """True if the agent reads a base URL from environment variables."""

    def upstreams(self) -> dict[Family, OwnUpstream]:
        """Return the unusual provider URLs that the agent would use without the gateway."""
        found = {
            family: OwnUpstream(url=url, named_by=f"{self.name}'s configuration")
            for family, url in self.configured_urls().items()
        }
        for family, variable, url in self._variables():
            if self.reads_variables and family not in found:
                found[family] = OwnUpstream(url=url, named_by=variable)
        return found

    def ignored_variables(self) -> dict[Family, str]:
        """Return the variables with a base URL that the agent ignores."""
        return {} if self.reads_variables else {one: name for one, name, _ in self._variables()}

    def _variables(self) -> Iterator[tuple[Family, str, str]]:
        for family in self.families:
            variable = URL_VARIABLES[family]
            if url := os.environ.get(variable):
                yield family, variable, url


def _claude_urls() -> Mapping[Family, str]:
    settings = _json_object(_text_of(claude_code_folder() / "settings.json")).get("env") or {}
    return _named_urls({"anthropic": settings.get("ANTHROPIC_BASE_URL")})


def _codex_urls() -> Mapping[Family, str]:
    try:
        url = tomllib.loads(_text_of(codex_folder() / "config.toml")).get("openai_base_url")
    except tomllib.TOMLDecodeError:
        raise RecollectError("Codex's config.toml is not valid TOML: fix it first") from None
    if url:
        return {"openai": str(url)}
    signed_in = _json_object(_text_of(codex_folder() / "auth.json"))
    chatgpt = signed_in.get("tokens") and not signed_in.get("OPENAI_API_KEY")
    return {"openai": CHATGPT} if chatgpt else {}


def _pi_urls() -> Mapping[Family, str]:
    providers = _json_object(_text_of(pi_folder() / "models.json")).get("providers") or {}
    return _named_urls({name: (providers.get(name) or {}).get("baseUrl") for name in FAMILIES})


def _pi_launch(url: str) -> Launch:
    own, shown = pi_folder(), Path(tempfile.mkdtemp(prefix="recollect-pi-"))
    own.mkdir(parents=True, exist_ok=True)
    (own / "sessions").mkdir(exist_ok=True)
    for path in own.iterdir():
        if path.name != "models.json":
            (shown / path.name).symlink_to(path)
    models = _json_object(_text_of(own / "models.json"))
    providers = dict(models.get("providers") or {})
    for name, base in (("anthropic", url), ("openai", f"{url}/v1")):
        providers[name] = {**(providers.get(name) or {}), "baseUrl": base}
    (shown / "models.json").write_bytes(encode({**models, "providers": providers}))
    return Launch(environment={"PI_CODING_AGENT_DIR": str(shown)})


def _opencode_urls() -> Mapping[Family, str]:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
    found: dict[Family, str | None] = {}
    for file in ("config.json", "opencode.json", "opencode.jsonc"):
        providers = _json_object(_text_of(folder / file)).get("provider") or {}
        for name in FAMILIES:
            options = (providers.get(name) or {}).get("options") or {}
            found[name] = options.get("baseURL") or found.get(name)
    return _named_urls(found)


def _opencode_fields(url: str) -> dict[str, Any]:
    base = {"options": {"baseURL": f"{url}/v1"}}
    return {"provider": {"anthropic": base, "openai": base}}


AGENTS: Final[Mapping[str, WrappedAgent]] = {
    agent.name: agent
    for agent in (
        WrappedAgent(
            name="claude",
            program="claude",
            launch=lambda url: Launch(environment={"ANTHROPIC_BASE_URL": url}),
            configured_urls=_claude_urls,
            families=("anthropic",),
        ),
        WrappedAgent(
            name="codex",
            program="codex",
            launch=lambda url: Launch(arguments=("-c", f'openai_base_url="{url}/v1"')),
            configured_urls=_codex_urls,
            families=("openai",),
            reads_variables=False,
        ),
        WrappedAgent(
            name="pi",
            program="pi",
            launch=_pi_launch,
            configured_urls=_pi_urls,
            reads_variables=False,
        ),
        WrappedAgent(
            name="opencode",
            program="opencode",
            launch=lambda url: Launch(
                environment={"OPENCODE_CONFIG_CONTENT": encode(_opencode_fields(url)).decode()}
            ),
            configured_urls=_opencode_urls,
        ),
    )
}


@contextmanager
def launched(agent: WrappedAgent, url: str) -> Iterator[Launch]:
    """Prepare an agent's command and environment, and delete temporary files afterwards."""
    launch = agent.launch(url)
    try:
        yield launch
    finally:
        if agent.name == "pi":
            _take_back(Path(launch.environment["PI_CODING_AGENT_DIR"]), pi_folder())


def _take_back(shown: Path, own: Path) -> None:
    for path in shown.iterdir():
        if not path.is_symlink() and path.name != "models.json":
            shutil.move(path, own / path.name)  # keep the file if the agent has rewritten it
    shutil.rmtree(shown)


def write_configuration(path: Path, content: bytes) -> None:
    """Replace a file atomically. The file keeps its mode, and a link stays a link."""
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, mode=mode)


def _named_urls(urls: Mapping[Family, str | None]) -> dict[Family, str]:
    return {family: url for family, url in urls.items() if url}


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _json_object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    value = read_configuration(text)
    if not isinstance(value, dict):
        raise RecollectError("the agent's configuration must be a JSON object: fix it first")
    return value


def read_configuration(text: str) -> Any:
    """Parse JSON with comments and trailing commas; return None if it is invalid."""
    try:
        return json.loads(text)
    except ValueError:
        import json5  # this import is slow, and rarely needed

    try:
        return json5.loads(text)
    except ValueError:
        return None
