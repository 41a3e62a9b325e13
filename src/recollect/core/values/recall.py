"""The questions to a store, the answers with their reasons, and the offer of memory for a turn.

Stores find candidates; `search` alone scores them, so the order does not depend on the engine. The
points of a hit's parts add up to its score.
"""

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
"""How the sessions of memory files begin: one a file, named by its path."""
EmbedderKind: TypeAlias = Literal["hash", "static", "onnx", "remote"]
"""The origin of a vector; trust in its similarities depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A model's similarity of unrelated texts."""

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
    """One an embedder; an embedder that has no vectors here finds nothing."""
    lexical_limit: int = 50
    vector_limit: int = 50
    session: str | None = None
    with_files: bool = False
    """With a session: also search memory files, see `FILE_SESSIONS`."""
    said_after: float | None = None
    said_before: float | None = None
    leave_out: frozenset[SegmentId] = field(default=frozenset(), repr=False)
    """Messages to skip, because the view shows them; unknown ones do no harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A passage that may answer, with what scoring needs."""

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
    """Cosine with each asked vector, in their order; None where the passage has no vector of
    that embedder."""
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The union of the best by words and the best by vector, in no meaningful order.

    The statistics are those of the space's warm index, whatever the filters, so that a score
    does not depend on them. Asked of one session they are therefore moved by the others
    (docs/concepts/recall.md, "Limits").
    """

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
    """How many places behind it; negative before it. Only segments that are indexed count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The neighbours of some segments, in no meaningful order."""

    neighbours: tuple[Neighbour, ...] = field(default=(), repr=False)
    passages: tuple[Candidate, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery:
    """A search among the current facts of one space."""

    words: tuple[str, ...] = field(default=(), repr=False)
    vectors: tuple[AskedVector, ...] = ()
    """One an embedder; an embedder that has no vectors of facts here finds nothing."""
    types: tuple[FactType, ...] = ()
    """The newest of these types are found too, whatever their words."""
    limit: int = 50
    """Of those that share words, of each vector, and of the types; pinned ones come on top."""
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidate:
    """A current fact that may answer, with what scoring needs."""

    fact: Fact
    similarities: tuple[float | None, ...] = ()
    """Cosine with each asked vector, in their order; None where it has none of that embedder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidates:
    """The pinned, those that share the rarest words, and the nearest, in no meaningful order. The
    statistics are those of all current facts of the space, whatever the filters."""

    facts: tuple[FactCandidate, ...] = field(default=(), repr=False)
    documents: int = 0
    document_frequencies: Mapping[str, int] = field(default_factory=dict, repr=False)


