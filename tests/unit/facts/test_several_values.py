"""A fact of several values, and corrections of one of them: only what is corrected is closed."""

from __future__ import annotations

import pytest
from tests.unit.facts.fact_segments import segment

from recollect.facts.history import Versions
from recollect.facts.parts import parts_of, remainder
from recollect.facts.reconcile import settle
from recollect.facts.statements import find_statements
from recollect.values.fact import Fact, FactId


def after(*said: str) -> dict[FactId, Fact]:
    """The facts when a user has said these messages."""
    facts: dict[FactId, Fact] = {}
    for at, text in enumerate(said):
        for draft in find_statements(segment("user", text, at)).drafts:
            current = [fact for fact in facts.values() if fact.current]
            done = settle(draft, current, now=2_000.0, history=Versions(facts.values()).of(draft))
            facts.update((fact.id, fact) for fact in done.written)
    return facts


def holding(*said: str) -> set[str]:
    return {fact.content.strip(". ") for fact in after(*said).values() if fact.current}


@pytest.mark.parametrize(
    ("stated", "correction", "still"),
    [
        ("We use Postgres 16 and Redis 7.", "Actually Redis 8", "We use Postgres 16"),
        ("We use Postgres 16 and Redis 7.", "Actually, we use Redis 8.", "We use Postgres 16"),
        ("We use Postgres 16 and Redis 7.", "Sorry, Postgres 17, not 16.", "We use Redis 7"),
        (
            "We use Node 20, Ruby 3.2 and Python 3.11.",
            "Correction: Ruby 3.3.",
            "We use Node 20 and Python 3.11",
        ),
        ("We went with Kafka and Redis.", "Actually RabbitMQ, not Kafka.", "We went with Redis"),
        (
            "Remember: the timeout is 30 s and the retry limit is 5.",
            "Sorry, the timeout is 60 s",
            "the retry limit is 5",
        ),
        (
            "Remember: the API runs on port 8080 and the worker on port 9090.",
            "Sorry, the worker is on port 9191.",
            "the API runs on port 8080",
        ),
    ],
)
def test_a_correction_of_one_value_leaves_the_others(
    stated: str, correction: str, still: str
) -> None:
    (before,) = holding(stated)
    now = holding(stated, correction)
    assert still in now
    assert before not in now
    assert len(now) == 2


def test_what_is_left_rests_on_the_message_that_said_it() -> None:
    facts = after("We use Postgres 16 and Redis 7.", "Actually Redis 8").values()
    whole, corrected, left = facts
    assert whole.superseded_by == corrected.id
    assert left.evidence == whole.evidence
    assert (left.trust, left.session, left.at) == (whole.trust, whole.session, corrected.at)


def test_the_next_correction_finds_each_of_them() -> None:
    now = holding(
        "We use Postgres 16 and Redis 7.", "Actually Redis 8", "Sorry, we use Postgres 17"
    )
    assert now == {"Actually Redis 8", "we use Postgres 17"}


def test_a_correction_that_could_be_of_either_closes_neither() -> None:
    stated = "We use Postgres 16 and Redis 7"
    assert stated in holding(f"{stated}.", "Sorry, make that 8.")


def test_a_correction_of_all_of_them_leaves_nothing() -> None:
    stated = "We use Postgres 16 and Redis 7"
    assert stated not in holding(f"{stated}.", "Actually we use Postgres 16 and Redis 8.")
    assert not remainder(stated, "Postgres 17 and Redis 8").text
    assert not remainder(stated, "changed my mind, let's use Go").text


@pytest.mark.parametrize(
    "statement",
    [
        "The build takes between 5 and 10 minutes",
        "The deadline is Friday, 12 March",
        "We moved to Kafka and it is great",
        "The staging API listens on port 8443",
    ],
)
def test_one_value_is_one_part(statement: str) -> None:
    assert [part.text for part in parts_of(statement)] == [statement]


def test_a_part_takes_the_words_that_lead_into_it() -> None:
    said = "We use Node 20 and Python 3.11 and the worker uses Go 1.22 and Rust 1.80"
    assert [part.text for part in parts_of(said)] == [
        "We use Node 20",
        "We use Python 3.11",
        "the worker uses Go 1.22",
        "the worker uses Rust 1.80",
    ]
    assert [part.text for part in parts_of("我们用 Postgres 16 和 Redis 7")] == [
        "我们用 Postgres 16",
        "我们用 Redis 7",
    ]
