"""What holds for passages and their vectors: indexed anew, embedded, exported."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recollect.errors import StoreError
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
from recollect.values.segment import NewPassage, NewSegment, SegmentId, Vector, VectorSet


def _long() -> NewSegment:
    return segment("\n".join(f"line{number} " + "alpha beta " * 38 for number in range(5)))


async def _ask(store: Store, model: Model, *words: str) -> None:
    near = asked("q", embedder="e")
    query = CandidateQuery(words=words, vectors=(near,), lexical_limit=30, vector_limit=30)
    model.expect(query, await store.candidates(query))


async def passages_can_be_replaced(spaces: Spaces) -> None:
    """Indexed anew, a segment is found by its new words alone; vectors of same spans stay."""
    store = await spaces.open()
    long, others = _long(), segments(4, session="others")
    batch = Batch(
        at=START, segments=(long, *others), vectors=(vectors((long, *others), embedder="e"),)
    )
    await store.write(batch)
    old = long.passages
    assert len(old) >= 5
    new = (
        replace(old[0], words=("renewed", "renewed", "alpha")),
        NewPassage(start=old[1].start, end=old[2].end, words=("joined", "beta")),
    )
    await store.replace_passages({long.segment.id: new}, at=START + 5)
    model = Model()
    model.write(replace(batch, segments=(replace(long, passages=new), *others)))
    del model.vectors["e"][long.segment.id, 1]
    await _ask(store, model, "alpha", "beta", "renewed", "joined", "line3", "line0")
    assert [(one.start, one.end) for one in await store.passages(long.segment.id)] == [
        (one.start, one.end) for one in new
    ]
    waiting = await store.unembedded("e", limit=10)
    assert [(one.segment, one.ordinal) for one in waiting] == [(long.segment.id, 1)]
    assert waiting[0].text == long.segment.text[new[1].start : new[1].end]
    stored = {(one.segment, one.ordinal): one.values for one in await store.vectors("e")}
    assert stored == model.vectors["e"]
    (kept,) = await store.segments([long.segment.id])
    assert kept.segment == long.segment


async def passages_can_be_replaced_by_none(spaces: Spaces) -> None:
    """A segment without passages is in the archive and no longer in the index."""
    store = await spaces.open()
    new = segments(3)
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    await store.write(batch)
    await store.replace_passages({new[0].segment.id: (), SegmentId("0" * 32): ()}, at=START)
    model = Model()
    model.write(replace(batch, segments=(replace(new[0], passages=()), *new[1:])))
    await _ask(store, model, *dict.fromkeys(new[0].passages[0].words))
    assert len(await store.vectors("e")) == 2
    assert len(await store.page()) == 3


async def cold_segment_indexed_anew_stays_cold(spaces: Spaces) -> None:
    """Replacing the passages of a cold segment leaves it cold, and counts when it comes back."""
    store = await spaces.open()
    new = segments(6)
    await store.write(Batch(at=START, segments=new))
    await store.evict(max_segments=4, said_before=None)
    changed = (replace(new[0].passages[0], words=("fresh", "words")),)
    await store.replace_passages({new[0].segment.id: changed}, at=START)
    model = Model()
    model.write(Batch(at=START, segments=(replace(new[0], passages=changed), *new[1:])))
    model.evict_to(4)
    await _ask(store, model, "fresh", *dict.fromkeys(new[0].passages[0].words))
    await store.warm(ids(new))
    model.cold.clear()
    await _ask(store, model, "fresh", *dict.fromkeys(new[0].passages[0].words))


async def unembedded_passages_are_found(spaces: Spaces) -> None:
    """Passages that are to have a vector of an embedder and have none are told, up to a limit."""
    store = await spaces.open()
    new = segments(7)
    plain = segment("not to be embedded", session="plain")
    plain = replace(plain, passages=(replace(plain.passages[0], embedded=False),))
    await store.write(Batch(at=START, segments=(*new, plain)))
    assert len(await store.unembedded("e", limit=3)) == 3
    waiting = await store.unembedded("e", limit=100)
    assert {(one.segment, one.ordinal, one.text) for one in waiting} == {
        (one.segment.id, 0, one.segment.text) for one in new
    }
    for _ in range(4):
        some = {one.segment for one in await store.unembedded("e", limit=2)}
        given = [one for one in new if one.segment.id in some]
        await store.write(Batch(at=START, vectors=(vectors(given, embedder="e"),)))
    assert await store.unembedded("e", limit=100) == ()
    assert len(await store.unembedded("another", limit=100)) == 7


async def vectors_come_back_in_pages(spaces: Spaces) -> None:
    """An embedder's vectors come ordered by segment and ordinal, bit by bit, in pages."""
    store = await spaces.open()
    new = (_long(), *segments(9))
    given = vectors(new, embedder="e", dimensions=384)
    await store.write(Batch(at=START, segments=new, vectors=(given,)))
    await store.write(Batch(at=START, vectors=(vectors(new[:2], embedder="other"),)))
    wanted = tuple(sorted(given.vectors, key=lambda one: (one.segment, one.ordinal)))
    assert await store.vectors("e") == wanted
    seen: list[Vector] = []
    after: tuple[SegmentId, int] | None = None
    while page := await store.vectors("e", after=after, limit=4):
        assert len(page) <= 4
        seen += page
        assert len(seen) <= len(wanted), "a page repeats what was shown"
        after = (page[-1].segment, page[-1].ordinal)
    assert tuple(seen) == wanted
    assert await store.vectors("unheard of") == ()


