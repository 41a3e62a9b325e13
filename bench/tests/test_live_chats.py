"""The live bench: chats of others as sessions, and a run through the whole product."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.errors import RecollectError
from recollect_bench.command import bench
from recollect_bench.live import draw, run
from recollect_bench.live.chats import chat_sessions
from recollect_bench.live.feed import SlidingWindow, feed, folded, holds
from recollect_bench.live.sessions import spoken

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
def test_a_run_says_what_stood_in_the_requests(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(
        sets=("locomo",),
        window=(4_000,),
        embedder="none",
        strategy=("recollect", "sliding-window", "plain-compaction", "oracle"),
    )
    assert result.figures["locomo_4k_none_junk.live_all"] == 1.0
    assert result.figures["locomo_4k_none_junk.billed_sliding-window"] >= 1.0
    assert result.baselines["locomo_4k_none_junk.oracle.live_all"] == 1.0
    draw(result)
    assert "locomo_4k_none_junk" in capsys.readouterr().out


@pytest.mark.usefixtures("locomo")
def test_misses_come_with_the_stage_that_lost_them() -> None:
    result = run(
        sets=("locomo",), window=(60,), embedder="none", strategy=("sliding-window",), misses=5
    )
    lost = result.baselines["locomo_0k_none_junk.sliding-window.lost.left the window"]
    assert lost > 0


def test_nobody_looks_at_what_is_held_out() -> None:
    with pytest.raises(RecollectError, match="use the tune half only"):
        run(half="held-out", misses=3)


def test_the_command_refuses_a_set_of_another_bench() -> None:
    for name, given in (("live", "own"), ("recall", "agent")):
        done = CliRunner().invoke(bench, [name, "--set", given])
        assert done.exit_code == 2
        assert f"has no set {given}" in done.output
