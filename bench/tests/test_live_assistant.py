"""The assistant sessions of the live bench: what their questions rely on is in their text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from recollect_bench.live import run
from recollect_bench.live.agent import assistant_sessions, load_assistants
from recollect_bench.live.feed import folded
from recollect_bench.live.sessions import LiveSession, spoken

SESSIONS = assistant_sessions()
STORED: Sequence[Mapping[str, Any]] = load_assistants()["sessions"]
PAIRS = [
    pytest.param(session, stored, id=session.name)
    for session, stored in zip(SESSIONS, STORED, strict=True)
]
each_session = pytest.mark.parametrize(("session", "stored"), PAIRS)


def _turns_with(session: LiveSession, text: str) -> list[int]:
    return [
        turn
        for turn, exchange in enumerate(session.exchanges)
        if folded(text) in folded(spoken(exchange.messages))
    ]


def _current(asked: Mapping[str, Any]) -> str:
    return str(asked["needs"][0]["literal"])


@each_session
def test_a_session_is_long_and_asks_enough(session: LiveSession, stored: Any) -> None:
    assert 150 <= len(session.exchanges) <= 180
    kinds = Counter(question.kind for _, question in session.questions)
    assert kinds["nothing"] >= 10
    assert kinds.total() - kinds["nothing"] >= 45
    assert len(kinds) == 12
    said = [spoken(exchange.messages) for exchange in session.exchanges]
    assert sum(map(len, said)) // 4 > 3 * 16_000
    assert not any("{{" in text for text in said)


@each_session
def test_every_need_is_told_before_its_question(session: LiveSession, stored: Any) -> None:
    for after, question in session.questions:
        given = folded(spoken(question.lead) + " " + question.ask)
        for need in question.needs:
            for text in need.texts:
                turns = _turns_with(session, text)
                assert turns, text
                assert turns[0] < after, text
                assert folded(text) not in given, text


@each_session
def test_no_ordinary_turn_answers_a_question(session: LiveSession, stored: Any) -> None:
    needed = [text for _, asked in session.questions for need in asked.needs for text in need.texts]
    for text in needed:
        turns = _turns_with(session, text)
        assert not any(session.exchanges[turn].ordinary for turn in turns), text


@each_session
def test_a_correction_follows_all_that_it_corrects(session: LiveSession, stored: Any) -> None:
    corrected = [asked for asked in stored["questions"] if "outdated" in asked]
    assert len(corrected) >= 9
    assert any(len(asked["outdated"]) > 1 for asked in corrected)
    for asked in corrected:
        newest = _turns_with(session, _current(asked))[0]
        before = [_turns_with(session, text)[0] for text in asked["outdated"]]
        assert before == sorted(before), asked["ask"]
        assert before[-1] < newest, asked["ask"]


@each_session
def test_a_question_is_asked_before_its_answer_changes(session: LiveSession, stored: Any) -> None:
    """A value that another question calls outdated is asked for only while it holds."""
    for asked in stored["questions"]:
        for other in stored["questions"]:
            for need in asked.get("needs", ()):
                if need["literal"] in other.get("outdated", ()):
                    assert asked["after"] <= _turns_with(session, _current(other))[0], asked["ask"]


@each_session
def test_what_was_never_told_is_nowhere(session: LiveSession, stored: Any) -> None:
    for asked in stored["questions"]:
        assert (asked["kind"] == "nothing") == ("absent" in asked) == ("needs" not in asked)
        for text in asked.get("absent", ()):
            assert not _turns_with(session, text), text


def test_a_run_asks_a_few_of_them() -> None:
    result = run(sets=("assistant",), strategy=("sliding-window",), window=(16_000,), quick=True)
    assert 0 < result.baselines["assistant_16k_static_junk.sliding-window.single_questions"] <= 10
    assert result.chosen["set"] == ["assistant"]
    assert "half" not in result.chosen
