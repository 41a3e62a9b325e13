"""Behind a pooler in transaction mode: nothing may rest on which connection comes next.

With PgBouncer installed the store runs through it; always through a pool of our own that hands
out another connection for each transaction and discards what a session could have kept."""

import asyncio
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.harness.renaming_pooler import renaming_pooler
from tests.harness.waiting import wait_until
from tests.sizes import at_size
from tests.store_contract import forgetting, jobs, searching, sessions, writing
from tests.store_contract.harness import Check, checks_of, run_check

from recollect.adapters.stores.postgres.link import Link, Statement
from recollect.adapters.stores.postgres.pool import Pool
from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.core.ports import Store
from recollect.errors import StoreError, StoreUnavailable
from recollect_bench.postgres_server import PostgresServer, TestDatabase

CHECKS = checks_of(writing, sessions, searching, jobs, forgetting)
PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
POOLED = at_size(ci=CHECKS[::3], full=CHECKS)
"""In CI a third of the contract: `tests/contract` has all of it on connections of their own."""
OURS = POOLED if PGBOUNCER is None else at_size(ci=CHECKS[1::9], full=CHECKS)
"""What runs through the pool of our own: the same where there is no other."""


class Discarding(Pool):
    """Each transaction on another connection, which forgets everything after it."""

    @asynccontextmanager
    async def _borrow_link(self) -> AsyncIterator[Link]:
        random.shuffle(self._idle)
        async with super()._borrow_link() as link:
            yield link
            if await link.is_usable():
                discard = Statement(link.connection, "DISCARD ALL", ())
                await link.run((discard,))


@pytest.mark.parametrize("check", OURS, ids=lambda check: check.__name__)
async def test_contract_holds_where_connections_forget(shared: TestDatabase, check: Check) -> None:
    fleet = await PostgresFleet.open(shared.app_url)
    pool = Discarding(shared.app_url, size=5)
    pool.vector_oid = fleet.server.vector_oid
    fleet.pool = pool
    # All five are open before the first use, so that there are others to choose from.
    await asyncio.gather(*(fleet.spaces_with_due_jobs(0.0) for _ in range(5)))

    async def opened(space: str) -> Store:
        return await fleet.space(space)

    try:
        await run_check(check, opened)
    finally:
        await fleet.close()


@pytest.fixture(scope="module")
def shared(server: PostgresServer) -> TestDatabase:
    return asyncio.run(server.migrated_database())


@pytest.fixture(scope="module")
def through_pgbouncer(
    server: PostgresServer, shared: TestDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if PGBOUNCER is None:
        pytest.skip("no pgbouncer here; the pool that forgets stands in for it")
    folder = server.folder / "pgbouncer"
    folder.mkdir(exist_ok=True)
    users = folder / "users.txt"
    users.write_text('"recollect_app" "recollect-tests"\n')
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"""
[databases]
{shared.name} = host={server.folder} dbname={shared.name}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 3
server_reset_query =
logfile = {folder / "log"}
"""
    )
    process = subprocess.Popen(
        ["timeout", "600", PGBOUNCER, str(settings)],  # it does not outlive us for long
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **_as_owner(server, folder),
    )
    try:
        wait_until((folder / ".s.PGSQL.6432").exists)
        yield f"postgresql://recollect_app@/{shared.name}?host={folder}&port=6432"
    finally:
        process.terminate()
        process.wait()


def _as_owner(server: PostgresServer, folder: Path) -> dict[str, Any]:
    """PgBouncer refuses to run as root, like PostgreSQL."""
    owner = server.data.stat()
    if os.geteuid() != 0:
        return {}
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    return {"user": owner.st_uid, "group": owner.st_gid}


@pytest.mark.parametrize("check", POOLED, ids=lambda check: check.__name__)
async def test_the_contract_holds_through_pgbouncer(through_pgbouncer: str, check: Check) -> None:
    fleet = await PostgresFleet.open(through_pgbouncer)

    async def opened(space: str) -> Store:
        return await fleet.space(space)

    try:
        await run_check(check, opened)
    finally:
        await fleet.close()


@pytest.mark.parametrize("check", CHECKS[2::9], ids=lambda check: check.__name__)
async def test_statements_stay_prepared_behind_a_pooler_that_renames_them(
    server: PostgresServer, shared: TestDatabase, check: Check
) -> None:
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as folder:
        async with renaming_pooler(server.folder / ".s.PGSQL.5432", Path(folder)) as pooler:
            url = f"postgresql://recollect_app@/{shared.name}?host={folder}&port=6432"
            fleet = await PostgresFleet.open(url, pool_size=5)
            assert fleet.pool.prepares
            await asyncio.gather(*(fleet.spaces_with_due_jobs(0.0) for _ in range(5)))

            async def opened(space: str) -> Store:
                return await fleet.space(space)

            try:
                await run_check(check, opened)
            finally:
                await fleet.close()
            assert fleet.pool.prepares
            assert pooler.changes


