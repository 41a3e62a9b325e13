"""Masks one stored thing: a segment, a fact, a body of a room, a batch that waits in a spool.

Pure: values in, values out, with what of which kind was masked. Always holds: ids, places and
times stay; what is not changed comes back as it is, the very object; a span that a fact rests on
still stands for what it stood for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeAlias, TypeVar

from recollect.errors import FormatError
from recollect.formats.json_text import encode
from recollect.formats.openclaw_files import split_foreign
from recollect.formats.stored_records import read_record, with_texts
from recollect.memory.masking.masks import MaskedBytes, MaskedText, Masks, strings_in
from recollect.search.tokenize import tokenize
from recollect.values.batch import Batch, LedgerPiece, SessionWrite
from recollect.values.fact import Fact
from recollect.values.segment import NewPassage, NewSegment, Segment, SegmentId
from recollect.values.upkeep import Room

T = TypeVar("T")
Index: TypeAlias = Callable[[Segment], tuple[NewPassage, ...]]
"""How a segment is cut and indexed."""
TAG_KIND: Final = "tag"
"""What stands only among the tags of a message."""
Moved: TypeAlias = Mapping[SegmentId, MaskedText]
"""The segments whose texts changed, each with how its spans moved."""

_IDS: Final[Mapping[Room, frozenset[str]]] = {
    "compactions": frozenset({"source", "key", "first_kept", "kind", "standing", "trigger"}),
    "jobs": frozenset({"id", "ids", "key", "session", "segment", "segments", "embedder"}),
}
"""Keys whose values name things: an own pattern may not change them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """A stored thing afterwards."""

    value: T = field(repr=False)
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of which kind were masked in it."""
    text: MaskedText | None = field(default=None, repr=False)
    """Of a segment: its text, with how spans moved."""

    @property
    def changed(self) -> bool:
        """Whether there was anything to mask."""
        return bool(self.kinds)


def masked_segment(segment: Segment, masks: Masks) -> Part[Segment]:
    """A segment whose text, tags and imported line hold no secret."""
    said = masks.text(segment.text)
    tool = masks.text(segment.tool or "")
    line = masks.json((segment.foreign or "").encode("utf-8", "surrogateescape"))
    kinds = Counter(said.kinds) + Counter(tool.kinds)
    tags = Counter(tag for tag in (*segment.topics, *segment.entities) if masks.name(tag))
    if not kinds and not line.kinds and not tags:
        return Part(value=segment)
    left = replace(
        segment,
        text=said.text,
        tool=segment.tool and tool.text,
        topics=_still(segment.topics, segment.text, said.text, tags),
        entities=_still(segment.entities, segment.text, said.text, tags),
        foreign=segment.foreign and line.body.decode("utf-8", "surrogateescape"),
    )
    found = kinds or line.kinds or {TAG_KIND: len(tags)}
    return Part(value=left, kinds=found, text=said)


def masked_fact(fact: Fact, masks: Masks, moved: Moved) -> Part[Fact]:
    """A fact that holds no secret, and whose spans stand where their texts do now."""
    content, context = masks.text(fact.content), masks.text(fact.context)
    subject, attribute = masks.text(fact.subject), masks.text(fact.attribute)
    number, line = _imported(fact.foreign or "", masks)
    kinds: Counter[str] = Counter()
    for one in (content, context, subject, attribute):
        kinds.update(one.kinds)
    left = fact
    if kinds or line.kinds:
        left = replace(
            fact,
            content=content.text,
            context=context.text,
            subject=subject.text,
            attribute=attribute.text,
            words=tuple(tokenize(content.text)),
            foreign=fact.foreign and number + line.body.decode("utf-8", "surrogateescape"),
        )
    evidence = tuple(
        replace(one, start=span[0], end=span[1])
        for one in fact.evidence
        for span in [_span(moved, one.segment, one.start, one.end)]
    )
    if evidence != fact.evidence:
        left = replace(left, evidence=evidence)
    return Part(value=left, kinds=kinds or line.kinds)


def _imported(foreign: str, masks: Masks) -> tuple[str, MaskedBytes]:
    """The line that a fact was imported as: its place in the file with its tab, and the rest."""
    number, line = split_foreign(foreign)
    return number, masks.json(line.encode("utf-8", "surrogateescape"))


def masked_body(room: Room, body: bytes, masks: Masks) -> Part[bytes]:
    """What a room holds, without secrets; FormatError for a state that cannot be read."""
    if room == "states":
        return masked_state(body, masks)
    if room == "job reasons":
        said = masks.text(body.decode("utf-8", "surrogatepass"))
        return Part(value=said.text.encode("utf-8", "surrogatepass"), kinds=said.kinds)
    done = masks.json(body, leave=_IDS.get(room, frozenset()))
    return Part(value=done.body, kinds=done.kinds)


def texts_in(room: Room, body: bytes) -> list[str]:
    """What a summary, a receipt or a session's state says; nothing of what cannot be read."""
    texts: list[str] = []

    def read(text: str) -> str:
        texts.append(text)
        return text

    try:
        if room == "states":
            with_texts(body, read)
        else:
            told = read_record(body).result
            texts.append(told.summary)
            for finding in told.receipt.findings if told.receipt is not None else ():
                texts += (finding.probe.text, finding.probe.sentence)
            texts += strings_in(encode(dict(told.details)))
    except FormatError:
        return []
    return texts


