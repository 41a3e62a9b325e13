"""What memory found for a turn, before it is packed into a block."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.values.message import MessageId
from recollect.values.segment import FactType as FactType

BLOCK_OPENING = '<recalled-context source="memory-context">'
BLOCK_CLOSING = "</recalled-context>"
"""A recalled block's tags: literals of the seeds, which other readers know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledFact:
    """A fact that may go into the block."""

    type: FactType
    text: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledPassage:
    """A passage of an earlier message that may go into the block."""

    text: str
    role: str
    said_at: str
    """Minute it was said, as shown: `2026-02-10 14:31`."""
    score: float
    source: str = ""
    """Where it can be looked up: a segment id, or file and line."""
    message_id: MessageId | None = None
    """Whose words they are, so that forgetting finds the block that quotes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Everything recall offers for one turn, best first."""

    facts: tuple[RecalledFact, ...] = ()
    passages: tuple[RecalledPassage, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to put back."""
        return not self.facts and not self.passages
