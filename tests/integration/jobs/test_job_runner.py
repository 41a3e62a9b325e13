"""The runner: jobs are done once, retried later each time, set aside with a reason, in budget."""

import asyncio
from pathlib import Path

import pytest
from tests.harness.waiting import PATIENCE_SECONDS
from tests.integration.jobs.work_bench import NOON, nothing_to_write, opened
from tests.store_contract import examples

from recollect.core.upkeep import jobs as runner_module
from recollect.core.upkeep.jobs import day_of
from recollect.core.values.batch import Batch, Lease


async def test_a_failing_job_waits_longer_each_time_and_is_then_set_aside(tmp_path: Path) -> None:
    async def handler(lease: Lease) -> Batch:
        raise ValueError("it quotes what was said")

    async with opened(tmp_path / "jobs.db") as bench:
        runner = bench.runner(handler, max_attempts=4)
        await bench.enqueue("a")
        waits = []
        for _ in range(3):
            assert await runner.run_due() == {"failed": 1}
            assert await runner.run_once() is None, "not before its time"
            (job,) = await bench.store.jobs()
            waits.append(job.run_at - bench.clock.time)
            bench.clock.time = job.run_at
        for wait, full in zip(waits, (10.0, 20.0, 25.0), strict=True):
            assert full / 2 <= wait <= full
        assert (await runner.run_due())["dead"] == 1
        (job,) = await bench.store.jobs()
        assert job.state == "dead"
        assert job.reason is not None
        assert "failed 4 times: unexpected error (ValueError)" in job.reason
        assert "quotes" not in job.reason
        bench.clock.time += 1e6
        assert await runner.run_once() is None
        assert await bench.store.revive(at=bench.clock.time) == 1
        assert (await runner.run_due())["failed"] == 1


async def test_the_budget_of_a_day_is_kept_and_the_next_day_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        runner = bench.runner(nothing_to_write, day_tokens=100)
        await bench.enqueue("a", "b", "c", cost_tokens=40)
        assert (await runner.run_due())["done"] == 2
        today = await bench.store.queue(day=day_of(bench.clock.time))
        assert (today.spent_tokens_today, today.waiting) == (80, 1)
        wait = await runner.next_due_seconds(idle_seconds=7.0)
        assert wait == 7.0, "due, but not today: looked at again later, not at once"
        bench.clock.time += 86_400
        assert (await runner.run_due())["done"] == 1
        assert await runner.next_due_seconds(idle_seconds=7.0) is None


async def test_a_long_job_keeps_its_lease(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as bench:

        async def handler(lease: Lease) -> Batch:
            for _ in range(8):
                await asyncio.sleep(0.05)
                bench.clock.time += 0.05
            return Batch(at=NOON)

        await bench.enqueue("a")
        runner = bench.runner(handler, lease_seconds=0.15)
        other = bench.runner(nothing_to_write, lease_seconds=0.15)
        working = asyncio.create_task(runner.run_due())
        for _ in range(6):
            await asyncio.sleep(0.05)
            assert await other.run_once() is None
        assert await working == {"done": 1}


async def test_a_lost_lease_stops_the_handler_and_writes_nothing(tmp_path: Path) -> None:
    new = examples.segment("must not be written")
    stopped: list[str] = []
    async with opened(tmp_path / "jobs.db") as bench:

        async def handler(lease: Lease) -> Batch:
            if lease.attempt > 1:
                return Batch(at=NOON)
            bench.clock.time += 100  # went to sleep, as a laptop does: another one takes it
            await bench.runner(handler, lease_seconds=0.1).run_once()
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                stopped.append("stopped")
                raise
            return Batch(at=NOON, segments=(new,))

        await bench.enqueue("a")
        result = await bench.runner(handler, lease_seconds=0.1).run_once()
        assert result is not None
        assert result.outcome == "lost"
        assert stopped == ["stopped"]
        assert await bench.store.known([new.segment.id]) == frozenset()
        assert await bench.store.jobs() == ()


async def test_a_stop_lets_a_job_end_or_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        stop, begun = asyncio.Event(), asyncio.Event()

        async def handler(lease: Lease) -> Batch:
            begun.set()
            await (stop if lease.key == "short" else asyncio.Event()).wait()
            return Batch(at=NOON)

        for key, done, waiting in (("short", 1, 0), ("long", 0, 1)):
            stop.clear()
            begun.clear()
            await bench.enqueue(key)
            grace_seconds = PATIENCE_SECONDS if done else 0.1
            monkeypatch.setattr(runner_module, "GRACE_SECONDS", grace_seconds)
            running = asyncio.create_task(bench.runner(handler).run_due(stop=stop))
            await begun.wait()
            stop.set()
            assert (await running)["done"] == done
            queue = await bench.store.queue()
            assert (queue.waiting, queue.leased) == (waiting, 0)
        again = await bench.runner(nothing_to_write).run_due()
        assert again["done"] == 1, "given back, so the next one need not wait for the lease"
