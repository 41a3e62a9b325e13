"""Selects the segments, facts and records that an order to forget covers, in a store or a spool.
Records without covered content do not change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

from recollect.core.formats.openclaw_files import split_foreign
from recollect.core.formats.stored_records import (
    SoughtText,
    join_state,
    read_batch,
    without_quotes,
    write_batch,
    write_state,
)
from recollect.core.ports import Spool, Store, read_pages
from recollect.core.rules.patterns import TextPattern
from recollect.core.upkeep.masks import strings_in
from recollect.core.upkeep.searching_thread import select_in_thread
from recollect.core.values.batch import EXTRACT_JOB, Batch, SessionWrite, extract_keys
from recollect.core.values.fact import Fact, FactId, fact_identity, still_supported
from recollect.core.values.message import MessageId
from recollect.core.values.segment import Segment, SegmentId, StoredSegment
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import FormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTargets:
    """What an order would remove, found before it runs."""

    stored_segments: tuple[StoredSegment, ...] = field(default=(), repr=False)
    spooled_segments: tuple[Segment, ...] = field(default=(), repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    records: int = 0

    @property
    def nothing(self) -> bool:
        return not (self.messages or self.facts or self.records)

    @property
    def messages(self) -> int:
        return len(self.stored_segments) + len(self.spooled_segments)


class OrderMatcher:
    """Decides which segments and facts an order covers, and searches store, spool and files for its
    text and pattern."""

    def __init__(self, order: ForgetOrder) -> None:
        self._order = order
        self._text = None if order.matching is None else SoughtText(order.matching)
        self._pattern = None if order.pattern is None else TextPattern(order.pattern)

    def __bool__(self) -> bool:
        """Return whether the order has a text or a pattern."""
        return self._text is not None or self._pattern is not None

    def in_text(self, text: str) -> bool:
        """Return whether the text contains the order's text or pattern, also with JSON escapes."""
        if self._text is not None and self._text.occurs_in(text):
            return True
        return self._pattern is not None and self._pattern.occurs_in(text)

    def in_bytes(self, raw: bytes) -> bool:
        """Return whether JSON (also in keys) or other bytes contain the order's text or pattern."""
        if self._text is not None and self._text.occurs_in(raw):
            return True
        if self._pattern is None:
            return False
        return any(self._pattern.occurs_in(text) for text in strings_in(raw, keys=True))

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [] if self._pattern is None else list(self._pattern.spans(text))

    def covers_content(self, segment: Segment) -> bool:
        """Return whether the order covers this content in any place."""
        return (
            segment.id in self._order.segments
            or segment.message_id in self._order.message_ids
            or self._occurs_in((segment.text,), segment.foreign)
        )

    def covers(self, stored_segment: StoredSegment) -> bool:
        return self.covers_content(stored_segment.segment) or self.covers_place(
            stored_segment.segment
        )

    def covers_place(self, segment: Segment) -> bool:
        """Return whether the order covers the segment by its session, its time, or both."""
        order = self._order
        if not order.sessions and not order.by_time:
            return False
        is_session = not order.sessions or segment.session in order.sessions
        return is_session and order.said_then(segment.said_at)

    def covers_fact(self, fact: Fact) -> bool:
        """Return whether the order covers the fact itself, not only its source."""
        texts = (fact.content, fact.context, fact.subject, fact.attribute)
        _, line = split_foreign(fact.foreign or "")
        return fact.id in self._order.facts or self._occurs_in(texts, line)

    def _occurs_in(self, texts: tuple[str, ...], line: str | None) -> bool:
        raw = (line or "").encode("utf-8", "surrogatepass")
        return bool(self) and (any(map(self.in_text, texts)) or self.in_bytes(raw))


async def find_covered_segments(store: Store, order: ForgetOrder) -> list[StoredSegment]:
    """Return the segments that an order covers, in order of arrival, by reading all segments."""
    matcher = OrderMatcher(order)
    segments: list[StoredSegment] = []
    async for page in read_pages(store):
        segments += await select_in_thread(matcher.covers, page)
    return segments


