"""Protocols for adapters. `tests/store_contract` tests every store against `Store`."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, Protocol, TypeVar, runtime_checkable

from recollect.core.values.batch import (
    Batch,
    JobRecord,
    Lease,
    LedgerPiece,
    PieceHash,
    QueueState,
    RebuiltTurn,
    StoredSession,
    WriteResult,
)
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.fact import Fact, FactId, FactText
from recollect.core.values.history import SessionId, SpaceId
from recollect.core.values.message import MessageId
from recollect.core.values.model import Answer, FormatName, ModelUse, Overflow, Prompt, ReplyEvent
from recollect.core.values.recall import (
    CandidateQuery,
    Candidates,
    EmbedderKind,
    FactCandidates,
    FactQuery,
    Recalled,
    RecalledFact,
    RecallRequest,
    Surroundings,
)
from recollect.core.values.segment import NewPassage, PassageText, SegmentId, StoredSegment, Vector
from recollect.core.values.upkeep import (
    BodyKind,
    CheckResult,
    ForgetOrder,
    Forgotten,
    RewriteOrder,
    Rewritten,
    ScrubResult,
    SessionSummary,
    Stats,
    StoredBody,
)

_Picked = TypeVar("_Picked")


class Clock(Protocol):
    """Tells the time; tests freeze it."""

    def now(self) -> float:
        """Seconds since the epoch."""


class TokenCounter(Protocol):
    """Counts tokens of text; pass the engine one that knows your model's tokenizer."""

    def count_text(self, text: str) -> int:
        """Tokens of `text`; at least 1 unless it is empty."""


class RecogniseOverflow(Protocol):
    """Recognises errors of requests that were refused for their size."""

    def __call__(
        self, *, status: int | None, message: str, body: Mapping[str, Any] | None = None
    ) -> Overflow | None:
        """The sizes that the error names; None if the request was refused for another reason."""


class Recaller(Protocol):
    """Finds relevant memories for a turn; the engine limits its time."""

    async def recall(self, request: RecallRequest) -> Recalled:
        """The relevant content that the view does not show, within the budget."""


@runtime_checkable
class StandingRecaller(Protocol):
    """A `Recaller` that also knows content for every turn."""

    async def standing(self, session: SessionId) -> tuple[RecalledFact, ...]:
        """Pinned facts and the user's standing requests, most binding first."""


class Embedder(Protocol):
    """Turns texts into vectors. The name is known before loading. Nothing blocks the event loop. An
    embedder that is not ready is left out of a turn."""

    @property
    def name(self) -> str:
        """The model and everything else that changes its vectors; vectors are stored under it."""

    @property
    def kind(self) -> EmbedderKind:
        """The kind that its similarities are weighed as."""

    @property
    def dimensions(self) -> int:
        """Numbers per vector; known once it is ready."""

    @property
    def ready(self) -> bool:
        """True if it is loaded."""

    async def load(self) -> None:
        """Load it; EmbedderError if that fails. Loading again does nothing."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """One vector per text, in order: little-endian float32 of length one. Loads if
        necessary."""


class Model(Protocol):
    """A language model that writes summaries and extracts facts. `ask` answers or raises a
    ModelError, within its own deadline and retries. Errors never quote message content."""

    @property
    def name(self) -> str:
        """The model's name, as its provider knows it."""

    @property
    def window_tokens(self) -> int | None:
        """The model's window, if it is known."""

    async def ask(self, prompt: Prompt) -> Answer:
        """Answer one prompt."""

    async def close(self) -> None:
        """Close connections."""


class ChatModel(Model, Protocol):
    """A model that also carries a conversation in its provider's wire format."""

    @property
    def format(self) -> FormatName:
        """The wire format of its requests and replies."""

    def stream(self, request: Mapping[str, Any]) -> AsyncIterator[ReplyEvent]:
        """Send a request; events as they come, `ReplyDone` last. Closing the iterator aborts it."""


