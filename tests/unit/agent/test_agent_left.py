"""Turns that are left, cut off or hit by a fault: the record is whole, and somebody is told."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, collected, ended, filling, of
from tests.unit.agent.test_agent_window import FLUSHING, TALK, TODAY, WINDOW, note

from recollect.adapters.session.transcript import SessionTranscript
from recollect.agent.events import CallEnded, Ended, Flushed, Replied, Told
from recollect.agent.loop import Agent
from recollect.agent.tools.confine import Tool, ToolOutcome, schema
from recollect.errors import TranscriptError
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel, WireName

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")


def bash(command: str, name: str = "c1") -> ScriptedCall:
    return ScriptedCall(id=name, name="bash", input={"command": command})


def results(harness: AgentHarness) -> list[dict[str, Any]]:
    return [one for one in harness.messages() if one["role"] == "toolResult"]


@pytest.mark.parametrize("wire", WIRES)
def test_calls_of_a_reply_that_was_cut_off_are_not_run(tmp_path: Path, wire: WireName) -> None:
    cut = Says(text="I will", calls=[bash("touch ran"), bash("touch too", "c2")], stop="length")
    model = ScriptedModel([cut, "In parts, then."], format=wire)
    harness = AgentHarness(tmp_path, model)
    events = harness.say("go")
    assert ended(events) == "done"
    assert list(harness.root.iterdir()) == []
    assert harness.messages()[1]["stopReason"] == "length"
    assert [one.is_error for one in of(events, CallEnded)] == [True, True]
    assert all("output limit" in one.text for one in of(events, CallEnded))
    assert len(results(harness)) == 2
    assert "output limit" in str(model.requests[-1])
    assert violations(wire, model.requests[-1]) == []


def test_a_note_that_was_cut_off_is_not_written(tmp_path: Path) -> None:
    steps: list[Any] = [
        *("fine" for _ in TALK),
        filling("full", WINDOW),
        Says(calls=[note(text="Decided: use")], stop="length"),
        Says(calls=[note(text="Decided: SQLite.")]),
        "NO_REPLY",
    ]
    harness = AgentHarness(tmp_path, ScriptedModel(steps), settings=FLUSHING)
    events = harness.say(*TALK, "fill it")
    assert of(events, Flushed)[0].result.outcome == "written"
    assert (harness.root / TODAY).read_text() == "Decided: SQLite.\n"


@pytest.mark.parametrize("leaving", ["closed", "cancelled", "cancelled in observe"])
def test_whoever_leaves_behind_a_reply_leaves_a_result_for_every_call(
    tmp_path: Path, leaving: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [bash("touch ran"), bash("touch too", "c2")]
    model = ScriptedModel([Says(calls=calls), "fine"])
    harness = AgentHarness(tmp_path, model)

    async def work(agent: Agent) -> list[Any]:
        observing = asyncio.Event()
        if leaving == "cancelled in observe":

            async def slowly(*_: Any) -> None:
                observing.set()
                await asyncio.sleep(60)

            monkeypatch.setattr(agent._engine, "observe", slowly)

        async def listen() -> None:
            async with aclosing(agent.run("go")) as events:
                async for event in events:
                    if isinstance(event, Replied):
                        if leaving == "closed":
                            return
                        observing.set()
                        await asyncio.sleep(60)

        task = asyncio.ensure_future(listen())
        if leaving != "closed":
            await observing.wait()
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        monkeypatch.undo()
        return await collected(agent, "and now?")

    assert ended(harness.run(work)) == "done"
    roles = [one["role"] for one in harness.messages()]
    assert roles == ["user", "assistant", "toolResult", "toolResult", "user", "assistant"]
    assert [one["toolCallId"] for one in results(harness)] == ["c1", "c2"]
    assert all(one["isError"] for one in results(harness))
    assert list(harness.root.iterdir()) == []
    assert violations("anthropic", model.requests[-1]) == []


def test_call_that_ran_when_its_listener_left_is_told_from_one_that_did_not(tmp_path: Path) -> None:
    model = ScriptedModel([Says(calls=[bash("touch ran; sleep 60"), bash("touch too", "c2")])])
    harness = AgentHarness(tmp_path, model)

    async def work(agent: Agent) -> None:
        task = asyncio.ensure_future(collected(agent, "go"))
        while not (harness.root / "ran").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    harness.run(work)
    texts = [one["content"][0]["text"] for one in results(harness)]
    assert ["while this ran" in text for text in texts] == [True, False]
    assert ["Not run" in text for text in texts] == [False, True]


def test_closing_ends_a_run_that_somebody_still_holds(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel([Says(calls=[bash("touch ran")])]))

    async def work(agent: Agent) -> None:
        events = agent.run("go")
        async for event in events:
            if isinstance(event, Replied):
                break
        await agent.close()
        with pytest.raises(TranscriptError):
            await collected(agent, "closed")

    harness.run(work)
    assert len(results(harness)) == 1


def test_a_new_session_that_cannot_be_begun_is_told_and_the_old_one_goes_on(tmp_path: Path) -> None:
    def refuses() -> SessionTranscript:
        raise TranscriptError("sessions.json is damaged")

    model = ScriptedModel(["one", "two"])
    harness = AgentHarness(tmp_path, model)
    harness.following = refuses  # type: ignore[method-assign]
    events = harness.say("first", "/new", "second")
    assert [one.reason for one in of(events, Ended)] == ["done", "command", "done"]
    assert "damaged" in of(events, Told)[0].text
    assert "first" in str(model.requests[-1])


def test_a_flush_that_is_stopped_behind_its_note_is_not_made_again(tmp_path: Path) -> None:
    asked = 0

    class Slow(ScriptedModel):
        async def stream(self, request: Mapping[str, Any]) -> Any:
            nonlocal asked
            asked += 1
            if asked == len(TALK) + 3:  # behind the note
                written.set()
                await asyncio.sleep(60)
            async for event in super().stream(request):
                yield event

    written = asyncio.Event()
    steps: list[Any] = [
        *("fine" for _ in TALK),
        filling("full", int(WINDOW * 0.75) - 100),
        Says(calls=[note()]),
        filling("full again", int(WINDOW * 0.75) - 50),
    ]
    model = Slow(steps)
    harness = AgentHarness(tmp_path, model, settings=FLUSHING)

    async def work(agent: Agent) -> list[Any]:
        for text in TALK:
            await collected(agent, text)
        turn = asyncio.ensure_future(collected(agent, "fill it"))
        await written.wait()
        agent.abort()
        first = await asyncio.wait_for(turn, 10)
        return [*first, *await collected(agent, "go on")]

    events = harness.run(work)
    assert [one.result.outcome for one in of(events, Flushed)] == ["written"]
    assert "stopped" in of(events, Flushed)[0].result.reason
    assert (harness.root / TODAY).read_text() == "Decided: use SQLite.\n"
    model.check()


def test_bootstrap_is_shown_until_the_first_answer_and_not_after_new(tmp_path: Path) -> None:
    model = ScriptedModel([Says(text="no", stop="refusal"), "Hello.", "Again.", "Anew."])
    harness = AgentHarness(tmp_path, model, first_run=True)
    (harness.root / "BOOTSTRAP.md").write_text("Who are you?")
    harness.say("hi", "hi", "on", "/new", "hello")
    shown = ["Who are you?" in str(request["system"]) for request in model.requests]
    assert shown == [True, True, False, False]
    harness.model = ScriptedModel(["Still me."])
    harness.sessions = 1
    harness.say("after a restart")
    assert "Who are you?" not in str(harness.model.requests[0]["system"])


async def breaks(_: Mapping[str, Any]) -> ToolOutcome:
    raise AttributeError("quoting what was said")


async def answers_nothing(_: Mapping[str, Any]) -> Any:
    return None


def breaks_at_once(_: Mapping[str, Any]) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("broken", [breaks, answers_nothing, breaks_at_once])
def test_a_tool_of_the_host_that_breaks_is_a_result(tmp_path: Path, broken: Any) -> None:
    tool = Tool(name="t", description="d", parameters=schema(()), run=broken)
    calls = [ScriptedCall(id="c1", name="t"), ScriptedCall(id="c2", name="t")]
    harness = AgentHarness(tmp_path, ScriptedModel([Says(calls=calls), "I see."]), tools=[tool])
    events = harness.say("go")
    assert ended(events) == "done"
    texts = [one["content"][0]["text"] for one in results(harness)]
    assert ["t broke" in text for text in texts] == [True, True]
    assert "quoting" not in str(texts)


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_nothing_is_asked_where_nothing_was_said(tmp_path: Path, text: str) -> None:
    model = ScriptedModel(["fine"])
    harness = AgentHarness(tmp_path, model)
    events = harness.say("hello", text)
    assert [type(event) for event in events[-2:]] == [Told, Ended]
    assert len(model.requests) == 1
    assert len(harness.messages()) == 2


@pytest.mark.parametrize("wire", WIRES)
def test_thinking_alone_is_not_sent_back(tmp_path: Path, wire: WireName) -> None:
    model = ScriptedModel([Says(thinking="hmm", stop="length"), "fine", "good"], format=wire)
    harness = AgentHarness(tmp_path, model)
    events = harness.say("go", "on", "further")
    assert [one.reason for one in of(events, Ended)] == ["done"] * 3
    assert "hmm" not in str(model.requests[-1])
    assert violations(wire, model.requests[-1]) == []


def test_a_run_that_was_left_does_not_stand_in_the_way_of_the_next(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(lambda _: Says(text="fine", calls=())))

    async def work(agent: Agent) -> list[Any]:
        for _ in range(3):
            async for _event in agent.run("one"):
                break
        return await collected(agent, "two")

    assert ended(harness.run(work)) == "done"


def test_closing_waits_for_a_run_that_somebody_iterates(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel([Says(calls=[bash("touch ran; sleep 60")])]))

    async def work(agent: Agent) -> list[Any]:
        task = asyncio.ensure_future(collected(agent, "go"))
        while not (harness.root / "ran").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await agent.close()
        return await task

    assert ended(harness.run(work)) == "aborted"
    assert len(results(harness)) == 1
