"""A real store for jobs, and a clock that a test moves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from recollect.adapters.wiring import open_store
from recollect.core.ports import Store
from recollect.core.upkeep.jobs import Handler, JobRunner, retry_seconds
from recollect.core.values.batch import Batch, Lease, NewJob

NOON = 1_760_011_200.0


class MovedClock:
    """Stands still until a test moves it."""

    def __init__(self, now: float = NOON) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


class Bench:
    """A store with a runner on it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = MovedClock()

    async def enqueue(self, *keys: str, kind: str = "work", cost_tokens: int = 0) -> None:
        jobs = tuple(
            NewJob(kind=kind, key=key, cost_tokens=cost_tokens, run_at=self.clock.time)
            for key in keys
        )
        await self.store.write(Batch(at=self.clock.time, jobs=jobs))

    def runner(
        self,
        handler: Handler,
        *,
        lease_seconds: float = 60.0,
        max_attempts: int = 5,
        day_tokens: int | None = None,
    ) -> JobRunner:
        return JobRunner(
            self.store,
            {"work": handler},
            self.clock,
            lease_seconds=lease_seconds,
            max_attempts=max_attempts,
            backoff=partial(retry_seconds, base=10.0, factor=2.0, max_seconds=25.0),
            day_tokens=day_tokens,
        )


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Bench]:
    store = await open_store(str(path), space="jobs")
    try:
        yield Bench(store)
    finally:
        await store.close()


async def nothing_to_write(lease: Lease) -> Batch:
    return Batch(at=NOON)