class Archive(Protocol):
    """Segments, passages, vectors, facts and sessions of one space. A write is atomic and durable;
    writing again changes nothing; tombstoned content is not written; an unreadable record is left
    out and reported by `check`."""

    async def write(self, batch: Batch) -> WriteResult:
        """Write a batch, all or nothing, durable when this returns. A fact is never closed for one
        of this batch that a tombstone excludes."""

    async def session(self, session: SessionId) -> StoredSession | None:
        """The state of a session; None if nothing is stored."""

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """The sessions that have segments, oldest first."""

    async def candidates(self, query: CandidateQuery) -> Candidates:
        """The segments that may answer the query, with the data to score them."""

    async def around(
        self,
        ids: Sequence[SegmentId],
        query: CandidateQuery,
        *,
        reach: int = 2,
        passages_each: int = 3,
    ) -> Surroundings:
        """The segments up to `reach` places before and after each of these in its session, without
        `ids`. Noise and what the query leaves out do not count as places. Each comes with its first
        `passages_each` passages, described for the query whatever its limits and times."""

    async def segments(self, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
        """These segments, in this order; unknown ones are left out."""

    async def known(self, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
        """Those of these ids that are stored."""

    async def tombstoned(self, ids: Iterable[MessageId]) -> frozenset[MessageId]:
        """Those of these identities, or ids of segments, that were forgotten."""

    async def page(
        self,
        *,
        after: int = 0,
        limit: int = 500,
        session: SessionId | None = None,
        descending: bool = False,
    ) -> tuple[StoredSegment, ...]:
        """Segments in order of arrival after sequence `after`; descending: before it, newest
        first."""

    async def passages(self, id: SegmentId) -> tuple[NewPassage, ...]:  # noqa: A002
        """The indexed spans of a segment; their words may be left out."""

    async def replace_passages(
        self, passages: Mapping[SegmentId, tuple[NewPassage, ...]], *, at: float
    ) -> None:
        """Index these segments again; vectors of passages whose span changed are removed."""

    async def unembedded(self, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
        """Passages without a vector of this embedder that should have one."""

    async def vectors(
        self, embedder: str, *, after: tuple[SegmentId, int] | None = None, limit: int = 1000
    ) -> tuple[Vector, ...]:
        """The vectors of an embedder, ordered by segment and ordinal, for export."""

    async def withdraw(
        self, ids: Sequence[SegmentId], *, at: float, up_to: int | None = None
    ) -> int:
        """Remove segments whose source changed, such as a file, up to this sequence. No tombstones;
        quotes in ledger and states stay. Returns how many were removed."""

    async def facts(
        self,
        ids: Sequence[FactId] | None = None,
        *,
        superseded: bool = False,
        subjects: Collection[str] | None = None,
    ) -> tuple[Fact, ...]:
        """Facts by id in this order, or all by time and id; replaced or ended ones on request."""

    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        """The current facts that may answer, with the data to score them."""

    async def facts_revision(self) -> int:
        """A number that grows with every write of facts, and when segments are forgotten, withdrawn
        or rewritten."""

    async def unembedded_facts(self, embedder: str, *, limit: int) -> tuple[FactText, ...]:
        """Current facts without a vector of this embedder; a fact's vector is removed with it."""

    async def extracted_to(self, session: SessionId) -> int:
        """The sequence up to which a session was read for facts; 0: not at all."""


class JobQueue(Protocol):
    """A durable queue of one space. A job has one worker at a time; effect and completion are one
    write by the lease's holder; a day's budget is reserved when a job is claimed."""

    async def claim(
        self,
        *,
        now: float,
        lease_seconds: float,
        kinds: Sequence[str],
        limit: int = 1,
        day: str = "",
        day_tokens: int | None = None,
        max_attempts: int = 5,
    ) -> tuple[Lease, ...]:
        """Due jobs of these kinds, oldest first, also with an expired lease; charged to `day`'s
        budget. A job that was claimed `max_attempts` times without an answer is dead."""

    async def heartbeat(self, lease: Lease, *, expires_at: float) -> bool:
        """Keep a lease; False when it is lost."""

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        """Write the effect and remove the job in one write; False if the lease is lost."""

    async def fail(self, lease: Lease, *, reason: str, retry_at: float | None) -> bool:
        """Return a job to be retried, or with None mark it dead; False if the lease is lost."""

    async def jobs(self, *, limit: int = 100) -> tuple[JobRecord, ...]:
        """Jobs that wait, run or are dead, by the time they run at."""

    async def queue(self, *, day: str = "") -> QueueState:
        """The counts of the queue."""

    async def add_model_use(self, use: ModelUse, *, day: str) -> None:
        """Add a model use to this day; the same use again counts again."""

    async def model_use(self, *, since: str = "") -> tuple[ModelUse, ...]:
        """Model use from this day on, by purpose; all of it for ""."""

    async def pause(self, kind: str = "*") -> None:
        """Hand out no more jobs of this kind until `resume`."""

    async def resume(self, kind: str = "*") -> None:
        """Undo `pause`."""

    async def revive(self, ids: Sequence[str] | None = None, *, at: float) -> int:
        """Requeue dead jobs without their attempts; all of them for None."""


class Ledger(Protocol):
    """The requests that were sent, turn by turn; written through `Archive.write`."""

    async def turns(self, session: SessionId) -> tuple[int, ...]:
        """The numbers of the recorded turns of a session, in order."""

    async def turn(self, session: SessionId, number: int) -> RebuiltTurn | None:
        """One turn with all its rows named; None if it was not stored."""

    async def pieces(self, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
        """These pieces; those that expired or were forgotten are missing."""

    async def compactions(self, session: SessionId) -> tuple[CompactionRecord, ...]:
        """The compactions of a session by number; withdrawn ones are missing."""

    async def expire(self, *, before: float) -> int:
        """Remove turns recorded before then, and pieces that no other turn names; rows that later
        turns need move to them. Returns how many turns were removed."""


class Upkeep(Protocol):
    """Maintenance that users ask for."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remove segments and all that quotes them, and leave tombstones, in one write; an identity
        that is not stored gets one too. Facts that rest on them alone or are named are removed. A
        session without segments loses its jobs. Later batches lose what quotes a forgotten
        message."""

    async def held(
        self, kind: BodyKind, *, after: str | None = None, limit: int = 100
    ) -> tuple[StoredBody, ...]:
        """The bodies of a kind after the id `after`, in a stable order."""

    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        """Replace stored texts in one write; the old bytes are gone. Ids, places and tombstones
        stay, as does a text that changed or was forgotten since it was read."""

    async def scrub(self) -> ScrubResult:
        """Make sure that removed bytes are in no file either; may take long."""

    async def check(self) -> CheckResult:
        """Check the database's integrity and our invariants."""

    async def stats(self) -> Stats:
        """The contents of the space, counted."""

    async def close(self) -> None:
        """Close what this object opened, and nothing else."""


class Store(Archive, JobQueue, Ledger, Upkeep, Protocol):
    """The memory of one space. No operation can name another one."""

    space: SpaceId


class Spool(Protocol):
    """A local file for batches that the store could not take. `append` is durable; records come
    back in order; a torn last record is dropped and reported."""

    async def append(self, record: bytes) -> None:
        """Append a record, durable when this returns."""

    async def scan(self, pick: Callable[[bytes], _Picked | None]) -> list[_Picked]:
        """The results of `pick` for waiting records, in order, without None; in a thread."""

    async def drain(self, take: Callable[[bytes], Awaitable[object]]) -> int:
        """Pass the records to `take` in order, each removed once it returns; raises what it raises.
        Returns how many."""

    async def rewrite(self, change: Callable[[bytes], bytes | None]) -> int:
        """Replace each record by what `change` makes of it, None to drop it. Returns how many
        changed."""

    async def set_aside(self, record: bytes, *, reason: str) -> None:
        """Keep a record that the store refuses, durably; it is never drained again."""

    async def waiting(self) -> int:
        """The number of waiting records."""

    async def close(self) -> None:
        """Close the file; waiting records stay."""
