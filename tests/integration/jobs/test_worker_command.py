"""`recollect worker` as a process: does what is due, tells it, stops cleanly on a signal."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.harness.waiting import wait_until
from tests.integration.jobs.work_bench import NOON

from recollect.adapters.wiring import open_store
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, NewJob

COMMAND = """
import sys
from recollect.cli import main
main()
"""


def command(*arguments: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "worker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RECOLLECT_HOME": str(home)},
    )


def with_jobs(path: Path, *keys: str, space: str = "default") -> None:
    async def fill() -> None:
        store = await open_store(str(path), space=space)
        jobs = tuple(NewJob(kind="expire", key=key, run_at=NOON) for key in keys)
        await store.write(Batch(at=NOON, jobs=jobs))
        await store.close()

    asyncio.run(fill())


def waiting(path: Path, *, space: str = "default") -> tuple[int, int]:
    async def look() -> tuple[int, int]:
        store: Store = await open_store(str(path), space=space)
        queue = await store.queue()
        await store.close()
        return queue.waiting, queue.leased

    return asyncio.run(look())


def test_once_does_what_is_due_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    with_jobs(path, "daily", "idle")
    run = command("--store", str(path), "--once", "--json", home=tmp_path)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    assert json.loads(out) == {
        "done": 2, "failed": 0, "dead": 0, "lost": 0, "facts_found": 0,
    }  # fmt: skip
    assert err == "recollect worker: 2 jobs done\n"
    again = command("--store", str(path), "--once", home=tmp_path)
    assert again.communicate(timeout=60) == ("", "recollect worker: nothing was due\n")


def test_it_works_until_it_is_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    with_jobs(path, "daily")
    run = command("--store", str(path), home=tmp_path)
    try:
        wait_until(lambda: waiting(path) == (0, 0))
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=30)
    finally:
        if run.poll() is None:
            run.kill()
    assert run.returncode == 0
    assert err == "recollect worker: 1 job done\n"
