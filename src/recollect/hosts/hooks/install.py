"""Puts our hooks into an agent's settings, and takes them out again without a trace.

Nothing else in the file is touched; what it was before is kept beside our own data, so that
`uninstall` gives back the same bytes, or, where the file was changed since, takes out our entries
and nothing more. While the daemon's token stands in it, only its user can read it, and git passes
over it. Codex runs no hook that its user has not allowed: that is theirs to do.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from recollect.errors import FormatError, RecollectError
from recollect.hosts.gateway.agents import write_configuration
from recollect.hosts.hooks.settings_text import add_entries, take_entries
from recollect.hosts.hooks.transcript_file import AgentName
from recollect.system.agent_folders import claude_code_folder, codex_folder
from recollect.system.config.places import data_home

InstallScope: TypeAlias = Literal["user", "project"]
COMMAND_SECONDS: Final = 15
PROMPT_SECONDS: Final = 5
END_SECONDS: Final = 3
"""Codex ends a hook of SessionEnd after three seconds."""
_OUR_COMMAND: Final = re.compile(
    r"(?:^|[\s/'\"])recollect(?:-hook['\"]?|['\"]? hook) (?:claude-code|codex)$"
)
"""What a command of ours is, whichever version wrote it."""
_BEARER: Final = "Bearer "
_OWN: Final = 0o700
"""What of a file's mode is its owner's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEndpoint:
    """How an agent reaches us."""

    command: str
    """Starts the daemon where none runs; without its last word, the agent's name."""
    url: str
    """Of the daemon, without a path."""
    token: str = field(repr=False)
    by_command: bool = False
    """Ask by commands alone, over the daemon's socket, which is the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """What would become of a settings file."""

    agent: AgentName
    path: Path
    before: str | None
    """None: there is no such file."""
    after: str | None
    """None: it goes."""
    clean: str | None = None
    """What it is without our hooks; None: there is no such file."""
    endpoint: HookEndpoint | None = None
    """Whom the hooks that are put in ask; None: ours are taken out."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after

    def diff(self) -> str:
        """The change as people read it; the token is masked."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            str(self.path),
            str(self.path),
        )
        text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
        return "\n".join(
            line.partition(_BEARER)[0] + 'Bearer …"' if _BEARER in line else line
            for line in text.split("\n")
        )


def settings_file(agent: AgentName, scope: InstallScope, project: Path) -> Path:
    """Where the agent reads hooks; of a project, the file that is not shared with others.

    RecollectError where a project's file is a link that leads out of it: the author of the project
    could have any file of the user's written to.
    """
    if scope == "user":
        of_user = {
            "claude-code": lambda: claude_code_folder() / "settings.json",
            "codex": lambda: codex_folder() / "hooks.json",
        }
        return of_user[agent]()
    name = ".claude/settings.local.json" if agent == "claude-code" else ".codex/hooks.json"
    path = project / name
    if not path.resolve().is_relative_to(project.resolve()):
        raise RecollectError(f"{path} leads out of the project: remove that link first")
    return path


def hook_entries(agent: AgentName, endpoint: HookEndpoint) -> Mapping[str, Sequence[Any]]:
    """What is put in, by event. Only a command can start the daemon; the rest of Claude Code's
    are requests to it, which start no process."""
    command = {"type": "command", "command": f"{endpoint.command} {agent}"}

    def ran(seconds: int, **fields: Any) -> list[Any]:
        return [{"hooks": [{**command, "timeout": seconds, **fields}]}]

    if agent == "codex" or endpoint.by_command:
        beside = {} if agent == "codex" else {"async": True}
        return {
            "SessionStart": ran(COMMAND_SECONDS),
            "UserPromptSubmit": ran(COMMAND_SECONDS),
            "Stop": ran(COMMAND_SECONDS, **beside),
            "PreCompact": ran(COMMAND_SECONDS),
            "SessionEnd": ran(END_SECONDS),
        }

    def asked(**fields: Any) -> list[Any]:
        hook = {
            "type": "http",
            "url": f"{endpoint.url}/hooks/{agent}",
            "timeout": PROMPT_SECONDS,
            "headers": {"authorization": f"{_BEARER}{endpoint.token}"},
            **fields,
        }
        return [{"hooks": [hook]}]

    return {
        "SessionStart": ran(COMMAND_SECONDS),
        "UserPromptSubmit": asked(),
        "Stop": asked(**{"async": True}),
        "PreCompact": asked(),
        "SessionEnd": asked(),
    }


def is_ours(entry: Any, tokens: Collection[str]) -> bool:
    """Whether a hook's entry was put in by us: a command of ours, or a request with our token."""
    hooks = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(hooks, list) or not hooks:
        return False
    return all(isinstance(hook, dict) and _asks_us(hook, tokens) for hook in hooks)


