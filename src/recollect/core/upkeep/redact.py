"""Redacts: masks secrets in stored content. Spools come first, then messages with the facts that
they support, then all other records. Ids, order and times do not change. A second run finds
nothing. After a crash, repeat `redact` to complete it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from recollect.core.formats.openclaw_files import split_foreign
from recollect.core.formats.stored_records import read_batch, with_texts, write_batch
from recollect.core.ports import Spool, Store, read_bodies, read_pages
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.ingest import index
from recollect.core.upkeep.certificates import (
    CANNOT,
    FACTS,
    JOB_KEYS,
    ORIGINS,
    PLACES,
    RECORD_NAMES,
    SEGMENTS,
    SESSION_NAMES,
    SPOOL,
    Progress,
    RedactionResult,
)
from recollect.core.upkeep.masks import COPIES_KIND, REMAINS_KIND, MaskedText, Masks, copies_of
from recollect.core.upkeep.matching import describe_damage, remove_vectors
from recollect.core.upkeep.searching_thread import ItemT, ResultT, map_in_thread, select_in_thread
from recollect.core.values.batch import EMBED_JOB, Batch, LedgerPiece, NewJob, SessionWrite
from recollect.core.values.fact import Fact, rests_on
from recollect.core.values.segment import NewSegment, Segment, SegmentId, StoredSegment
from recollect.core.values.upkeep import BODY_KINDS, BodyKind, NewBody, RewriteOrder, StoredBody
from recollect.errors import FormatError, StaleFacts

__all__ = ["CANNOT", "PLACES", "Progress", "RedactionResult", "redact"]


Moved: TypeAlias = Mapping[SegmentId, MaskedText]

_IDS: Final[Mapping[BodyKind, frozenset[str]]] = {
    "compactions": frozenset({"source", "key", "first_kept", "kind", "standing", "trigger"}),
    "jobs": frozenset({"id", "ids", "key", "session", "segment", "segments", "embedder"}),
}

_PAGE_SEGMENTS: Final = 200
_FACTS_AT_ONCE: Final = 200
_MOST_RACES: Final = 5
_MOST_JOBS: Final = 100_000


def mask_segment(
    segment: Segment, masks: Masks, kinds: Counter[str]
) -> tuple[Segment, MaskedText | None]:
    masked = masks.text(segment.text)
    tool = masks.text(segment.tool or "")
    line = masks.json((segment.foreign or "").encode("utf-8", "surrogateescape"))
    found = Counter(masked.kinds) + Counter(tool.kinds) or line.kinds
    if not found:
        return segment, None
    kinds.update(found)
    left = replace(
        segment,
        text=masked.text,
        tool=segment.tool and tool.text,
        foreign=segment.foreign and line.body.decode("utf-8", "surrogateescape"),
    )
    return left, masked


def mask_fact(fact: Fact, masks: Masks, moved: Moved, kinds: Counter[str]) -> Fact:
    """Mask a fact, and adapt its evidence to the masked texts."""
    texts = (fact.content, fact.context, fact.subject, fact.attribute)
    content, context, subject, attribute = (masks.text(text) for text in texts)
    number, imported = split_foreign(fact.foreign or "")
    line = masks.json(imported.encode("utf-8", "surrogateescape"))
    found: Counter[str] = Counter()
    for masked in (content, context, subject, attribute):
        found.update(masked.kinds)
    left = fact
    if found or line.kinds:
        kinds.update(found or line.kinds)
        left = replace(
            fact,
            content=content.text,
            context=context.text,
            subject=subject.text,
            attribute=attribute.text,
            words=tuple(tokenize(content.text)),
            foreign=fact.foreign and number + line.body.decode("utf-8", "surrogateescape"),
        )
    evidence = []
    for span in fact.evidence:
        text = moved.get(span.segment)
        start, end = (span.start, span.end) if text is None else text.moved(span.start, span.end)
        evidence.append(replace(span, start=start, end=end))
    return left if tuple(evidence) == fact.evidence else replace(left, evidence=tuple(evidence))


def mask_body(kind: BodyKind, body: bytes, masks: Masks, kinds: Counter[str]) -> bytes:
    """Mask a stored record. Raise FormatError if a session's state cannot be read."""

    def change(text: str) -> str:
        done = masks.text(text)
        kinds.update(done.kinds)
        return done.text

    if kind == "states":
        return with_texts(body, change)
    if kind == "job reasons":
        return change(body.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")
    done = masks.json(body, leave=_IDS.get(kind, frozenset()))
    kinds.update(done.kinds)
    return done.body


def mask_batch(batch: Batch, masks: Masks, kinds: Counter[str]) -> Batch:
    """Mask a spooled batch. Vectors of changed texts are removed and computed again later."""
    moved: dict[SegmentId, MaskedText] = {}
    segments: list[NewSegment] = []
    for new in batch.segments:
        segment, text = mask_segment(new.segment, masks, kinds)
        if text is not None:
            moved[segment.id] = text
            # a message without passages is not indexed now
            new = NewSegment(segment=segment, passages=index(segment) if new.passages else ())
        segments.append(new)
    facts = [mask_fact(fact, masks, moved, kinds) for fact in batch.facts]
    changed = {new.id for new, old in zip(facts, batch.facts, strict=True) if new != old}

    def body(kind: BodyKind, raw: bytes) -> bytes:
        return mask_body(kind, raw, masks, kinds)

    left = replace(
        remove_vectors(batch, moved, changed),
        segments=tuple(segments),
        facts=tuple(facts),
        jobs=tuple(replace(job, payload=body("jobs", job.payload)) for job in batch.jobs),
        pieces=tuple(_piece(piece, body("pieces", piece.body)) for piece in batch.pieces),
        compactions=tuple(
            replace(one, body=body("compactions", one.body)) for one in batch.compactions
        ),
        session=None if batch.session is None else _session(batch.session, masks, kinds),
    )
    return left if kinds else batch


def _piece(piece: LedgerPiece, body: bytes) -> LedgerPiece:
    return piece if body == piece.body else replace(piece, body=body, exact=False)


def _session(write: SessionWrite, masks: Masks, kinds: Counter[str]) -> SessionWrite | None:
    try:
        return replace(write, state=mask_body("states", write.state, masks, kinds))
    except FormatError:
        return None  # Do not write an unreadable session state: the stored state remains.


async def _masked(
    mask: Callable[[ItemT, Counter[str]], ResultT], items: Sequence[ItemT]
) -> list[tuple[ItemT, ResultT, Counter[str]]]:
    """Mask each item in the thread. Return it with the result and the kinds of its masks."""

    def mask_item(item: ItemT) -> tuple[ItemT, ResultT, Counter[str]]:
        kinds: Counter[str] = Counter()
        return item, mask(item, kinds), kinds

    return await map_in_thread(mask_item, items)


async def redact(
    store: Store,
    spools: Sequence[Spool],
    masks: Masks,
    *,
    now: float,
    apply: bool,
    progress: Progress | None = None,
) -> RedactionResult:
    """Mask stored content. Without `apply`, only report what would be masked."""
    walk = _RedactionWalk(store, masks, now=now, apply=apply, progress=progress)
    embedders = (await store.stats()).vectors
    for spool in spools:
        await spool.rewrite(walk.record)
    walk.cannot.update(dict.fromkeys(describe_damage(spools)))
    await walk.segments()
    await walk.remains()
    await walk.facts()
    for kind in BODY_KINDS:
        await walk.bodies(kind)
    await walk.check_names(JOB_KEYS, [job.key for job in await store.jobs(limit=_MOST_JOBS)])
    if apply and walk.found.changed:
        jobs = tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in embedders)
        await store.write(Batch(at=now, jobs=jobs))
        # The last step also reports whether the files still contain replaced bytes.
        walk.cannot.update(dict.fromkeys((await store.rewrite(RewriteOrder(at=now))).cannot))
    return walk.result()


