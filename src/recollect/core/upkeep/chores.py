"""Maintains the index and the ledger: computes vectors, removes expired turns, indexes messages
again. Jobs contain no content, and repeating one changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Final, Protocol

from recollect.core.boundary import Failure, attempted
from recollect.core.ports import Archive, Clock, Embedder, Store, read_pages
from recollect.core.turn.ingest import index
from recollect.core.upkeep.jobs import GiveUp
from recollect.core.values.batch import EMBED_JOB, Batch, Lease, NewJob
from recollect.core.values.fact import FactVector, FactVectorSet
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.segment import (
    NewSegment,
    Vector,
    VectorSet,
    round_vector,
    vector_problem,
)
from recollect.core.values.upkeep import Stats
from recollect.system.telemetry import measure_action

IDLE_KEY: Final = "idle"
LOOK_SECONDS: Final = 30.0
"""Not measured; bounds how often turns ask the store for passages without a vector."""
PASSAGES: Final = 256
"""Not measured; bounds how long one job holds its lease."""
_DAY_SECONDS: Final = 86_400.0
"""Length of a day."""
_PAGE_SEGMENTS: Final = 200
"""Not measured; bounds memory, and how long one write locks the store."""
INLINE_KINDS: Final = ("hash", "static")
INLINE_PASSAGES: Final = 64
"""Up to so many new passages get their vectors before they are written, else in a job later."""
INLINE_SECONDS: Final = 0.5
"""Time limit of computing vectors before a write, so that a slow embedder does not delay it."""


async def expire(
    lease: Lease, *, store: Store, clock: Clock, retention_days: float | None
) -> Batch:
    """Remove old turns from the ledger (`ledger.retention_days`). Queue a job for the time when the
    next turns expire."""
    del lease
    now = clock.now()
    if retention_days is None:
        return Batch(at=now)
    seconds = retention_days * _DAY_SECONDS
    await store.expire(before=now - seconds)
    if not (await store.stats()).turns:
        return Batch(at=now)
    return Batch(at=now, jobs=(NewJob(kind="expire", key=IDLE_KEY, run_at=now + seconds),))


async def embed(
    lease: Lease,
    *,
    store: Archive,
    embedders: Sequence[Embedder],
    clock: Clock,
    passages: int = PASSAGES,
) -> Batch:
    """Compute the vectors of the next passages or, if none needs one, of facts. Queue a job for
    further passages. The job's key is the embedder's name."""
    embedder = next((candidate for candidate in embedders if candidate.name == lease.key), None)
    if embedder is None:
        raise GiveUp("the job is for an embedder that this worker does not have")
    batch, has_more = await embed_next(store, embedder, clock, passages=passages)
    if not has_more:
        batch, has_more = await _with_facts(batch, store, embedder, limit=passages)
    if not has_more:
        return batch
    return replace(batch, jobs=(NewJob(kind=EMBED_JOB, key=lease.key, run_at=batch.at),))


async def embed_next(
    store: Archive, embedder: Embedder, clock: Clock, *, passages: int = PASSAGES
) -> tuple[Batch, bool]:
    """Compute vectors of the next passages that have none. Also return whether some remain."""
    waiting = await store.unembedded(embedder.name, limit=passages + 1)
    next_passages = waiting[:passages]
    values = await _vectors(embedder, [passage.text for passage in next_passages])
    vectors = tuple(
        Vector(
            segment=passage.segment,
            ordinal=passage.ordinal,
            values=value,
            span=(passage.start, passage.end) if passage.end else None,
        )
        for passage, value in zip(next_passages, values, strict=True)
    )
    vector_set = VectorSet(embedder=embedder.name, dimensions=embedder.dimensions, vectors=vectors)
    return Batch(at=clock.now(), vectors=(vector_set,) if vectors else ()), len(waiting) > passages


async def _with_facts(
    batch: Batch, store: Archive, embedder: Embedder, *, limit: int
) -> tuple[Batch, bool]:
    """Add vectors of the next facts to the batch. Also return whether more facts remain."""
    revision = await store.facts_revision()
    waiting = await store.unembedded_facts(embedder.name, limit=limit + 1)
    if not waiting:
        return batch, False
    values = await _vectors(embedder, [fact_text.text for fact_text in waiting[:limit]])
    vectors = tuple(
        FactVector(fact=fact_text.fact, values=value)
        for fact_text, value in zip(waiting, values, strict=False)
    )
    vector_set = FactVectorSet(
        embedder=embedder.name, dimensions=embedder.dimensions, vectors=vectors
    )
    # a fact whose text has changed must not get the vector of the old text
    return replace(batch, fact_vectors=(vector_set,), facts_revision=revision), len(waiting) > limit


async def _vectors(embedder: Embedder, texts: list[str]) -> Sequence[bytes]:
    """Return vectors rounded to 16 bits. Raise for invalid vectors, which would never be
    replaced."""
    if not texts:
        return ()
    with measure_action("embedder", embedder.name) as measure:
        measure.note(texts=len(texts))
        values = await embedder.embed(texts)
    if wrong := vector_problem(values, wanted=len(texts), dimensions=embedder.dimensions):
        raise GiveUp(f"the embedder gave {wrong}")
    return [round_vector(value) for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindexed:
    """Counts of what was indexed again."""

    segments: int = 0
    passages: int = 0


async def reindex(store: Store, progress: Callable[[int, int], None] | None = None) -> Reindexed:
    """Split and tokenize every stored message again. Unchanged passages keep their vectors."""
    total = (await store.stats()).segments
    segments = passages = 0
    async for page in read_pages(store, limit=_PAGE_SEGMENTS):
        passages_by_id = {segment.segment.id: index(segment.segment) for segment in page}
        await store.replace_passages(passages_by_id)
        passages += sum(map(len, passages_by_id.values()))
        segments += len(page)
        if progress is not None:
            progress(segments, total)
    return Reindexed(segments=segments, passages=passages)


class OpenableArchive(Protocol):
    """An archive that opens a space's store, and holds batches while the store is down."""

    async def store(self) -> Store: ...

    async def write(self, batch: Batch) -> object: ...


