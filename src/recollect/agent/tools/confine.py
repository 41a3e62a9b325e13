"""Defines a tool and its answer, checks the paths that a model names, and confines its commands.

A tool reports failures in its result. A model's arguments never make a tool raise.

`confine` resolves links, and returns only paths inside the workspace. No tool writes a settings
file or opens Recollect's own folders, because settings decide which server gets a key and which
projects are trusted, and the folders contain the transcripts of other spaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any, Literal, TypeAlias

from recollect.core.formats.codec import tool_definition
from recollect.core.values.model import FormatName
from recollect.system.config.trust import FILE_NAME
from recollect.system.places import config_home, data_home

CUT_OFF = (
    "Not run: the reply reached the output limit, so this call may be cut off. Ask again with less "
    "at once, for example a file in several parts."
)
"""The result of a tool call whose reply ended at the provider's output limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """The result of a tool call."""

    text: str = field(repr=False)
    is_error: bool = False
    images: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Media type and base64 data."""
    details: Mapping[str, Any] | None = field(default=None, repr=False)
    """Values for the display, which the model never sees."""

    def content(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": self.text}] if self.text else []
        blocks.extend({"type": "image", "data": d, "mimeType": m} for m, d in self.images)
        return blocks


def tool_failure(text: str) -> ToolOutcome:
    return ToolOutcome(text=text, is_error=True)


def result_message(call: Mapping[str, Any], outcome: ToolOutcome) -> dict[str, Any]:
    """Create the message with a tool call's result."""
    message: dict[str, Any] = {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call["name"],
        "content": outcome.content(),
    }
    if outcome.details is not None:
        message["details"] = dict(outcome.details)
    return {**message, "isError": outcome.is_error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(repr=False)
    """JSON schema of the tool's arguments."""
    run: Callable[[Mapping[str, Any]], Awaitable[ToolOutcome]] = field(repr=False)


def wire_tool(tool: Tool, format_name: FormatName) -> dict[str, Any]:
    return tool_definition(format_name, tool.name, tool.description, tool.parameters)


def schema(required_names: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: dict(shape) for name, shape in properties.items()},
        "required": list(required_names),
        "additionalProperties": False,
    }


def text_argument(arguments: Mapping[str, Any], name: str) -> str | None:
    """Return an argument if it is a string; None otherwise."""
    value = arguments.get(name)
    return value if isinstance(value, str) else None


def number_argument(arguments: Mapping[str, Any], name: str) -> int | None:
    """Return an integer argument; None for other types. Some models write integers as text."""
    value = arguments.get(name)
    if isinstance(value, str) and value.strip().isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


