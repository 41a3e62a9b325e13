"""One write to a store: segments, facts, sessions, jobs, and turns as they were sent. A batch is
atomic, and writing it twice changes nothing, so the spool can retry safely. A ledger piece (a
stored part of a request) is redacted before it is hashed, and lists the messages that it quotes, so
that forgetting one removes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
"""Kinds of ledger pieces. A "row" is one message. A "told" piece lists the messages that a memory
tool quotes, a "heard" piece names the session that got a reply."""


def piece_hash(kind: PieceKind, body: bytes) -> PieceHash:
    """Return the name of a piece of a request, with which `replay` recognizes changed pieces."""
    return PieceHash(blake2b(body, digest_size=16, person=kind.encode()).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPiece:
    """A part of a request, or a record about it."""

    hash: PieceHash
    kind: PieceKind
    body: bytes = field(repr=False)
    about: tuple[MessageId, ...] = ()
    exact: bool = True
    """False if a secret in the piece was masked."""


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
    """Piece with the turn's edits; only earlier versions wrote it."""
    report: PieceHash | None = None
    outcomes: tuple[PieceHash, ...] = ()
    """Pieces with the outcomes of the request's messages, oldest first; none in old records."""
    kept_rows: int = 0
    """Number of messages at the start that are the same as in the previous record."""
    rows: tuple[PieceHash, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTurn:
    """A turn with all messages of its request, including those that earlier records hold."""

    record: TurnRecord
    rows: tuple[PieceHash, ...]


JobId = NewType("JobId", str)
JobState: TypeAlias = Literal["waiting", "leased", "dead"]

EMBED_JOB: Final = "embed"
EXTRACT_JOB: Final = "extract"


def extract_key(session: str, *, left: bool) -> str:
    """Return the key of the job that extracts facts from a session. The key holds a hash, because a
    session's name may have any length; the payload holds the name."""
    name_bytes = session.encode("utf-8", "surrogatepass")
    mark = blake2b(name_bytes, digest_size=12, person=b"recollect-job").hexdigest()
    return f"{'left' if left else 'idle'}:{mark}"


def extract_keys(sessions: Iterable[str]) -> list[str]:
    """Return the keys of the jobs that extract facts from these sessions."""
    return [extract_key(name, left=is_left) for name in sessions for is_left in (False, True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to add to the queue."""

    kind: str
    key: str
    """If a job with this kind and key waits in the queue, the store skips this one."""
    payload: bytes = field(default=b"{}", repr=False)
    """Arguments of the job, as redacted JSON."""
    about: tuple[MessageId, ...] = ()
    """Messages that the payload quotes; forgetting one of them drops the job."""
    cost_tokens: int = 0
    run_at: float = 0.0


def extract_job(session: str, *, run_at: float, left: bool, cost_tokens: int = 0) -> NewJob:
    """Make a job that extracts facts from a session's new messages. `left` means that messages are
    no longer in the request: the job then does not wait until the session is idle."""
    return NewJob(
        kind=EXTRACT_JOB,
        key=extract_key(session, left=left),
        payload=json.dumps({"session": session, "left": left}).encode(),
        run_at=run_at,
        cost_tokens=cost_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A job that one worker runs until the lease expires."""

    id: JobId
    kind: str
    key: str
    payload: bytes = field(repr=False)
    cost_tokens: int
    attempt: int
    token: str
    """Unique token per lease of the job."""
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job without its payload, as users see it."""

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
    """Counts of the jobs in a space's queue."""

    waiting: int
    leased: int
    dead: int
    paused: tuple[str, ...] = ()
    """Kinds whose jobs are paused; "*" means all kinds."""
    spent_tokens_today: int = 0
    due_at: float | None = None
    """Earliest time at which a waiting job is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWrite:
    """New state of a session. `path` (entry keys of the history) replaces the stored path from
    index `path_from` on. `state` holds everything else. The store ignores a state unless `turn` is
    above the stored one."""

    session: str
    turn: int
    state: bytes = field(repr=False)
    about: tuple[MessageId, ...] = ()
    path_from: int = 0
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    ids: tuple[MessageId, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session as stored."""

    session: str
    turn: int
    state: bytes = field(repr=False)
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    ids: tuple[MessageId, ...] = field(default=(), repr=False)
    newest: frozenset[EntryKey] = field(default=frozenset(), repr=False, compare=False)
    """Some of the newest stored messages, if the store reads them with the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Data that is written to the store in one transaction."""

    at: float
    """Creation time, which stores use instead of their own clock."""
    segments: tuple[NewSegment, ...] = field(default=(), repr=False)
    vectors: tuple[VectorSet, ...] = field(default=(), repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    """A fact replaces the stored fact with the same id."""
    jobs: tuple[NewJob, ...] = ()
    session: SessionWrite | None = None
    pieces: tuple[LedgerPiece, ...] = field(default=(), repr=False)
    turns: tuple[TurnRecord, ...] = field(default=(), repr=False)
    compactions: tuple[CompactionRecord, ...] = field(default=(), repr=False)
    """A compaction whose session and number are stored already is ignored."""
    fact_vectors: tuple[FactVectorSet, ...] = field(default=(), repr=False)
    """Vectors of facts that are stored or in this batch; vectors of other facts are skipped."""
    extracted: tuple[ExtractedTo, ...] = ()
    """Sequence number up to which facts were extracted, per session. A lower number is ignored."""
    facts_revision: int | None = None
    """Revision of the facts when they were read for this batch (`Archive.facts_revision`). If the
    revision has changed, the whole batch is refused with `StaleFacts`."""

    @property
    def empty(self) -> bool:
        names = (
            batch_field.name
            for batch_field in fields(self)
            if batch_field.name not in ("at", "facts_revision")
        )
        return not any(getattr(self, name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """Result of writing a batch."""

    stored: tuple[SegmentId, ...] = ()
    known: tuple[SegmentId, ...] = ()
    forgotten: tuple[SegmentId, ...] = ()
    """Segments of the batch that were forgotten earlier. The store did not write them, nor facts
    and vectors made from them."""
    session_stale: bool = False
    """True if the store had a newer state. The state and its turn records were not written."""
    session_cleaned: bool = False
    """True if the state quoted a forgotten message and was changed or refused: reload the state."""
    due_at: float | None = None
