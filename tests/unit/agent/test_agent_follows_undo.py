"""An undo that somebody else asked for, while the agent runs, is in the transcript, too."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.agent.agent_harness import AgentHarness, collected, of

from recollect.agent.events import Told
from recollect.agent.loop import Agent
from recollect.hosts.inspect.sessions import listed_sessions
from recollect.testing.scripted_model import ScriptedModel


def test_the_transcript_follows_an_undo_from_outside(tmp_path: Path) -> None:
    answers = [f"Answer {n}. " + "It is done so. " * 60 for n in range(9)]
    harness = AgentHarness(tmp_path, ScriptedModel(answers), settings={"window_tokens": 8_000})

    async def work(agent: Agent) -> None:
        for n in range(8):
            await collected(agent, f"Question {n}? " + "Tell me of the harbour. " * 30)
        await collected(agent, "/compact")
        conversation = agent.conversation
        assert conversation.compactions == 1
        shown = len(conversation.transcript.context().messages)
        done = await agent._engine.undo(conversation.session_id)
        assert done.undone is not None
        await collected(agent, "And now?")
        assert len(conversation.transcript.context().messages) > shown + 2
        assert conversation.compactions == 0

    harness.run(work)


def test_only_what_stands_on_the_branch_under_way_is_undone(tmp_path: Path) -> None:
    answers = [f"Answer {n}. " + "It is done so. " * 60 for n in range(13)]
    harness = AgentHarness(tmp_path, ScriptedModel(answers), settings={"window_tokens": 8_000})

    async def work(agent: Agent) -> None:
        async def said(text: str) -> str:
            return "\n".join(event.text for event in of(await collected(agent, text), Told))

        for n in range(12):
            await said(f"Question {n}? " + "Tell me of the harbour. " * 30)
            if n in (7, 11):
                await said("/compact")
        assert agent.conversation.compactions == 2
        await said("/branch 10")
        assert agent.conversation.compactions == 1
        assert "is undone" in await said("/undo")
        assert agent.conversation.compactions == 0
        assert "nothing to undo" in await said("/undo")

    harness.run(work)


def test_a_branch_before_every_compaction_has_nothing_to_undo(tmp_path: Path) -> None:
    answers = [f"Answer {n}. " + "It is done so. " * 60 for n in range(8)]
    harness = AgentHarness(tmp_path, ScriptedModel(answers), settings={"window_tokens": 8_000})
    for n in range(8):
        harness.say(f"Question {n}? " + "Tell me of the harbour. " * 30)
    told = of(harness.say("/compact", "/why", "/export -", "/branch 2", "/undo"), Told)
    assert "has no compaction to undo" in told[-1].text
    assert re.search(r"summarised .* compaction 1", told[1].text)
    assert ": summarised, " not in told[1].text, "no line for each of them"
    assert "Name a file" in told[2].text
    (line,) = listed_sessions(tmp_path, "", None)
    assert line.messages == 16
