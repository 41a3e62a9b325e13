"""Runs the conversation: our agent, our engine and its memory, a real server.

Owns the settings of such a run. The engine is not told the window: it believes in a large one
until the server refuses a request, and again when the user goes on with a model of another name.
Must never look at what the model says: it may say anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recollect import open_memory
from recollect.adapters.providers.openai import OpenAIChatModel
from recollect.adapters.session.transcript import open_transcript
from recollect.agent import conversation
from recollect.agent.events import AgentEvent, Compacted, Ended, Failed, Flushed, Replied
from recollect.agent.loop import Agent
from recollect.core.engine.engine import Engine
from recollect.system.config.settings import Redaction
from recollect_bench.llama_server import LlamaServer
from tools.real_model.outcome import Outcome
from tools.real_model.script import Turn, plan_conversation
from tools.real_model.watched import WatchedModel

TURN_TOKENS: Final = (1310, 1310, 1500, 1700)
"""The third does not fit any more, and llama.cpp refuses it before it has read it: what is read
twice is what costs the time of such a run."""
REPLY_TOKENS: Final = 16
OWN_WORDS: Final = "You are a helpful colleague. Answer in one short sentence."
CALL_SECONDS: Final = 900.0
"""A summary of a small model on a machine that is busy with other things."""
SETTINGS: Final[dict[str, Any]] = {
    # replies are short, so little has to be left free of a small window
    "compaction.reserve_tokens": 64,
    "compaction.reserve_tokens_floor": 0,
    "compaction.keep_recent_tokens": 400,
    "trim.protect_messages": 2,
    "compaction.mode": "default",
    "compaction.deadline_seconds": 3 * CALL_SECONDS,
    "recall.deadline_seconds": 30.0,
    "store.read_seconds": 30.0,
    "store.write_seconds": 30.0,
    "ledger.enabled": False,
}


def _silent(_: str) -> None:
    """Nobody listens."""


@dataclass(slots=True, kw_only=True)
class Run:
    """What a run is made of."""

    server: LlamaServer
    folder: Path
    tokens: int
    flush: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    tell: Callable[[str], None] = _silent


async def converse(run: Run) -> Outcome:
    """The whole conversation; what went wrong is in the outcome."""
    begun = time.monotonic()
    turns = plan_conversation(run.tokens, run.server.count_tokens, turn_tokens=TURN_TOKENS)
    model = WatchedModel(
        OpenAIChatModel(
            model=run.server.gguf.stem, base_url=run.server.base_url, deadline_seconds=CALL_SECONDS
        )
    )
    outcome = Outcome(model=model.name, window_tokens=run.server.window_tokens, watched=model.seen)
    try:
        async with _engine(run, model) as engine:
            workspace = run.folder / "workspace"
            workspace.mkdir()
            transcript = open_transcript(
                run.folder / "session.jsonl",
                session_id="real-model",
                redaction=Redaction(),
                cwd=workspace,
            )
            conversation.OWN_WORDS = OWN_WORDS
            with transcript:
                agent = Agent(
                    engine,
                    model,
                    transcript,
                    workspace,
                    tools=(),
                    max_output_tokens=REPLY_TOKENS,
                )
                for number, turn in enumerate(turns, start=1):
                    if turn.begins_part:  # its window has to be learned anew
                        model.name = f"{run.server.gguf.stem}-{number}"
                    await _take(agent, turn, model, outcome, run)
                    run.tell(_told(number, len(turns), turn, outcome, begun))
    finally:
        await model.close()
    outcome.seconds = time.monotonic() - begun
    return outcome


def _engine(run: Run, model: WatchedModel) -> Engine:
    settings = {**SETTINGS, "compaction.flush.enabled": run.flush, **run.settings}
    return open_memory(
        store=run.folder / "memory.sqlite",
        settings=settings,
        model=model,
        embedders=(),
        compact_in_background=False,
    )


async def _take(agent: Agent, turn: Turn, model: WatchedModel, outcome: Outcome, run: Run) -> None:
    """One turn, and where what it asks for stood in the request that was answered."""
    outcome.turns += 1
    outcome.said_tokens += run.server.count_tokens(turn.text)
    places = []
    refused, failed = model.seen.overflows, outcome.failed_turns
    async for event in agent.run(turn.text):
        if isinstance(event, Replied):
            places = [model.place_of(one.exact) for one in turn.asks]
        _note(event, outcome)
    if outcome.failed_turns == failed:
        outcome.recovered += model.seen.overflows - refused
    outcome.places += places or ["nowhere" for _ in turn.asks]


def _note(event: AgentEvent, outcome: Outcome) -> None:
    if isinstance(event, Compacted):
        outcome.compactions.append(event.result)
    elif isinstance(event, Replied) and event.usage is not None:
        outcome.said_tokens += event.usage.output_tokens
    elif isinstance(event, Flushed):
        outcome.flushes[event.result.outcome] += 1
    elif isinstance(event, Failed):
        outcome.troubles.append(f"turn {outcome.turns}: {event.kind}: {event.reason}")
    elif isinstance(event, Ended) and event.reason != "done":
        outcome.failed_turns += 1


def _told(number: int, of: int, turn: Turn, outcome: Outcome, begun: float) -> str:
    asked = f", asked for {len(turn.asks)}, in view {outcome.found}/{len(outcome.places)}"
    return (
        f"turn {number}/{of} after {time.monotonic() - begun:.0f} s: {outcome.said_tokens} tokens "
        f"said, {outcome.watched.overflows} overflows, {len(outcome.compactions)} compactions"
        + (asked if turn.asks else "")
    )
