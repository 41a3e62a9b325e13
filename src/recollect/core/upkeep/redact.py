"""Redact: mask the secrets that stand in what is stored already, in place.

Owns the walk: what waits in spools first, so that it is stored without them; then segments with
their index and vectors and, in the same write, the spans of facts that rest on them; then other
facts and digests, then ledger, jobs, compactions and session states. Must never tell a secret, nor
a part of one. Always holds: ids, places and times stay, and what is not changed comes back as the
very object; a second run finds nothing; without `apply` nothing is changed. A crash in between
leaves what is not done yet as it was: redacting again finishes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeAlias, TypeVar

from recollect.core.formats.json_text import encode
from recollect.core.formats.openclaw_files import split_foreign
from recollect.core.formats.stored_records import read_batch, read_record, with_texts, write_batch
from recollect.core.ports import Spool, Store
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.ingest import index
from recollect.core.upkeep.certificates import (
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
    RedactionResult,
)
from recollect.core.upkeep.masks import (
    COPIES_KIND,
    REMAINS_KIND,
    Copies,
    MaskedBytes,
    MaskedText,
    Masks,
    copies_of,
    remains_of,
    strings_in,
)
from recollect.core.upkeep.matching import damaged_parts, every_body, every_segment
from recollect.core.values.batch import EMBED_JOB, Batch, LedgerPiece, NewJob, SessionWrite
from recollect.core.values.fact import Fact, rests_on
from recollect.core.values.segment import NewSegment, Segment, SegmentId, StoredSegment
from recollect.core.values.upkeep import BODY_KINDS, BodyKind, NewBody, RewriteOrder, StoredBody
from recollect.errors import FormatError, StaleFacts

__all__ = ["CANNOT", "PLACES", "Progress", "RedactionResult", "redact"]


T = TypeVar("T")
Moved: TypeAlias = Mapping[SegmentId, MaskedText]
"""The segments whose texts changed, each with how its spans moved."""

_IDS: Final[Mapping[BodyKind, frozenset[str]]] = {
    "compactions": frozenset({"source", "key", "first_kept", "kind", "standing", "trigger"}),
    "jobs": frozenset({"id", "ids", "key", "session", "segment", "segments", "embedder"}),
}
"""Keys whose values name things: an own pattern may not change them."""

_PAGE_SEGMENTS: Final = 200
_PAGE_BODIES: Final = 50
_FACTS_AT_ONCE: Final = 200
_MOST_RACES: Final = 5
_MOST_JOBS: Final = 100_000
_DERIVED: Final[tuple[BodyKind, ...]] = ("compactions", "states")
"""Rooms of what is made from messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked(Generic[T]):
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


def masked_segment(segment: Segment, masks: Masks) -> Masked[Segment]:
    """A segment whose text and imported line hold no secret."""
    masked = masks.text(segment.text)
    tool = masks.text(segment.tool or "")
    line = masks.json((segment.foreign or "").encode("utf-8", "surrogateescape"))
    kinds = Counter(masked.kinds) + Counter(tool.kinds)
    if not kinds and not line.kinds:
        return Masked(value=segment)
    left = replace(
        segment,
        text=masked.text,
        tool=segment.tool and tool.text,
        foreign=segment.foreign and line.body.decode("utf-8", "surrogateescape"),
    )
    return Masked(value=left, kinds=kinds or line.kinds, text=masked)


def masked_fact(fact: Fact, masks: Masks, moved: Moved) -> Masked[Fact]:
    """A fact that holds no secret, and whose spans stand where their texts do now."""
    content, context = masks.text(fact.content), masks.text(fact.context)
    subject, attribute = masks.text(fact.subject), masks.text(fact.attribute)
    number, line = _imported(fact.foreign or "", masks)
    kinds: Counter[str] = Counter()
    for masked in (content, context, subject, attribute):
        kinds.update(masked.kinds)
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
        replace(evidence_span, start=span[0], end=span[1])
        for evidence_span in fact.evidence
        for span in [_span(moved, evidence_span.segment, evidence_span.start, evidence_span.end)]
    )
    if evidence != fact.evidence:
        left = replace(left, evidence=evidence)
    return Masked(value=left, kinds=kinds or line.kinds)


