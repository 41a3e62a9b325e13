"""Facts: short statements extracted from segments, with type, sources, validity and trust.

A new fact closes the one that it replaces, so that you can ask for any point in time. An extracted
fact names its segments, is trusted no more than the least trusted of them, and never rests on a
forgotten one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, Literal, NewType, TypeAlias

from recollect.core.values.message import MessageId
from recollect.core.values.segment import SegmentId, Trust

FactId = NewType("FactId", str)

FactType: TypeAlias = Literal[
    "decision",
    "implementation",
    "config",
    "issue",
    "task_state",
    "architecture",
    "preference",
    "digest",
]
"""OpenClaw's six, what the user prefers, and the digests that earlier versions wrote of facts."""
MadeBy: TypeAlias = Literal["rules", "model", "user", "import"]
"""The source of a fact: the rules of earlier versions, a model, a person, a file."""
Change: TypeAlias = Literal["update", "supersede"]
"""How a fact followed the one before: it says the same in more detail, or something else."""

EXTRACTED_TYPES: Final[tuple[FactType, ...]] = (
    "decision",
    "implementation",
    "config",
    "issue",
    "task_state",
    "architecture",
    "preference",
)


def type_named(name: str) -> str:
    """A type as it is stored, of a name as people write it: "task state", "Task-State"."""
    return "_".join(name.casefold().replace("-", " ").split())


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSpan:
    """A span of a segment's text that a fact rests on."""

    segment: SegmentId
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A short statement with its sources, validity and trust; `at` is since when it holds."""

    id: FactId
    type: FactType
    content: str = field(repr=False)
    context: str = field(default="", repr=False)
    at: float
    superseded_by: FactId | None = None
    sources: tuple[SegmentId, ...] = ()
    """The messages that state it, each by itself unless `joint`."""
    trust: Trust = "medium"
    words: tuple[str, ...] = field(default=(), repr=False)
    foreign: str | None = field(default=None, repr=False)
    valid_to: float | None = None
    """Until when it held; None while nothing has replaced it."""
    recorded_at: float | None = None
    subject: str = field(default="", repr=False)
    """Its topic; empty if neither its words nor a model can tell."""
    attribute: str = field(default="", repr=False)
    """Which property of the subject it states: a later one of both replaces it."""
    evidence: tuple[EvidenceSpan, ...] = ()
    """The spans it rests on, of segments among its sources; none for what people wrote."""
    made_by: MadeBy = "import"
    change: Change | None = None
    """How it changed the fact that it replaced; None if it replaced none."""
    session: str | None = None
    """The session it was extracted from; None: it belongs to the whole space."""
    pinned: bool = False
    """Always offered first, never superseded by extraction."""
    joint: bool = False
    """All of its sources together state it, so forgetting one of them removes it."""

    @property
    def current(self) -> bool:
        """Whether nothing has replaced or ended it."""
        return self.superseded_by is None and self.valid_to is None

    @property
    def told(self) -> str:
        """The text, with its subject if the text omits it."""
        text = self.content.casefold()
        # a subject is kept in English words, whatever language it was said in
        open_ = bool(self.subject) and (text.isascii() or self.change is not None)
        if not open_ or any(word in text for word in self.subject.split()):
            return self.content
        return f"{self.content} [{self.subject}]"

    def __str__(self) -> str:
        """Text, type, trust, start and source."""
        marks = [self.type, f"trust {self.trust}", f"since {_day(self.at)}"]
        if self.valid_to is not None:
            marks.append(f"until {_day(self.valid_to)}")
        came = f"by {self.made_by}" + (f" from {self.session}" if self.session else "")
        marks.extend([came, *(["pinned"] if self.pinned else [])])
        return f"{self.told} [{', '.join(marks)}]"

    def held_at(self, moment: float) -> bool:
        """Whether it was valid at this time, as far as is known now."""
        return self.at <= moment and (self.valid_to is None or moment < self.valid_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDraft:
    """A statement that was found and checked, before it is held against what is known."""

    type: FactType
    content: str = field(repr=False)
    context: str = field(default="", repr=False)
    at: float
    evidence: tuple[EvidenceSpan, ...]
    """Not empty; several only where it takes all of them (see `joint`)."""
    trust: Trust
    made_by: MadeBy
    session: str | None = None
    subject: str = field(default="", repr=False)
    attribute: str = field(default="", repr=False)
    lineage: tuple[SegmentId, ...] = ()
    """Less trusted segments whose words it repeats: its trust is theirs, and it goes with them."""

    @property
    def joint(self) -> bool:
        """Whether it takes more than one span to say it."""
        return len({span.segment for span in self.evidence}) > 1 or bool(self.lineage)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVector:
    """A fact's embedding; `values` as in `Vector`."""

    fact: FactId
    values: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVectorSet:
    """Vectors of facts by one embedder."""

    embedder: str
    dimensions: int
    vectors: tuple[FactVector, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactText:
    """A fact's text, for those who embed it."""

    fact: FactId
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedTo:
    """The place up to which a session was read for facts."""

    session: str
    sequence: int


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).date().isoformat()


def fact_identity(id: FactId) -> MessageId:  # noqa: A002
    """The identity under which a tombstone keeps a forgotten fact out."""
    named = id.encode("utf-8", "surrogatepass")
    return MessageId(blake2b(named, digest_size=16, person=b"recollect-fact").hexdigest())


def fact_id(evidence: tuple[EvidenceSpan, ...], content: str) -> FactId:
    """The id of an extracted fact: the same statement of the same message is the same fact."""
    named = "\0".join([*(span.segment for span in evidence), " ".join(content.casefold().split())])
    hashed = blake2b(
        named.encode("utf-8", "surrogatepass"), digest_size=12, person=b"recollect-facts"
    )
    return FactId(hashed.hexdigest())


_NO_TWINS: Final[Mapping[str, str]] = {}


def rests_on(fact: Fact) -> set[str]:
    """The segments that a fact names, as sources or by a span."""
    return {*fact.sources, *(span.segment for span in fact.evidence)}


def all_rest_on(facts: Iterable[Fact]) -> set[str]:
    """The segments that any of these facts names."""
    return {segment for fact in facts for segment in rests_on(fact)}


def still_supported(
    fact: Fact, gone: AbstractSet[str], twins: Mapping[str, str] = _NO_TWINS
) -> Fact | None:
    """The fact without segments that are gone; None if nothing supports it any more. A segment with
    the same words elsewhere is replaced by its twin."""
    named = rests_on(fact)
    lost = {text for text in named if text in gone and text not in twins}
    if not named & gone:
        return fact
    if lost and (fact.joint or lost == named):
        return None

    def now(segment: SegmentId) -> SegmentId:
        return SegmentId(twins[segment]) if segment in gone else segment

    sources = (now(segment_id) for segment_id in fact.sources if segment_id not in lost)
    evidence = (
        replace(span, segment=now(span.segment))
        for span in fact.evidence
        if span.segment not in lost
    )
    return replace(
        fact, sources=tuple(dict.fromkeys(sources)), evidence=tuple(dict.fromkeys(evidence))
    )
