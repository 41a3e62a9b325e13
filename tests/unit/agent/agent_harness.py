"""A workspace, a transcript, a real engine with its own file, and an agent between them."""

import asyncio
import os
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recollect import open_memory
from recollect.adapters.session.transcript import SessionTranscript, open_transcript
from recollect.agent.events import AgentEvent, Ended, Said
from recollect.agent.loop import Agent
from recollect.core.compaction.ask import REQUIRED_HEADINGS
from recollect.core.ports import ChatModel
from recollect.core.values.model import Prompt, Usage
from recollect.system.config.settings import Redaction
from recollect.testing.scripted_model import Says, ScriptedModel

LINES = (
    *("know the harbour", "begin at the north quay", "ask the pilot about fog"),
    *("nobody sails without papers", "how deep the basin is", "berth-17"),
)


def notes(prompt: Prompt) -> str:
    """A summary as it was asked for; another one for each prompt, as a model's would be."""
    page = zlib.crc32(prompt.text.encode())
    pairs = zip(REQUIRED_HEADINGS, LINES, strict=True)
    return "\n".join(f"{heading}\n- {line}" for heading, line in pairs) + f"\n- page {page}"


QUIET = {"recall.enabled": False, "compaction.audit": False}


# the clock below is at noon in UTC
os.environ["TZ"] = "UTC"
time.tzset()


class Clock:
    def __init__(self, now: float = 1_773_230_400.0) -> None:  # 2026-03-11 12:00 UTC
        self.at = now

    def now(self) -> float:
        return self.at


class AgentHarness:
    """One agent's surroundings; closing and opening it again is a restart."""

    def __init__(
        self,
        folder: Path,
        model: ChatModel,
        *,
        settings: dict[str, Any] | None = None,
        summary: Any = None,
        **agent: Any,
    ) -> None:
        self.folder = folder
        self.root = folder / "workspace"
        self.root.mkdir(exist_ok=True)
        self.model = model
        self.clock = Clock()
        self.summary = summary or ScriptedModel(notes, name="summary")
        self.settings = {**QUIET, **(settings or {})}
        self.given = agent
        self.sessions = 1
        self.events: list[AgentEvent] = []

    def transcript(self) -> SessionTranscript:
        name = f"session-{self.sessions}"
        path = self.folder / f"{name}.jsonl"
        return open_transcript(
            path, session_id=name, redaction=Redaction(), cwd=self.root, clock=self.clock
        )

    def following(self) -> SessionTranscript:
        self.sessions += 1
        return self.transcript()

    def run(self, work: Callable[[Agent], Any]) -> Any:
        """Open everything, work, close everything."""

        async def opened() -> Any:
            engine = open_memory(
                store=self.folder / "memory.sqlite",
                settings=self.settings,
                model=self.summary,
                embedders=(),
                clock=self.clock,
                compact_in_background=False,
            )
            transcript = self.transcript()
            try:
                async with engine:
                    agent = Agent(
                        engine,
                        self.model,
                        transcript,
                        self.root,
                        clock=self.clock,
                        open_session=self.following,
                        **self.given,
                    )
                    try:
                        return await work(agent)
                    finally:
                        agent.conversation.transcript.close()
            finally:
                transcript.close()
                with suppress(RuntimeError):
                    await self.model.close()

        return asyncio.run(opened())

    def say(self, *texts: str) -> list[AgentEvent]:
        """Turns one after the other, in one process."""

        async def turns(agent: Agent) -> list[AgentEvent]:
            told: list[AgentEvent] = []
            for text in texts:
                told.extend(await collected(agent, text))
            return told

        events: list[AgentEvent] = self.run(turns)
        self.events.extend(events)
        return events

    def messages(self) -> list[dict[str, Any]]:
        """What stands in the transcript, message by message."""
        return [entry["message"] for entry in self.entries() if entry["type"] == "message"]

    def entries(self) -> list[dict[str, Any]]:
        with self.transcript() as transcript:
            return [entry.value for entry in transcript.entries]


async def collected(agent: Agent, text: str) -> list[AgentEvent]:
    return [event async for event in agent.run(text)]


def of(events: Sequence[AgentEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def said(events: Sequence[AgentEvent]) -> str:
    return "".join(event.text for event in of(events, Said))


def ended(events: Sequence[AgentEvent]) -> str:
    assert isinstance(events[-1], Ended)
    return str(events[-1].reason)


def filling(text: str, tokens: int, **more: Any) -> Says:
    """A reply whose usage says that the request was so large."""
    return Says(text=text, usage=Usage(input_tokens=tokens, output_tokens=5), **more)
