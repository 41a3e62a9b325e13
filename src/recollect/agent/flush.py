"""The note-taking turn: shortly before a compaction the model writes notes that survive it.

It repeats the last request (same system prompt, tools and messages, so that the provider's prompt
cache stays valid) and adds its instructions as a user message. It is not part of the conversation,
and a failure is a result, never an exception. Only `write` works, and it only appends: to today's
notes (in the user's time zone), `memory.md` and `USER.md`. Files are locked while it writes, and
secrets are masked.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from recollect.adapters.session.files import durably
from recollect.adapters.session.workspace import LONG_TERM_NOTES
from recollect.agent.conversation import Shape, messages_field, with_user_text
from recollect.agent.events import FlushOutcome, FlushResult
from recollect.agent.tools.confine import CUT_OFF, ToolOutcome, failed, text_argument
from recollect.core.formats.translate import to_pi, to_wire
from recollect.core.ports import ChatModel
from recollect.core.rules.redaction import redact
from recollect.core.values.model import ReplyDone, Usage, add_usage
from recollect.errors import ModelError, RecollectError
from recollect.system.config import Settings
from recollect.system.config.settings import Redaction
from recollect.system.durable import locked_within, same_file
from recollect.system.plain_text import plain_line

FOLDER = "memory"
LOCK_SECONDS = 5.0
_PAUSE_SECONDS = 0.01
_COMPARED_BYTES = 1_000_000
_USES = {
    "daily": "what happened today, and what the user asked to remember",
    "memory.md": "facts that stay true",
    "USER.md": "who the user is and what they prefer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFile:
    """A file of the workspace that may be appended to."""

    root: Path
    name: str
    """Path relative to the workspace, as the prompts name it."""

    @property
    def is_daily(self) -> bool:
        return self.name.startswith(f"{FOLDER}/")


def day_note(root: Path, now: float, tz: tzinfo | None) -> NoteFile:
    """Return today's notes in the user's time zone, or in the machine's if none is set."""
    day = datetime.fromtimestamp(now, tz).astimezone(tz).strftime("%Y-%m-%d")
    return NoteFile(root=root, name=f"{FOLDER}/{day}.md")


def note_file(today: NoteFile, given: str | None) -> NoteFile | None:
    """Resolve a path that the model wrote; None if it may not be written. Another day's notes
    become today's, and `memory.md` becomes an existing `MEMORY.md`."""
    path = Path(given or "")
    if path.suffix == ".md" and path.parent.name == FOLDER and ".." not in path.parts:
        return today
    if path.is_absolute() and path.parent in (today.root, today.root.resolve()):
        path = Path(path.name)
    meant = next((name for name in _USES if name.lower() == str(path).lower()), None)
    if meant in (None, "daily"):
        return None
    there = [other for other in LONG_TERM_NOTES if os.path.lexists(today.root / other)]
    name = there[0] if there and meant == "memory.md" else str(meant)
    return NoteFile(root=today.root, name=name)


