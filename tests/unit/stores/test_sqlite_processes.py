"""One file, several processes: nobody fails, nothing is lost, everybody sees what is written."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import pytest
from tests.store_contract.examples import START, asked, segment, session_write, vectors
from tests.store_contract.harness import claim_all

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.upkeep import ForgetOrder

SPAWN = multiprocessing.get_context("spawn")
SOAK = bool(os.environ.get("RECOLLECT_SOAK"))
PROCESSES = 8 if SOAK else 4
ROUNDS = 200 if SOAK else 3


def _batch(process: int, turn: int) -> Batch:
    session = f"of process {process}"
    new = segment(f"turn {turn} of process {process}", session=session)
    return Batch(
        at=START,
        segments=(new,),
        vectors=(vectors((new,), embedder="e"),),
        jobs=(NewJob(kind="embed", key=f"{process} {turn}"),),
        session=session_write((new,), turn=turn, session=session, path_from=turn),
    )


async def _work(path: Path, process: int) -> int:
    written = 0
    for _ in range(ROUNDS):
        store = await SQLiteStore.open(path, space="shared", busy_seconds=30.0)
        for _ in range(10):
            await store.write(_batch(process, written))
            written += 1
            query = CandidateQuery(
                words=("turn", str(process)), vectors=(asked("q", embedder="e"),)
            )
            found = await store.candidates(query)
            assert found.documents >= written
            (lease,) = await claim_all(store, now=START, kinds=("embed",), limit=1)
            assert await store.complete(lease, Batch(at=START))
        await store.close()
    return written


def _worker(path: Path, process: int, ready: Barrier, told: multiprocessing.Queue[int]) -> None:
    ready.wait()
    told.put(asyncio.run(_work(path, process)))


async def test_many_processes_write_read_open_and_close_at_once(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    told: multiprocessing.Queue[int] = SPAWN.Queue()
    ready = SPAWN.Barrier(PROCESSES)  # none has made the file yet
    workers = [
        SPAWN.Process(target=_worker, args=(path, number, ready, told))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    written = sum(told.get(timeout=600) for _ in workers)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    async with await SQLiteStore.open(path, space="shared") as store:
        stats = await store.stats()
        assert (stats.segments, stats.vectors) == (written, {"e": written})
        assert (stats.sessions, stats.jobs_waiting) == (PROCESSES, 0)
        assert (await store.check()).problems == ()


def _write_until_killed(path: Path, told: multiprocessing.Queue[int]) -> None:
    async def write() -> None:
        store = await SQLiteStore.open(path, space="shared")
        for turn in range(100_000):
            await store.write(_batch(0, turn))
            told.put(turn)

    asyncio.run(write())


def _write_and_forget(path: Path, ready: Barrier, enough: Event) -> None:
    async def write() -> None:
        store = await SQLiteStore.open(path, space="shared", busy_seconds=30.0)
        ready.wait()
        turn = 0
        while not enough.is_set():
            batch = _batch(1, turn)
            await store.write(batch)
            if turn % 3 == 0:
                gone = (batch.segments[0].segment.message_id,)
                await store.forget(ForgetOrder(at=START, message_ids=gone))
            turn += 1
        await store.close()

    asyncio.run(write())


async def test_check_is_clean_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    ready, enough = SPAWN.Barrier(2), SPAWN.Event()
    async with await SQLiteStore.open(path, space="shared") as store:
        new = tuple(segment(f"word{number} and more", said_at=START) for number in range(300))
        await store.write(Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),)))
        worker = SPAWN.Process(target=_write_and_forget, args=(path, ready, enough))
        worker.start()
        await asyncio.to_thread(ready.wait)
        for _ in range(5):
            assert (await store.check()).problems == ()
        enough.set()
        await asyncio.to_thread(worker.join)
        assert worker.exitcode == 0


@pytest.mark.parametrize("after_writes", [1, 7, 20])
async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, after_writes: int) -> None:
    path = tmp_path / "shared.db"
    told: multiprocessing.Queue[int] = SPAWN.Queue()
    worker = SPAWN.Process(target=_write_until_killed, args=(path, told))
    worker.start()
    acknowledged = [told.get(timeout=30) for _ in range(after_writes)][-1]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    async with await SQLiteStore.open(path, space="shared") as store:
        held = await store.page(limit=100_000)
        assert len(held) >= acknowledged + 1
        stored = await store.session("of process 0")
        assert stored is not None
        assert len(stored.path) == len(held)
        assert (await store.check()).problems == ()


async def test_cancelled_call_leaves_a_whole_store(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "one.db", space="one") as store:
        for turn in range(60):
            task = asyncio.create_task(store.write(_batch(0, turn)))
            await asyncio.sleep(0.0004 * (turn % 5))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.write(_batch(0, turn))
        assert (await store.stats()).segments == 60
        assert (await store.check()).problems == ()
