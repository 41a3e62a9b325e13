"""`recollect memory embed`: what it says while it works, and when the embedder is no good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.store_contract import examples

from recollect.adapters.embedders.hash import HashEmbedder
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring import models as wiring
from recollect.cli.memory import indexing as embedding
from recollect.core.ports import Embedder
from recollect.core.values.batch import Batch
from recollect.errors import EmbedderError


class Miscounting(HashEmbedder):
    """Gives one vector too few."""

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        return tuple(await super().embed(texts))[1:]


async def _filled(file: Path, segments: int) -> None:
    store = await SQLiteStore.open(file, space="default")
    await store.write(Batch(at=1.0, segments=examples.segments(segments)))
    await store.close()


def _embed(file: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What it printed, and what it said beside."""
    chosen = wiring.Embedders(used=(embedder,))
    monkeypatch.setattr(wiring, "choose_embedders", lambda _: chosen)
    done = CliRunner().invoke(embedding.embed, ["--store", str(file)])
    if done.exception is not None:
        raise done.exception
    return done.stdout, done.stderr


def test_an_embedder_that_is_no_good_is_told_as_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_filled(tmp_path / "m.db", 3))
    with pytest.raises(EmbedderError, match=r"another number.*recall\.embedder"):
        _embed(tmp_path / "m.db", Miscounting(), monkeypatch)


def test_much_to_do_is_said_at_the_start_where_nobody_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_filled(tmp_path / "m.db", 1_001))
    printed, said = _embed(tmp_path / "m.db", HashEmbedder(), monkeypatch)
    assert "about 1,001 passages" in said
    assert "1,001 vectors made" in printed
    assert "passages" not in printed
    _, again = _embed(tmp_path / "m.db", HashEmbedder(), monkeypatch)
    assert again == "", "nothing is left to do"
