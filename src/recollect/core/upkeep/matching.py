"""Select the segments, facts and records that an order to forget covers, stored or spooled. A
spooled batch without any of them is not changed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from recollect.core.formats.openclaw_files import split_foreign
from recollect.core.formats.stored_records import (
    SoughtText,
    join_state,
    read_batch,
    without_quotes,
    write_batch,
    write_state,
)
from recollect.core.ports import Spool, Store
from recollect.core.upkeep.masks import own_patterns, strings_in
from recollect.core.values.batch import EXTRACT_JOB, Batch, SessionWrite, extract_key
from recollect.core.values.fact import Fact, FactId, FactVectorSet, fact_identity, still_supported
from recollect.core.values.message import MessageId
from recollect.core.values.segment import Segment, SegmentId, StoredSegment, VectorSet
from recollect.core.values.upkeep import BODY_KINDS, ForgetOrder, StoredBody
from recollect.errors import FormatError

PAGE_SEGMENTS: Final = 500
PAGE_BODIES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTargets:
    """What an order would remove, determined before it runs."""

    stored: tuple[StoredSegment, ...] = field(default=(), repr=False)
    spooled: tuple[Segment, ...] = field(default=(), repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    records: int = 0

    @property
    def nothing(self) -> bool:
        return not (self.messages or self.facts or self.records)

    @property
    def messages(self) -> int:
        return len(self.stored) + len(self.spooled)


class TextMatcher:
    """Finds an order's text and pattern in store, spool and files."""

    def __init__(self, order: ForgetOrder) -> None:
        self._text = None if order.matching is None else SoughtText(order.matching)
        self._pattern = None if order.pattern is None else compiled(order.pattern)

    def __bool__(self) -> bool:
        return self._text is not None or self._pattern is not None

    def in_text(self, text: str) -> bool:
        """Return whether a text contains it, also in escaped form."""
        if self._text is not None and self._text.occurs_in(text):
            return True
        return self._pattern is not None and self._pattern.search(text) is not None

    def in_bytes(self, raw: bytes) -> bool:
        """Return whether JSON (including keys) or other bytes contain it."""
        if self._text is not None and self._text.occurs_in(raw):
            return True
        if self._pattern is None:
            return False
        return any(self._pattern.search(text) for text in strings_in(raw, keys=True))

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [] if self._pattern is None else [one.span() for one in self._pattern.finditer(text)]


@lru_cache(maxsize=8)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile the pattern of an order. Raise SettingsError if it is invalid."""
    (made,) = own_patterns((pattern,))
    return made


def segment_meant(order: ForgetOrder, segment: Segment) -> bool:
    return content_meant(order, segment) or place_meant(order, segment)


def content_meant(order: ForgetOrder, segment: Segment) -> bool:
    """Return whether the order covers a segment's content, wherever it appears."""
    return (
        segment.id in order.segments
        or segment.message_id in order.message_ids
        or _holds(order, (segment.text,), segment.foreign)
    )


def place_meant(order: ForgetOrder, segment: Segment) -> bool:
    """Return whether the order covers this segment by its session, its time, or both."""
    if not order.sessions and not order.by_time:
        return False
    return (not order.sessions or segment.session in order.sessions) and order.said_then(
        segment.said_at
    )


def fact_meant(order: ForgetOrder, fact: Fact) -> bool:
    """Return whether the order covers a fact itself, not its source."""
    said = (fact.content, fact.context, fact.subject, fact.attribute)
    _, line = split_foreign(fact.foreign or "")
    return fact.id in order.facts or _holds(order, said, line)


def _holds(order: ForgetOrder, texts: tuple[str, ...], line: str | None) -> bool:
    matcher = TextMatcher(order)
    if not matcher:
        return False
    raw = (line or "").encode("utf-8", "surrogatepass")
    return any(map(matcher.in_text, texts)) or (bool(raw) and matcher.in_bytes(raw))


async def stored_meant(store: Store, order: ForgetOrder) -> AsyncIterator[StoredSegment]:
    """Return the segments of a store that the order covers, in order of arrival. Reads all
    segments."""
    async for segment in every_segment(store):
        if segment_meant(order, segment.segment):
            yield segment


async def every_segment(store: Store) -> AsyncIterator[StoredSegment]:
    after = 0
    while page := await store.page(after=after, limit=PAGE_SEGMENTS):
        after = page[-1].sequence
        for segment in page:
            yield segment