async def find_copies(
    store: Store, order: ForgetOrder, meant_segments: Sequence[StoredSegment]
) -> tuple[list[StoredSegment], Mapping[str, str]]:
    """Return segments with the same words as `meant_segments`: copies to remove too, and a copy per
    segment that stays, which will support its facts."""
    known_ids = {segment.segment.id for segment in meant_segments}
    segments = [stored_segment.segment for stored_segment in meant_segments]
    by_content = await select_in_thread(OrderMatcher(order).covers_content, segments)
    content = {segment.message_id for segment in by_content}
    by_place = {segment.segment.message_id for segment in meant_segments} - content
    copies: list[StoredSegment] = []
    stays: dict[MessageId, SegmentId] = {}
    if not known_ids:
        return [], {}
    async for page in read_pages(store):
        for stored_segment in page:
            identity = stored_segment.segment.message_id
            if stored_segment.segment.id in known_ids:
                continue
            if identity in content:
                copies.append(stored_segment)
            elif identity in by_place:
                stays.setdefault(identity, stored_segment.segment.id)
    twins: dict[str, str] = {
        segment.segment.id: stays[segment.segment.message_id]
        for segment in meant_segments
        if segment.segment.message_id in stays
    }
    return copies, twins


async def find_covered_facts(store: Store, order: ForgetOrder) -> tuple[Fact, ...]:
    matcher = OrderMatcher(order)
    if not matcher and not order.facts:
        return ()
    return tuple(await select_in_thread(matcher.covers_fact, await store.facts(superseded=True)))


def describe_damage(spools: Iterable[Spool]) -> list[str]:
    """Describe damaged parts of spools, one line each, with what to do."""
    return [
        f"{name}, a damaged part of the spool: check its content, or delete it"
        for spool in spools
        for name in getattr(spool, "unreadable_files", tuple)()
    ]


@dataclass(slots=True, kw_only=True)
class ForgetSet:
    """The messages and facts to remove. `look_at` adds messages and facts of spools."""

    order: ForgetOrder
    message_ids: set[MessageId] = field(default_factory=set)
    segments: set[SegmentId] = field(default_factory=set)
    facts: set[FactId] = field(default_factory=set)
    quoted: set[MessageId] = field(default_factory=set)
    """Messages whose quotes are removed, although only one copy of each message is forgotten."""
    spooled: dict[SegmentId, Segment] = field(default_factory=dict, repr=False)
    """Messages in spools that the order covers."""
    spooled_facts: dict[FactId, Fact] = field(default_factory=dict, repr=False)
    """All facts of spools."""
    unread: int = 0
    matcher: OrderMatcher = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.matcher = OrderMatcher(self.order)

    @classmethod
    def of(cls, order: ForgetOrder) -> Self:
        return cls(
            order=order,
            message_ids={*order.message_ids, *map(fact_identity, order.facts)},
            segments=set(order.segments),
            facts=set(order.facts),
        )

    def look_at(self, record: bytes) -> bytes:
        """Add what the order covers in a spooled record. Return the record."""
        with suppress(FormatError):
            self._add(read_batch(record))
        return record

    def remove(self, record: bytes) -> bytes | None:
        """Return the record without what the order covers; None if it is empty then."""
        try:
            batch = read_batch(record)
        except FormatError:
            self.unread += 1
            return record
        self._add(batch)
        new_batch = without_forgotten(
            batch,
            frozenset(self.message_ids),
            frozenset(self.segments),
            frozenset(self.facts),
            quoted_ids=frozenset(self.quoted),
        )
        new_batch = self._without_sessions(self._without_text(new_batch))
        if new_batch == batch:
            return record
        return None if new_batch.empty else write_batch(new_batch)

    def _add(self, batch: Batch) -> None:
        for segment in (new_segment.segment for new_segment in batch.segments):
            if segment.message_id in self.message_ids or self.matcher.covers_content(segment):
                self.message_ids.add(segment.message_id)
            elif segment.id in self.segments or self.matcher.covers_place(segment):
                # The tombstone is for this copy of the message only. Its quotes are removed,
                # because it is not known here whether other copies remain.
                self.message_ids.add(MessageId(segment.id))
                self.quoted.add(segment.message_id)
            else:
                continue
            self.segments.add(segment.id)
            self.spooled[segment.id] = segment
        for fact in batch.facts:
            self.spooled_facts[fact.id] = fact
            if self.matcher.covers_fact(fact):
                self.facts.add(fact.id)
                self.message_ids.add(fact_identity(fact.id))

    def _without_text(self, batch: Batch) -> Batch:
        matcher = self.matcher
        if not matcher:
            return batch
        state = b"" if batch.session is None else decode_state(batch.session.state)
        return replace(
            batch,
            jobs=tuple(job for job in batch.jobs if not matcher.in_bytes(job.payload)),
            pieces=tuple(piece for piece in batch.pieces if not matcher.in_bytes(piece.body)),
            compactions=tuple(c for c in batch.compactions if not matcher.in_bytes(c.body)),
            session=None if matcher.in_bytes(state) else batch.session,
        )

    def _without_sessions(self, batch: Batch) -> Batch:
        if self.order.by_time or not self.order.sessions:
            return batch
        sessions = self.order.sessions
        reading = extract_keys(sessions)
        return replace(
            batch,
            facts=tuple(
                replace(fact, session=None) if fact.session in sessions else fact
                for fact in batch.facts
            ),
            extracted=tuple(e for e in batch.extracted if e.session not in sessions),
            jobs=tuple(
                job for job in batch.jobs if job.kind != EXTRACT_JOB or job.key not in reading
            ),
            turns=tuple(turn for turn in batch.turns if turn.session not in sessions),
            compactions=tuple(c for c in batch.compactions if c.session not in sessions),
            session=batch.session
            if batch.session is not None and batch.session.session not in sessions
            else None,
        )


