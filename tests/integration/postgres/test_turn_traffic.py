"""What a turn costs on PostgreSQL: transactions, statements, waits, by the pool's counter."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from recollect.adapters.embedders.local import HashEmbedder
from recollect.adapters.stores.postgres import store as postgres_store
from recollect.adapters.stores.postgres.link import Traffic
from recollect.adapters.stores.postgres.pool import Pool
from recollect.adapters.wiring import open_memory, open_store
from recollect.core.engine import Engine
from recollect_bench.postgres_server import TestDatabase

TURNS = 12
MEASURED = 6
"""The last so many: by then the session is known and the embedder is loaded."""


def traffic_of(engine: Engine) -> Traffic:
    assert engine._stored is not None
    store = engine._stored.archive._store
    assert isinstance(store, postgres_store.PostgresStore)
    return replace(store._fleet.pool.traffic)


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
        assert path.round_trips <= 6, path
        assert path.statements <= 27, path
        assert whole.transactions <= 3, whole
        assert whole.round_trips <= 10, whole


async def test_all_memories_of_a_process_share_one_pool(database: TestDatabase) -> None:
    stores = [
        await open_store(database.app_url, space=f"space {n}", pool_size=3) for n in range(20)
    ]
    fleets = {store._fleet for store in stores if isinstance(store, postgres_store.PostgresStore)}
    (fleet,) = fleets
    await asyncio.gather(*(store.stats() for store in stores))
    assert 1 <= len(fleet.pool._idle) <= 3
    for store in stores[1:]:
        await store.close()
    assert (await stores[0].stats()).segments == 0
    await stores[0].close()
    assert fleet.pool._idle == []
    again = await open_store(database.app_url, space="space 0")
    assert (await again.stats()).segments == 0
    await again.close()


async def test_connections_that_nobody_uses_are_closed(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.adapters.stores.postgres.pool.IDLE_SECONDS", 0.3)
    store = await open_store(database.app_url, space="idle")
    assert isinstance(store, postgres_store.PostgresStore)
    pool: Pool = store._fleet.pool
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
