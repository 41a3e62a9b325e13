"""PostgreSQL goes away and comes back: quick, plain errors, and no reopening."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.store_contract import examples

from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import StoreUnavailable
from recollect_bench.postgres_server import PostgresServer, StopMode

QUERY = CandidateQuery(words=("a",), vectors=(examples.asked("q"),))


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as running:
        yield running


async def test_the_store_works_again_after_a_restart(own_server: PostgresServer) -> None:
    database = await own_server.migrated_database()
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    for _ in range(2):  # several idle connections, all of which die
        await asyncio.gather(*(store.stats() for _ in range(6)))
    await store.write(examples.full_batch(0))
    modes: tuple[StopMode, ...] = ("fast", "immediate")
    for mode in modes:
        own_server.stop(mode)
        calls = (
            lambda: store.write(examples.full_batch(1)),
            lambda: store.candidates(QUERY),
            lambda: store.session("talk"),
            lambda: store.claim(now=1.0, lease_seconds=1, kinds=["embed"]),
            lambda: store.forget(ForgetOrder(at=1.0, sessions=("none",))),
            store.check,
            lambda: fleet.spaces_with_due_jobs(1.0),
        )
        first = True
        for call in calls:
            started = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await call()
            # The first finds out; those after it are told at once, but for a probe.
            assert time.monotonic() - started < (4.0 if first else 3.0)
            first = False
        started = time.monotonic()
        calling = (store.stats() for _ in range(20))
        refused = await asyncio.gather(*calling, return_exceptions=True)
        assert all(isinstance(one, StoreUnavailable) for one in refused)
        assert time.monotonic() - started < 4.0
        own_server.start()
        until = time.monotonic() + 10.0
        while True:
            try:
                await store.write(examples.full_batch(2))
                break
            except StoreUnavailable:
                assert time.monotonic() < until, "it did not come back"
                await asyncio.sleep(0.1)
        outcomes = await asyncio.gather(*(store.stats() for _ in range(12)))
        assert len({one.segments for one in outcomes}) == 1
    assert (await store.check()).problems == ()
    await fleet.close()


async def test_connections_that_server_ended_are_not_handed_out(own_server: PostgresServer) -> None:
    database = await own_server.migrated_database()
    fleet = await PostgresFleet.open(database.app_url, pool_size=4)
    store = await fleet.space("one")
    await store.write(examples.full_batch(0))
    await asyncio.gather(*(store.stats() for _ in range(8)))
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        ended = owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'recollect_app'"
        ).fetchall()
    assert ended
    await asyncio.sleep(0.2)
    for _ in range(6):
        assert (await store.stats()).segments == 4
    await fleet.close()


async def test_a_write_that_was_cut_off_can_be_written_again(own_server: PostgresServer) -> None:
    """Whatever became of it, afterwards it is there once."""
    database = await own_server.migrated_database()
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(examples.full_batch(0))
    for number in range(1, 8):
        batch = examples.full_batch(number, count=30)
        writing = asyncio.create_task(store.write(batch))
        await asyncio.sleep(0.002 * number)
        with psycopg.connect(database.admin_url, autocommit=True) as owner:
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename = 'recollect_app'"
            )
        (outcome,) = await asyncio.gather(writing, return_exceptions=True)
        assert not isinstance(outcome, BaseException) or isinstance(outcome, StoreUnavailable)
        until = time.monotonic() + 10.0
        again = None
        while again is None:
            assert time.monotonic() < until, "it did not come back"
            with contextlib.suppress(StoreUnavailable):
                again = await store.write(batch)
        assert len(again.stored) + len(again.known) == 30
        assert not (again.stored and again.known), "half of a batch was there"
    assert (await store.stats()).segments == 4 + 7 * 30
    assert (await store.check()).problems == ()
    await fleet.close()


def test_a_server_that_its_process_left_behind_is_stopped() -> None:
    """The guard: SIGKILL of the process that started it does not leave a server running."""
    code = (
        "from recollect_bench.postgres_server import PostgresServer\n"
        "import sys, time\n"
        "server = PostgresServer(18).__enter__()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid, folder = child.stdout.readline().split()
        child.send_signal(signal.SIGKILL)
        child.wait()
    until = time.monotonic() + 10.0
    while Path(folder).exists():
        assert time.monotonic() < until, "the server's folder is still there"
        time.sleep(0.05)
    stat = Path("/proc", pid, "stat")
    state = stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else "gone"
    assert state in ("gone", "Z")
