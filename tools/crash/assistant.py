"""A child that is an agent at work: `python -m ...crash.assistant`.

The real loop, engine, store and transcript; only the model follows a script. It prints

    > N                     before turn N
    + PLACE MARKER          a message is durable there: in the transcript, the store or the spool
    c STEP                  a compaction has begun, was summarized, committed, recorded, or ended
    ! SENTENCE              a request broke a promise

Always holds: `+ transcript` is printed after the line was written, `+ store` and `+ spool` after
the engine said so.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.agent.events import (
    AgentEvent,
    CallEnded,
    Compacted,
    Ended,
    Failed,
    Prepared,
    Replied,
)
from recollect.agent.loop import Agent
from recollect.agent.tools.confine import Tool, ToolOutcome, schema
from recollect.core.engine import Engine
from recollect.core.engine.session import Observation
from recollect.core.values.model import Answer, Prompt
from recollect.core.values.report import Report
from recollect.testing.scripted_model import Given, Says, ScriptedCall, ScriptedModel
from tools.crash.assistant_view import broken_promises
from tools.crash.desk import (
    MODEL_SECONDS,
    Desk,
    Part,
    calls_a_tool,
    marker,
    open_desk,
    session_of_turn,
    spoken_in,
    summary_of,
    words_of,
)
from tools.crash.places import HOME
from tools.crash.writer import say

TOOL = "look"


class Telling(ScriptedModel):
    """A model that says when a summary is made."""

    async def ask(self, prompt: Prompt) -> Answer:
        """The summary."""
        answer = await super().ask(prompt)
        say("c summarized")
        return answer


class Assistant:
    """One agent's turns, told to the parent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._turn = 0
        self._called = False
        self._report: Report | None = None
        self._archived: str | None = None
        self._waiting: list[str] = []
        """Said in this turn and not known to be in the store."""
        self._agent: Agent

    async def work(self, *, first: int, until: int | None) -> None:
        """Turn after turn, from `first` on."""
        model = Telling(summary_of, name="summary", delay_seconds=MODEL_SECONDS)
        async with self._desk.memory(model) as memory:
            self._listen(memory)
            turn = first
            while until is None or turn < until:
                turn = await self._session(memory, turn, until)

    async def _session(self, memory: Engine, turn: int, until: int | None) -> int:
        session = session_of_turn(turn)
        with self._desk.transcript(session) as transcript:
            self._agent = Agent(
                memory,
                ScriptedModel(self._answer, delay_seconds=MODEL_SECONDS),
                transcript,
                self._desk.workspace(),
                tools=[_tool(self._look)],
            )
            while session_of_turn(turn) == session and (until is None or turn < until):
                say(f"> {turn}")
                self._turn, self._called = turn, False
                self._waiting = [marker(turn, "user")]
                async for event in self._agent.run(words_of(turn, "user")):
                    self._hear(event)
                turn += 1
        return turn

    def _listen(self, memory: Engine) -> None:
        """Hear of compactions, and of where the engine put what was said."""
        observe = memory.observe

        async def observed(session: Any, reply: Any, **given: Any) -> Observation:
            seen = await observe(session, reply, **given)
            self._archived = seen.archived
            return seen

        memory.observe = observed  # type: ignore[method-assign]
        memory.on("before_compaction", lambda _, __: say("c begun"))
        memory.on("after_compaction", lambda _, __: say("c committed"))

    def _hear(self, event: AgentEvent) -> None:
        if isinstance(event, Compacted):
            say("c recorded" if event.entry_id is not None else "c ended")
            if not event.result.compacted:
                say(f"! a compaction was not made: {event.result.reason}")
        elif isinstance(event, Prepared):
            self._report = event.report
            for line in event.report.failures:
                say(f"! the stage {line.stage} failed: {line.said}")
            if event.step == 1:
                self._in_transcript("user")
        elif isinstance(event, CallEnded):
            self._waiting.append(marker(self._turn, "result"))
            self._in_transcript("result")
        elif isinstance(event, Replied):
            calls = any(block.get("type") == "toolCall" for block in event.message["content"])
            part: Part = "call" if calls else "assistant"
            self._waiting.append(marker(self._turn, part))
            self._in_transcript(part)
            self._in_store()
        elif isinstance(event, Failed):
            say(f"! a turn failed: {event.reason}")
        elif isinstance(event, Ended) and event.reason != "done":
            say(f"! a turn ended as {event.reason}")

    def _in_transcript(self, part: Part) -> None:
        say(f"+ transcript {marker(self._turn, part)}")

    def _in_store(self) -> None:
        """Acknowledge what the engine said is durable; the rest waits for its next word."""
        if self._archived in ("store", "spool"):
            for mark in self._waiting:
                say(f"+ {self._archived} {mark}")
            self._waiting.clear()

    def _answer(self, request: Mapping[str, Any]) -> Given:
        """What the model says; it also looks at the request as its provider would."""
        assert self._report is not None, "a request goes out after it was prepared"
        said = spoken_in(self._agent.conversation.transcript)
        for problem in broken_promises(self._report, request, said):
            say(f"! {problem}")
        if calls_a_tool(self._turn) and not self._called:
            self._called = True
            call = ScriptedCall(id=f"call_{self._turn}", name=TOOL, input={"turn": self._turn})
            return Says(text=words_of(self._turn, "call"), calls=(call,), usage=None)
        return Says(text=words_of(self._turn, "assistant"), usage=None)

    async def _look(self, _: Mapping[str, Any]) -> ToolOutcome:
        return ToolOutcome(text=words_of(self._turn, "result"))


def _tool(run: Any) -> Tool:
    parameters = schema(("turn",), turn={"type": "integer"})
    return Tool(name=TOOL, description="Looks around.", parameters=parameters, run=run)


def main(arguments: Sequence[str]) -> int:
    """Work until killed, or until the turn named."""
    parser = argparse.ArgumentParser(prog="tools.crash.assistant")
    parser.add_argument("--desk", required=True, help="module:class of the desk")
    parser.add_argument("--home", required=True, help="data folder, with transcripts and spool")
    parser.add_argument("--location", required=True, help="file or URL")
    parser.add_argument("--space", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--until", type=int)
    options = parser.parse_args(arguments)
    os.environ[HOME] = options.home
    home = Path(options.home)
    desk = open_desk(options.desk, home=home, location=options.location, space=options.space)
    asyncio.run(Assistant(desk).work(first=options.first, until=options.until))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
