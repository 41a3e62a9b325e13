"""What stands in the transcript and the index, whatever happens in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, collected, ended, filling, notes, of, said
from tests.unit.agent.test_agent_window import SMALL, TALK, WINDOW

from recollect.agent.conversation import history_of
from recollect.agent.events import Compacted, Ended, Failed, Prepared, Told
from recollect.agent.loop import Agent
from recollect.core.formats.json_text import encode
from recollect.testing.scripted_model import Says, ScriptedModel, WireName

HOUR = 3600.0


def texts(harness: AgentHarness) -> list[str]:
    with harness.transcript() as transcript:
        shown = history_of(transcript.entries)
    return [one.message["content"][0]["text"] for one in shown]


def test_our_own_compactions_hide_nothing_of_the_history(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(lambda _: Says(text="fine")), settings=SMALL)
    harness.say(*TALK, "/compact", "on", "/compact", "further")
    users = [text for text in texts(harness) if text != "fine"]
    assert users == [*TALK, "on", "further"]


def test_a_compaction_of_another_program_counts_as_it_does_for_pi(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: Says(text="fine"))
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    harness.say("early", "late")
    with harness.transcript() as transcript:
        kept = transcript.entries[2].id
        transcript.append_compaction(summary="we met", first_kept_entry_id=kept, tokens_before=9)
    harness.say("after")
    shown = texts(harness)
    assert "we met" in shown[0]
    assert shown[1:] == ["late", "fine", "after", "fine"]
    assert "early" not in str(model.requests[-1]["messages"])
    compacted = of(harness.say(*TALK, "/compact"), Compacted)[0]
    assert compacted.result.compacted
    assert [one for one in texts(harness)[1:] if one != "fine"] == ["late", "after", *TALK]
    assert ["undone" in one.text for one in of(harness.say("/undo", "/undo"), Told)] == [True, True]
    assert [one for one in texts(harness) if one != "fine"] == ["early", "late", "after", *TALK]


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


def test_a_refusal_is_told_and_not_sent_back(tmp_path: Path) -> None:
    model = ScriptedModel([Says(text="I will not.", stop="refusal"), Says(text="Sure.")])
    harness = AgentHarness(tmp_path, model)
    events = harness.say("do harm", "do good")
    assert of(events, Failed)[0].kind == "refused"
    assert "I will not" not in str(model.requests[-1]["messages"])
    assert harness.messages()[1]["stopReason"] == "error"


@pytest.mark.parametrize(
    ("settings", "hours", "begins"),
    [
        ({"session.reset.mode": "daily"}, 15, False),
        ({"session.reset.mode": "daily"}, 17, True),
        ({"session.reset.mode": "idle", "session.reset.idle_minutes": 90}, 1, False),
        ({"session.reset.mode": "idle", "session.reset.idle_minutes": 90}, 2, True),
        ({}, 1000, False),
    ],
)
def test_a_session_ends_by_day_or_by_idling(
    tmp_path: Path, settings: dict[str, Any], hours: int, begins: bool
) -> None:
    model = ScriptedModel(lambda _: Says(text="ok"))
    harness = AgentHarness(tmp_path, model, settings=settings)
    harness.say("before")  # at noon
    harness.clock.at += hours * HOUR
    events = harness.say("after")
    assert (harness.sessions == 2) is begins
    assert ("before" not in str(model.requests[-1]["messages"])) is begins
    assert bool(of(events, Told)) is begins
    record = harness.index.get("main")
    assert record is not None
    assert record.session_id == f"session-{harness.sessions}"


def test_the_index_follows_replies_compactions_and_new_sessions(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(lambda _: filling("fine", 1234)), settings=SMALL)
    harness.say(*TALK)
    record = harness.index.get("main")
    assert record is not None
    assert (record.session_id, record.fresh_tokens) == ("session-1", 1239)
    harness.say("/compact")
    record = harness.index.get("main")
    assert record is not None
    assert (record.compaction_count, record.fresh_tokens) == (1, None)
    harness.say("/new", "hello")
    record = harness.index.get("main")
    assert record is not None
    assert (record.session_id, record.compaction_count) == ("session-2", 0)


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
def test_after_a_compaction_and_a_restart_the_prefix_is_the_same(
    tmp_path: Path, wire: WireName
) -> None:
    model = ScriptedModel(lambda _: Says(text="fine", thinking="hm"), format=wire)
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    harness.say(*TALK, "/compact", "one")
    harness.say("two")
    field = "input" if wire == "openai-responses" else "messages"
    before, after = ([encode(one) for one in request[field]] for request in model.requests[-2:])
    assert after[: len(before)] == before