async def every_body(store: Store) -> AsyncIterator[StoredBody]:
    for kind in BODY_KINDS:
        after: str | None = None
        while page := await store.held(kind, after=after, limit=PAGE_BODIES):
            after = page[-1].id
            for body in page:
                yield body


async def said_again(
    store: Store, order: ForgetOrder, meant: Sequence[StoredSegment]
) -> tuple[tuple[StoredSegment, ...], Mapping[str, str]]:
    """Return other segments with the same words: those to remove as well, and those that become new
    sources of facts."""
    known = {segment.segment.id for segment in meant}
    content = {one.segment.message_id for one in meant if content_meant(order, one.segment)}
    by_place = {segment.segment.message_id for segment in meant} - content
    goes: list[StoredSegment] = []
    stays: dict[MessageId, SegmentId] = {}
    if not known:
        return (), {}
    async for segment in every_segment(store):
        identity = segment.segment.message_id
        if segment.segment.id in known:
            continue
        if identity in content:
            goes.append(segment)
        elif identity in by_place:
            stays.setdefault(identity, segment.segment.id)
    twins: dict[str, str] = {
        segment.segment.id: stays[segment.segment.message_id]
        for segment in meant
        if segment.segment.message_id in stays
    }
    return tuple(goes), twins


async def facts_meant(store: Store, order: ForgetOrder) -> tuple[Fact, ...]:
    if not TextMatcher(order) and not order.facts:
        return ()
    facts = await store.facts(superseded=True)
    meant = {fact.id: fact for fact in facts if fact_meant(order, fact)}
    # A digest repeats the facts that it was made from.
    subjects = {fact.subject for fact in meant.values() if fact.subject}
    sources = {source for fact in meant.values() for source in fact.sources}
    for fact in facts:
        rests = fact.subject in subjects or not sources.isdisjoint(fact.sources)
        if fact.type == "digest" and rests:
            meant.setdefault(fact.id, fact)
    return tuple(meant.values())


def damaged_parts(spools: Iterable[Spool]) -> list[str]:
    """Describe the unreadable parts of spools, one line each with the fix."""
    return [
        f"{name}, a damaged part of the spool: look into it, or delete it"
        for spool in spools
        for name in getattr(spool, "unreadable_files", tuple)()
    ]


@dataclass(slots=True, kw_only=True)
class ForgetSet:
    """The messages to remove. Spooled messages that the order covers are added to it."""

    order: ForgetOrder
    message_ids: set[MessageId] = field(default_factory=set)
    segments: set[SegmentId] = field(default_factory=set)
    facts: set[FactId] = field(default_factory=set)
    unsaid: set[MessageId] = field(default_factory=set)
    unread: int = 0

    def look_at(self, record: bytes) -> bytes:
        """Add the content of a spooled record that the order covers. Return the record."""
        if (batch := self.read(record)) is not None:
            self.note(batch)
        return record

    def note(self, batch: Batch) -> tuple[Segment, ...]:
        """Add the content of a batch that the order covers. Return its messages."""
        segments = tuple(new.segment for new in batch.segments if self._noted(new.segment))
        for fact in batch.facts:
            if fact_meant(self.order, fact):
                self.facts.add(fact.id)
                self.message_ids.add(fact_identity(fact.id))
        return segments

    def remove(self, record: bytes) -> bytes | None:
        """Return the record without these messages; None if nothing remains."""
        batch = self.read(record)
        if batch is None:
            self.unread += 1
            return record
        self.note(batch)
        left = without(
            batch,
            frozenset(self.message_ids),
            frozenset(self.segments),
            frozenset(self.facts),
            unsaid=frozenset(self.unsaid),
        )
        left = self._without_sessions(self._without_text(left))
        if left == batch:
            return record
        return None if left.empty else write_batch(left)

    def read(self, record: bytes) -> Batch | None:
        """Return the batch in a record; None if it cannot be read."""
        try:
            return read_batch(record)
        except FormatError:
            return None

    def _noted(self, segment: Segment) -> bool:
        if segment.message_id in self.message_ids or content_meant(self.order, segment):
            self.message_ids.add(segment.message_id)
        elif segment.id in self.segments or place_meant(self.order, segment):
            # The place has its own tombstone. Quotes of it in this record are removed, because it
            # is unknown here whether the same words are stored elsewhere.
            self.message_ids.add(MessageId(segment.id))
            self.unsaid.add(segment.message_id)
        else:
            return False
        self.segments.add(segment.id)
        return True

    def _without_text(self, batch: Batch) -> Batch:
        matcher = TextMatcher(self.order)
        if not matcher:
            return batch
        state = b"" if batch.session is None else readable_state(batch.session.state)
        return replace(
            batch,
            jobs=tuple(job for job in batch.jobs if not matcher.in_bytes(job.payload)),
            pieces=tuple(piece for piece in batch.pieces if not matcher.in_bytes(piece.body)),
            compactions=tuple(one for one in batch.compactions if not matcher.in_bytes(one.body)),
            session=None if matcher.in_bytes(state) else batch.session,
        )

    def _without_sessions(self, batch: Batch) -> Batch:
        whole = () if self.order.by_time else self.order.sessions
        gone = batch.session is not None and batch.session.session in whole
        reading = {extract_key(name, left=left) for name in whole for left in (False, True)}
        return replace(
            batch,
            facts=tuple(
                replace(fact, session=None) if fact.session in whole else fact
                for fact in batch.facts
            ),
            extracted=tuple(
                extracted_to
                for extracted_to in batch.extracted
                if extracted_to.session not in whole
            ),
            jobs=tuple(
                job for job in batch.jobs if job.kind != EXTRACT_JOB or job.key not in reading
            ),
            turns=tuple(turn for turn in batch.turns if turn.session not in whole),
            compactions=tuple(
                compaction for compaction in batch.compactions if compaction.session not in whole
            ),
            session=None if gone else batch.session,
        )


