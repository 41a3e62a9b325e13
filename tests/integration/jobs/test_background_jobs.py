"""Jobs beside an embedded engine: they run when there is something to do, and end cleanly."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.harness.waiting import PATIENCE_SECONDS, eventually
from tests.integration.jobs.work_bench import NOON, Bench, nothing_to_write, opened

from recollect.core.upkeep.jobs import BackgroundJobs, JobRunner
from recollect.core.values.batch import Batch, Lease
from recollect.errors import StoreUnavailable


def background(bench: Bench, runner: JobRunner, *, idle_seconds: float = 60.0) -> BackgroundJobs:
    async def open_runner() -> JobRunner:
        return runner

    return BackgroundJobs(open_runner, idle_seconds=idle_seconds)


async def test_it_wakes_works_and_rests(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        done: list[str] = []

        async def handler(lease: Lease) -> Batch:
            done.append(lease.key)
            return Batch(at=NOON)

        jobs = background(bench, bench.runner(handler))
        assert not jobs.running
        await bench.enqueue("a", "b")
        jobs.wake()
        await eventually(lambda: not jobs.running)
        assert sorted(done) == ["a", "b"]
        await bench.enqueue("c")
        jobs.wake()
        jobs.wake()
        await eventually(lambda: not jobs.running)
        assert len(done) == 3
        await jobs.close()
        await jobs.close()
        jobs.wake()
        assert not jobs.running


@pytest.mark.parametrize("idle_seconds", [0.2, 60.0])
async def test_a_store_that_is_away_is_asked_again_at_the_next_wake_or_later(
    tmp_path: Path, idle_seconds: float
) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        away = [True]

        async def open_runner() -> JobRunner:
            if away:
                away.pop()
                raise StoreUnavailable("away")
            return bench.runner(nothing_to_write)

        jobs = BackgroundJobs(open_runner, idle_seconds=idle_seconds)
        await bench.enqueue("a")
        jobs.wake()
        await eventually(lambda: not away)
        assert await jobs.rest(PATIENCE_SECONDS)
        if idle_seconds > 1:
            assert await bench.store.jobs() != ()
            jobs.wake()
        await eventually(lambda: not jobs.running)
        assert await bench.store.jobs() == ()
        await jobs.close()


async def test_closing_is_bounded_when_even_giving_back_hangs(tmp_path: Path) -> None:
    """The store takes a job out and then answers nothing more, not even when it is cancelled."""
    async with opened(tmp_path / "jobs.db"):
        let_go = asyncio.Event()

        async def open_runner() -> JobRunner:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            raise StoreUnavailable("away")

        jobs = BackgroundJobs(open_runner)
        jobs.wake()
        await asyncio.sleep(0)
        begun = time.monotonic()
        await jobs.close()
        assert time.monotonic() - begun < PATIENCE_SECONDS / 2
        let_go.set()
        await asyncio.sleep(0)


async def test_closing_in_the_middle_leaves_the_job_to_be_done(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        begun = asyncio.Event()

        async def handler(lease: Lease) -> Batch:
            begun.set()
            await asyncio.sleep(0.1)
            return Batch(at=NOON)

        jobs = background(bench, bench.runner(handler))
        await bench.enqueue("a", "b")
        jobs.wake()
        await begun.wait()
        await jobs.close()
        queue = await bench.store.queue()
        assert (queue.waiting, queue.leased) == (1, 0)