def remove_vectors(
    batch: Batch, segments: Collection[SegmentId], facts: Collection[FactId]
) -> Batch:
    """Remove the vectors of these segments and facts, and sets without vectors."""
    vectors = [
        replace(
            vector_set,
            vectors=tuple(v for v in vector_set.vectors if v.segment not in segments),
        )
        for vector_set in batch.vectors
    ]
    fact_vectors = [
        replace(
            vector_set,
            vectors=tuple(v for v in vector_set.vectors if v.fact not in facts),
        )
        for vector_set in batch.fact_vectors
    ]
    return replace(
        batch,
        vectors=tuple(vector_set for vector_set in vectors if vector_set.vectors),
        fact_vectors=tuple(vector_set for vector_set in fact_vectors if vector_set.vectors),
    )


def without_forgotten(
    batch: Batch,
    message_ids: frozenset[MessageId],
    segments: frozenset[SegmentId],
    facts: frozenset[FactId] = frozenset(),
    *,
    quoted_ids: frozenset[MessageId] = frozenset(),
) -> Batch:
    """Remove these messages and facts from the batch, and everything that quotes them or the
    messages in `quoted_ids`."""
    quoted_ids |= message_ids
    dropped_ids = {s.segment.id for s in batch.segments if s.segment.message_id in message_ids}
    gone_segments = segments | dropped_ids
    supported_facts = {fact.id: still_supported(fact, gone_segments) for fact in batch.facts}
    kept_facts = {
        id_: fact for id_, fact in supported_facts.items() if fact is not None and id_ not in facts
    }
    lost_facts = facts | (supported_facts.keys() - kept_facts.keys())
    return replace(
        remove_vectors(batch, gone_segments, lost_facts),
        segments=tuple(s for s in batch.segments if s.segment.id not in gone_segments),
        facts=tuple(kept_facts.values()),
        jobs=tuple(job for job in batch.jobs if quoted_ids.isdisjoint(job.about)),
        pieces=tuple(piece for piece in batch.pieces if quoted_ids.isdisjoint(piece.about)),
        compactions=tuple(c for c in batch.compactions if quoted_ids.isdisjoint(c.about)),
        session=None if batch.session is None else _session(batch.session, quoted_ids),
    )


def decode_state(state: bytes) -> bytes:
    """Return a session's state decompressed, or its bytes if it is unreadable."""
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
        return None  # drop an unreadable state, because it may quote a forgotten message
    # The state does not record which edit quotes which message, so all edits with quotes are
    # removed.
    edits = (*state.edits, *(edit for edit, _ in state.dormant))
    anchors = frozenset(edit.anchor for edit in edits if edit.anchor is not None)
    return replace(
        write,
        state=without_quotes(write.state, anchors),
        about=tuple(message_id for message_id in write.about if message_id not in message_ids),
    )
