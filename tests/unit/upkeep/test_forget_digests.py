"""A digest goes with a fact that it was made of, and facts are forgotten by what they are about."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.store_contract import examples

from recollect.adapters.wiring import open_store
from recollect.core.upkeep.forget import forget
from recollect.core.values.batch import Batch
from recollect.core.values.fact import FactId, fact_identity
from recollect.core.values.upkeep import ForgetOrder


def test_whoever_asks_for_a_fact_that_rested_on_it_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_store(str(tmp_path / "m.db"), space="default")
        new = examples.conversation(["The crane is red."])
        fact = examples.fact("red", sources=examples.ids(new), subject="Nightfall crane")
        await store.write(Batch(at=1.0, segments=new, facts=(fact,)))
        await forget(store, [], ForgetOrder(at=2.0, segments=examples.ids(new)), now=2.0)
        mark = fact_identity(FactId("red"))
        assert await store.tombstoned([mark]) == {mark}
        await store.close()

    asyncio.run(run())


def test_a_text_is_looked_for_in_what_a_fact_is_about(tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_store(str(tmp_path / "m.db"), space="default")
        fact = examples.fact("a", content="it is red", subject="nightfall crane")
        await store.write(Batch(at=1.0, facts=(fact,)))
        await forget(store, [], ForgetOrder(at=2.0, matching="Nightfall"), now=2.0)
        assert await store.facts(superseded=True) == ()
        await store.close()

    asyncio.run(run())
