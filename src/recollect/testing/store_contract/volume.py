"""What holds for much at once: batches of an import, answers over thousands of passages."""

from __future__ import annotations

from recollect.testing.store_contract.examples import (
    EMBEDDER,
    START,
    asked,
    ids,
    segments,
    vector,
    vectors,
    worded,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch, NewJob
from recollect.values.recall import CandidateQuery
from recollect.values.segment import Vector, VectorSet
from recollect.values.upkeep import ForgetOrder

_MANY = 2_000


async def large_batch_is_taken(spaces: Spaces) -> None:
    """A batch of two thousand segments is written, found in, evicted and forgotten at once."""
    store = await spaces.open()
    new = segments(_MANY, words=6)
    batch = Batch(
        at=START,
        segments=new,
        vectors=(vectors(new),),
        jobs=tuple(NewJob(kind="work", key=f"k{number}") for number in range(_MANY)),
    )
    model = Model()
    assert model.write(batch) == (await store.write(batch)).stored
    records = await store.jobs(limit=_MANY * 2)  # the store may have jobs of its own too
    assert sum(record.kind == "work" for record in records) == _MANY
    near = asked("q", like=vector(EMBEDDER + new[77].segment.text))
    words = tuple(dict.fromkeys((*new[5].passages[0].words, *new[1_500].passages[0].words)))
    query = CandidateQuery(words=words, vectors=(near,))
    model.expect(query, await store.candidates(query))
    assert len(await store.unembedded("other", limit=_MANY * 2)) == _MANY
    assert len(await store.vectors(EMBEDDER, limit=_MANY * 2)) == _MANY
    assert await store.evict(max_segments=500, said_before=None) == _MANY - 500
    model.evict_to(500)
    for cold in (False, True):
        query = CandidateQuery(words=words, vectors=(near,), cold=cold)
        model.expect(query, await store.candidates(query))
    assert await store.warm(ids(new)) == _MANY - 500
    model.cold.clear()
    gone = ids(new[:1_900])
    model.forget(gone)
    done = await store.forget(ForgetOrder(at=START, segments=gone))
    assert len(done.segments) == done.passages == done.vectors == 1_900
    model.expect(query, await store.candidates(query))
    again = await store.write(batch)
    assert (len(again.known), len(again.forgotten)) == (100, 1_900)


async def many_small_writes_add_up(spaces: Spaces) -> None:
    """A session that grows message by message answers like one that was written at once."""
    store = await spaces.open()
    model = Model()
    new = segments(150, words=15)
    for number, one in enumerate(new):
        batch = Batch(at=START, segments=(one,), vectors=(vectors((one,)),))
        model.write(batch)
        await store.write(batch)
        if number % 30 == 29:
            words = tuple(dict.fromkeys(new[number // 2].passages[0].words))
            near = asked("q")
            query = CandidateQuery(words=words, vectors=(near,), lexical_limit=9, vector_limit=9)
            model.expect(query, await store.candidates(query))
    assert len(await store.page()) == 150


async def ties_are_broken_by_id(spaces: Spaces) -> None:
    """Of more equals than are asked for, those with the lowest segment ids are handed over."""
    store = await spaces.open()
    new = tuple(worded(["same"], number=number) for number in range(120))
    equal = VectorSet(
        embedder="e",
        dimensions=256,
        vectors=tuple(
            Vector(segment=one.segment.id, ordinal=0, values=vector("same")) for one in new
        ),
    )
    await store.write(Batch(at=START, segments=new, vectors=(equal,)))
    first = sorted(ids(new))[:10]
    near = asked("q", embedder="e")
    by_vector = await store.candidates(CandidateQuery(vectors=(near,), vector_limit=10))
    assert sorted(one.segment for one in by_vector.passages) == first
    by_words = await store.candidates(CandidateQuery(words=("same",), lexical_limit=10))
    assert sorted(one.segment for one in by_words.passages) == first
