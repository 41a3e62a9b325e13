"""The agents that the gateway can be put under: how each is told another base URL.

For one run by environment and arguments, for good in the agent's own configuration file. What a
file held before is kept and restored byte for byte.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recollect.core.formats.json_text import encode
from recollect.errors import RecollectError
from recollect.hosts.gateway.upstream import Family
from recollect.system.agent_folders import claude_code_folder, codex_folder, pi_folder
from recollect.system.config.places import data_home
from recollect.system.durable import replace_file

FAMILIES: Final[tuple[Family, ...]] = ("anthropic", "openai")
URL_VARIABLES: Final[Mapping[Family, str]] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}
"""Where the providers' own clients look for a base URL. Claude Code and opencode do (tried with
2.1.325 and 1.18.33), Codex and pi do not (0.166.0 and 0.87.1)."""
CHATGPT: Final = "https://chatgpt.com/backend-api/codex"
"""Where Codex goes when its user signed in with ChatGPT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start an agent through a gateway."""

    arguments: tuple[str, ...] = ()
    """Before those that the user gives."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """How an agent's configuration was put back."""

    path: Path
    whole: bool
    """Byte for byte; False where others had edited it, and only our part was taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnUpstream:
    """Where an agent would go without us, which is not the provider's usual address."""

    url: str
    named_by: str
    """What says so, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedAgent:
    """One agent: what starts it, and where it keeps its base URL."""

    name: str
    program: str
    launch: Callable[[str], Launch]
    """How to start it, given the gateway's URL."""
    configuration: Callable[[], Path]
    """The file that holds its base URL."""
    configured: Callable[[str, str], str]
    """That file's text with the gateway's URL in it."""
    configured_urls: Callable[[], Mapping[Family, str]]
    """The base URLs that its configuration names."""
    project_files: Callable[[], Sequence[Path]] = tuple
    """Files of the current project that could name a base URL, too. They are never read: whoever
    wrote the project would say who gets the user's key."""
    families: tuple[Family, ...] = FAMILIES
    """Whose providers it talks to."""
    reads_variables: bool = True
    """Whether it takes a base URL from the environment, where its configuration names none."""

    def upstreams(self) -> dict[Family, OwnUpstream]:
        """Where it would go without us, where that is not the provider's usual address."""
        found = {
            family: OwnUpstream(url=url, named_by=f"{self.name}'s configuration")
            for family, url in self.configured_urls().items()
        }
        for family, variable, url in self._variables():
            if self.reads_variables and family not in found:
                found[family] = OwnUpstream(url=url, named_by=variable)
        return found

    def ignored_variables(self) -> dict[Family, str]:
        """Variables with a base URL that it does not read, though others do."""
        if self.reads_variables:
            return {}
        return {family: variable for family, variable, _ in self._variables()}

    def _variables(self) -> Iterator[tuple[Family, str, str]]:
        for family in self.families:
            variable = URL_VARIABLES[family]
            if url := os.environ.get(variable):
                yield family, variable, url


def _claude_urls() -> Mapping[Family, str]:
    settings = _json_object(_text_of(_claude_settings())).get("env") or {}
    return _named_urls({"anthropic": settings.get("ANTHROPIC_BASE_URL")})


def _claude_settings() -> Path:
    return claude_code_folder() / "settings.json"


def _claude_configured(text: str, url: str) -> str:
    settings = _json_object(text)
    settings["env"] = {**(settings.get("env") or {}), "ANTHROPIC_BASE_URL": url}
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _codex_urls() -> Mapping[Family, str]:
    try:
        url = tomllib.loads(_text_of(codex_folder() / "config.toml")).get("openai_base_url")
    except tomllib.TOMLDecodeError:
        raise RecollectError("Codex's config.toml is no TOML: mend it first") from None
    if url:
        return {"openai": str(url)}
    signed_in = _json_object(_text_of(codex_folder() / "auth.json"))
    chatgpt = signed_in.get("tokens") and not signed_in.get("OPENAI_API_KEY")
    return {"openai": CHATGPT} if chatgpt else {}


