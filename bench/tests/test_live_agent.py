"""Sessions of tool agents: what is said in them beside what is asked, and what a run measures."""

import asyncio

import pytest

from recollect_bench.live import run
from recollect_bench.live.agent import agent_session, load_domains
from recollect_bench.live.feed import SlidingWindow, feed, folded
from recollect_bench.live.sessions import LiveSession, spoken
from recollect_bench.live.statements import further_statements

STATEMENTS = 60


@pytest.fixture(scope="module")
def plain() -> LiveSession:
    return agent_session(load_domains("tune")[0], 0)


@pytest.fixture(scope="module")
def told() -> LiveSession:
    return agent_session(load_domains("tune")[0], 0, statements=STATEMENTS)


def test_further_statements_leave_session_as_it_was(plain: LiveSession, told: LiveSession) -> None:
    own = [exchange.messages for exchange in plain.exchanges]
    assert [one.messages for one in told.exchanges if one.messages in own] == own
    assert len(told.exchanges) == len(plain.exchanges) + STATEMENTS
    for (before, question), (after, again) in zip(plain.questions, told.questions, strict=True):
        assert question == again
        assert plain.exchanges[before - 1].messages == told.exchanges[after - 1].messages
    assert [one.at for one in told.exchanges] == sorted({one.at for one in told.exchanges})


def test_no_further_statement_answers_a_question(plain: LiveSession, told: LiveSession) -> None:
    own = [exchange.messages for exchange in plain.exchanges]
    further = [folded(spoken(one.messages)) for one in told.exchanges if one.messages not in own]
    needed = [need.texts for _, question in told.questions for need in question.needs]
    assert needed
    assert not [text for texts in needed for text in texts if folded(text) in "\n".join(further)]
    assert len(set(further)) == STATEMENTS


def test_statements_are_as_their_seed_says_and_never_what_is_needed() -> None:
    first = further_statements(150, "one")
    assert further_statements(150, "one") == first != further_statements(150, "two")
    needed = first[3][0]
    assert needed not in [text for text, _ in further_statements(150, "one", unlike=[needed])]
    with pytest.raises(ValueError, match="at the most"):
        further_statements(10_000, "one")


def test_what_is_needed_was_said_before_it_is_asked(told: LiveSession) -> None:
    tally = asyncio.run(feed(told, SlidingWindow(10_000_000)))
    assert all(asked.answered for asked in tally.asked)


def test_a_run_has_a_part_for_each_summariser_and_number_of_statements() -> None:
    result = run(
        strategy=("oracle",), window=(16_000,), summaries=("junk", "none"), statements=(0, 40)
    )
    assert [part.name for part in result.parts] == [
        *("agent_16k_static_junk", "agent_16k_static_junk_40", "agent_16k_static_none"),
        "agent_16k_static_none_40",
    ]
    parts = run(strategy=("oracle",), window=(16_000,)).parts
    assert [part.name for part in parts] == [
        *("agent_16k_static_junk", "agent_16k_static_junk_200", "agent_16k_static_plausible"),
        "agent_16k_static_plausible_200",
    ]
