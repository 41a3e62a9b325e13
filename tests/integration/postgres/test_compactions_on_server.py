"""Compactions on PostgreSQL: a database of the version before gets them; long lists are cheap."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest

from recollect.errors import StoreError
from recollect.formats.stored_records import join_state
from recollect.stores.postgres import PostgresFleet, PostgresStore, migrate
from recollect.stores.postgres.schema import migrations
from recollect.stores.postgres.sessions import encode_chunk
from recollect.stores.postgres.store import space_uuid
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    compaction,
    message_id,
    segments,
    session_write,
)
from recollect.values.batch import Batch
from recollect.values.edit import Cut
from recollect.values.reason import NOT_RUN
from recollect.values.upkeep import ForgetOrder
from recollect_bench.postgres_server import APP_PASSWORD, PostgresServer, TestDatabase


def _first_version(database: TestDatabase) -> None:
    """The database as the version before made it, with a state that quotes two messages."""
    new = segments(2)
    cut = Cut(anchor=new[1].segment.key, summary="marker", stage="compact", reason=NOT_RUN, turn=1)
    write = session_write(new, turn=1, edits=(cut,))
    space = space_uuid("one")
    about = [new[0].segment.message_id, message_id("another")]
    with psycopg.connect(database.admin_url) as connection:
        connection.execute("CREATE EXTENSION vector")
        for one in migrations():
            if one.version == 1:
                connection.execute(one.sql.encode())
                connection.execute(
                    "INSERT INTO recollect.schema_versions VALUES (%s, %s, %s, 0)",
                    (one.version, one.phase, one.name),
                )
        connection.execute("SELECT set_config('app.space_id', %s, true)", (str(space),))
        connection.execute("INSERT INTO recollect.spaces VALUES (%s, 'one', NULL)", (space,))
        connection.execute("INSERT INTO recollect.counters (space_id) VALUES (%s)", (space,))
        connection.execute(
            "INSERT INTO recollect.sessions VALUES (%s, %s, 1, 2, %s, %s)",
            (space, SESSION, about, write.state),
        )
        connection.execute(
            "INSERT INTO recollect.session_paths VALUES (%s, %s, 0, %s)",
            (space, SESSION, encode_chunk(write.path, write.ids)),
        )


def test_database_of_the_version_before_gets_compactions(server: PostgresServer) -> None:
    database = server.new_database()
    _first_version(database)

    async def run() -> None:
        with pytest.raises(StoreError, match="recollect memory migrate"):
            await PostgresFleet.open(database.admin_url)
        assert await migrate(database.admin_url, app_password=APP_PASSWORD) == (
            "002_pre_compactions",
            "003_pre_facts",
            "004_pre_model_use",
        )
        store = await PostgresStore.open(database.app_url, space="one")
        await store.write(Batch(at=START, compactions=(compaction(1),)))
        assert await store.compactions(SESSION) == (compaction(1),)
        order = ForgetOrder(at=START, message_ids=(message_id("another"),))
        assert (await store.forget(order)).session_states == 1
        stored = await store.session(SESSION)
        assert stored is not None
        assert join_state(stored.state, (), ()).edits == ()
        assert (await store.check()).problems == ()
        await store.close()

    asyncio.run(run())


def test_long_list_of_quotes_is_compact_and_written_when_it_changes(
    database: TestDatabase,
) -> None:
    about = tuple(message_id(f"covered {number}") for number in range(5_000))

    def versions() -> list[str]:
        with psycopg.connect(database.admin_url) as connection:
            rows = connection.execute(
                "SELECT xmin::text FROM recollect.session_quotes ORDER BY chunk"
            ).fetchall()
        return [row[0] for row in rows]

    def size() -> int:
        with psycopg.connect(database.admin_url) as connection:
            row = connection.execute(
                "SELECT sum(pg_column_size(q.*)) FROM recollect.session_quotes AS q"
            ).fetchone()
        assert row is not None
        return int(row[0])

    async def run() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        write = session_write(segments(2), turn=1, about=about)
        await store.write(Batch(at=START, session=write))
        assert 80_000 < await asyncio.to_thread(size) < 90_000
        first = await asyncio.to_thread(versions)
        assert len(first) == 20
        await store.write(Batch(at=START, session=replace(write, turn=2)))
        assert await asyncio.to_thread(versions) == first
        longer = replace(write, turn=3, about=(*about, message_id("one more")))
        await store.write(Batch(at=START, session=longer))
        assert (await asyncio.to_thread(versions))[:19] == first[:19]
        await store.write(Batch(at=START, session=replace(write, turn=4, about=())))
        assert await asyncio.to_thread(versions) == []
        await store.close()

    asyncio.run(run())


def test_another_space_sees_no_compaction(database: TestDatabase) -> None:
    async def run() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        await store.write(Batch(at=START, compactions=(compaction(1, (message_id("a"),)),)))
        await store.close()

    asyncio.run(run())
    with psycopg.connect(database.app_url) as connection:
        for space, rows in ((space_uuid("one"), 1), (space_uuid("two"), 0)):
            connection.execute("SELECT set_config('app.space_id', %s, true)", (str(space),))
            found = connection.execute("SELECT FROM recollect.compactions").fetchall()
            assert len(found) == rows