def _codex_configured(text: str, url: str) -> str:
    """The URL as the first line: a key of the top level must stand before every table."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("openai_base_url")]
    return "\n".join([f'openai_base_url = "{url}/v1"', *lines])


def _pi_configured(text: str, url: str) -> str:
    models = _json_object(text)
    providers = dict(models.get("providers") or {})
    for name, base in (("anthropic", url), ("openai", f"{url}/v1")):
        providers[name] = {**(providers.get(name) or {}), "baseUrl": base}
    return json.dumps({**models, "providers": providers}, indent=2, ensure_ascii=False) + "\n"


def _pi_urls() -> Mapping[Family, str]:
    providers = _json_object(_text_of(pi_folder() / "models.json")).get("providers") or {}
    return _named_urls({name: (providers.get(name) or {}).get("baseUrl") for name in FAMILIES})


def _pi_launch(url: str) -> Launch:
    """A folder that looks like pi's own, with another table of models in it."""
    own, shown = pi_folder(), Path(tempfile.mkdtemp(prefix="recollect-pi-"))
    own.mkdir(parents=True, exist_ok=True)
    (own / "sessions").mkdir(exist_ok=True)
    for path in own.iterdir():
        if path.name != "models.json":
            (shown / path.name).symlink_to(path)
    text = _pi_configured(_text_of(own / "models.json"), url)
    (shown / "models.json").write_text(text, encoding="utf-8")
    return Launch(environment={"PI_CODING_AGENT_DIR": str(shown)})


def _opencode_files() -> tuple[Path, ...]:
    """Its own configuration files; all that are there count, and it writes into the first."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
    return tuple(folder / name for name in ("opencode.jsonc", "opencode.json", "config.json"))


def _opencode_settings() -> Path:
    files = _opencode_files()
    return next((path for path in files if path.exists()), files[1])


def _opencode_urls() -> Mapping[Family, str]:
    found: dict[Family, str | None] = {}
    for path in reversed(_opencode_files()):
        providers = _json_object(_text_of(path)).get("provider") or {}
        for name in FAMILIES:
            options = (providers.get(name) or {}).get("options") or {}
            found[name] = options.get("baseURL") or found.get(name)
    return _named_urls(found)


def _opencode_project_files() -> tuple[Path, ...]:
    here = (Path.cwd() / name for name in ("opencode.json", "opencode.jsonc"))
    return tuple(path for path in here if os.path.lexists(path))


def _opencode_fields(url: str) -> dict[str, Any]:
    base = {"options": {"baseURL": f"{url}/v1"}}
    return {"provider": {"anthropic": base, "openai": base}}


def _opencode_configured(text: str, url: str) -> str:
    merged = _merged(_json_object(text), _opencode_fields(url))
    return json.dumps(merged, indent=2, ensure_ascii=False) + "\n"


AGENTS: Final[Mapping[str, WrappedAgent]] = {
    agent.name: agent
    for agent in (
        WrappedAgent(
            name="claude",
            program="claude",
            launch=lambda url: Launch(environment={"ANTHROPIC_BASE_URL": url}),
            configuration=_claude_settings,
            configured=_claude_configured,
            configured_urls=_claude_urls,
            families=("anthropic",),
        ),
        WrappedAgent(
            name="codex",
            program="codex",
            launch=lambda url: Launch(arguments=("-c", f'openai_base_url="{url}/v1"')),
            configuration=lambda: codex_folder() / "config.toml",
            configured=_codex_configured,
            configured_urls=_codex_urls,
            families=("openai",),
            reads_variables=False,
        ),
        WrappedAgent(
            name="pi",
            program="pi",
            launch=_pi_launch,
            configuration=lambda: pi_folder() / "models.json",
            configured=_pi_configured,
            configured_urls=_pi_urls,
            reads_variables=False,
        ),
        WrappedAgent(
            name="opencode",
            program="opencode",
            launch=lambda url: Launch(
                environment={"OPENCODE_CONFIG_CONTENT": encode(_opencode_fields(url)).decode()}
            ),
            configuration=_opencode_settings,
            configured=_opencode_configured,
            configured_urls=_opencode_urls,
            project_files=_opencode_project_files,
        ),
    )
}


def check_not_wrapped(agent: WrappedAgent) -> None:
    """RecollectError where the agent's configuration names the gateway already."""
    if _kept_file(agent).exists():
        raise RecollectError(
            f"{agent.name} is wrapped for good already: start it as ever, with `recollect gateway` "
            f"running, or run `recollect unwrap {agent.name}` first"
        )


def persist(agent: WrappedAgent, url: str) -> Path:
    """Write the gateway's URL into the agent's configuration; returns the file's path.

    What the file held is kept first. RecollectError where it was done before.
    """
    check_not_wrapped(agent)
    path, kept = agent.configuration().resolve(), _kept_file(agent)
    before = path.read_bytes() if path.exists() else None
    after = agent.configured((before or b"").decode("utf-8"), url).encode()
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = {
        "path": str(path),
        "before": None if before is None else before.hex(),
        "after": after.hex(),
        "mode": None if before is None else path.stat().st_mode & 0o777,
    }
    write_configuration(kept, encode(record))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_configuration(path, after, mode=0o600)  # the URL holds the gateway's token
    return path


