"""`recollect worker` on PostgreSQL: every space with due jobs, none starved, one paused."""

import asyncio
import json
import signal
from pathlib import Path

import psycopg
import pytest
from tests.harness.waiting import wait_until
from tests.integration.jobs.test_worker_command import command
from tests.integration.jobs.work_bench import NOON

from recollect.adapters.stores.postgres.schema import migrate
from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.core.values.batch import Batch, NewJob
from recollect_bench.postgres_server import APP_PASSWORD, APP_ROLE, PostgresServer, TestDatabase

SPACES = [f"space {number}" for number in range(6)]


@pytest.fixture(scope="module")
def database(server: PostgresServer) -> TestDatabase:
    return asyncio.run(server.migrated_database())


@pytest.fixture
def url(database: TestDatabase) -> str:
    return database.app_url


async def fill(url: str, *names: str, pause: str | None = None) -> None:
    fleet = await PostgresFleet.open(url)
    for name in names or SPACES:
        store = await fleet.space(name)
        jobs = tuple(NewJob(kind="expire", key=key, run_at=NOON) for key in ("daily", "idle"))
        await store.write(Batch(at=NOON, jobs=jobs))
        if name == pause:
            await store.pause()
    await fleet.close()


async def waiting(url: str) -> dict[str, int]:
    fleet = await PostgresFleet.open(url)
    counts = {}
    for name in SPACES:
        queue = await (await fleet.space(name)).queue()
        counts[name] = queue.waiting + queue.leased
    await fleet.close()
    return counts


async def resume(url: str, name: str) -> None:
    fleet = await PostgresFleet.open(url)
    await (await fleet.space(name)).resume()
    await fleet.close()


def test_every_space_is_served_and_a_paused_one_keeps_nobody(url: str, tmp_path: Path) -> None:
    asyncio.run(fill(url, pause=SPACES[0]))
    run = command("--store", url, "--once", "--json", home=tmp_path)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    told = json.loads(out)
    assert told["done"] == 2 * (len(SPACES) - 1), err
    assert asyncio.run(waiting(url)) == {SPACES[0]: 2, **dict.fromkeys(SPACES[1:], 0)}
    asyncio.run(resume(url, SPACES[0]))
    named = command("--store", url, "--space", SPACES[0], "--once", home=tmp_path)
    assert named.communicate(timeout=60)[1] == "recollect worker: 2 jobs done\n"


def test_a_space_that_takes_long_keeps_none_of_the_others_waiting(
    database: TestDatabase, tmp_path: Path
) -> None:
    url, (slow, later) = database.app_url, SPACES[:2]
    asyncio.run(fill(url, slow))
    with psycopg.connect(database.admin_url) as owner:
        lock = "SELECT 1 FROM recollect.counters WHERE space_id = %s FOR UPDATE"
        owner.execute(lock, [space_uuid(slow)])
        run = command("--store", url, home=tmp_path)
        try:
            blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            wait_until(lambda: owner.execute(blocked).fetchone() != (0,))
            asyncio.run(fill(url, later))
            wait_until(lambda: asyncio.run(waiting(url))[later] == 0)
            assert asyncio.run(waiting(url))[slow] == 2
            owner.rollback()
            wait_until(lambda: asyncio.run(waiting(url))[slow] == 0)
            run.send_signal(signal.SIGTERM)
            _, err = run.communicate(timeout=30)
        finally:
            if run.poll() is None:
                run.kill()
    assert run.returncode == 0, err
    assert err.splitlines()[-1] == "recollect worker: 4 jobs done"


def test_a_server_that_is_away_is_waited_for(server: PostgresServer, tmp_path: Path) -> None:
    database = server.new_database()  # without a schema
    run = command("--store", database.app_url, home=tmp_path)
    try:
        assert run.stderr is not None
        assert "trying again" in run.stderr.readline()
        asyncio.run(migrate(database.admin_url, app_role=APP_ROLE, app_password=APP_PASSWORD))
        later = iter(run.stderr.readline, "")
        ready = next(line for line in later if "trying again" not in line)
        assert ready.startswith("recollect worker: serving every space")
        asyncio.run(fill(database.app_url, SPACES[0]))
        wait_until(lambda: asyncio.run(waiting(database.app_url))[SPACES[0]] == 0)
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=30)
        assert run.returncode == 0
    finally:
        if run.poll() is None:
            run.kill()
    once = command("--store", server.new_database().app_url, "--once", home=tmp_path)
    once.communicate(timeout=60)
    assert once.returncode == 2
