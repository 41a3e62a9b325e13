"""Chats of others as live sessions: what is said, when, and what of it a question needs."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from recollect.bench.live.chats import chat_sessions
from recollect.bench.live.feed import SlidingWindow, feed, folded, holds
from recollect.bench.live.sessions import Need, spoken

LONG = "The garden is large. " * 40
BOAT = "My boat is called Marigold and lies in Rotterdam."


def _turn(number: int, speaker: str, text: str) -> dict[str, Any]:
    return {"dia_id": f"D1:{number}", "speaker": speaker, "text": text}


def _chat(name: str, first: str, asked: str) -> dict[str, Any]:
    talk = [_turn(1, "Ada", first), _turn(2, "Ben", "Nice."), _turn(3, "Ada", "See you!")]
    return {
        "sample_id": name,
        "conversation": {"session_1": talk, "session_1_date_time": "1:56 pm on 8 May, 2023"},
        "qa": [{"question": asked, "evidence": ["D1:1"], "category": 4, "answer": "Marigold"}],
    }


@pytest.fixture
def locomo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [
        _chat("one", f"{LONG}\n{BOAT}", "What is the boat called?"),
        _chat("two", "I keep bees.", "What does Ada keep?"),
    ]
    folder = tmp_path / "memory_qa"
    folder.mkdir()
    with gzip.open(folder / "locomo10.json.gz", "wt", encoding="utf-8") as file:
        json.dump(chats, file)
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path))


@pytest.mark.usefixtures("locomo")
def test_every_message_is_an_exchange_at_its_own_time() -> None:
    session = chat_sessions("locomo")[0]
    said = [spoken(exchange.messages[:1]) for exchange in session.exchanges]
    assert said[1:] == ["Ben: Nice.", "Ada: See you!"]
    times = [exchange.at for exchange in session.exchanges]
    assert times == sorted(set(times))
    assert all(one.messages[-1]["role"] == "assistant" for one in session.exchanges)


@pytest.mark.usefixtures("locomo")
def test_a_question_of_the_other_chat_needs_nothing() -> None:
    asked = [one for _, one in chat_sessions("locomo")[0].questions]
    assert [(one.kind, bool(one.needs)) for one in asked] == [
        ("single-hop", True),
        ("nothing", False),
    ]
    assert asked[1].ask == "What does Ada keep?"


@pytest.mark.usefixtures("locomo")
def test_strictly_the_passage_with_the_answer_is_needed() -> None:
    question = chat_sessions("locomo")[0].questions[0][1]
    (need,) = question.needs
    beginning, answer = folded(need.any_of[0]), folded(BOAT)
    assert holds(beginning, need)
    assert not holds(beginning, need, strict=True)
    assert holds(" ".join(map(folded, need.texts)), need, strict=True)
    assert answer in folded(" ".join(need.texts))


@pytest.mark.usefixtures("locomo")
def test_a_window_that_holds_all_answers_all() -> None:
    tally = asyncio.run(feed(chat_sessions("locomo")[0], SlidingWindow(100_000)))
    assert tally.asked[0].answered
    tally = asyncio.run(feed(chat_sessions("locomo")[0], SlidingWindow(50)))
    assert not tally.asked[0].answered


@pytest.mark.usefixtures("locomo")
def test_bounds_take_questions_of_every_chat() -> None:
    sessions = chat_sessions("locomo", most_questions=1, most_chats=1)
    assert [len(one.questions) for one in sessions] == [2]


def test_a_need_without_a_second_reading_is_strict() -> None:
    assert not holds("port 8471", Need(texts=("8471", "9133")))
