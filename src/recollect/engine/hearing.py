"""What was done beside the turns since the last one, for the next report to tell.

Owns a short list of lines without content, and what was asked of models. Always holds: a line is
told once; where nobody asks, the oldest go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from recollect.engine.metering import by_purpose
from recollect.values.model import ModelUse

MOST_LINES: Final = 8


class Heard:
    """Lines that wait to be told."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._uses: list[ModelUse] = []

    def hear(self, line: str) -> None:
        """Keep a line for the next report."""
        self._lines.append(line)

    def use(self, use: ModelUse) -> None:
        """Keep a call of a model for the next report."""
        self._uses = list(by_purpose([*self._uses, use]).values())

    def hear_again(self, lines: Sequence[str], uses: Sequence[ModelUse]) -> None:
        """What was to be told in a report that nobody got."""
        self._lines.extendleft(reversed(lines))
        self._uses = list(by_purpose([*uses, *self._uses]).values())

    def used(self) -> tuple[ModelUse, ...]:
        """What was asked of models, by purpose; it waits no longer."""
        uses, self._uses = tuple(self._uses), []
        return uses

    def told(self) -> tuple[str, ...]:
        """All that waited; it waits no longer."""
        lines = tuple(self._lines)
        self._lines.clear()
        return lines
