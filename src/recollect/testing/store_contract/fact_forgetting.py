"""What holds for facts when what they rest on is forgotten, or they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recollect.testing.store_contract.examples import (
    START,
    asked,
    fact,
    fact_vectors,
    ids,
    segment,
    segments,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch
from recollect.values.fact import EvidenceSpan, Fact, FactId, fact_identity
from recollect.values.recall import FactQuery
from recollect.values.segment import NewSegment, SegmentId
from recollect.values.upkeep import ForgetOrder

AT = START + 1_000


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
        fact("digest", sources=ids(new), type="digest", joint=True),
    )
    await store.write(Batch(at=START, segments=new, facts=facts))
    done = await store.forget(ForgetOrder(at=AT, segments=ids(new[:1])))
    assert sorted(done.facts) == ["digest", "joint"]
    left = {one.id: one for one in await store.facts(superseded=True)}
    assert sorted(left) == ["either", "joint elsewhere"]
    assert left[FactId("either")] == replace(
        facts[2], sources=ids(new[1:2]), evidence=facts[2].evidence[1:]
    ), "without the source and its span, as trusted as before"
    await store.write(Batch(at=AT, facts=facts))
    assert sorted(one.id for one in await store.facts()) == ["either", "joint elsewhere"]


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
    done = await store.forget(ForgetOrder(at=AT, segments=ids(new[:1])))
    assert sorted(done.facts) == ["by span alone", "joint by spans"]
    for _ in range(2):
        left = {one.id: (one.sources, one.evidence) for one in await store.facts()}
        assert left == {
            "by spans": ((), _spans(*new)[1:]),
            "by source and span": (ids(new[1:]), _spans(*new)[1:]),
        }
        await store.write(Batch(at=AT, facts=facts))


async def evidence_moves_to_the_twin(spaces: Spaces) -> None:
    """A fact of a forgotten place whose words are said elsewhere points to them there."""
    store = await spaces.open()
    here, there = segment("the port is 8080", session="one"), segment("the port is 8080")
    other = segment("and the host is ours", session="one")
    facts = (_resting("port", here), _resting("both", here, other, joint=True))
    await store.write(Batch(at=START, segments=(here, there, other), facts=facts))
    done = await store.forget(ForgetOrder(at=AT, sessions=("one",)))
    assert done.facts == ("both",)
    (left,) = await store.facts()
    assert left == replace(facts[0], sources=ids((there,)), evidence=_spans(there))


async def forgotten_fact_stays_away(spaces: Spaces) -> None:
    """A fact that was forgotten by name is never written again, from whatever batch."""
    store = await spaces.open()
    named = (fact("going"), fact("unheard of"), fact("staying"))
    await store.write(Batch(at=START, facts=(named[0], named[2])))
    order = ForgetOrder(at=AT, facts=(named[0].id, named[1].id))
    done = await store.forget(order)
    assert done.facts == ("going",)
    identities = {fact_identity(one.id) for one in named[:2]}
    assert await store.tombstoned(fact_identity(one.id) for one in named) == identities
    revision = await store.facts_revision()
    vectors = (fact_vectors(named),)
    changed = replace(named[0], content="told otherwise", at=AT)
    for batch in (
        Batch(at=AT, facts=named, fact_vectors=vectors),
        Batch(at=AT, facts=(changed,), facts_revision=revision),
    ):
        await store.write(batch)
        assert [one.id for one in await store.facts(superseded=True)] == ["staying"]
    assert await store.facts_revision() == revision
    found = await store.fact_candidates(FactQuery(words=("fact",)))
    assert ([one.fact.id for one in found.facts], found.documents) == (["staying"], 1)


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
    await store.forget(ForgetOrder(at=AT, segments=ids(new[:1])))
    after = await store.fact_candidates(query)
    assert after.document_frequencies == {"zanzibar": 0, "port": 1}
    assert [one.fact.id for one in after.facts] == ["staying"]
    assert after.facts[0].similarities[0] is not None
    unknown = Batch(at=AT, fact_vectors=(fact_vectors(facts, embedder="late"),))
    await store.write(unknown)
    late = asked("x", embedder="late")
    found = await store.fact_candidates(FactQuery(vectors=(late,)))
    assert [one.fact.id for one in found.facts] == ["staying"]


async def sources_that_are_unknown_do_no_harm(spaces: Spaces) -> None:
    """Forgetting takes nothing from facts that rest on segments which were never stored."""
    store = await spaces.open()
    strange = SegmentId("f" * 32)
    kept = fact(
        "strange", sources=[strange], evidence=(EvidenceSpan(segment=strange, start=0, end=1),)
    )
    new = segments(1)
    await store.write(Batch(at=START, segments=new, facts=(kept,)))
    assert (await store.forget(ForgetOrder(at=AT, segments=ids(new)))).facts == ()
    assert await store.facts() == (kept,)