def restore(agent: WrappedAgent) -> Restored:
    """Put the agent's configuration back as it was, byte for byte.

    Where it was changed since, only the gateway's URL is taken out: nobody else's edit is thrown
    away. RecollectError where the agent was not wrapped.
    """
    kept = _kept_file(agent)
    try:
        record = json.loads(kept.read_bytes())
    except FileNotFoundError:
        raise RecollectError(f"{agent.name} is not wrapped: there is nothing to undo") from None
    path = Path(record["path"])
    before = None if record["before"] is None else bytes.fromhex(record["before"])
    after = bytes.fromhex(record["after"])
    now = path.read_bytes() if path.exists() else None
    mode = record.get("mode")
    whole = now is None or now == after
    if not whole:
        write_configuration(path, _without_ours(path, before or b"", after, now or b""), mode=mode)
    elif before is not None:
        write_configuration(path, before, mode=mode)
    elif now is not None:
        path.unlink()
    kept.unlink()
    return Restored(path=path, whole=whole)


def _without_ours(path: Path, before: bytes, after: bytes, now: bytes) -> bytes:
    """A configuration that was edited since, without what wrapping changed in it."""
    if path.suffix == ".toml":
        ours = after.split(b"\n")[0]
        lost = [line for line in before.split(b"\n") if line not in after.split(b"\n")]
        return b"\n".join([*lost, *(line for line in now.split(b"\n") if line != ours)])
    texts = (before.decode(), after.decode(), now.decode())
    was, is_ours, found = (_json_object(text) for text in texts)
    return (json.dumps(_undone(was, is_ours, found), indent=2, ensure_ascii=False) + "\n").encode()


def _undone(was: Any, ours: Any, now: Any) -> Any:
    """What is there now, with each value that is still ours as it was."""
    if not (isinstance(ours, dict) and isinstance(now, dict)):
        return was if now == ours else now
    was = was if isinstance(was, dict) else {}
    undone: dict[str, Any] = {}
    for name, value in now.items():
        kept = _undone(was.get(name), ours[name], value) if name in ours else value
        if kept not in (None, {}) or name in was or name not in ours:
            undone[name] = kept
    return undone


@contextmanager
def launched(agent: WrappedAgent, url: str) -> Iterator[Launch]:
    """How to start an agent through this gateway; what was made for it goes afterwards."""
    launch = agent.launch(url)
    try:
        yield launch
    finally:
        if agent.name == "pi":
            _take_back(Path(launch.environment["PI_CODING_AGENT_DIR"]), pi_folder())


def _take_back(shown: Path, own: Path) -> None:
    """What pi made in the folder that it was shown goes into its own; then the shown one goes."""
    for path in shown.iterdir():
        if not path.is_symlink() and path.name != "models.json":
            shutil.move(path, own / path.name)  # replaces a file that it renewed
    shutil.rmtree(shown)


def command_line(agent: WrappedAgent, launch: Launch, given: Sequence[str]) -> list[str]:
    """What is run."""
    return [agent.program, *launch.arguments, *given]


def _kept_file(agent: WrappedAgent) -> Path:
    return data_home() / "gateway" / f"{agent.name}.json"


def write_configuration(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file whole or not at all; one that was there keeps its mode, and a link stays one."""
    path = path.resolve()
    if mode is None:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, mode=mode)


def _named_urls(urls: Mapping[Family, str | None]) -> dict[Family, str]:
    return {family: url for family, url in urls.items() if url}


def _text_of(path: Path) -> str:
    """A file's text; empty where it is not there."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _json_object(text: str) -> dict[str, Any]:
    """What a configuration says; with comments and trailing commas where the agent allows them."""
    if not text.strip():
        return {}
    value = read_configuration(text)
    if not isinstance(value, dict):
        raise RecollectError("the agent's configuration is no JSON object: mend it first")
    return value


def read_configuration(text: str) -> Any:
    """What a text of JSON says, comments and trailing commas aside; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        import json5  # slow to import, and most files need it not

    try:
        return json5.loads(text)
    except ValueError:
        return None


def _merged(into: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Objects within one another, the given fields on top."""
    merged = dict(into)
    for name, value in fields.items():
        mine = merged.get(name)
        both = isinstance(mine, dict) and isinstance(value, Mapping)
        merged[name] = _merged(mine, value) if both and isinstance(mine, dict) else value
    return merged