def masked_state(state: bytes, masks: Masks) -> Part[bytes]:
    """A session's state without secrets."""
    kinds: Counter[str] = Counter()

    def change(text: str) -> str:
        done = masks.text(text)
        kinds.update(done.kinds)
        return done.text

    return Part(value=with_texts(state, change), kinds=kinds)


def masked_batch(batch: Batch, masks: Masks, index: Index) -> Part[Batch]:
    """A batch that waits, without secrets; vectors of what changed are made again later."""
    tally = _Tally()
    moved: dict[SegmentId, MaskedText] = {}

    def segment(new: NewSegment) -> NewSegment:
        part = masked_segment(new.segment, masks)
        if not part.changed or part.text is None:
            return new
        moved[new.segment.id] = part.text
        # what was kept without being indexed stays so
        return NewSegment(segment=tally(part), passages=index(part.value) if new.passages else ())

    segments = tuple([segment(new) for new in batch.segments])
    facts = tuple([tally(masked_fact(fact, masks, moved)) for fact in batch.facts])
    changed = {new.id for new, old in zip(facts, batch.facts, strict=True) if new != old}
    left = replace(
        batch,
        segments=segments,
        vectors=tuple(
            replace(held, vectors=tuple(one for one in held.vectors if one.segment not in moved))
            for held in batch.vectors
        ),
        facts=facts,
        fact_vectors=tuple(
            replace(held, vectors=tuple(one for one in held.vectors if one.fact not in changed))
            for held in batch.fact_vectors
        ),
    )
    left = _rooms_of(left, masks, tally)
    return Part(value=left if tally.kinds else batch, kinds=tally.kinds)


def _rooms_of(batch: Batch, masks: Masks, tally: _Tally) -> Batch:
    """What a batch holds beside segments and facts, without secrets."""
    return replace(
        batch,
        jobs=tuple(
            replace(job, payload=tally(masked_body("jobs", job.payload, masks)))
            for job in batch.jobs
        ),
        pieces=tuple(
            _piece(one, tally(masked_body("pieces", one.body, masks))) for one in batch.pieces
        ),
        compactions=tuple(
            replace(one, body=tally(masked_body("compactions", one.body, masks)))
            for one in batch.compactions
        ),
        session=None if batch.session is None else _session(batch.session, masks, tally),
    )


class _Tally:
    """Counts what was masked in parts."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def __call__(self, part: Part[T]) -> T:
        """The part's value, counted."""
        self.kinds.update(part.kinds)
        return part.value


def _piece(piece: LedgerPiece, body: bytes) -> LedgerPiece:
    return piece if body == piece.body else replace(piece, body=body, exact=False)


def _session(write: SessionWrite, masks: Masks, tally: _Tally) -> SessionWrite | None:
    try:
        return replace(write, state=tally(masked_state(write.state, masks)))
    except FormatError:
        return None  # nobody here can tell what it holds: the stored one stays


def _still(
    tags: tuple[str, ...], before: str, after: str, secret: Container[str]
) -> tuple[str, ...]:
    """The tags but for secrets, and for those that the text no longer says."""
    was, now = before.casefold(), after.casefold()
    kept = (tag for tag in tags if tag not in secret)
    return tuple(tag for tag in kept if tag.casefold() in now or tag.casefold() not in was)


def _span(moved: Moved, segment: SegmentId, start: int, end: int) -> tuple[int, int]:
    found = moved.get(segment)
    return (start, end) if found is None else found.moved(start, end)
