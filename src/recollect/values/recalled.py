"""What memory found for a turn, before it is packed into a block."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from recollect.values.fact import FactId
from recollect.values.fact import FactType as FactType
from recollect.values.history import SessionId, SpaceId
from recollect.values.hit import GateVerdict, Hit
from recollect.values.message import EntryKey, MessageId
from recollect.values.reason import Reason
from recollect.values.segment import SegmentId, Trust

RecallScope: TypeAlias = Literal["session", "space"]

BLOCK_OPENING = '<recalled-context source="memory-context">'
BLOCK_CLOSING = "</recalled-context>"
"""A recalled block's tags: OpenClaw's literals, which other readers know."""


_OF = ":"
"""Between a segment's id, which is hexadecimal, and the number of its passage."""


def passage_name(segment: SegmentId, ordinal: int | None) -> str:
    """What a block keeps of a passage that it quotes; without an ordinal, the whole segment."""
    return segment if ordinal is None else f"{segment}{_OF}{ordinal}"


def fact_name(id: FactId) -> str:  # noqa: A002
    """What a block keeps of a fact that it shows; no segment's name is like it."""
    return f"fact{_OF}{id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledFact:
    """A fact that may go into the block."""

    type: FactType
    text: str = field(repr=False)
    score: float
    id: FactId | None = None
    trust: Trust = "medium"
    said_on: str = ""
    """The day since when it holds, as shown: `2026-02-10`; empty where it is not shown."""
    message_ids: tuple[MessageId, ...] = ()
    """Whose words it rests on, so that forgetting finds the block that quotes it."""

    @property
    def name(self) -> str | None:
        """What keeps it from being recalled again while its block stands."""
        return None if self.id is None else fact_name(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledPassage:
    """A passage of an earlier message that may go into the block."""

    text: str = field(repr=False)
    role: str
    said_at: str
    """Minute it was said, as shown: `2026-02-10 14:31`."""
    score: float
    speaker: str | None = None
    """Who said it, as the block names them; None: the role; empty: the text names them itself."""
    source: str = ""
    """Where it can be looked up: a segment id, or file and line; empty where it is not cited."""
    message_id: MessageId | None = None
    """Whose words they are, so that forgetting finds the block that quotes them."""
    segment: SegmentId | None = None
    """Whose passage it is."""
    ordinal: int | None = None
    """Which passage of its segment it is; None: all of it."""
    sitting: str = ""
    """What was said together stands together: the session and the day, as a key."""
    order: tuple[float, int, int] = (0.0, 0, 0)
    """Where it stands among the others of its sitting: time, arrival, place in its message."""

    @property
    def name(self) -> str | None:
        """What keeps it from being recalled again while its block stands."""
        return None if self.segment is None else passage_name(self.segment, self.ordinal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Everything recall offers for one turn, best first."""

    facts: tuple[RecalledFact, ...] = ()
    passages: tuple[RecalledPassage, ...] = ()
    gate: GateVerdict | None = None
    hits: tuple[Hit, ...] = field(default=(), repr=False)
    """The ranking it was packed from, best first; empty where the gate stayed shut."""
    notes: tuple[Reason, ...] = ()
    """What was not as it should be: an embedder that failed, vectors that are still made."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to put back."""
        return not self.facts and not self.passages


Asks: TypeAlias = Literal["past", "question", "advice", "reference", "other"]
"""What a message wants: what was said before; an answer; advice ("how do I …?"), which is known
without memory; work for which it refers to what is agreed ("our definition", "as told"); or none
of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """What a turn asks of memory."""

    space: SpaceId
    session: SessionId
    query: str = field(repr=False)
    """The last user messages, oldest first."""
    newest: str = field(default="", repr=False)
    """The newest of them alone; empty: `query` is all there is."""
    asks: Asks | None = None
    """What the newest message wants of the model; None: as its words say."""
    leans_on: str = field(default="", repr=False)
    """What the user said before, where the newest message cannot be understood without it."""
    recent: tuple[str, ...] = field(default=(), repr=False)
    """What the model said lately: identifiers in it may have lost their origin."""
    shown: frozenset[EntryKey] = field(default=frozenset(), repr=False)
    """The messages of this session that the view shows."""
    quoted: frozenset[str] = field(default=frozenset(), repr=False)
    """The names of passages, or of whole segments, that blocks in the view quote already."""
    shown_messages: frozenset[MessageId] = field(default=frozenset(), repr=False)
    """The identities of what the view shows: the same history may be stored under another name."""
    asked_before: Container[EntryKey] = field(default=frozenset(), repr=False)
    """Those of the shown in which the user only asks: they answer nothing."""
    told_in_part: Mapping[EntryKey, tuple[EntryKey, ...]] = field(default_factory=dict, repr=False)
    """Those of the shown in whose exchange a result was cut, so that what they speak of is not
    all there; and the messages of that exchange."""
    asking: EntryKey | None = None
    """The message that asks: it answers itself best, and says nothing by that."""
    uses_tools: bool = False
    """Whether the view shows calls of tools or their results."""
    view: Sequence[str] = field(default=(), repr=False)
    """The texts that the view shows, without those that ask."""
    scope: RecallScope = "space"
    now: float
    budget_tokens: int
    count_tokens: Callable[[str], int] = field(repr=False)
    """Tokens of a text, as the budget counts them."""
    gated: bool = True
    """Stay silent unless something that left the view is meant."""
    said_after: float | None = None
    said_before: float | None = None
    cold: bool = False
    """Also look through what went cold; slower."""
    most_hits: int = 50
    """How many of the ranking are handed on, explained."""

    @property
    def quoted_whole(self) -> frozenset[SegmentId]:
        """The segments that blocks in the view quote whole, or did before passages had names."""
        return frozenset(SegmentId(name) for name in self.quoted if _OF not in name)

    def quotes(self, segment: SegmentId, ordinal: int) -> bool:
        """Whether a block in the view quotes this passage already."""
        return segment in self.quoted or passage_name(segment, ordinal) in self.quoted
