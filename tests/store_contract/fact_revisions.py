"""What holds for decisions about facts: none is written upon what has changed meanwhile."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.store_contract.examples import (
    SESSION,
    SOON,
    START,
    asked,
    fact,
    fact_vectors,
    ids,
    passages,
    segment,
    segments,
)
from tests.store_contract.harness import Spaces, claim_all

from recollect.core.ports import Store
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.fact import EvidenceSpan, ExtractedTo, Fact, FactId, fact_identity
from recollect.core.values.message import MessageId
from recollect.core.values.recall import FactQuery
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import ForgetOrder, RewriteOrder
from recollect.errors import StaleFacts


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
    (lease,) = await claim_all(store, now=START, kinds=("extract",))
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
    assert [(job.kind, job.state) for job in await store.jobs()] == [("extract", "leased")]
    assert [fact.id for fact in await store.facts()] == ["meanwhile"]
    assert await store.extracted_to(SESSION) == 0
    assert await store.heartbeat(lease, expires_at=START + 90)
    now = replace(effect, facts_revision=await store.facts_revision())
    assert await store.complete(lease, now)
    assert [fact.id for fact in await store.facts()] == ["effect", "meanwhile"]
    assert [job.kind for job in await store.jobs()] == ["embed"]
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
        written = [fact.id for fact in await stores[0].facts() if fact.id.startswith(f"{turn}-")]
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
    twice = (ExtractedTo(session=SESSION, sequence=12), ExtractedTo(session=SESSION, sequence=10))
    await store.write(Batch(at=START, extracted=twice))
    assert await store.extracted_to(SESSION) == 12


# What holds for decisions about facts when what they were read from changes meanwhile.


def _replaced(old: Fact, new: Fact) -> Fact:
    return replace(old, superseded_by=new.id, valid_to=new.at)


def _saying(new: NewSegment, text: str) -> NewSegment:
    return NewSegment(segment=replace(new.segment, text=text), passages=passages(text))


async def _refused(store: Store, batch: Batch) -> bool:
    try:
        await store.write(batch)
    except StaleFacts:
        return True
    return False


async def changed_segments_make_decisions_stale(spaces: Spaces) -> None:
    """What was read from segments that were forgotten, withdrawn or rewritten since is refused;
    where none was there, nothing moved."""
    for way in ("forget", "forget a session", "forget by time", "withdraw", "rewrite"):
        store = await spaces.open(way.replace(" ", "-"))
        new = segments(2)
        await store.write(Batch(at=START, segments=new))
        revision = await store.facts_revision()

        async def change(store: Store = store, way: str = way, new: NewSegment = new[0]) -> None:
            one = new.segment
            if way == "withdraw":
                await store.withdraw([one.id])
            elif way == "rewrite":
                await store.rewrite(RewriteOrder(at=SOON, segments=(_saying(new, "withheld"),)))
            else:
                await store.forget(
                    ForgetOrder(
                        at=SOON,
                        segments=(one.id,) if way == "forget" else (),
                        sessions=(one.session,) if way == "forget a session" else (),
                        said_before=one.said_at + 0.1 if way == "forget by time" else None,
                    )
                )

        await change()
        decided = fact("decided", sources=ids(new[:1]))
        late = Batch(at=SOON, facts=(decided,), facts_revision=revision)
        assert await _refused(store, late), way
        assert await store.facts(superseded=True) == ()
        revision = await store.facts_revision()
        if way != "rewrite":
            await change()
        nobody = segment("nobody said it", session="elsewhere")
        await store.withdraw(ids((nobody,)))
        await store.rewrite(RewriteOrder(at=SOON, segments=(nobody,)))
        await store.forget(ForgetOrder(at=SOON, segments=ids((nobody,)), sessions=("elsewhere",)))
        assert await store.facts_revision() == revision, way


async def nothing_is_closed_for_what_is_refused(spaces: Spaces) -> None:
    """A fact whose successor the batch may not write stays as it is, and a new one holds."""
    store = await spaces.open()
    new_segments = segments(2)
    old, kept = (
        fact("old", sources=ids(new_segments[:1])),
        fact("kept", sources=ids(new_segments[:1])),
    )
    await store.write(Batch(at=START, segments=new_segments, facts=(old, kept)))
    await store.forget(
        ForgetOrder(at=SOON, segments=ids(new_segments[1:]), facts=(FactId("named"),))
    )
    unsaid = fact("unsaid", at=SOON, sources=ids(new_segments[1:]), change="supersede")
    named = fact("named", at=SOON, change="supersede")
    fresh = fact("fresh", at=START + 1)
    batch = Batch(
        at=SOON,
        facts=(
            unsaid,
            named,
            _replaced(old, unsaid),
            _replaced(kept, named),
            _replaced(fresh, unsaid),
        ),
    )
    for _ in range(2):
        await store.write(batch)
        assert {fact.id: fact for fact in await store.facts(superseded=True)} == {
            "old": old, "kept": kept, "fresh": fresh,
        }  # fmt: skip
    good = fact("good", at=SOON, change="supersede")
    await store.write(Batch(at=SOON, facts=(_replaced(old, good), good)))
    assert [fact.id for fact in await store.facts()] == ["kept", "fresh", "good"]


# What holds for facts when what they rest on is forgotten, or they are.


def _spans(*given: NewSegment) -> tuple[EvidenceSpan, ...]:
    return tuple(
        EvidenceSpan(segment=new.segment.id, start=place, end=place + 4)
        for place, new in enumerate(given)
    )


def _resting(name: str, *given: NewSegment, **more: Any) -> Fact:
    return fact(name, sources=ids(given), evidence=_spans(*given), **more)


async def joint_fact_goes_with_any_source(spaces: Spaces) -> None:
    """A fact that takes all of its sources goes with any of them, by whatever way; others stay."""
    store = await spaces.open()
    new = segments(3)
    facts = (
        _resting("joint", *new[:2], joint=True),
        _resting("joint elsewhere", *new[1:], joint=True),
        _resting("either", *new[:2], trust="low"),
        fact("of all", sources=ids(new), joint=True),
    )
    await store.write(Batch(at=START, segments=new, facts=facts))
    done = await store.forget(ForgetOrder(at=SOON, segments=ids(new[:1])))
    assert sorted(done.facts) == ["joint", "of all"]
    left = {fact.id: fact for fact in await store.facts(superseded=True)}
    assert sorted(left) == ["either", "joint elsewhere"]
    assert left[FactId("either")] == replace(
        facts[2], sources=ids(new[1:2]), evidence=facts[2].evidence[1:]
    ), "without the source and its span, as trusted as before"
    await store.write(Batch(at=SOON, facts=facts))
    assert sorted(fact.id for fact in await store.facts()) == ["either", "joint elsewhere"]


async def evidence_counts_as_a_source(spaces: Spaces) -> None:
    """A span of a forgotten segment goes, and the fact with its last one, if no source names it."""
    store = await spaces.open()
    new = segments(2)
    facts = (
        fact("by span alone", evidence=_spans(new[0])),
        fact("by spans", evidence=_spans(*new)),
        fact("joint by spans", evidence=_spans(*new), joint=True),
        fact("by source and span", sources=ids(new[1:]), evidence=_spans(*new)),
    )
    await store.write(Batch(at=START, segments=new, facts=facts))
    done = await store.forget(ForgetOrder(at=SOON, segments=ids(new[:1])))
    assert sorted(done.facts) == ["by span alone", "joint by spans"]
    for _ in range(2):
        left = {fact.id: (fact.sources, fact.evidence) for fact in await store.facts()}
        assert left == {
            "by spans": ((), _spans(*new)[1:]),
            "by source and span": (ids(new[1:]), _spans(*new)[1:]),
        }
        await store.write(Batch(at=SOON, facts=facts))


async def forgotten_fact_stays_away(spaces: Spaces) -> None:
    """A fact that was forgotten by name is never written again, from whatever batch."""
    store = await spaces.open()
    named = (fact("going"), fact("unheard of"), fact("staying"))
    await store.write(Batch(at=START, facts=(named[0], named[2])))
    order = ForgetOrder(at=SOON, facts=(named[0].id, named[1].id))
    done = await store.forget(order)
    assert done.facts == ("going",)
    identities = {fact_identity(fact.id) for fact in named[:2]}
    assert await store.tombstoned(fact_identity(fact.id) for fact in named) == identities
    revision = await store.facts_revision()
    vectors = (fact_vectors(named),)
    changed = replace(named[0], content="told otherwise", at=SOON)
    for batch in (
        Batch(at=SOON, facts=named, fact_vectors=vectors),
        Batch(at=SOON, facts=(changed,), facts_revision=revision),
    ):
        await store.write(batch)
        assert [fact.id for fact in await store.facts(superseded=True)] == ["staying"]
    assert await store.facts_revision() == revision
    candidates = await store.fact_candidates(FactQuery(words=("fact",)))
    assert ([candidate.fact.id for candidate in candidates.facts], candidates.documents) == (
        ["staying"],
        1,
    )


async def forgotten_facts_are_found_no_more(spaces: Spaces) -> None:
    """Words and vectors of a fact go with it, and a word that none has left counts for none."""
    store = await spaces.open()
    new = segments(2)
    facts = (
        fact("going", sources=ids(new[:1]), content="zanzibar port"),
        fact("staying", sources=ids(new[1:]), content="madagascar port"),
    )
    vectors = (fact_vectors(facts),)
    await store.write(Batch(at=START, segments=new, facts=facts, fact_vectors=vectors))
    near = asked("x", like=vectors[0].vectors[0].values)
    query = FactQuery(words=("zanzibar", "port"), vectors=(near,))
    before = await store.fact_candidates(query)
    assert before.document_frequencies == {"zanzibar": 1, "port": 2}
    await store.forget(ForgetOrder(at=SOON, segments=ids(new[:1])))
    after = await store.fact_candidates(query)
    assert after.document_frequencies == {"zanzibar": 0, "port": 1}
    assert [candidate.fact.id for candidate in after.facts] == ["staying"]
    assert after.facts[0].similarities[0] is not None
    unknown = Batch(at=SOON, fact_vectors=(fact_vectors(facts, embedder="late"),))
    await store.write(unknown)
    late = asked("x", embedder="late")
    candidates = await store.fact_candidates(FactQuery(vectors=(late,)))
    assert [candidate.fact.id for candidate in candidates.facts] == ["staying"]
