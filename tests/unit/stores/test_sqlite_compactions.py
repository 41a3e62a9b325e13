"""Compactions in the file of a space: long lists of quotes are cheap."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import apsw
from tests.store_contract.examples import (
    START,
    message_id,
    segments,
    session_write,
)

from recollect.stores.sqlite import SQLiteStore
from recollect.values.batch import Batch
from recollect.values.message import MessageId
from recollect.values.upkeep import ForgetOrder


def test_long_list_of_quotes_is_written_when_it_changes(tmp_path: Path) -> None:
    """A turn that changes nothing of 5,000 identities writes no page of them."""
    path = tmp_path / "space.db"
    about = tuple(message_id(f"covered {number}") for number in range(5_000))

    async def grown(store: SQLiteStore, turn: int, quoted: tuple[MessageId, ...]) -> int:
        log = path.with_name(f"{path.name}-wal")
        before = await asyncio.to_thread(lambda: log.stat().st_size)
        write = session_write(segments(2), turn=turn, about=quoted)
        written = await store.write(Batch(at=START, session=replace(write, path_from=0)))
        assert not written.session_stale
        return await asyncio.to_thread(lambda: log.stat().st_size) - before

    async def run() -> tuple[int, ...]:
        async with await SQLiteStore.open(path, space="mine") as store:
            await store.forget(ForgetOrder(at=START, message_ids=(message_id("somebody"),)))
            sizes = [
                await grown(store, 1, about),
                await grown(store, 2, about),
                await grown(store, 3, (*about, message_id("one more"))),
                await grown(store, 4, ()),
            ]
            await store.scrub()
            return tuple(sizes)

    whole, same, longer, _ = asyncio.run(run())
    assert 80_000 < whole < 200_000, "16 bytes an identity"
    assert same < 20_000
    assert longer < 40_000
    rows = apsw.Connection(str(path)).execute("SELECT count(*) FROM quoted").fetchall()
    assert rows == [(0,)]
