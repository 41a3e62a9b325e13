"""What holds for decisions about facts: none is written upon what has changed meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recollect.errors import StaleFacts
from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    fact,
    fact_vectors,
    full_batch,
    ids,
    segments,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.values.batch import Batch, NewJob
from recollect.values.fact import ExtractedTo, FactId
from recollect.values.message import MessageId
from recollect.values.upkeep import ForgetOrder


async def revision_grows_with_changes_of_facts(spaces: Spaces) -> None:
    """The revision grows when facts are written, changed or forgotten, or segments go, and with
    nothing else."""
    store = await spaces.open()
    new = segments(3)
    seen = [await store.facts_revision()]

    async def moved() -> bool:
        seen.append(await store.facts_revision())
        assert seen[-1] >= seen[-2], "never back"
        return seen[-1] > seen[-2]

    one = fact("one", sources=ids(new[:2]))
    batch = Batch(at=START, segments=new, facts=(one, fact("two", sources=ids(new[2:]))))
    await store.write(batch)
    assert await moved()
    await store.write(batch)
    assert not await moved(), "the same facts again change nothing"
    await store.write(Batch(at=START, facts=(replace(one, pinned=True),)))
    assert await moved()
    await store.write(Batch(at=START, fact_vectors=(fact_vectors((one,)),)))
    await store.write(Batch(at=START, extracted=(ExtractedTo(session=SESSION, sequence=2),)))
    await store.write(Batch(at=START, segments=segments(2, first=50)))
    await store.evict(max_segments=1, said_before=None)
    await store.forget(ForgetOrder(at=START, message_ids=(MessageId("0" * 32),)))
    assert not await moved()
    await store.forget(ForgetOrder(at=START, segments=ids(new[:1])))
    assert await moved(), "it lost a source"
    await store.forget(ForgetOrder(at=START, segments=ids(new[2:])))
    assert await moved(), "a fact went"
    await store.forget(ForgetOrder(at=START, facts=(one.id,)))
    assert await moved(), "one was named"
    await store.forget(ForgetOrder(at=START, facts=(one.id,)))
    assert not await moved(), "it was gone"
    await store.forget(ForgetOrder(at=START, segments=ids(segments(1, first=50))))
    assert await moved(), "a fact may be read from it"
    store = await spaces.reopen(store)
    assert await store.facts_revision() == seen[-1]


async def stale_decision_is_refused_whole(spaces: Spaces) -> None:
    """A batch decided upon an older revision is refused with StaleFacts, and nothing is written."""
    store, other = await spaces.open(), await spaces.open()
    revision = await store.facts_revision()
    await other.write(Batch(at=START, facts=(fact("meanwhile"),)))
    before = await contents(store, SESSION)
    late = replace(
        full_batch(1),
        extracted=(ExtractedTo(session=SESSION, sequence=9),),
        facts_revision=revision,
    )
    assert await _is_stale(store, late)
    assert await _is_stale(store, Batch(at=START, facts_revision=revision))
    assert await contents(store, SESSION) == before
    assert await store.extracted_to(SESSION) == 0
    now = await store.facts_revision()
    await store.write(replace(late, facts_revision=now))
    assert await store.facts_revision() > now
    assert await store.extracted_to(SESSION) == 9
    await store.write(Batch(at=START, facts=(fact("unasked"),)))


async def _is_stale(store: Store, batch: Batch) -> bool:
    try:
        await store.write(batch)
    except StaleFacts:
        return True
    return False


async def stale_completion_keeps_the_job(spaces: Spaces) -> None:
    """A job whose effect is stale stays with its lease, and can be completed or given back."""
    store = await spaces.open()
    job = NewJob(kind="extract", key="k", run_at=START)
    await store.write(Batch(at=START, jobs=(job,)))
    revision = await store.facts_revision()
    (lease,) = await store.claim(now=START, lease_seconds=60, kinds=["extract"])
    await store.write(Batch(at=START, facts=(fact("meanwhile"),)))
    effect = Batch(
        at=START,
        facts=(fact("effect"),),
        jobs=(NewJob(kind="embed", key="next", run_at=START),),
        extracted=(ExtractedTo(session=SESSION, sequence=5),),
        facts_revision=revision,
    )
    try:
        await store.complete(lease, effect)
    except StaleFacts:
        refused = True
    else:
        refused = False
    assert refused
    assert [(one.kind, one.state) for one in await store.jobs()] == [("extract", "leased")]
    assert [one.id for one in await store.facts()] == ["meanwhile"]
    assert await store.extracted_to(SESSION) == 0
    assert await store.heartbeat(lease, expires_at=START + 90)
    now = replace(effect, facts_revision=await store.facts_revision())
    assert await store.complete(lease, now)
    assert [one.id for one in await store.facts()] == ["effect", "meanwhile"]
    assert [one.kind for one in await store.jobs()] == ["embed"]
    assert not await store.complete(lease, now), "the lease is gone, which is no staleness"


async def one_of_two_decisions_holds(spaces: Spaces) -> None:
    """Of decisions that two take at once upon one revision, exactly one is written."""
    stores = [await spaces.open() for _ in range(3)]
    for turn in range(4):
        revision = await stores[0].facts_revision()
        refused = await asyncio.gather(
            *(
                _is_stale(
                    store,
                    Batch(at=START, facts=(fact(f"{turn}-{place}"),), facts_revision=revision),
                )
                for place, store in enumerate(stores)
            )
        )
        assert sorted(refused) == [False, True, True]
        (winner,) = (place for place, stale in enumerate(refused) if not stale)
        written = [one.id for one in await stores[0].facts() if one.id.startswith(f"{turn}-")]
        assert written == [f"{turn}-{winner}"]


async def read_place_never_goes_back(spaces: Spaces) -> None:
    """How far a session was read is kept by session, only grows, and outlives its messages."""
    store = await spaces.open()
    odd = "talk 世界 '\\ \x00"
    assert await store.extracted_to(SESSION) == 0
    for place, expected in ((7, 7), (3, 7), (8, 8), (8, 8)):
        marks = (ExtractedTo(session=SESSION, sequence=place), ExtractedTo(session=odd, sequence=1))
        await store.write(Batch(at=START, extracted=marks))
        assert await store.extracted_to(SESSION) == expected
    assert await store.extracted_to(odd) == 1
    assert await store.extracted_to("another") == 0
    await store.write(Batch(at=START, segments=segments(3)))
    await store.forget(ForgetOrder(at=START, sessions=(SESSION,)))
    store = await spaces.reopen(store)
    assert await store.extracted_to(SESSION) == 8
    twice = (
        ExtractedTo(session=SESSION, sequence=12),
        ExtractedTo(session=SESSION, sequence=10),
    )
    await store.write(Batch(at=START, extracted=twice))
    assert await store.extracted_to(SESSION) == 12


async def facts_of_another_space_are_not_met(spaces: Spaces) -> None:
    """Revision, places and candidates are a space's own."""
    one, two = await spaces.open("one"), await spaces.open("two")
    marks = (ExtractedTo(session=SESSION, sequence=4),)
    await one.write(Batch(at=START, facts=(fact("mine"),), extracted=marks))
    assert await two.facts_revision() == 0
    assert await two.extracted_to(SESSION) == 0
    assert await two.unembedded_facts("e", limit=5) == ()
    assert await two.facts([FactId("mine")]) == ()
