"""Compactions in the file of a space: long lists of quotes are cheap."""

import zlib
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store_contract.examples import SESSION, START, message_id

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.stores.sqlite.columns import pack_body, unpack_body
from recollect.core.values.batch import Batch
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.upkeep import ForgetOrder


async def test_lists_that_compactions_have_in_common_are_stored_once(tmp_path: Path) -> None:
    """100 compactions, each of which covers 50 messages more: 4 MB of ids if each had its own."""
    path = tmp_path / "space.db"
    ids = tuple(message_id(f"covered {number}") for number in range(5_000))
    covered = [ids[: 50 * number] for number in range(1, 101)]
    async with await SQLiteStore.open(path, space="mine") as store:
        for number, about in enumerate(covered, start=1):
            record = CompactionRecord(
                session=SESSION, number=number, at=START, body=b"{}", about=about
            )
            await store.write(Batch(at=START, compactions=(record,)))
        stored = await store.compactions(SESSION)
        assert [record.about for record in stored] == covered
        size = (await store.stats()).bytes_on_disk
        assert (await store.check()).problems == ()
        await store.forget(ForgetOrder(at=START + 1, message_ids=(ids[2_600],)))
        stored = await store.compactions(SESSION)
        assert [record.about for record in stored] == covered[:52]
        await store.forget(ForgetOrder(at=START + 2, message_ids=(ids[0],)))
        assert await store.compactions(SESSION) == ()
        assert (size or 0) < 1_500_000
    rows = apsw.Connection(str(path)).execute("SELECT count(*) FROM id_chunk").fetchall()
    assert rows == [(0,)], "chunks that no list names are removed"


async def test_a_torn_list_of_ids_is_reported_and_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    ids = tuple(message_id(f"covered {number}") for number in range(100))
    async with await SQLiteStore.open(path, space="mine") as store:
        for number in (1, 2):
            record = CompactionRecord(
                session=SESSION, number=number, at=START, body=b"{}", about=ids[: 50 * number]
            )
            await store.write(Batch(at=START, compactions=(record,)))
    with apsw.Connection(str(path)) as db:
        # a count of 268 million chunks, and a chunk of which one byte changed
        db.execute("UPDATE compaction SET about = X'10' || substr(about, 2) WHERE number = 1")
        db.execute("UPDATE id_chunk SET ids = X'00' || substr(ids, 2)")
    db.close()
    async with await SQLiteStore.open(path, space="mine") as store:
        assert await store.compactions(SESSION) == ()
        assert any("compaction" in problem for problem in (await store.check()).problems)
        await store.forget(ForgetOrder(at=START + 1, message_ids=(message_id("else"),)))


@given(st.binary(max_size=400) | st.binary(max_size=60).map(lambda some: b"\x01Z" + some))
def test_any_bytes_come_back(body: bytes) -> None:
    assert unpack_body(pack_body(body)) == body
    assert unpack_body(pack_body(body * 9)) == body * 9


def test_a_message_takes_less_than_packed_by_itself() -> None:
    body = b'{"role":"user","content":[{"type":"text","text":"How does the quay crane work?"}]}'
    assert len(pack_body(body)) < 0.7 * len(zlib.compress(body))


def test_what_an_earlier_version_wrote_is_read_as_it_is() -> None:
    body = b'{"turn":1,"lines":[]}' * 40
    assert unpack_body(body) == body


def test_a_torn_body_is_told() -> None:
    packed = pack_body(b"cargo and crane and winch over the quay " * 9)
    for torn in (packed[:-3], packed[:9], packed[:5] + b"x" + packed[6:]):
        with pytest.raises(ValueError, match="incomplete"):
            unpack_body(torn)
