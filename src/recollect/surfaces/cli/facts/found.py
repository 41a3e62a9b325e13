"""How many facts were found, from the lines in which extraction tells what it did.

Owns reading those lines (`engine.facts.extracting`): counts in front, the messages read behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NEW = re.compile(r"(\d+) facts (?:added|told in more detail|replaced)")
_READ = re.compile(r"from (\d+) messages")


@dataclass(slots=True)
class Found:
    """A sum of such lines."""

    facts: int = 0
    messages: int = 0
    notes: list[str] = field(default_factory=list)
    """Why a model was not asked, or did not answer; each once."""

    def hear(self, line: str) -> int:
        """Count one line; returns how many facts it told of."""
        said, _, note = line.partition("; ")
        found = sum(int(count) for count in _NEW.findall(said))
        self.facts += found
        self.messages += sum(int(count) for count in _READ.findall(said))
        if note and note not in self.notes:
            self.notes.append(note)
        return found

    def __str__(self) -> str:
        """For people."""
        return "1 fact found" if self.facts == 1 else f"{self.facts:,} facts found"
