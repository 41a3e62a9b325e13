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
    """Counts tokens of text; give the engine one that knows your model's tokenizer."""

    def count_text(self, text: str) -> int:
        """Tokens of `text`; at least 1 unless it is empty."""


class RecogniseOverflow(Protocol):
    """Tells from an error whether a request was refused for its size."""

    def __call__(
        self, *, status: int | None, message: str, body: Mapping[str, Any] | None = None
    ) -> Overflow | None:
        """What the provider said of it; None when it was refused for something else."""


class Recaller(Protocol):
    """Finds what a turn needs from memory; the engine bounds how long it may take."""

    async def recall(self, request: RecallRequest) -> Recalled:
        """What bears on the request and its view does not show, packed into its budget."""


@runtime_checkable
class StandingRecaller(Protocol):
    """A `Recaller` that also knows what bears on every turn."""

    async def standing(self, session: SessionId) -> tuple[RecalledFact, ...]:
        """Pinned facts, and what the user asked for once and for all, most binding first."""


class Embedder(Protocol):
    """Turns texts into vectors. The name is known before loading. Nothing blocks the event loop. An
    embedder that is not ready is left out of a turn."""

    @property
    def name(self) -> str:
        """Names the model and all that changes its vectors; vectors are kept by it."""

    @property
    def kind(self) -> EmbedderKind:
        """What its similarities are weighed as."""

    @property
    def dimensions(self) -> int:
        """Numbers of a vector; known once it is ready."""

    @property
    def ready(self) -> bool:
        """Whether it is loaded."""

    async def load(self) -> None:
        """Get ready; EmbedderError where it cannot, and why. Loading again does nothing."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """One vector a text, in order: little-endian float32 of length one. Loads if need be."""


class Model(Protocol):
    """A language model that writes summaries and extracts facts.

    `ask` answers or raises a ModelError, within its own deadline and retries. Errors never quote
    message content.
    """

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
        of this batch that a tombstone keeps out."""

    async def session(self, session: SessionId) -> StoredSession | None:
        """What is remembered of a session; None when nothing is."""

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """The sessions that have segments, oldest first."""

    async def candidates(self, query: CandidateQuery) -> Candidates:
        """What may answer the query, with what scoring it needs."""

    async def around(
        self,
        ids: Sequence[SegmentId],
        query: CandidateQuery,
        *,
        reach: int = 2,
        passages_each: int = 3,
    ) -> Surroundings:
        """The segments up to `reach` places before and behind each of these in its session.

        Noise does not count as a place, nor does what the query leaves out.
        Each neighbour comes with its first `passages_each` passages, described for the query
        whatever the query's limits and times are; those of `ids` themselves are left out.
        """

    async def segments(self, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
        """These segments, in this order; unknown ones are left out."""

    async def known(self, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
        """Which of these are stored."""

    async def tombstoned(self, ids: Iterable[MessageId]) -> frozenset[MessageId]:
        """Which of these were forgotten: identities or, given as such, ids of segments."""

    async def page(
        self,
        *,
        after: int = 0,
        limit: int = 500,
        session: SessionId | None = None,
        descending: bool = False,
    ) -> tuple[StoredSegment, ...]:
        """Segments in the order of arrival after sequence `after`; descending: before it, newest
        first."""

    async def passages(self, id: SegmentId) -> tuple[NewPassage, ...]:  # noqa: A002
        """The spans of a segment that are indexed; their words may be left out."""

    async def replace_passages(
        self, passages: Mapping[SegmentId, tuple[NewPassage, ...]], *, at: float
    ) -> None:
        """Index these segments anew; vectors of passages whose span changed go."""

    async def unembedded(self, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
        """Passages that are to have a vector of this embedder and have none."""

    async def vectors(
        self, embedder: str, *, after: tuple[SegmentId, int] | None = None, limit: int = 1000
    ) -> tuple[Vector, ...]:
        """The vectors of an embedder, ordered by segment and ordinal, for export."""

    async def withdraw(
        self, ids: Sequence[SegmentId], *, at: float, up_to: int | None = None
    ) -> int:
        """Remove segments whose source changed, as a file; up to this sequence. No tombstones;
        quotes in ledger and states stay. Returns how many went."""

    async def facts(
        self,
        ids: Sequence[FactId] | None = None,
        *,
        superseded: bool = False,
        subjects: Collection[str] | None = None,
    ) -> tuple[Fact, ...]:
        """Facts by id in this order, or all by time and id; replaced or ended ones on request."""

    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        """The current facts that may answer, with what scoring them needs."""

    async def facts_revision(self) -> int:
        """A number that grows with every write of facts, and when segments are forgotten, withdrawn
        or rewritten."""

    async def unembedded_facts(self, embedder: str, *, limit: int) -> tuple[FactText, ...]:
        """Current facts that have no vector of this embedder; a vector goes with its fact."""

    async def extracted_to(self, session: SessionId) -> int:
        """How far a session was read for facts, in the order of arrival; 0: not at all."""


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
        """Give a job back to be retried, or for None to the dead ones; False when it is lost."""

    async def jobs(self, *, limit: int = 100) -> tuple[JobRecord, ...]:
        """Jobs that wait, run or are dead, by the time they run at."""

    async def queue(self, *, day: str = "") -> QueueState:
        """The queue at a glance."""

    async def add_model_use(self, use: ModelUse, *, day: str) -> None:
        """Count what was asked of a model on this day; the same again counts again."""

    async def model_use(self, *, since: str = "") -> tuple[ModelUse, ...]:
        """What was asked of models from this day on, by purpose; all of it for ""."""

    async def pause(self, kind: str = "*") -> None:
        """Hand out no more jobs of this kind until `resume`."""

    async def resume(self, kind: str = "*") -> None:
        """Undo `pause`."""

    async def revive(self, ids: Sequence[str] | None = None, *, at: float) -> int:
        """Dead jobs wait again, with no attempt counted; all of them for None."""


class Ledger(Protocol):
    """What was sent, turn by turn; written through `Archive.write`."""

    async def turns(self, session: SessionId) -> tuple[int, ...]:
        """The numbers of the recorded turns of a session, in order."""

    async def turn(self, session: SessionId, number: int) -> RebuiltTurn | None:
        """One turn with all its rows named; None when it was not kept."""

    async def pieces(self, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
        """These pieces; those that expired or were forgotten are missing."""

    async def compactions(self, session: SessionId) -> tuple[CompactionRecord, ...]:
        """The compactions of a session by number; withdrawn ones are missing."""

    async def expire(self, *, before: float) -> int:
        """Remove turns recorded before then, and pieces that no other turn names; rows that later
        turns rest on move to them. Returns how many turns went."""


class Upkeep(Protocol):
    """What people ask of a store."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remove segments and all that quotes them, and leave tombstones, in one write. Facts go if
        they rest on them alone or are named. A session without segments loses its jobs. An identity
        that is not stored gets its tombstone too. Later batches lose what quotes a forgotten
        message."""

    async def held(
        self, kind: BodyKind, *, after: str | None = None, limit: int = 100
    ) -> tuple[StoredBody, ...]:
        """The bodies of a kind beyond the id `after`, in an order that stays."""

    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        """Replace stored texts in one write; the old bytes are gone. Ids, places and tombstones
        stay. What changed or was forgotten since it was read stays as it is."""

    async def scrub(self) -> ScrubResult:
        """See to it that removed bytes are in no file either; may take long."""

    async def check(self) -> CheckResult:
        """Whether everything is as it should be: the engine's own check, and our invariants."""

    async def stats(self) -> Stats:
        """What the space holds."""

    async def close(self) -> None:
        """Give back what this object opened, and nothing else."""


class Store(Archive, JobQueue, Ledger, Upkeep, Protocol):
    """The memory of one space. No operation can name another one."""

    space: SpaceId


class Spool(Protocol):
    """A local file for batches that the store could not take. `append` is durable; records come
    back in order; a torn last record is dropped and reported."""

    async def append(self, record: bytes) -> None:
        """Keep a record, durable when this returns."""

    async def scan(self, pick: Callable[[bytes], _Picked | None]) -> list[_Picked]:
        """What `pick` makes of the records that wait, in order, without None; in a thread."""

    async def drain(self, take: Callable[[bytes], Awaitable[object]]) -> int:
        """Pass the records to `take` in order, each removed once it returns; raises what it raises.
        Returns how many."""

    async def rewrite(self, change: Callable[[bytes], bytes | None]) -> int:
        """Replace each record by what `change` makes of it, None to drop it. Returns how many
        changed."""

    async def set_aside(self, record: bytes, *, reason: str) -> None:
        """Keep a record that the store refuses apart, durable; it is never drained again."""

    async def waiting(self) -> int:
        """How many records wait."""

    async def close(self) -> None:
        """Close the file; what waits stays."""
