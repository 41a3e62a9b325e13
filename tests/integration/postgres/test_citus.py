"""Distributing, checking and upkeep on Citus: by a stand-in that records what it is asked."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.store_contract import examples

from recollect.adapters.stores.postgres.admin import DueSpaces, check_database, distribute
from recollect.adapters.stores.postgres.schema import initialize, migrate
from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import StoreError, StoreUnavailable
from recollect_bench.postgres_server import PostgresServer, TestDatabase

STAND_IN = Path(__file__).parents[3] / "tools" / "citus"
NODES = ("w1", "w2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresServer]:
    """A server of these tests' own: settings of roles are the server's."""
    with PostgresServer(18) as running:
        place = running.folder / "share" / "extension"
        shutil.copytree(STAND_IN, place)
        for path in (place.parent, place, *place.iterdir()):
            path.chmod(0o755)
        yield running


@pytest.fixture
def database(cluster: PostgresServer) -> Iterator[TestDatabase]:
    """A migrated database with a space of before Citus, and Citus with two nodes in it."""
    made = asyncio.run(cluster.migrated_database())
    with psycopg.connect(made.admin_url, autocommit=True) as connection:
        place = cluster.folder / "share"
        connection.execute(f"SET extension_control_path = '{place}:$system'".encode())
        connection.execute("CREATE EXTENSION citus")
        for name in NODES:
            connection.execute("SELECT citus_add_node(%s, 5432)", (name,))
    yield made
    with psycopg.connect(cluster.admin_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE recollect_app RESET ALL")


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def calls(database: TestDatabase) -> list[str]:
    return [call for (call,) in run(database.admin_url, "SELECT call FROM citus.calls ORDER BY id")]


async def opened(database: TestDatabase) -> PostgresFleet:
    return await PostgresFleet.open(database.app_url)


def test_opening_is_refused_with_the_mend_until_the_role_is_set_up(database: TestDatabase) -> None:
    with pytest.raises(StoreError) as told:
        asyncio.run(opened(database))
    mend = "ALTER ROLE \"recollect_app\" SET citus.propagate_set_commands = 'local'"
    assert mend in str(told.value)
    run(database.admin_url, mend)

    async def use() -> None:
        fleet = await opened(database)
        assert fleet.server.citus == "13.2"
        await (await fleet.space("one")).write(examples.full_batch(0))
        await fleet.close()

    asyncio.run(use())


async def test_everything_is_distributed_beside_its_like(database: TestDatabase) -> None:
    first = await distribute(database.admin_url, shard_count=2)
    assert [line for line in first.settings if "propagate_set_commands" in line]
    assert first.cannot == ()
    made = calls(database)
    assert made[0] == "distribute recollect.spaces by space_id beside default"
    assert "distribute recollect.vectors by space_id beside recollect.spaces" in made
    on_the_coordinator = ("schema_versions", "tenants", "api_keys", "tenant_usage", "audit_log")
    assert not [call for call in made if call.split()[1].endswith(on_the_coordinator)]
    tables = run(
        database.admin_url,
        "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " WHERE a.attname = 'space_id' AND c.relkind = 'r'"
        " AND c.relnamespace = 'recollect'::regnamespace",
    )
    assert len([call for call in made if " by space_id " in call]) == tables[0][0]
    again = await distribute(database.admin_url)
    assert again.distributed == again.truncated == again.settings == ()
    run(
        database.admin_url,
        "CREATE TABLE recollect.later (space_id uuid NOT NULL PRIMARY KEY);"
        " ALTER TABLE recollect.later ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    )
    found = await check_database(database.admin_url)
    assert "recollect.later is not distributed" in {each.what for each in found.findings}
    assert (await distribute(database.admin_url)).distributed == ("later",)


async def test_rows_of_before_leave_the_coordinators_files(database: TestDatabase) -> None:
    await initialize(database.admin_url)
    fleet = await opened(database)
    await (await fleet.space("before")).write(examples.full_batch(0))
    await fleet.close()
    done = await distribute(database.admin_url, shard_count=2)
    assert {"segments", "spaces", "vectors"} <= set(done.truncated)
    assert "truncate recollect.segments" in calls(database)
    assert run(database.admin_url, "SELECT count(*) FROM recollect.segments") == [(0,)]
    shards = run(
        database.admin_url,
        "SELECT shardid FROM pg_dist_shard_placement"
        " WHERE logicalrelid = 'recollect.segments'::regclass",
    )
    kept = sum(
        run(database.admin_url, f"SELECT count(*) FROM citus.segments_{shard}")[0][0]
        for (shard,) in shards
    )
    assert kept == len(examples.full_batch(0).segments)


def test_a_table_that_cannot_be_distributed_is_named(database: TestDatabase) -> None:
    run(database.admin_url, "CREATE UNIQUE INDEX odd ON recollect.vectors (passage_no)")
    with pytest.raises(StoreError, match=r"recollect\.vectors: cannot create constraint"):
        asyncio.run(distribute(database.admin_url))
    run(database.admin_url, "DROP INDEX recollect.odd")
    done = asyncio.run(distribute(database.admin_url))
    assert "vectors" in done.distributed
    assert "spaces" not in done.distributed


def test_a_database_without_citus_or_nodes_is_told_what_is_missing(
    server: PostgresServer, database: TestDatabase
) -> None:
    plain = asyncio.run(server.migrated_database())
    with pytest.raises(StoreError, match="has no Citus"):
        asyncio.run(distribute(plain.admin_url))
    run(database.admin_url, "UPDATE pg_dist_node SET shouldhaveshards = false")
    with pytest.raises(StoreError, match="citus_add_node"):
        asyncio.run(distribute(database.admin_url))


async def test_tables_of_tenants_that_an_earlier_version_distributed_return(
    database: TestDatabase,
) -> None:
    run(
        database.admin_url,
        "SELECT create_distributed_table('recollect.api_keys', 'tenant_id');"
        " SELECT create_distributed_table('recollect.tenant_usage', 'tenant_id',"
        " colocate_with => 'recollect.api_keys')",
    )
    before = {each.what for each in (await check_database(database.admin_url)).findings}
    assert "recollect.api_keys is distributed, so a lost node takes tenants' keys with it" in before
    await distribute(database.admin_url)
    after = {each.what for each in (await check_database(database.admin_url)).findings}
    assert not [what for what in after if "is distributed" in what]
    undone = {call for call in calls(database) if call.startswith("undistribute")}
    assert undone == {"undistribute recollect.api_keys", "undistribute recollect.tenant_usage"}


async def test_due_jobs_are_found_node_by_node_and_a_lost_node_is_named(
    database: TestDatabase,
) -> None:
    names = tuple(f"space {number}" for number in range(12))
    await initialize(database.admin_url)
    fleet = await opened(database)
    for at, name in enumerate(names):
        job = NewJob(kind="embed", key="k", payload=b"", run_at=float(at))
        await (await fleet.space(name)).write(Batch(at=0.0, jobs=(job,)))
    await distribute(database.admin_url)

    async def due(limit: int = 100, **given: bool) -> DueSpaces:
        return await fleet.spaces_with_due_jobs(100.0, limit, **given)

    first, second = await due(), await due()
    assert sorted(first.names + second.names) == sorted(names), "each of two nodes was asked once"
    assert first.names
    assert second.names
    assert list(first.names) == [name for name in names if name in first.names], "in their order"
    assert (await due()).names == first.names, "then the first again"
    assert (await due(every=True)).names == names
    assert (await due(2, every=True)).names == names[:2]
    assert (await due()).oldest_due_at == 0.0, "of all nodes"
    early = await fleet.spaces_with_due_jobs(0.5, every=True)
    assert early.names == names[:1]
    run(database.admin_url, "INSERT INTO citus.away VALUES ('w2:5432')")
    left = await due(every=True)
    assert left.unreached == ("w2:5432",)
    assert left.names in (first.names, second.names)
    run(database.admin_url, "INSERT INTO citus.away VALUES ('w1:5432')")
    assert (await due(every=True)).unreached == ("w1:5432", "w2:5432")
    run(database.admin_url, "DELETE FROM citus.away")
    assert (await due(every=True)).unreached == ()
    await fleet.close()


async def test_a_scrub_asks_every_node(database: TestDatabase) -> None:
    await initialize(database.admin_url)
    fleet = await opened(database)
    store = await fleet.space("one")
    await store.write(examples.full_batch(0))
    segment = examples.full_batch(0).segments[0].segment.id
    await store.forget(ForgetOrder(at=1.0, segments=(segment,)))
    run(database.admin_url, "INSERT INTO citus.away VALUES ('w2:5432')")
    done = await store.scrub(database.admin_url)
    told = [line for line in done.cannot if "w2:5432" in line]
    assert len(told) == 2
    assert all("scrub again" in line for line in told)
    assert not [line for line in done.cannot if "w1:5432" in line]
    assert {"on workers: SELECT pg_switch_wal()", "on workers: CHECKPOINT"} <= set(calls(database))
    await fleet.close()


async def test_the_check_finds_what_is_amiss_and_how_to_mend_it(database: TestDatabase) -> None:
    async def found() -> dict[str, str]:
        check = await check_database(database.admin_url)
        return {each.what: each.fix for each in check.findings if each.problem}

    made = await initialize(database.admin_url)
    assert len(made.settings) >= 6
    assert (await initialize(database.admin_url)).settings == ()
    await distribute(database.admin_url)
    assert await found() == {}
    for statement in (
        "ALTER ROLE recollect_app RESET lock_timeout",
        "ALTER ROLE recollect_app SET log_min_error_statement = 'error'",
        "ALTER TABLE recollect.facts NO FORCE ROW LEVEL SECURITY",
        "DELETE FROM pg_dist_partition WHERE logicalrelid = 'recollect.turns'::regclass",
        "UPDATE pg_dist_node SET isactive = false WHERE nodename = 'w2'",
    ):
        run(database.admin_url, statement)
    problems = await found()
    told = "\n".join(f"{what} -> {fix}" for what, fix in problems.items())
    for part in (
        "lacks the setting lock_timeout -> ALTER ROLE \"recollect_app\" SET lock_timeout = '30s'",
        "log_min_error_statement",
        "recollect.facts is not under forced row-level security -> ALTER TABLE",
        "recollect.turns is not distributed -> recollect db distribute URL",
        "the node w2:5432 is not active",
    ):
        assert part in told, part
    assert len(problems) == 5, told


def test_server_too_old_is_told(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.adapters.stores.postgres.schema.SERVER_VERSION", 99)
    with pytest.raises(StoreError, match=r"is PostgreSQL 18.*upgrade to 99 or newer"):
        asyncio.run(migrate(server.new_database().admin_url))


def test_a_migration_lets_others_go_first_and_tries_again(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader with an open transaction does not make every other reader wait behind it."""
    monkeypatch.setattr("recollect.adapters.stores.postgres.schema.LOCK_SECONDS", 0.1)
    database = asyncio.run(server.migrated_database())
    run(
        database.admin_url,
        "DELETE FROM recollect.schema_versions WHERE version = 8;"
        " ALTER TABLE recollect.segments ADD COLUMN tags text",
    )
    waited: list[str] = []
    with psycopg.connect(database.admin_url) as reader:
        reader.execute("SELECT count(*) FROM recollect.segments")
        with pytest.raises(StoreUnavailable, match="pg_stat_activity"):
            asyncio.run(migrate(database.admin_url, wait_seconds=0.5, waiting=waited.append))
        assert waited
        run(database.app_url, "SELECT count(*) FROM recollect.segments")
    assert asyncio.run(migrate(database.admin_url)) == ("008_post_no_tags",)
