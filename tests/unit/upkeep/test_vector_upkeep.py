"""Other embedders are looked for only where their vectors can stand in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.store_contract import examples

from recollect.adapters.embedders.hash import HashEmbedder
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.boundary import SystemClock
from recollect.core.engine.archive import DurableArchive
from recollect.core.ports import Embedder, Store
from recollect.core.upkeep.chores import VectorUpkeep, embed_next
from recollect.core.values.batch import Batch
from recollect.core.values.recall import EmbedderKind


class Another:
    """Hashed vectors under another name, as those of another model."""

    name = "another-model"
    kind: EmbedderKind = "static"
    ready = True

    def __init__(self) -> None:
        self._hashed = HashEmbedder()
        self.dimensions = self._hashed.dimensions

    async def load(self) -> None:
        """It is always ready."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        return await self._hashed.embed(texts)


class Hand:
    """What is at hand, and how often it was looked for."""

    def __init__(self, *embedders: Embedder) -> None:
        self.embedders = embedders
        self.looked = 0

    def __call__(self) -> Sequence[Embedder]:
        self.looked += 1
        return self.embedders


def test_others_are_looked_for_only_where_vectors_of_them_are_needed(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SQLiteStore.open(tmp_path / "m.db", space="t")

        async def opened() -> Store:
            return store

        archive = DurableArchive(opened, None)
        clock = SystemClock()
        used, other = HashEmbedder(), Another()
        hand = Hand(other)
        upkeep = VectorUpkeep(archive, [used], clock, others=hand)
        await store.write(Batch(at=1.0, segments=examples.segments(3)))

        await upkeep.look()
        assert tuple(map(str, upkeep.notes)) == ("hash vectors are being computed: 0 of about 3",)
        assert (hand.looked, upkeep.meanwhile) == (0, ()), "there are no vectors of others"

        batch, _ = await embed_next(store, other, clock)
        await store.write(batch)
        await upkeep.look()
        assert (hand.looked, upkeep.meanwhile) == (1, (other,))

        batch, _ = await embed_next(store, used, clock)
        await store.write(batch)
        await upkeep.look()
        assert (hand.looked, upkeep.meanwhile) == (1, ()), "nothing is missing"
        assert not upkeep.notes
        await archive.close()

    asyncio.run(scenario())
