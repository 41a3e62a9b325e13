"""What holds for passages and their vectors: indexed anew, embedded, exported."""

import asyncio
from dataclasses import replace

from tests.store_contract.examples import (
    START,
    asked,
    conversation,
    ids,
    segment,
    segments,
    vector,
    vectors,
)
from tests.store_contract.harness import Spaces
from tests.store_contract.model import ReferenceModel

from recollect.core.ports import Store
from recollect.core.values.batch import Batch
from recollect.core.values.recall import Candidate, CandidateQuery, Surroundings
from recollect.core.values.segment import NewPassage, NewSegment, SegmentId, Vector, VectorSet
from recollect.errors import StoreError


def _long() -> NewSegment:
    return segment("\n".join(f"line{number} " + "alpha beta " * 38 for number in range(5)))


async def _ask(store: Store, model: ReferenceModel, *words: str) -> None:
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
    await store.replace_passages({long.segment.id: new})
    model = ReferenceModel()
    model.write(replace(batch, segments=(replace(long, passages=new), *others)))
    del model.vectors["e"][long.segment.id, 1]
    await _ask(store, model, "alpha", "beta", "renewed", "joined", "line3", "line0")
    assert [(passage.start, passage.end) for passage in await store.passages(long.segment.id)] == [
        (passage.start, passage.end) for passage in new
    ]
    waiting = await store.unembedded("e", limit=10)
    assert [(passage.segment, passage.ordinal) for passage in waiting] == [(long.segment.id, 1)]
    assert waiting[0].text == long.segment.text[new[1].start : new[1].end]
    stored = {
        (vector.segment, vector.ordinal): vector.values for vector in await store.vectors("e")
    }
    assert stored == model.vectors["e"]
    (kept,) = await store.segments([long.segment.id])
    assert kept.segment == long.segment


async def unembedded_passages_are_found(spaces: Spaces) -> None:
    """Passages that are to have a vector of an embedder and have none are told, up to a limit."""
    store = await spaces.open()
    new = segments(7)
    plain = segment("not to be embedded", session="plain")
    plain = replace(plain, passages=(replace(plain.passages[0], embedded=False),))
    await store.write(Batch(at=START, segments=(*new, plain)))
    assert len(await store.unembedded("e", limit=3)) == 3
    waiting = await store.unembedded("e", limit=100)
    assert {(passage.segment, passage.ordinal, passage.text) for passage in waiting} == {
        (segment.segment.id, 0, segment.segment.text) for segment in new
    }
    for _ in range(4):
        some = {passage.segment for passage in await store.unembedded("e", limit=2)}
        given = [segment for segment in new if segment.segment.id in some]
        await store.write(Batch(at=START, vectors=(vectors(given, embedder="e"),)))
    assert await store.unembedded("e", limit=100) == ()
    assert len(await store.unembedded("another", limit=100)) == 7


async def vectors_come_back_as_they_were(spaces: Spaces) -> None:
    """An embedder's vectors come ordered by segment and ordinal, bit by bit."""
    store = await spaces.open()
    new = (_long(), *segments(9))
    given = vectors(new, embedder="e", dimensions=384)
    await store.write(Batch(at=START, segments=new, vectors=(given,)))
    await store.write(Batch(at=START, vectors=(vectors(new[:2], embedder="other"),)))
    wanted = tuple(sorted(given.vectors, key=lambda one: (one.segment, one.ordinal)))
    assert await store.vectors("e") == wanted
    assert await store.vectors("unheard of") == ()


async def vector_of_an_old_span_is_left_out(spaces: Spaces) -> None:
    """A vector made before a segment was indexed anew does not land on another span."""
    store = await spaces.open()
    long = _long()
    await store.write(Batch(at=START, segments=(long,)))
    waiting = await store.unembedded("e", limit=100)
    assert [(passage.start, passage.end) for passage in waiting] == [
        (p.start, p.end) for p in long.passages
    ]
    old = long.passages
    new = (old[0], NewPassage(start=old[1].start, end=old[2].end, words=("joined",)))
    await store.replace_passages({long.segment.id: new})
    made = tuple(
        Vector(
            segment=passage.segment,
            ordinal=passage.ordinal,
            values=vector(passage.text),
            span=(passage.start, passage.end),
        )
        for passage in waiting
    )
    late = VectorSet(embedder="e", dimensions=256, vectors=made)
    await store.write(Batch(at=START, vectors=(late,)))
    stored_vectors = await store.vectors("e")
    assert [(vector.ordinal, vector.values) for vector in stored_vectors] == [(0, made[0].values)]
    assert [passage.ordinal for passage in await store.unembedded("e", limit=100)] == [1]


async def sets_of_one_embedder_add_up(spaces: Spaces) -> None:
    """Two sets of one embedder that is new, in one batch, are both there."""
    store = await spaces.open()
    new = segments(6)
    given = vectors(new, embedder="e")
    halves = (replace(given, vectors=given.vectors[:3]), replace(given, vectors=given.vectors[3:]))
    await store.write(Batch(at=START, segments=new, vectors=halves))
    assert {vector.segment for vector in await store.vectors("e")} == set(ids(new))
    model = ReferenceModel()
    model.write(Batch(at=START, segments=new, vectors=halves))
    await _ask(store, model, *new[0].passages[0].words[:2])
    assert (await store.stats()).vectors == {"e": 6}