def _asks_us(hook: Mapping[str, Any], tokens: Collection[str]) -> bool:
    if hook.get("type") != "http":
        return bool(_OUR_COMMAND.search(str(hook.get("command"))))
    headers = hook.get("headers")
    said = str(headers.get("authorization")) if isinstance(headers, dict) else ""
    return said.startswith(_BEARER) and said.removeprefix(_BEARER) in tokens


def plan_install(agent: AgentName, path: Path, endpoint: HookEndpoint) -> InstallPlan:
    """The file with our hooks, whatever stood in it of ours before."""
    before = _text(path)
    clean = None if before is None else _without_ours(path, before, endpoint.token)
    try:
        after = add_entries(clean or "", hook_entries(agent, endpoint))
    except FormatError as error:
        raise RecollectError(f"{path} cannot be read: {error}; nothing was changed") from error
    return InstallPlan(
        agent=agent, path=path, before=before, after=after, clean=clean, endpoint=endpoint
    )


def plan_uninstall(agent: AgentName, path: Path, token: str = "") -> InstallPlan:
    """The file without our hooks: as it was, or without our entries where it was changed.

    The token is the daemon's, for hooks of which nothing was written down.
    """
    before = _text(path)
    after = None if before is None else _without_ours(path, before, token)
    return InstallPlan(agent=agent, path=path, before=before, after=after)


def carry_out(plan: InstallPlan) -> None:
    """Write what was planned; what the file was before our hooks is kept until they go."""
    if plan.endpoint is None:
        _take_out(plan)
    else:
        _put_in(plan, plan.endpoint)


def _put_in(plan: InstallPlan, endpoint: HookEndpoint) -> None:
    assert plan.after is not None
    kept = _kept(plan.path)
    holds_token = endpoint.token in plan.after
    record = {
        "agent": plan.agent,
        "path": str(plan.path),
        "installed_at": _since(_kept_file(plan.path)) if kept else time.time(),
        "before": None if plan.clean is None else base64.b64encode(_bytes(plan.clean)).decode(),
        "after": hashlib.sha256(_bytes(plan.after)).hexdigest(),
        "made_folder": kept.get("made_folder", not plan.path.parent.exists()),
        "mode": kept.get("mode", _mode(plan.path)),
        "url": endpoint.url if holds_token else None,
        "token": endpoint.token if holds_token else None,
        "excluded": kept.get("excluded") or (_exclude(plan.path) if holds_token else None),
    }
    file = _kept_file(plan.path)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_configuration(file, json.dumps(record).encode())
    mode = _mode(plan.path)
    if mode is not None and holds_token:
        mode &= _OWN
    write_configuration(plan.path, _bytes(plan.after), mode=mode)


def _take_out(plan: InstallPlan) -> None:
    kept = _kept(plan.path)
    if plan.after is None and plan.before is not None:
        plan.path.unlink(missing_ok=True)
        if kept.get("made_folder"):
            with suppress(OSError):  # somebody put something else there
                plan.path.parent.rmdir()
    elif plan.after is not None:
        mode, was = _mode(plan.path), kept.get("mode")
        if isinstance(was, int) and mode == was & _OWN:  # else somebody has changed it since
            mode = was
        if plan.changes or mode != _mode(plan.path):
            write_configuration(plan.path, _bytes(plan.after), mode=mode)
    if kept.get("excluded"):
        _include(*kept["excluded"])
    _kept_file(plan.path).unlink(missing_ok=True)


# OpenClaw's plugin

_PLUGIN_FILES: Final = (
    "contract.ts",
    "daemon.ts",
    "engine.ts",
    "index.ts",
    "openclaw.plugin.json",
    "package.json",
)


def openclaw_plugin() -> Path:
    """Where OpenClaw's plugin is put: in our data folder, whichever version is installed."""
    return data_home() / "openclaw-plugin"


def put_openclaw_plugin() -> bool:
    """Put the plugin there as this version has it; whether anything changed."""
    import recollect

    package = Path(recollect.__file__).parent
    places = (package / "plugins" / "openclaw", package.parents[1] / "plugins" / "openclaw")
    source = next((place for place in places if (place / "index.ts").is_file()), None)
    if source is None:
        raise RecollectError("this installation lacks OpenClaw's plugin: install recollect anew")
    changed = False
    for name in _PLUGIN_FILES:
        content, file = (source / name).read_bytes(), openclaw_plugin() / name
        if not file.is_file() or file.read_bytes() != content:
            write_configuration(file, content)
            changed = True
    return changed


