"""Forgetting and the embedding cache: emptied, or named as what could not be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from tests.store_contract import examples

from recollect.adapters.embedders.cache import CachedEmbedder
from recollect.adapters.embedders.local import HashEmbedder
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring import models as wiring
from recollect.core.upkeep.forget import forget
from recollect.core.values.batch import Batch
from recollect.core.values.upkeep import Certificate, ForgetOrder
from recollect.system.config.places import embedding_cache_file

AT = 1_700_000_000.0
TEXT = "the words that go"


async def _cache(store: Path) -> tuple[Path, bytes]:
    """A cache with one vector in it: where it is, and the vector."""
    file = embedding_cache_file(store, "t")
    embedder = CachedEmbedder(HashEmbedder(), file, max_entries=10, key=b"k")
    (vector,) = await embedder.embed([TEXT])
    await embedder.close()
    return file, vector


async def _forgotten(path: Path) -> Certificate:
    store = await SQLiteStore.open(path, space="t")
    try:
        await store.write(Batch(at=AT, segments=examples.segments(2)))
        order = ForgetOrder(at=AT, said_before=AT * 2)
        return await forget(store, [], order, now=AT, cascades=(wiring.forget_cached,))
    finally:
        await store.close()


def _held(file: Path, statements: Sequence[str]) -> apsw.Connection:
    holder = apsw.Connection(str(file))
    for statement in statements:
        holder.execute(statement).fetchall()
    return holder


def test_the_cache_is_emptied(tmp_path: Path) -> None:
    file, vector = asyncio.run(_cache(tmp_path / "m.db"))
    assert vector in file.read_bytes()
    certificate = asyncio.run(_forgotten(tmp_path / "m.db"))
    assert certificate.counts["embedding caches emptied"] == 1
    assert not any("embedding cache" in line for line in certificate.cannot)
    assert vector not in file.read_bytes()


@pytest.mark.parametrize(
    "statements",
    [("BEGIN", "SELECT * FROM vectors"), ("BEGIN IMMEDIATE",), ("BEGIN EXCLUSIVE",)],
    ids=["read", "written", "locked"],
)
def test_a_cache_in_use_is_named_in_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: Sequence[str]
) -> None:
    """The store has forgotten by then: an error would hide that, and give no certificate."""
    monkeypatch.setattr(wiring, "CACHE_WAIT_SECONDS", 0.05)
    file, _ = asyncio.run(_cache(tmp_path / "m.db"))
    holder = _held(file, statements)
    try:
        certificate = asyncio.run(_forgotten(tmp_path / "m.db"))
    finally:
        holder.close(True)
    assert certificate.counts["segments"] == 2
    assert "embedding caches emptied" not in certificate.counts
    (line,) = [line for line in certificate.cannot if "embedding cache" in line]
    assert file.name in line
    assert "delete it" in line
