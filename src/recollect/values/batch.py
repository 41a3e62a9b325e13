"""What is written to a store at once, and what a store answers.

A batch is all or nothing, and idempotent: writing it twice leaves what writing it once does.
That is what makes the spool's "exactly once" true. Jobs of a batch whose segments were all known
already are left out for the same reason: they were enqueued, and perhaps done, the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.values.compaction import CompactionRecord
from recollect.values.fact import ExtractedTo, Fact, FactVectorSet
from recollect.values.job import NewJob
from recollect.values.ledger import Piece, TurnRecord
from recollect.values.message import EntryKey, MessageId
from recollect.values.segment import NewSegment, SegmentId, VectorSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWrite:
    """What a session is to be remembered as.

    `state` is everything but the path; the path is replaced from `path_from` on. Older writes
    never replace newer ones: a write whose `turn` is not above the stored one is left out, so a
    batch that was late, waited in the spool, or comes from a process that did not see the last
    turn, does no harm. The very same write again is not stale.
    """

    session: str
    turn: int
    state: bytes = field(repr=False)
    about: tuple[MessageId, ...] = ()
    """Whose content the state quotes (shortened results, recalled blocks)."""
    path_from: int = 0
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    ids: tuple[MessageId, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session as the store remembers it."""

    session: str
    turn: int
    state: bytes = field(repr=False)
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    ids: tuple[MessageId, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One durable write."""

    at: float
    """When it was made; stores take times from here, never from their own clock."""
    segments: tuple[NewSegment, ...] = field(default=(), repr=False)
    vectors: tuple[VectorSet, ...] = field(default=(), repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    """Written or, where the id is known, replaced."""
    jobs: tuple[NewJob, ...] = ()
    session: SessionWrite | None = None
    pieces: tuple[Piece, ...] = field(default=(), repr=False)
    turns: tuple[TurnRecord, ...] = field(default=(), repr=False)
    compactions: tuple[CompactionRecord, ...] = field(default=(), repr=False)
    """Written or, where session and number are known, left as they are."""
    fact_vectors: tuple[FactVectorSet, ...] = field(default=(), repr=False)
    """Of facts that are there, or come with this batch; others are left out."""
    extracted: tuple[ExtractedTo, ...] = ()
    """How far sessions were read for facts; never back."""
    facts_revision: int | None = None
    """The facts were decided upon at this revision of what is known (`Archive.facts_revision`):
    where it has moved on, the whole batch is refused with `StaleFacts`."""

    @property
    def empty(self) -> bool:
        """Nothing to write."""
        return not (
            self.segments
            or self.vectors
            or self.facts
            or self.jobs
            or self.session
            or self.pieces
            or self.turns
            or self.compactions
            or self.fact_vectors
            or self.extracted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write did."""

    stored: tuple[SegmentId, ...] = ()
    known: tuple[SegmentId, ...] = ()
    """Were there already."""
    forgotten: tuple[SegmentId, ...] = ()
    """A tombstone stands for them: not stored, and nothing that rests on them either."""
    session_stale: bool = False
    """The session has moved on; its write was left out, and its turns' records with it."""
    session_cleaned: bool = False
    """The session's state quoted a forgotten message: it was stored without its quotes, or not at
    all. What is in memory has to be loaded again."""
