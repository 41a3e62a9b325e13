"""An older database is migrated in two phases; a wrong version is told plainly."""

import asyncio
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.conftest import own_store
from tests.store_contract import examples
from tests.store_contract.examples import asked, full_batch
from tests.store_contract.model import ReferenceModel

from recollect import open_memory
from recollect.adapters.stores.postgres.schema import VERSION, migrate, migrations
from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.core.values.recall import CandidateQuery
from recollect.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreUnavailable
from recollect_bench.postgres_server import APP_PASSWORD, PostgresServer, TestDatabase

NO_SCHEMA = "run `recollect db migrate URL`"


async def test_a_server_without_our_schema_is_told_with_the_command_in_log_and_reports(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_memory(store=server.new_database().admin_url, space="bare") as memory:
        for number in range(2):
            asked = {"messages": [{"role": "user", "content": f"question {number}"}]}
            report = (await memory.prepare("s", asked)).report
            assert NO_SCHEMA in str(report)
            assert "is away" not in str(report)
            seen = await memory.observe("s", {"role": "assistant", "content": "an answer"})
            assert seen.archived == "spool"
            assert NO_SCHEMA in str(seen)
    told = [one.getMessage() for one in caplog.records if one.name == "recollect.store"]
    assert [NO_SCHEMA in one for one in told] == [True]


def test_a_database_that_version_7_wrote_is_migrated(server: PostgresServer) -> None:
    """The dump is of a database that code of that version filled with the same batch."""
    asyncio.run(server.migrated_database())  # the dump names its role, which belongs to a server
    database, batch = server.new_database(), full_batch(1)
    packed = Path(__file__).with_name("version_7.dump.gz").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server's programs run as another user
        dump = Path(folder) / "version_7.dump"
        dump.write_bytes(gzip.decompress(packed))
        server.restore(dump, database.name)
    with psycopg.connect(database.admin_url) as connection:  # as that version left the index
        connection.execute(f"SET app.space_id = '{space_uuid('mine')}'".encode())
        for table in ("segments", "passages", "passage_terms", "vectors"):
            connection.execute(f"UPDATE recollect.{table} SET cold = true".encode())
        connection.execute(
            "UPDATE recollect.counters SET documents = 0, total_length = 0,"
            " packed_to = next_passage - 1"
        )

    async def run() -> None:
        assert "recollect db migrate" in await opening(database.app_url)
        await migrate(database.admin_url, app_password=APP_PASSWORD)
        store = await own_store(database.app_url, space="mine")
        stored = await store.segments([new.segment.id for new in batch.segments])
        assert [one.segment for one in stored] == [new.segment for new in batch.segments]
        assert await store.facts() == batch.facts
        assert (await store.check()).problems == ()
        model = ReferenceModel()
        model.write(batch)
        query = CandidateQuery(
            words=tuple(dict.fromkeys(batch.segments[0].passages[0].words)), vectors=(asked("q"),)
        )
        model.expect(query, await store.candidates(query))
        assert (await store.write(full_batch(2))).stored
        assert (await store.check()).problems == ()
        await store.close()

    asyncio.run(run())


def test_every_version_has_a_pre_and_files_are_in_order() -> None:
    found = migrations()
    assert {one.version for one in found if one.phase == "pre"} == set(range(7, VERSION + 1))
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
        store = await own_store(database.app_url, space="one")
        await store.write(examples.full_batch(0))
        await store.close()

    asyncio.run(use())


async def opening(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        await PostgresFleet.open(url)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_database_without_our_schema_says_what_to_run(server: PostgresServer) -> None:
    said = asyncio.run(opening(server.new_database().admin_url))
    assert "recollect db migrate" in said


def test_another_version_is_told_apart(database: TestDatabase) -> None:
    async def change(statement: str) -> str:
        with psycopg.connect(database.admin_url) as connection:
            connection.execute(statement.encode())
        return await opening(database.app_url)

    newer = (
        "INSERT INTO recollect.schema_versions VALUES"
        f" ({VERSION + 1}, 'pre', 'next', 0), ({VERSION + 1}, 'post', 'next', 0)"
    )
    assert asyncio.run(change(newer)).startswith(SchemaMismatch.__name__)
    older = "DELETE FROM recollect.schema_versions"
    said = asyncio.run(change(older))
    assert "recollect db migrate" in said


def test_a_database_of_an_earlier_development_version_is_refused(database: TestDatabase) -> None:
    """Its steps have our numbers and other names: what they made has no place for our writes."""
    earlier = [
        (1, "pre", "tables"),
        (1, "post", "upkeep"),
        (2, "pre", "compactions"),
        (3, "pre", "facts"),
        (4, "pre", "model_use"),
    ]
    recorded = "SELECT version, phase, name FROM recollect.schema_versions ORDER BY applied_at"
    with psycopg.connect(database.admin_url) as connection:
        connection.execute("DELETE FROM recollect.schema_versions")
        for at, step in enumerate(earlier):
            connection.execute(
                "INSERT INTO recollect.schema_versions VALUES (%s, %s, %s, %s)", (*step, at)
            )
    opened = asyncio.run(opening(database.app_url))
    with pytest.raises(StoreCorrupt) as migrated:
        asyncio.run(migrate(database.admin_url))
    for told in (opened, f"StoreCorrupt: {migrated.value}"):
        assert told.startswith("StoreCorrupt: ")
        assert "made by an earlier development version: export its content" in told
        assert "recollect export" in told
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute(recorded.encode()).fetchall() == earlier


async def test_what_next_version_only_added_does_not_stop_this_one(database: TestDatabase) -> None:
    with psycopg.connect(database.admin_url) as connection:
        connection.execute(
            "INSERT INTO recollect.schema_versions VALUES (%s, 'pre', 'next', 0)", (VERSION + 1,)
        )
    store = await own_store(database.app_url, space="one")
    await store.write(examples.full_batch(0))
    await store.close()


async def test_no_server_is_unavailable_soon(tmp_path: Any) -> None:
    started = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable):
        await PostgresFleet.open(f"postgresql://x@/x?host={tmp_path}")
    assert (asyncio.get_running_loop().time() - started) < 4.0


def test_without_the_driver_the_extra_is_named() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from recollect.errors import MissingExtra
try:
    import recollect.adapters.stores.postgres.store
except MissingExtra as error:
    assert error.extra == "postgres", error
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "recollect[postgres]" in done.stdout
