"""The jobs that this version knows, and those that an engine runs in its own process.

Owns which handler stands behind which kind of job. What the jobs do is in `memory`, or in the
store where it looks after its own index; here they are given the store and the settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from recollect.config import Settings
from recollect.engine.archive import DurableArchive
from recollect.engine.boundary import attempted
from recollect.engine.clock import SystemClock
from recollect.memory.embed import embed
from recollect.memory.evict import evict
from recollect.memory.expire import expire
from recollect.memory.jobs import BackgroundJobs, Handler, JobRunner
from recollect.ports import Clock, Embedder, Store
from recollect.values.batch import Batch
from recollect.values.job import EMBED_JOB, Lease


@runtime_checkable
class PacksItsIndex(Protocol):
    """A store whose index is put in order in the background, by jobs of the kind "pack"."""

    async def pack(self) -> int:
        """Put it in order; returns how many passages were moved."""
        ...


def handlers_of(
    store: Store, settings: Settings, clock: Clock, embedders: Sequence[Embedder] = ()
) -> Mapping[str, Handler]:
    """What to do for each kind of job of this space."""
    handlers: dict[str, Handler] = {
        "evict": partial(
            evict,
            store=store,
            clock=clock,
            max_segments=settings.index.max_segments,
            eviction_days=settings.index.eviction_days,
        ),
        "expire": partial(
            expire, store=store, clock=clock, retention_days=settings.ledger.retention_days
        ),
    }
    if embedders:
        handlers[EMBED_JOB] = partial(embed, store=store, embedders=tuple(embedders), clock=clock)
    if isinstance(store, PacksItsIndex):
        handlers["pack"] = partial(_pack, store=store, clock=clock)
    return handlers


def runner_of(
    store: Store,
    settings: Settings,
    clock: Clock | None = None,
    embedders: Sequence[Embedder] = (),
) -> JobRunner:
    """A worker for this space."""
    clock = clock or SystemClock()
    return JobRunner(
        store,
        handlers_of(store, settings, clock, embedders),
        clock,
        attempt=attempted,
        lease_seconds=settings.jobs.lease_seconds,
        max_attempts=settings.jobs.max_attempts,
        day_tokens=settings.jobs.day_tokens,
    )


def in_process_jobs(
    archive: DurableArchive,
    settings: Settings,
    clock: Clock | None,
    embedders: Sequence[Embedder] = (),
) -> BackgroundJobs | None:
    """Jobs beside the engine; None where a worker runs them."""
    if not settings.jobs.in_process:
        return None

    async def open_runner() -> JobRunner:
        return runner_of(await archive.store(), settings, clock, embedders)

    return BackgroundJobs(open_runner, attempt=attempted)


async def _pack(lease: Lease, *, store: PacksItsIndex, clock: Clock) -> Batch:
    del lease
    await store.pack()
    return Batch(at=clock.now())