class _RedactionWalk:
    def __init__(
        self, store: Store, masks: Masks, *, now: float, apply: bool, progress: Progress | None
    ) -> None:
        self.found = RedactionResult(applied=apply)
        self.cannot: dict[str, None] = {}
        self._progress = progress
        self._looked_at: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._raced = 0
        self._store = store
        self._masks = masks
        self._now = now
        self._apply = apply
        self._facts_before: tuple[Fact, ...] = ()
        self._masked: set[SegmentId] = set()
        self._named: set[tuple[str, str]] = set()
        self._names: dict[str, set[str]] = {}
        self._secrets: dict[str, set[str]] = {}

    def record(self, record: bytes) -> bytes:
        self._step(SPOOL, 1, None)
        kinds: Counter[str] = Counter()
        try:
            batch = mask_batch(read_batch(record), self._masks, kinds)
        except FormatError:
            self._unread[SPOOL] += 1
            return record
        if not kinds:
            return record
        self.found.count(SPOOL, kinds)
        return write_batch(batch) if self._apply else record

    async def segments(self) -> None:
        """Mask messages, and the facts that they support. Changed messages are indexed again."""
        total = (await self._store.stats()).segments
        self._facts_before = await self._store.facts(superseded=True)
        async for page in read_pages(self._store, limit=_PAGE_SEGMENTS):
            await self.check_names(SESSION_NAMES, [one.segment.session for one in page])
            await self.check_names(ORIGINS, [one.segment.origin for one in page])
            await self._mask_segments(page, self._masks)
            self._step(SEGMENTS, len(page), total)

    async def remains(self) -> None:
        """Mask incomplete copies of the secrets that `segments` found in the same session."""
        for session, secrets in self._secrets.items():
            masks = replace(self._masks, copies=await asyncio.to_thread(copies_of, secrets))
            if not masks.copies:
                continue
            async for page in read_pages(self._store, session=session, limit=_PAGE_SEGMENTS):
                await self._mask_segments(page, masks, only=(REMAINS_KIND, COPIES_KIND))
        every = {secret for secrets in self._secrets.values() for secret in secrets}
        self._masks = replace(self._masks, copies=await asyncio.to_thread(copies_of, every))
        self._secrets.clear()

    async def _mask_segments(
        self, page: Sequence[StoredSegment], masks: Masks, only: tuple[str, ...] = ()
    ) -> None:
        moved: dict[SegmentId, MaskedText] = {}
        order: list[NewSegment] = []
        segments = [stored_segment.segment for stored_segment in page]
        masked = await _masked(lambda one, kinds: mask_segment(one, masks, kinds), segments)
        for segment, (new, text), every in masked:
            kinds = {kind: count for kind, count in every.items() if not only or kind in only}
            if text is None or not kinds:
                continue
            self.found.count(SEGMENTS, kinds, segment.session, again=segment.id in self._masked)
            self._masked.add(segment.id)
            if not only:
                secrets = self._secrets.setdefault(segment.session, set())
                secrets.update(text.secrets_masked_in(segment.text))
            if not self._apply:
                continue
            moved[segment.id] = text
            # a message without passages is not indexed now
            indexed = await self._store.passages(segment.id)
            passages = await asyncio.to_thread(index, new) if indexed else ()
            order.append(NewSegment(segment=new, passages=passages))
        await self._rewrite_segments(order, moved, masks)

    async def _rewrite_segments(
        self, new: Sequence[NewSegment], moved: dict[SegmentId, MaskedText], masks: Masks
    ) -> None:
        if not new:
            return
        for _ in range(_MOST_RACES):
            revision = await self._store.facts_revision()
            resting = [
                (fact, mask_fact(fact, masks, moved, Counter()))
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
                await self._rewrite(order)
            except StaleFacts:
                continue
            return
        self._raced += len(new)

    async def facts(self) -> None:
        """Mask facts. If another process writes facts meanwhile, nothing is written."""
        await self.check_names(SESSION_NAMES, [fact.session for fact in self._facts_before])
        for fact, _, kinds in await self._masked_facts(self._facts_before):
            if kinds:
                self.found.count(FACTS, kinds, fact.session)
        self._step(FACTS, len(self._facts_before), len(self._facts_before))
        races = 0
        while self._apply and races < _MOST_RACES:
            try:
                if not await self._write_some_facts():
                    return
            except StaleFacts:
                races += 1
        if self._apply:
            self._raced += 1
            self.cannot["facts: other facts were written at the same time; redact again"] = None

    async def _write_some_facts(self) -> bool:
        revision = await self._store.facts_revision()
        facts = await self._masked_facts(await self._store.facts(superseded=True))
        left = [new for fact, new, _ in facts if new != fact][:_FACTS_AT_ONCE]
        if left:
            await self._rewrite(
                RewriteOrder(at=self._now, facts=tuple(left), facts_revision=revision)
            )
        return bool(left)

    async def _masked_facts(self, facts: Sequence[Fact]) -> list[tuple[Fact, Fact, Counter[str]]]:
        return await _masked(lambda one, kinds: mask_fact(one, self._masks, {}, kinds), facts)

    async def bodies(self, kind: BodyKind) -> None:
        def mask(body: StoredBody, kinds: Counter[str]) -> tuple[bytes, bool]:
            try:
                left = b"" if body.torn else mask_body(kind, body.body, self._masks, kinds)
            except FormatError:
                left = b""
            return left, kind != "states" and self._masks.left_in(left)

        async for page in read_bodies(self._store, kind):
            order: list[NewBody] = []
            await self.check_names(SESSION_NAMES, [body.session for body in page])
            for body, (left, is_name), kinds in await _masked(mask, page):
                if not left:
                    self._unread[PLACES[kind]] += bool(body.torn or body.body)
                    continue
                if is_name:
                    self._keep_name(RECORD_NAMES, f"{kind}:{body.id}")
                if kinds:
                    self.found.count(PLACES[kind], kinds, body.session)
                    order.append(NewBody(kind=kind, id=body.id, was=body.body, body=left))
            if self._apply and order:
                await self._rewrite(RewriteOrder(at=self._now, bodies=tuple(order)))
            self._step(PLACES[kind], len(page), None)

    async def _rewrite(self, order: RewriteOrder) -> None:
        done = await self._store.rewrite(order)
        self._raced += len(order.bodies) - done.bodies
        self.cannot.update(dict.fromkeys(done.cannot))

    async def check_names(self, what: str, names: Iterable[str | None]) -> None:
        new = [name for name in dict.fromkeys(names) if name and (what, name) not in self._named]
        self._named.update((what, name) for name in new)
        for name in await select_in_thread(self._masks.name, new):
            self._keep_name(what, name)

    def _keep_name(self, what: str, name: str) -> None:
        self._names.setdefault(what, set()).add(name)

    def _step(self, place: str, count: int, total: int | None) -> None:
        self._looked_at[place] += count
        if self._progress is not None:
            self._progress(place, self._looked_at[place], total)

    def result(self) -> RedactionResult:
        lines = [
            f"{count:,} {place} that could not be read" for place, count in self._unread.items()
        ]
        if self._raced:
            lines.append(f"{self._raced:,} that changed in the meantime: redact again")
        lines += [
            f"{len(names):,} {what} that contain text to mask: they connect records and stay; "
            "forget the records that they belong to"
            for what, names in self._names.items()
        ]
        self.found.left = self._raced + sum(map(len, self._names.values()))
        self.found.unread = sum(self._unread.values())
        self.found.cannot = [*lines, *self.cannot, *(CANNOT if self._apply else ())]
        return self.found
