"""Which messages and facts an order to forget means: by id, session, age, or by their text.

Pure tests, and the walk through a store that applies them. Always holds: whatever holds the
text is found wherever it stands, in the line it was imported as, too, however that is spelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from recollect.formats.held_text import HeldText
from recollect.ports import Store
from recollect.values.fact import Fact
from recollect.values.segment import Segment, StoredSegment
from recollect.values.upkeep import ForgetOrder

PAGE_SEGMENTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What an order means, before it is carried out."""

    stored: tuple[StoredSegment, ...] = field(default=(), repr=False)
    spooled: tuple[Segment, ...] = field(default=(), repr=False)
    """Messages that only wait in a spool."""
    facts: tuple[Fact, ...] = field(default=(), repr=False)

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
        or _holds(order.matching, (segment.text,), segment.foreign)
    )


def place_meant(order: ForgetOrder, segment: Segment) -> bool:
    """Whether it means just this segment: a session, an age, or both together."""
    if not order.sessions and order.said_before is None:
        return False
    return (not order.sessions or segment.session in order.sessions) and (
        order.said_before is None or segment.said_at < order.said_before
    )


def bytes_meant(order: ForgetOrder, held: bytes) -> bool:
    """Whether a piece, job, compaction or state holds the text, whomever it is about."""
    return order.matching is not None and HeldText(order.matching).stands_in(held)


def fact_meant(order: ForgetOrder, fact: Fact) -> bool:
    """Whether the order names a fact itself, not what it rests on."""
    return fact.id in order.facts or _holds(
        order.matching, (fact.content, fact.context), fact.foreign
    )


async def stored_meant(store: Store, order: ForgetOrder) -> AsyncIterator[StoredSegment]:
    """The segments of a store that the order names, in the order of arrival; all are looked at."""
    after = 0
    while page := await store.page(after=after, limit=PAGE_SEGMENTS):
        after = page[-1].sequence
        for one in page:
            if segment_meant(order, one.segment):
                yield one


async def facts_meant(store: Store, order: ForgetOrder) -> tuple[Fact, ...]:
    """The facts of a store that the order names themselves."""
    if order.matching is None and not order.facts:
        return ()
    found = await store.facts(superseded=True)
    return tuple(fact for fact in found if fact_meant(order, fact))


def _holds(wanted: str | None, texts: tuple[str, ...], line: str | None) -> bool:
    """Texts as they were said; a line as JSON spells it."""
    if wanted is None:
        return False
    folded = wanted.casefold()
    return any(folded in text.casefold() for text in texts) or HeldText(wanted).stands_in(line)