def append_note(note: NoteFile, text: str, redaction: Redaction) -> int:
    """Append a masked text, and return the bytes written. Raise OSError if it cannot be written.
    Lines that a permanent file already contains are not written again."""
    clean = redact(text, pii=redaction.pii).text if redaction.enabled else text
    clean = clean.strip("\n")
    if not clean.strip():
        return 0
    root = note.root.resolve()
    place = root / note.name
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.parent.resolve().is_relative_to(root):
        raise PermissionError(f"{FOLDER}/ leads out of the workspace")
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    handle = _open_locked(place, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PermissionError(f"{note.name} is not a regular file")
        size = os.fstat(handle).st_size
        if not note.is_daily:
            before = os.pread(handle, min(size, _COMPARED_BYTES), 0).decode("utf-8", "replace")
            known = {line.strip() for line in before.splitlines()} - {""}
            clean = "\n".join(one for one in clean.split("\n") if one.strip() not in known)
            clean = clean.strip("\n")
            if not clean.strip():
                return 0
        end = os.pread(handle, 2, max(0, size - 2))
        gap = b"" if not size else b"\n" if end.endswith(b"\n") else b"\n\n"
        data = gap + clean.encode("utf-8", "replace") + b"\n"
        left = memoryview(data)
        while left:  # continue after a partial write; the lock excludes other writers
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return len(data)


def _open_locked(path: Path, flags: int) -> int:
    """Open and lock the file. Repeat if forgetting replaced it meanwhile."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        handle = os.open(path, flags, 0o666)
        if locked_within(handle) and same_file(handle, path):
            return handle
        os.close(handle)
        if time.monotonic() >= until:
            raise OSError(errno.EAGAIN, f"another program has held it for {LOCK_SECONDS:g} s")
        time.sleep(_PAUSE_SECONDS)


NO_REPLY = "NO_REPLY"
"""What OpenClaw's agents write for an empty reply."""


class SilentFilter:
    """Holds back a streamed reply while it may still become NO_REPLY."""

    def __init__(self) -> None:
        self._held: str | None = ""
        self.silent: bool = False
        """True if the reply is NO_REPLY. Known at its end."""

    def feed(self, text: str) -> str:
        if self._held is None:
            return text
        self._held += text
        word = self._held.strip().rstrip(".!")
        if NO_REPLY.startswith(word):
            return ""
        shown, self._held = self._held, None
        return shown

    def finish(self) -> str:
        held, self._held = self._held or "", None
        self.silent = held.strip().rstrip(".!") == NO_REPLY
        return "" if self.silent else held


MAX_STEPS = 3
"""Limit of requests in one note-taking turn: write, perhaps write again, finish."""
_DATE = "YYYY-MM-DD"
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushOrder:
    """The input of a note-taking turn."""

    sent: Mapping[str, Any] = field(repr=False)
    """The request that was sent last."""
    since: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The messages after that request, in its wire format: the reply, and the results of its
    calls."""
    shape: Shape
    root: Path
    now: float
    tz: tzinfo | None = None
    read_only: bool = False


@dataclass(slots=True)
class _Written:
    files: dict[str, int] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    steps: int = 0
    usage: Usage | None = None


async def flush(order: FlushOrder, model: ChatModel, settings: Settings) -> FlushResult:
    """Run one note-taking turn. Never raises because of a model or a disk."""
    note = day_note(order.root, order.now, order.tz)
    if order.read_only or not os.access(note.root, os.W_OK | os.X_OK):
        reason = "the workspace is read-only"
        return FlushResult(outcome="skipped", reason=reason, path=note.name)
    written = _Written()
    failure = ""
    try:
        await _exchange(order, model, settings, note, written)
    except asyncio.CancelledError:
        if not written.files:
            raise
        failure = "the turn was stopped"
    except RecollectError as error:
        failure = str(error)
    return _result(note, written, failure)


async def _exchange(
    order: FlushOrder, model: ChatModel, settings: Settings, note: NoteFile, written: _Written
) -> None:
    field_name = messages_field(order.shape)
    messages: Sequence[Mapping[str, Any]] = with_user_text(
        [*order.sent.get(field_name, ()), *order.since],
        flush_text(note, order, settings),
        order.shape,
    )
    speaker = order.shape.speaker
    while written.steps < MAX_STEPS:
        written.steps += 1
        done = await _last_event(model, {**order.sent, field_name: messages})
        if done.usage is not None:
            used = written.usage
            written.usage = done.usage if used is None else add_usage(used, done.usage)
        message = to_pi(
            done.reply, speaker, stop=done.stop, usage=done.usage, timestamp=int(order.now * 1000)
        )
        calls = [block for block in message["content"] if block["type"] == "toolCall"]
        if not calls:
            return
        whole = message["stopReason"] != "length"
        results = [await _result_of(call, note, settings, written, whole=whole) for call in calls]
        messages = [*messages, *to_wire([message, *results], speaker).messages]


def flush_text(note: NoteFile, order: FlushOrder, settings: Settings) -> str:
    """Write the user message: both prompts of the settings with the date filled in, and the time. A
    separate system prompt would invalidate the whole prompt cache."""
    prompts = settings.compaction.flush
    local = datetime.fromtimestamp(order.now, order.tz).astimezone(order.tz)
    lines = [text for text in (prompts.system_prompt, prompts.prompt) if text.strip()]
    named = [f"- {note.name if name == 'daily' else name}: {use}" for name, use in _USES.items()]
    lines.append("\n".join(["You may append to:", *named]))
    lines.append(f"Current time: {local.strftime('%Y-%m-%d %H:%M')} ({local.tzname()})")
    return "\n\n".join(lines).replace(_DATE, Path(note.name).stem)


async def _last_event(model: ChatModel, body: Mapping[str, Any]) -> ReplyDone:
    done: ReplyDone | None = None
    async for event in model.stream(body):
        if isinstance(event, ReplyDone):
            done = event
    if done is None:
        raise ModelError(f"{model.name} ended its reply early")
    return done


async def _result_of(
    call: Mapping[str, Any], note: NoteFile, settings: Settings, written: _Written, *, whole: bool
) -> dict[str, Any]:
    outcome = await _append(call, note, settings, written) if whole else failed(CUT_OFF)
    return {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call["name"],
        "content": outcome.content(),
        "isError": outcome.is_error,
    }


async def _append(
    call: Mapping[str, Any], note: NoteFile, settings: Settings, written: _Written
) -> ToolOutcome:
    path = text_argument(call["arguments"], "path")
    target = note_file(note, path) if call["name"] == "write" else None
    if target is None:
        what = path if call["name"] == "write" else str(call["name"])
        written.refusals.append(
            f"{plain_line(what or '(no path)')[:_SHOWN_CHARS]} (not a file for notes)"
        )
        names = ", ".join([note.name, *list(_USES)[1:]])
        return failed(f"Only write works in this turn, and only to {names}; it adds to the file.")
    content = text_argument(call["arguments"], "content")
    if not content or not content.strip():
        return failed("`content` is empty; give the text to add.")

    def add(text: str) -> int:  # counted here, because the caller may be cancelled by then
        size = append_note(target, text, settings.redaction)
        if size:
            written.files[target.name] = written.files.get(target.name, 0) + size
        return size

    try:
        size = await durably(add, content)
    except OSError as error:
        trouble = f"cannot be written: {error.strerror or error}"
        written.refusals.append(f"{target.name} ({trouble})")
        return failed(f"{target.name} {trouble}.")
    if not size:
        return ToolOutcome(text=f"{target.name} has that already. Answer NO_REPLY when done.")
    return ToolOutcome(text=f"Added to {target.name}. Answer NO_REPLY when done.")


def _result(note: NoteFile, written: _Written, failure: str) -> FlushResult:
    outcome: FlushOutcome = "nothing"
    reason = "the model had nothing to write down"
    if written.files:
        outcome = "written"
        reason = f"{sum(written.files.values())} bytes were added to {', '.join(written.files)}"
        reason = f"{reason}; then {failure}" if failure else reason
    elif failure:
        outcome, reason = "failed", failure
    if written.refusals:
        reason = f"{reason}; refused: {'; '.join(dict.fromkeys(written.refusals))}"
    return FlushResult(
        outcome=outcome,
        reason=reason,
        path=next(iter(written.files), note.name),
        written=tuple(written.files.items()),
        refused=tuple(written.refusals),
        steps=written.steps,
        usage=written.usage,
    )
