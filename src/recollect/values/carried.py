"""What code, not a model, takes over a cut: files, failures, names, and lines about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailure:
    """A tool call that failed: carried along by code, so that it is not tried again."""

    tool: str
    said: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldLine:
    """A line that tells about something that was named in it, and who said it."""

    speaker: Literal["user", "assistant", "call", "tool"]
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What code, not the model, takes over a cut."""

    read_files: tuple[str, ...] = field(default=(), repr=False)
    modified_files: tuple[str, ...] = field(default=(), repr=False)
    failures: tuple[ToolFailure, ...] = ()
    identifiers: tuple[str, ...] = field(default=(), repr=False)
    """Best first."""
    lines: tuple[ToldLine, ...] = ()
    """What tells about them, best first; none where an older version wrote it."""

    def details(self) -> dict[str, Any]:
        """As OpenClaw's `details` spell it."""
        return {
            "readFiles": list(self.read_files),
            "modifiedFiles": list(self.modified_files),
            "toolFailures": [{"toolName": one.tool, "summary": one.said} for one in self.failures],
        }
