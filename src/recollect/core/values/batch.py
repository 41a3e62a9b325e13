"""One write to a store: segments, facts, sessions, jobs, and turns as they were sent.

A batch is all or nothing, and idempotent: this makes the spool's "exactly once" true. A ledger
piece is redacted before it is hashed, and names the messages that it quotes, so that forgetting
finds it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Final, Literal, NewType, TypeAlias

from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.fact import ExtractedTo, Fact, FactVectorSet
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import NewSegment, SegmentId, VectorSet

PieceHash = NewType("PieceHash", str)
PieceKind: TypeAlias = Literal[
    "system", "tools", "row", "edits", "report", "rest", "outcomes", "told", "heard"
]
"""The part of a request. "told" (messages that a memory tool's answer quotes) and "heard" (the
session that received a reply) belong to no turn. Nothing writes "edits" any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPiece:
    """A stretch of a request, or what was said about it."""

    hash: PieceHash
    kind: PieceKind
    body: bytes = field(repr=False)
    about: tuple[MessageId, ...] = ()
    exact: bool = True
    """Nothing in it was redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One request as it was sent."""

    session: str
    number: int
    at: float
    format: str
    model: str | None = None
    system: PieceHash | None = None
    tools: PieceHash | None = None
    rest: PieceHash | None = None
    edits: PieceHash | None = None
    """Only in records of earlier versions."""
    report: PieceHash | None = None
    outcomes: tuple[PieceHash, ...] = ()
    """The records that hold the outcomes of its messages, the oldest first; empty in earlier
    versions."""
    kept_rows: int = 0
    """How many rows from the start are those of the record before it."""
    rows: tuple[PieceHash, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTurn:
    """A turn with all its rows named, whatever records it rests on."""

    record: TurnRecord
    rows: tuple[PieceHash, ...]


JobId = NewType("JobId", str)
JobState: TypeAlias = Literal["waiting", "leased", "dead"]

EMBED_JOB: Final = "embed"
EXTRACT_JOB: Final = "extract"


def extract_key(session: str, *, left: bool) -> str:
    """The key of the job that reads a session for facts; the name itself is only in its payload, so
    that any name can be a key, and forgetting a session finds its jobs by both keys."""
    named = session.encode("utf-8", "surrogatepass")
    mark = blake2b(named, digest_size=12, person=b"recollect-job").hexdigest()
    return f"{'left' if left else 'idle'}:{mark}"


DIGEST_JOB: Final = "digest"
"""The kind of jobs that earlier versions wrote digests by; their payloads name a subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be enqueued."""

    kind: str
    key: str
    """Two jobs of one kind and key are one job while it waits; a leased one does not count."""
    payload: bytes = field(default=b"{}", repr=False)
    """JSON; redacted like everything that is stored."""
    about: tuple[MessageId, ...] = ()
    """Whose content the payload quotes; forgetting one of them drops the job."""
    cost_tokens: int = 0
    run_at: float = 0.0


def extract_job(session: str, *, run_at: float, left: bool, cost_tokens: int = 0) -> NewJob:
    """A job that reads what a session has said since it was read last. `left`: messages left the
    view, so it does not wait for the session to go idle."""
    return NewJob(
        kind=EXTRACT_JOB,
        key=extract_key(session, left=left),
        payload=json.dumps({"session": session, "left": left}).encode(),
        run_at=run_at,
        cost_tokens=cost_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A job in the hands of one worker, until it expires."""

    id: JobId
    kind: str
    key: str
    payload: bytes = field(repr=False)
    cost_tokens: int
    attempt: int
    token: str
    """Names this lease; a later lease of the same job has another one."""
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as the queue shows it to people; without its payload."""

    id: JobId
    kind: str
    key: str
    state: JobState
    attempts: int
    run_at: float
    cost_tokens: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The queue of a space at a glance."""

    waiting: int
    leased: int
    dead: int
    paused: tuple[str, ...] = ()
    """Kinds that are not handed out; "*" is all of them."""
    spent_tokens_today: int = 0
    due_at: float | None = None
    """When the next waiting job may run; None when none waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWrite:
    """The new state of a session. `state` is everything but the path, which is replaced from
    `path_from` on. A write whose `turn` is not above the stored one is left out, so late batches do
    no harm; the very same write again is not stale."""

    session: str
    turn: int
    state: bytes = field(repr=False)
    about: tuple[MessageId, ...] = ()
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
    pieces: tuple[LedgerPiece, ...] = field(default=(), repr=False)
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
        names = (one.name for one in fields(self) if one.name not in ("at", "facts_revision"))
        return not any(getattr(self, name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The effect of a write."""

    stored: tuple[SegmentId, ...] = ()
    known: tuple[SegmentId, ...] = ()
    forgotten: tuple[SegmentId, ...] = ()
    """A tombstone keeps them out: neither they nor anything that rests on them is stored."""
    session_stale: bool = False
    """The session has moved on; its write was left out, and its turns' records with it."""
    session_cleaned: bool = False
    """The state quoted a forgotten message and was stored without its quotes, or not at all: load
    it again."""
    due_at: float | None = None
