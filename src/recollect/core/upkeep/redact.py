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


MaskedTexts: TypeAlias = Mapping[SegmentId, MaskedText]

_IDS: Final[Mapping[BodyKind, frozenset[str]]] = {
    "compactions": frozenset({"source", "key", "first_kept", "kind", "standing", "trigger"}),
    "jobs": frozenset({"id", "ids", "key", "session", "segment", "segments", "embedder"}),
}

_PAGE_SEGMENTS: Final = 200
"""Not measured; bounds memory, and how long one write locks the store."""
_FACTS_PER_WRITE: Final = 200
"""Not measured; a turn that changes facts in the meantime makes a write start again."""
_MAX_RACES: Final = 5
"""Not measured; a session that changes faster is reported, and redacted by another run."""
_MAX_JOBS: Final = 100_000
"""Not measured; bounds memory. More jobs than this wait only in a broken space."""


def mask_segment(
    segment: Segment, masks: Masks, kinds: Counter[str]
) -> tuple[Segment, MaskedText | None]:
    masked_text = masks.text(segment.text)
    tool = masks.text(segment.tool or "")
    line = masks.json((segment.foreign or "").encode("utf-8", "surrogateescape"))
    found_kinds = Counter(masked_text.kinds) + Counter(tool.kinds) or line.kinds
    if not found_kinds:
        return segment, None
    kinds.update(found_kinds)
    masked_segment = replace(
        segment,
        text=masked_text.text,
        tool=segment.tool and tool.text,
        foreign=segment.foreign and line.body.decode("utf-8", "surrogateescape"),
    )
    return masked_segment, masked_text


