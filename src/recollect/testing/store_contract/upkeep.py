"""What holds for a store as a whole: isolation, numbers, closing, many callers at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recollect.errors import StoreError
from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    EMBEDDER,
    SESSION,
    START,
    asked,
    fact,
    fact_vectors,
    full_batch,
    ids,
    segment,
    segments,
    vectors,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch, NewJob
from recollect.values.fact import EvidenceSpan, FactId
from recollect.values.message import MessageId
from recollect.values.recall import CandidateQuery, FactQuery
from recollect.values.upkeep import ForgetOrder


async def spaces_do_not_see_each_other(spaces: Spaces) -> None:
    """Two spaces with the same sessions, texts and ids share nothing, statistics included."""
    one, two = await spaces.open("one"), await spaces.open("two")
    await one.write(full_batch(0))
    assert (await contents(two, SESSION))["page"] == ()
    written = await two.write(full_batch(0))
    assert written.stored == ids(full_batch(0).segments)
    before = await contents(two, SESSION)
    await one.write(full_batch(1))
    await one.evict(max_segments=3, said_before=None)
    await one.pause("embed")
    await one.write(Batch(at=START, facts=(fact("fact-0", content="otherwise"),)))
    await one.forget(ForgetOrder(at=START, sessions=(SESSION,)))
    await one.expire(before=START + 1e6)
    assert await contents(two, SESSION) == before
    words = tuple(dict.fromkeys(full_batch(0).segments[0].passages[0].words))
    model = Model()
    model.write(full_batch(0))
    query = CandidateQuery(words=words, vectors=(asked("q"),), cold=True)
    model.expect(query, await two.candidates(query))
    places = [MessageId(new.segment.id) for new in full_batch(0).segments]
    assert await two.tombstoned(places) == frozenset()
    assert await one.tombstoned(places) == frozenset(places)
    (mine,) = await two.claim(now=START + 1e6, lease_seconds=9, kinds=("embed",), limit=9)
    assert not await one.heartbeat(mine, expires_at=START + 2e6)
    assert not await one.complete(mine, Batch(at=START))
    assert await two.complete(mine, Batch(at=START))


async def unreadable_record_hides_no_other(spaces: Spaces) -> None:
    """A segment that cannot be read is left out and told by `check`; all others are there."""
    store = await spaces.open()
    batch = full_batch(0, count=6)
    await store.write(batch)
    bad, *good = batch.segments[0], *batch.segments[1:]
    store = await spaces.damage(store, bad.segment.id)
    assert {row.segment.id for row in await store.page()} == set(ids(good))
    stored = await store.segments(ids(batch.segments))
    assert [row.segment for row in stored] == [new.segment for new in good]
    words = tuple(dict.fromkeys(word for new in good for word in new.passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q"),))
    found = {one.segment for one in (await store.candidates(query)).passages}
    assert found - {bad.segment.id} == set(ids(good))
    assert [one.session for one in await store.sessions()] == [SESSION]
    waiting = {one.segment for one in await store.unembedded("another", limit=5)}
    assert waiting == set(ids(good)), "a limit counts what can be read"
    problems = (await store.check()).problems
    assert problems
    assert not any(bad.segment.text[:20] in problem for problem in problems)
    written = await store.write(full_batch(1))
    assert written.stored == ids(full_batch(1).segments)
    assert await store.session(SESSION) is not None


async def unreadable_fact_hides_no_other(spaces: Spaces) -> None:
    """A fact that cannot be read is left out and told by `check`; all others are there, can be
    written and forgotten, and it goes with what it rests on, or when it is named."""
    for named in (False, True):
        store = await spaces.open(f"{named}")
        new = segments(3)
        facts = tuple(
            fact(
                f"f{place}",
                at=START + place,
                sources=ids(new[place % 2 : place % 2 + 1]),
                evidence=(EvidenceSpan(segment=new[place % 2].segment.id, start=0, end=3),),
            )
            for place in range(4)
        )
        batch = Batch(at=START, segments=new, facts=facts, fact_vectors=(fact_vectors(facts),))
        await store.write(batch)
        store = await spaces.damage_fact(store, facts[0].id)
        assert await store.facts() == facts[1:]
        assert await store.facts([one.id for one in facts]) == facts[1:]
        query = FactQuery(words=("fact",), vectors=(asked("q"),))
        found = await store.fact_candidates(query)
        assert [one.fact.id for one in found.facts] == ["f1", "f2", "f3"]
        assert any("fact" in problem for problem in (await store.check()).problems)
        more = fact("more", at=START + 9)
        await store.write(Batch(at=START, facts=(more,), fact_vectors=(fact_vectors((more,)),)))
        assert await store.unembedded_facts(EMBEDDER, limit=9) == ()
        done = await store.forget(ForgetOrder(at=START, segments=ids(new[1:2])))
        assert done.facts == ("f1", "f3")
        if named:
            assert (await store.forget(ForgetOrder(at=START, facts=(facts[0].id,)))).facts == (
                "f0",
            )
        else:
            done = await store.forget(ForgetOrder(at=START, segments=ids(new[:1])))
            assert done.facts == ("f0", "f2")
        assert (await store.check()).problems == ()
        assert "f0" not in {one.id for one in await store.facts()}


async def unreadable_fact_can_be_written_again(spaces: Spaces) -> None:
    """Writing a fact that cannot be read makes it whole."""
    store = await spaces.open()
    facts = (fact("torn"), fact("whole", at=START + 1))
    await store.write(Batch(at=START, facts=facts, fact_vectors=(fact_vectors(facts),)))
    store = await spaces.damage_fact(store, facts[0].id)
    await store.write(Batch(at=START, facts=facts))
    assert await store.facts() == facts
    assert (await store.check()).problems == ()


async def stats_count_what_is_there(spaces: Spaces) -> None:
    """The numbers of a store are those of what was written, evicted and forgotten."""
    store = await spaces.open()
    empty = await store.stats()
    assert (empty.segments, empty.passages, empty.tokens, dict(empty.vectors)) == (0, 0, 0, {})
    assert empty.space == store.space
    assert empty.engine
    batches = [full_batch(number, session=f"s{number}") for number in range(3)]
    for batch in batches:
        await store.write(batch)
    noise = segment("ok", session="s0", noise="filler")
    await store.write(Batch(at=START, segments=(noise,)))
    everything = [new for batch in batches for new in batch.segments]
    stats = await store.stats()
    assert (stats.segments, stats.noise, stats.cold) == (13, 1, 0)
    assert stats.passages == sum(len(new.passages) for new in everything)
    tokens = sum(new.segment.tokens for new in (*everything, noise))
    assert stats.tokens == tokens
    assert dict(stats.vectors) == {EMBEDDER: 12}
    assert (stats.facts, stats.sessions, stats.turns, stats.compactions) == (3, 3, 3, 3)
    assert stats.pieces == sum(len(batch.pieces) for batch in batches)
    assert (stats.jobs_waiting, stats.jobs_dead, stats.tombstones) == (3, 0, 0)
    gone = batches[1].segments[2]
    await store.forget(ForgetOrder(at=START, segments=(gone.segment.id,)))
    stats = await store.stats()
    assert (stats.segments, stats.tombstones) == (12, 1)
    assert stats.tokens == tokens - gone.segment.tokens
    assert dict(stats.vectors) == {EMBEDDER: 11}


async def scrubbing_leaves_what_is_kept(spaces: Spaces) -> None:
    """Scrubbing says what it did, and changes nothing that is still there."""
    store = await spaces.open()
    for number in range(3):
        await store.write(full_batch(number))
    await store.forget(ForgetOrder(at=START, segments=ids(full_batch(1).segments)))
    before = await contents(store, SESSION)
    result = await store.scrub()
    assert result.done or result.cannot
    assert await contents(store, SESSION) == before
    model = Model()
    model.write(full_batch(0))
    model.write(full_batch(2))
    words = tuple(dict.fromkeys(full_batch(2).segments[0].passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q"),))
    model.expect(query, await store.candidates(query))
    written = await store.write(full_batch(3))
    assert written.stored == ids(full_batch(3).segments)


async def closed_store_says_so(spaces: Spaces) -> None:
    """A closed store raises StoreError for everything; closing it again is fine."""
    store = await spaces.open()
    await store.write(full_batch(0))
    await spaces.close(store)
    await store.close()
    calls = (
        store.write(full_batch(1)),
        store.session(SESSION),
        store.sessions(),
        store.candidates(CandidateQuery(words=("any",))),
        store.around([full_batch(0).segments[0].segment.id], CandidateQuery()),
        store.withdraw([full_batch(0).segments[0].segment.id], at=START),
        store.segments([full_batch(0).segments[0].segment.id]),
        store.page(),
        store.facts([FactId("fact-0")]),
        store.evict(max_segments=1, said_before=None),
        store.claim(now=START, lease_seconds=1, kinds=("embed",)),
        store.jobs(),
        store.queue(),
        store.turns(SESSION),
        store.compactions(SESSION),
        store.forget(ForgetOrder(at=START, sessions=(SESSION,))),
        store.check(),
        store.stats(),
    )
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    wrong = [repr(outcome) for outcome in outcomes if not isinstance(outcome, StoreError)]
    assert not wrong, wrong
    store = await spaces.open()
    assert len(await store.page()) == 4


async def closing_leaves_others_open(spaces: Spaces) -> None:
    """Closing a store closes no other: of the same memory, or of another space."""
    one, same, other = await spaces.open(), await spaces.open(), await spaces.open("other")
    await one.write(full_batch(0))
    await spaces.close(one)
    await same.write(full_batch(1))
    await other.write(full_batch(2))
    assert len(await same.page()) == 8
    assert len(await other.page()) == 4


async def many_callers_at_once(spaces: Spaces) -> None:
    """Fifty writes and fifty questions at once all work, and what is answered is consistent."""
    stores = [await spaces.open() for _ in range(2)]
    batches = [
        replace(full_batch(number, session=f"s{number}"), session=None) for number in range(50)
    ]
    words = tuple(dict.fromkeys(batches[7].segments[0].passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q"),), lexical_limit=20, vector_limit=20)

    async def look(store: Store) -> None:
        found = await store.candidates(query)
        assert found.documents % 4 == 0, "half a batch was seen"
        assert len({(one.segment, one.ordinal) for one in found.passages}) == len(found.passages)
        page = await store.page(limit=1_000)
        assert len(page) % 4 == 0

    calls = [
        call
        for number, batch in enumerate(batches)
        for call in (stores[number % 2].write(batch), look(stores[(number + 1) % 2]))
    ]
    await asyncio.gather(*calls)
    model = Model()
    for batch in batches:
        model.write(batch)
    for store in stores:
        model.expect(query, await store.candidates(query))
        assert len(await store.page()) == 200
    assert (await stores[0].stats()).pieces == 250


async def writes_and_forgetting_at_once(spaces: Spaces) -> None:
    """What is forgotten while it is being written is gone in the end, or never came."""
    stores = [await spaces.open() for _ in range(2)]
    new = segments(20)
    batches = [
        Batch(
            at=START,
            segments=new[first : first + 5],
            vectors=(vectors(new[first : first + 5]),),
            jobs=(NewJob(kind="work", key=f"{first}"),),
        )
        for first in range(0, 20, 5)
    ]
    identities = tuple(one.segment.message_id for one in new[::2])
    calls = [stores[number % 2].write(batch) for number, batch in enumerate(batches * 2)]
    await asyncio.gather(*calls, stores[0].forget(ForgetOrder(at=START, message_ids=identities)))
    await stores[1].forget(ForgetOrder(at=START, message_ids=identities))
    assert {row.segment.id for row in await stores[0].page()} == set(ids(new[1::2]))
    assert {one.segment for one in await stores[1].vectors(EMBEDDER)} == set(ids(new[1::2]))
