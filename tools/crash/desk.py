"""Where an agent that is killed works: its store, its transcripts, its model that follows a script.

Owns the words that are said, each message with a marker of its own, and the files they go to.
Child and parent open the same things through it; tests give desks of their own, broken ones among
them. Always holds: the same turn says the same words, whoever says them.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from recollect.adapters.session.transcript import SessionTranscript, open_transcript
from recollect.adapters.wiring import open_memory
from recollect.core.compaction.ask import REQUIRED_HEADINGS
from recollect.core.engine import Engine
from recollect.core.values.model import Prompt
from recollect.system.config.settings import (
    Compaction,
    Flush,
    Recall,
    Redaction,
    Settings,
    StoreSettings,
    Turn,
)
from tools.crash.plan import WORDS

WHOLE: Final = "tools.crash.desk:Desk"
"""The desk with nothing broken."""
SESSION_TURNS: Final = 40
"""Turns a session; then another one begins, so that requests stay of a size."""
CALL_EVERY: Final = 3
"""Every so many turns the model asks for its tool before it answers."""
MODEL_SECONDS: Final = 0.003
SETTINGS: Final = Settings(
    window_tokens=6_000,
    recall=Recall(embedder="none"),
    compaction=Compaction(keep_recent_tokens=1_500, flush=Flush(enabled=False)),
    store=StoreSettings(read_seconds=10.0, write_seconds=10.0),
    turn=Turn(deadline_seconds=60.0),
)
"""A window so small that every few turns fill it, and deadlines that a busy machine keeps: what is
late is told and made good later, but here it would be taken for what a kill did."""
Part: TypeAlias = Literal["user", "call", "result", "assistant"]
_WORDS_OF: Final[dict[Part, int]] = {"user": 60, "call": 10, "result": 220, "assistant": 160}
_MARKER: Final = re.compile(r"\bturn-(\d+)-(user|call|result|assistant)\b")


def session_of_turn(turn: int) -> str:
    """The session that a turn belongs to."""
    return f"desk-{turn // SESSION_TURNS}"


def marker(turn: int, part: Part) -> str:
    """What that message begins with, and no other message holds."""
    return f"turn-{turn}-{part}"


def markers_in(text: str) -> list[str]:
    """The markers that a text holds, in its order."""
    return [found[0] for found in _MARKER.finditer(text)]


def turn_of(mark: str) -> int:
    """The turn that a marker belongs to."""
    return int(mark.split("-")[1])


def calls_a_tool(turn: int) -> bool:
    """Whether the model asks for its tool in that turn."""
    return turn % CALL_EVERY == 0


def words_of(turn: int, part: Part) -> str:
    """What is said: sentences with something exact in each, so that receipts have work to do."""
    start = turn * 7 + len(part)
    said = [WORDS[(start + step * step) % len(WORDS)] for step in range(_WORDS_OF[part])]
    lines = [" ".join(said[at : at + 12]) for at in range(0, len(said), 12)]
    path = f"We decided to keep {said[0]} in src/{said[1]}/{part}_{turn}.py."
    return f"{marker(turn, part)} {'. '.join(lines)}. {path}"


def summary_of(prompt: Prompt) -> str:
    """A summary as it is asked for; another one for each prompt, as a model's would be."""
    page = zlib.crc32(prompt.text.encode())
    lines = "\n".join(
        f"{heading}\n- {WORDS[(page + at) % len(WORDS)]} and {WORDS[(page + 3 * at) % len(WORDS)]}"
        for at, heading in enumerate(REQUIRED_HEADINGS)
    )
    return f"{lines}\n- page-{page}"


def spoken_in(transcript: SessionTranscript) -> list[str]:
    """The markers of all messages of a transcript, in its order."""
    messages = (entry.value.get("message") for entry in transcript.entries)
    return [
        mark
        for message in messages
        if isinstance(message, dict)
        for mark in markers_in(_text(message.get("content") or ()))
    ]


def _text(content: str | Iterable[Any]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        block.get("text", "")
        for block in content
        if isinstance(block, dict) and block.get("type") == "text"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """One agent's files and store."""

    home: Path
    location: str
    space: str

    def memory(self, model: Any) -> Engine:
        """The engine, as a host opens it that compacts between its turns."""
        return open_memory(
            store=self.location,
            space=self.space,
            settings=SETTINGS,
            model=model,
            compact_in_background=False,
        )

    def transcript(self, session: str) -> SessionTranscript:
        """The session's transcript, open for writing."""
        return open_transcript(
            self.file(session), session_id=session, redaction=Redaction(), cwd=self.workspace()
        )

    def file(self, session: str) -> Path:
        """Where a transcript lies."""
        return self.home / "sessions" / f"{session}.jsonl"

    def workspace(self) -> Path:
        """The agent's workspace."""
        folder = self.home / "workspace"
        folder.mkdir(exist_ok=True)
        return folder


def open_desk(name: str, *, home: Path, location: str, space: str) -> Desk:
    """A desk by the name of its class, `module:class`."""
    module, _, kind = name.partition(":")
    found: type[Desk] = getattr(importlib.import_module(module), kind)
    return found(home=home, location=location, space=space)
