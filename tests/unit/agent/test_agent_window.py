"""When the window fills: overflow, compaction, the flush turn, commands."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, ended, filling, of, said

from recollect.adapters.wiring import open_store
from recollect.agent.conversation import Shape
from recollect.agent.events import Compacted, Failed, Flushed, Told, Withdrawn
from recollect.agent.flush import FlushTurn
from recollect.core.formats.json_text import encode
from recollect.core.formats.stored_records import join_state
from recollect.core.formats.translate import Speaker
from recollect.core.values.model import Overflow, ReplyDone
from recollect.errors import ModelOverflow, ModelUnavailable
from recollect.system.config import Settings
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel, WireName

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")
WINDOW = 8_000
SMALL: dict[str, Any] = {
    "window_tokens": WINDOW,
    "compaction.keep_recent_tokens": 300,
    "compaction.flush.enabled": False,
}
FLUSHING: dict[str, Any] = {**SMALL, "compaction.flush.enabled": True}
TALK = tuple(f"{number}. " + "tell me more about the harbour at night " * 40 for number in range(5))
TODAY = "memory/2026-03-11.md"


def overflowing(limit: int = 4000) -> ModelOverflow:
    said_so = Overflow(pattern_name="test", limit_tokens=limit, requested_tokens=limit + 1000)
    return ModelOverflow("too long; ask with less", said_so)


def note(path: str = TODAY, text: str = "Decided: use SQLite.") -> ScriptedCall:
    return ScriptedCall(id="w1", name="write", input={"path": path, "content": text})


@pytest.mark.parametrize("wire", WIRES)
def test_an_overflow_is_compacted_and_tried_once_more(tmp_path: Path, wire: WireName) -> None:
    steps: list[Any] = [*("fine" for _ in TALK), overflowing(), Says(text="Here it is.")]
    model = ScriptedModel(steps, format=wire)
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*TALK, "and now?")
    model.check()
    assert ended(events) == "done"
    assert said(events).endswith("Here it is.")
    assert of(events, Withdrawn)
    assert of(events, Compacted)[0].result.compacted, of(events, Compacted)[0].result.reason
    refused, again = model.requests[-2:]
    before, after = (len(encode({**request, "tools": None})) for request in (refused, again))
    assert after < 0.6 * before, "what was said is less by far; tools are sent as they are"
    assert violations(wire, again) == []
    assert harness.messages()[-2]["stopReason"] == "error"
    compaction = next(one for one in harness.entries() if one["type"] == "compaction")
    kept = next(one for one in harness.entries() if one["id"] == compaction["firstKeptEntryId"])
    assert kept["message"]["role"] in ("user", "assistant")
    assert encode(kept["message"]["content"][0]["text"]).decode() in encode(again).decode()


def test_a_second_overflow_is_an_error_and_the_history_is_whole(tmp_path: Path) -> None:
    model = ScriptedModel([*("fine" for _ in TALK), overflowing(), overflowing(), "still here"])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*TALK, "and now?")
    model_calls = len(model.requests)
    assert ended(events) == "failed"
    failure = of(events, Failed)[0]
    assert failure.kind == "overflow"
    assert "/new" in failure.reason
    assert model_calls == len(TALK) + 2
    users = [one for one in harness.messages() if one["role"] == "user"]
    assert [one["content"][0]["text"] for one in users] == [*TALK, "and now?"]
    assert ended(harness.say("once more")) == "done"
    model.check()


def test_a_reply_to_a_request_that_was_cut_does_not_count(tmp_path: Path) -> None:
    reply = {"role": "assistant", "content": [{"type": "text", "text": "What harbour?"}]}
    silent = ReplyDone(
        reply=reply, stop="stop", overflow=Overflow(pattern_name="silent", limit_tokens=4000)
    )
    model = ScriptedModel([*("fine" for _ in TALK), [silent], "The harbour."])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*TALK, "which one?")
    assert ended(events) == "done"
    assert "What harbour?" not in str(model.requests[-1])


def test_a_reply_that_fills_the_window_is_followed_by_a_compaction(tmp_path: Path) -> None:
    model = ScriptedModel([*("fine" for _ in TALK), filling("full", WINDOW), "after"])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*TALK, "fill it", "go on")
    made = of(events, Compacted)[0]
    assert made.result.compacted, made.result.reason
    assert made.result.trigger == "threshold"
    assert len(model.requests[-1]["messages"]) < len(model.requests[-2]["messages"])
    harness.model = ScriptedModel(["restarted"])
    harness.say("after a restart")
    again = harness.model.requests[0]["messages"]
    before = model.requests[-1]["messages"]
    assert [encode(one) for one in again][: len(before)] == [encode(one) for one in before]


def test_in_mid_turn_results_are_recorded_before_the_compaction(tmp_path: Path) -> None:
    calls = [ScriptedCall(id="c1", name="bash", input={"command": "echo hi"})]
    steps: list[Any] = [*("fine" for _ in TALK), filling("", WINDOW, calls=calls), "done"]
    model = ScriptedModel(steps)
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*TALK, "run it")
    assert ended(events) == "done"
    assert of(events, Compacted)[0].result.trigger == "mid-turn"
    assert violations("anthropic", model.requests[-1]) == []
    assert "tool_result" in str(model.requests[-1]["messages"][-1])


@pytest.mark.parametrize("wire", WIRES)
def test_notes_are_written_before_compaction_on_same_prefix(tmp_path: Path, wire: WireName) -> None:
    steps: list[Any] = [
        *("fine" for _ in TALK),
        filling("full", WINDOW),
        Says(calls=[note("memory/2024-01-01.md")]),
        Says(text="NO_REPLY"),
        "after",
    ]
    model = ScriptedModel(steps, format=wire)
    harness = AgentHarness(tmp_path, model, settings=FLUSHING)
    events = harness.say(*TALK, "fill it", "go on")
    model.check()
    flushed = of(events, Flushed)[0].result
    assert (flushed.outcome, flushed.path) == ("written", TODAY)
    assert (harness.root / TODAY).read_text() == "Decided: use SQLite.\n"
    assert not (harness.root / "memory/2024-01-01.md").exists()
    assert "NO_REPLY" not in said(events)
    order = [type(event).__name__ for event in events]
    assert order.index("Flushed") < order.index("Compacted")
    field = "input" if wire == "openai-responses" else "messages"
    sent, notes, then = model.requests[len(TALK) : len(TALK) + 3]
    assert [encode(one) for one in notes[field]][: len(sent[field])] == [
        encode(one) for one in sent[field]
    ]
    assert encode({**notes, field: 0}) == encode({**sent, field: 0})
    assert "Current time: 2026-03-11 12:00 (UTC)" in str(notes[field][-1])
    assert "YYYY" not in str(notes[field][-1])
    assert violations(wire, notes) == []
    assert violations(wire, then) == []
    assert "Decided" not in str(harness.messages())
    later = [one for one in model.requests[-1][field] if one.get("role") != "system"]
    assert "Decided" not in str(later)  # the notes themselves are in the system prompt now
    assert TALK[0] not in str(later)
    customs = [one["customType"] for one in harness.entries() if one["type"] == "custom"]
    assert customs == ["recollect.flush", "recollect.spent", "recollect.spent"]


def test_a_flush_is_kept_with_the_session_at_once(tmp_path: Path) -> None:
    """A host that goes on with the session does not ask for the notes again."""
    model = ScriptedModel(["fine", filling("near", int(WINDOW * 0.75) - 100), "NO_REPLY"])
    harness = AgentHarness(tmp_path, model, settings=FLUSHING)
    harness.say(TALK[0], TALK[1])
    model.check()

    async def kept() -> int | None:
        store = await open_store(str(tmp_path / "memory.sqlite"), space="default")
        try:
            found = await store.session("session-1")
            assert found is not None
            return join_state(found.state, found.path, found.ids).flushed_in
        finally:
            await store.close()

    assert asyncio.run(kept()) == 0


def test_a_read_only_workspace_has_no_flush_turn_and_says_so(tmp_path: Path) -> None:
    model = ScriptedModel([filling("near", int(WINDOW * 0.75) - 100)])
    harness = AgentHarness(tmp_path, model, settings=FLUSHING, read_only=True)
    events = harness.say(TALK[0])
    model.check()
    assert of(events, Flushed)[0].result.outcome == "skipped"
    assert "read-only" in of(events, Flushed)[0].result.reason
    assert ended(events) == "done"


def test_a_flush_that_fails_does_not_stop_the_turn(tmp_path: Path) -> None:
    steps: list[Any] = [filling("near", int(WINDOW * 0.75) - 100), ModelUnavailable("away"), "next"]
    model = ScriptedModel(steps)
    harness = AgentHarness(tmp_path, model, settings=FLUSHING)
    events = harness.say(TALK[0], "and?")
    assert of(events, Flushed)[0].result.outcome == "failed"
    assert said(events) == "nearnext"


def test_compact_instructions_are_used_once_and_never_said_to_the_model(tmp_path: Path) -> None:
    model = ScriptedModel([*("fine" for _ in TALK), "after"])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*TALK, "/compact KEEP-THE-BERTHS", "go on")
    assert of(events, Compacted)[0].result.trigger == "manual"
    assert of(events, Compacted)[0].result.compacted
    assert any("KEEP-THE-BERTHS" in prompt.text for prompt in harness.summary.prompts)
    assert all("KEEP-THE-BERTHS" not in str(request) for request in model.requests)
    assert "KEEP-THE-BERTHS" not in str(harness.messages())
    asked = len(harness.summary.prompts)
    harness.model = ScriptedModel(["later"])
    harness.say("restarted")
    assert len(harness.summary.prompts) == asked


def test_undo_shows_the_whole_conversation_again(tmp_path: Path) -> None:
    model = ScriptedModel([*("fine" for _ in TALK), "cut", "whole"])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*TALK, "/compact", "one", "/undo", "two")
    assert "undone" in of(events, Told)[-1].text
    cut, whole = model.requests[-2:]
    assert TALK[0] not in str(cut["messages"])
    assert TALK[0] in str(whole["messages"])
    assert "nothing was undone" in of(harness.say("/undo"), Told)[0].text.lower()


def test_new_begins_another_transcript_and_keeps_the_old(tmp_path: Path) -> None:
    model = ScriptedModel(["hello", "who are you?"])
    harness = AgentHarness(tmp_path, model)
    events = harness.say("remember me", "/new", "again")
    assert ended(events) == "done"
    assert len(model.requests[-1]["messages"]) == 1
    assert "remember me" in (tmp_path / "session-1.jsonl").read_text()
    assert "remember me" not in (tmp_path / "session-2.jsonl").read_text()


def turn_for(root: Path, wire: WireName = "anthropic") -> FlushTurn:
    sent = {"model": "scripted", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    shape = Shape(speaker=Speaker(format=wire, model="scripted"), system="", tools=())
    reply = {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}
    return FlushTurn(last_request=sent, since=(reply,), shape=shape, root=root, now=1_773_230_400.0)


def test_a_flush_turn_ends_after_three_requests(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: Says(calls=[note()]))
    result = asyncio.run(turn_for(tmp_path).run(model, Settings()))
    assert (result.steps, result.outcome) == (3, "written")
