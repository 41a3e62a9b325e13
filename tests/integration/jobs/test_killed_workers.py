"""Two workers on one store, killed again and again: every effect once, none lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from recollect.adapters.wiring import open_store
from recollect.core.values.batch import Batch, NewJob

KILLS = int(os.environ.get("RECOLLECT_JOB_KILLS", "10"))
JOBS_A_KILL = 15
ROOT = Path(__file__).parents[3]


def start(path: Path) -> subprocess.Popen[bytes]:
    module = "tests.integration.jobs.kill_worker"
    return subprocess.Popen(
        [sys.executable, "-m", module, str(path)],
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
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
            time.sleep(chance.uniform(0.3, 0.9))
            victim = kill % 2
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = start(path)
        made = asyncio.run(until_done(path))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert sorted(made) == keys, "each once, none lost"


async def until_done(path: Path) -> list[str]:
    store = await open_store(str(path), space="jobs")
    try:
        for _ in range(600):
            queue = await store.queue()
            if not queue.waiting and not queue.leased:
                break
            await asyncio.sleep(0.1)
        assert await store.jobs() == ()
        assert (await store.check()).problems == ()
        made: list[str] = []
        after = 0
        while found := await store.page(after=after, limit=500):
            made += [one.segment.text.split()[0] for one in found]
            after = found[-1].sequence
        return made
    finally:
        await store.close()