async def vector_of_no_passage_is_left_out(spaces: Spaces) -> None:
    """A vector that came too late, for a passage or a segment that is gone, does no harm."""
    store = await spaces.open()
    new = segments(2)
    unknown = SegmentId("0" * 32)
    late = VectorSet(
        embedder="e",
        dimensions=256,
        vectors=(
            Vector(segment=new[0].segment.id, ordinal=5, values=vector("a")),
            Vector(segment=unknown, ordinal=0, values=vector("b")),
            Vector(segment=new[1].segment.id, ordinal=0, values=vector("c")),
        ),
    )
    await store.write(Batch(at=START, segments=new))
    await store.write(Batch(at=START, vectors=(late,)))
    assert await store.vectors("e") == late.vectors[2:]


async def vector_of_an_old_span_is_left_out(spaces: Spaces) -> None:
    """A vector made before a segment was indexed anew does not land on another span."""
    store = await spaces.open()
    long = _long()
    await store.write(Batch(at=START, segments=(long,)))
    waiting = await store.unembedded("e", limit=100)
    assert [(one.start, one.end) for one in waiting] == [(p.start, p.end) for p in long.passages]
    old = long.passages
    new = (old[0], NewPassage(start=old[1].start, end=old[2].end, words=("joined",)))
    await store.replace_passages({long.segment.id: new}, at=START + 5)
    made = tuple(
        Vector(
            segment=one.segment,
            ordinal=one.ordinal,
            values=vector(one.text),
            span=(one.start, one.end),
        )
        for one in waiting
    )
    late = VectorSet(embedder="e", dimensions=256, vectors=made)
    await store.write(Batch(at=START, vectors=(late,)))
    held = await store.vectors("e")
    assert [(one.ordinal, one.values) for one in held] == [(0, made[0].values)]
    assert [one.ordinal for one in await store.unembedded("e", limit=100)] == [1]


async def sets_of_one_embedder_add_up(spaces: Spaces) -> None:
    """Two sets of one embedder that is new, in one batch, are both there."""
    store = await spaces.open()
    new = segments(6)
    given = vectors(new, embedder="e")
    halves = (replace(given, vectors=given.vectors[:3]), replace(given, vectors=given.vectors[3:]))
    await store.write(Batch(at=START, segments=new, vectors=halves))
    assert {one.segment for one in await store.vectors("e")} == set(ids(new))
    model = Model()
    model.write(Batch(at=START, segments=new, vectors=halves))
    await _ask(store, model, *new[0].passages[0].words[:2])
    assert (await store.stats()).vectors == {"e": 6}


async def warmed_passages_wait_for_their_vector(spaces: Spaces) -> None:
    """A passage that had no vector when it went cold waits for one when it is back."""
    store = await spaces.open()
    new = segments(8)
    await store.write(Batch(at=START, segments=new))
    await store.evict(max_segments=5, said_before=None)
    await store.write(Batch(at=START, vectors=(vectors(new[3:], embedder="e"),)))
    assert await store.unembedded("e", limit=100) == ()
    await store.warm(ids(new[:2]))
    waiting = await store.unembedded("e", limit=100)
    assert {one.segment for one in waiting} == set(ids(new[:2]))


async def vector_of_wrong_length_does_no_harm(spaces: Spaces) -> None:
    """A vector that is not as long as its set says is refused or left out, never stored."""
    store = await spaces.open()
    new = segments(6)
    good = vectors(new[:5], embedder="e")
    batch = Batch(at=START, segments=new[:5], vectors=(good,))
    model = Model()
    model.write(batch)
    await store.write(batch)
    bad = vectors(new[5:], embedder="e")
    short = replace(bad, vectors=(replace(bad.vectors[0], values=bad.vectors[0].values[:-4]),))
    worse = Batch(at=START, segments=new[5:], vectors=(short,))
    (outcome,) = await asyncio.gather(store.write(worse), return_exceptions=True)
    if isinstance(outcome, BaseException):
        assert isinstance(outcome, StoreError), repr(outcome)
    else:
        model.write(replace(worse, vectors=()))
    await _ask(store, model, *dict.fromkeys(new[5].passages[0].words))
    assert len(await store.vectors("e")) == 5
