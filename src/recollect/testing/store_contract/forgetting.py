"""What holds for forgetting: all that quotes a segment goes, and nothing brings it back."""

from __future__ import annotations

from dataclasses import replace

from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    asked,
    conversation,
    ids,
    message_id,
    segment,
    segments,
    vectors,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch
from recollect.values.message import MessageId
from recollect.values.recall import CandidateQuery
from recollect.values.segment import NewSegment, SegmentId
from recollect.values.upkeep import ForgetOrder

AT = START + 5_000


async def _filled(store: Store, new: tuple[NewSegment, ...]) -> Model:
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model = Model()
    model.write(batch)
    await store.write(batch)
    return model


async def _hold(
    store: Store, model: Model, gone: tuple[NewSegment, ...], *, by_place: bool = False
) -> None:
    """The store has what the model has, and nothing of those that are gone."""
    words = tuple(
        dict.fromkeys(word for one in gone for part in one.passages for word in part.words)
    )
    for cold in (False, True):
        query = CandidateQuery(
            words=words, vectors=(asked("q", embedder="e"),), lexical_limit=99, vector_limit=99,
            cold=cold,
        )  # fmt: skip
        model.expect(query, await store.candidates(query))
    assert await store.segments(ids(gone)) == ()
    assert await store.known(ids(gone)) == frozenset()
    assert {row.segment.id for row in await store.page()} == set(model.segments)
    held = {(one.segment, one.ordinal) for one in await store.vectors("e")}
    assert held == set(model.vectors["e"])
    identities = {one.segment.message_id for one in gone}
    places = {MessageId(one.segment.id) for one in gone}
    if by_place:
        assert await store.tombstoned(iter(identities | places)) == places
    else:
        assert identities <= await store.tombstoned(iter(identities | places))
    for one in gone:
        assert await store.passages(one.segment.id) == ()
    again = await store.write(
        Batch(at=AT + 1, segments=gone, vectors=(vectors(gone, embedder="e"),))
    )
    assert (again.stored, again.known) == ((), ())
    assert sorted(again.forgotten) == sorted(ids(gone))
    assert {row.segment.id for row in await store.page()} == set(model.segments)
    assert {(one.segment, one.ordinal) for one in await store.vectors("e")} == held


async def segments_can_be_forgotten(spaces: Spaces) -> None:
    """Segments that are forgotten by id are found no more, and cannot be written again."""
    store = await spaces.open()
    new = segments(12)
    model = await _filled(store, new)
    await store.evict(max_segments=9, said_before=None)
    model.evict_to(9)
    gone = (new[1], new[5], new[6])  # the first of them is cold
    model.forget(ids(gone))
    done = await store.forget(ForgetOrder(at=AT, segments=(*ids(gone), SegmentId("0" * 32))))
    assert sorted(done.segments) == sorted(ids(gone))
    assert {one.segment.message_id for one in gone} <= set(done.message_ids)
    assert (done.passages, done.vectors) == (3, 3)
    assert (await store.stats()).tombstones == 3
    store = await spaces.reopen(store)
    await _hold(store, model, gone)


async def identity_is_forgotten_wherever_it_was_said(spaces: Spaces) -> None:
    """Forgetting a message id takes its segments of every session and place."""
    store = await spaces.open()
    said = "the secret is bazarka"
    one = conversation(["before", "between", said, "answer", said], session="one")
    two = conversation([said, "other"], session="two")
    model = await _filled(store, (*one, *two))
    gone = (one[2], one[4], two[0])
    model.forget(ids(gone))
    done = await store.forget(ForgetOrder(at=AT, message_ids=(message_id(said),)))
    assert sorted(done.segments) == sorted(ids(gone))
    await _hold(store, model, gone)
    elsewhere = segment(said, session="three")
    written = await store.write(Batch(at=AT, segments=(elsewhere,)))
    assert written.forgotten == ids([elsewhere])
    assert await store.page(session="three") == ()


async def forgotten_segment_takes_its_twins(spaces: Spaces) -> None:
    """A segment that is named means what it says: its words go wherever they were said."""
    store = await spaces.open()
    said = "the same words again"
    one, two = segment(said, session="one"), segment(said, session="two", said_at=START + 1)
    model = await _filled(store, (one, two, segment("other words", session="two")))
    model.forget(ids((one, two)))
    done = await store.forget(ForgetOrder(at=AT, segments=ids([one])))
    assert sorted(done.segments) == sorted(ids((one, two)))
    await _hold(store, model, (one, two))


async def sessions_can_be_forgotten(spaces: Spaces) -> None:
    """Forgetting a session takes all its segments, noise too, and leaves the others."""
    store = await spaces.open()
    one, two = segments(5, session="one"), segments(5, first=50, session="two")
    noise = segment("hm", session="one", parent=one[-1].segment.key, noise="filler")
    model = await _filled(store, (*one, noise, *two))
    model.forget(ids((*one, noise)), by_place=True)
    done = await store.forget(ForgetOrder(at=AT, sessions=("one", "unheard of")))
    assert sorted(done.segments) == sorted(ids((*one, noise)))
    assert done.message_ids == ()
    await _hold(store, model, (*one, noise), by_place=True)
    assert [summary.session for summary in await store.sessions()] == ["two"]


async def times_can_be_forgotten(spaces: Spaces) -> None:
    """What was said before a time goes; ways of naming segments add up."""
    store = await spaces.open()
    new = segments(10)
    model = await _filled(store, new)
    model.forget(ids(new[:4]), by_place=True)
    model.forget(ids(new[8:9]))
    done = await store.forget(ForgetOrder(at=AT, said_before=START + 3.5, segments=ids(new[8:9])))
    assert sorted(done.segments) == sorted(ids((*new[:4], new[8])))
    assert done.message_ids == (new[8].segment.message_id,)
    await _hold(store, model, new[:4], by_place=True)
    await _hold(store, model, new[8:9])


async def identity_that_is_not_stored_gets_a_tombstone(spaces: Spaces) -> None:
    """A message that is forgotten before it arrives is not stored when it does."""
    store = await spaces.open()
    new = segments(3)
    identity = new[1].segment.message_id
    done = await store.forget(ForgetOrder(at=AT, message_ids=(identity,)))
    assert done.segments == ()
    assert await store.tombstoned([identity, new[0].segment.message_id]) == {identity}
    written = await store.write(Batch(at=AT, segments=new, vectors=(vectors(new, embedder="e"),)))
    assert written.forgotten == ids(new[1:2])
    assert written.stored == ids((new[0], new[2]))
    assert {one.segment for one in await store.vectors("e")} == set(written.stored)


async def forgetting_twice_is_fine(spaces: Spaces) -> None:
    """The same order again removes nothing more."""
    store = await spaces.open()
    new = segments(4)
    await _filled(store, new)
    order = ForgetOrder(at=AT, segments=ids(new[:2]), message_ids=(message_id("unheard of"),))
    await store.forget(order)
    before = await contents(store, SESSION)
    again = await store.forget(replace(order, at=AT + 1))
    assert (again.segments, again.passages, again.vectors) == ((), 0, 0)
    assert await contents(store, SESSION) == before
    empty = await store.forget(ForgetOrder(at=AT))
    assert (empty.segments, empty.message_ids) == ((), ())
    assert len(await store.page()) == 2
