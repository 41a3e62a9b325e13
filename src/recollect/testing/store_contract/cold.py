"""What holds for cold segments: out of the index, never out of the archive, and back again."""

from __future__ import annotations

from dataclasses import replace

from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    START,
    asked,
    ids,
    segment,
    segments,
    vector,
    vectors,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch
from recollect.values.recall import CandidateQuery
from recollect.values.segment import NewSegment


async def _filled(store: Store, count: int = 40) -> tuple[Model, tuple[NewSegment, ...]]:
    new = segments(count, words=10)
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model = Model()
    model.write(batch)
    await store.write(batch)
    return model, new


def _queries(new: tuple[NewSegment, ...]) -> tuple[CandidateQuery, ...]:
    words = tuple(dict.fromkeys((*new[2].passages[0].words, *new[-2].passages[0].words)))
    near = asked("q", embedder="e", like=vector("e" + new[1].segment.text))
    warm = CandidateQuery(words=words, vectors=(near,), lexical_limit=8, vector_limit=8)
    return warm, replace(warm, cold=True), replace(warm, cold=True, said_before=START + 12.5)


async def _hold(store: Store, model: Model, new: tuple[NewSegment, ...]) -> None:
    for query in _queries(new):
        found = await store.candidates(query)
        model.expect(query, found)
        if query.cold:
            assert bool(found.cold_searched) == bool(model.cold)
    page = await store.page()
    assert [row.segment for row in page] == [one.segment for one in new]
    assert {row.segment.id for row in page if row.cold} == model.cold
    assert {row.segment.id for row in await store.segments(ids(new)) if row.cold} == model.cold
    assert (await store.stats()).cold == len(model.cold)


async def eviction_by_number_takes_the_oldest(spaces: Spaces) -> None:
    """Beyond the number the oldest go cold: out of candidates and statistics, not of pages."""
    store = await spaces.open()
    model, new = await _filled(store)
    for limit, went in ((100, 0), (40, 0), (25, 15), (25, 0), (24, 1), (0, 24)):
        assert await store.evict(max_segments=limit, said_before=None) == went
        model.evict_to(limit)
        await _hold(store, model, new)


async def eviction_by_time_takes_what_was_said_before(spaces: Spaces) -> None:
    """What was said before a time goes cold; neither bound is no eviction."""
    store = await spaces.open()
    model, new = await _filled(store)
    assert await store.evict(max_segments=None, said_before=None) == 0
    await _hold(store, model, new)
    assert await store.evict(max_segments=None, said_before=START + 9.5) == 10
    model.cold |= set(ids(new[:10]))
    await _hold(store, model, new)
    assert await store.evict(max_segments=26, said_before=START + 11.5) == 4
    model.cold |= set(ids(new[:14]))
    await _hold(store, model, new)


async def oldest_is_what_was_said_first(spaces: Spaces) -> None:
    """What was said first goes first, whenever it arrived; noise does not count and stays."""
    store = await spaces.open()
    model = Model()
    noise = segment("hm", session="noise", noise="filler", said_at=START - 5_000)
    late = segments(6, session="late", said_at=START + 1_000)
    early = segments(6, first=50, session="early", said_at=START)
    for new in ((noise, *late), early):
        batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
        model.write(batch)
        await store.write(batch)
    assert await store.evict(max_segments=8, said_before=None) == model.evict_to(8) == 4
    assert model.cold == set(ids(early[:4]))
    await _hold(store, model, (noise, *late, *early))
    assert await store.evict(max_segments=None, said_before=START + 4.5) == 1
    model.evict_before(START + 4.5)
    await _hold(store, model, (noise, *late, *early))


async def warming_brings_back_with_vectors(spaces: Spaces) -> None:
    """Cold segments that are warmed are found again by words and by vector."""
    store = await spaces.open()
    model, new = await _filled(store)
    before = await store.vectors("e")
    await store.evict(max_segments=10, said_before=None)
    model.evict_to(10)
    assert await store.vectors("e") == before
    assert (await store.stats()).vectors["e"] == len(before)
    back = ids(new[1:5])
    assert await store.warm([*back, new[-1].segment.id]) == 4
    model.cold -= set(back)
    await _hold(store, model, new)
    assert await store.warm(back) == 0
    store = await spaces.reopen(store)
    await _hold(store, model, new)


async def cold_segments_stay_known(spaces: Spaces) -> None:
    """Writing a cold segment again changes nothing; new ones arrive warm behind it."""
    store = await spaces.open()
    model, new = await _filled(store, 12)
    await store.evict(max_segments=4, said_before=None)
    model.evict_to(4)
    written = await store.write(Batch(at=START, segments=new))
    assert (written.stored, written.known) == ((), ids(new))
    await _hold(store, model, new)
    more = segments(3, first=900, session="more")
    batch = Batch(at=START, segments=more, vectors=(vectors(more, embedder="e"),))
    model.write(batch)
    await store.write(batch)
    await _hold(store, model, (*new, *more))


async def cold_passages_wait_for_no_vector(spaces: Spaces) -> None:
    """Only warm passages ask for vectors; a vector that comes late for a cold one is kept."""
    store = await spaces.open()
    new = segments(8)
    await store.write(Batch(at=START, segments=new))
    await store.evict(max_segments=3, said_before=None)
    waiting = await store.unembedded("e", limit=100)
    assert {one.segment for one in waiting} == set(ids(new[5:]))
    await store.write(Batch(at=START, vectors=(vectors(new, embedder="e"),)))
    assert await store.unembedded("e", limit=100) == ()
    assert len(await store.vectors("e")) == 8
    await store.warm(ids(new))
    assert await store.unembedded("e", limit=100) == ()
