"""PostgreSQL and SQLite choose the same passages for a query, and say the same of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store_contract import examples

from recollect.adapters.stores.postgres import PostgresFleet, vectors
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.ports import Store
from recollect.core.values.batch import Batch
from recollect.core.values.recall import AskedVector, Candidate, CandidateQuery
from recollect.core.values.segment import NewSegment, SegmentId, Vector, VectorSet
from recollect_bench.postgres_server import TestDatabase

DIMENSIONS = {"few": 48, "many": 384}
NEAR_ENOUGH = 1e-6


def counted(count: int, dimensions: int, seed: int) -> Any:
    """Vectors as hashing makes them: a few equal steps, so that many are equally near."""
    chance = np.random.default_rng(seed)
    steps = np.zeros((count, dimensions))
    for row in steps:
        for place in chance.choice(dimensions, 8, replace=False):
            row[place] += chance.choice((-1.0, 1.0))
    return (steps / np.linalg.norm(steps, axis=1, keepdims=True)).astype("<f4")


def archive() -> tuple[NewSegment, ...]:
    """Two sessions and a memory file; some messages are noise, some long."""
    made: list[NewSegment] = []
    for number, session in enumerate(("s0", "s1", "file:notes.md")):
        texts = [
            "\n".join(examples.text(900 * number + 7 * place + part, words=60) for part in range(6))
            if place % 9 == 4
            else examples.text(900 * number + place, words=12)
            for place in range(80)
        ]
        made.extend(examples.conversation(texts, session=session))
        noise = examples.segment(
            f"noise {number}", session=session, parent=made[-1].segment.key, noise="tool"
        )
        made.append(noise)
    return tuple(made)


def batches(new: tuple[NewSegment, ...]) -> list[Batch]:
    """What is written: of the vectors of one embedder a part is missing."""
    places = [(one.segment.id, ordinal) for one in new for ordinal in range(len(one.passages))]
    sets = []
    for embedder, dimensions in DIMENSIONS.items():
        values = counted(len(places), dimensions, dimensions)
        sets.append(
            VectorSet(
                embedder=embedder,
                dimensions=dimensions,
                vectors=tuple(
                    Vector(segment=segment, ordinal=ordinal, values=values[at].tobytes())
                    for at, (segment, ordinal) in enumerate(places)
                    if embedder == "few" or at % 3
                ),
            )
        )
    return [Batch(at=1.0, segments=new), Batch(at=2.0, vectors=tuple(sets))]


def queries(new: tuple[NewSegment, ...]) -> list[CandidateQuery]:
    words = [one.passages[0].words for one in new if one.passages]
    made = []
    for number in range(12):
        asked = tuple(
            AskedVector(
                embedder=embedder, values=counted(1, dimensions, 10_000 + number)[0].tobytes()
            )
            for embedder, dimensions in DIMENSIONS.items()
        )
        made.append(
            CandidateQuery(
                words=tuple(dict.fromkeys(words[number * 17 % len(words)][:8])),
                vectors=asked,
                lexical_limit=15,
                vector_limit=15 + number,
            )
        )
    shown = frozenset(one.segment.id for one in new[20:70])
    made += [replace(one, leave_out=shown) for one in made[:4]]
    made += [replace(one, session="s1", leave_out=shown) for one in made[4:6]]
    made += [replace(one, session="s1", with_files=True) for one in (*made[:4], *made[12:14])]
    made += [replace(one, vectors=one.vectors[::-1]) for one in made[:2]]
    return made


def both(
    database: TestDatabase, folder: Path, run: Callable[[Store, Store], Awaitable[None]]
) -> None:
    """Write the same to both, then run."""

    async def opened() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        postgres = await fleet.space("one")
        sqlite = await SQLiteStore.open(folder / "one.db", space="one")
        try:
            for store in (postgres, sqlite):
                for batch in batches(archive()):
                    await store.write(batch)
            await run(postgres, sqlite)
        finally:
            await sqlite.close()
            await fleet.close()

    asyncio.run(opened())


def same(first: tuple[Candidate, ...], second: tuple[Candidate, ...]) -> None:
    one, other = ({(p.segment, p.ordinal): p for p in given} for given in (first, second))
    assert one.keys() == other.keys()
    for place, passage in one.items():
        mine, theirs = asdict(passage), asdict(other[place])
        for left, right in zip(mine.pop("similarities"), theirs.pop("similarities"), strict=True):
            assert (left is None) == (right is None)
            assert left is None or abs(left - right) <= NEAR_ENOUGH
        assert mine == theirs


@pytest.mark.parametrize("way", ["exactly", "by signs"])
def test_the_same_candidates(
    database: TestDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "by signs":  # fewer than are compared exactly after: signs leave nothing out
        monkeypatch.setattr(vectors, "EXACT_NUMBERS", 0)

    async def run(postgres: Store, sqlite: Store) -> None:
        for query in queries(archive()):
            mine, theirs = await postgres.candidates(query), await sqlite.candidates(query)
            same(mine.passages, theirs.passages)
            assert replace(mine, passages=()) == replace(theirs, passages=())
            assert not query.leave_out.intersection(one.segment for one in mine.passages)

    both(database, tmp_path, run)


def test_the_same_surroundings(database: TestDatabase, tmp_path: Path) -> None:
    new = archive()
    ids: list[SegmentId] = [one.segment.id for one in new[::5]]

    async def run(postgres: Store, sqlite: Store) -> None:
        for query in queries(new)[-8:]:
            mine = await postgres.around(ids, query, reach=3, passages_each=2)
            theirs = await sqlite.around(ids, query, reach=3, passages_each=2)
            assert set(mine.neighbours) == set(theirs.neighbours)
            assert len(mine.neighbours) == len(theirs.neighbours) > len(ids)
            same(mine.passages, theirs.passages)

    both(database, tmp_path, run)


@pytest.mark.parametrize("values", [0.0, float("nan"), float("inf")])
def test_a_vector_without_a_direction_finds_nothing_and_hinders_nobody(
    database: TestDatabase, tmp_path: Path, values: float
) -> None:
    async def run(postgres: Store, sqlite: Store) -> None:
        query = queries(archive())[0]
        few, many = query.vectors
        bad = replace(few, values=np.full(DIMENSIONS["few"], values, "<f4").tobytes())
        asked = replace(query, vectors=(bad, many))
        mine = await postgres.candidates(asked)
        same(mine.passages, (await sqlite.candidates(asked)).passages)
        assert {one.similarities[0] for one in mine.passages} == {None}
        assert any(one.similarities[1] is not None for one in mine.passages)
        ids = [mine.passages[0].segment]
        same(
            (await postgres.around(ids, asked)).passages, (await sqlite.around(ids, asked)).passages
        )

    both(database, tmp_path, run)
