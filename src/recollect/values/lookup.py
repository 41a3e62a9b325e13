"""What a search asks of a store, and the candidates it answers with.

Stores find candidates; `search` alone scores them. Always holds: every candidate carries what
both kinds of score need, so the order does not depend on which engine found it, nor by which
way: counts of every asked word, and its similarities wherever it has a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from recollect.values.fact import Fact, FactType
from recollect.values.message import EntryKey, Role
from recollect.values.segment import SegmentId, Trust

FILE_SESSIONS: Final = "file:"
"""How the sessions of memory files begin: one a file, named by its path."""
EmbedderKind: TypeAlias = Literal["hash", "static", "onnx", "remote"]
"""What makes a vector; how far its similarities can be trusted depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How near a model puts texts that have nothing to do with each other."""

    mean: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedVector:
    """The query's embedding: little-endian float32."""

    embedder: str
    values: bytes = field(repr=False)
    kind: EmbedderKind = "onnx"
    scale: Scale | None = None
    """What makes its similarities comparable; None: not known, so they only rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuery:
    """What to look for in one space."""

    words: tuple[str, ...] = field(default=(), repr=False)
    """Distinct words as `search` counts them."""
    vectors: tuple[AskedVector, ...] = ()
    """One an embedder; an embedder that has no vectors here finds nothing."""
    lexical_limit: int = 50
    vector_limit: int = 50
    """Of each vector."""
    session: str | None = None
    """Only this session; None is the whole space."""
    with_files: bool = False
    """With a session: also what came from memory files, see `FILE_SESSIONS`."""
    cold: bool = False
    """Also look through what went cold; slower."""
    said_after: float | None = None
    said_before: float | None = None
    leave_out: frozenset[SegmentId] = field(default=frozenset(), repr=False)
    """What is not looked for, because the view shows it; unknown ones do no harm."""


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
    """Its number of words, repeats included."""
    counts: Mapping[str, int] = field(repr=False)
    """How often it holds each asked word; words it does not hold may be missing."""
    similarities: tuple[float | None, ...] = ()
    """Cosine with each asked vector, in their order; None where the passage has no vector of
    that embedder."""
    tool: str | None = None
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The union of the best by words and the best by vector, in no meaningful order.

    The statistics are those of the space's warm index, whatever the filters, so that a score
    does not depend on them.
    """

    passages: tuple[Candidate, ...] = field(default=(), repr=False)
    documents: int = 0
    """How many passages the warm index holds."""
    average_length: float = 0.0
    document_frequencies: Mapping[str, int] = field(default_factory=dict, repr=False)
    """In how many of them each asked word stands."""
    cold_searched: int = 0
    """How many cold passages were looked through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A segment that stands near another one in the same session."""

    segment: SegmentId
    of: SegmentId
    distance: int
    """How many places behind it; negative before it. Only segments that are indexed count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What stands around some segments, in no meaningful order."""

    neighbours: tuple[Neighbour, ...] = field(default=(), repr=False)
    passages: tuple[Candidate, ...] = field(default=(), repr=False)
    """Of the neighbours, the first few of each, described as candidates of the same query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery:
    """What to look for among the current facts of one space."""

    words: tuple[str, ...] = field(default=(), repr=False)
    """Distinct words as `search` counts them."""
    vectors: tuple[AskedVector, ...] = ()
    """One an embedder; an embedder that has no vectors of facts here finds nothing."""
    types: tuple[FactType, ...] = ()
    """The newest of these types are found too, whatever their words."""
    limit: int = 50
    """Of those that share words, of each vector, and of the types; pinned ones come on top."""
    session: str | None = None
    """Only facts of this session and those of no session; None is the whole space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidate:
    """A current fact that may answer, with what scoring needs."""

    fact: Fact
    similarities: tuple[float | None, ...] = ()
    """Cosine with each asked vector, in their order; None where it has none of that embedder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidates:
    """The pinned, those that share the rarest words, and the nearest, in no meaningful order.

    The statistics are those of all current facts of the space, whatever the filters.
    """

    facts: tuple[FactCandidate, ...] = field(default=(), repr=False)
    documents: int = 0
    """How many current facts there are."""
    document_frequencies: Mapping[str, int] = field(default_factory=dict, repr=False)
    """In how many of them each asked word stands."""
