"""The note-taking turn: shortly before a compaction, the model writes notes about what the
compaction removes.

The turn repeats the last request (same system prompt, tools and messages, so that the provider's
prompt cache stays valid), and adds its instructions as a user message. The turn is not part of the
conversation, and its failure is a result, never an exception. Of the tools only `write` works, and
it only adds to the end of files: today's notes (in the user's time zone), `memory.md` and
`USER.md`. Files are locked while the tool writes, and secrets are masked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from recollect.adapters.session.files import open_for_one, write_durably
from recollect.adapters.session.workspace import LONG_TERM_NOTES
from recollect.agent.conversation import Shape, messages_field
from recollect.agent.events import FlushOutcome, FlushResult
from recollect.agent.tools.confine import (
    CUT_OFF,
    ToolOutcome,
    result_message,
    text_argument,
    tool_failure,
)
from recollect.core.engine.prepare import repair_request
from recollect.core.formats.translate import to_pi, to_wire
from recollect.core.ports import ChatModel
from recollect.core.rules.redaction import redact
from recollect.core.values.model import ReplyDone, Usage, add_usage
from recollect.errors import ModelError, RecollectError, TranscriptError, TranscriptLocked
from recollect.system.config import Settings
from recollect.system.config.settings import Redaction
from recollect.system.plain_text import plain_line

FOLDER = "memory"
# Not measured: another program holds the lock only while it writes one note.
LOCK_SECONDS = 5.0
# Not measured: bounds the part of a long file in which known lines are looked for.
_COMPARED_BYTES = 1_000_000
_USES = {
    "daily": "what happened today, and what the user asked to remember",
    "memory.md": "facts that stay true",
    "USER.md": "who the user is and what they prefer",
}


def day_note(now: float) -> str:
    """Return the name of today's file of notes, in the machine's time zone."""
    return f"{FOLDER}/{datetime.fromtimestamp(now):%Y-%m-%d}.md"  # noqa: DTZ006 - the user's day


def note_file(root: Path, today: str, path_text: str | None) -> str | None:
    """Resolve a path that the model wrote; None if the model may not write there. A path to another
    day's notes becomes `today`'s, and `memory.md` becomes an existing `MEMORY.md`."""
    path = Path(path_text or "")
    if path.suffix == ".md" and path.parent.name == FOLDER and ".." not in path.parts:
        return today
    if path.is_absolute() and path.parent in (root, root.resolve()):
        path = Path(path.name)
    note_name = next((name for name in _USES if name.lower() == str(path).lower()), None)
    if note_name in (None, "daily"):
        return None
    existing_names = [
        file_name for file_name in LONG_TERM_NOTES if os.path.lexists(root / file_name)
    ]
    return existing_names[0] if existing_names and note_name == "memory.md" else note_name


def append_note(root: Path, name: str, text: str, redaction: Redaction) -> int:
    """Mask a text, add it to the end of a workspace file, and return the number of bytes written.
    Lines that `memory.md` or `USER.md` already contains are left out. Raise OSError or
    TranscriptError if the file cannot be written."""
    clean = redact(text, pii=redaction.pii).text if redaction.enabled else text
    clean = clean.strip("\n")
    if not clean.strip():
        return 0
    root = root.resolve()
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.parent.resolve().is_relative_to(root):
        raise PermissionError(f"{FOLDER}/ leads out of the workspace")
    flags = os.O_NOFOLLOW
    try:
        handle = open_for_one(place, create=True, seconds=LOCK_SECONDS, mode=0o666, flags=flags)
    except TranscriptLocked:
        raise TranscriptLocked(f"another program is writing {name}: try again") from None
    try:
        size = os.fstat(handle).st_size
        if not name.startswith(f"{FOLDER}/"):
            before = os.pread(handle, min(size, _COMPARED_BYTES), 0).decode("utf-8", "replace")
            known_lines = {line.strip() for line in before.splitlines()} - {""}
            clean = "\n".join(line for line in clean.split("\n") if line.strip() not in known_lines)
            clean = clean.strip("\n")
            if not clean.strip():
                return 0
        end = os.pread(handle, 2, max(0, size - 2))
        gap = b"" if not size else b"\n" if end.endswith(b"\n") else b"\n\n"
        data = gap + clean.encode("utf-8", "replace") + b"\n"
        with os.fdopen(handle, "ab", closefd=False) as file:
            file.write(data)  # the lock excludes other writers
        os.fsync(handle)
    finally:
        os.close(handle)
    return len(data)


NO_REPLY = "NO_REPLY"
"""OpenClaw's agents write this if they have nothing to say."""


class SilentFilter:
    """Delays a streamed reply while it may still become NO_REPLY."""

    def __init__(self) -> None:
        self._held_text: str | None = ""
        self.silent: bool = False
        """True if the whole reply was NO_REPLY."""

    def feed(self, text: str) -> str:
        if self._held_text is None:
            return text
        self._held_text += text
        word = self._held_text.strip().rstrip(".!")
        if NO_REPLY.startswith(word):
            return ""
        text_to_show, self._held_text = self._held_text, None
        return text_to_show

    def finish(self) -> str:
        held_text, self._held_text = self._held_text or "", None
        self.silent = held_text.strip().rstrip(".!") == NO_REPLY
        return "" if self.silent else held_text


MAX_STEPS = 3
"""Limit of requests in one note-taking turn: write, perhaps write again, finish."""
_DATE = "YYYY-MM-DD"
# Not measured: a path that a model made up does not fill the reason.
_SHOWN_CHARS = 80


