"""What holds for facts: written, replaced by id, superseded, in order."""

from __future__ import annotations

from dataclasses import replace

from recollect.testing.store_contract.examples import START, fact, ids, segments
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch
from recollect.values.fact import EvidenceSpan, Fact, FactId
from recollect.values.segment import SegmentId


def _plain(facts: tuple[Fact, ...]) -> list[Fact]:
    """Words are a bag: their order means nothing."""
    return [replace(one, words=tuple(sorted(one.words))) for one in facts]


async def facts_come_back(spaces: Spaces) -> None:
    """A fact comes back with every field as it was written."""
    store = await spaces.open()
    new = segments(2)
    given = (
        fact("full", sources=ids(new), at=START + 0.123456789, type="config", context="Größe 世界",
             content="port 'is' \"8080\" \\ 🙂", trust="high", superseded_by=FactId("other"),
             foreign='{"id": 7}', valid_to=START + 7.5, recorded_at=START + 8.25,
             subject="der Dienst 世界", attribute="port\x00", made_by="model", change="supersede",
             evidence=(EvidenceSpan(segment=new[0].segment.id, start=0, end=5),
                       EvidenceSpan(segment=new[1].segment.id, start=3, end=2**31)),
             session="talk 'one' 🙂", pinned=True, joint=True),
        fact("plain", at=START + 1),
        fact("unknown source", at=START + 2, sources=[SegmentId("f" * 32)]),
    )  # fmt: skip
    await store.write(Batch(at=START, segments=new, facts=given))
    store = await spaces.reopen(store)
    assert _plain(await store.facts(superseded=True)) == _plain(given)
    assert (await store.stats()).facts == 3


async def fact_is_replaced_by_id(spaces: Spaces) -> None:
    """A fact whose id is known is replaced, sources and all."""
    store = await spaces.open()
    new = segments(3)
    first = fact("one", sources=ids(new[:2]))
    await store.write(Batch(at=START, segments=new, facts=(first, fact("two", at=START + 1))))
    second = fact("one", sources=ids(new[2:]), content="now otherwise", at=START + 2)
    await store.write(Batch(at=START + 2, facts=(second,)))
    assert _plain(await store.facts()) == _plain((fact("two", at=START + 1), second))
    assert _plain(await store.facts([FactId("one")])) == _plain((second,))


async def superseded_facts_come_on_request(spaces: Spaces) -> None:
    """Facts that are not current, replaced or ended, are left out unless they are asked for."""
    store = await spaces.open()
    old = fact("old", superseded_by=FactId("new"))
    ended = fact("ended", at=START + 0.5, valid_to=START + 9)
    new = fact("new", at=START + 1)
    await store.write(Batch(at=START, facts=(old, ended, new)))
    assert _plain(await store.facts()) == _plain((new,))
    assert _plain(await store.facts(superseded=True)) == _plain((old, ended, new))
    every = await store.facts([new.id, ended.id, old.id], superseded=True)
    assert _plain(every) == _plain((new, ended, old))
    assert _plain(await store.facts([new.id, ended.id, old.id])) == _plain((new,))
    await store.write(Batch(at=START, facts=(replace(old, superseded_by=None),)))
    assert [one.id for one in await store.facts()] == ["old", "new"]


async def old_versions_are_kept(spaces: Spaces) -> None:
    """A closed fact stays with its validity, and every version is there on request."""
    store = await spaces.open()
    names = ("first", "second", "third")
    chain = tuple(
        fact(
            name,
            at=START + place,
            change=None if place == 0 else "supersede",
            valid_to=None if place == 2 else START + place + 1,
            superseded_by=None if place == 2 else FactId(names[place + 1]),
        )
        for place, name in enumerate(names)
    )
    await store.write(Batch(at=START, facts=chain[:1]))
    await store.write(Batch(at=START, facts=chain))
    kept = await store.facts(superseded=True)
    assert _plain(kept) == _plain(chain)
    for place in range(3):
        held = [one.id for one in kept if one.held_at(START + place + 0.5)]
        assert held == [names[place]], place
    assert [one.id for one in await store.facts()] == ["third"]


async def facts_are_ordered(spaces: Spaces) -> None:
    """All facts come by time and id; facts by id in the order of the ids, unknown left out."""
    store = await spaces.open()
    given = [
        fact(name, at=START + at) for name, at in (("d", 3), ("b", 1), ("c", 1), ("a", 2), ("e", 0))
    ]
    await store.write(Batch(at=START, facts=tuple(given)))
    assert [one.id for one in await store.facts()] == ["e", "b", "c", "a", "d"]
    wanted = [FactId(name) for name in ("d", "a", "unheard of", "b")]
    assert [one.id for one in await store.facts(wanted)] == ["d", "a", "b"]
    assert await store.facts([]) == ()


async def facts_of_subjects_are_read_alone(spaces: Spaces) -> None:
    """With subjects only facts about one of these come, in the order of all the others."""
    store = await spaces.open()
    about = ("host", "port", "a\ud800b", "", "世界\x00", "port")
    given = tuple(
        fact(f"f{place}", at=START - place, subject=subject, valid_to=None if place else START)
        for place, subject in enumerate(about)
    )
    await store.write(Batch(at=START, facts=given))
    for asked in (("port",), ("port", "host"), ("a\ud800b", "世界\x00"), ("",), ("nobody",), ()):
        for superseded in (False, True):
            every = await store.facts(superseded=superseded)
            found = await store.facts(superseded=superseded, subjects=asked)
            assert found == tuple(one for one in every if one.subject in asked), asked
    ids_ = [given[5].id, given[1].id, given[2].id]
    assert [one.id for one in await store.facts(ids_, subjects={"port"})] == ["f5", "f1"]
    many = ("port", *(f"subject {number}" for number in range(1_200)))
    assert [one.id for one in await store.facts(subjects=many)] == ["f5", "f1"]
