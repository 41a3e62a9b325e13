"""Fifteen failures that others' compactions had, and must not be ours: one test for each lesson.

Named in docs/contributing/sources.md by their issues. Each builds the situation of the report on
the real engine and a real store. Those about flushes, counts and retries are in
test_fifteen_failures_of_flushes.py."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.long_talk import (
    SESSION,
    WORDS,
    Clock,
    Talk,
    grown,
    honest,
    notes,
    opened,
    said,
    scribe,
    shown,
    sound,
    stored,
)

from recollect import Context
from recollect.core.compaction.ask import CONSUMED_NOTE
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.values.edit import Cut
from recollect.core.values.model import Prompt

OPENING = PI_OPENING.split("\n", 1)[0]


async def test_01_kept_messages_do_not_vanish_at_the_second_compaction(tmp_path: Path) -> None:
    """earendil-works/pi#2608: the second range began behind the first compaction's entry."""
    talk = Talk()
    model = scribe()
    async with opened(tmp_path / "m.db", model) as memory:
        await grown(memory, talk, 9)
        first = await memory.compact(SESSION)
        assert first.compacted, first.reason
        context = await memory.prepare(SESSION, talk.body("go on"))
        kept = [text for text in said(talk.messages) if text in shown(context)]
        assert kept, "some messages were kept word for word"
        before = len(model.prompts)
        await grown(memory, talk, 9)
        second = await memory.compact(SESSION)
        assert second.compacted, second.reason
        context = await memory.prepare(SESSION, talk.body("go on"))
        read = "\n".join(prompt.text for prompt in model.prompts[before:])
        gone = [text for text in kept if text not in shown(context)]
        assert gone, "what the first one kept has left the view by now"
        assert [text for text in gone if text.strip() not in read] == []


async def test_02_without_a_summary_the_history_stays(tmp_path: Path) -> None:
    """openclaw#6772: no model was found, and "Summary unavailable" replaced the whole session."""
    place = tmp_path / "m.db"
    talk = Talk().exchange(16)
    async with opened(tmp_path / "m.db", None) as memory:
        context = sound(await memory.prepare(SESSION, talk.body("which berth?")))
        assert context.compaction is None
        told = [line.said for line in context.report.lines if line.stage == "compact"]
        assert told
        assert "no model for summaries is set" in told[0]
        done = await memory.compact(SESSION)
        honest(done)
        assert done.convergence == "failed"
        assert "no model for summaries is set" in str(done.reason)
        again = sound(await memory.prepare(SESSION, talk.body("which berth?")))
        assert not [edit for edit in again.edits if isinstance(edit, Cut)]
        assert "unavailable" not in shown(again)
        assert len(again.request["messages"]) >= 6, "what is near is still there"
        await memory.settle()
    assert [text for text in said(talk.messages) if text not in await stored(place)] == []


@pytest.mark.parametrize("keep", [200, 1_300, 2_100])
async def test_03_a_cut_never_parts_a_call_from_its_result(keep: int, tmp_path: Path) -> None:
    """openclaw#9672: an orphaned tool_result, and every request after it was refused."""
    talk = Talk()
    ranges: list[Mapping[str, Any]] = []
    settings = {"compaction__keep_recent_tokens": keep}
    async with opened(tmp_path / "m.db", scribe(), **settings) as memory:
        memory.on("session_before_compact", lambda event, _: ranges.append(event))
        for n in range(14):
            talk.ask(f"look at module {n}").call("read", f"{n}: {WORDS * 14}", path=f"src/{n}.py")
            await memory.prepare(SESSION, talk.body())
            talk.call("bash", f"{n} ran: {WORDS * 14}", command=f"make {n}")
            context = sound(await memory.prepare(SESSION, talk.body()))
            mended = [one for one in context.report.view.repairs if one.kind != "merged"]
            assert mended == [], "nothing had to be mended"
            talk.answer(f"module {n} is done")
        done = await memory.compact(SESSION, talk.body("and now?"))
        honest(done)
        context = sound(await memory.prepare(SESSION, talk.body("and now?")))
        assert context.report.view.repairs == ()
    assert ranges
    for event in ranges:
        told = event["preparation"]
        text = [*told["messagesToSummarize"], *told["turnPrefixMessages"]]
        blocks = [b for m in text if isinstance(m["content"], list) for b in m["content"]]
        calls = {b["id"] for b in blocks if b["type"] == "tool_use"}
        results = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        assert calls == results, "a call is cut with its result, or not at all"


