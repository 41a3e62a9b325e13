"""Two workers on one store, killed again and again: every effect once, none lost."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from tests.harness.waiting import wait_until
from tests.sizes import at_size

from recollect.adapters.wiring import open_store
from recollect.core.values.batch import Batch, NewJob

KILLS = int(os.environ.get("RECOLLECT_JOB_KILLS", at_size(ci=4, full=10)))
JOBS_A_KILL = 60
ROOT = Path(__file__).parents[3]


def start(path: Path) -> subprocess.Popen[bytes]:
    module = "tests.integration.jobs.kill_worker"
    return subprocess.Popen(
        [sys.executable, "-m", module, str(path)], stdout=subprocess.DEVNULL, cwd=ROOT
    )


def test_every_effect_happens_once_however_often_workers_die(tmp_path: Path) -> None:
    chance = random.Random(5)
    path = tmp_path / "jobs.db"
    count = JOBS_A_KILL * KILLS
    keys = [f"job{number:04d}" for number in range(count)]

    async def fill() -> None:
        store = await open_store(str(path), space="jobs")
        jobs = tuple(NewJob(kind="work", key=key, run_at=1.0) for key in keys)
        await store.write(Batch(at=1.0, jobs=jobs))
        await store.close()

    asyncio.run(fill())
    workers = [start(path), start(path)]
    try:
        for kill in range(KILLS):
            before = max(asyncio.run(left(path)), 1)
            wait_until(partial(fewer_left, path, before))
            time.sleep(chance.uniform(0.0, 0.1))
            victim = kill % 2
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = start(path)
        wait_until(lambda: not asyncio.run(left(path)))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert sorted(asyncio.run(made_by_jobs(path))) == keys, "each once, none lost"


def fewer_left(path: Path, before: int) -> bool:
    return asyncio.run(left(path)) < before


async def left(path: Path) -> int:
    """How many jobs are not done yet."""
    store = await open_store(str(path), space="jobs")
    try:
        return len(await store.jobs())
    finally:
        await store.close()


async def made_by_jobs(path: Path) -> list[str]:
    store = await open_store(str(path), space="jobs")
    try:
        assert (await store.check()).problems == ()
        made: list[str] = []
        after = 0
        while found := await store.page(after=after, limit=500):
            made += [one.segment.text.split()[0] for one in found]
            after = found[-1].sequence
        return made
    finally:
        await store.close()
