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

from recollect.config.places import data_home
from recollect.errors import RecollectError
from recollect.formats.json_text import encode
from recollect.gateway.upstream import Family

FAMILIES: Final[tuple[Family, ...]] = ("anthropic", "openai")
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
    upstreams: Callable[[], Mapping[Family, str]] = dict
    """Where it would go without us, where that is not the provider's usual address."""


def _claude_upstreams() -> Mapping[Family, str]:
    settings = _json_object(_text_of(_claude_settings())).get("env") or {}
    url = settings.get("ANTHROPIC_BASE_URL") or os.environ.get("ANTHROPIC_BASE_URL")
    return {"anthropic": url} if url else {}


def _claude_settings() -> Path:
    folder = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"


def _claude_configured(text: str, url: str) -> str:
    settings = _json_object(text)
    settings["env"] = {**(settings.get("env") or {}), "ANTHROPIC_BASE_URL": url}
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _codex_home() -> Path:
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")


def _codex_upstreams() -> Mapping[Family, str]:
    try:
        url = tomllib.loads(_text_of(_codex_home() / "config.toml")).get("openai_base_url")
    except tomllib.TOMLDecodeError:
        raise RecollectError("Codex's config.toml is no TOML: mend it first") from None
    if url:
        return {"openai": str(url)}
    signed_in = _json_object(_text_of(_codex_home() / "auth.json"))
    chatgpt = signed_in.get("tokens") and not signed_in.get("OPENAI_API_KEY")
    return {"openai": CHATGPT} if chatgpt else {}


def _codex_configured(text: str, url: str) -> str:
    """The URL as the first line: a key of the top level must stand before every table."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("openai_base_url")]
    return "\n".join([f'openai_base_url = "{url}/v1"', *lines])


def _pi_folder() -> Path:
    return Path(os.environ.get("PI_CODING_AGENT_DIR") or Path.home() / ".pi" / "agent")


def _pi_configured(text: str, url: str) -> str:
    models = _json_object(text)
    providers = dict(models.get("providers") or {})
    for name, base in (("anthropic", url), ("openai", f"{url}/v1")):
        providers[name] = {**(providers.get(name) or {}), "baseUrl": base}
    return json.dumps({**models, "providers": providers}, indent=2, ensure_ascii=False) + "\n"


def _pi_upstreams() -> Mapping[Family, str]:
    providers = _json_object(_text_of(_pi_folder() / "models.json")).get("providers") or {}
    return _named_urls({name: (providers.get(name) or {}).get("baseUrl") for name in FAMILIES})


def _pi_launch(url: str) -> Launch:
    """A folder that looks like pi's own, with another table of models in it."""
    own, shown = _pi_folder(), Path(tempfile.mkdtemp(prefix="recollect-pi-"))
    own.mkdir(parents=True, exist_ok=True)
    (own / "sessions").mkdir(exist_ok=True)
    for path in own.iterdir():
        if path.name != "models.json":
            (shown / path.name).symlink_to(path)
    text = _pi_configured(_text_of(own / "models.json"), url)
    (shown / "models.json").write_text(text, encoding="utf-8")
    return Launch(environment={"PI_CODING_AGENT_DIR": str(shown)})


def _opencode_settings() -> Path:
    return Path.home() / ".config" / "opencode" / "opencode.json"


def _opencode_upstreams() -> Mapping[Family, str]:
    found: dict[Family, str | None] = {}
    for path in (_opencode_settings(), Path.cwd() / "opencode.json"):
        providers = _json_object(_text_of(path)).get("provider") or {}
        for name in FAMILIES:
            options = (providers.get(name) or {}).get("options") or {}
            found[name] = options.get("baseURL") or found.get(name)
    return _named_urls(found)


def _opencode_fields(url: str) -> dict[str, Any]:
    base = {"options": {"baseURL": f"{url}/v1"}}
    return {"provider": {"anthropic": base, "openai": base}}


def _opencode_configured(text: str, url: str) -> str:
    return json.dumps(_merged(_json_object(text), _opencode_fields(url)), indent=2) + "\n"


AGENTS: Final[Mapping[str, WrappedAgent]] = {
    agent.name: agent
    for agent in (
        WrappedAgent(
            name="claude",
            program="claude",
            launch=lambda url: Launch(environment={"ANTHROPIC_BASE_URL": url}),
            configuration=_claude_settings,
            configured=_claude_configured,
            upstreams=_claude_upstreams,
        ),
        WrappedAgent(
            name="codex",
            program="codex",
            launch=lambda url: Launch(arguments=("-c", f'openai_base_url="{url}/v1"')),
            configuration=lambda: _codex_home() / "config.toml",
            configured=_codex_configured,
            upstreams=_codex_upstreams,
        ),
        WrappedAgent(
            name="pi",
            program="pi",
            launch=_pi_launch,
            configuration=lambda: _pi_folder() / "models.json",
            configured=_pi_configured,
            upstreams=_pi_upstreams,
        ),
        WrappedAgent(
            name="opencode",
            program="opencode",
            launch=lambda url: Launch(
                environment={"OPENCODE_CONFIG_CONTENT": encode(_opencode_fields(url)).decode()}
            ),
            configuration=_opencode_settings,
            configured=_opencode_configured,
            upstreams=_opencode_upstreams,
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
    }
    _replace(kept, encode(record))
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, after)
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
    whole = now is None or now == after
    if not whole:
        _replace(path, _without_ours(path, before or b"", after, now or b""))
    elif before is not None:
        _replace(path, before)
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
            _take_back(Path(launch.environment["PI_CODING_AGENT_DIR"]), _pi_folder())


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


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; one that was there keeps its mode."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    beside = path.with_name(f".{path.name}.recollect")
    beside.write_bytes(content)
    beside.chmod(mode)
    beside.replace(path)


def _named_urls(urls: Mapping[Family, str | None]) -> dict[Family, str]:
    return {family: url for family, url in urls.items() if url}


def _text_of(path: Path) -> str:
    """A file's text; empty where it is not there."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _json_object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RecollectError("the agent's configuration is no JSON object: mend it first")
    return value


def _merged(into: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Objects within one another, the given fields on top."""
    merged = dict(into)
    for name, value in fields.items():
        mine = merged.get(name)
        both = isinstance(mine, dict) and isinstance(value, Mapping)
        merged[name] = _merged(mine, value) if both and isinstance(mine, dict) else value
    return merged
