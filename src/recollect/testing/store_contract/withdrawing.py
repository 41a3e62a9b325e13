"""What holds for withdrawing: a segment goes with its index and vectors, and may come back."""

from __future__ import annotations

from dataclasses import replace

from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    EMBEDDER,
    SESSION,
    START,
    asked,
    conversation,
    full_batch,
    ids,
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


async def _hold(store: Store, model: Model, *asked_about: NewSegment) -> None:
    """The store answers as the model does, of what was withdrawn too."""
    words = tuple(
        dict.fromkeys(word for one in asked_about for part in one.passages for word in part.words)
    )
    query = CandidateQuery(words=words, vectors=(asked("q"),), lexical_limit=99, vector_limit=99)
    for asked_for in (query, replace(query, cold=True)):
        model.expect(asked_for, await store.candidates(asked_for))
    named = tuple(model.segments)
    model.expect_around(named, query, await store.around(named, query))
    page = await store.page(limit=1_000)
    assert [row.segment for row in page] == [new.segment for new in model.segments.values()]
    assert {row.segment.id for row in page if row.cold} == model.cold
    stored = {(one.segment, one.ordinal): one.values for one in await store.vectors(EMBEDDER)}
    assert stored == model.vectors.get(EMBEDDER, {})
    stats = await store.stats()
    kept = model.segments.values()
    assert (stats.segments, stats.cold) == (len(kept), len(model.cold))
    assert stats.noise == sum(new.segment.noise is not None for new in kept)
    assert stats.tokens == sum(new.segment.tokens for new in kept)
    assert stats.passages == sum(len(new.passages) for new in kept)


async def withdrawn_segments_are_gone(spaces: Spaces) -> None:
    """What is withdrawn is in no page, index, export or count; the rest is as it was."""
    store = await spaces.open()
    new = segments(12)
    noise = segment("hm", session="noise", noise="filler", said_at=START + 100)
    other = segments(4, first=500, session="other", said_at=START + 200)
    batch = Batch(at=START, segments=(*new, noise, *other), vectors=(vectors((*new, *other)),))
    model = Model()
    model.write(batch)
    await store.write(batch)
    await store.evict(max_segments=13, said_before=None)
    model.evict_to(13)
    assert ids(new)[1] in model.cold
    gone = (new[1], new[5], new[6], noise)
    named = [*ids(gone), SegmentId("0" * 32), new[5].segment.id]
    assert await store.withdraw(named, at=AT) == model.withdraw(named) == 4
    await _hold(store, model, *new)
    assert await store.segments(ids(gone)) == ()
    assert await store.known(ids(gone)) == frozenset()
    for one in gone:
        assert await store.passages(one.segment.id) == ()
    assert [one.session for one in await store.sessions()] == [SESSION, "other"]
    assert await store.withdraw(named, at=AT) == 0
    assert await store.withdraw((), at=AT) == 0
    store = await spaces.reopen(store)
    await _hold(store, model, *new)


async def withdrawn_segments_can_come_back(spaces: Spaces) -> None:
    """No tombstone stands for what was withdrawn: written again it is stored, and found."""
    store = await spaces.open()
    new = segments(8)
    batch = Batch(at=START, segments=new, vectors=(vectors(new),))
    model = Model()
    model.write(batch)
    await store.write(batch)
    for _ in range(2):
        gone = new[2:5]
        assert await store.withdraw(ids(gone), at=AT) == model.withdraw(ids(gone)) == 3
        marks = [one.segment.message_id for one in gone]
        places = [MessageId(one.segment.id) for one in gone]
        assert await store.tombstoned([*marks, *places]) == frozenset()
        assert (await store.stats()).tombstones == 0
        await _hold(store, model, *new)
        written = await store.write(Batch(at=AT, segments=new))
        model.write(Batch(at=AT, segments=new))
        assert written.stored == ids(gone)
        assert set(written.known) == set(ids(new)) - set(ids(gone))
        waiting = await store.unembedded(EMBEDDER, limit=99)
        assert {one.segment for one in waiting} == set(ids(gone)), "its vector is gone"
        await _hold(store, model, *new)
        await store.write(Batch(at=AT, vectors=(vectors(gone),)))
        model.write(Batch(at=AT, vectors=(vectors(gone),)))
        await _hold(store, model, *new)


async def withdrawing_leaves_all_else(spaces: Spaces) -> None:
    """Jobs, facts, states, turns and pieces stay, and other sessions as they were."""
    store = await spaces.open()
    mine, other = full_batch(0, session="mine"), full_batch(1, session="other")
    await store.write(mine)
    await store.write(other)
    before = await contents(store, "mine", "other")
    gone = ids(mine.segments)
    assert await store.withdraw(gone, at=AT) == 4
    after = await contents(store, "mine", "other")
    for kept in ("facts", "jobs", "queue", "stored", "turns"):
        assert after[kept] == before[kept], kept
    hashes = [one.hash for one in mine.pieces]
    assert set(await store.pieces(hashes)) == set(hashes)
    assert [one.session for one in await store.sessions()] == ["other"]
    assert [row.segment for row in await store.page()] == [new.segment for new in other.segments]
    assert await store.page(session="mine") == ()
    query = CandidateQuery(words=other.segments[1].passages[0].words[:1], session="other")
    assert (await store.candidates(query)).passages


async def withdrawn_twin_stays_elsewhere(spaces: Spaces) -> None:
    """The same words in another session are another segment: they stay where they are."""
    store = await spaces.open()
    texts = ["the door is red", "so it is"]
    one, two = conversation(texts, session="one"), conversation(texts, session="two")
    batch = Batch(at=START, segments=(*one, *two), vectors=(vectors((*one, *two)),))
    model = Model()
    model.write(batch)
    await store.write(batch)
    assert await store.withdraw(ids(one), at=AT) == model.withdraw(ids(one)) == 2
    await _hold(store, model, *two)
    assert [row.segment for row in await store.page(session="two")] == [new.segment for new in two]


async def withdrawn_can_be_forgotten_after(spaces: Spaces) -> None:
    """Forgetting what was withdrawn before keeps it out from then on, and so does the reverse."""
    store = await spaces.open()
    new = segments(6)
    await store.write(Batch(at=START, segments=new, vectors=(vectors(new),)))
    await store.withdraw(ids(new[:2]), at=AT)
    identities = (new[0].segment.message_id, new[3].segment.message_id)
    await store.forget(ForgetOrder(at=AT, message_ids=identities))
    assert await store.withdraw(ids(new[3:4]), at=AT) == 0
    written = await store.write(Batch(at=AT, segments=new, vectors=(vectors(new),)))
    assert written.stored == ids(new[1:2])
    assert sorted(written.forgotten) == sorted((ids(new)[0], ids(new)[3]))
    result = await store.scrub()
    assert result.done or result.cannot
    assert {row.segment.id for row in await store.page()} == set(ids(new)) - set(written.forgotten)
