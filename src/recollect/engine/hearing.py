"""What was done beside the turns since the last one, for the next report to tell.

Owns a short list of lines without content. Always holds: a line is told once; where nobody asks,
the oldest go.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MOST_LINES: Final = 8


class Heard:
    """Lines that wait to be told."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MOST_LINES)

    def hear(self, line: str) -> None:
        """Keep a line for the next report."""
        self._lines.append(line)

    def told(self) -> tuple[str, ...]:
        """All that waited; it waits no longer."""
        lines = tuple(self._lines)
        self._lines.clear()
        return lines
