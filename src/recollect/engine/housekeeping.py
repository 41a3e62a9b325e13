"""The jobs that this version knows, and those that an engine runs in its own process.

Owns which handler stands behind which kind of job. What the jobs do is in `memory`, or in the
store where it looks after its own index; here they are given the store and the settings. Always
holds: what reads sessions for facts is imported with the first such job, and in a thread: its
rules are many patterns, which cost more to compile than all the rest of an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from recollect.config import Settings
from recollect.engine.archive import DurableArchive
from recollect.engine.boundary import Failure, Part, attempted
from recollect.engine.clock import SystemClock
from recollect.engine.metering import MeteredModel, Used
from recollect.errors import StoreError
from recollect.memory.embed import embed
from recollect.memory.evict import evict
from recollect.memory.expire import expire
from recollect.memory.jobs import BackgroundJobs, Failed, Handler, JobRunner
from recollect.ports import Clock, Embedder, Model, Store
from recollect.values.batch import Batch
from recollect.values.job import DIGEST_JOB, EMBED_JOB, EXTRACT_JOB, Lease
from recollect.values.model import ModelUse

if TYPE_CHECKING:
    from recollect.engine.facts.extracting import Told

T = TypeVar("T")


@runtime_checkable
class PacksItsIndex(Protocol):
    """A store whose index is put in order in the background, by jobs of the kind "pack"."""

    async def pack(self) -> int:
        """Put it in order; returns how many passages were moved."""
        ...


def handlers_of(
    store: Store,
    settings: Settings,
    clock: Clock,
    embedders: Sequence[Embedder] = (),
    *,
    model: Model | None = None,
    told: Told = lambda _: None,
) -> Mapping[str, Handler]:
    """What to do for each kind of job of this space; `model` reads sessions for facts."""
    names = tuple(one.name for one in embedders)

    def extraction() -> Handler:
        from recollect.engine.facts.extracting import Extraction

        return Extraction(
            store=store,
            settings=settings,
            clock=clock,
            model=model,
            embedders=names,
            max_attempts=settings.jobs.max_attempts,
            told=told,
        ).extract

    def digesting() -> Handler:
        from recollect.engine.facts.digesting import Digesting

        return Digesting(
            store=store, settings=settings, clock=clock, model=model, embedders=names
        ).digest

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
    handlers[EXTRACT_JOB] = _made_when_needed(extraction)
    if model is not None:  # without one they wait for a worker that has it
        handlers[DIGEST_JOB] = _made_when_needed(digesting)
    if embedders:
        handlers[EMBED_JOB] = partial(embed, store=store, embedders=tuple(embedders), clock=clock)
    if isinstance(store, PacksItsIndex):
        handlers["pack"] = partial(_pack, store=store, clock=clock)
    return handlers


def _made_when_needed(make: Callable[[], Handler]) -> Handler:
    """A handler that is made with its first job, in a thread: no turn waits for its imports."""
    made: list[Handler] = []

    async def handle(lease: Lease) -> Batch:
        if not made:
            made.append(await asyncio.to_thread(make))
        return await made[0](lease)

    return handle


def metered(model: Model, store: Store, clock: Clock, used: Used = lambda _: None) -> MeteredModel:
    """The model, with its calls counted in this store."""

    async def record(use: ModelUse, day: str) -> None:
        await store.add_model_use(use, day=day)

    return MeteredModel(model, clock, record, used=used)


def runner_of(
    store: Store,
    settings: Settings,
    clock: Clock | None = None,
    embedders: Sequence[Embedder] = (),
    *,
    model: Model | None = None,
    told: Told = lambda _: None,
    used: Used = lambda _: None,
    heard: Callable[[str, Failed | None], None] = lambda _kind, _failure: None,
) -> JobRunner:
    """A worker for this space; `heard` is told of every job that was done or failed, `used` of
    every call of the model."""
    clock = clock or SystemClock()
    if model is not None:
        model = metered(model, store, clock, used)
    return JobRunner(
        store,
        handlers_of(store, settings, clock, embedders, model=model, told=told),
        clock,
        attempt=attempted,
        lease_seconds=settings.jobs.lease_seconds,
        max_attempts=settings.jobs.max_attempts,
        day_tokens=settings.jobs.day_tokens,
        heard=heard,
    )


def in_process_jobs(
    archive: DurableArchive,
    settings: Settings,
    clock: Clock | None,
    embedders: Sequence[Embedder] = (),
    *,
    model: Model | None = None,
    told: Told = lambda _: None,
    used: Used = lambda _: None,
) -> BackgroundJobs | None:
    """Jobs beside the engine; None where a worker runs them.

    `told` hears what facts were found, `used` what that took of the model.
    """
    if not settings.jobs.in_process:
        return None

    part = Part("jobs")

    def heard(kind: str, failure: Failed | None) -> None:
        if failure is None:
            part.back(whose=kind)
        elif not (isinstance(failure, Failure) and issubclass(failure.error, StoreError)):
            part.away(f"{kind}: {failure.said}", whose=kind)  # the store's trouble is its own

    async def open_runner() -> JobRunner:
        store = await archive.store()
        return runner_of(
            store, settings, clock, embedders, model=model, told=told, used=used, heard=heard
        )

    async def attempt(work: Awaitable[T]) -> T | Failure:
        done = await attempted(work)
        heard("all", done if isinstance(done, Failure) else None)
        return done

    return BackgroundJobs(open_runner, attempt=attempt, trouble=part.trouble)


async def _pack(lease: Lease, *, store: PacksItsIndex, clock: Clock) -> Batch:
    del lease
    await store.pack()
    return Batch(at=clock.now())
