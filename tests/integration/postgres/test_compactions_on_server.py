"""Compactions on PostgreSQL: long lists are cheap, and spaces are apart."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
from tests.store_contract.examples import (
    START,
    compaction,
    message_id,
    segments,
    session_write,
)

from recollect.adapters.stores.postgres import PostgresStore
from recollect.adapters.stores.postgres.store import space_uuid
from recollect.core.values.batch import Batch
from recollect_bench.postgres_server import TestDatabase


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
