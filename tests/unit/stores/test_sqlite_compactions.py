"""Compactions in the file of a space: an older file gets them; long lists are cheap."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from recollect.formats.stored_records import join_state
from recollect.stores.sqlite import SQLiteStore, connection
from recollect.stores.sqlite.connection import BusyWait, connect, space_file
from recollect.stores.sqlite.rows import pack_ids
from recollect.stores.sqlite.schema import MIGRATIONS
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    compaction,
    message_id,
    segments,
    session_write,
)
from recollect.values.batch import Batch
from recollect.values.edit import Cut
from recollect.values.message import MessageId
from recollect.values.reason import NOT_RUN
from recollect.values.upkeep import ForgetOrder

KEY = b"k" * 32


def _older_file(path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file as the version before wrote it, with a state that quotes two messages."""
    new = segments(2)
    cut = Cut(anchor=new[1].segment.key, summary="marker", stage="compact", reason=NOT_RUN, turn=1)
    write = session_write(new, turn=1, edits=(cut,))
    with monkeypatch.context() as patched:
        patched.setattr(connection, "MIGRATIONS", MIGRATIONS[:3])
        file = space_file(path, space="mine", key=key, create=True, busy_seconds=1.0)
        older = connect(file, BusyWait(1.0))
    about = pack_ids([new[0].segment.message_id, message_id("another")])
    packed = pack_ids(write.path), pack_ids(write.ids)
    older.execute(
        "INSERT INTO session (number, name, turn, length, about, state) VALUES (1, ?, 1, 2, ?, ?)",
        (SESSION, about, write.state),
    ).fetchall()
    older.execute("INSERT INTO path VALUES (1, 0, 2, ?, ?)", packed).fetchall()
    older.execute("INSERT INTO gone_segment (id) VALUES (?)", ("0" * 32,)).fetchall()
    older.close()


@pytest.mark.parametrize("key", [None, KEY])
def test_older_file_gets_compactions_and_keeps_its_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bytes | None
) -> None:
    path = tmp_path / "space.db"
    _older_file(path, key, monkeypatch)

    async def run() -> None:
        async with await SQLiteStore.open(path, space="mine", key=key) as store:
            assert (await store.check()).problems == ()
            stored = await store.session(SESSION)
            assert stored is not None
            assert len(join_state(stored.state, (), ()).edits) == 1
            await store.write(Batch(at=START, compactions=(compaction(1),)))
            assert await store.compactions(SESSION) == (compaction(1),)
            order = ForgetOrder(at=START, message_ids=(message_id("another"),))
            assert (await store.forget(order)).session_states == 1
            stored = await store.session(SESSION)
            assert stored is not None
            assert join_state(stored.state, (), ()).edits == ()
            assert (await store.check()).problems == ()

    asyncio.run(run())


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
