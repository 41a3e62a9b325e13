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
    TurnRecord,
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
    """A source of the time, so that tests can set it."""

    def now(self) -> float:
        """Return the seconds since the epoch."""


class TokenCounter(Protocol):
    """Counts tokens of text. Pass the engine a counter that uses your model's tokenizer."""

    def count_text(self, text: str) -> int:
        """Return the tokens of `text`: at least 1 unless it is empty."""


class RecognizeOverflow(Protocol):
    """Recognizes errors by which a provider refuses a request as too large."""

    def __call__(
        self, *, status: int | None, message: str, body: Mapping[str, Any] | None = None
    ) -> Overflow | None:
        """Return the token counts that the error names; None if it has another reason."""


class Recaller(Protocol):
    """Finds memories relevant to a turn, within a time limit that the engine sets."""

    async def recall(self, request: RecallRequest) -> Recalled:
        """Return relevant stored content that the request does not show yet, within the budget."""


@runtime_checkable
class StandingRecaller(Protocol):
    """A `Recaller` that also returns the facts that every request repeats."""

    async def standing(self, session: SessionId) -> tuple[RecalledFact, ...]:
        """Return pinned facts and the user's lasting requests, the most important first."""


class Embedder(Protocol):
    """Turns texts into vectors. An embedder's name is known before it is loaded. No method blocks
    the event loop. A turn skips an embedder that is not ready."""

    @property
    def name(self) -> str:
        """Name of the model and all options that change its vectors, stored with the vectors."""

    @property
    def kind(self) -> EmbedderKind:
        """Kind of embedder, by which ranking decides how much a similarity counts."""

    @property
    def dimensions(self) -> int:
        """Numbers per vector, available once the embedder is loaded."""

    @property
    def ready(self) -> bool:
        """True once the embedder is loaded."""

    async def load(self) -> None:
        """Load the embedder, once. Raise EmbedderError if loading fails."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Return one vector per text, in order: little-endian float32, normalized to length one.
        Loads the embedder if necessary."""


class Model(Protocol):
    """A language model that writes summaries and extracts facts. `ask` answers or raises a
    ModelError, and applies its own deadline and retries. Errors never quote message content."""

    @property
    def name(self) -> str:
        """The model's name, as its provider knows it."""

    @property
    def window_tokens(self) -> int | None:
        """The model's window in tokens; None if unknown."""

    async def ask(self, prompt: Prompt) -> Answer:
        """Answer one prompt."""

    async def close(self) -> None:
        """Close connections."""


class ChatModel(Model, Protocol):
    """A model that also holds conversations, in its provider's wire format."""

    @property
    def format(self) -> FormatName:
        """The wire format of its requests and replies."""

    def stream(self, request: Mapping[str, Any]) -> AsyncIterator[ReplyEvent]:
        """Send a request and yield events as they arrive, `ReplyDone` last. Closing the iterator
        aborts the request."""