async def vector_of_wrong_length_does_no_harm(spaces: Spaces) -> None:
    """A vector that is not as long as its set says is refused or left out, never stored."""
    store = await spaces.open()
    new = segments(6)
    good = vectors(new[:5], embedder="e")
    batch = Batch(at=START, segments=new[:5], vectors=(good,))
    model = ReferenceModel()
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


# What holds for the surroundings of segments: who is a neighbour, and what is said of it.

_NOTHING = CandidateQuery()


async def _filled(store: Store, *new: NewSegment) -> ReferenceModel:
    model = ReferenceModel()
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model.write(batch)
    await store.write(batch)
    return model


async def _look(
    store: Store,
    model: ReferenceModel,
    asked_for: tuple[SegmentId, ...],
    query: CandidateQuery = _NOTHING,
    *,
    reach: int = 2,
    passages_each: int = 3,
) -> Surroundings:
    answer = await store.around(asked_for, query, reach=reach, passages_each=passages_each)
    model.expect_around(asked_for, query, answer, reach=reach, passages_each=passages_each)
    return answer


def _distances(answer: Surroundings, of: SegmentId) -> dict[SegmentId, int]:
    return {
        neighbour.segment: neighbour.distance
        for neighbour in answer.neighbours
        if neighbour.of == of
    }


async def neighbours_are_counted_in_places(spaces: Spaces) -> None:
    """Up to so many places before and behind, negative before; fewer at the ends."""
    store = await spaces.open()
    new = segments(9)
    model = await _filled(store, *new)
    named = ids(new)
    answer = await _look(store, model, (named[4],))
    wanted = {named[2]: -2, named[3]: -1, named[5]: 1, named[6]: 2}
    assert _distances(answer, named[4]) == wanted
    assert _distances(await _look(store, model, (named[4],), reach=1), named[4]) == {
        named[3]: -1,
        named[5]: 1,
    }
    for reach in (0, 1, 2, 3, 20):
        for place in (0, 1, 4, 8):
            await _look(store, model, (named[place],), reach=reach)
    assert await _look(store, model, ()) == Surroundings()


async def what_is_left_out_is_no_place(spaces: Spaces) -> None:
    """The places a query leaves out are stepped over; those asked for may be among them."""
    store = await spaces.open()
    new = segments(12)
    model = await _filled(store, *new)
    named = ids(new)
    for gone in ((5, 7), (4, 5, 7, 8), (6,), range(12), (0, 1, 2, 3)):
        left = CandidateQuery(leave_out=frozenset(named[place] for place in gone))
        for reach in (1, 2):
            await _look(store, model, (named[6],), left, reach=reach)
            await _look(store, model, (named[2], named[6], named[9]), left, reach=reach)
    left = CandidateQuery(leave_out=frozenset((named[5], named[7], SegmentId("0" * 32))))
    answer = await _look(store, model, (named[6],), left, reach=1)
    assert _distances(answer, named[6]) == {named[4]: -1, named[8]: 1}


async def surroundings_are_described_like_candidates(spaces: Spaces) -> None:
    """What is said of a neighbour's passage is what `candidates` says of it."""
    store = await spaces.open()
    long = segment("\n".join(f"line{number} " + "alpha beta " * 38 for number in range(6)))
    texts = [f"words of {number} and alpha {'beta ' * (number % 4)}" for number in range(7)]
    rest = conversation(texts, parent=long.segment.key, said_at=START + 1)
    bare = segments(3, first=700, parent=rest[-1].segment.key, said_at=START + 50)
    model = await _filled(store, long, *rest)
    more = Batch(at=START, segments=bare, vectors=(vectors(rest[:4], embedder="f"),))
    model.write(more)
    await store.write(more)
    query = CandidateQuery(
        words=("alpha", "beta", "line0", "line2", "unheard", *rest[3].passages[0].words[-1:]),
        vectors=(
            asked("q", embedder="e"), asked("q", embedder="unheard of"), asked("q", embedder="f"),
        ),
        lexical_limit=500,
        vector_limit=500,
    )  # fmt: skip
    query = replace(query, words=tuple(dict.fromkeys(query.words)))
    candidates = {
        (candidate.segment, candidate.ordinal): candidate
        for candidate in (await store.candidates(query)).passages
    }
    seen = 0
    for place in (0, 1, 3, 6):
        for most in (0, 1, 3, 99):
            asked_for = (rest[place].segment.id,)
            answer = await _look(store, model, asked_for, query, passages_each=most)
            assert bool(answer.passages) == bool(most)
            for candidate in answer.passages:
                same = candidates.get((candidate.segment, candidate.ordinal))
                assert same is None or _plain(candidate) == _plain(same)
                seen += same is not None
    assert seen
    # Asked again after something was written, it is what is known now.
    late = segments(2, first=900, parent=bare[-1].segment.key, said_at=START + 60)
    await store.write(Batch(at=START, segments=late, vectors=(vectors(bare, embedder="e"),)))
    model.write(Batch(at=START, segments=late, vectors=(vectors(bare, embedder="e"),)))
    words = tuple(dict.fromkeys((*query.words, *late[0].passages[0].words)))
    for asked_words in (query.words, words):
        await _look(store, model, ids(bare)[1:], replace(query, words=asked_words))


def _plain(candidate: Candidate) -> Candidate:
    return replace(
        candidate, counts={word: count for word, count in candidate.counts.items() if count}
    )
