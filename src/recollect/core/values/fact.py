"""Facts: short statements extracted from segments, with type, sources, validity and trust. A new
fact ends the validity of the one it replaces, so you can query any point in time. A fact is trusted
no more than its least trusted segment. Forgetting a segment removes the facts that need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, Literal, NewType, TypeAlias, get_args

from recollect.core.values.message import MessageId
from recollect.core.values.segment import SegmentId, Trust

FactId = NewType("FactId", str)

FactType: TypeAlias = Literal[
    "decision", "implementation", "config", "issue", "task_state", "architecture", "preference"
]
"""Types of facts: OpenClaw's six, and user preferences."""
MadeBy: TypeAlias = Literal["rules", "model", "user", "import"]
"""Author of a fact: rules of earlier versions, a model, a person, an imported file."""
Change: TypeAlias = Literal["update", "supersede"]
"""How a fact changes the one that it replaces: it adds detail, or contradicts it."""

EXTRACTED_TYPES: Final[tuple[FactType, ...]] = get_args(FactType)


def type_named(name: str) -> str:
    """Convert a type as people write it, such as "task state" or "Task-State", to its name."""
    return "_".join(name.casefold().replace("-", " ").split())


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSpan:
    """A span of a segment's text that supports a fact."""

    segment: SegmentId
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A short statement with its sources, validity and trust; `at` is the start of its validity."""

    id: FactId
    """Id of this version of the fact."""
    type: FactType
    """Type, such as "decision"."""
    content: str = field(repr=False)
    """The statement."""
    context: str = field(default="", repr=False)
    """Text around the statement, if it was imported with one or a model found it."""
    at: float
    """Start of validity, as a Unix timestamp."""
    superseded_by: FactId | None = None
    """Id of the fact that replaced this one."""
    sources: tuple[SegmentId, ...] = ()
    """Messages that state the fact, each of them alone, unless `joint` is true."""
    trust: Trust = "medium"
    """Trust in the author: "high", "medium", "low" or "outside"."""
    words: tuple[str, ...] = field(default=(), repr=False)
    """Words of the statement, which a search compares."""
    foreign: str | None = field(default=None, repr=False)
    """The line as it was imported, which an export repeats unchanged."""
    valid_to: float | None = None
    """End of validity; None until another fact replaces it."""
    recorded_at: float | None = None
    """Time at which the fact was stored."""
    subject: str = field(default="", repr=False)
    """Topic of the statement; empty if none was found."""
    attribute: str = field(default="", repr=False)
    """Property of the subject. A later fact with the same subject and property replaces it."""
    evidence: tuple[EvidenceSpan, ...] = ()
    """Spans of the sources that support the fact; empty for facts that people wrote."""
    made_by: MadeBy = "import"
    """Who wrote the fact: a model, a person, an imported file, or rules of earlier versions."""
    change: Change | None = None
    """Relation to the fact that it replaced, if any."""
    session: str | None = None
    """Session that the fact was extracted from; None if it belongs to the whole space."""
    pinned: bool = False
    """Pinned facts come first in recall, and extraction never replaces them."""
    joint: bool = False
    """True if only all sources together state the fact. Forgetting a source removes the fact."""

    @property
    def current(self) -> bool:
        """True if the fact is still valid."""
        return self.superseded_by is None and self.valid_to is None

    @property
    def told(self) -> str:
        """The fact's text. If the text does not name the subject, the subject is put before it."""
        text = self.content.casefold()
        # subjects are stored in English, whatever the language of the text
        open_ = bool(self.subject) and (text.isascii() or self.change is not None)
        if not open_ or any(word in text for word in self.subject.split()):
            return self.content
        return f"{self.content} [{self.subject}]"

    def __str__(self) -> str:
        marks = [self.type, f"trust {self.trust}", f"since {_day(self.at)}"]
        if self.valid_to is not None:
            marks.append(f"until {_day(self.valid_to)}")
        came = f"by {self.made_by}" + (f" from {self.session}" if self.session else "")
        marks.extend([came, *(["pinned"] if self.pinned else [])])
        return f"{self.told} [{', '.join(marks)}]"

    def held_at(self, moment: float) -> bool:
        """Return whether the fact was valid at this time, according to what is known now."""
        return self.at <= moment and (self.valid_to is None or moment < self.valid_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDraft:
    """A statement extracted by a model and checked, but not yet compared with stored facts."""

    type: FactType
    content: str = field(repr=False)
    context: str = field(default="", repr=False)
    at: float
    evidence: tuple[EvidenceSpan, ...]
    """Supporting spans, at least one; several only if `joint`."""
    trust: Trust
    made_by: MadeBy
    session: str | None = None
    subject: str = field(default="", repr=False)
    attribute: str = field(default="", repr=False)
    lineage: tuple[SegmentId, ...] = ()
    """Less trusted segments whose words the statement repeats. A repeated segment lowers the
    statement's trust, and forgetting the segment removes the fact."""

    @property
    def joint(self) -> bool:
        """True if only several segments together support the statement."""
        return len({span.segment for span in self.evidence}) > 1 or bool(self.lineage)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVector:
    """A fact's embedding, with `values` as in `Vector`."""

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
    """A fact's text, from which an embedder makes its vector."""

    fact: FactId
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedTo:
    """Sequence number of the last segment of a session that facts were extracted from."""

    session: str
    sequence: int


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).date().isoformat()


def fact_identity(id: FactId) -> MessageId:  # noqa: A002
    """Return the id under which a tombstone blocks a forgotten fact."""
    id_bytes = id.encode("utf-8", "surrogatepass")
    return MessageId(blake2b(id_bytes, digest_size=16, person=b"recollect-fact").hexdigest())


def fact_id(evidence: tuple[EvidenceSpan, ...], content: str) -> FactId:
    """Return the id of an extracted fact. A statement in one message always gets the same id."""
    identity_text = "\0".join(
        [*(span.segment for span in evidence), " ".join(content.casefold().split())]
    )
    digest = blake2b(
        identity_text.encode("utf-8", "surrogatepass"), digest_size=12, person=b"recollect-facts"
    )
    return FactId(digest.hexdigest())


_NO_TWINS: Final[Mapping[str, str]] = {}


def rests_on(fact: Fact) -> set[str]:
    """Return the segments that a fact names as sources or in its evidence."""
    return {*fact.sources, *(span.segment for span in fact.evidence)}


def all_rest_on(facts: Iterable[Fact]) -> set[str]:
    """Return the segments that any of these facts names."""
    return {segment for fact in facts for segment in rests_on(fact)}


def still_supported(
    fact: Fact, gone_ids: AbstractSet[str], twins: Mapping[str, str] = _NO_TWINS
) -> Fact | None:
    """Remove deleted segments from the fact. Return None if no remaining segment supports the fact.
    Another segment with the same words (`twins`) replaces a deleted one."""
    source_ids = rests_on(fact)
    lost_ids = {text for text in source_ids if text in gone_ids and text not in twins}
    if not source_ids & gone_ids:
        return fact
    if lost_ids and (fact.joint or lost_ids == source_ids):
        return None

    def find_twin(segment: SegmentId) -> SegmentId:
        return SegmentId(twins[segment]) if segment in gone_ids else segment

    sources = (find_twin(segment_id) for segment_id in fact.sources if segment_id not in lost_ids)
    evidence = (
        replace(span, segment=find_twin(span.segment))
        for span in fact.evidence
        if span.segment not in lost_ids
    )
    return replace(
        fact, sources=tuple(dict.fromkeys(sources)), evidence=tuple(dict.fromkeys(evidence))
    )