class VectorUpkeep:
    """Queues jobs for passages without vectors of the configured embedders, in the background."""

    def __init__(
        self,
        archive: OpenableArchive,
        embedders: Sequence[Embedder],
        clock: Clock,
        *,
        on_queued: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_queued` is called after jobs were queued."""
        self._archive = archive
        self._embedders = tuple(embedders)
        self._clock = clock
        self._on_queued = on_queued
        self._looked_at = time.monotonic()
        self._has_looked = False
        self._task: asyncio.Task[None] | None = None
        self.notes: tuple[Reason, ...] = ()

    def look_soon(self, *, now: bool = True) -> None:
        """Start `look` in the background, unless it was started recently. Without `now`, the first
        check is delayed too."""
        looked_at = time.monotonic()
        if looked_at - self._looked_at < LOOK_SECONDS and (self._has_looked or not now):
            return
        self._looked_at, self._has_looked = looked_at, True
        self._task = asyncio.get_running_loop().create_task(self.look_safely(), context=Context())

    async def look_safely(self) -> None:
        """Do what `look` does. Note a failure for the next turn's report."""
        outcome = await attempted(self.look())
        if isinstance(outcome, Failure):
            self.notes = (Reason(Cause.VECTORS_UNWATCHED, error=outcome.said),)

    async def rest(self, seconds: float) -> None:
        """Wait up to `seconds` for a check that is running."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({self._task}, timeout=seconds)

    async def look(self) -> None:
        """Queue a job for each embedder whose vectors are incomplete."""
        store = await self._archive.store()
        waiting = [
            embedder
            for embedder in self._embedders
            if await store.unembedded(embedder.name, limit=1)
        ]
        if not waiting:  # usually all vectors exist, so do not count the whole space first
            self.notes = ()
            return
        stats = await store.stats()
        self.notes = tuple(_progress(embedder, stats) for embedder in waiting)
        now = self._clock.now()
        jobs = tuple(NewJob(kind=EMBED_JOB, key=embedder.name, run_at=now) for embedder in waiting)
        await self._archive.write(Batch(at=now, jobs=jobs))
        self._on_queued()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop() and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)


def _progress(embedder: Embedder, stats: Stats) -> Reason:
    vector_count = stats.vectors.get(embedder.name, 0)
    return Reason(
        Cause.VECTORS_MISSING, kind=embedder.kind, made=vector_count, passages=stats.passages
    )


async def embed_now(
    segments: Sequence[NewSegment], embedders: Sequence[Embedder], late: set[str]
) -> tuple[VectorSet, ...]:
    """Embed new passages with fast embedders, to write their vectors in the same batch. A job
    embeds other passages. An embedder that fails is added to `late` and not called here again."""
    passages = [
        (new_segment.segment, ordinal, passage)
        for new_segment in segments
        for ordinal, passage in enumerate(new_segment.passages)
        if passage.embedded
    ]
    if not 0 < len(passages) <= INLINE_PASSAGES:
        return ()
    texts = [segment.text[passage.start : passage.end] for segment, _, passage in passages]
    vector_sets: list[VectorSet] = []
    for embedder in embedders:
        if embedder.kind not in INLINE_KINDS or not embedder.ready or embedder.name in late:
            continue
        with measure_action("embedder", embedder.name) as measure:
            measure.note(texts=len(texts))
            values = await attempted(asyncio.wait_for(embedder.embed(texts), INLINE_SECONDS))
            if isinstance(values, Failure):
                measure.set_outcome("failed", values.error.__name__)
        dimensions = embedder.dimensions
        if isinstance(values, Failure) or vector_problem(
            values, wanted=len(texts), dimensions=dimensions
        ):
            late.add(embedder.name)
            continue
        vectors = tuple(
            Vector(
                segment=segment.id,
                ordinal=ordinal,
                values=round_vector(value),
                span=(passage.start, passage.end),
            )
            for (segment, ordinal, passage), value in zip(passages, values, strict=True)
        )
        vector_sets.append(
            VectorSet(embedder=embedder.name, dimensions=dimensions, vectors=vectors)
        )
    return tuple(vector_sets)