@pytest.mark.parametrize("answered", [0, 1])
async def test_04_parallel_calls_without_results_leave_no_orphans(
    answered: int, tmp_path: Path
) -> None:
    """openclaw#93321: a timeout with calls pending, and the compaction kept their tool_use."""
    talk = Talk().exchange(3)
    async with opened(tmp_path / "m.db", scribe()) as memory:
        await memory.prepare(SESSION, talk.body("now read both"))
        talk.ask("now read both")
        calls = [
            {"type": "tool_use", "id": f"p{n}", "name": "read", "input": {"n": n}} for n in range(2)
        ]
        talk.messages.append({"role": "assistant", "content": calls})
        if answered:
            result = {"type": "tool_result", "tool_use_id": "p0", "content": "cargo " * 30}
            talk.messages.append({"role": "user", "content": [result]})
        for asked in ("it hung, go on", "anything?", "and then?"):
            sound(await memory.prepare(SESSION, talk.body(asked)))
            await grown(memory, talk.ask(asked).answer("yes " + WORDS), 7)
            done = await memory.compact(SESSION)
            honest(done)
            assert done.compacted, done.reason
            sound(await memory.prepare(SESSION, talk.body("next?")))


async def test_11_chinese_is_not_counted_by_its_letters(tmp_path: Path) -> None:
    """openclaw#103930: a quarter of the characters, and 65,000 tokens were kept, not 20,000."""
    line = "港口的起重机把货物从船上搬到码头然后潮水慢慢地涨起来大家都在等待"
    talk = Talk()
    keep = 1_500
    settings = {"compaction__keep_recent_tokens": keep}
    async with opened(tmp_path / "m.db", scribe(), **settings) as memory:
        for n in range(16):
            talk.ask(f"第{n}个问题：{line}").answer(f"第{n}个回答：{line * 12}")
            context = await memory.prepare(SESSION, talk.body("下一步？"))
            letters = sum(sign > "\u2e80" for sign in shown(context))
            assert letters < 8_000, "each is about a token, so this is the window"
        done = await memory.compact(SESSION)
        assert done.compacted, done.reason
        context = sound(await memory.prepare(SESSION, talk.body("下一步？")))
        kept = sum(sign > "\u2e80" for sign in shown(context))
        assert keep / 3 < kept < 2 * keep, "what was asked for, not four times as much"


async def test_12_turns_go_on_while_a_summary_is_written(tmp_path: Path) -> None:
    """openclaw#91358: compaction held the session's lock for a quarter of an hour."""
    talk = Talk()
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow:
        name = "slow"
        window_tokens = None

        async def ask(self, prompt: Prompt) -> Any:
            from recollect.core.values.model import Answer

            asked.set()
            await answer.wait()
            return Answer(text=notes(prompt))

        async def close(self) -> None:
            pass

    async with opened(tmp_path / "m.db", Slow()) as memory:
        await grown(memory, talk, 8)
        compacting = asyncio.create_task(memory.compact(SESSION))
        await asyncio.wait_for(asked.wait(), 5)
        for _ in range(2):
            context = await asyncio.wait_for(grown(memory, talk, 1), 5)
            content = [{"type": "text", "text": "yes"}]
            reply = {"role": "assistant", "content": content}
            await asyncio.wait_for(memory.observe(SESSION, reply), 5)
            assert OPENING not in shown(context)
        assert not compacting.done()
        answer.set()
        done = await compacting
        assert done.compacted, done.reason
        assert OPENING in shown(sound(await grown(memory, talk, 1)))


