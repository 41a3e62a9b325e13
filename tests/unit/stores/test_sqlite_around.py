"""Surroundings and withdrawing on SQLite: damaged rows, writes in between, bytes."""

from pathlib import Path

import apsw
from tests.store_contract.examples import START, conversation, ids, segment, segments, vectors

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import ForgetOrder

MARK = "xylophonequartz"


def _raw(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def _batch(new: tuple[NewSegment, ...]) -> Batch:
    return Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))


async def test_damaged_neighbour_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    new = conversation([f"door number {number}" for number in range(5)], tool="look")
    async with await SQLiteStore.open(path, space="mine") as store:
        await store.write(_batch(new))
    with apsw.Connection(str(path)) as database:
        torn = "UPDATE segment SET tool = x'ff80' WHERE id = ?"
        database.execute(torn, (ids(new)[1],)).fetchall()
    query = CandidateQuery(words=("door",))
    async with await SQLiteStore.open(path, space="mine") as store:
        found = await store.around(ids(new)[2:3], query)
        assert {one.segment for one in found.passages} == set(ids(new)) - set(ids(new)[1:3])
        everything = (await store.candidates(query)).passages
        assert {one.segment for one in everything} == set(ids(new)) - {ids(new)[1]}


async def test_withdrawn_is_in_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    said = segment(f"the {MARK} is in {MARK}land, and {'so on ' * 2_000}", session="file")
    rest = segments(300)
    async with await SQLiteStore.open(path, space="mine") as store:
        await store.write(_batch((said, *rest)))
        (values, *_) = (
            one.values for one in await store.vectors("e") if one.segment == said.segment.id
        )
        assert MARK.encode() in _raw(path)
        assert values in _raw(path)
        assert await store.withdraw([said.segment.id]) == 1
        assert MARK.encode() not in _raw(path)
        assert values[:24] not in _raw(path)
        await store.write(_batch((said,)))
        assert MARK.encode() in _raw(path)
        # Withdrawn again and then forgotten, it is gone for good.
        await store.withdraw([said.segment.id])
        order = ForgetOrder(at=START, message_ids=(said.segment.message_id,))
        await store.forget(order)
        assert (await store.write(_batch((said,)))).forgotten == (said.segment.id,)
        assert MARK.encode() not in _raw(path)
        assert (await store.check()).problems == ()
