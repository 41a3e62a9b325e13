"""Redact: mask the secrets that stand in what is stored already, in place.

Owns the walk: what waits in spools first, so that it is stored without them; then segments with
their index and vectors and, in the same write, the spans of facts that rest on them; then other
facts and digests, and the rooms (ledger, jobs, compactions, session states). Must never tell a
secret, nor a part of one. Always holds: ids, places and times stay; a second run finds nothing;
without `apply` nothing is changed. A crash in between leaves what is not done yet as it was, and
every span in the text that it is a span of: redacting again finishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from recollect.errors import FormatError, StaleFacts
from recollect.formats.stored_records import read_batch, write_batch
from recollect.memory.masking.findings import (
    CANNOT,
    DIGESTS,
    FACTS,
    JOB_KEYS,
    ORIGINS,
    PLACES,
    RECORD_NAMES,
    SEGMENTS,
    SESSION_NAMES,
    SPOOL,
    Findings,
    Progress,
    Redacted,
)
from recollect.memory.masking.masks import COPIES_KIND, REMAINS_KIND, MaskedText, Masks
from recollect.memory.masking.parts import (
    Index,
    masked_batch,
    masked_body,
    masked_fact,
    masked_segment,
    texts_in,
)
from recollect.memory.masking.remains import Copies, copies_of, remains_of
from recollect.memory.spooled import damaged_parts
from recollect.ports import Spool, Store
from recollect.values.batch import EMBED_JOB, Batch, NewJob
from recollect.values.fact import Fact, rests_on
from recollect.values.segment import NewSegment, Segment, SegmentId, StoredSegment
from recollect.values.upkeep import ROOMS, NewBody, RewriteOrder, Room

__all__ = ["CANNOT", "PLACES", "Progress", "Redacted", "redact"]

_PAGE_SEGMENTS: Final = 200
_PAGE_BODIES: Final = 50
_FACTS_AT_ONCE: Final = 200
_MOST_RACES: Final = 5
_MOST_JOBS: Final = 100_000
_DERIVED: Final[tuple[Room, ...]] = ("compactions", "states")
"""Rooms of what is made from messages."""


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
    found = Findings(applied=apply, progress=progress)
    walk = _Walk(store, masks, index, found, now=now, apply=apply)
    embedders = (await store.stats()).vectors
    await walk.copies()
    for spool in spools:
        await spool.rewrite(walk.record)
    found.cannot.update(dict.fromkeys(damaged_parts(spools)))
    await walk.segments()
    await walk.remains()
    await walk.facts()
    for room in ROOMS:
        await walk.room(room)
    await walk.job_keys()
    if apply and found.changed:
        jobs = tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in embedders)
        await store.write(Batch(at=now, jobs=jobs))
        # The last one says whether the bytes that were replaced are gone from the store's files.
        found.cannot.update(dict.fromkeys((await store.rewrite(RewriteOrder(at=now))).cannot))
    return found.told()


class _Walk:
    """One pass through a store."""

    def __init__(
        self,
        store: Store,
        masks: Masks,
        index: Index,
        found: Findings,
        *,
        now: float,
        apply: bool,
    ) -> None:
        self._store = store
        self._masks = masks
        self._index = index
        self._found = found
        self._now = now
        self._apply = apply
        self._facts_before: tuple[Fact, ...] = ()
        self._named: set[tuple[str, str]] = set()
        self._secrets: dict[str, set[str]] = {}
        """By session, what was masked in its messages: only while this walks."""
        self._copied: set[str] = set()
        """What was masked there before, and stands elsewhere: likewise."""

    async def copies(self) -> None:
        """Learn what was taken from messages before they were masked, and stands alone now."""
        copies = Copies()
        for room in _DERIVED:
            after: str | None = None
            while page := await self._store.held(room, after=after, limit=_PAGE_BODIES):
                after = page[-1].id
                for one in page:
                    for text in texts_in(room, one.body):
                        copies.read(one.session or "", text)
        last = 0
        while held := await self._store.page(after=last, limit=_PAGE_SEGMENTS):
            last = held[-1].sequence
            for segment in (one.segment for one in held):
                tags = (*segment.topics, *segment.entities)
                copies.heard(segment.session, segment.text, tags)
        self._copied = copies.found()
        self._masks = replace(self._masks, copies=copies_of(self._copied))

    def record(self, record: bytes) -> bytes:
        """A spooled record as it may wait."""
        self._found.step(SPOOL, 1, None)
        try:
            part = masked_batch(read_batch(record), self._masks, self._index)
        except FormatError:
            self._found.unread[SPOOL] += 1
            return record
        if not part.changed:
            return record
        self._found.count(SPOOL, part.kinds)
        return write_batch(part.value) if self._apply else record

    async def segments(self) -> None:
        """Messages, with their index and vectors, and the facts that rest on them."""
        total = (await self._store.stats()).segments
        self._facts_before = await self._store.facts(superseded=True)
        after = 0
        while page := await self._store.page(after=after, limit=_PAGE_SEGMENTS):
            after = page[-1].sequence
            moved: dict[SegmentId, MaskedText] = {}
            order: list[NewSegment] = []
            for segment in (one.segment for one in page):
                self._name(SESSION_NAMES, segment.session)
                self._name(ORIGINS, segment.origin)
                part = masked_segment(segment, self._masks)
                if part.changed and part.text is not None:
                    self._found.count(SEGMENTS, part.kinds, segment.session)
                    self._found.segments[segment.id] = None
                    secrets = self._secrets.setdefault(segment.session, set())
                    secrets.update(part.text.masked_in(segment.text))
                    moved[segment.id] = part.text
                    order.append(await self._indexed(part.value))
            await self._segments_rewritten(order, moved, self._masks)
            self._found.step(SEGMENTS, len(page), total)

    async def remains(self) -> None:
        """What copies of these secrets that lost a character or two left in their sessions."""
        for session, secrets in self._secrets.items():
            masks = replace(self._masks, remains=remains_of(secrets), copies=copies_of(secrets))
            after = 0
            while (masks.remains or masks.copies) is not None and (
                page := await self._store.page(after=after, limit=_PAGE_SEGMENTS, session=session)
            ):
                after = page[-1].sequence
                await self._remains_in(page, masks)
        every = [secret for secrets in self._secrets.values() for secret in secrets]
        self._masks = replace(
            self._masks, remains=remains_of(every), copies=copies_of([*every, *self._copied])
        )
        self._secrets.clear()
        self._copied.clear()

    async def _remains_in(self, page: Sequence[StoredSegment], masks: Masks) -> None:
        moved: dict[SegmentId, MaskedText] = {}
        order: list[NewSegment] = []
        for segment in (one.segment for one in page):
            part = masked_segment(segment, masks)
            left = (REMAINS_KIND, COPIES_KIND)
            kinds = {kind: part.kinds[kind] for kind in left if part.kinds.get(kind)}
            if part.text is None or not kinds:
                continue
            known = segment.id in self._found.segments
            self._found.count(SEGMENTS, kinds, segment.session, again=known)
            self._found.segments[segment.id] = None
            moved[segment.id] = part.text
            order.append(await self._indexed(part.value))
        await self._segments_rewritten(order, moved, masks)

    async def _indexed(self, segment: Segment) -> NewSegment:
        """A segment as it is found from now on; what is kept without an index stays so."""
        found = await self._store.passages(segment.id)
        return NewSegment(segment=segment, passages=self._index(segment) if found else ())

    async def _segments_rewritten(
        self, new: Sequence[NewSegment], moved: dict[SegmentId, MaskedText], masks: Masks
    ) -> None:
        """Replace segments and, in the same write, the facts whose spans are of their texts."""
        if not self._apply or not new:
            return
        for _ in range(_MOST_RACES):
            revision = await self._store.facts_revision()
            resting = [
                (fact, masked_fact(fact, masks, moved).value)
                for fact in await self._store.facts(superseded=True)
                if not moved.keys().isdisjoint(rests_on(fact))
            ]
            order = RewriteOrder(
                at=self._now,
                segments=tuple(new),
                facts=tuple(now for was, now in resting if now != was),
                facts_revision=revision,
            )
            try:
                await self._rewritten(order)
            except StaleFacts:
                continue
            return
        self._found.raced += len(new)

    async def facts(self) -> None:
        """Facts and digests, written only while nobody else decides upon them."""
        for fact in self._facts_before:
            self._name(SESSION_NAMES, fact.session)
            part = masked_fact(fact, self._masks, {})
            if part.changed:
                place = DIGESTS if fact.type == "digest" else FACTS
                self._found.count(place, part.kinds, fact.session)
                self._found.facts.append(fact.id)
        self._found.step(FACTS, len(self._facts_before), len(self._facts_before))
        races = 0
        while self._apply and races < _MOST_RACES:
            try:
                if not await self._some_facts_written():
                    return
            except StaleFacts:
                races += 1
        if self._apply:
            self._found.raced += 1
            self._found.cannot["facts: others were written all the time; redact once more"] = None

    async def _some_facts_written(self) -> bool:
        """Write some of those that have to read otherwise; False when there are none."""
        revision = await self._store.facts_revision()
        found = await self._store.facts(superseded=True)
        new = [masked_fact(fact, self._masks, {}).value for fact in found]
        left = [one for one, was in zip(new, found, strict=True) if one != was][:_FACTS_AT_ONCE]
        if left:
            await self._rewritten(
                RewriteOrder(at=self._now, facts=tuple(left), facts_revision=revision)
            )
        return bool(left)

    async def room(self, room: Room) -> None:
        """Everything that a room holds."""
        after: str | None = None
        while page := await self._store.held(room, after=after, limit=_PAGE_BODIES):
            after = page[-1].id
            order: list[NewBody] = []
            for one in page:
                self._name(SESSION_NAMES, one.session)
                try:
                    part = masked_body(room, one.body, self._masks)
                except FormatError:
                    self._found.unread[PLACES[room]] += 1
                    continue
                if room != "states" and self._masks.left_in(part.value):
                    self._found.name(RECORD_NAMES, f"{room}:{one.id}")
                if part.changed:
                    self._found.count(PLACES[room], part.kinds, one.session)
                    order.append(NewBody(room=room, id=one.id, was=one.body, body=part.value))
            if self._apply and order:
                await self._rewritten(RewriteOrder(at=self._now, bodies=tuple(order)))
            self._found.step(PLACES[room], len(page), None)

    async def job_keys(self) -> None:
        """Names that jobs are told apart by."""
        for job in await self._store.jobs(limit=_MOST_JOBS):
            self._name(JOB_KEYS, job.key)

    async def _rewritten(self, order: RewriteOrder) -> None:
        done = await self._store.rewrite(order)
        self._found.raced += len(order.bodies) - done.bodies
        self._found.cannot.update(dict.fromkeys(done.cannot))

    def _name(self, what: str, name: str | None) -> None:
        if name and (what, name) not in self._named:
            self._named.add((what, name))
            if self._masks.name(name):
                self._found.name(what, name)
