"""Which file a path of the model's means, whether it may be touched, and how commands are run.

Always holds: the path that comes back is resolved, symbolic links followed, and inside the
workspace unless the owner allowed more; long outputs of the session's own commands may be read.
Settings are the user's to write, and Recollect's own folders nobody's to open: a settings file says
who is sent a key, the config folder records which projects the user trusts, and other spaces'
transcripts are in the data folder. It never creates or opens anything.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Literal, TypeAlias

from recollect.agent.tools.outcome import Outputs
from recollect.system.config.places import config_home, data_home
from recollect.system.config.trust import FILE_NAME

ShellMode: TypeAlias = Literal["free", "confined", "asked", "off"]
Confirm: TypeAlias = Callable[[str], Awaitable[bool]]
"""Asks a person whether what the text says may be done."""

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix")
_PASSED_ON = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "PATH", "SHELL", "TERM", "TZ", "USER")
"""Variables that a confined command sees; keys of providers are in others."""
_PROBE_SECONDS = 5.0
SETTINGS_FILES = (FILE_NAME, "openclaw.json")
"""Names of files that settings are read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellRule:
    """How the commands of `bash` are kept in check."""

    mode: ShellMode = "free"
    """free: as its user could; confined: in bubblewrap; asked: a person allows each; off: none."""
    confirm: Confirm | None = field(default=None, repr=False)
    """Who is asked; None: nobody is there, and what would have to be asked is not run."""
    network: bool = False
    """A confined command may reach the network."""

    def command(self, command: str, scope: ToolScope) -> list[str]:
        """The program and its arguments."""
        plain = ["bash", "-c", command]
        return [*_bubblewrap(scope, network=self.network), *plain] if self._confines else plain

    def environment(self, marked: dict[str, str], mark: str) -> dict[str, str]:
        """What of the environment a command sees; the variable `mark` always."""
        if not self._confines:
            return marked
        kept = {name: marked[name] for name in (*_PASSED_ON, mark) if name in marked}
        return {**kept, "HOME": "/tmp"}  # noqa: S108 - its own, empty at every call

    @property
    def _confines(self) -> bool:
        return self.mode == "confined"


def _bubblewrap(scope: ToolScope, *, network: bool) -> list[str]:
    """The system to read, the workspace to write, nothing else of this machine.

    Homes are not there, and `/tmp` is empty: a key on the disk cannot be read. What was opened or
    started is gone with the command, since its processes are in a namespace of their own. Settings
    in the workspace can only be read, and a data folder in it is empty.
    """
    root, real = scope.root, scope.root.resolve()
    folders = [name for name in _SYSTEM_FOLDERS if Path(name).exists()]
    inside = [root / one.relative_to(real) for one in _settings(scope) if one.is_relative_to(real)]
    settings = [str(one) for one in inside if one.is_file()]
    own = [one for one in _own_folders() if one.is_relative_to(real) and one.is_dir()]
    hidden = [root / one.relative_to(real) for one in own]
    return [
        *("bwrap", "--die-with-parent", "--new-session", "--unshare-all"),
        *(("--share-net",) if network else ()),
        *(word for name in folders for word in ("--ro-bind", name, name)),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108
        *("--bind", str(root), str(root)),
        *(word for name in settings for word in ("--ro-bind", name, name)),
        *(word for one in hidden for word in ("--tmpfs", str(one))),
        *("--chdir", str(root), "--"),
    ]


def bubblewrap_works(root: Path) -> bool:
    """Whether commands can be confined here: the program is there, and the system lets it."""
    if which("bwrap") is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            [*_bubblewrap(ToolScope(root=root), network=False), "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolScope:
    """Where tools may work."""

    root: Path
    """The workspace."""
    allow_outside: bool = False
    """Files outside of it may be read and written, too."""
    read_only: bool = False
    """Nothing may be written or run."""
    outputs: Outputs | None = None
    """Where long outputs of commands go; None: they are kept nowhere."""
    shell: ShellRule = field(default_factory=ShellRule)
    """How commands are run."""
    settings_file: Path | None = None
    """The settings file that was named, where one was: no tool writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A path that may be used."""

    path: Path
    base: Path
    """Where the way to it begins: behind this folder no link is followed when it is opened."""
    shown: str
    """As the model may name it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A path that may not, and why."""

    reason: str


def confine(given: str | None, scope: ToolScope, *, reading: bool = False) -> Placed | Refused:
    """The file that `given` means; who is only `reading` may look at long outputs, too."""
    if not given:
        return Refused(reason="`path` is missing; name a file.")
    if "\0" in given:
        return Refused(reason="`path` holds a NUL character, which no file name can.")
    root = scope.root.resolve()
    asked = Path(given)
    if given.startswith("~"):
        try:
            asked = asked.expanduser()
        except RuntimeError:
            return Refused(reason="`path` begins with a home folder that does not exist.")
    try:
        path = (root / asked).resolve()
    except (OSError, RuntimeError):  # a loop of symbolic links
        return Refused(reason="`path` cannot be resolved; name another file.")
    is_output = reading and _is_output(path, scope)
    own = [
        one for one in _own_folders() if one.is_relative_to(root) or not path.is_relative_to(root)
    ]
    if any(path.is_relative_to(one) for one in own) and not is_output:
        return Refused(reason="`path` is in Recollect's own data, which no tool may open.")
    if not reading and (path.name.casefold() in SETTINGS_FILES or path in _settings(scope)):
        return Refused(
            reason="`path` is a settings file of Recollect, which only the user writes; say what "
            "should stand in it."
        )
    if path.is_relative_to(root):
        return Placed(path=path, base=root, shown=path.relative_to(root).as_posix() or ".")
    if scope.allow_outside or is_output:
        base = path.parent if is_output else Path(path.anchor)
        return Placed(path=path, base=base, shown=str(path))
    return Refused(
        reason="`path` leads out of the workspace, and only files inside it may be used."
    )


def _own_folders() -> tuple[Path, ...]:
    """Where memories are, and the user's settings with the record of what the user trusts."""
    return tuple(dict.fromkeys((data_home().resolve(), config_home().resolve())))


def _settings(scope: ToolScope) -> list[Path]:
    """The settings files that count in this workspace, links followed; they need not exist."""
    named = (*SETTINGS_FILES, *(() if scope.settings_file is None else (scope.settings_file,)))
    return [(scope.root / one).resolve() for one in named]


def _is_output(path: Path, scope: ToolScope) -> bool:
    if scope.outputs is None:
        return False
    return path.parent == scope.outputs.folder.resolve()
