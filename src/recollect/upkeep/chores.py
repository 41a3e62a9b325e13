"""What the jobs that need no model do: embed passages and facts, evict, expire.

Nothing leaves the archive. Jobs hold no content: `embed` asks the store what is missing, and its
vectors are written with the job's completion; the others are one write of the store's own. Doing
any of them again finds nothing to do, so a job that is repeated does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from recollect.ports import Archive, Clock, Embedder, Ledger
from recollect.upkeep.jobs import GiveUp
from recollect.values.batch import EMBED_JOB, Batch, Lease, NewJob
from recollect.values.fact import FactVector, FactVectorSet
from recollect.values.segment import Vector, VectorSet, vector_problem

EVICT_JOB: Final = "evict"
_DAY_SECONDS: Final = 86_400.0


async def evict(
    lease: Lease,
    *,
    store: Archive,
    clock: Clock,
    max_segments: int | None,
    eviction_days: float | None,
) -> Batch:
    """Keep the index at its size; `index.max_segments` and `index.eviction_days`."""
    del lease
    now = clock.now()
    if max_segments is not None or eviction_days is not None:
        before = None if eviction_days is None else now - eviction_days * _DAY_SECONDS
        await store.evict(max_segments=max_segments, said_before=before)
    return Batch(at=now)


EXPIRE_JOB: Final = "expire"
_DAY: Final = 86_400.0


async def expire(
    lease: Lease, *, store: Ledger, clock: Clock, retention_days: float | None
) -> Batch:
    """Keep the ledger to its age; `ledger.retention_days`, None for ever."""
    del lease
    now = clock.now()
    if retention_days is not None:
        await store.expire(before=now - retention_days * _DAY)
    return Batch(at=now)


PASSAGES: Final = 256
"""How many passages one job embeds: a write of some hundred KiB, well within a lease."""


async def embed(
    lease: Lease,
    *,
    store: Archive,
    embedders: Sequence[Embedder],
    clock: Clock,
    passages: int = PASSAGES,
) -> Batch:
    """The vectors of the next passages, and a job for the rest; the job's key is the embedder."""
    embedder = next((one for one in embedders if one.name == lease.key), None)
    if embedder is None:
        raise GiveUp("it is for an embedder that this worker does not have")
    batch, more = await embed_next(store, embedder, clock, passages=passages)
    if not more:
        batch, more = await _with_facts(batch, store, embedder, limit=passages)
    if not more:
        return batch
    return replace(batch, jobs=(NewJob(kind=EMBED_JOB, key=lease.key, run_at=batch.at),))


async def embed_next(
    store: Archive, embedder: Embedder, clock: Clock, *, passages: int = PASSAGES
) -> tuple[Batch, bool]:
    """The vectors of the next passages that wait for one, and whether more wait."""
    found = await store.unembedded(embedder.name, limit=passages + 1)
    now = clock.now()
    if not found:
        return Batch(at=now), False
    chosen = found[:passages]
    values = await embedder.embed([passage.text for passage in chosen])
    # stored, they would stand with the wrong passages, or be taken for made and never mended
    if wrong := vector_problem(values, wanted=len(chosen), dimensions=embedder.dimensions):
        raise GiveUp(f"the embedder gave {wrong}")
    vectors = tuple(
        Vector(
            segment=passage.segment,
            ordinal=passage.ordinal,
            values=value,
            span=(passage.start, passage.end) if passage.end else None,
        )
        for passage, value in zip(chosen, values, strict=True)
    )
    made = VectorSet(embedder=embedder.name, dimensions=embedder.dimensions, vectors=vectors)
    return Batch(at=now, vectors=(made,)), len(found) > passages


async def _with_facts(
    batch: Batch, store: Archive, embedder: Embedder, *, limit: int
) -> tuple[Batch, bool]:
    """The batch with the vectors of the next facts that wait for one, and whether more wait."""
    revision = await store.facts_revision()
    found = await store.unembedded_facts(embedder.name, limit=limit + 1)
    if not found:
        return batch, False
    chosen = found[:limit]
    values = await embedder.embed([one.text for one in chosen])
    if wrong := vector_problem(values, wanted=len(chosen), dimensions=embedder.dimensions):
        raise GiveUp(f"the embedder gave {wrong}")
    vectors = tuple(
        FactVector(fact=one.fact, values=value) for one, value in zip(chosen, values, strict=True)
    )
    made = FactVectorSet(embedder=embedder.name, dimensions=embedder.dimensions, vectors=vectors)
    # a fact whose text is another one by then must not get the vector of what it said
    return replace(batch, fact_vectors=(made,), facts_revision=revision), len(found) > limit