async def test_no_state_is_left_on_a_connection(shared: TestDatabase) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=1)
    store = await fleet.space("one")
    await store.stats()
    before = replace(fleet.pool.traffic)
    assert await store.session("s") is None
    assert fleet.pool.traffic.since(before).statements == 2  # the space, and the query
    (link,) = fleet.pool._idle
    assert await link.is_usable()
    for setting in ("app.space_id", "app.worker"):
        asked = Statement(
            link.connection, f"SELECT coalesce(current_setting('{setting}', true), '')", ()
        )
        await link.run((asked,))
        assert asked.rows() == [("",)]
    await fleet.close()
    with psycopg.connect(shared.admin_url) as owner:
        locks = owner.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        assert locks.fetchone() == (0,)


async def test_a_failed_statement_leaves_no_unknown_name(shared: TestDatabase) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=1)
    space = uuid4()
    for _ in range(2):
        with pytest.raises(StoreError):
            async with fleet.pool.transaction(space, read=True) as work:
                await work.send("SELECT 1 / %s", (0,))
                await work.row("SELECT %s::int + 1", (1,))  # not prepared: the one before failed
        async with fleet.pool.transaction(space, read=True) as work:
            assert await work.row("SELECT %s::int + 1", (2,)) == (3,)
    await fleet.close()


async def test_links_whose_statements_were_forgotten_are_replaced(shared: TestDatabase) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=4)
    store = await fleet.space("one")
    await asyncio.gather(*(store.session("s") for _ in range(4)))
    links = list(fleet.pool._idle)
    assert len(links) == 4
    for link in links:
        assert await link.is_usable()
        await link.run((Statement(link.connection, "DISCARD ALL"),))
    with pytest.raises(StoreUnavailable, match="prepared statement"):
        await store.session("s")
    for _ in range(2):
        assert await asyncio.gather(*(store.session("s") for _ in range(4))) == [None] * 4
    await fleet.close()


async def test_a_pooler_that_keeps_names_gives_no_caller_another_ones_statement(
    shared: TestDatabase,
) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=2)
    async with (
        fleet.pool.transaction(uuid4()) as one,
        fleet.pool.transaction(uuid4()) as two,
    ):
        for work, text in ((one, "SELECT 'one' || %s"), (two, "SELECT 'two' || %s")):
            assert await work.row(text, ("x",)) == (f"{text[8:11]}x",)
    first, second = fleet.pool._idle
    # a pooler gives each caller the other one's connection to the server
    first._pgconn, second._pgconn = second._pgconn, first._pgconn
    with pytest.raises(StoreUnavailable, match="prepared statement"):
        async with fleet.pool.transaction(uuid4()) as work:
            text = "SELECT 'one' || %s" if work._link is first else "SELECT 'two' || %s"
            await work.row(text, ("x",))
    await fleet.close()


async def test_a_statement_whose_rows_nobody_read_is_known_to_its_link(
    shared: TestDatabase,
) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=1)
    text, space = "SELECT %s::int + 1", uuid4()
    async with fleet.pool.transaction(space, read=True) as work:
        await work.send(text, (1,))
    async with fleet.pool.transaction(space, read=True) as work:
        assert await work.row(text, (2,)) == (3,)
    assert fleet.pool.prepares
    await fleet.close()


@pytest.mark.parametrize("read", [True, False])
async def test_a_query_that_outlives_its_transaction_is_refused(
    shared: TestDatabase, read: bool
) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=1)
    asked = "SELECT current_setting('app.space_id')"
    async with fleet.pool.transaction(uuid4(), read=read) as ended:
        late = await ended.send(asked)
        running = asyncio.create_task(ended.row("SELECT pg_sleep(0.2)::text"))
        await asyncio.sleep(0.05)
    assert await running == ("",)
    space = uuid4()
    async with fleet.pool.transaction(space, read=read) as work:
        assert await work.row(asked) == (str(space),)
        with pytest.raises(StoreError, match="has ended"):
            await ended.row(asked)
        if not late.done:
            with pytest.raises(StoreError, match="has ended"):
                await late.fetchall()
        assert await work.row(asked) == (str(space),)
    with pytest.raises(ValueError, match="the caller's"):
        async with fleet.pool.transaction(space, read=read) as failed:
            running = asyncio.create_task(failed.row("SELECT pg_sleep(0.2)::text"))
            await asyncio.sleep(0.05)
            raise ValueError("the caller's")
    async with fleet.pool.transaction(space, read=read) as work:
        assert await work.row(asked) == (str(space),)
    await asyncio.gather(running, return_exceptions=True)
    await fleet.close()


async def test_a_transaction_of_one_query_refuses_a_second(shared: TestDatabase) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=1)
    asked, space = "SELECT current_setting('app.space_id')", uuid4()
    async with fleet.pool.transaction(space, read=True, once=True) as work:
        assert await work.row(asked) == (str(space),)
        with pytest.raises(StoreError, match="has ended"):
            await work.row(asked)
    await fleet.close()


async def test_a_closed_pool_keeps_no_link_of_a_failed_transaction(shared: TestDatabase) -> None:
    fleet = await PostgresFleet.open(shared.app_url, pool_size=1)
    with pytest.raises(StoreError):
        async with fleet.pool.transaction(uuid4()) as work:
            await work.row("SELECT 1")
            await fleet.close()
            await work.row("SELECT 1 / %s", (0,))
    assert fleet.pool.idle == 0
