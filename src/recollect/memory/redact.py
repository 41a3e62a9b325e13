"""Redact: mask the secrets that stand in what is stored already, in place.

Owns the walk: what waits in spools first, so that it is stored without them; then segments with
their index and vectors, the facts and digests that rest on them, and the rooms (ledger, jobs,
compactions, session states). Must never tell a secret, nor a part of one. Always holds: ids,
places and times stay; a second run finds nothing; without `apply` nothing is changed. A crash in
between leaves what is not done yet as it was: redacting again finishes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from recollect.errors import FormatError, StaleFacts
from recollect.formats.batches import read_batch, write_batch
from recollect.memory.masking.masks import MaskedText, Masks
from recollect.memory.masking.parts import (
    Index,
    masked_batch,
    masked_body,
    masked_fact,
    masked_segment,
)
from recollect.memory.spooled import damaged_parts
from recollect.ports import Spool, Store
from recollect.values.batch import Batch
from recollect.values.fact import Fact, FactId
from recollect.values.segment import NewSegment, Segment, SegmentId
from recollect.values.upkeep import ROOMS, NewBody, RewriteOrder, Room

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Told what is looked at, how much is done, and of how much, where that is known."""

SEGMENTS: Final = "messages"
FACTS: Final = "facts"
DIGESTS: Final = "digests"
SPOOL: Final = "spooled batches"
PLACES: Final[Mapping[Room, str]] = {
    "pieces": "ledger pieces",
    "jobs": "jobs",
    "job reasons": "reasons of failed jobs",
    "compactions": "summaries and receipts",
    "states": "session states",
}
"""What the rooms are called where people read of them."""
CANNOT: Final = (
    "backups, archived logs and replicas of the database that were made before",
    "spools of other machines: what waits there was masked by the rules of then",
    "what model providers logged or cached",
    "the client's own history and files",
)

_PAGE_SEGMENTS: Final = 200
_PAGE_BODIES: Final = 50
_FACTS_AT_ONCE: Final = 200
_MOST_RACES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """What secrets stand where, or stood there; counts and names, never one of them."""

    applied: bool
    """They are masked now; else they were only counted."""
    kinds: Mapping[str, Mapping[str, int]]
    """By place, how many secrets of which kind."""
    changed: Mapping[str, int]
    """By place, how many messages, facts, pieces… hold them."""
    sessions: Mapping[str, int]
    """By session, how many stand in its messages, summaries and state."""
    segments: tuple[SegmentId, ...] = ()
    """The messages that hold them."""
    facts: tuple[FactId, ...] = ()
    """The facts and digests that do."""
    looked_at: Mapping[str, int] = field(default_factory=dict)
    """By place, how many were looked at."""
    cannot: tuple[str, ...] = ()
    """What it could not reach, one sentence each."""

    @property
    def secrets(self) -> int:
        """How many there are, wherever."""
        return sum(count for kinds in self.kinds.values() for count in kinds.values())


async def redact(
    store: Store,
    spools: Sequence[Spool],
    masks: Masks,
    *,
    index: Index,
    now: float,
    apply: bool,
    progress: Progress | None = None,
) -> Redacted:
    """Mask what is stored, or with `apply` false say what would be; `index` cuts messages anew."""
    walk = _Walk(store, masks, index, now=now, apply=apply, progress=progress)
    for spool in spools:
        await spool.rewrite(walk.record)
    walk.cannot.update(dict.fromkeys(damaged_parts(spools)))
    await walk.segments()
    await walk.facts()
    for room in ROOMS:
        await walk.room(room)
    if apply and walk.changed:
        await store.rewrite(RewriteOrder(at=now))  # facts were written: their old bytes go, too
    return walk.told()


