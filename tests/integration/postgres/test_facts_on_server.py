"""Facts on PostgreSQL: what cannot be read hides nothing, and both engines find the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
from tests.store_contract.examples import (
    START,
    asked,
    fact,
    fact_vectors,
    text,
)

from recollect.adapters.stores.postgres import PostgresStore
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.batch import Batch
from recollect.core.values.recall import FactQuery
from recollect_bench.postgres_server import TestDatabase


def test_a_fact_that_cannot_be_read_hides_no_other(database: TestDatabase) -> None:
    async def run() -> None:
        store = await PostgresStore.open(database.app_url, space="one")
        facts = (fact("first", content="port 0"), fact("new", content="port 2"))
        await store.write(Batch(at=START, facts=facts))
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