def _imported(foreign: str, masks: Masks) -> tuple[str, MaskedBytes]:
    """The line that a fact was imported as: its place in the file with its tab, and the rest."""
    number, line = split_foreign(foreign)
    return number, masks.json(line.encode("utf-8", "surrogateescape"))


def _readable(stored: StoredBody) -> bytes:
    """The bytes of a body; FormatError for one that is torn."""
    if stored.torn:
        raise FormatError("a body is torn")
    return stored.body


def masked_body(kind: BodyKind, body: bytes, masks: Masks) -> Masked[bytes]:
    """A body without secrets; FormatError for a state that cannot be read."""
    if kind == "states":
        return masked_state(body, masks)
    if kind == "job reasons":
        masked = masks.text(body.decode("utf-8", "surrogatepass"))
        return Masked(value=masked.text.encode("utf-8", "surrogatepass"), kinds=masked.kinds)
    done = masks.json(body, leave=_IDS.get(kind, frozenset()))
    return Masked(value=done.body, kinds=done.kinds)


def texts_in(kind: BodyKind, body: bytes) -> list[str]:
    """What a summary, a receipt or a session's state says; nothing of what cannot be read."""
    texts: list[str] = []

    def read(text: str) -> str:
        texts.append(text)
        return text

    try:
        if kind == "states":
            with_texts(body, read)
        else:
            result = read_record(body).result
            texts.append(result.summary)
            for finding in result.receipt.findings if result.receipt is not None else ():
                texts += (finding.probe.text, finding.probe.sentence)
            texts += strings_in(encode(dict(result.details)))
    except FormatError:
        return []
    return texts


def masked_state(state: bytes, masks: Masks) -> Masked[bytes]:
    """A session's state without secrets."""
    kinds: Counter[str] = Counter()

    def change(text: str) -> str:
        done = masks.text(text)
        kinds.update(done.kinds)
        return done.text

    return Masked(value=with_texts(state, change), kinds=kinds)


def masked_batch(batch: Batch, masks: Masks) -> Masked[Batch]:
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
            replace(
                vectors,
                vectors=tuple(vector for vector in vectors.vectors if vector.segment not in moved),
            )
            for vectors in batch.vectors
        ),
        facts=facts,
        fact_vectors=tuple(
            replace(
                vectors,
                vectors=tuple(vector for vector in vectors.vectors if vector.fact not in changed),
            )
            for vectors in batch.fact_vectors
        ),
    )
    left = _bodies_of(left, masks, tally)
    return Masked(value=left if tally.kinds else batch, kinds=tally.kinds)


def _bodies_of(batch: Batch, masks: Masks, tally: _Tally) -> Batch:
    """What a batch holds beside segments and facts, without secrets."""
    return replace(
        batch,
        jobs=tuple(
            replace(job, payload=tally(masked_body("jobs", job.payload, masks)))
            for job in batch.jobs
        ),
        pieces=tuple(
            _piece(piece, tally(masked_body("pieces", piece.body, masks))) for piece in batch.pieces
        ),
        compactions=tuple(
            replace(compaction, body=tally(masked_body("compactions", compaction.body, masks)))
            for compaction in batch.compactions
        ),
        session=None if batch.session is None else _session(batch.session, masks, tally),
    )