class _Walk:
    """One pass through a store."""

    def __init__(
        self,
        store: Store,
        masks: Masks,
        index: Index,
        *,
        now: float,
        apply: bool,
        progress: Progress | None,
    ) -> None:
        self.changed: Counter[str] = Counter()
        self._store = store
        self._masks = masks
        self._index = index
        self._now = now
        self._apply = apply
        self._progress = progress
        self._kinds: dict[str, Counter[str]] = {}
        self._sessions: Counter[str] = Counter()
        self._looked_at: Counter[str] = Counter()
        self._moved: dict[SegmentId, MaskedText] = {}
        self._resting: set[FactId] = set()
        """Facts whose spans are those of the texts as they were."""
        self._facts: list[FactId] = []
        self._unread: Counter[str] = Counter()
        self._raced = 0
        self._left_in_names = 0
        self.cannot: dict[str, None] = {}

    def record(self, record: bytes) -> bytes:
        """A spooled record as it may wait."""
        self._looked_at[SPOOL] += 1
        try:
            part = masked_batch(read_batch(record), self._masks, self._index)
        except FormatError:
            self._unread[SPOOL] += 1
            return record
        if not part.changed:
            return record
        self._count(SPOOL, part.kinds)
        return write_batch(part.value) if self._apply else record

    async def segments(self) -> None:
        """Messages, with their index and vectors."""
        total = (await self._store.stats()).segments
        self._resting = {fact.id for fact in await self._store.facts(superseded=True)}
        after = 0
        while page := await self._store.page(after=after, limit=_PAGE_SEGMENTS):
            after = page[-1].sequence
            order: list[NewSegment] = []
            for one in page:
                part = masked_segment(one.segment, self._masks)
                if part.changed and part.text is not None:
                    self._count(SEGMENTS, part.kinds, one.segment.session)
                    self._moved[one.segment.id] = part.text
                    order.append(await self._indexed(part.value))
            await self._rewritten(RewriteOrder(at=self._now, segments=tuple(order)))
            self._step(SEGMENTS, len(page), total)

    async def _indexed(self, segment: Segment) -> NewSegment:
        """A segment as it is found from now on; what is kept without an index stays so."""
        found = await self._store.passages(segment.id)
        return NewSegment(segment=segment, passages=self._index(segment) if found else ())

    async def facts(self) -> None:
        """Facts and digests, written only while nobody else decides upon them."""
        found = await self._store.facts(superseded=True)
        for fact in found:
            part = masked_fact(fact, self._masks, self._moved_for(fact))
            if part.changed:
                self._count(DIGESTS if fact.type == "digest" else FACTS, part.kinds, fact.session)
                self._facts.append(fact.id)
        self._step(FACTS, len(found), len(found))
        races = 0
        while self._apply and races < _MOST_RACES:
            try:
                if not await self._some_facts_written():
                    return
            except StaleFacts:
                races += 1
        if self._apply:
            self.cannot["facts: others were written all the time; redact once more"] = None

    async def _some_facts_written(self) -> bool:
        """Write some of those that have to read otherwise; False when there are none."""
        revision = await self._store.facts_revision()
        found = await self._store.facts(superseded=True)
        new = [masked_fact(fact, self._masks, self._moved_for(fact)).value for fact in found]
        left = [one for one, was in zip(new, found, strict=True) if one != was][:_FACTS_AT_ONCE]
        if left:
            await self._store.write(Batch(at=self._now, facts=tuple(left), facts_revision=revision))
            self._resting.difference_update(one.id for one in left)
        return bool(left)

    def _moved_for(self, fact: Fact) -> Mapping[SegmentId, MaskedText]:
        """How the spans moved that a fact rests on; not of one that was made since, or is done."""
        return self._moved if fact.id in self._resting else {}

    async def room(self, room: Room) -> None:
        """Everything that a room holds."""
        after: str | None = None
        while page := await self._store.held(room, after=after, limit=_PAGE_BODIES):
            after = page[-1].id
            order: list[NewBody] = []
            for one in page:
                try:
                    part = masked_body(room, one.body, self._masks)
                except FormatError:
                    self._unread[PLACES[room]] += 1
                    continue
                self._left_in_names += self._masks.left_in(part.value) if room != "states" else 0
                if part.changed:
                    self._count(PLACES[room], part.kinds, one.session)
                    order.append(NewBody(room=room, id=one.id, was=one.body, body=part.value))
            await self._rewritten(RewriteOrder(at=self._now, bodies=tuple(order)))
            self._step(PLACES[room], len(page), None)

    async def _rewritten(self, order: RewriteOrder) -> None:
        if not self._apply or not (order.segments or order.bodies):
            return
        done = await self._store.rewrite(order)
        self._raced += len(order.bodies) - done.bodies
        self.cannot.update(dict.fromkeys(done.cannot))

    def _count(self, place: str, kinds: Mapping[str, int], session: str | None = None) -> None:
        self.changed[place] += 1
        self._kinds.setdefault(place, Counter()).update(kinds)
        if session is not None:
            self._sessions[session] += sum(kinds.values())

    def _step(self, place: str, count: int, total: int | None) -> None:
        self._looked_at[place] += count
        if self._progress is not None:
            self._progress(place, self._looked_at[place], total)

    def told(self) -> Redacted:
        """What was found and done."""
        lines = [
            f"{count:,} {place} that could not be read here"
            for place, count in self._unread.items()
        ]
        if self._raced:
            lines.append(f"{self._raced:,} that changed meanwhile: redact once more")
        if self._left_in_names:
            lines.append(
                f"ids, names and keys in {self._left_in_names:,} records that a pattern matches: "
                "they hold things together and stay; forget what they belong to"
            )
        return Redacted(
            applied=self._apply,
            kinds={place: dict(kinds) for place, kinds in self._kinds.items()},
            changed=dict(self.changed),
            sessions=dict(self._sessions),
            segments=tuple(self._moved),
            facts=tuple(self._facts),
            looked_at=dict(self._looked_at),
            cannot=(*lines, *self.cannot, *(CANNOT if self._apply else ())),
        )
