"""What one look at the memory files found, and what it did about it.

Names files and lines, never what they say: these values are printed and logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FileOutcome: TypeAlias = Literal["added", "changed", "withdrawn", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """One file: what became of its sections."""

    file: str
    """Relative to its workspace; with `~` or absolute where it lies outside."""
    outcome: FileOutcome
    added: int = 0
    moved: int = 0
    """Sections that only stand at another line now."""
    withdrawn: int = 0
    """Sections that the file no longer holds."""
    unchanged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file or folder that was not looked at, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesLook:
    """What a look did, file by file."""

    files: tuple[LookedAt, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    forgotten: tuple[str, ...] = ()
    """Sections, as file and line, that stay out because they were forgotten on purpose. Only of
    files that were read this time: those that did not change are not read again."""
    redacted: int = 0
    """How many secrets were masked in what was written."""

    def count(self, outcome: FileOutcome) -> int:
        """How many files ended so."""
        return sum(one.outcome == outcome for one in self.files)

    @property
    def said(self) -> str:
        """One sentence for a report or a log."""
        parts = [
            f"{self.count(outcome)} {outcome}"
            for outcome in ("added", "changed", "withdrawn", "unchanged")
        ]
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped")
        if self.forgotten:
            parts.append(f"{len(self.forgotten)} forgotten sections stay out")
        return f"memory files: {', '.join(parts)}"