PartName: TypeAlias = Literal[
    "words", "vector", "neighbours", "stretch", "speaker", "role", "date", "standing", "age", "kind"
]
"""What a score is made of: words it shares with the question; nearness in meaning; what stands
beside it; the stretch of conversation it stands in; who said it; when; that it is an instruction
that is to last; how long ago; that it lays something down, or is a tool's call or output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePart:
    """One reason for a hit's rank."""

    name: PartName
    points: float
    why: str
    """In words, for people: `4 of 5 words`, `0.61 by static`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage as it was ranked."""

    passage: Candidate
    score: float
    """Relative to the best of its search; only compares hits of the same search."""
    parts: tuple[ScorePart, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    """What it says. A turn reads the texts of those that its block could have held; its `Context`
    lists these alone. A search reads all."""
    shown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """Whether the turn refers to something that left the view, and why."""

    open: bool
    reason: Reason
    score: float | None = None
    """The calibrated absolute score of the best that was found, 0 to 1."""
    threshold: float | None = None
    lost_terms: tuple[str, ...] = field(default=(), repr=False)
    """Terms of the turn, as written, that memory holds and the view does not."""
    lost_words: tuple[str, ...] = field(default=(), repr=False)
    """Their words in the index: only passages with one of them are recalled; empty: all are."""


RecallScope: TypeAlias = Literal["session", "space"]

BLOCK_OPENING = '<recalled-context source="memory-context">'
BLOCK_CLOSING = "</recalled-context>"
"""A recalled block's tags: OpenClaw's literals, which other readers know."""
TOOL_OPENING: Final = '<recalled-context source="memory-tools">'
"""The beginning of a memory tool's answer; only its mark proves that it is one."""
MEMORY_TOOLS: Final = frozenset(
    {"memory_search", "memory_get", "memory_store", "memory_recall", "memory_forget"}
)
"""The names of the memory tools (`recollect.tools`): their calls say nothing that is not kept."""


def is_memory_tool(name: str) -> bool:
    """Whether a tool is one of them, also with an MCP server's prefix
    (`mcp__recollect__memory_search`)."""
    return re.split(r"__|[./:]", name)[-1].removeprefix("recollect_") in MEMORY_TOOLS


_OF = ":"
"""Between a segment's id, which is hexadecimal, and the number of its passage."""


def passage_name(segment: SegmentId, ordinal: int | None) -> str:
    """A block's name for a quoted passage; without an ordinal, for the whole segment."""
    return segment if ordinal is None else f"{segment}{_OF}{ordinal}"


def fact_name(id: FactId) -> str:  # noqa: A002
    """A block's name for a fact; no segment's name is like it."""
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
    """Whose words it rests on, so that forgetting finds the block that quotes it."""

    @property
    def name(self) -> str | None:
        """The name that keeps it from being recalled again while its block is shown."""
        return None if self.id is None else fact_name(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledPassage:
    """A passage of an earlier message that may go into the block."""

    text: str = field(repr=False)
    role: str
    said_at: str
    score: float
    speaker: str | None = None
    """The speaker as the block names them; None: the role; empty: the text names them itself."""
    source: str = ""
    message_id: MessageId | None = None
    segment: SegmentId | None = None
    session: SessionId | None = None
    ordinal: int | None = None
    """Which passage of its segment it is; None: all of it."""
    sitting: str = ""
    """The key of passages that belong together: session and day."""
    replaced_by: str = field(default="", repr=False)
    """The user's later statement that replaces it; empty if none is known."""
    order: tuple[float, int, int] = (0.0, 0, 0)

    @property
    def name(self) -> str | None:
        """The name that keeps it from being recalled again while its block is shown."""
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

    @property
    def empty(self) -> bool:
        """Whether there is nothing to put back."""
        return not self.facts and not self.passages


Asks: TypeAlias = Literal["past", "question", "advice", "reference", "other"]
"""What a message wants: what was said before; an answer; advice ("how do I …?"), which is known
without memory; work for which it refers to what is agreed ("our definition", "as told"); or none
of these."""


@dataclass(slots=True, kw_only=True)
class RecallReads:
    """The reads of memory in a turn. If blocks had to go for a new one, recall asks again for a
    view without them, and reuses these."""

    phrased: dict[str, Mapping[EmbedderKind, str]] = field(default_factory=dict, repr=False)
    candidates: dict[CandidateQuery, Candidates] = field(default_factory=dict, repr=False)
    facts: dict[FactQuery, FactCandidates] = field(default_factory=dict, repr=False)
    segments: dict[SegmentId, Segment] = field(default_factory=dict, repr=False)
    judged: dict[tuple[SegmentId, bool], bool] = field(default_factory=dict, repr=False)
    """Whether a segment answers nothing: where questions do not, and where orders do not either."""
    known: dict[SegmentId, bool] = field(default_factory=dict, repr=False)
    """Whether a segment was stored when the newest of `candidates` were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """A turn's question to memory."""

    space: SpaceId
    session: SessionId
    query: str = field(repr=False)
    newest: str = field(default="", repr=False)
    """The newest of them alone; empty: `query` is all there is."""
    asks: Asks | None = None
    leans_on: str = field(default="", repr=False)
    """The earlier user message that the newest one depends on."""
    recent: tuple[str, ...] = field(default=(), repr=False)
    """The model's latest messages: identifiers in them may have lost their origin."""
    shown: frozenset[EntryKey] = field(default=frozenset(), repr=False)
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
    view: Sequence[str] = field(default=(), repr=False)
    scope: RecallScope = "space"
    now: float
    budget_tokens: int
    count_tokens: Callable[[str], int] = field(repr=False)
    gated: bool = True
    """Stay silent unless something that left the view is meant."""
    on_purpose: bool = False
    """Memory is asked on purpose, as by a tool: what is found is chosen as for a turn that asks,
    and shown however uncertain it is; where tools were used, what was laid down comes first."""
    said_after: float | None = None
    said_before: float | None = None
    most_hits: int = 50
    reads: RecallReads | None = field(default=None, repr=False, compare=False)

    @property
    def quoted_whole(self) -> frozenset[SegmentId]:
        """The segments that blocks in the view quote whole, or did before passages had names."""
        return frozenset(SegmentId(name) for name in self.quoted if _OF not in name)

    def quotes(self, segment: SegmentId, ordinal: int) -> bool:
        """Whether a block in the view quotes this passage already."""
        return segment in self.quoted or passage_name(segment, ordinal) in self.quoted
