"""Adds Recollect's hooks to an agent's settings, and removes them. A record in Recollect's data
folder contains the original file, so that `uninstall` restores the same bytes. If the file has
changed since, only Recollect's entries are removed. For Codex, the user must consent to hooks."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, product
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from recollect.errors import RecollectError
from recollect.hosts.gateway.agents import write_configuration
from recollect.hosts.hooks.transcript_file import AgentName
from recollect.system.places import claude_code_folder, codex_folder, data_home
from recollect.system.projects import find_project

InstallScope: TypeAlias = Literal["user", "project"]
COMMAND_SECONDS: Final = 15  # not measured; bounds how long an agent waits for a hook
TASK_TOOLS: Final = "Agent|Task"
"""Names of Claude Code's tool that starts a subagent, as a hook's matcher."""
END_SECONDS: Final = 3
"""Codex stops a SessionEnd hook after three seconds."""
_OUR_COMMAND: Final = re.compile(
    r"(?:^|[\s/'\"])recollect(?:-hook['\"]?|['\"]? hook) (?:claude-code|codex)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """A planned change of a settings file."""

    agent: AgentName
    path: Path
    before: str | None
    """Content before the change; None if the file does not exist."""
    after: str | None
    """Content after the change; None removes the file."""
    clean: str | None = None
    """Content without Recollect's hooks; None if the file did not exist before them."""
    installs: bool

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        before, after = ((text or "").splitlines() for text in (self.before, self.after))
        name = str(self.path)
        return "".join(
            f"{line}\n" for line in difflib.unified_diff(before, after, name, name, lineterm="")
        )


def settings_file(agent: AgentName, scope: InstallScope, project: Path) -> Path:
    """Return the file from which the agent reads hooks; in a project, the file that only the user
    has. Raise RecollectError if the file is a link out of the project, with which the project's
    author could overwrite any file of the user."""
    if scope == "user":
        if agent == "codex":
            return codex_folder() / "hooks.json"
        return claude_code_folder() / "settings.json"
    name = ".claude/settings.local.json" if agent == "claude-code" else ".codex/hooks.json"
    path = project / name
    if not path.resolve().is_relative_to(project.resolve()):
        raise RecollectError(f"{path} leads out of the project: remove that link first")
    return path


def hook_entries(agent: AgentName, command: str) -> Mapping[str, Sequence[Any]]:
    """Return Recollect's entries by event. An entry runs `command` with the agent's name."""

    def run(seconds: int, *, matcher: str = "", waits: bool = True) -> list[Any]:
        hook = {"type": "command", "command": f"{command} {agent}", "timeout": seconds}
        entry = hook if waits else {**hook, "async": True}
        return [{"matcher": matcher, "hooks": [entry]} if matcher else {"hooks": [entry]}]

    return {
        "SessionStart": run(COMMAND_SECONDS),
        "UserPromptSubmit": run(COMMAND_SECONDS),
        "Stop": run(COMMAND_SECONDS, waits=agent == "codex"),
        "PreCompact": run(COMMAND_SECONDS),
        "SessionEnd": run(END_SECONDS),
        **({} if agent == "codex" else _subagent_entries(run)),
    }


def _subagent_entries(run: Callable[..., list[Any]]) -> dict[str, list[Any]]:
    return {
        "PreToolUse": run(COMMAND_SECONDS, matcher=TASK_TOOLS),
        # It also has the summary of Claude Code, before SessionStart(compact).
        "SubagentStop": run(COMMAND_SECONDS),
    }


def is_ours(entry: Any) -> bool:
    """Return True if all hooks of an entry run Recollect."""
    hooks = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(hooks, list) or not hooks:
        return False
    commands = [hook.get("command") if isinstance(hook, dict) else None for hook in hooks]
    return all(_OUR_COMMAND.search(str(command)) for command in commands)


def find_hooks() -> list[tuple[Path, str, str]]:
    """Return this folder's settings files with hooks: path, program, arguments of `install`."""
    found, project = [], Path(find_project(str(Path.cwd())).place.path)
    for agent, scope in product(get_args(AgentName), get_args(InstallScope)):
        path = settings_file(agent, scope, project)
        entries = chain(*_parse(path, _text(path) or "").get("hooks", {}).values())
        if entry := next(filter(is_ours, entries), None):
            program = shlex.split(entry["hooks"][0]["command"])[0]
            found.append((path, program, agent + " --project" * (scope == "project")))
    return found


def plan_install(agent: AgentName, path: Path, command: str) -> InstallPlan:
    """Plan the settings file with Recollect's hooks, in place of earlier ones."""
    before = _text(path)
    clean = None if before is None else _without_ours(path, before)
    settings = _parse(path, clean or "")
    hooks = settings.setdefault("hooks", {})
    for event, entries in hook_entries(agent, command).items():
        hooks.setdefault(event, []).extend(entries)
    after = _write(settings, like=clean or "")
    return InstallPlan(
        agent=agent, path=path, before=before, after=after, clean=clean, installs=True
    )