def take_openclaw_plugin() -> bool:
    """Remove what was put there, and nothing else; whether there was any."""
    found = [file for name in _PLUGIN_FILES if (file := openclaw_plugin() / name).is_file()]
    for file in found:
        file.unlink()
    with suppress(OSError):  # somebody put something else there
        openclaw_plugin().rmdir()
    return bool(found)


def outdated_hooks(url: str, token: str) -> list[tuple[str, str]]:
    """Agents, and their settings, whose hooks ask another address or bring another token."""
    with suppress(OSError):
        records = [_record(file) for file in sorted(_kept_folder().iterdir())]
        return [
            (str(record["agent"]), str(record["path"]))
            for record in records
            if record.get("token") and (record.get("url"), record["token"]) != (url, token)
        ]
    return []


def installed_at(agent: AgentName) -> float:
    """Since when an agent has our hooks; never, where nobody has written that down."""
    with suppress(OSError):
        files = [one for one in _kept_folder().iterdir() if _record(one).get("agent") == agent]
        return min(map(_since, files), default=inf)
    return inf


def _since(file: Path) -> float:
    """Since when the hooks of a record are in place; an earlier version's says it by its time."""
    since = _record(file).get("installed_at")
    return float(since) if isinstance(since, int | float) else file.stat().st_mtime


def _without_ours(path: Path, text: str, token: str) -> str | None:
    """What the file was before; None where there was none."""
    record = _kept(path)
    known = record.get("before")
    before = None if known is None else base64.b64decode(known).decode("utf-8", "surrogateescape")
    if hashlib.sha256(_bytes(text)).hexdigest() == record.get("after"):
        return before
    tokens = {token, str(record.get("token") or "")} - {""}
    try:
        return take_entries(text, lambda entry: is_ours(entry, tokens), before or "")
    except FormatError as error:
        raise RecollectError(f"{path} cannot be read: {error}; nothing was changed") from error


# What git passes over


def _exclude(path: Path) -> tuple[str, str] | None:
    """Have git pass over a file, in the repository's own list that is not shared; the list and
    the line in it, or None where nothing was to be done."""
    with suppress(OSError, UnicodeDecodeError):  # what cannot be read is not git's
        for root, file in _git_excludes(path.resolve()):
            name = re.sub(r"([\\*?\[])", r"\\\1", str(path.resolve().relative_to(root)))
            lines = file.read_bytes() if file.exists() else b""
            if _bytes(f"/{name}") in lines.splitlines():
                return None
            gap = b"" if not lines or lines.endswith(b"\n") else b"\n"
            mode = _mode(file) or 0o644
            write_configuration(file, lines + gap + _bytes(f"/{name}\n"), mode=mode)
            return str(file), f"/{name}"
    return None


def _git_excludes(path: Path) -> Iterator[tuple[Path, Path]]:
    """The repository that a file stands in: its folder, and its list."""
    for root in path.parents:
        git = root / ".git"
        if git.is_file():  # of a worktree: the list is in what all of them share
            git = root / git.read_text().partition("gitdir:")[2].strip()
            if (git / "commondir").exists():
                git = git / (git / "commondir").read_text().strip()
        file = git.resolve() / "info" / "exclude"
        if (git / "HEAD").exists() and file.resolve() == file:  # no link that leads elsewhere
            yield root, file
            return


def _include(file: str, line: str) -> None:
    """Take a line out of git's list again."""
    with suppress(OSError):
        lines = Path(file).read_bytes().splitlines(keepends=True)
        left = b"".join(one for one in lines if one.rstrip(b"\r\n") != _bytes(line))
        if left:
            write_configuration(Path(file), left)
        else:
            Path(file).unlink()


# Files


def _kept(path: Path) -> dict[str, Any]:
    """What was written down when our hooks were put in; nothing where they were not."""
    return _record(_kept_file(path))


def _record(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _kept_file(path: Path) -> Path:
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    return _kept_folder() / f"{name}.json"


def _kept_folder() -> Path:
    return data_home() / "hooks"


def _mode(path: Path) -> int | None:
    return path.stat().st_mode & 0o777 if path.exists() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecollectError(f"{path} cannot be read: {error.strerror}") from error


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
