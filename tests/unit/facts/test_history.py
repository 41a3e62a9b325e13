"""What held at a moment, and the versions of one fact; gaps are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from tests.unit.facts.statement_pairs import CORRECTIONS, LATER_CORRECTIONS, LOOK_ALIKES

from recollect.core.facts.history import (
    FIRST_SOURCES,
    LAST_SOURCES,
    Version,
    as_of,
    gain_source,
    name_property,
    versions,
)
from recollect.core.values.fact import EvidenceSpan, Fact, FactDraft, FactId
from recollect.core.values.segment import SegmentId


def fact(id: str, at: float, **more: object) -> Fact:  # noqa: A002
    made = Fact(id=FactId(id), type="config", content=f"content of {id}", at=at)
    return replace(made, **more)  # type: ignore[arg-type]


def chain(facts: Sequence[Fact], id: FactId) -> tuple[Fact, ...]:  # noqa: A002
    return tuple(version.fact for version in versions(facts, id))


FIRST = fact("first", 1.0, superseded_by="second", valid_to=5.0)
SECOND = fact("second", 5.0, superseded_by="third", valid_to=9.0)
THIRD = fact("third", 9.0)
OTHER = fact("other", 3.0)


def test_what_held_then() -> None:
    for facts in permutations((FIRST, SECOND, THIRD, OTHER)):
        assert as_of(facts, 0.9) == ()
        assert as_of(facts, 1.0) == (FIRST,)
        assert as_of(facts, 4.0) == (FIRST, OTHER)
        assert as_of(facts, 5.0) == (OTHER, SECOND)
        assert as_of(facts, 99.0) == (OTHER, THIRD)


def test_the_chain_is_the_same_from_every_version() -> None:
    for facts in permutations((FIRST, SECOND, THIRD, OTHER)):
        for one in (FIRST, SECOND, THIRD):
            assert chain(facts, one.id) == (FIRST, SECOND, THIRD)
        assert chain(facts, OTHER.id) == (OTHER,)
    assert chain((FIRST,), FactId("absent")) == ()


def test_facts_of_openclaws_have_no_end_of_their_own() -> None:
    """They name what superseded them: they held until that was said."""
    old = replace(FIRST, valid_to=None)
    assert as_of((old, SECOND, THIRD), 4.9) == (old,)
    assert as_of((old, SECOND, THIRD), 5.0) == (SECOND,)
    assert versions((old, SECOND, THIRD), old.id)[0].until == 5.0
    lost = replace(old, superseded_by=FactId("nobody"))
    assert as_of((lost,), 4.0) == (), "superseded, and nobody knows since when"


def test_a_forgotten_version_leaves_a_gap_that_is_told() -> None:
    first = replace(FIRST, subject="api", attribute="port")
    third = replace(THIRD, subject="api", attribute="port")
    told = versions((third, first), third.id)
    assert told == (
        Version(fact=first, until=5.0, followed_by_gap=True),
        Version(fact=third, until=None, followed_by_gap=False),
    )
    assert as_of((first, third), 7.0) == (), "what held then is gone, and nothing stands in for it"
    assert "content of" not in repr(told)


def test_two_that_one_replaced_are_one_chain() -> None:
    beside = fact("beside", 2.0, superseded_by="second", valid_to=5.0)
    assert chain((THIRD, beside, SECOND, FIRST), beside.id) == (FIRST, beside, SECOND, THIRD)


def test_a_ring_of_replacements_ends() -> None:
    """A damaged import must not hang whoever asks for history."""
    one = fact("one", 1.0, superseded_by="two")
    two = fact("two", 2.0, superseded_by="one")
    assert chain((one, two), one.id) == (one, two)
    assert as_of((one, two), 1.5) == (one,)


def test_what_is_said_a_thousand_times_names_the_first_and_the_last() -> None:
    def draft(at: int) -> FactDraft:
        evidence = (EvidenceSpan(segment=SegmentId(f"{at:032x}"), start=0, end=3),)
        return FactDraft(
            type="config",
            content="the API port is 1",
            at=float(at),
            evidence=evidence,
            trust="high",
            made_by="model",
        )

    said = [draft(at) for at in range(300)]
    first = said[0].evidence
    known = fact("a", 1.0, trust="high", sources=(first[0].segment,), evidence=first)
    for one in said[1:]:
        (known,) = gain_source(known, one)
    kept = [one.evidence[0] for one in (*said[:FIRST_SOURCES], *said[-LAST_SOURCES:])]
    assert known.evidence == tuple(kept)
    assert known.sources == tuple(one.segment for one in kept)


def names_the_same(one: str, other: str) -> bool:
    return bool(name_property(one).subject) and (
        name_property(one).subject == name_property(other).subject
    )


def test_a_property_goes_by_one_name_and_look_alikes_by_others() -> None:
    """A missed correction leaves both statements; a look-alike would lose one."""
    pairs = (*CORRECTIONS, *LATER_CORRECTIONS)
    assert sum(names_the_same(one, other) for _, one, other in pairs) >= 20
    assert [pair for pair in LOOK_ALIKES if names_the_same(*pair[1:])] == []
