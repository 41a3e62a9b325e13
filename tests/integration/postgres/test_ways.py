"""Searching by several vectors at once, around segments, and what was withdrawn."""

import asyncio
from dataclasses import replace

import pytest
from tests.store_contract import examples

from recollect.adapters.stores.postgres.link import Link
from recollect.adapters.stores.postgres.store import PostgresFleet, PostgresStore
from recollect.core.search.bm25 import Bm25Index
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import NewSegment, SegmentId
from recollect_bench.postgres_server import TestDatabase


async def filled(store: PostgresStore, count: int) -> tuple[NewSegment, ...]:
    new = examples.segments(count, words=6)
    sets = tuple(
        examples.vectors(new, embedder=name, dimensions=dimensions)
        for name, dimensions in (("a", 64), ("b", 48))
    )
    await store.write(Batch(at=1.0, segments=new, vectors=sets))
    return new


def asking(new: tuple[NewSegment, ...], number: int = 0) -> CandidateQuery:
    return CandidateQuery(
        words=tuple(dict.fromkeys(new[number].passages[0].words)),
        vectors=(
            examples.asked(f"q{number}", embedder="a", dimensions=64),
            examples.asked(f"q{number}", embedder="b", dimensions=48),
        ),
        lexical_limit=10,
        vector_limit=10,
    )


@pytest.mark.parametrize("size", [1, 2])
async def test_many_searches_get_by_with_few_connections(database: TestDatabase, size: int) -> None:
    """No search holds a connection while it waits for another one."""
    fleet = await PostgresFleet.open(database.app_url, pool_size=size)
    store = await fleet.space("one")
    new = await filled(store, 60)
    shown = frozenset(one.segment.id for one in new[:20])
    async with asyncio.timeout(20.0):
        found, without, near = await asyncio.gather(
            asyncio.gather(*(store.candidates(asking(new, place)) for place in range(30))),
            asyncio.gather(
                *(store.candidates(replace(asking(new), leave_out=shown)) for _ in range(10))
            ),
            asyncio.gather(*(store.around([one.segment.id], asking(new)) for one in new[:20])),
        )
    assert all(one.passages for one in (*found, *without))
    assert all(one.passages for one in near)
    await fleet.close()


async def test_a_search_that_fails_leaves_its_connections_in_order(database: TestDatabase) -> None:
    fleet = await PostgresFleet.open(database.app_url, pool_size=3)
    store = await fleet.space("one")
    new = await filled(store, 40)
    good = asking(new)
    short = examples.asked("q", embedder="b", dimensions=47)
    for _ in range(5):
        with pytest.raises(
            Exception, match="'b' has 48 dimensions in this store, but the query's vector has 47"
        ):
            await store.candidates(replace(good, vectors=(good.vectors[0], short)))
        with pytest.raises(
            Exception, match="'b' has 48 dimensions in this store, but the query's vector has 47"
        ):
            await store.around([new[0].segment.id], replace(good, vectors=(short,)))
    assert len((await store.candidates(good)).passages) >= 10
    await fleet.close()


async def test_a_search_cancelled_before_it_has_its_connection_leaves_none_open(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = await PostgresFleet.open(database.app_url, pool_size=1)
    store = await fleet.space("one")
    new = await filled(store, 20)
    (link,) = fleet.pool._idle
    with monkeypatch.context() as patched:
        patched.setattr(Link, "is_usable", lambda _: asyncio.sleep(60.0))
        search = asyncio.create_task(store.candidates(asking(new)))
        await asyncio.sleep(0.05)
        search.cancel()
        await asyncio.gather(search, return_exceptions=True)
    assert link.connection.closed
    assert (await store.candidates(asking(new))).passages
    await fleet.close()


async def test_withdrawn_words_leave_packed_runs_and_come_back(database: TestDatabase) -> None:
    said = [[f"w{(number * step) % 90}" for step in range(1, 12)] for number in range(1_200)]
    new = [examples.worded(words, number=number) for number, words in enumerate(said)]
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(Batch(at=1.0, segments=tuple(new[:900]), vectors=(
        examples.vectors(new[:900], embedder="a", dimensions=64),)))  # fmt: skip
    assert await store.pack(least=1)
    await store.write(Batch(at=1.0, segments=tuple(new[900:])))
    gone = [*range(200, 500), *range(1_000, 1_050)]
    kept = [number for number in range(1_200) if number not in set(gone)]
    ids = [new[number].segment.id for number in gone]
    assert await store.withdraw([*ids, ids[0], SegmentId("f" * 32)]) == len(gone)
    await _as_bm25(store, [said[number] for number in kept])
    assert (await store.check()).problems == ()
    assert dict((await store.stats()).vectors) == {"a": 600}
    while await store.pack(least=1):
        pass
    await _as_bm25(store, [said[number] for number in kept])
    back = tuple(new[number] for number in gone)
    assert (await store.write(Batch(at=3.0, segments=back))).stored == tuple(ids)
    await _as_bm25(store, said)
    assert (await store.check()).problems == ()
    assert await store.withdraw([]) == 0
    await fleet.close()


async def _as_bm25(store: PostgresStore, said: list[list[str]]) -> None:
    index = Bm25Index.build(said)
    for words in (("w3", "w50"), ("w0", "w7", "w89")):
        answer = await store.candidates(CandidateQuery(words=words, lexical_limit=2_000))
        assert answer.documents == index.documents
        assert answer.document_frequencies == {
            word: index.document_frequencies.get(word, 0) for word in words
        }
        assert len(answer.passages) == sum(not set(words).isdisjoint(one) for one in said)