def plan_uninstall(agent: AgentName, path: Path) -> InstallPlan:
    """Plan the original file or, if the file has changed since, one without Recollect's entries."""
    before = _text(path)
    after = None if before is None else _without_ours(path, before)
    return InstallPlan(agent=agent, path=path, before=before, after=after, installs=False)


def carry_out(plan: InstallPlan) -> None:
    """Write the planned change. A record contains the original file until the hooks are removed."""
    file = _record_file(plan.path)
    record = _record(file)
    if plan.installs:
        assert plan.after is not None
        original = None if plan.clean is None else base64.b64encode(_bytes(plan.clean)).decode()
        record = {
            "agent": plan.agent,
            "path": str(plan.path),
            "installed_at": record.get("installed_at", time.time()),
            "before": original,
            "after": hashlib.sha256(_bytes(plan.after)).hexdigest(),
            "made_folder": record.get("made_folder", not plan.path.parent.exists()),
        }
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_configuration(file, json.dumps(record).encode())
        write_configuration(plan.path, _bytes(plan.after))
        return
    if plan.after is not None and plan.changes:
        write_configuration(plan.path, _bytes(plan.after))
    elif plan.after is None and plan.before is not None:
        plan.path.unlink(missing_ok=True)
        if record.get("made_folder"):
            with suppress(OSError):  # the file has no entries of Recollect any more
                plan.path.parent.rmdir()
    file.unlink(missing_ok=True)


def installed_at(agent: AgentName) -> float:
    """Return the time at which an agent got Recollect's hooks; infinity if it has none."""
    with suppress(OSError):
        records = [_record(file) for file in (data_home() / "hooks").iterdir()]
        since = [record.get("installed_at") for record in records if record.get("agent") == agent]
        return min(
            (float(record) for record in since if isinstance(record, int | float)), default=inf
        )
    return inf


def _without_ours(path: Path, text: str) -> str | None:
    record = _record(_record_file(path))
    stored_original = record.get("before")
    original = None
    if stored_original is not None:
        original = base64.b64decode(stored_original).decode("utf-8", "surrogateescape")
    if hashlib.sha256(_bytes(text)).hexdigest() == record.get("after"):
        return original
    settings = _parse(path, text)
    own_events = _parse(path, original or "").get("hooks", {})
    hooks = settings.get("hooks", {})
    if not any(is_ours(entry) for entries in hooks.values() for entry in entries):
        return text
    for event, entries in tuple(hooks.items()):
        hooks[event] = [entry for entry in entries if not is_ours(entry)]
        if entries and not hooks[event] and event not in own_events:
            del hooks[event]
    if not hooks:
        del settings["hooks"]
    return _write(settings, like=text)


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text.removeprefix("\ufeff")) if text.strip() else {}
        hooks = settings.get("hooks", {})
        if all(isinstance(entries, list) for entries in hooks.values()):
            return dict(settings)
    except (ValueError, AttributeError):
        pass
    raise RecollectError(
        f"{path} must be a JSON object without comments, with one list of hooks per event; "
        "nothing was changed"
    )


def _write(settings: dict[str, Any], *, like: str) -> str:
    indent_match = re.search(r"\n([ \t]+)\S", like)
    return (
        json.dumps(settings, indent=indent_match[1] if indent_match else 2, ensure_ascii=False)
        + "\n"
    )


def _record(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _record_file(path: Path) -> Path:
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    return data_home() / "hooks" / f"{name}.json"


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecollectError(f"{path} cannot be read: {error.strerror}") from error


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_PLUGIN_FILES: Final = (
    "contract.ts",
    "daemon.ts",
    "engine.ts",
    "index.ts",
    "openclaw.plugin.json",
    "package.json",
)


def openclaw_plugin() -> Path:
    """Return the folder of OpenClaw's plugin. Every version of Recollect uses this path."""
    return data_home() / "openclaw-plugin"


def put_openclaw_plugin() -> bool:
    """Copy this version's plugin into its folder. Return False if the folder was up to date."""
    import recollect

    package = Path(recollect.__file__).parent
    places = (package / "plugins" / "openclaw", package.parents[1] / "plugins" / "openclaw")
    source = next((place for place in places if (place / "index.ts").is_file()), None)
    if source is None:
        raise RecollectError("this installation lacks OpenClaw's plugin: reinstall recollect")
    changed = False
    for name in _PLUGIN_FILES:
        content, file = (source / name).read_bytes(), openclaw_plugin() / name
        if not file.is_file() or file.read_bytes() != content:
            write_configuration(file, content)
            changed = True
    return changed


def take_openclaw_plugin() -> bool:
    """Remove the plugin's files and nothing else. Return False if there were none."""
    plugin_files = [file for name in _PLUGIN_FILES if (file := openclaw_plugin() / name).is_file()]
    for file in plugin_files:
        file.unlink()
    with suppress(OSError):  # the folder contains other files
        openclaw_plugin().rmdir()
    return bool(plugin_files)
