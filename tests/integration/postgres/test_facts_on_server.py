"""Facts on PostgreSQL: rows of older code are taken in, and both engines find the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import psycopg

from recollect.stores.postgres import PostgresStore, migrate
from recollect.stores.postgres.schema import migrations
from recollect.stores.postgres.store import space_uuid
from recollect.stores.sqlite import SQLiteStore
from recollect.testing.store_contract.examples import (
    START,
    asked,
    fact,
    fact_vectors,
    ids,
    segments,
    text,
)
from recollect.values.batch import Batch
from recollect.values.fact import Fact, FactId
from recollect.values.recall import FactQuery
from recollect.values.upkeep import ForgetOrder
from recollect_bench.postgres_server import APP_PASSWORD, PostgresServer, TestDatabase

OLD = (
    fact("old", content="the port was 1", superseded_by=FactId("new")),
    fact("new", content="the port is 2", at=START + 1, foreign='1\t{"id":"new"}'),
)


def _write_as_before(url: str, *facts: Fact) -> None:
    """Facts as the version before wrote them."""
    space = space_uuid("one")
    with psycopg.connect(url) as connection:
        connection.execute("SELECT set_config('app.space_id', %s, true)", (str(space),))
        for one in facts:
            connection.execute(
                "INSERT INTO recollect.facts (space_id, id, type, content, context, at,"
                " superseded_by, sources, trust, words, foreign_line)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (space, one.id, one.type, one.content, one.context, one.at, one.superseded_by,
                 list(one.sources), one.trust, list(one.words), one.foreign),
            )  # fmt: skip


def _second_version(database: TestDatabase) -> None:
    space = space_uuid("one")
    with psycopg.connect(database.admin_url) as connection:
        connection.execute("CREATE EXTENSION vector")
        for one in migrations():
            if one.version <= 2:
                connection.execute(one.sql.encode())
                connection.execute(
                    "INSERT INTO recollect.schema_versions VALUES (%s, %s, %s, 0)",
                    (one.version, one.phase, one.name),
                )
        connection.execute("SELECT set_config('app.space_id', %s, true)", (str(space),))
        connection.execute("INSERT INTO recollect.spaces VALUES (%s, 'one', NULL)", (space,))
        connection.execute("INSERT INTO recollect.counters (space_id) VALUES (%s)", (space,))


def test_facts_of_the_version_before_are_kept_and_found(server: PostgresServer) -> None:
    database = server.new_database()
    _second_version(database)
    _write_as_before(database.admin_url, *OLD)

    async def run() -> None:
        ran = await migrate(database.admin_url, app_password=APP_PASSWORD)
        assert ran == ("003_pre_facts", "004_pre_model_use")
        store = await PostgresStore.open(database.app_url, space="one")
        assert await store.facts(superseded=True) == OLD
        assert (await store.check()).problems == ()
        assert [one.fact for one in await store.unembedded_facts("e", limit=9)] == ["new"]
        query = FactQuery(words=("port",))
        found = await store.fact_candidates(query)
        assert [one.fact for one in found.facts] == [OLD[1]]
        assert (found.documents, found.document_frequencies) == (1, {"port": 1})
        await store.close()

    asyncio.run(run())


def test_facts_that_older_code_writes_meanwhile_are_taken_in(database: TestDatabase) -> None:
    """It runs beside this one until it is replaced."""

    async def run() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        await store.write(Batch(at=START, facts=(fact("first", content="port 0"),)))
        new = segments(1)
        late = [replace(one, sources=ids(new)) for one in OLD]
        await asyncio.to_thread(_write_as_before, database.app_url, *late)
        vectors = (fact_vectors((OLD[1],), embedder="e", dimensions=4),)
        await store.write(Batch(at=START, segments=new, fact_vectors=vectors))
        query = FactQuery(words=("port",), vectors=(asked("x", embedder="e", dimensions=4),))
        found = await store.fact_candidates(query)
        assert {one.fact.id: one.similarities != (None,) for one in found.facts} == {
            "first": False, "new": True,
        }  # fmt: skip
        again = fact("again", content="port 9", sources=ids(new))
        await asyncio.to_thread(_write_as_before, database.app_url, again)
        done = await store.forget(ForgetOrder(at=START, segments=ids(new)))
        assert done.facts == ("again", "new", "old")
        assert (await store.check()).problems == ()
        await store.close()

    asyncio.run(run())


def _close_as_before(url: str, id_: str, by: str) -> None:
    """A fact closed as the version before did it, which knows no index of facts."""
    space = space_uuid("one")
    with psycopg.connect(url) as connection:
        connection.execute("SELECT set_config('app.space_id', %s, true)", (str(space),))
        connection.execute(
            "UPDATE recollect.facts SET superseded_by = %s WHERE space_id = %s AND id = %s",
            (by, space, id_),
        )


def test_facts_that_older_code_closes_are_found_no_more(database: TestDatabase) -> None:
    """Neither by words nor by vectors; the index is mended with the next fact it writes."""
    first = tuple(fact(name, content=f"port {name}") for name in ("one", "two"))
    query = FactQuery(words=("port",), vectors=(asked("x", embedder="e", dimensions=4),))

    async def found(store: PostgresStore) -> tuple[list[str], int, int]:
        held = await store.fact_candidates(query)
        ids_ = [str(one.fact.id) for one in held.facts]
        return ids_, held.documents, held.document_frequencies["port"]

    async def run() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        vectors = (fact_vectors(first, embedder="e", dimensions=4),)
        await store.write(Batch(at=START, facts=first, fact_vectors=vectors))
        await asyncio.to_thread(_close_as_before, database.app_url, "one", "three")
        assert await found(store) == (["two"], 1, 1)
        three = fact("three", content="port three")
        await asyncio.to_thread(_write_as_before, database.app_url, three)
        assert await found(store) == (["three", "two"], 2, 2)
        assert (await store.check()).problems == ()
        await asyncio.to_thread(_close_as_before, database.app_url, "two", "four")
        four = fact("four", content="port four")
        await asyncio.to_thread(_write_as_before, database.app_url, four)
        await store.write(Batch(at=START, facts=(fact("five", content="port five"),)))
        assert (await store.check()).problems == ()
        assert await found(store) == (["five", "four", "three"], 3, 3)
        await store.close()

    asyncio.run(run())


def test_a_fact_of_older_code_that_cannot_be_read_hides_no_other(database: TestDatabase) -> None:
    async def run() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        await store.write(Batch(at=START, facts=(fact("first", content="port 0"),)))
        await asyncio.to_thread(_write_as_before, database.app_url, *OLD)
        with psycopg.connect(database.admin_url) as connection:
            connection.execute("UPDATE recollect.facts SET evidence = '[5]' WHERE id = 'new'")
        found = await store.fact_candidates(FactQuery(words=("port",)))
        assert [one.fact.id for one in found.facts] == ["first"]
        assert any("fact" in problem for problem in (await store.check()).problems)
        await store.close()

    asyncio.run(run())


def test_both_engines_find_the_same(database: TestDatabase, tmp_path: Path) -> None:
    """A thousand facts with many ties: the same candidates, in the same order, as near."""
    facts = tuple(
        fact(
            f"{number * 7919 % 1009:04}",
            content=text(number % 300, words=6),
            session=("a", "b", None)[number % 3],
            pinned=number % 250 == 0,
        )
        for number in range(1_000)
    )
    vectors = (fact_vectors(facts, embedder="e", dimensions=16),)
    batch = Batch(at=START, facts=facts, fact_vectors=vectors)

    async def run() -> None:
        server = await PostgresStore.open(database.app_url, space="one")
        async with await SQLiteStore.open(tmp_path / "one.db", space="one") as file:
            for store in (server, file):
                await store.write(batch)
            for number in range(12):
                query = FactQuery(
                    words=facts[number].words[1:5],
                    vectors=(asked(f"q{number}", embedder="e", dimensions=16),),
                    session=("a", None)[number % 2],
                    limit=3 + number,
                )
                assert await server.fact_candidates(query) == await file.fact_candidates(query)
        await server.close()

    asyncio.run(run())
