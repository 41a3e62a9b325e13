"""Which messages and facts an order to forget means: by id, session, time, or by their text.

Pure tests, and the walk through a store that applies them. Always holds: whatever holds the
text is found wherever it stands, in the line it was imported as, too, however that is spelled.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from recollect.formats.openclaw_files import split_foreign
from recollect.formats.stored_records import SoughtText
from recollect.memory.masking.masks import own_patterns, strings_in
from recollect.ports import Store
from recollect.values.fact import Fact
from recollect.values.message import MessageId
from recollect.values.segment import Segment, SegmentId, StoredSegment
from recollect.values.upkeep import ForgetOrder

PAGE_SEGMENTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What an order means, before it is carried out."""

    stored: tuple[StoredSegment, ...] = field(default=(), repr=False)
    spooled: tuple[Segment, ...] = field(default=(), repr=False)
    """Messages that only wait in a spool."""
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    """Facts and digests that go: those that are named, then those that rest on what goes."""
    records: int = 0
    """How many ledger pieces, jobs, summaries and states hold the text that is asked for."""

    @property
    def nothing(self) -> bool:
        """Whether nothing at all is meant."""
        return not (self.messages or self.facts or self.records)

    @property
    def messages(self) -> int:
        """How many messages, stored and spooled."""
        return len(self.stored) + len(self.spooled)


def segment_meant(order: ForgetOrder, segment: Segment) -> bool:
    """Whether the order names a segment, by content or by place."""
    return content_meant(order, segment) or place_meant(order, segment)


def content_meant(order: ForgetOrder, segment: Segment) -> bool:
    """Whether it means what a segment says, wherever it is said."""
    return (
        segment.id in order.segments
        or segment.message_id in order.message_ids
        or _holds(order, (segment.text,), segment.foreign)
    )


def place_meant(order: ForgetOrder, segment: Segment) -> bool:
    """Whether it means just this segment: a session, a time, or both together."""
    if not order.sessions and not order.by_time:
        return False
    return (not order.sessions or segment.session in order.sessions) and order.said_then(
        segment.said_at
    )


def bytes_meant(order: ForgetOrder, held: bytes) -> bool:
    """Whether a piece, job, compaction or state holds the text, whomever it is about."""
    if order.matching is not None and SoughtText(order.matching).stands_in(held):
        return True
    return any(True for _ in matches_in(order, held))


def matches_in(order: ForgetOrder, held: bytes) -> Iterator[str]:
    """What the order's pattern matches in JSON, or in other bytes."""
    if order.pattern is not None:
        search = compiled(order.pattern)
        for said in strings_in(held, keys=True):
            yield from (match[0] for match in search.finditer(said))


@lru_cache(maxsize=8)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern of an order; SettingsError where it is none."""
    (made,) = own_patterns((pattern,))
    return made


def fact_meant(order: ForgetOrder, fact: Fact) -> bool:
    """Whether the order names a fact itself, not what it rests on."""
    said = (fact.content, fact.context, fact.subject, fact.attribute)
    _, line = split_foreign(fact.foreign or "")
    return fact.id in order.facts or _holds(order, said, line)


async def stored_meant(store: Store, order: ForgetOrder) -> AsyncIterator[StoredSegment]:
    """The segments of a store that the order names, in the order of arrival; all are looked at."""
    after = 0
    while page := await store.page(after=after, limit=PAGE_SEGMENTS):
        after = page[-1].sequence
        for one in page:
            if segment_meant(order, one.segment):
                yield one


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidAgain:
    """Where the words of segments that go are said besides."""

    goes: tuple[StoredSegment, ...] = field(default=(), repr=False)
    """Of those meant by content: they go as well."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """Of those meant by place: another that stays, and that facts rest on from then on."""


async def said_again(store: Store, order: ForgetOrder, meant: Sequence[StoredSegment]) -> SaidAgain:
    """Look for the words of these segments, which the order means, among all the others."""
    known = {one.segment.id for one in meant}
    everywhere = {one.segment.message_id for one in meant if content_meant(order, one.segment)}
    by_place = {one.segment.message_id for one in meant} - everywhere
    goes: list[StoredSegment] = []
    stays: dict[MessageId, SegmentId] = {}
    after = 0
    while known and (page := await store.page(after=after, limit=PAGE_SEGMENTS)):
        after = page[-1].sequence
        for one in page:
            if one.segment.id in known:
                continue
            if one.segment.message_id in everywhere:
                goes.append(one)
            elif one.segment.message_id in by_place:
                stays.setdefault(one.segment.message_id, one.segment.id)
    twins: dict[str, str] = {
        one.segment.id: stays[one.segment.message_id]
        for one in meant
        if one.segment.message_id in stays
    }
    return SaidAgain(goes=tuple(goes), twins=twins)


async def facts_meant(store: Store, order: ForgetOrder) -> tuple[Fact, ...]:
    """The facts of a store that the order names themselves."""
    if order.matching is None and order.pattern is None and not order.facts:
        return ()
    found = await store.facts(superseded=True)
    meant = {fact.id: fact for fact in found if fact_meant(order, fact)}
    # A digest says what the facts it was made of say.
    subjects = {fact.subject for fact in meant.values() if fact.subject}
    sources = {source for fact in meant.values() for source in fact.sources}
    for fact in found:
        rests = fact.subject in subjects or not sources.isdisjoint(fact.sources)
        if fact.type == "digest" and rests:
            meant.setdefault(fact.id, fact)
    return tuple(meant.values())


def _holds(order: ForgetOrder, texts: tuple[str, ...], line: str | None) -> bool:
    """Texts as they were said; a line as JSON spells it."""
    if order.matching is not None:
        folded = order.matching.casefold()
        if any(folded in text.casefold() for text in texts):
            return True
        if SoughtText(order.matching).stands_in(line):
            return True
    if order.pattern is None:
        return False
    search = compiled(order.pattern)
    if any(search.search(text) for text in texts):
        return True
    held = (line or "").encode("utf-8", "surrogatepass")
    return any(True for _ in matches_in(order, held))