class _Tally:
    """Counts what was masked in parts."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def __call__(self, part: Masked[T]) -> T:
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


def _span(moved: Moved, segment: SegmentId, start: int, end: int) -> tuple[int, int]:
    masked = moved.get(segment)
    return (start, end) if masked is None else masked.moved(start, end)


async def redact(
    store: Store,
    spools: Sequence[Spool],
    masks: Masks,
    *,
    now: float,
    apply: bool,
    progress: Progress | None = None,
) -> RedactionResult:
    """Mask what is stored, or with `apply` false say what would be."""
    findings = Findings(applied=apply, progress=progress)
    walk = _RedactionWalk(store, masks, findings, now=now, apply=apply)
    embedders = (await store.stats()).vectors
    await walk.copies()
    for spool in spools:
        await spool.rewrite(walk.record)
    findings.cannot.update(dict.fromkeys(damaged_parts(spools)))
    await walk.segments()
    await walk.remains()
    await walk.facts()
    for kind in BODY_KINDS:
        await walk.bodies(kind)
    await walk.job_keys()
    if apply and findings.changed:
        jobs = tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in embedders)
        await store.write(Batch(at=now, jobs=jobs))
        # The last one says whether the bytes that were replaced are gone from the store's files.
        findings.cannot.update(dict.fromkeys((await store.rewrite(RewriteOrder(at=now))).cannot))
    return findings.result()


class _RedactionWalk:
    """One pass through a store."""

    def __init__(
        self, store: Store, masks: Masks, findings: Findings, *, now: float, apply: bool
    ) -> None:
        self._store = store
        self._masks = masks
        self._found = findings
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
        async for body in every_body(self._store, _DERIVED):
            for text in texts_in(body.kind, body.body):
                copies.read(body.session or "", text)
        async for segment in every_segment(self._store):
            copies.heard(segment.segment.session, segment.segment.text)
        self._copied = copies.found()
        self._masks = replace(self._masks, copies=copies_of(self._copied))

    def record(self, record: bytes) -> bytes:
        """A spooled record as it may wait."""
        self._found.step(SPOOL, 1, None)
        try:
            part = masked_batch(read_batch(record), self._masks)
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
            for segment in (stored_segment.segment for stored_segment in page):
                self._name(SESSION_NAMES, segment.session)
                self._name(ORIGINS, segment.origin)
            await self._mask_segments(page, self._masks)
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
                await self._mask_segments(page, masks, only=(REMAINS_KIND, COPIES_KIND))
        every = [secret for secrets in self._secrets.values() for secret in secrets]
        self._masks = replace(
            self._masks, remains=remains_of(every), copies=copies_of([*every, *self._copied])
        )
        self._secrets.clear()
        self._copied.clear()

    async def _mask_segments(
        self, page: Sequence[StoredSegment], masks: Masks, only: tuple[str, ...] = ()
    ) -> None:
        """Mask the segments of a page; with `only` those that hold one of these kinds."""
        moved: dict[SegmentId, MaskedText] = {}
        order: list[NewSegment] = []
        for segment in (stored_segment.segment for stored_segment in page):
            part = masked_segment(segment, masks)
            kinds = {kind: count for kind, count in part.kinds.items() if not only or kind in only}
            if part.text is None or not kinds:
                continue
            known = segment.id in self._found.segments
            self._found.count(SEGMENTS, kinds, segment.session, again=known)
            self._found.segments[segment.id] = None
            if not only:
                secrets = self._secrets.setdefault(segment.session, set())
                secrets.update(part.text.masked_in(segment.text))
            moved[segment.id] = part.text
            order.append(await self._indexed(part.value))
        await self._segments_rewritten(order, moved, masks)

    async def _indexed(self, segment: Segment) -> NewSegment:
        """A segment as it is found from now on; what is kept without an index stays so."""
        passages = await self._store.passages(segment.id)
        return NewSegment(segment=segment, passages=index(segment) if passages else ())

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
        facts = await self._store.facts(superseded=True)
        new = [masked_fact(fact, self._masks, {}).value for fact in facts]
        left = [other for other, was in zip(new, facts, strict=True) if other != was][
            :_FACTS_AT_ONCE
        ]
        if left:
            await self._rewritten(
                RewriteOrder(at=self._now, facts=tuple(left), facts_revision=revision)
            )
        return bool(left)

    async def bodies(self, kind: BodyKind) -> None:
        """Every body of a kind."""
        after: str | None = None
        while page := await self._store.held(kind, after=after, limit=_PAGE_BODIES):
            after = page[-1].id
            order: list[NewBody] = []
            for body in page:
                self._name(SESSION_NAMES, body.session)
                try:
                    part = masked_body(kind, _readable(body), self._masks)
                except FormatError:
                    self._found.unread[PLACES[kind]] += 1
                    continue
                if kind != "states" and self._masks.left_in(part.value):
                    self._found.name(RECORD_NAMES, f"{kind}:{body.id}")
                if part.changed:
                    self._found.count(PLACES[kind], part.kinds, body.session)
                    order.append(NewBody(kind=kind, id=body.id, was=body.body, body=part.value))
            if self._apply and order:
                await self._rewritten(RewriteOrder(at=self._now, bodies=tuple(order)))
            self._found.step(PLACES[kind], len(page), None)

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
