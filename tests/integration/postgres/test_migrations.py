"""Migrations and schema.sql make the same database, and a wrong version is told plainly."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import resources
from typing import Any

import psycopg
import pytest

from recollect import open_memory
from recollect.errors import StoreCorrupt, StoreError, StoreUnavailable
from recollect.stores.postgres import PostgresFleet, PostgresStore, migrate
from recollect.stores.postgres.schema import VERSION, migrations
from recollect.testing.store_contract import examples
from recollect_bench.postgres_server import APP_PASSWORD, PostgresServer, TestDatabase

NO_SCHEMA = "run `recollect memory migrate URL`"


def test_a_server_without_our_schema_is_told_with_the_command_in_log_and_reports(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with open_memory(store=server.new_database().admin_url, space="bare") as memory:
            for number in range(2):
                asked = {"messages": [{"role": "user", "content": f"question {number}"}]}
                report = (await memory.prepare("s", asked)).report
                assert NO_SCHEMA in str(report)
                assert "is away" not in str(report)
                seen = await memory.observe("s", {"role": "assistant", "content": "an answer"})
                assert seen.archived == "spool"
                assert NO_SCHEMA in str(seen)

    asyncio.run(run())
    told = [one.getMessage() for one in caplog.records if one.name == "recollect.store"]
    assert [NO_SCHEMA in one for one in told] == [True]


CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attstorage::text, a.attstattarget, a.attnum, a.attcollation,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind IN ('r', 'i')
        ORDER BY 1, a.attnum
    """,
    "indexes": """
        SELECT tablename, indexname, indexdef FROM pg_indexes
        WHERE schemaname = 'recollect' ORDER BY 1, 2
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'recollect'::regnamespace ORDER BY 1, 2
    """,
    "policies": "SELECT * FROM pg_policies WHERE schemaname = 'recollect' ORDER BY 2, 3",
    "tables": """
        SELECT relname, reloptions, relrowsecurity, relforcerowsecurity FROM pg_class
        WHERE relnamespace = 'recollect'::regnamespace ORDER BY 1
    """,
}


def described(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with psycopg.connect(url) as connection:
        return {
            name: connection.execute(query.encode()).fetchall() for name, query in CATALOGUE.items()
        }


def test_schema_and_migrations_make_the_same_database(server: PostgresServer) -> None:
    by_migrations, by_schema = server.new_database(), server.new_database()
    asyncio.run(migrate(by_migrations.admin_url))
    folder = resources.files("recollect.stores.postgres")
    with psycopg.connect(by_schema.admin_url) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute((folder / "schema.sql").read_bytes())
    migrated, made = described(by_migrations.admin_url), described(by_schema.admin_url)
    for part in CATALOGUE:
        assert migrated[part] == made[part], part


def test_every_version_has_a_pre_and_files_are_in_order() -> None:
    found = migrations()
    assert {one.version for one in found if one.phase == "pre"} == set(range(1, VERSION + 1))
    assert {one.phase for one in found} == {"pre", "post"}


def test_migrating_again_does_nothing_and_phases_run_apart(server: PostgresServer) -> None:
    database = server.new_database()
    before = asyncio.run(migrate(database.admin_url, phase="pre"))
    assert before
    assert all("_pre_" in name for name in before)
    assert asyncio.run(migrate(database.admin_url, phase="pre")) == ()
    after = asyncio.run(migrate(database.admin_url, phase="post", app_password=APP_PASSWORD))
    assert after
    assert all("_post_" in name for name in after)
    assert asyncio.run(migrate(database.admin_url)) == ()

    async def use() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        await store.write(examples.full_batch(0))
        await store.close()

    asyncio.run(use())


async def opening(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        await PostgresFleet.open(url)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_database_without_our_schema_says_what_to_run(server: PostgresServer) -> None:
    said = asyncio.run(opening(server.new_database().admin_url))
    assert "recollect memory migrate" in said


def test_another_version_is_told_apart(database: TestDatabase) -> None:
    async def change(statement: str) -> str:
        with psycopg.connect(database.admin_url) as connection:
            connection.execute(statement.encode())
        return await opening(database.app_url)

    newer = f"UPDATE recollect.schema_versions SET version = {VERSION + 1} WHERE phase = 'post'"
    assert asyncio.run(change(newer)).startswith(StoreCorrupt.__name__)
    older = "DELETE FROM recollect.schema_versions"
    said = asyncio.run(change(older))
    assert "recollect memory migrate" in said


def test_what_the_next_version_only_added_does_not_stop_this_one(database: TestDatabase) -> None:
    with psycopg.connect(database.admin_url) as connection:
        connection.execute(
            "INSERT INTO recollect.schema_versions VALUES (%s, 'pre', 'next', 0)", (VERSION + 1,)
        )

    async def use() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        await store.write(examples.full_batch(0))
        await store.close()

    asyncio.run(use())


def test_create_makes_what_is_missing(server: PostgresServer) -> None:
    database = server.new_database()

    async def use() -> None:
        store = await PostgresStore.open(database.admin_url, space="one", create=True)
        await store.write(examples.full_batch(0))
        assert (await store.stats()).engine.startswith("PostgreSQL 18")
        await store.close()

    asyncio.run(use())


def test_no_server_is_unavailable_soon(tmp_path: Any) -> None:
    async def look() -> float:
        started = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable):
            await PostgresFleet.open(f"postgresql://x@/x?host={tmp_path}")
        return asyncio.get_running_loop().time() - started

    assert asyncio.run(look()) < 4.0


def test_without_the_driver_the_extra_is_named() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
import recollect.stores.postgres as package
from recollect.errors import MissingExtra
try:
    package.PostgresStore
except MissingExtra as error:
    assert error.extra == "postgres", error
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "recollect[postgres]" in done.stdout
