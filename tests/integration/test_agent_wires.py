"""The agent against a real HTTP server, on all three wires."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import Asked, ModelServer
from tests.unit.agent.agent_harness import AgentHarness, collected, ended, of, said
from tests.unit.providers.wire_models import WIRES, model_at

from recollect.agent.events import CallEnded, Compacted, Failed, Said, Withdrawn
from recollect.agent.loop import Agent
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, WireName

LONG = "which crane lifts the cargo of the freighter that came in with the tide " * 12


@pytest.mark.parametrize("wire", WIRES)
def test_a_round_of_tools_over_http(tmp_path: Path, wire: WireName) -> None:
    write = ScriptedCall(id="call_1", name="write", input={"path": "né.txt", "content": "日本\n"})
    bash = ScriptedCall(id="call_2", name="bash", input={"command": "cat né.txt"})
    steps = [
        Says(text="I write, then look.", thinking="two calls", calls=[write, bash]),
        Says(text="It holds 日本.", piece_bytes=3),
    ]
    with ModelServer(steps) as server:
        harness = AgentHarness(tmp_path, model_at(wire, server))
        events = harness.say("write it and look")
        server.check()
    assert ended(events) == "done"
    assert said(events) == "I write, then look.It holds 日本."
    assert of(events, CallEnded)[1].text == "日本"
    assert len(of(events, Said)) > 2, "it streams"
    for asked in server.asked:
        assert violations(wire, asked.body) == []
        assert [tool_name(tool) for tool in asked.body["tools"]] == [
            *("read", "write", "edit", "bash", "memory_search", "memory_get", "memory_store"),
            *("memory_recall", "memory_forget"),
        ]
    assert harness.messages()[-1]["usage"]["totalTokens"] == 110


def tool_name(tool: dict[str, Any]) -> str:
    return str(tool.get("name") or tool["function"]["name"])


@pytest.mark.parametrize("wire", WIRES)
def test_an_abort_cuts_the_connection(tmp_path: Path, wire: WireName) -> None:
    steps = [Says(text="a long story", hang_after_events=5), Says(text="Good.")]
    with ModelServer(steps) as server:
        harness = AgentHarness(tmp_path, model_at(wire, server))

        async def work(agent: Agent) -> list[Any]:
            events = []
            async for event in agent.run("tell"):
                events.append(event)
                if isinstance(event, Said):
                    agent.abort()
            assert ended(events) == "aborted"
            return events + await collected(agent, "enough")

        events = harness.run(work)
        assert server.wait_until_hung_up()
        assert said(events).endswith("Good.")
        assert violations(wire, server.asked[-1].body) == []
    assert [one.get("stopReason") for one in harness.messages()] == [None, "aborted", None, "stop"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("manner", ["error", "inside"])
def test_a_real_overflow_is_recovered_from(tmp_path: Path, wire: WireName, manner: Any) -> None:
    """The server's window is far smaller than the agent believes; it learns it on the way."""

    def count(asked: Asked) -> int:
        return len(asked.content) // 4

    settings = {"compaction.keep_recent_tokens": 300, "compaction.flush.enabled": False}
    with ModelServer(
        lambda _: Says(text="noted"), window_tokens=3000, overflow=manner, count=count
    ) as server:
        model = model_at(wire, server, window_tokens=16_000)
        harness = AgentHarness(tmp_path, model, settings=settings)
        events = harness.say(*[f"{number}: {LONG}" for number in range(14)])
    assert of(events, Withdrawn), "the window was never exceeded"
    assert any(one.result.compacted for one in of(events, Compacted))
    assert not of(events, Failed)
    users = [one for one in harness.messages() if one["role"] == "user"]
    assert [one["content"][0]["text"] for one in users] == [f"{n}: {LONG}" for n in range(14)]
    for asked in server.asked:
        assert violations(wire, asked.body) == []


@pytest.mark.parametrize("wire", WIRES)
def test_one_result_larger_than_the_window_is_shortened(tmp_path: Path, wire: WireName) -> None:
    """Lesson 13: without a summary, and without the user's help."""
    call = ScriptedCall(id="call_1", name="bash", input={"command": "seq 1 20000"})
    steps = [Says(text="I run it.", calls=[call]), Says(text="It counts.")]
    with ModelServer(steps, window_tokens=4096) as server:
        harness = AgentHarness(tmp_path, model_at(wire, server))
        events = harness.say("run it")
        server.check()
    assert ended(events) == "done"
    assert len(of(events, Withdrawn)) == 1
    assert harness.summary.prompts == [], "shortening was enough"
    assert "20000" in str(harness.messages()[2]), "the transcript keeps what the model was shown"


def test_a_window_that_nothing_fits_is_told_and_never_reset(tmp_path: Path) -> None:
    with ModelServer([], window_tokens=10, overflow="error") as server:
        harness = AgentHarness(tmp_path, model_at("openai-chat", server))
        events = harness.say("hello")
        assert len(server.asked) == 2
    assert ended(events) == "failed"
    assert "/new" in of(events, Failed)[0].reason
    assert harness.messages()[0]["content"][0]["text"] == "hello"
    assert asyncio.run(_still(harness)) == "session-1"


async def _still(harness: AgentHarness) -> str:
    with harness.transcript() as transcript:
        return transcript.session_id
