"""Who connects: an owner that is no superuser, roles above row security, and plain reasons."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from tests.integration.postgres.conftest import own_store
from tests.store_contract import examples

from recollect.adapters.stores.postgres.schema import migrate
from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.errors import StoreError, StoreUnavailable
from recollect_bench.postgres_server import PostgresServer, TestDatabase


@pytest.fixture(params=[16, 18])
def owned(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database as its owner, who may make roles and is no superuser."""
    with PostgresServer(request.param) as running:
        with psycopg.connect(running.admin_url, autocommit=True) as connection:
            connection.execute("CREATE ROLE keeper LOGIN CREATEROLE")
            connection.execute("CREATE DATABASE kept OWNER keeper")
        with psycopg.connect(running.url("kept"), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield running.url("kept", user="keeper")


async def test_an_owner_without_superpowers_creates_opens_and_scrubs(owned: str) -> None:
    await migrate(owned)
    store = await own_store(owned, space="mine")
    await store.write(examples.full_batch(0))
    await store.close()
    fleet = await PostgresFleet.open(owned)
    theirs = await fleet.space("theirs")
    await theirs.write(examples.full_batch(1))
    async with fleet.pool.transaction(space_uuid("mine"), read=True) as work:
        seen = await work.rows("SELECT DISTINCT space_id FROM recollect.segments")
    assert seen == [(space_uuid("mine"),)], "row security binds the owner, too"
    assert any("tables" in one for one in (await theirs.scrub()).done)
    assert (await theirs.check()).problems == ()
    await fleet.close()


async def test_the_applications_role_must_be_under_row_security(
    server: PostgresServer, database: TestDatabase
) -> None:
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS sees_all")
        owner.execute("CREATE ROLE sees_all NOLOGIN BYPASSRLS")
    for role in ("sees_all", "postgres"):
        with pytest.raises(StoreError, match="would see every space"):
            await PostgresFleet.open(database.admin_url, app_role=role)
        with pytest.raises(StoreError, match="would see every space"):
            await migrate(database.admin_url, app_role=role)
    with pytest.raises(StoreError, match="the role 'nobody_here' does not exist"):
        await PostgresFleet.open(database.admin_url, app_role="nobody_here")


@pytest.mark.parametrize(
    ("user", "name", "reason"),
    [
        ("stranger", "postgres", 'role "stranger" does not exist'),
        ("postgres", "nowhere", 'database "nowhere" does not exist'),
    ],
)
def test_the_servers_own_reason_is_told_and_no_password(
    server: PostgresServer, user: str, name: str, reason: str
) -> None:
    url = server.url(name, user=user, password="hunter2")

    async def look() -> str:
        with pytest.raises(StoreUnavailable) as told:
            await PostgresFleet.open(url)
        return str(told.value)

    told = asyncio.run(look())
    assert reason in told
    assert "hunter2" not in told
    assert "\n" not in told


def test_other_reasons_are_told_in_one_line(server: PostgresServer) -> None:
    async def look(url: str, kind: type[StoreError]) -> str:
        with pytest.raises(kind) as told:
            await PostgresFleet.open(url)
        return str(told.value)

    refused = asyncio.run(look("postgresql://a:hunter2@127.0.0.1:1/x", StoreUnavailable))
    assert "refused" in refused
    missing = asyncio.run(look("postgresql://a:hunter2@/x?host=/nowhere", StoreUnavailable))
    assert "No such file" in missing
    unread = asyncio.run(look("postgresql://a:hunter2%zz@/x?host=/nowhere", StoreError))
    assert "URL" in unread
    empty = asyncio.run(look(server.new_database().admin_url, StoreError))
    assert "recollect db migrate" in empty
    for told in (refused, missing, unread, empty):
        assert "hunter2" not in told
        assert "\n" not in told


async def test_a_database_that_takes_no_writes_is_waited_for(database: TestDatabase) -> None:
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute(
            f'ALTER DATABASE "{database.name}" SET default_transaction_read_only = on'.encode()
        )
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.write(examples.full_batch(0))
    await fleet.close()
