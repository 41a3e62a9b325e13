"""Queries to a store, the hits with their reasons, and the recalled block's contents. Stores find
candidates; only `search` scores them, so the order does not depend on the store. The points of a
hit's parts add up to its score."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from recollect.core.values.fact import Fact, FactId, FactType
from recollect.core.values.history import SessionId, SpaceId
from recollect.core.values.message import EntryKey, MessageId, Role
from recollect.core.values.reason import Reason
from recollect.core.values.segment import Segment, SegmentId, Trust

FILE_SESSIONS: Final = "file:"
"""Prefix of the sessions of memory files: one per file, named by its path."""
EmbedderKind: TypeAlias = Literal["hash", "static", "onnx", "remote"]
"""Source of a vector; trust in its similarities depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Similarity of unrelated texts under one model."""

    mean: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedVector:
    """The query's embedding: little-endian float32."""

    embedder: str
    values: bytes = field(repr=False)
    kind: EmbedderKind = "onnx"
    scale: Scale | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuery:
    """A search in one space."""

    words: tuple[str, ...] = field(default=(), repr=False)
    vectors: tuple[AskedVector, ...] = ()
    """One per embedder; an embedder that has no vectors here finds nothing."""
    lexical_limit: int = 50
    vector_limit: int = 50
    session: str | None = None
    with_files: bool = False
    """With a session: also search memory files, see `FILE_SESSIONS`."""
    said_after: float | None = None
    said_before: float | None = None
    leave_out: frozenset[SegmentId] = field(default=frozenset(), repr=False)
    """Messages to skip, because the view shows them; may name unknown ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A passage that may answer, with the data for scoring."""

    segment: SegmentId
    ordinal: int
    key: EntryKey
    session: str
    sequence: int
    role: Role
    said_at: float
    trust: Trust
    start: int
    end: int
    length: int
    counts: Mapping[str, int] = field(repr=False)
    similarities: tuple[float | None, ...] = ()
    """Cosine with each query vector, in order; None if the passage has no vector of that
    embedder."""
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Union of the best by words and the best by vector, unordered. Statistics are those of the
    space's whole index, so that a score does not depend on the filters (docs/concepts/recall.md,
    "Limits")."""

    passages: tuple[Candidate, ...] = field(default=(), repr=False)
    documents: int = 0
    average_length: float = 0.0
    document_frequencies: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A segment near another one in the same session."""

    segment: SegmentId
    of: SegmentId
    distance: int
    """Number of indexed segments after it; negative if before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Neighbours of some segments, unordered."""

    neighbours: tuple[Neighbour, ...] = field(default=(), repr=False)
    passages: tuple[Candidate, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery:
    """A search among the current facts of one space."""

    words: tuple[str, ...] = field(default=(), repr=False)
    vectors: tuple[AskedVector, ...] = ()
    """One per embedder; an embedder that has no vectors of facts here finds nothing."""
    types: tuple[FactType, ...] = ()
    """The newest facts of these types are found too, whatever their words."""
    limit: int = 50
    """Limit per search: by words, by each vector, and by type; pinned facts are extra."""
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidate:
    """A current fact that may answer, with the data for scoring."""

    fact: Fact
    similarities: tuple[float | None, ...] = ()
    """Cosine with each query vector, in order; None if it has none of that embedder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidates:
    """Pinned facts, those that share the rarest words, and the nearest, unordered. Statistics are
    those of all current facts of the space, whatever the filters."""

    facts: tuple[FactCandidate, ...] = field(default=(), repr=False)
    documents: int = 0
    document_frequencies: Mapping[str, int] = field(default_factory=dict, repr=False)


PartName: TypeAlias = Literal[
    "words", "vector", "neighbours", "stretch", "speaker", "role", "date", "standing", "age", "kind"
]
"""Parts of a score: shared words, similarity, neighbours, the surrounding conversation, speaker,
date, standing instruction, age, and kind (a decision, or a tool's call or output)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePart:
    """One reason for a hit's rank."""

    name: PartName
    points: float
    why: str
    """In words, for people: `4 of 5 words`, `0.61 by static`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A ranked passage."""

    passage: Candidate
    score: float
    """Relative to the best of its search; only compares hits of the same search."""
    parts: tuple[ScorePart, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    """Text, read in a turn only for hits that the block could have held (listed in `Context`), in a
    search for all."""
    shown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """Decision whether the turn refers to something that left the view, and why."""

    open: bool
    reason: Reason
    score: float | None = None
    """Calibrated score of the best hit, 0 to 1."""
    threshold: float | None = None
    lost_terms: tuple[str, ...] = field(default=(), repr=False)
    """Terms of the turn, as written, that memory holds and the view does not."""
    lost_words: tuple[str, ...] = field(default=(), repr=False)
    """Their index words: only passages with one of them are recalled; empty: all are."""


RecallScope: TypeAlias = Literal["session", "space"]

BLOCK_OPENING = '<recalled-context source="memory-context">'
BLOCK_CLOSING = "</recalled-context>"
"""OpenClaw's tags, which other readers know."""
TOOL_OPENING: Final = '<recalled-context source="memory-tools">'
"""Start of a memory tool's answer; only its seal proves that it is one."""
MEMORY_TOOLS: Final = frozenset(
    {"memory_search", "memory_get", "memory_store", "memory_recall", "memory_forget"}
)
"""Memory tools (`recollect.tools`), whose calls hold nothing new."""


def is_memory_tool(name: str) -> bool:
    """Return whether a tool is one of them, also with an MCP prefix
    (`mcp__recollect__memory_search`)."""
    return re.split(r"__|[./:]", name)[-1].removeprefix("recollect_") in MEMORY_TOOLS


_OF = ":"
"""Separates a segment's id, which is hexadecimal, from the number of its passage."""


def passage_name(segment: SegmentId, ordinal: int | None) -> str:
    """Return a block's name for a quoted passage; without an ordinal, for the whole segment."""
    return segment if ordinal is None else f"{segment}{_OF}{ordinal}"


def fact_name(id: FactId) -> str:  # noqa: A002
    """Return a block's name for a fact, which differs from every segment's name."""
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
    message_ids: tuple[MessageId, ...] = ()
    """Messages it rests on, so that forgetting finds the block that quotes it."""

    @property
    def name(self) -> str | None:
        """Name that prevents a second recall while its block is shown."""
        return None if self.id is None else fact_name(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledPassage:
    """A passage of an earlier message that may go into the block."""

    text: str = field(repr=False)
    role: str
    said_at: str
    score: float
    speaker: str | None = None
    """Speaker as the block names them; None: the role; empty: the text names them itself."""
    source: str = ""
    message_id: MessageId | None = None
    segment: SegmentId | None = None
    session: SessionId | None = None
    ordinal: int | None = None
    """Number of the passage in its segment; None: the whole segment."""
    sitting: str = ""
    """Key of passages that belong together: session and day."""
    replaced_by: str = field(default="", repr=False)
    """The user's later statement that replaces it; empty if none is known."""
    order: tuple[float, int, int] = (0.0, 0, 0)

    @property
    def name(self) -> str | None:
        """Name that prevents a second recall while its block is shown."""
        return None if self.segment is None else passage_name(self.segment, self.ordinal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Everything recall offers for one turn, best first."""

    facts: tuple[RecalledFact, ...] = ()
    passages: tuple[RecalledPassage, ...] = ()
    gate: GateVerdict | None = None
    hits: tuple[Hit, ...] = field(default=(), repr=False)
    """Ranking it was packed from, best first; empty if the gate stayed shut."""
    notes: tuple[Reason, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.facts and not self.passages


Asks: TypeAlias = Literal["past", "question", "advice", "reference", "other"]
"""Intent of a message: earlier messages; an answer; advice ("how do I …?"), which needs no memory;
work that refers to what is agreed ("our definition"); or none of these."""


@dataclass(slots=True, kw_only=True)
class RecallReads:
    """Reads of memory in a turn, reused if recall runs again because a new block displaced
    others."""

    phrased: dict[str, Mapping[EmbedderKind, str]] = field(default_factory=dict, repr=False)
    candidates: dict[CandidateQuery, Candidates] = field(default_factory=dict, repr=False)
    facts: dict[FactQuery, FactCandidates] = field(default_factory=dict, repr=False)
    segments: dict[SegmentId, Segment] = field(default_factory=dict, repr=False)
    judged: dict[tuple[SegmentId, bool], bool] = field(default_factory=dict, repr=False)
    """True if a segment holds no answer; keyed also by whether orders count as none."""
    known: dict[SegmentId, bool] = field(default_factory=dict, repr=False)
    """True if a segment was stored when the newest of `candidates` were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """A turn's query to memory."""

    space: SpaceId
    session: SessionId
    query: str = field(repr=False)
    newest: str = field(default="", repr=False)
    """The newest of them alone; empty if `query` is one message."""
    asks: Asks | None = None
    leans_on: str = field(default="", repr=False)
    """Earlier user message that the newest one depends on."""
    recent: tuple[str, ...] = field(default=(), repr=False)
    """The model's latest messages: identifiers in them may have lost their origin."""
    shown: frozenset[EntryKey] = field(default=frozenset(), repr=False)
    quoted: frozenset[str] = field(default=frozenset(), repr=False)
    """Names of passages, or of whole segments, that blocks in the view quote already."""
    shown_messages: frozenset[MessageId] = field(default=frozenset(), repr=False)
    """Identities of shown messages: the same history may be stored under another session."""
    asked_before: Container[EntryKey] = field(default=frozenset(), repr=False)
    """Shown messages in which the user only asks: they answer nothing."""
    told_in_part: Mapping[EntryKey, tuple[EntryKey, ...]] = field(default_factory=dict, repr=False)
    """Shown messages in whose exchange a result was shortened, with the messages of that
    exchange."""
    asking: EntryKey | None = None
    """The asking message, which would match itself best."""
    uses_tools: bool = False
    view: Sequence[str] = field(default=(), repr=False)
    scope: RecallScope = "space"
    now: float
    budget_tokens: int
    count_tokens: Callable[[str], int] = field(repr=False)
    gated: bool = True
    """Stay silent unless the turn means something that left the view."""
    on_purpose: bool = False
    """Explicit query, as by a tool: hits are chosen as for a turn that asks, and shown however
    uncertain; in sessions with tools, decisions come first."""
    said_after: float | None = None
    said_before: float | None = None
    most_hits: int = 50
    reads: RecallReads | None = field(default=None, repr=False, compare=False)

    @property
    def quoted_whole(self) -> frozenset[SegmentId]:
        """Segments that blocks in the view quote whole, or did before passages had names."""
        return frozenset(SegmentId(name) for name in self.quoted if _OF not in name)

    def quotes(self, segment: SegmentId, ordinal: int) -> bool:
        """Return whether a block in the view quotes this passage already."""
        return segment in self.quoted or passage_name(segment, ordinal) in self.quoted