class Archive(Protocol):
    """Segments, passages, vectors, facts and sessions of one space. A write is atomic and durable,
    and repeating it changes nothing. Forgotten content has a tombstone and is not written again. An
    unreadable record is skipped, and `check` reports it."""

    async def write(self, batch: Batch) -> WriteResult:
        """Write a batch, all or nothing. The batch is durable when `write` returns. If a new fact
        is refused because it was forgotten, the fact that it would have replaced stays valid."""

    async def session(self, session: SessionId) -> StoredSession | None:
        """Return the state of a session; None if nothing is stored."""

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """List the sessions that have segments, oldest first."""

    async def candidates(self, query: CandidateQuery) -> Candidates:
        """Return the segments that may answer the query, with the data to score them."""

    async def around(
        self,
        ids: Sequence[SegmentId],
        query: CandidateQuery,
        *,
        reach: int = 2,
        passages_each: int = 3,
    ) -> Surroundings:
        """Return the segments up to `reach` places before and after each of `ids` in its session,
        without `ids` themselves. Segments that are noise or that the query excludes are not
        counted. Each segment has its first `passages_each` passages, with scores for the query. The
        query's limits and times do not apply."""

    async def segments(self, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
        """Return these segments, in this order. Unknown ids are skipped."""

    async def known(self, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
        """Return the ids that are stored."""

    async def tombstoned(self, ids: Iterable[MessageId] | None = None) -> frozenset[MessageId]:
        """Return those of these message or segment ids that were forgotten, or all that were."""

    async def page(
        self,
        *,
        after: int = 0,
        limit: int = 500,
        session: SessionId | None = None,
        descending: bool = False,
    ) -> tuple[StoredSegment, ...]:
        """Return segments in order of arrival, after sequence `after`. With `descending`, return
        segments before `after`, newest first."""

    async def passages(self, id: SegmentId) -> tuple[NewPassage, ...]:  # noqa: A002
        """Return a segment's passages, whose `words` may be empty."""

    async def replace_passages(self, passages: Mapping[SegmentId, tuple[NewPassage, ...]]) -> None:
        """Index these segments again. Vectors of passages whose span changed are removed."""

    async def unembedded(self, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
        """Return passages that should have a vector of this embedder but have none."""

    async def vectors(self, embedder: str) -> tuple[Vector, ...]:
        """Return all vectors of an embedder, ordered by segment and ordinal."""

    async def withdraw(self, ids: Sequence[SegmentId], *, up_to: int | None = None) -> int:
        """Remove these segments, up to the sequence number `up_to`, because their source (for
        example a file) changed. Unlike forgetting, this writes no tombstones, and quotes in the
        ledger and in session states remain. Return the number of removed segments."""

    async def facts(
        self,
        ids: Sequence[FactId] | None = None,
        *,
        superseded: bool = False,
        subjects: Collection[str] | None = None,
    ) -> tuple[Fact, ...]:
        """Return facts by id in this order, or all facts by time and id. With `superseded`, include
        facts that are no longer valid."""

    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        """Return the current facts that may answer the query, with the data to score them."""

    async def facts_revision(self) -> int:
        """Return a number that grows whenever facts are written, or segments are forgotten,
        withdrawn or rewritten."""

    async def unembedded_facts(self, embedder: str, *, limit: int) -> tuple[FactText, ...]:
        """Return current facts without a vector of this embedder. A fact's vector is removed
        together with the fact."""

    async def extracted_to(self, session: SessionId) -> int:
        """Return the sequence number up to which facts were extracted from a session; 0 if none
        were."""


class JobQueue(Protocol):
    """A durable queue of jobs of one space. Each job has one worker at a time, which holds its
    lease. Completing a job and writing its result are one write. The tokens of a job are reserved
    from the day's budget when it is claimed."""

    async def claim(
        self,
        *,
        now: float,
        lease_seconds: float,
        kinds: Sequence[str],
        day: str = "",
        day_tokens: int | None = None,
        max_attempts: int = 5,
    ) -> Lease | None:
        """Claim the oldest due job of these kinds; None if there is none. A job whose lease expired
        is due again. The job's tokens are charged to the budget of `day`. A job that was claimed
        `max_attempts` times without a result is marked dead."""

    async def heartbeat(self, lease: Lease, *, expires_at: float) -> bool:
        """Extend a lease. Return False if the lease is lost."""

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        """Write the job's result and remove the job, in one write. Return False if the lease is
        lost."""

    async def fail(self, lease: Lease, *, reason: str, retry_at: float | None) -> bool:
        """Return a job to the queue, to be retried at `retry_at`. If `retry_at` is None, mark the
        job dead. Return False if the lease is lost."""

    async def jobs(self, *, limit: int = 100) -> tuple[JobRecord, ...]:
        """List jobs that wait, run or are dead, by the time at which they run."""

    async def queue(self, *, day: str = "") -> QueueState:
        """Return the state of the queue: job counts, paused kinds, tokens spent today."""

    async def add_model_use(self, use: ModelUse, *, day: str) -> None:
        """Add a model call's usage to this day. A usage that is added twice counts twice."""

    async def model_use(self, *, since: str = "") -> tuple[ModelUse, ...]:
        """Return model usage by purpose, from this day on, or in total if `since` is empty."""

    async def pause(self, kind: str = "*") -> None:
        """Return no jobs of this kind from `claim` until `resume`."""

    async def resume(self, kind: str = "*") -> None:
        """Undo `pause`."""

    async def revive(self, *, at: float) -> int:
        """Enqueue all dead jobs again, with their attempts reset to zero."""


class Ledger(Protocol):
    """The record of sent requests, per turn, which `Archive.write` writes."""

    async def turns(self, session: SessionId) -> tuple[int, ...]:
        """Return the numbers of a session's recorded turns, in order."""

    async def turn(self, session: SessionId, number: int) -> RebuiltTurn | None:
        """Return a turn with the hashes of its request's messages; None if it was not stored."""

    async def records(self, session: SessionId) -> tuple[TurnRecord, ...]:
        """Return the records of a session's turns by number, without message hashes."""

    async def pieces(self, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
        """Return the stored pieces with these hashes, except expired and forgotten pieces."""

    async def quoting(self, ids: Collection[MessageId]) -> tuple[PieceHash, ...]:
        """Return the hashes of sent messages that quote one of these messages."""

    async def compactions(self, session: SessionId) -> tuple[CompactionRecord, ...]:
        """Return the compactions of a session by number, except those that were undone."""

    async def expire(self, *, before: float) -> int:
        """Remove turns recorded before this time, and pieces that no other turn uses. Messages that
        a later turn shares are moved to its record. Return the number of removed turns."""


class Upkeep(Protocol):
    """Maintenance that users ask for."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remove segments and everything that quotes them, and write tombstones, all in one write.
        A message that is not stored gets a tombstone too. Facts are removed if they are named, or
        if only removed segments support them. A session without segments loses its jobs. A later
        batch is stored without its quotes of forgotten messages."""

    async def bodies(
        self, kind: BodyKind, *, after: str | None = None, limit: int = 100
    ) -> tuple[StoredBody, ...]:
        """Return stored data of this kind whose ids come after `after`, in a stable order."""

    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        """Replace stored texts in one write, so that the old bytes are gone. Ids, order and
        tombstones do not change. A text that was changed or forgotten since it was read is not
        replaced."""

    async def scrub(self) -> ScrubResult:
        """Remove deleted bytes from the store's files as well, which may take long."""

    async def check(self) -> CheckResult:
        """Check the integrity of the database and the rules that Recollect's data must follow."""

    async def stats(self) -> Stats:
        """Count the contents of the space."""

    async def close(self) -> None:
        """Close what this object opened, and nothing else."""


class Store(Archive, JobQueue, Ledger, Upkeep, Protocol):
    """The memory of one space, whose methods cannot access another space."""

    space: SpaceId


class Spool(Protocol):
    """A local file for batches that could not be stored, for example during an outage. `append` is
    durable. Records are returned in order. An incomplete last record is dropped and reported."""

    async def append(self, record: bytes) -> None:
        """Append a record, which is durable when `append` returns."""

    async def scan(self, pick: Callable[[bytes], _Picked | None]) -> list[_Picked]:
        """Call `pick` on each waiting record, in order and in a thread. Return the results that are
        not None."""

    async def drain(self, take: Callable[[bytes], Awaitable[object]]) -> int:
        """Pass each record to `take`, in order, and remove it when `take` returns. An exception of
        `take` is raised. Return the number of records taken."""

    async def rewrite(self, change: Callable[[bytes], bytes | None]) -> int:
        """Replace each record by the result of `change`; None drops it. Return the number of
        changes."""

    async def set_aside(self, record: bytes, *, reason: str) -> None:
        """Move a record that the store refuses to a separate file, durably and permanently."""

    async def waiting(self) -> int:
        """Return the number of waiting records."""

    async def close(self) -> None:
        """Close the file. Records in the file are not lost."""


async def read_pages(
    archive: Archive, *, session: SessionId | None = None, limit: int = 500
) -> AsyncIterator[tuple[StoredSegment, ...]]:
    """Yield the segments of a space, or of one session, in order of arrival and page by page."""
    after = 0
    while page := await archive.page(after=after, limit=limit, session=session):
        yield page
        after = page[-1].sequence


async def read_bodies(store: Store, kind: BodyKind) -> AsyncIterator[tuple[StoredBody, ...]]:
    """Yield the stored data of this kind, page by page."""
    after: str | None = None
    while page := await store.bodies(kind, after=after, limit=50):
        yield page
        after = page[-1].id