@pytest.mark.parametrize("alone", [True, False])
async def test_13_one_huge_tool_result_is_shortened(alone: bool, tmp_path: Path) -> None:
    """openclaw#13464: one result of 184,000 tokens, and no way out of it."""
    lines = "\n".join(f"{n}: {WORDS}" for n in range(12_000))
    assert len(lines) > 184_000 * 4
    talk = Talk().exchange(1 if alone else 8)
    async with opened(tmp_path / "m.db", scribe()) as memory:
        await memory.prepare(SESSION, talk.body("read the log"))
        talk.ask("read the log").call("read", f"FIRST\n{lines}\nLAST", path="all.log")
        context = sound(await memory.prepare(SESSION, talk.body()))
        result = context.request["messages"][-1]["content"][0]
        assert result["type"] == "tool_result", "the model gets its answer in the same turn"
        assert "FIRST" in json.dumps(result)
        assert "LAST" in json.dumps(result)
        talk.answer("it is long")
        sound(await memory.prepare(SESSION, talk.body("and what does it say?")))
        await memory.settle()
    assert any("LAST" in text for text in await stored(tmp_path / "m.db"))


async def test_14_compactions_without_progress_stop(tmp_path: Path) -> None:
    """claude-code#24179: 211 compactions in a row, and none of them made room."""
    talk = Talk()
    model = scribe()
    settings = {"clock": Clock(), "trim__protect_messages": 2}
    async with opened(tmp_path / "m.db", model, **settings) as memory:
        made: list[Context] = []
        for n in range(14):  # each turn brings a whole window of its own
            talk.ask(f"Page {n}: {WORDS * 150}").answer(f"Read page {n}: {WORDS * 150}")
            made.append(sound(await memory.prepare(SESSION, talk.body("go on"))))
        tried = [one.compaction is not None for one in made]
        assert 3 <= sum(tried) <= 5, "a few tries, then the view is trimmed"
        assert not any(tried[-6:])
        told = [line.said for line in made[-1].report.lines if line.stage == "compact"]
        assert any("paused" in one for one in told)
        last = str(made[-1].report).splitlines()[-1]
        assert last.startswith("Paused: "), "a person who reads the report sees it"
        asked = len(model.prompts)
        done = await memory.compact(SESSION, instructions="I want it nevertheless")
        honest(done)
        assert len(model.prompts) > asked, "who asks for one gets one"


COMMAND = "delete the branch old-harbour and push it to production at once"


async def test_15_what_compact_was_told_is_not_executed_again(tmp_path: Path) -> None:
    """claude-code#20370: the command's words crossed the boundary and were carried out again."""

    def obedient(prompt: Prompt) -> str:
        """Takes what it should look after for a task, as small models do."""
        told = f"\n- {COMMAND}" if COMMAND in prompt.text else ""
        return notes(prompt).replace("## Open TODOs", f"## Open TODOs{told}")

    talk = Talk()
    model = scribe(obedient)
    async with opened(tmp_path / "m.db", model) as memory:
        await grown(memory, talk, 9)
        talk.ask(f"/compact {COMMAND}")  # some clients leave the command in their history
        done = await memory.compact(SESSION, talk.body(), instructions=COMMAND)
        assert done.compacted, done.reason
        assert all(prompt.text.count(COMMAND) <= 1 for prompt in model.prompts)
        assert any(COMMAND in prompt.text for prompt in model.prompts), "it was used"
        assert COMMAND not in done.summary
        talk.answer("compacted")
        before = len(model.prompts)
        await grown(memory, talk, 9)
        second = await memory.compact(SESSION)
        assert second.compacted, second.reason
        later = "\n".join(prompt.text for prompt in model.prompts[before:])
        assert COMMAND not in later, "used once"
        assert CONSUMED_NOTE in later
        context = sound(await memory.prepare(SESSION, talk.body("and now?")))
        assert COMMAND not in shown(context)


async def test_15_rules_of_the_workspace_survive_every_compaction(tmp_path: Path) -> None:
    """claude-code#19471, #4017: rules were summarized, and with each summary there were fewer."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    rules = "Never push to main without a review by Ada."
    (workspace / "AGENTS.md").write_text(f"# Us\n\nhello\n\n## Red Lines\n\n{rules}\n")
    talk = Talk()
    model = scribe()
    async with opened(tmp_path / "m.db", model, workspace=workspace) as memory:
        for _ in range(3):
            await grown(memory, talk, 9)
            done = await memory.compact(SESSION)
            assert done.compacted, done.reason
            context = await memory.prepare(SESSION, talk.body("and now?"))
            assert shown(context).count(rules) == 1
        assert not any(rules in prompt.text for prompt in model.prompts), "never summarized"
