"""Turns that are left, cut off or hit by a fault: the record is whole, and somebody is told."""

from __future__ import annotations

import asyncio
import fcntl
import threading
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, collected, ended, filling, of, said
from tests.unit.agent.test_agent_window import FLUSHING, TALK, TODAY, WINDOW, note

from recollect.adapters.session import SessionIndex, SessionTranscript
from recollect.adapters.session import index as index_module
from recollect.agent.events import CallEnded, Ended, Failed, Flushed, Replied, Told
from recollect.agent.loop import Agent
from recollect.agent.prompt import answered_before
from recollect.agent.tools.outcome import Tool, ToolOutcome, schema
from recollect.errors import MissingExtra, TranscriptError
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


def test_a_call_that_ran_when_its_listener_left_is_told_from_one_that_did_not(
    tmp_path: Path,
) -> None:
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


def test_a_run_that_was_left_does_not_stand_in_the_way_of_the_next(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(lambda _: Says(text="fine", calls=())))

    async def work(agent: Agent) -> list[Any]:
        for _ in range(3):
            async for _event in agent.run("one"):
                break
        return await collected(agent, "two")

    assert ended(harness.run(work)) == "done"


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


@pytest.mark.parametrize("fault", ["damaged", "locked"])
def test_an_index_that_cannot_be_written_ends_no_turn(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "LOCK_SECONDS", 0.1)
    model = ScriptedModel([Says(calls=[bash("echo hi")]), "fine"])
    harness = AgentHarness(tmp_path, model)
    updated: list[str] = []

    class Watched(SessionIndex):
        def update(self, *given: Any) -> Any:
            updated.append(threading.current_thread().name)
            return super().update(*given)

    harness.index = Watched(tmp_path / "sessions.json")
    with (tmp_path / "sessions.json.lock").open("w") as lock:
        if fault == "locked":
            fcntl.flock(lock, fcntl.LOCK_EX)
        else:
            (tmp_path / "sessions.json").write_text("{broken")
        events = harness.say("go", "/status")
    assert [one.reason for one in of(events, Ended)] == ["done", "command"]
    assert said(events) == "fine"
    assert [one["isError"] for one in results(harness)] == [False]
    told = [one.text for one in of(events[: events.index(of(events, Ended)[0])], Told)]
    assert len(told) == 1, "once, not with every reply"
    assert "index of sessions" in told[0]
    assert len(updated) == 1, "a run waits for a lock once"
    assert updated[0] != threading.main_thread().name, "and the event loop never"


def test_a_new_session_that_cannot_be_begun_is_told_and_the_old_one_goes_on(
    tmp_path: Path,
) -> None:
    def refuses() -> SessionTranscript:
        raise TranscriptError("sessions.json is damaged; mend it")

    model = ScriptedModel(["one", "two"])
    harness = AgentHarness(tmp_path, model)
    harness.following = refuses  # type: ignore[method-assign]
    events = harness.say("first", "/new", "second")
    assert [one.reason for one in of(events, Ended)] == ["done", "command", "done"]
    assert "damaged" in of(events, Told)[0].text
    assert "first" in str(model.requests[-1])


def test_the_engine_is_told_of_a_reply_before_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(["fine"]))
    order: list[str] = []

    async def work(agent: Agent) -> None:
        observe, update = agent._engine.observe, SessionIndex.update

        async def observed(*given: Any) -> Any:
            order.append("engine")
            return await observe(*given)

        def updated(self: SessionIndex, *given: Any) -> Any:
            order.append("index")
            return update(self, *given)

        monkeypatch.setattr(agent._engine, "observe", observed)
        monkeypatch.setattr(SessionIndex, "update", updated)
        await collected(agent, "go")

    harness.run(work)
    assert order == ["engine", "index"]


def test_the_event_loop_waits_for_no_line_of_the_transcript(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel([Says(calls=[bash("true")]), "fine"]))
    writers: set[str] = set()

    async def work(agent: Agent) -> None:
        transcript = agent.conversation.transcript
        add = transcript._add

        def added(spell: Any) -> Any:
            writers.add(threading.current_thread().name)
            return add(spell)

        transcript._add = added  # type: ignore[method-assign]
        for text in ("go", "/status", "/compact"):
            await collected(agent, text)

    harness.run(work)
    assert writers
    assert threading.main_thread().name not in writers


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


def test_whether_a_key_was_ever_answered(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel([Says(text="no", stop="refusal"), "Hello."]))
    assert not answered_before(harness.index, "main")
    harness.say("hi")
    assert not answered_before(harness.index, "main"), "a refusal is no answer"
    harness.say("hi", "/new")
    harness.index.update("main", lambda record: record.begun_anew("session-2"))
    assert answered_before(harness.index, "main"), "in the session before"
    harness.index.update("main", lambda record: record.begun_anew("session-1"))
    assert not answered_before(harness.index, "another")
    (tmp_path / "torn.jsonl").write_text("{")
    assert answered_before(harness.index, "main")


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


def test_an_image_without_words_is_said(tmp_path: Path) -> None:
    model = ScriptedModel(["A dot."])
    harness = AgentHarness(tmp_path, model)

    async def work(agent: Agent) -> list[Any]:
        return [event async for event in agent.run(" ", [("image/png", "aGk=")])]

    assert ended(harness.run(work)) == "done"
    assert [block["type"] for block in harness.messages()[0]["content"]] == ["image"]


def test_a_missing_extra_is_told_as_what_it_is(tmp_path: Path) -> None:
    missing = MissingExtra(feature="a model over HTTP", extra="remote")
    harness = AgentHarness(tmp_path, ScriptedModel([missing, "fine"]))
    events = harness.say("hi", "again")
    assert [one.reason for one in of(events, Ended)] == ["failed", "done"]
    assert "recollect[remote]" in of(events, Failed)[0].reason
    assert harness.messages()[1]["stopReason"] == "error"


def test_a_flush_model_that_lacks_an_extra_stops_nothing(tmp_path: Path) -> None:
    missing = MissingExtra(feature="a model over HTTP", extra="remote")
    model = ScriptedModel([*("fine" for _ in TALK), filling("full", WINDOW)])
    harness = AgentHarness(
        tmp_path, model, settings=FLUSHING, flush_model=ScriptedModel([missing], name="other")
    )
    events = harness.say(*TALK, "fill it")
    assert ended(events) == "done"
    assert of(events, Flushed)[0].result.outcome == "failed"


@pytest.mark.parametrize("wire", WIRES)
def test_thinking_alone_is_not_sent_back(tmp_path: Path, wire: WireName) -> None:
    model = ScriptedModel([Says(thinking="hmm", stop="length"), "fine", "good"], format=wire)
    harness = AgentHarness(tmp_path, model)
    events = harness.say("go", "on", "further")
    assert [one.reason for one in of(events, Ended)] == ["done"] * 3
    assert "hmm" not in str(model.requests[-1])
    assert violations(wire, model.requests[-1]) == []
