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


class Static(HashEmbedder):
    """Its questions are searched without names, which a turn asks the store for."""

    kind = "static"  # type: ignore[misc]


TURNS = 4
MEASURED = 3
"""The last so many: by then the session is known and the embedder is loaded."""


def traffic_of(engine: Engine) -> Traffic:
    assert engine.parts.reader is not None
    store = engine.parts.reader.archive._store
    assert isinstance(store, postgres_store.PostgresStore)
    return replace(store.fleet.pool.traffic)


def request(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "claude-sonnet-4-5", "messages": messages}).encode()


async def converse(url: str) -> list[Traffic]:
    """What each measured turn cost on a node, which loads the session and releases it again."""
    costs: list[Traffic] = []
    settings = {"recall.scope": "space", "jobs.in_process": False}
    async with open_memory(
        space="traffic", store=url, embedders=[Static()], settings=settings
    ) as engine:
        told = [f"Ship {n} has a crane of {n * 7} tons; book berth {n} for it." for n in range(30)]
        await engine.ingest("told", [{"role": "user", "content": text} for text in told])
        for turn in range(TURNS):
            said = [{"role": "user", "content": "Good morning."}]
            await engine.prepare(f"asks {turn}", request(said))
            await engine.settle()
            engine.parts.sessions.abandon(f"asks {turn}")
            said.append({"role": "assistant", "content": "Good morning."})
            question = f"Which berth has ship {turn} with the crane?"
            said.append({"role": "user", "content": question})
            before = traffic_of(engine)
            context = await engine.prepare(f"asks {turn}", request(said))
            await engine.settle()
            engine.parts.sessions.abandon(f"asks {turn}")
            costs.append(traffic_of(engine).since(before))
            assert context.report.recalled, context.report
    return costs[-MEASURED:]


def test_a_turn_costs_little(database: TestDatabase) -> None:
    for cost in asyncio.run(converse(database.app_url)):
        assert cost.transactions <= 3, cost
        assert cost.round_trips <= 6, cost
        assert cost.statements <= 23, cost


async def test_all_memories_of_a_process_share_one_pool(database: TestDatabase) -> None:
    stores = [
        await open_store(database.app_url, space=f"space {n}", pool_size=3) for n in range(20)
    ]
    fleets = {store.fleet for store in stores if isinstance(store, postgres_store.PostgresStore)}
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
    pool: Pool = store.fleet.pool
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
