"""An undo that somebody else asked for, while the agent runs, is in the transcript, too."""

from pathlib import Path

from tests.unit.agent.agent_harness import AgentHarness, collected

from recollect.agent.loop import Agent
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
