"""What a turn costs on PostgreSQL: transactions, statements, waits, by the pool's counter."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from recollect.adapters.embedders.hash import HashEmbedder
from recollect.adapters.stores.postgres import store as postgres_store
from recollect.adapters.stores.postgres.pool import Pool, Traffic
from recollect.adapters.wiring import open_memory, open_store
from recollect.core.engine import Engine
from recollect.core.values.segment import Vector, rounded_vector
from recollect.system.config import load_settings
from recollect_bench.postgres_server import TestDatabase

TURNS = 12
MEASURED = 6
"""The last so many: by then the session is known and the embedder is loaded."""


def traffic_of(engine: Engine) -> Traffic:
    assert engine._stored is not None
    store = engine._stored.archive._store
    assert isinstance(store, postgres_store.PostgresStore)
    return replace(store._fleet.traffic)


async def quiet(engine: Engine) -> None:
    """Until what runs beside the turns has come to rest by itself."""
    await engine.settle()
    jobs = engine._jobs
    assert jobs is not None
    assert await jobs.rest(10.0)


def request(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "claude-sonnet-4-5", "messages": messages}).encode()


async def converse(url: str) -> list[tuple[Traffic, Traffic]]:
    """For each measured turn what `prepare` cost, and what all of the turn did."""
    costs: list[tuple[Traffic, Traffic]] = []
    messages: list[dict[str, Any]] = []
    async with open_memory(space="traffic", store=url, embedders=[HashEmbedder()]) as engine:
        for turn in range(TURNS):
            messages.append({"role": "user", "content": said_at(turn)})
            before = traffic_of(engine) if turn else Traffic()
            context = await engine.prepare("s", request(messages))
            path = traffic_of(engine).since(before)
            reply = {"role": "assistant", "content": f"Berth {turn} is booked for the crane."}
            await engine.observe("s", reply)
            messages.append(reply)
            await quiet(engine)
            costs.append((path, traffic_of(engine).since(before)))
            assert context.report.lines
    return costs[-MEASURED:]


def said_at(turn: int) -> str:
    if turn % 3 == 2:
        return f"Which berth did we book for the crane of ship {turn - 2}?"
    return f"Ship {turn} has a crane of {turn * 7} tons; book berth {turn} for it, please."


def test_a_turn_costs_little(database: TestDatabase) -> None:
    for path, whole in asyncio.run(converse(database.app_url)):
        assert path.transactions <= 1, path
        assert path.round_trips <= 8, path
        assert whole.transactions <= 3, whole
        assert whole.round_trips <= 15, whole


async def replace_blocks(url: str) -> list[Traffic]:
    """What `prepare` cost in turns whose recalled block had to take the place of earlier ones."""
    costs: list[Traffic] = []
    told = [
        f"The {thing} of ship {ship} is painted {thing}-{ship * 37}. " * 6
        for ship in range(20)
        for thing in ("hull", "crane", "anchor", "funnel")
    ]
    settings = load_settings(arguments={"recall.scope": "space"}).settings
    messages: list[dict[str, Any]] = []
    async with open_memory(
        space="blocks", store=url, embedders=[HashEmbedder()], settings=settings
    ) as engine:
        for text in told:
            await engine.ingest("old", [json.dumps({"role": "user", "content": text}).encode()])
        for ship in range(12):
            asked = f"How is the crane of ship {ship} painted, and how are its hull and anchor?"
            messages.append({"role": "user", "content": asked})
            before = traffic_of(engine) if ship else Traffic()
            context = await engine.prepare("s", request(messages), window_tokens=16_000)
            moment = context.report.moment
            if ship and moment is not None and moment.kind == "room":
                recalls = [line for line in context.report.lines if line.stage == "recall"]
                assert [line.outcome for line in recalls] == ["done", "done"]
                costs.append(traffic_of(engine).since(before))
            reply = {"role": "assistant", "content": f"As it was told of ship {ship}."}
            await engine.observe("s", reply)
            messages.append(reply)
            await quiet(engine)
    return costs


def test_a_turn_that_replaces_its_blocks_reads_little_twice(database: TestDatabase) -> None:
    """It writes what leaves the view, and asks the same question again for the view without it."""
    costs = asyncio.run(replace_blocks(database.app_url))
    assert costs
    for path in costs:
        assert path.transactions <= 3, path
        assert path.round_trips <= 17, path


def test_vectors_that_come_with_a_message_stand_in_half_the_room(database: TestDatabase) -> None:
    asyncio.run(converse(database.app_url))

    async def written() -> tuple[Vector, ...]:
        store = await open_store(database.app_url, space="traffic")
        try:
            return await store.vectors(HashEmbedder().name)
        finally:
            await store.close()

    vectors = asyncio.run(written())
    assert len(vectors) >= 2 * MEASURED
    assert all(rounded_vector(vector.values) == vector.values for vector in vectors)
    with psycopg.connect(database.admin_url) as connection:
        (whole,) = connection.execute(
            "SELECT count(*) FROM recollect.vectors WHERE v IS NOT NULL"
        ).fetchone() or (None,)
    assert whole == 0


def test_all_memories_of_a_process_share_one_pool(database: TestDatabase) -> None:
    async def run() -> None:
        stores = [
            await open_store(database.app_url, space=f"space {n}", pool_size=3) for n in range(20)
        ]
        fleets = {
            store._fleet for store in stores if isinstance(store, postgres_store.PostgresStore)
        }
        (fleet,) = fleets
        await asyncio.gather(*(store.stats() for store in stores))
        assert 1 <= len(fleet._pool._idle) <= 3
        for store in stores[1:]:
            await store.close()
        assert (await stores[0].stats()).segments == 0
        await stores[0].close()
        assert fleet._pool._idle == []
        again = await open_store(database.app_url, space="space 0")
        assert (await again.stats()).segments == 0
        await again.close()

    asyncio.run(run())


def test_connections_that_nobody_uses_are_closed(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.adapters.stores.postgres.pool.IDLE_SECONDS", 0.3)

    async def run() -> None:
        store = await open_store(database.app_url, space="idle")
        assert isinstance(store, postgres_store.PostgresStore)
        pool: Pool = store._fleet._pool
        await asyncio.gather(*(store.stats() for _ in range(4)))
        assert pool._idle
        await asyncio.sleep(0.2)
        await store.stats()  # this link is not old yet when the others are
        await asyncio.sleep(0.2)
        assert len(pool._idle) == 1
        await asyncio.sleep(0.4)
        assert pool._idle == []
        assert (await store.stats()).segments == 0
        await store.close()

    asyncio.run(run())
