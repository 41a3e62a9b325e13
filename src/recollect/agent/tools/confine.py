"""Which file a path of the model's means, and whether it may be touched.

Always holds: the path that comes back is resolved, symbolic links followed, and inside the
workspace unless the owner allowed more; long outputs of the session's own commands may be read.
It never creates or opens anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recollect.agent.tools.outcome import Outputs


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A path that may be used."""

    path: Path
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
    if path.is_relative_to(root):
        return Placed(path=path, shown=path.relative_to(root).as_posix() or ".")
    if scope.allow_outside or (reading and _is_output(path, scope)):
        return Placed(path=path, shown=str(path))
    return Refused(
        reason="`path` leads out of the workspace, and only files inside it may be used."
    )


def _is_output(path: Path, scope: ToolScope) -> bool:
    if scope.outputs is None:
        return False
    return path.parent == scope.outputs.folder.resolve()