ShellMode: TypeAlias = Literal["free", "confined", "asked", "off"]
Confirm: TypeAlias = Callable[[str], Awaitable[bool]]
"""Asks a person to allow the action that the text describes."""

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix")
_PASSED_ON = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "PATH", "SHELL", "TERM", "TZ", "USER")
"""Environment variables that a confined command gets. None of these contains a provider's key."""
# Not measured: bubblewrap starts within milliseconds, or never.
_PROBE_SECONDS = 5.0
SETTINGS_FILES = (FILE_NAME, "openclaw.json")
"""Names of files from which settings are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellRule:
    """The rule for the commands of `bash`."""

    mode: ShellMode = "free"
    """free: commands have the user's rights. confined: they run in bubblewrap. asked: a person
    allows each command. off: no command runs."""
    confirm: Confirm | None = field(default=None, repr=False)
    """Asks a person. Without this function, commands that need permission do not run."""
    network: bool = False
    """True if a confined command may use the network."""

    def command(self, command: str, scope: ToolScope) -> list[str]:
        prefix = _bubblewrap(scope, network=self.network) if self.mode == "confined" else []
        return [*prefix, "bash", "-c", command]

    def environment(self) -> dict[str, str]:
        if self.mode != "confined":
            return dict(os.environ)
        passed_variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {**passed_variables, "HOME": "/tmp"}  # noqa: S108 - its own, empty at every call


def _bubblewrap(scope: ToolScope, *, network: bool) -> list[str]:
    """Write bubblewrap's arguments: a command may read the system and write the workspace, nothing
    else on this machine. Home folders are hidden and `/tmp` is empty, so that no command can read
    keys on the disk. A process namespace ends all processes with the command. Settings in the
    workspace are read-only, and a data folder in the workspace appears empty."""
    root, real = scope.root, scope.root.resolve()
    folders = [name for name in _SYSTEM_FOLDERS if Path(name).exists()]
    inside = [
        root / path.relative_to(real) for path in _settings(scope) if path.is_relative_to(real)
    ]
    settings = [str(path) for path in inside if path.is_file()]
    own_folders = [
        folder for folder in _own_folders() if folder.is_relative_to(real) and folder.is_dir()
    ]
    hidden_folders = [root / folder.relative_to(real) for folder in own_folders]
    return [
        *("bwrap", "--die-with-parent", "--new-session", "--unshare-all"),
        *(("--share-net",) if network else ()),
        *(word for name in folders for word in ("--ro-bind", name, name)),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108
        *("--bind", str(root), str(root)),
        *(word for name in settings for word in ("--ro-bind", name, name)),
        *(word for folder in hidden_folders for word in ("--tmpfs", str(folder))),
        *("--chdir", str(root), "--"),
    ]


def bubblewrap_works(root: Path) -> bool:
    """Return True if bubblewrap is installed, and the system allows it to confine commands."""
    if which("bwrap") is None:
        return False
    try:
        completed = subprocess.run(  # noqa: S603 - our own arguments
            [*_bubblewrap(ToolScope(root=root), network=False), "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolScope:
    """The files and commands that the tools may use."""

    root: Path
    read_only: bool = False
    """True if nothing may be written or run."""
    shell: ShellRule = field(default_factory=ShellRule)
    settings_file: Path | None = None
    """A settings file that the user named, and that no tool may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedPath:
    """A path that a tool may use."""

    path: Path
    base: Path
    """The workspace. Opening the path follows no link inside the workspace."""

    @property
    def shown(self) -> str:
        return self.path.relative_to(self.base).as_posix() or "."


def confine(
    path_text: str | None, scope: ToolScope, *, reading: bool = False
) -> AllowedPath | ToolOutcome:
    """Resolve a path that the model wrote, or refuse it. Settings files may only be read."""
    if not path_text or "\0" in path_text:
        return tool_failure("`path` is missing; name a file.")
    root = scope.root.resolve()
    try:
        path = (root / Path(path_text).expanduser()).resolve()
    except (OSError, RuntimeError):  # an unknown home folder, or a loop of symbolic links
        return tool_failure("`path` cannot be resolved; name another file.")
    own_folders = [
        folder
        for folder in _own_folders()
        if folder.is_relative_to(root) or not path.is_relative_to(root)
    ]
    if any(path.is_relative_to(folder) for folder in own_folders):
        return tool_failure("`path` is in Recollect's own data, which no tool may open.")
    if not reading and (path.name.casefold() in SETTINGS_FILES or path in _settings(scope)):
        return tool_failure(
            "`path` is a settings file of Recollect, which only the user writes; tell the "
            "user what to change in it."
        )
    if not path.is_relative_to(root):
        return tool_failure(
            "`path` leads out of the workspace, and only files inside it may be used."
        )
    return AllowedPath(path=path, base=root)


def _own_folders() -> tuple[Path, ...]:
    return tuple(dict.fromkeys((data_home().resolve(), config_home().resolve())))


def _settings(scope: ToolScope) -> list[Path]:
    """List the settings files of this workspace, with links resolved, even missing ones."""
    names = (*SETTINGS_FILES, *(() if scope.settings_file is None else (scope.settings_file,)))
    return [(scope.root / name).resolve() for name in names]
