"""What held at a moment, and the versions of one fact; gaps are told."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from recollect.core.facts.history import FactVersion, as_of, fact_history, name_property
from recollect.core.values.fact import Fact, FactId


def fact(id: str, at: float, **more: object) -> Fact:  # noqa: A002
    made = Fact(id=FactId(id), type="config", content=f"content of {id}", at=at)
    return replace(made, **more)  # type: ignore[arg-type]


def chain(facts: Sequence[Fact], one: Fact) -> tuple[Fact, ...]:
    return fact_history(one, facts).facts


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
            assert chain(facts, one) == (FIRST, SECOND, THIRD)
        assert chain(facts, OTHER) == (OTHER,)


def test_facts_of_openclaws_have_no_end_of_their_own() -> None:
    """They name what superseded them: they held until that was said."""
    old = replace(FIRST, valid_to=None)
    assert as_of((old, SECOND, THIRD), 4.9) == (old,)
    assert as_of((old, SECOND, THIRD), 5.0) == (SECOND,)
    assert fact_history(old, (old, SECOND, THIRD)).versions[0].until == 5.0
    lost = replace(old, superseded_by=FactId("nobody"))
    assert as_of((lost,), 4.0) == (), "superseded, and nobody knows since when"


def test_a_forgotten_version_leaves_a_gap_that_is_told() -> None:
    first = replace(FIRST, subject="api", attribute="port")
    third = replace(THIRD, subject="api", attribute="port")
    told = fact_history(third, (third, first)).versions
    assert told == (
        FactVersion(fact=first, until=5.0),
        FactVersion(fact=None, id=FactId("second")),
        FactVersion(fact=third),
    )
    assert as_of((first, third), 7.0) == (), "what held then is gone, and nothing stands in for it"
    assert "content of" not in repr(told)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("We deploy to eu-west-1", "we deploy to us-east-2 now", True),
        ("CI uses Node 18", "CI now uses Node 20", True),
        ("The test database is called app_test", "the test database is now named app_ci", True),
        ("Redis TTL is 300 seconds", "the TTL in Redis is 600 seconds", True),
        ("API_URL=https://a.example.com", "API_URL is https://b.example.com", True),
        ("Standup is at 9:30", "standup moved to 10:00", True),
        ("My favorite editor is Emacs", "my favorite editor is Helix", True),
        ("The Kafka retention is 3 days", "Kafka retention was bumped to 7 days", True),
        ("Emails are sent from noreply@acme.com", "emails are sent from hello@acme.com", True),
        ("服务器地址是 10.0.0.5", "服务器地址换成 10.0.0.6", True),
        ("OrderService calls PaymentService", "PaymentService calls OrderService", False),
        ("the gateway uses Go", "the gateway uses Redis", False),
        ("the US bucket is acme-us-1", "the EU bucket is acme-eu-1", False),
        ("测试环境数据库地址是 10.0.0.1", "生产环境数据库地址是 10.0.0.2", False),
        ("the 2 vCPU plan costs $10", "the 4 vCPU plan costs $20", False),
        ("release 1.2 is due on March 3", "release 1.3 is due on April 3", False),
        ("I fixed the bug in src/a.py", "I fixed the bug in src/b.py", False),
    ],
)
def test_a_property_goes_by_one_name(one: str, other: str, same: bool) -> None:
    """A missed correction leaves both statements; a look-alike would lose one."""
    named = name_property(one).subject
    assert (bool(named) and named == name_property(other).subject) == same