@dataclass(slots=True, kw_only=True)
class FlushTurn:
    """A note-taking turn: its input, and its results so far."""

    last_request: Mapping[str, Any] = field(repr=False)
    """The last request that was sent."""
    since: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The reply and the results of its tool calls, in the request's wire format."""
    shape: Shape
    root: Path
    now: float
    read_only: bool = False
    files: dict[str, int] = field(default_factory=dict)
    """Number of bytes added, by file."""
    refusals: list[str] = field(default_factory=list)
    steps: int = 0
    usage: Usage | None = None

    @property
    def today(self) -> str:
        return day_note(self.now)

    async def run(self, model: ChatModel, settings: Settings) -> FlushResult:
        """Run the turn. Errors of the model or the disk are part of the result."""
        if self.read_only or not os.access(self.root, os.W_OK | os.X_OK):
            reason = "the workspace is read-only"
            return FlushResult(outcome="skipped", reason=reason, path=self.today)
        failure = ""
        try:
            await self._exchange(model, settings)
        except asyncio.CancelledError:
            if not self.files:
                raise
            failure = "the turn was stopped"
        except RecollectError as error:
            failure = str(error)
        return self._result(failure)

    def prompt(self, settings: Settings) -> str:
        """Write the user message from both prompts of the settings, with date and time. A separate
        system prompt would invalidate the provider's whole prompt cache."""
        prompts = settings.compaction.flush
        local = datetime.fromtimestamp(self.now).astimezone()
        lines = [text for text in (prompts.system_prompt, prompts.prompt) if text.strip()]
        note_lines = [
            f"- {self.today if name == 'daily' else name}: {use}" for name, use in _USES.items()
        ]
        lines.append("\n".join(["You may append to:", *note_lines]))
        lines.append(f"Current time: {local.strftime('%Y-%m-%d %H:%M')} ({local.tzname()})")
        return "\n\n".join(lines).replace(_DATE, Path(self.today).stem)

    async def _exchange(self, model: ChatModel, settings: Settings) -> None:
        key, speaker = messages_field(self.shape), self.shape.speaker
        prompt = {"role": "user", "content": self.prompt(settings)}
        messages: Sequence[Mapping[str, Any]] = [
            *self.last_request.get(key, ()),
            *self.since,
            prompt,
        ]
        while self.steps < MAX_STEPS:
            self.steps += 1
            request = await asyncio.to_thread(
                repair_request, {**self.last_request, key: messages}, speaker.format
            )
            messages = request[key]
            event = await _last_event(model, request)
            if event.usage is not None:
                self.usage = (
                    event.usage if self.usage is None else add_usage(self.usage, event.usage)
                )
            timestamp = int(self.now * 1000)
            message = to_pi(
                event.reply, speaker, stop=event.stop, usage=event.usage, timestamp=timestamp
            )
            calls = [block for block in message["content"] if block["type"] == "toolCall"]
            if not calls:
                return
            is_complete = message["stopReason"] != "length"
            results = [
                result_message(
                    call,
                    await self._append(call, settings.redaction)
                    if is_complete
                    else tool_failure(CUT_OFF),
                )
                for call in calls
            ]
            messages = [*messages, *to_wire([message, *results], speaker).messages]

    async def _append(self, call: Mapping[str, Any], redaction: Redaction) -> ToolOutcome:
        path = text_argument(call["arguments"], "path")
        name = note_file(self.root, self.today, path) if call["name"] == "write" else None
        if name is None:
            refused_name = path if call["name"] == "write" else str(call["name"])
            self.refusals.append(
                f"{plain_line(refused_name or '(no path)')[:_SHOWN_CHARS]} (not a file for notes)"
            )
            names = ", ".join([self.today, *list(_USES)[1:]])
            return tool_failure(
                f"Only write works in this turn, and only to {names}; it adds to the file."
            )
        content = text_argument(call["arguments"], "content")
        if not content or not content.strip():
            return tool_failure("`content` is empty; give the text to add.")

        def add(text: str) -> int:  # count now, because the caller may be cancelled later
            size = append_note(self.root, name, text, redaction)
            if size:
                self.files[name] = self.files.get(name, 0) + size
            return size

        try:
            size = await write_durably(add, content)
        except (OSError, TranscriptError) as error:
            trouble = f"cannot be written: {getattr(error, 'strerror', None) or error}"
            self.refusals.append(f"{name} ({trouble})")
            return tool_failure(f"{name} {trouble}.")
        outcome_text = f"Added to {name}" if size else f"{name} has that already"
        return ToolOutcome(text=f"{outcome_text}. Answer NO_REPLY when done.")

    def _result(self, failure: str) -> FlushResult:
        outcome: FlushOutcome = "nothing"
        reason = "the model had nothing to write down"
        if self.files:
            outcome = "written"
            reason = f"{sum(self.files.values())} bytes were added to {', '.join(self.files)}"
            reason = f"{reason}; then {failure}" if failure else reason
        elif failure:
            outcome, reason = "failed", failure
        if self.refusals:
            reason = f"{reason}; refused: {'; '.join(dict.fromkeys(self.refusals))}"
        return FlushResult(
            outcome=outcome,
            reason=reason,
            path=next(iter(self.files), self.today),
            written=tuple(self.files.items()),
            refused=tuple(self.refusals),
            steps=self.steps,
            usage=self.usage,
        )


async def _last_event(model: ChatModel, body: Mapping[str, Any]) -> ReplyDone:
    last_event: ReplyDone | None = None
    async for event in model.stream(body):
        if isinstance(event, ReplyDone):
            last_event = event
    if last_event is None:
        raise ModelError(f"{model.name} ended its reply early")
    return last_event
