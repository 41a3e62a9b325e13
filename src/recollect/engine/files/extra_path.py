"""A path that the settings add to a workspace: a file, a folder or a glob.

Owns how it is spelled: relative to the workspace, `~` for the home, patterns as a shell has them
(`*`, `?`, `[…]`, and `**` for any number of folders). Asks the disk whether a name with such signs
in it is there as it stands, and where a link leads; looks into nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self, TypeAlias

Pattern: TypeAlias = tuple[str, ...]
"""The parts of a glob that are still to be matched, one a name; empty: everything below."""

_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraPath:
    """Where to begin, and what to look for there."""

    path: Path
    """The file, the folder, or the last folder before a glob's first pattern; links resolved."""
    pattern: Pattern = ()

    @classmethod
    def read(cls, named: str, workspace: Path) -> Self:
        """A path as the settings spell it."""
        path = workspace / os.path.expanduser(named)  # noqa: PTH111 - never raises
        if not _MAGIC.intersection(named) or os.path.lexists(path):
            return cls(path=Path(os.path.realpath(path)))
        parts = path.parts
        fixed = next(at for at, part in enumerate(parts) if _MAGIC.intersection(part))
        return cls(path=Path(os.path.realpath(Path(*parts[:fixed]))), pattern=parts[fixed:])

    @staticmethod
    def below(pattern: Pattern, name: str) -> Iterator[Pattern | None]:
        """What of a pattern is left below this name; None where the name itself is meant."""
        if not pattern:
            yield None
            return
        first, *rest = pattern
        if first == "**":
            yield pattern
            if rest:
                yield from ExtraPath.below(tuple(rest), name)
            else:
                yield None
        elif fnmatchcase(name, first):
            yield tuple(rest) if rest else None
