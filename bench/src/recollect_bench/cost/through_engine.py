"""Replays a conversation through the real engine: a real store, recall, pruning, compaction.

Owns what is set apart from the defaults, so that strategies differ in nothing else: the counter,
the reserve and the model are those of plain compaction, words alone are searched, and no deadline
of a busy machine can change a figure. Must never hand the engine anything but requests as a client
sends them. Always holds: the same conversation gives the same requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from recollect.config import Settings, load_settings
from recollect.config.load import PRESETS
from recollect.engine import Engine
from recollect.formats.request import split_request
from recollect.values.edit import Insert
from recollect.wiring.memory import open_memory
from recollect_bench.cost.data import ByteCounter, Conversation, count_bytes
from recollect_bench.cost.meter import SYSTEM_TOKENS, Meter, Tally
from recollect_bench.cost.notes import NoteTaker, NotingModel
from recollect_bench.cost.plain import RESERVE_TOKENS

SECONDS_A_REQUEST: Final = 5.0
"""No cache expires, as in the study."""
_BEGUN_AT: Final = 1_700_000_000.0
_PATIENCE: Final = 600.0
_APART: Final[Mapping[str, Any]] = {
    "recall.embedder": "none",
    "tokens.calibrate": False,
    "compaction.reserve_tokens": RESERVE_TOKENS,
    "compaction.reserve_tokens_floor": 0,
    "compaction.deadline_seconds": _PATIENCE,
    "recall.deadline_seconds": _PATIENCE,
    "turn.deadline_seconds": _PATIENCE,
    "turn.stage_deadline_seconds": _PATIENCE,
    "store.read_seconds": _PATIENCE,
    "store.write_seconds": _PATIENCE,
    "jobs.in_process": False,
    "ledger.enabled": False,
}


class SteadyClock:
    """Goes on by the same seconds for each request."""

    def __init__(self) -> None:
        self.at = _BEGUN_AT

    def now(self) -> float:
        """The time of this request."""
        return self.at


def settings_of(
    preset: str, window_tokens: int, changes: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of a preset with what the bench sets apart; no file or variable is read."""
    apart = {key: value for key, value in _APART.items() if key not in PRESETS[preset]}
    arguments = {**apart, **(changes or {}), "preset": preset, "window_tokens": window_tokens}
    return load_settings(arguments=arguments, environment={}, file=Path("/dev/null")).settings


async def replay_engine(
    conversation: Conversation,
    window_tokens: int,
    *,
    preset: str = "recollect",
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Tally:
    """What the engine costs on this conversation, and what it keeps."""
    meter = Meter(conversation)
    clock = SteadyClock()
    with TemporaryDirectory(prefix="recollect-cost-") as folder:
        memory = open_memory(
            space="bench",
            store=Path(folder) / "memory.db",
            clock=clock,
            counter=ByteCounter(),
            model=NotingModel(NoteTaker(conversation.naming), meter.asked),
            compact_in_background=False,
            settings=settings_of(preset, window_tokens, changes),
        )
        async with memory:
            await _replayed(memory, conversation, meter, clock, progress)
    return meter.tally


async def _replayed(
    memory: Engine,
    conversation: Conversation,
    meter: Meter,
    clock: SteadyClock,
    progress: Callable[[int], None],
) -> None:
    head, tail = _frame(conversation)
    raws = [row.raw for row in conversation.rows]
    seen: set[tuple[str, int]] = set()
    blocks = 0
    for done, moment in enumerate(conversation.moments):
        progress(done)
        clock.at += SECONDS_A_REQUEST
        body = head + b",".join(raws[: moment.row]) + tail
        context = await memory.prepare("replay", body, format=conversation.format)
        sent = split_request(context.request, conversation.format).messages
        meter.sent([meter.row(raw) for raw in sent], moment)
        for edit in context.state.edits:
            if isinstance(edit, Insert) and (edit.text, edit.turn) not in seen:
                seen.add((edit.text, edit.turn))
                blocks += 1
    meter.tally.notes["blocks"] = blocks


def _frame(conversation: Conversation) -> tuple[bytes, bytes]:
    """What stands around the messages; tools of the right weight, which every wire has."""
    field = "input" if conversation.format == "openai-responses" else "messages"
    tools = [{"name": "tool", "description": ""}]
    missing = SYSTEM_TOKENS - count_bytes(json.dumps(tools))
    tools[0]["description"] = "a" * (4 * missing)
    opening = f'{{"model":"replayed","tools":{json.dumps(tools)},"{field}":['
    return opening.encode(), b"]}"
