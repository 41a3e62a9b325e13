"""The loop: order, tools, abort, errors, restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, collected, ended, of, said

from recollect.agent.events import CallBegan, CallEnded, Failed, Replied, Said
from recollect.agent.loop import Agent
from recollect.core.formats.json_text import encode
from recollect.core.values.model import ReplyDone, TextDelta
from recollect.errors import ModelRefused, ModelUnavailable
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel, WireName

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")


def writes(path: str, content: str, name: str = "c1") -> ScriptedCall:
    return ScriptedCall(id=name, name="write", input={"path": path, "content": content})


@pytest.mark.parametrize("wire", WIRES)
def test_a_turn_with_tools_goes_round_until_no_call_is_left(tmp_path: Path, wire: WireName) -> None:
    model = ScriptedModel(
        [
            Says(text="First.", calls=[writes("a.txt", "hello")]),
            Says(calls=[ScriptedCall(id="c2", name="read", input={"path": "a.txt"})]),
            Says(text="It says hello."),
        ],
        format=wire,
    )
    harness = AgentHarness(tmp_path, model)
    events = harness.say("write and read it")
    model.check()
    assert ended(events) == "done"
    assert (harness.root / "a.txt").read_text() == "hello"
    assert said(events) == "First.It says hello."
    order = [type(event).__name__ for event in events]
    assert order.index("Said") < order.index("Replied") < order.index("CallBegan")
    assert [one.name for one in of(events, CallEnded)] == ["write", "read"]
    roles = [message["role"] for message in harness.messages()]
    assert roles == ["user", "assistant", "toolResult", "assistant", "toolResult", "assistant"]
    for request in model.requests:
        assert violations(wire, request) == []
    field = "input" if wire == "openai-responses" else "messages"
    first, last = model.requests[0], model.requests[-1]
    assert [encode(one) for one in last[field]][: len(first[field])] == [
        encode(one) for one in first[field]
    ]


def test_every_message_is_on_the_disk_before_the_next_request(tmp_path: Path) -> None:
    on_disk: list[int] = []

    def look(_: Any) -> Says:
        lines = (tmp_path / "session-1.jsonl").read_text().count('"type":"message"')
        on_disk.append(lines)
        if len(on_disk) == 1:
            return Says(calls=[writes("a", "x")])
        return Says(text="done")

    AgentHarness(tmp_path, ScriptedModel(look)).say("go")
    assert on_disk == [1, 3]


def test_an_aborted_reply_is_recorded_and_never_sent_again(tmp_path: Path) -> None:
    class Slow(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            if len(self.requests) == 0:
                self.requests.append(request)
                yield TextDelta(text="half of ")
                await asyncio.sleep(60)
            async for event in super().stream(request):
                yield event

    model = Slow([Says(text="whole")])
    harness = AgentHarness(tmp_path, model)

    async def work(agent: Agent) -> list[Any]:
        events = []
        async for event in agent.run("tell me"):
            events.append(event)
            if isinstance(event, Said):
                agent.abort()
        return events + await collected(agent, "again")

    events = harness.run(work)
    assert said(events) == "half of whole"
    broken = harness.messages()[1]
    assert (broken["stopReason"], broken["content"][0]["text"]) == ("aborted", "half of ")
    assert "half of" not in str(model.requests[-1]["messages"])
    assert violations("anthropic", model.requests[-1]) == []
    assert ended(events) == "done"


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_a_listener_that_leaves_aborts_the_turn(tmp_path: Path, how: str) -> None:
    class Endless(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            self.requests.append(request)
            while True:
                yield TextDelta(text="on ")
                await asyncio.sleep(0.001)

    harness = AgentHarness(tmp_path, Endless([]))

    async def work(agent: Agent) -> None:
        heard = asyncio.Event()

        async def listen() -> None:
            events = agent.run("tell me")
            async for event in events:
                if isinstance(event, Said):
                    heard.set()
                    if how == "closed":
                        break
            await events.aclose()

        task = asyncio.ensure_future(listen())
        await heard.wait()
        if how == "cancelled":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    harness.run(work)
    assert [one.get("stopReason") for one in harness.messages()] == [None, "aborted"]


def test_aborting_a_tool_answers_every_call(tmp_path: Path) -> None:
    calls = [
        ScriptedCall(id="c1", name="bash", input={"command": "sleep 60"}),
        writes("never", "x", "c2"),
    ]
    model = ScriptedModel([Says(calls=calls), Says(text="fine")])
    harness = AgentHarness(tmp_path, model)

    async def work(agent: Agent) -> list[Any]:
        events = []
        async for event in agent.run("go"):
            events.append(event)
            if isinstance(event, CallBegan) and event.name == "bash":
                asyncio.get_running_loop().call_later(0.1, agent.abort)
        return events + await collected(agent, "and now?")

    events = harness.run(work)
    results = [one for one in harness.messages() if one["role"] == "toolResult"]
    assert [one["isError"] for one in results] == [True, True]
    assert not (harness.root / "never").exists()
    assert violations("anthropic", model.requests[-1]) == []
    assert ended(events) == "done"


def test_a_stream_that_breaks_off_keeps_what_had_come(tmp_path: Path) -> None:
    class Breaking(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            self.requests.append(request)
            yield TextDelta(text="so far")
            raise ModelUnavailable("it broke off; try again")

    harness = AgentHarness(tmp_path, Breaking([]))
    events = harness.say("hi")
    assert of(events, Failed)[0].kind == "unavailable"
    assert harness.messages()[-1]["stopReason"] == "error"
    assert harness.messages()[-1]["content"][0]["text"] == "so far"


def test_a_model_that_asks_on_and_on_is_stopped(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: Says(calls=[writes("a", "x")]))
    events = AgentHarness(tmp_path, model, max_steps=3).say("go")
    assert ended(events) == "max-steps"
    assert len(model.requests) == 3


def test_no_reply_is_recorded_and_never_streamed(tmp_path: Path) -> None:
    pieces = [TextDelta(text=one) for one in ("NO", "_REP", "LY")]
    reply = {"role": "assistant", "content": [{"type": "text", "text": "NO_REPLY"}]}
    model = ScriptedModel([[*pieces, ReplyDone(reply=reply, stop="stop")]])
    events = AgentHarness(tmp_path, model).say("heartbeat")
    assert said(events) == ""
    assert of(events, Replied)[0].silent


@pytest.mark.parametrize("wire", WIRES)
def test_a_restart_goes_on_with_the_same_bytes(tmp_path: Path, wire: WireName) -> None:
    numbers = {"path": "a", "content": "x", "ratio": 1.0, "tiny": 4.5e-05}
    steps = [
        Says(
            thinking="hm", text="One.", calls=[ScriptedCall(id="c1", name="write", input=numbers)]
        ),
        Says(text="Done."),
        Says(text="Still here."),
    ]
    model = ScriptedModel(steps, format=wire)
    harness = AgentHarness(tmp_path, model)
    harness.say("first")
    harness.say("second")  # another engine, another transcript object, the same files
    model.check()
    field = "input" if wire == "openai-responses" else "messages"
    before, after = model.requests[-2], model.requests[-1]
    assert [encode(one) for one in after[field]][: len(before[field])] == [
        encode(one) for one in before[field]
    ]
    fixed = {name: value for name, value in before.items() if name != field}
    assert encode(fixed) == encode({k: v for k, v in after.items() if k != field})


def test_the_workspace_is_read_anew_for_each_run(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: Says(text="ok"))
    harness = AgentHarness(tmp_path, model)
    harness.say("one")
    (harness.root / "AGENTS.md").write_text("Always answer in verse.")
    harness.say("two")
    assert "verse" not in str(model.requests[0]["system"])
    assert "verse" in str(model.requests[1]["system"])


def test_a_secret_stays_out_of_the_transcript_but_not_out_of_the_turn(tmp_path: Path) -> None:
    secret = "sk-proj-q8Zt3LmX0vRb7KpWn2YcHd5JfGs9TaUe"
    model = ScriptedModel(lambda _: Says(text="ok"))
    harness = AgentHarness(tmp_path, model)
    harness.say(f"use OPENAI_API_KEY={secret}", "go on")
    assert secret in str(model.requests[-1]["messages"])
    assert secret not in (tmp_path / "session-1.jsonl").read_text()


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(lambda _: Says(text="ok")))

    async def work(agent: Agent) -> None:
        async for _ in agent.run("one"):
            with pytest.raises(RuntimeError, match="at work"):
                await collected(agent, "two")

    harness.run(work)


def test_what_a_provider_refuses_is_not_tried_again(tmp_path: Path) -> None:
    model = ScriptedModel([ModelRefused("bad key: set another"), Says(text="hello")])
    harness = AgentHarness(tmp_path, model)
    events = harness.say("hi")
    assert ended(events) == "failed"
    assert of(events, Failed)[0].kind == "refused"
    assert len(model.requests) == 1
    assert harness.messages()[-1]["errorMessage"] == "bad key: set another"
    assert said(harness.say("hi again")) == "hello"
    assert "bad key" not in str(model.requests[-1])