def vectors_without(
    sets: Iterable[VectorSet], gone: Collection[SegmentId]
) -> tuple[VectorSet, ...]:
    """Remove the vectors of these segments, and sets that are then empty."""
    left = (
        replace(one, vectors=tuple(each for each in one.vectors if each.segment not in gone))
        for one in sets
    )
    return tuple(one for one in left if one.vectors)


def fact_vectors_without(
    sets: Iterable[FactVectorSet], gone: Collection[FactId]
) -> tuple[FactVectorSet, ...]:
    """Remove the vectors of these facts, and sets that are then empty."""
    left = (
        replace(one, vectors=tuple(each for each in one.vectors if each.fact not in gone))
        for one in sets
    )
    return tuple(one for one in left if one.vectors)


def without(
    batch: Batch,
    message_ids: frozenset[MessageId],
    segments: frozenset[SegmentId],
    facts: frozenset[FactId] = frozenset(),
    *,
    unsaid: frozenset[MessageId] = frozenset(),
) -> Batch:
    """Remove these messages and facts from the batch, and everything that quotes them or `unsaid`
    messages."""
    quoted = message_ids | unsaid
    dropped = {new.segment.id for new in batch.segments if new.segment.message_id in message_ids}
    gone = segments | dropped
    kept = {
        left.id: left
        for fact in batch.facts
        if fact.id not in facts and (left := still_supported(fact, gone)) is not None
    }
    lost = facts | {fact.id for fact in batch.facts if fact.id not in kept}
    return replace(
        batch,
        segments=tuple(new for new in batch.segments if new.segment.id not in gone),
        vectors=vectors_without(batch.vectors, gone),
        facts=tuple(kept[fact.id] for fact in batch.facts if fact.id in kept),
        fact_vectors=fact_vectors_without(batch.fact_vectors, lost),
        jobs=tuple(job for job in batch.jobs if quoted.isdisjoint(job.about)),
        pieces=tuple(piece for piece in batch.pieces if quoted.isdisjoint(piece.about)),
        compactions=tuple(
            compaction for compaction in batch.compactions if quoted.isdisjoint(compaction.about)
        ),
        session=None if batch.session is None else _session(batch.session, quoted),
    )


def readable_state(state: bytes) -> bytes:
    """Decode a session's state. Return its bytes if it cannot be read."""
    try:
        return write_state(join_state(state, (), ()))
    except FormatError:
        return state


def _session(write: SessionWrite, message_ids: frozenset[MessageId]) -> SessionWrite | None:
    if message_ids.isdisjoint(write.about):
        return write
    try:
        state = join_state(write.state, (), ())
    except FormatError:
        return None  # it quotes them at an unknown place, so the stored state stays
    # The state does not record which edit quotes which message, so all edits with quotes are
    # removed.
    edits = (*state.edits, *(edit for edit, _ in state.dormant))
    anchors = frozenset(edit.anchor for edit in edits if edit.anchor is not None)
    return replace(
        write,
        state=without_quotes(write.state, anchors),
        about=tuple(message_id for message_id in write.about if message_id not in message_ids),
    )
