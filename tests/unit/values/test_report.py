"""What a turn did, as a person reads it and as a script does; never what was said in it."""

import asyncio
import json
from pathlib import Path
from typing import Any

from recollect import Engine, Settings, open_memory
from recollect.core.engine.session import Context
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.model import LimitDoubt, Overflow
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import StageLine, join_lines

SAID = "the heron of Uppsala"


def talk(turns: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for turn in range(turns):
        made.append({"role": "user", "content": f"{SAID}, question {turn}?"})
        made.append({"role": "assistant", "content": f"answer {turn} " * 60})
    return [*made, {"role": "user", "content": f"and {SAID} now?"}]


def prepared(turns: int, window_tokens: int = 4_000) -> Context:
    engine = Engine(Settings(window_tokens=window_tokens))
    return asyncio.run(engine.prepare("work", {"messages": talk(turns)}))


def test_a_report_is_three_lines_that_say_what_went_out_what_was_done_and_what_failed() -> None:
    context = prepared(60)
    report = context.report
    sent, done, failed = str(report).splitlines()
    rows = len(context.request["messages"])
    assert sent.startswith(f"Turn 1: {rows} messages, {report.tokens_after:,} of ")
    assert f"{report.limit_tokens:,} tokens" in sent
    assert f"{report.tokens_before:,} received" in sent
    left = sum(fate.fate == "left out" for fate in report.fates())
    assert left > 10
    assert f"{left} messages left out" in done
    assert failed == "No failures"
    assert report.summary() == str(report) == str(context)


def test_a_turn_that_changed_nothing_says_so() -> None:
    _, done, failed = str(prepared(1).report).splitlines()
    assert done == "Done: sent unchanged"
    assert failed == "No failures"


def test_everything_is_ready_for_json_and_nothing_that_was_said_stands_in_it() -> None:
    context = prepared(60)
    told = json.loads(json.dumps(context.report.to_dict()))
    assert {"session", "turn", "tokens_after", "limit_tokens", "lines", "fates"} <= told.keys()
    assert {"repairs", "new_edits", "recalled", "failed", "moment", "messages"} <= told.keys()
    assert len([one for one in told["fates"] if one["place"] is not None]) == 121
    left = next(one for one in told["fates"] if one["fate"] == "left out")
    assert left["reasons"][0]["cause"] == "least_relevant"
    assert isinstance(left["reasons"][0]["numbers"]["score"], float)
    for text in (json.dumps(told), repr(context), str(context), repr(context.report)):
        assert "heron" not in text
    assert len(repr(context)) < 200


async def test_what_was_observed_and_a_compaction_show_themselves(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "memory.db", window_tokens=4_000) as memory:
        await memory.prepare("work", {"messages": talk(2)})
        usage = {"input_tokens": 700, "output_tokens": 20}
        reply = {"role": "assistant", "content": "so it is", "usage": usage}
        seen, compacted = await memory.observe("work", reply), await memory.compact("work")
    assert str(seen).splitlines() == [
        "Reply: tokens 700 in, 20 out; stored in the store; due: nothing",
        "No failures",
    ]
    assert json.loads(json.dumps(seen.to_dict()))["usage"]["input_tokens"] == 700
    assert str(compacted).startswith("failed: no model")
    assert json.loads(json.dumps(compacted.to_dict()))["convergence"] == "failed"


def test_a_reply_that_broke_off_and_what_an_error_said_of_the_window_are_shown() -> None:
    engine = Engine(Settings(window_tokens=4_000))
    asyncio.run(engine.prepare("work", {"messages": talk(2)}))
    started = {"type": "message_start", "message": {"role": "assistant", "content": []}}
    words = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "a"},
    }
    seen = asyncio.run(engine.observe("work", [started, words]))
    assert "the reply ended early: the part received was stored" in str(seen)
    assert seen.to_dict()["broken_off"] is True
    seen = asyncio.run(engine.observe("work", Overflow(pattern_name="x", limit_tokens=2_048)))
    assert "window learned from the provider: 2,048 tokens" in str(seen)
    seen = asyncio.run(engine.observe("work", Overflow(pattern_name="x", limit_tokens=5)))
    assert f"was not learned: {LimitDoubt.BELOW_FLOOR.value}" in str(seen)
    assert seen.to_dict()["doubted_limit"] == LimitDoubt.BELOW_FLOOR.value


def test_the_same_words_of_several_stages_are_said_once() -> None:
    away = Reason(Cause.ERROR, error="the server is away")
    lines = [
        StageLine(stage=stage, outcome="late", reasons=(away,), seconds=0.0)
        for stage in ("load", "ingest", "ingest")
    ]
    assert join_lines(lines) == "load, ingest: the server is away"
    assert str(lines[0]) == "load: late: the server is away"


def test_counts_of_one_and_what_a_block_holds_read_as_people_say_it() -> None:
    assert "still 1 token over the limit" in str(Reason(Cause.STILL_OVER, tokens=1))
    assert "still 2 tokens over the limit" in str(Reason(Cause.STILL_OVER_NOT_DURABLE, tokens=2))
    block = Reason(Cause.RECALLED_BLOCK, tokens=443, fill="everything")
    assert str(block) == "a recalled block of 443 tokens"
    part = Reason(Cause.RECALLED_PART, tokens=1, fill="fewer details")
    assert str(part) == "a recalled block of 1 token, shortened to fit: fewer details"


async def test_what_became_of_a_fact_and_of_an_undo_shows_itself(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "memory.db") as memory:
        assert str(await memory.undo("work")) == "this session has no compaction to undo"
        book = await memory.facts()
        first = await book.add("The API listens on port 8000", type="config")
        assert str(first) == f"added: {first.fact}"
        assert first.fact is not None
        second = await book.edit(first.fact.id, "The API listens on port 9000")
        said, before = str(second).splitlines()
        assert said == f"{second.outcome}: {second.fact}"
        assert before.startswith("in place of: The API listens on port 8000")


def test_a_fact_shows_what_it_says_and_how_far_it_may_be_trusted() -> None:
    fact = Fact(
        id=FactId("f"),
        type="config",
        content="The API listens on port 8000",
        at=1_767_571_200.0,
        trust="high",
        made_by="rules",
        session="work",
        pinned=True,
    )
    assert str(fact) == (
        "The API listens on port 8000 "
        "[config, trust high, since 2026-01-05, by rules from work, pinned]"
    )
    assert "8000" not in repr(fact)


def test_what_failed_is_on_the_last_line() -> None:
    class Broken:
        async def recall(self, request: object) -> Any:
            raise RuntimeError(SAID)

    engine = Engine(Settings(window_tokens=4_000), recaller=Broken())
    context = asyncio.run(engine.prepare("work", {"messages": talk(2)}))
    assert (
        str(context.report)
        .splitlines()[2]
        .startswith("Failed: recall: unexpected error (RuntimeError): ")
    )