def mask_fact(fact: Fact, masks: Masks, masked_texts: MaskedTexts, kinds: Counter[str]) -> Fact:
    """Mask a fact, and adapt its evidence to the masked texts."""
    texts = (fact.content, fact.context, fact.subject, fact.attribute)
    content, context, subject, attribute = (masks.text(text) for text in texts)
    number, imported_line = split_foreign(fact.foreign or "")
    line = masks.json(imported_line.encode("utf-8", "surrogateescape"))
    found_kinds: Counter[str] = Counter()
    for masked_text in (content, context, subject, attribute):
        found_kinds.update(masked_text.kinds)
    masked_fact = fact
    if found_kinds or line.kinds:
        kinds.update(found_kinds or line.kinds)
        masked_fact = replace(
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
        text = masked_texts.get(span.segment)
        start, end = (
            (span.start, span.end) if text is None else text.move_span(span.start, span.end)
        )
        evidence.append(replace(span, start=start, end=end))
    return (
        masked_fact
        if tuple(evidence) == fact.evidence
        else replace(masked_fact, evidence=tuple(evidence))
    )


def mask_body(kind: BodyKind, body: bytes, masks: Masks, kinds: Counter[str]) -> bytes:
    """Mask a stored record. Raise FormatError if a session's state cannot be read."""

    def change(text: str) -> str:
        masked_text = masks.text(text)
        kinds.update(masked_text.kinds)
        return masked_text.text

    if kind == "states":
        return with_texts(body, change)
    if kind == "job reasons":
        return change(body.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")
    masked_json = masks.json(body, leave=_IDS.get(kind, frozenset()))
    kinds.update(masked_json.kinds)
    return masked_json.body


def mask_batch(batch: Batch, masks: Masks, kinds: Counter[str]) -> Batch:
    """Mask a spooled batch. Vectors of changed texts are removed and computed again later."""
    masked_texts: dict[SegmentId, MaskedText] = {}
    segments: list[NewSegment] = []
    for new_segment in batch.segments:
        segment, text = mask_segment(new_segment.segment, masks, kinds)
        if text is not None:
            masked_texts[segment.id] = text
            # a message without passages is not indexed now
            new_segment = NewSegment(
                segment=segment, passages=index(segment) if new_segment.passages else ()
            )
        segments.append(new_segment)
    facts = [mask_fact(fact, masks, masked_texts, kinds) for fact in batch.facts]
    changed_ids = {
        new_fact.id
        for new_fact, old_fact in zip(facts, batch.facts, strict=True)
        if new_fact != old_fact
    }

    def body(kind: BodyKind, raw: bytes) -> bytes:
        return mask_body(kind, raw, masks, kinds)

    masked_batch = replace(
        remove_vectors(batch, masked_texts, changed_ids),
        segments=tuple(segments),
        facts=tuple(facts),
        jobs=tuple(replace(job, payload=body("jobs", job.payload)) for job in batch.jobs),
        pieces=tuple(_piece(piece, body("pieces", piece.body)) for piece in batch.pieces),
        compactions=tuple(replace(c, body=body("compactions", c.body)) for c in batch.compactions),
        session=None if batch.session is None else _session(batch.session, masks, kinds),
    )
    return masked_batch if kinds else batch


def _piece(piece: LedgerPiece, body: bytes) -> LedgerPiece:
    return piece if body == piece.body else replace(piece, body=body, exact=False)


def _session(write: SessionWrite, masks: Masks, kinds: Counter[str]) -> SessionWrite | None:
    try:
        return replace(write, state=mask_body("states", write.state, masks, kinds))
    except FormatError:
        return None  # Do not write an unreadable session state: the stored state remains.


async def _mask_items(
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
    await walk.check_names(JOB_KEYS, [job.key for job in await store.jobs(limit=_MAX_JOBS)])
    if apply and walk.counts.changed:
        jobs = tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in embedders)
        await store.write(Batch(at=now, jobs=jobs))
        # The last step also reports whether the files still contain replaced bytes.
        walk.cannot.update(dict.fromkeys((await store.rewrite(RewriteOrder(at=now))).cannot))
    return walk.result()


class _RedactionWalk:
    def __init__(
        self, store: Store, masks: Masks, *, now: float, apply: bool, progress: Progress | None
    ) -> None:
        self.counts = RedactionResult(applied=apply)
        self.cannot: dict[str, None] = {}
        self._progress = progress
        self._looked_at: Counter[str] = Counter()
        self._unread_counts: Counter[str] = Counter()
        self._raced = 0
        self._store = store
        self._masks = masks
        self._now = now
        self._apply = apply
        self._facts_before: tuple[Fact, ...] = ()
        self._masked_ids: set[SegmentId] = set()
        self._named: set[tuple[str, str]] = set()
        self._names: dict[str, set[str]] = {}
        self._secrets: dict[str, set[str]] = {}

    def record(self, record: bytes) -> bytes:
        self._step(SPOOL, 1, None)
        kinds: Counter[str] = Counter()
        try:
            batch = mask_batch(read_batch(record), self._masks, kinds)
        except FormatError:
            self._unread_counts[SPOOL] += 1
            return record
        if not kinds:
            return record
        self.counts.count(SPOOL, kinds)
        return write_batch(batch) if self._apply else record

    async def segments(self) -> None:
        """Mask messages, and the facts that they support. Changed messages are indexed again."""
        total = (await self._store.stats()).segments
        self._facts_before = await self._store.facts(superseded=True)
        async for page in read_pages(self._store, limit=_PAGE_SEGMENTS):
            await self.check_names(SESSION_NAMES, [s.segment.session for s in page])
            await self.check_names(ORIGINS, [s.segment.origin for s in page])
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
        all_secrets = {secret for secrets in self._secrets.values() for secret in secrets}
        self._masks = replace(self._masks, copies=await asyncio.to_thread(copies_of, all_secrets))
        self._secrets.clear()

    async def _mask_segments(
        self, page: Sequence[StoredSegment], masks: Masks, only: tuple[str, ...] = ()
    ) -> None:
        masked_texts: dict[SegmentId, MaskedText] = {}
        order: list[NewSegment] = []
        segments = [stored_segment.segment for stored_segment in page]
        masked_segments = await _mask_items(
            lambda segment, kinds: mask_segment(segment, masks, kinds), segments
        )
        for segment, (new_segment, text), all_kinds in masked_segments:
            kinds = {kind: count for kind, count in all_kinds.items() if not only or kind in only}
            if text is None or not kinds:
                continue
            self.counts.count(
                SEGMENTS, kinds, segment.session, is_repeat=segment.id in self._masked_ids
            )
            self._masked_ids.add(segment.id)
            if not only:
                secrets = self._secrets.setdefault(segment.session, set())
                secrets.update(text.secrets_masked_in(segment.text))
            if not self._apply:
                continue
            masked_texts[segment.id] = text
            # a message without passages is not indexed now
            old_passages = await self._store.passages(segment.id)
            passages = await asyncio.to_thread(index, new_segment) if old_passages else ()
            order.append(NewSegment(segment=new_segment, passages=passages))
        await self._rewrite_segments(order, masked_texts, masks)

    async def _rewrite_segments(
        self,
        new_segments: Sequence[NewSegment],
        masked_texts: dict[SegmentId, MaskedText],
        masks: Masks,
    ) -> None:
        if not new_segments:
            return
        for _ in range(_MAX_RACES):
            revision = await self._store.facts_revision()
            resting = [
                (fact, mask_fact(fact, masks, masked_texts, Counter()))
                for fact in await self._store.facts(superseded=True)
                if not masked_texts.keys().isdisjoint(rests_on(fact))
            ]
            order = RewriteOrder(
                at=self._now,
                segments=tuple(new_segments),
                facts=tuple(new_fact for old_fact, new_fact in resting if new_fact != old_fact),
                facts_revision=revision,
            )
            try:
                await self._rewrite(order)
            except StaleFacts:
                continue
            return
        self._raced += len(new_segments)

    async def facts(self) -> None:
        """Mask facts. If another process writes facts meanwhile, nothing is written."""
        await self.check_names(SESSION_NAMES, [fact.session for fact in self._facts_before])
        for fact, _, kinds in await self._mask_facts(self._facts_before):
            if kinds:
                self.counts.count(FACTS, kinds, fact.session)
        self._step(FACTS, len(self._facts_before), len(self._facts_before))
        races = 0
        while self._apply and races < _MAX_RACES:
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
        facts = await self._mask_facts(await self._store.facts(superseded=True))
        changed_facts = [new_fact for fact, new_fact, _ in facts if new_fact != fact][
            :_FACTS_PER_WRITE
        ]
        if changed_facts:
            await self._rewrite(
                RewriteOrder(at=self._now, facts=tuple(changed_facts), facts_revision=revision)
            )
        return bool(changed_facts)

    async def _mask_facts(self, facts: Sequence[Fact]) -> list[tuple[Fact, Fact, Counter[str]]]:
        return await _mask_items(lambda fact, kinds: mask_fact(fact, self._masks, {}, kinds), facts)

    async def bodies(self, kind: BodyKind) -> None:
        def mask(body: StoredBody, kinds: Counter[str]) -> tuple[bytes, bool]:
            try:
                masked_body = b"" if body.torn else mask_body(kind, body.body, self._masks, kinds)
            except FormatError:
                masked_body = b""
            return masked_body, kind != "states" and self._masks.left_in(masked_body)

        async for page in read_bodies(self._store, kind):
            order: list[NewBody] = []
            await self.check_names(SESSION_NAMES, [body.session for body in page])
            for body, (masked_body, is_name), kinds in await _mask_items(mask, page):
                if not masked_body:
                    self._unread_counts[PLACES[kind]] += bool(body.torn or body.body)
                    continue
                if is_name:
                    self._keep_name(RECORD_NAMES, f"{kind}:{body.id}")
                if kinds:
                    self.counts.count(PLACES[kind], kinds, body.session)
                    order.append(NewBody(kind=kind, id=body.id, was=body.body, body=masked_body))
            if self._apply and order:
                await self._rewrite(RewriteOrder(at=self._now, bodies=tuple(order)))
            self._step(PLACES[kind], len(page), None)

    async def _rewrite(self, order: RewriteOrder) -> None:
        result = await self._store.rewrite(order)
        self._raced += len(order.bodies) - result.bodies
        self.cannot.update(dict.fromkeys(result.cannot))

    async def check_names(self, place: str, names: Iterable[str | None]) -> None:
        new_names = [
            name for name in dict.fromkeys(names) if name and (place, name) not in self._named
        ]
        self._named.update((place, name) for name in new_names)
        for name in await select_in_thread(self._masks.name, new_names):
            self._keep_name(place, name)

    def _keep_name(self, place: str, name: str) -> None:
        self._names.setdefault(place, set()).add(name)

    def _step(self, place: str, count: int, total: int | None) -> None:
        self._looked_at[place] += count
        if self._progress is not None:
            self._progress(place, self._looked_at[place], total)

    def result(self) -> RedactionResult:
        lines = [
            f"{count:,} {place} that could not be read"
            for place, count in self._unread_counts.items()
        ]
        if self._raced:
            lines.append(f"{self._raced:,} that changed in the meantime: redact again")
        lines += [
            f"{len(names):,} {place} that contain text to mask: they connect records and stay; "
            "forget the records that they belong to"
            for place, names in self._names.items()
        ]
        self.counts.unmasked = self._raced + sum(map(len, self._names.values()))
        self.counts.unread = sum(self._unread_counts.values())
        self.counts.cannot = [*lines, *self.cannot, *(CANNOT if self._apply else ())]
        return self.counts
