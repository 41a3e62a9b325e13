"""What stands in the transcript, whatever happens in between."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, collected, ended, filling, notes, of, said
from tests.unit.agent.test_agent_window import SMALL, TALK, WINDOW

from recollect.agent.events import Compacted, Ended, Prepared
from recollect.agent.loop import Agent
from recollect.core.formats.json_text import encode
from recollect.testing.scripted_model import Says, ScriptedModel, WireName


def texts(harness: AgentHarness) -> list[str]:
    with harness.transcript() as transcript:
        shown = transcript.history().shown
    return [one.message["content"][0]["text"] for one in shown]


def test_our_own_compactions_hide_nothing_of_the_history(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(lambda _: Says(text="fine")), settings=SMALL)
    harness.say(*TALK, "/compact", "on", "/compact", "further")
    users = [text for text in texts(harness) if text != "fine"]
    assert users == [*TALK, "on", "further"]


def test_a_compaction_that_was_not_recorded_is_recorded_next_time(tmp_path: Path) -> None:
    """The process ended between the engine's commit and the transcript's line."""
    model = ScriptedModel(lambda _: Says(text="fine"))
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    harness.say(*TALK)

    async def without_a_line(agent: Agent) -> None:
        stepping = agent._steps
        done = await agent._engine.compact(
            agent.conversation.session_id, stepping._body()[0], format="anthropic"
        )
        assert done.compacted

    harness.run(without_a_line)
    assert not [one for one in harness.entries() if one["type"] == "compaction"]
    events = harness.say("go on", "and on")
    assert len(of(events, Compacted)) == 1
    [compaction] = [one for one in harness.entries() if one["type"] == "compaction"]
    assert compaction["details"]["recollect"]["number"] == 1
    assert compaction["firstKeptEntryId"] in [one["id"] for one in harness.entries()]


def test_an_abort_does_not_wait_for_a_compaction(tmp_path: Path) -> None:
    class Slow(ScriptedModel):
        async def ask(self, prompt: Any) -> Any:
            begun.set()
            await asyncio.sleep(60)
            return await super().ask(prompt)

    begun = asyncio.Event()
    model = ScriptedModel([*("fine" for _ in TALK), filling("full", WINDOW)])
    harness = AgentHarness(tmp_path, model, settings=SMALL, summary=Slow(notes))

    async def work(agent: Agent) -> list[Any]:
        for text in TALK:
            await collected(agent, text)
        turn = asyncio.ensure_future(collected(agent, "fill it"))
        await begun.wait()
        agent.abort()
        return await asyncio.wait_for(turn, 10)

    events = harness.run(work)
    assert said(events) == "full"
    assert ended(events) == "done"
    assert harness.messages()[-1]["stopReason"] == "stop"


def test_an_abort_before_the_request_sends_none(tmp_path: Path) -> None:
    model = ScriptedModel(["late"])
    harness = AgentHarness(tmp_path, model)

    async def work(agent: Agent) -> list[Any]:
        events = []
        async for event in agent.run("hello"):
            events.append(event)
            if isinstance(event, Prepared):
                agent.abort()
        return events + await collected(agent, "again")

    events = harness.run(work)
    assert [one.reason for one in of(events, Ended)] == ["aborted", "done"]
    assert len(model.requests) == 1
    assert "hello" in str(model.requests[0]["messages"])


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
def test_after_compaction_and_restart_prefix_is_the_same(tmp_path: Path, wire: WireName) -> None:
    model = ScriptedModel(lambda _: Says(text="fine", thinking="hm"), format=wire)
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    harness.say(*TALK, "/compact", "one")
    harness.say("two")
    field = "input" if wire == "openai-responses" else "messages"
    before, after = ([encode(one) for one in request[field]] for request in model.requests[-2:])
    assert after[: len(before)] == before
