"""A database of version 1 is brought to this one in two phases; a wrong version is told plainly."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from tests.store_contract import examples
from tests.store_contract.examples import START, full_batch, segments, session_write

from recollect import open_memory
from recollect.adapters.stores.postgres import PostgresFleet, PostgresStore, migrate
from recollect.adapters.stores.postgres import vectors as stored_vectors
from recollect.adapters.stores.postgres.schema import VERSION, migrations
from recollect.adapters.stores.postgres.sessions import encode_chunk
from recollect.adapters.stores.postgres.store import space_uuid
from recollect.core.values.batch import Batch
from recollect.core.values.recall import AskedVector, CandidateQuery
from recollect.core.values.segment import Vector, VectorSet
from recollect.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreUnavailable
from recollect_bench.postgres_server import APP_PASSWORD, PostgresServer, TestDatabase

NO_SCHEMA = "run `recollect db migrate URL`"


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


def first_version(database: TestDatabase) -> None:
    """The database as version 1 made it."""
    (first,) = (step for step in migrations() if step.version == 1)
    with psycopg.connect(database.admin_url) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(first.sql.encode())
        connection.execute("INSERT INTO recollect.schema_versions VALUES (1, 'pre', 'schema', 0)")


def write_as_first_version(database: TestDatabase, session: str) -> None:
    """A session as code of version 1 writes it, which knows the column `about`."""
    space = space_uuid("one")
    given = session_write(segments(2), turn=1)
    with psycopg.connect(database.admin_url) as connection:
        connection.execute("SELECT set_config('app.space_id', %s, true)", (str(space),))
        for table in ("spaces (space_id, name) VALUES (%s, 'one')", "counters VALUES (%s)"):
            into = f"INSERT INTO recollect.{table} ON CONFLICT DO NOTHING"
            connection.execute(into.encode(), (space,))
        connection.execute(
            "INSERT INTO recollect.sessions (space_id, session, turn, path_length, about, state)"
            " VALUES (%s, %s, 1, 2, '{}', %s)",
            (space, session, given.state),
        )
        connection.execute(
            "INSERT INTO recollect.session_paths VALUES (%s, %s, 0, %s)",
            (space, session, encode_chunk(given.path, given.ids)),
        )


def test_a_database_of_version_1_becomes_this_one_in_two_phases(server: PostgresServer) -> None:
    """Between them code of both versions writes; after the second only this one can."""
    database = server.new_database()
    first_version(database)
    write_as_first_version(database, "before")

    async def turns(*sessions: str) -> list[int]:
        store = await PostgresStore.open(database.app_url, space="one")
        found = [await store.session(one) for one in sessions]
        assert (await store.check()).problems == ()
        await store.close()
        return [one.turn for one in found if one is not None]

    async def write(session: str) -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        given = session_write(segments(2), turn=2)
        await store.write(Batch(at=START, session=replace(given, session=session)))
        await store.close()

    async def run() -> None:
        assert "recollect db migrate" in await opening(database.admin_url)
        ran = await migrate(database.admin_url, phase="pre", app_password=APP_PASSWORD)
        assert ran == (
            "002_pre_quotes_and_expiry",
            "003_pre_tenants",
            "004_pre_upkeep",
            "005_pre_half_vectors",
            "006_pre_signs_when_needed",
            "007_pre_outcomes",
            "008_pre_no_tags",
        )
        await write("ours")
        await asyncio.to_thread(write_as_first_version, database, "theirs")
        assert await turns("before", "ours", "theirs") == [1, 2, 1]
        assert await migrate(database.admin_url) == (
            "002_post_quotes",
            "005_post_half_vectors",
            "008_post_no_tags",
        )
        await write("after")
        assert await turns("before", "ours", "theirs", "after") == [1, 2, 1, 2]
        assert await migrate(database.admin_url) == ()

    asyncio.run(run())
    with pytest.raises(psycopg.errors.UndefinedColumn):
        write_as_first_version(database, "too late")


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

    async def run() -> None:
        assert "recollect db migrate" in await opening(database.app_url)
        await migrate(database.admin_url, app_password=APP_PASSWORD)
        store = await PostgresStore.open(database.app_url, space="mine")
        stored = await store.segments([new.segment.id for new in batch.segments])
        assert [one.segment for one in stored] == [new.segment for new in batch.segments]
        assert await store.facts() == batch.facts
        assert (await store.check()).problems == ()
        assert (await store.write(full_batch(2))).stored
        await store.close()

    asyncio.run(run())


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


def test_a_database_of_an_earlier_development_version_is_refused_and_left_as_it_is(
    database: TestDatabase,
) -> None:
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
        assert "made by an earlier development version: make it anew" in told
        assert "recollect export" in told
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute(recorded.encode()).fetchall() == earlier


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
import recollect.adapters.stores.postgres as package
from recollect.errors import MissingExtra
try:
    package.PostgresStore
except MissingExtra as error:
    assert error.extra == "postgres", error
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "recollect[postgres]" in done.stdout


def test_vectors_of_before_become_halves_but_for_imported_ones(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was imported is exported as it came; what an embedder made is rounded, and found.

    A number that 16 bits round to zero leaves the signs of before as they should be.
    """
    monkeypatch.setattr(stored_vectors, "EXACT_NUMBERS", 0)  # so that signs are kept
    made = segments(3, session="made")
    imported = tuple(
        replace(new, segment=replace(new.segment, origin="file vectors.bin:1"))
        for new in segments(2, first=50, session="imported")
    )
    rough = {
        new.segment.id: np.linspace(0.1, 0.9, 8) + at for at, new in enumerate(made + imported)
    }

    rough[made[0].segment.id][3] = 1e-9
    rough[made[1].segment.id][2] = -1e-9

    def set_of(all_of: Any) -> VectorSet:
        vectors = tuple(
            Vector(segment=new.segment.id, ordinal=0,
                   values=rough[new.segment.id].astype("<f4").tobytes())
            for new in all_of
        )  # fmt: skip
        return VectorSet(embedder="e", dimensions=8, vectors=vectors)

    kept = "SELECT count(v), count(half) FROM recollect.vectors"

    def count(*statements: str) -> Any:
        with psycopg.connect(database.admin_url, autocommit=True) as connection:
            done = [connection.execute(statement.encode()) for statement in statements]
            return done[-1].fetchone() if done[-1].description else None

    async def run() -> None:
        # as while code of both versions runs: the second phase has not run
        count(
            "ALTER TABLE recollect.embedders ALTER COLUMN half SET DEFAULT false",
            "DELETE FROM recollect.schema_versions WHERE version = 5 AND phase = 'post'",
        )
        store = await PostgresStore.open(database.app_url, space="one")
        every = made + imported
        await store.write(Batch(at=START, segments=every, vectors=(set_of(every),)))
        assert count(kept) == (5, 0)
        assert await migrate(database.admin_url) == ("005_post_half_vectors",)
        assert count(kept) == (2, 3)
        for vector in await store.vectors("e"):
            stored = np.frombuffer(vector.values, "<f4")
            exact = rough[vector.segment].astype("<f4")
            alike = np.array_equal(stored, exact)
            assert alike == (vector.segment in {new.segment.id for new in imported})
            assert np.allclose(stored, exact, rtol=1e-3, atol=1e-6)
        asked = AskedVector(embedder="e", values=rough[made[1].segment.id].astype("<f4").tobytes())
        found = await store.candidates(CandidateQuery(vectors=(asked,), vector_limit=2))
        nearest = max(found.passages, key=lambda one: one.similarities[0] or 0.0)
        assert nearest.similarities[0] == pytest.approx(1.0, abs=1e-6)
        assert (await store.check()).problems == ()
        count(
            "UPDATE recollect.vectors SET half = NULL,"
            " v = '[1, 1, 1, -1, 1, 1, 1, 1]' WHERE passage_no = 2"
        )
        (problem,) = (await store.check()).problems
        assert problem == "1 vectors do not have the signs they should"
        await store.close()

    asyncio.run(run())
