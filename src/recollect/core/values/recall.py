"""Queries to a store, the passages found with the reasons for their rank, and the contents of the
recalled block. Stores find candidates, and only `search` scores them, so that all stores rank
alike. The points of a hit's parts add up to its score."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from recollect.core.values.fact import Fact, FactId, FactType
from recollect.core.values.history import SessionId, SpaceId
from recollect.core.values.message import EntryKey, MessageId, Role
from recollect.core.values.reason import Reason
from recollect.core.values.segment import Segment, SegmentId, Trust

FILE_SESSIONS: Final = "file:"
"""Prefix of the sessions that hold memory files: one session per file, named by its path."""
EmbedderKind: TypeAlias = Literal["hash", "static", "onnx", "remote"]
"""Kind of embedder that made a vector. The kind decides how much a similarity counts in ranking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Typical similarity of unrelated texts with one embedder."""

    mean: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedVector:
    """The query's embedding, as little-endian float32."""

    embedder: str
    values: bytes = field(repr=False)
    kind: EmbedderKind = "onnx"
    scale: Scale | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuery:
    """A query for passages in one space."""

    words: tuple[str, ...] = field(default=(), repr=False)
    vectors: tuple[AskedVector, ...] = ()
    """The query, embedded by each embedder. A vector finds only vectors of its own embedder."""
    lexical_limit: int = 50
    vector_limit: int = 50
    session: str | None = None
    with_files: bool = False
    """If a session is given, search memory files (see `FILE_SESSIONS`) too."""
    said_after: float | None = None
    said_before: float | None = None
    leave_out: frozenset[SegmentId] = field(default=frozenset(), repr=False)
    """Messages to skip, because the request contains them. Unknown ids are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A passage that may answer the query, with the data for scoring."""

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
    """Cosine similarity to each query vector, in order; None if the passage has no such vector."""
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The best passages by words and the best by vectors, unordered. Word statistics cover the
    whole space, so a score does not depend on the query's filters (docs/concepts/recall.md)."""

    passages: tuple[Candidate, ...] = field(default=(), repr=False)
    documents: int = 0
    average_length: float = 0.0
    document_frequencies: Mapping[str, int] = field(default_factory=dict, repr=False)
    segments: Mapping[SegmentId, Segment] = field(default_factory=dict, repr=False, compare=False)
    """Messages that the store read in the same query. Look them up by id only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A segment near another one in the same session."""

    segment: SegmentId
    of: SegmentId
    distance: int
    """Distance from `of`, in indexed segments; negative if it comes before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Segments near other segments, unordered."""

    neighbours: tuple[Neighbour, ...] = field(default=(), repr=False)
    passages: tuple[Candidate, ...] = field(default=(), repr=False)
    segments: Mapping[SegmentId, Segment] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery:
    """A query for current facts of one space."""

    words: tuple[str, ...] = field(default=(), repr=False)
    vectors: tuple[AskedVector, ...] = ()
    """The query, embedded by each embedder. A vector finds only vectors of its own embedder."""
    types: tuple[FactType, ...] = ()
    """Types whose newest facts are candidates for any query."""
    limit: int = 50
    """Limit for each search: by words, by each vector, by type. Pinned facts are not limited."""
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidate:
    """A current fact that may answer the query, with the data for scoring."""

    fact: Fact
    similarities: tuple[float | None, ...] = ()
    """Cosine similarity to each query vector, in order; None if the fact has no such vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidates:
    """Pinned facts, facts with the query's rarest words, and the nearest by vector, unordered. Word
    statistics cover all current facts of the space, whatever the filters."""

    facts: tuple[FactCandidate, ...] = field(default=(), repr=False)
    documents: int = 0
    document_frequencies: Mapping[str, int] = field(default_factory=dict, repr=False)


PartName: TypeAlias = Literal[
    "words", "vector", "neighbors", "stretch", "speaker", "role", "date", "standing", "age", "kind"
]
"""Parts of a score: shared words, similarity, neighbors, the surrounding conversation, speaker,
date, standing instruction, age, and kind (a decision, or a tool's call or output)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePart:
    """One reason for a hit's rank."""

    name: PartName
    points: float
    why: str
    """The reason in words, such as `4 of 5 words` or `0.61 by static`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A ranked passage."""

    passage: Candidate
    score: float
    """Score relative to the best hit. Scores of different searches are not comparable."""
    parts: tuple[ScorePart, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    """Text of the passage. In a turn, only hits that could have fit the block have a text
    (`Context` holds these hits). In a search, all hits have a text."""
    shown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """The gate's decision whether the turn refers to something that is no longer in the request."""

    open: bool
    reason: Reason
    score: float | None = None
    """Calibrated score of the best hit, 0 to 1."""
    threshold: float | None = None
    lost_terms: tuple[str, ...] = field(default=(), repr=False)
    """Terms of the turn, as written, that memory contains and the request does not."""
    lost_words: tuple[str, ...] = field(default=(), repr=False)
    """Indexed forms of `lost_terms`. Unless empty, a recalled passage must contain one of them."""


RecallScope: TypeAlias = Literal["session", "space"]

BLOCK_OPENING = '<recalled-context source="memory-context">'
BLOCK_CLOSING = "</recalled-context>"
"""The first and last line of a block are OpenClaw's tags, because other programs recognize them."""
TOOL_OPENING: Final = '<recalled-context source="memory-tools">'
"""First line of a memory tool's answer. Anyone can write this line; only the seal proves that the
answer is genuine."""
MEMORY_TOOLS: Final = frozenset(
    {"memory_search", "memory_get", "memory_store", "memory_recall", "memory_forget"}
)
"""Names of the memory tools (`recollect.tools`), whose calls contain nothing to remember."""


def is_memory_tool(name: str) -> bool:
    """Return whether this is the name of a memory tool, with or without an MCP prefix
    (`mcp__recollect__memory_search`)."""
    return re.split(r"__|[./:]", name)[-1].removeprefix("recollect_") in MEMORY_TOOLS


_OF = ":"
"""Separator of a segment's id (hexadecimal) and a passage's number."""


def passage_name(segment: SegmentId, ordinal: int | None) -> str:
    """Return the name of a passage in a block; without an ordinal, of the whole segment."""
    return segment if ordinal is None else f"{segment}{_OF}{ordinal}"


def fact_name(id: FactId) -> str:  # noqa: A002
    """Return the name of a fact that a block quotes. No segment has the same name."""
    return f"fact{_OF}{id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledFact:
    """A fact that the recalled block may include."""

    type: FactType
    text: str = field(repr=False)
    score: float
    id: FactId | None = None
    trust: Trust = "medium"
    said_on: str = ""
    message_ids: tuple[MessageId, ...] = ()
    """Messages that the fact was extracted from. Forgetting one removes blocks with the fact."""

    @property
    def name(self) -> str | None:
        """Name under which a block lists the fact, so that it is not recalled twice."""
        return None if self.id is None else fact_name(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledPassage:
    """A passage of an earlier message that the recalled block may include."""

    text: str = field(repr=False)
    role: str
    said_at: str
    score: float
    speaker: str | None = None
    """Speaker's name in the block. None shows the role, "" no name, because the text has it."""
    source: str = ""
    message_id: MessageId | None = None
    segment: SegmentId | None = None
    session: SessionId | None = None
    ordinal: int | None = None
    """Number of the passage in its segment; None for the whole segment."""
    sitting: str = ""
    """Session and day. Passages with the same value are shown together."""
    replaced_by: str = field(default="", repr=False)
    """The user's later statement that replaces this passage; empty if none is known."""
    order: tuple[float, int, int] = (0.0, 0, 0)

    @property
    def name(self) -> str | None:
        """Name under which a block lists the passage, so that it is not recalled twice."""
        return None if self.segment is None else passage_name(self.segment, self.ordinal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Everything that recall offers for one turn, best first."""

    facts: tuple[RecalledFact, ...] = ()
    passages: tuple[RecalledPassage, ...] = ()
    gate: GateVerdict | None = None
    hits: tuple[Hit, ...] = field(default=(), repr=False)
    """All ranked hits, best first, from which the block was filled; empty if none were needed."""
    notes: tuple[Reason, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.facts and not self.passages


Asks: TypeAlias = Literal["question", "reference", "other"]
"""What a message asks for: "question" (an answer), "reference" (work that refers to earlier
agreements, such as "our definition"), or none of these."""


@dataclass(slots=True, kw_only=True)
class RecallReads:
    """What recall read in this turn. Recall runs twice if a new block displaced others."""

    phrased: dict[str, Mapping[EmbedderKind, str]] = field(default_factory=dict, repr=False)
    candidates: dict[CandidateQuery, Candidates] = field(default_factory=dict, repr=False)
    facts: dict[FactQuery, FactCandidates] = field(default_factory=dict, repr=False)
    segments: dict[SegmentId, Segment] = field(default_factory=dict, repr=False)
    queries: tuple[RecallRequest, Any] | None = field(default=None, repr=False)
    """The last request, and its queries."""
    stored: list[Mapping[SegmentId, Segment]] = field(default_factory=list, repr=False)
    """Segments that the store sent with candidates and their neighbors."""
    judged: dict[tuple[SegmentId, bool], bool] = field(default_factory=dict, repr=False)
    """Whether a segment has no answer, by its id and by whether an order counts as no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """A turn's query to memory."""

    space: SpaceId
    session: SessionId
    query: str = field(repr=False)
    newest: str = field(default="", repr=False)
    """The newest message of `query`; empty if `query` is a single message."""
    asks: Asks | None = None
    refers_to: str = field(default="", repr=False)
    """The earlier user message that the newest message refers to."""
    recent: tuple[str, ...] = field(default=(), repr=False)
    """The model's latest messages, whose identifiers may come from messages no longer sent."""
    shown: frozenset[EntryKey] = field(default=frozenset(), repr=False)
    quoted: frozenset[str] = field(default=frozenset(), repr=False)
    """Names of passages or whole segments that blocks in the request already quote."""
    shown_messages: frozenset[MessageId] = field(default=frozenset(), repr=False)
    """Ids of the messages in the request, because another session may have stored the same ones."""
    asking: EntryKey | None = None
    """The newest user message, which is not searched, because it is most similar to itself."""
    uses_tools: bool = False
    view: Sequence[str] = field(default=(), repr=False)
    scope: RecallScope = "space"
    now: float
    budget_tokens: int
    count_tokens: Callable[[str], int] = field(repr=False)
    gated: bool = True
    """True to recall only if the turn refers to something that is no longer in the request."""
    explicit: bool = False
    """True for an explicit search, for example by a tool. Hits are chosen as for a question, and
    shown even if uncertain. In sessions with tools, decisions rank first."""
    said_after: float | None = None
    said_before: float | None = None
    most_hits: int = 50
    reads: RecallReads | None = field(default=None, repr=False, compare=False)

    @property
    def quoted_whole(self) -> frozenset[SegmentId]:
        """Segments that blocks quote in full; blocks of older versions name only segments."""
        return frozenset(SegmentId(name) for name in self.quoted if _OF not in name)

    def quotes(self, segment: SegmentId, ordinal: int) -> bool:
        """Return whether a block in the request already quotes this passage."""
        return segment in self.quoted or passage_name(segment, ordinal) in self.quoted
