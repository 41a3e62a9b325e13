"""Surroundings and withdrawing on SQLite: damaged rows, writes in between, bytes."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from pathlib import Path

import apsw
from tests.store_contract.examples import (
    START,
    asked,
    conversation,
    ids,
    segment,
    segments,
    vectors,
)
from tests.store_contract.model import ReferenceModel

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.batch import Batch
from recollect.core.values.recall import Candidate, CandidateQuery
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import ForgetOrder

MARK = "xylophonequartz"


def _raw(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def _batch(new: tuple[NewSegment, ...]) -> Batch:
    return Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))


def test_what_is_written_in_between_is_seen(tmp_path: Path) -> None:
    """A recall asks twice with one query; whatever is written in between counts."""
    new = segments(60)
    words = tuple(dict.fromkeys(word for one in new[::9] for word in one.passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q", embedder="e"),))
    model = ReferenceModel()

    async def run() -> None:
        path = tmp_path / "space.db"
        async with (
            await SQLiteStore.open(path, space="mine") as store,
            await SQLiteStore.open(path, space="mine") as other,
        ):

            async def hold() -> None:
                named = tuple(model.segments)[::3]
                model.expect_around(named, query, await store.around(named, query))
                wider = replace(query, leave_out=frozenset(ids(new)[20:45]))
                model.expect_around(named, wider, await store.around(named, wider))
                for one in (query, wider, replace(query, cold=True)):
                    model.expect(one, await store.candidates(one))

            for first in (0, 10, 30):
                await store.write(_batch(new[first : first + 20]))
                model.write(_batch(new[first : first + 20]))
                await hold()
            await other.evict(max_segments=35, said_before=None)
            model.evict_to(35)
            await hold()
            await other.withdraw(ids(new)[30:40:2], at=START)
            model.withdraw(ids(new)[30:40:2])
            await hold()
            await other.forget(ForgetOrder(at=START, segments=ids(new)[41:43]))
            model.forget(ids(new)[41:43])
            await hold()
            again = replace(new[48].passages[0], words=("renewed", *words[:2]))
            await other.replace_passages({new[48].segment.id: (again,)}, at=START)
            model.segments[new[48].segment.id] = replace(new[48], passages=(again,))
            await hold()

    asyncio.run(run())


def test_description_is_a_candidate_like_any_other(tmp_path: Path) -> None:
    """Made column by column, it is equal to one that was made by its name and its fields."""
    new = conversation(["the red door", "a green door"], tool="look")

    async def run() -> None:
        async with await SQLiteStore.open(tmp_path / "space.db", space="mine") as store:
            await store.write(_batch(new))
            query = CandidateQuery(words=("door",), vectors=(asked("q", embedder="e"),))
            found = (await store.candidates(query)).passages
        assert len(found) == 2
        for one in found:
            held = {field.name: getattr(one, field.name) for field in fields(Candidate)}
            assert Candidate(**held) == one
            assert replace(one) == one
            assert one.tool == "look"
            assert one.cold is False
            assert type(one.similarities[0]) is float
            assert type(one.counts["door"]) is int
            assert "door" not in repr(one)

    asyncio.run(run())


def test_damaged_neighbour_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    new = conversation([f"door number {number}" for number in range(5)], tool="look")

    async def run() -> None:
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

    asyncio.run(run())


def test_withdrawn_is_in_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    said = segment(f"the {MARK} is in {MARK}land, and {'so on ' * 2_000}", session="file")
    rest = segments(300)

    async def run() -> None:
        async with await SQLiteStore.open(path, space="mine") as store:
            await store.write(_batch((said, *rest)))
            (values, *_) = (
                one.values
                for one in await store.vectors("e", limit=10_000)
                if one.segment == said.segment.id
            )
            assert MARK.encode() in _raw(path)
            assert values in _raw(path)
            assert await store.withdraw([said.segment.id], at=START) == 1
            assert MARK.encode() not in _raw(path)
            assert values[:24] not in _raw(path)
            await store.write(_batch((said,)))
            assert MARK.encode() in _raw(path)
            # Withdrawn again and then forgotten, it is gone for good.
            await store.withdraw([said.segment.id], at=START)
            order = ForgetOrder(at=START, message_ids=(said.segment.message_id,))
            await store.forget(order)
            assert (await store.write(_batch((said,)))).forgotten == (said.segment.id,)
            assert MARK.encode() not in _raw(path)
            assert (await store.check()).problems == ()

    asyncio.run(run())
