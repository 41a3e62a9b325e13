"""What holds for the surroundings of segments: who is a neighbour, and what is said of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain

from recollect.errors import StoreError
from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    START,
    asked,
    conversation,
    ids,
    segment,
    segments,
    vectors,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch
from recollect.values.recall import Candidate, CandidateQuery, Surroundings
from recollect.values.segment import NewSegment, SegmentId

_NOTHING = CandidateQuery()


async def _filled(store: Store, *new: NewSegment) -> Model:
    model = Model()
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model.write(batch)
    await store.write(batch)
    return model


async def _look(
    store: Store,
    model: Model,
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
    return {one.segment: one.distance for one in answer.neighbours if one.of == of}


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


async def neighbours_are_of_the_same_session(spaces: Spaces) -> None:
    """Sessions that arrived by turns do not mix; what a session begins and ends with is an end."""
    store = await spaces.open()
    talks = [segments(6, first=100 * one, session=f"s{one}") for one in range(3)]
    model = await _filled(store, *chain.from_iterable(zip(*talks, strict=True)))
    for talk in talks:
        answer = await _look(store, model, ids(talk)[2:3])
        assert {one.segment for one in answer.neighbours} <= set(ids(talk))
        assert {one.session for one in answer.passages} == {talk[0].segment.session}
        for place in (0, 5):
            await _look(store, model, (ids(talk)[place],))
    both = (ids(talks[0])[3], ids(talks[1])[3])
    await _look(store, model, both)
    # Neighbours are of the same session anyway: naming one changes nothing, nor do times.
    for narrow in (
        CandidateQuery(session="s0"),
        CandidateQuery(said_after=START + 3, said_before=START + 3.5),
        CandidateQuery(lexical_limit=0, vector_limit=0),
    ):
        await _look(store, model, both, narrow)


async def only_what_is_indexed_is_a_place(spaces: Spaces) -> None:
    """Noise, what went cold and what has no passage stand between without being counted.

    Asked for, they have neighbours like any other.
    """
    store = await spaces.open()
    talk = list(conversation([f"said number {number} here" for number in range(14)]))
    for place in (3, 4, 9):
        said = talk[place].segment
        talk[place] = replace(talk[place], segment=replace(said, noise="filler"), passages=())
    talk[6] = replace(talk[6], passages=())
    model = await _filled(store, *talk)
    named = ids(talk)
    answer = await _look(store, model, (named[5],))
    wanted = {named[1]: -2, named[2]: -1, named[7]: 1, named[8]: 2}
    assert _distances(answer, named[5]) == wanted
    assert await store.evict(max_segments=9, said_before=None) == model.evict_to(9) == 2
    for reach in (1, 2):
        for place in range(14):
            await _look(store, model, (named[place],), reach=reach)
    assert _distances(await _look(store, model, (named[0],)), named[0]) == {
        named[2]: 1,
        named[5]: 2,
    }
    await store.warm(named[:2])
    model.cold.clear()
    await _look(store, model, (named[2], named[5]))


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


async def asked_ones_are_neighbours_too(spaces: Spaces) -> None:
    """Two that are asked for and near each other are told as such, without their passages."""
    store = await spaces.open()
    new = segments(8)
    model = await _filled(store, *new)
    named = ids(new)
    answer = await _look(store, model, (named[3], named[4]))
    assert _distances(answer, named[3])[named[4]] == 1
    assert _distances(answer, named[4])[named[3]] == -1
    assert {one.segment for one in answer.passages} == set(named[1:3] + named[5:7])
    assert (await _look(store, model, named)).passages == ()


async def unknown_ones_have_no_surroundings(spaces: Spaces) -> None:
    """An id that is not stored is ignored, and one that is named twice counts once."""
    store = await spaces.open()
    unknown = SegmentId("0" * 32)
    assert await store.around((unknown,), _NOTHING) == Surroundings()
    new = segments(5)
    model = await _filled(store, *new)
    assert await store.around((unknown,), _NOTHING) == Surroundings()
    named = ids(new)
    await _look(store, model, (unknown, named[2], named[2]))


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
    said = {(one.segment, one.ordinal): one for one in (await store.candidates(query)).passages}
    seen = 0
    for place in (0, 1, 3, 6):
        for most in (0, 1, 3, 99):
            asked_for = (rest[place].segment.id,)
            answer = await _look(store, model, asked_for, query, passages_each=most)
            assert bool(answer.passages) == bool(most)
            for one in answer.passages:
                same = said.get((one.segment, one.ordinal))
                assert same is None or _plain(one) == _plain(same)
                seen += same is not None
    assert seen
    # Asked again after something was written, it is what is known now.
    late = segments(2, first=900, parent=bare[-1].segment.key, said_at=START + 60)
    await store.write(Batch(at=START, segments=late, vectors=(vectors(bare, embedder="e"),)))
    model.write(Batch(at=START, segments=late, vectors=(vectors(bare, embedder="e"),)))
    words = tuple(dict.fromkeys((*query.words, *late[0].passages[0].words)))
    for asked_words in (query.words, words):
        await _look(store, model, ids(bare)[1:], replace(query, words=asked_words))


def _plain(one: Candidate) -> Candidate:
    return replace(one, counts={word: count for word, count in one.counts.items() if count})


async def surroundings_of_a_wrong_length_are_refused(spaces: Spaces) -> None:
    """A vector of another length than its embedder's is an error here too."""
    store = await spaces.open()
    new = segments(4)
    await _filled(store, *new)
    bad = CandidateQuery(vectors=(asked("q", embedder="e", dimensions=128),))
    (outcome,) = await asyncio.gather(store.around(ids(new)[1:2], bad), return_exceptions=True)
    assert isinstance(outcome, StoreError), repr(outcome)
