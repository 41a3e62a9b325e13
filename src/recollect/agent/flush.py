"""The flush turn: shortly before a compaction the model writes down what must outlast it.

A side exchange behind the request that was sent last: same system prompt, same tools, same
messages, so that the provider's prompt cache holds; its instructions are one user message at
the tail. Never part of the conversation, never shown, never the end of a turn: whatever goes
wrong is a result. A turn that is stopped after it wrote a note says so; otherwise the note would
be written again.

Only the notes of the day (`memory/YYYY-MM-DD.md`, by the user's clock) can be written, and only
added to, with secrets masked; two writers at once lose nothing. The reply NO_REPLY is shown to
nobody: a stream is withheld for as long as it could still become that token.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from recollect.agent.durably import durably
from recollect.agent.events import FlushResult
from recollect.agent.request import Shape, messages_field, with_user_text
from recollect.agent.tools.outcome import CUT_OFF, ToolOutcome, failed, text_given
from recollect.config import Settings
from recollect.config.settings import Redaction
from recollect.errors import ModelError, RecollectError
from recollect.formats.blocks import texts_of
from recollect.formats.translate import Speaker, to_pi, to_wire
from recollect.ports import ChatModel
from recollect.rules.redaction import redact
from recollect.stores.durable import same_file
from recollect.values.model import ReplyDone

# The notes of the day


FOLDER = "memory"
LOCK_SECONDS = 5.0
"""How long a note waits for who else writes the file: each holds it for one write and a sync."""
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class DayNote:
    """The one file that may be added to."""

    root: Path
    """The workspace."""
    day: str
    """YYYY-MM-DD."""

    @property
    def shown(self) -> str:
        """Relative to the workspace, as the prompts name it."""
        return f"{FOLDER}/{self.day}.md"

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / FOLDER / f"{self.day}.md"


def day_of(now: float, tz: tzinfo | None) -> str:
    """The date in the user's time zone; without one, the machine's."""
    return datetime.fromtimestamp(now, tz).astimezone(tz).strftime("%Y-%m-%d")


def means_a_day_note(given: str | None) -> bool:
    """Whether a path is one of `memory/….md`: another date than today's is a slip, no wish."""
    if not given:
        return False
    path = Path(given)
    return path.suffix == ".md" and path.parent.name == FOLDER and ".." not in path.parts


def append_note(note: DayNote, text: str, redaction: Redaction) -> int:
    """Add a text to the file of the day; how many bytes were written. OSError where it cannot."""
    clean = redact(text, pii=redaction.pii).text if redaction.enabled else text
    clean = clean.strip("\n")
    if not clean.strip():
        return 0
    root = note.root.resolve()
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    if not folder.resolve().is_relative_to(root):
        raise PermissionError(f"{FOLDER}/ leads out of the workspace")
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = _locked(folder / f"{note.day}.md", flags)
    try:
        size = os.fstat(handle).st_size
        before = os.pread(handle, 2, max(0, size - 2))
        gap = b"" if not size else b"\n" if before.endswith(b"\n") else b"\n\n"
        data = gap + clean.encode("utf-8", "replace") + b"\n"
        left = memoryview(data)
        while left:  # a short write goes on where it stopped; the lock keeps others out
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return len(data)


def _locked(path: Path, flags: int) -> int:
    """The file, open and locked; opened again where forgetting replaced it meanwhile."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        handle = os.open(path, flags, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if same_file(handle, path):
                return handle
        except BlockingIOError:
            pass
        except OSError:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() >= until:
            raise OSError(errno.EAGAIN, f"another program has held it for {LOCK_SECONDS:g} s")
        time.sleep(_PAUSE_SECONDS)


def why_read_only(root: Path) -> str:
    """Why no notes can be written here; empty where they can."""
    folder = root / FOLDER
    place = folder if folder.exists() else root
    if not place.is_dir():
        return f"{place.name}/ is not a folder"
    if not os.access(place, os.W_OK | os.X_OK):
        return "the workspace is read-only"
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return "the workspace is on a read-only disk"
    return ""


# Replies that nobody is shown


NO_REPLY = "NO_REPLY"
"""The word by which OpenClaw's agents say that there is nothing to say."""
_SENTENCE_ENDS = ".!?…"


class SilentFilter:
    """Holds a streamed reply back while it is not clear whether anybody is to see it."""

    def __init__(self) -> None:
        self._held = ""
        self._before = ""
        self._said_something = False
        self.silent = False
        """The reply is for nobody; known at its end."""

    def feed(self, text: str) -> str:
        """What of the words so far may be shown now."""
        seen = self._before + self._held + text
        at = max(len(self._before), _undecided_from(seen, begun=bool(self._before)))
        shown, self._held = seen[len(self._before) : at], seen[at:]
        self._before = seen[at - 1 : at]  # all that what follows depends on
        self._said_something |= bool(shown.strip())
        return shown

    def finish(self) -> str:
        """What was held back at the reply's end."""
        held, self._held = self._held, ""
        if _token_from(held, whole=True) == len(held):
            return held
        self.silent = not self._said_something
        return ""


def shown_of(text: str) -> str:
    """What of a whole reply is for somebody."""
    filtered = SilentFilter()
    return filtered.feed(text) + filtered.finish()


def _undecided_from(seen: str, *, begun: bool) -> int:
    """Where the end begins that may be a token, or become one; with the space before it.

    `begun`: the first character was shown before and only tells what the rest stands behind.
    """
    at = len(seen)
    while True:
        start = _token_from(seen[:at], whole=at < len(seen))
        before = len(seen[:start].rstrip())
        space = seen[before:start]
        stands_alone = (
            (before == 0 and not begun)
            or "\n" in space
            or (space != "" and seen[before - 1 : before] in _SENTENCE_ENDS)
        )
        if start == at or not stands_alone:
            return before if start == at == len(seen) else at
        at = before


def _token_from(seen: str, *, whole: bool) -> int:
    """Where a last word begins that is the token, or (unless `whole`) may become it; else the
    end."""
    end = len(seen)
    while end and not _is_of_word(seen[end - 1]):
        end -= 1
    start = end
    while start and _is_of_word(seen[start - 1]):
        start -= 1
    word = seen[start:end]
    if word == NO_REPLY:
        return start
    unfinished = not whole and word != "" and end == len(seen) and NO_REPLY.startswith(word)
    return start if unfinished else len(seen)


def _is_of_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


MAX_STEPS = 3
"""Requests of one flush turn: write, perhaps write again, done."""
_READ_ONLY_ERRORS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_DATE = "YYYY-MM-DD"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushOrder:
    """What a flush turn starts from."""

    sent: Mapping[str, Any] = field(repr=False)
    """The request that went out last, as it went out."""
    since: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """What was said behind it, in its wire format: the reply, and results of its calls."""
    shape: Shape
    note_root: Any = field(repr=False)
    """The workspace."""
    now: float
    tz: tzinfo | None = None
    read_only: bool = False


@dataclass(slots=True)
class _Written:
    bytes: int = 0
    refused: str = ""
    """Why the disk took nothing."""
    steps: int = 0


async def flush(order: FlushOrder, model: ChatModel, settings: Settings) -> FlushResult:
    """Run one flush turn; never raises for what a model or a disk does."""
    note = DayNote(root=order.note_root, day=day_of(order.now, order.tz))
    why = "the workspace is read-only" if order.read_only else why_read_only(note.root)
    if why:
        return FlushResult(outcome="skipped", reason=why, path=note.shown)
    written = _Written()
    try:
        text = await _exchange(order, model, settings, note, written)
    except asyncio.CancelledError:
        if not written.bytes:
            raise
        return _ended(note, written, failure="the turn was stopped")
    except RecollectError as error:
        return _ended(note, written, failure=str(error))
    return _ended(note, written, text=shown_of(text))


async def _exchange(
    order: FlushOrder, model: ChatModel, settings: Settings, note: DayNote, written: _Written
) -> str:
    """Ask until nothing more is to be written; what was said last."""
    field_name = messages_field(order.shape)
    messages = with_user_text(
        [*order.sent.get(field_name, ()), *order.since],
        flush_text(note, order, settings),
        order.shape,
    )
    speaker = order.shape.speaker
    if model.name != speaker.model:
        speaker = Speaker(format=speaker.format, model=model.name, provider=speaker.provider)
        messages = [one for given in messages for one in _without_thinking(given)]
    text = ""
    while written.steps < MAX_STEPS:
        written.steps += 1
        body = {**order.sent, "model": speaker.model, field_name: messages}
        done = await _last_event(model, body)
        message = to_pi(
            done.reply, speaker, stop=done.stop, usage=done.usage, timestamp=int(order.now * 1000)
        )
        text = "\n".join(texts_of(message["content"]))
        calls = [block for block in message["content"] if block["type"] == "toolCall"]
        if not calls:
            break
        whole = message["stopReason"] != "length"
        results = [await _answered(call, note, settings, written, whole=whole) for call in calls]
        messages = [*messages, *to_wire([message, *results], speaker).messages]
    return text


def flush_text(note: DayNote, order: FlushOrder, settings: Settings) -> str:
    """What the model is told: both prompts of the settings with the date filled in, and the time.

    Both stand in one message: a system prompt of its own would cost the whole prompt cache.
    """
    prompts = settings.compaction.flush
    local = datetime.fromtimestamp(order.now, order.tz).astimezone(order.tz)
    lines = [text for text in (prompts.system_prompt, prompts.prompt) if text.strip()]
    lines.append(f"Current time: {local.strftime('%Y-%m-%d %H:%M')} ({local.tzname()})")
    return "\n\n".join(lines).replace(_DATE, note.day)


async def _last_event(model: ChatModel, body: Mapping[str, Any]) -> ReplyDone:
    done: ReplyDone | None = None
    async for event in model.stream(body):
        if isinstance(event, ReplyDone):
            done = event
    if done is None:
        raise ModelError(f"{model.name} broke off its reply")
    return done


async def _answered(
    call: Mapping[str, Any], note: DayNote, settings: Settings, written: _Written, *, whole: bool
) -> dict[str, Any]:
    outcome = await _appended(call, note, settings, written) if whole else failed(CUT_OFF)
    return {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call["name"],
        "content": outcome.content(),
        "isError": outcome.is_error,
    }


async def _appended(
    call: Mapping[str, Any], note: DayNote, settings: Settings, written: _Written
) -> ToolOutcome:
    """What `write` means here: add to the file of the day, whichever day was named."""
    only = f"Only write works in this turn, and only to {note.shown}; it adds to the file."
    if call["name"] != "write" or not means_a_day_note(text_given(call["arguments"], "path")):
        return failed(only)
    content = text_given(call["arguments"], "content")
    if not content or not content.strip():
        return failed("`content` is empty; give the text to add.")

    def add(text: str) -> None:  # counted where it is written: who waits may be gone by then
        written.bytes += append_note(note, text, settings.redaction)

    try:
        await durably(add, content)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _READ_ONLY_ERRORS or isinstance(error, PermissionError):
            written.refused = f"{note.shown} cannot be written: {why}"
        return failed(f"{note.shown} cannot be written: {why}.")
    return ToolOutcome(text=f"Added to {note.shown}. Answer NO_REPLY when done.")


def _ended(note: DayNote, written: _Written, *, text: str = "", failure: str = "") -> FlushResult:
    result = FlushResult(
        outcome="nothing",
        reason="the model had nothing to write down",
        path=note.shown,
        bytes_written=written.bytes,
        steps=written.steps,
        said=text,
    )
    if written.bytes:
        reason = f"{written.bytes} bytes were added to {note.shown}"
        return _changed(result, "written", f"{reason}; then {failure}" if failure else reason)
    if failure:
        return _changed(result, "failed", failure)
    return _changed(result, "skipped", written.refused) if written.refused else result


def _changed(result: FlushResult, outcome: Any, reason: str) -> FlushResult:
    return FlushResult(
        outcome=outcome,
        reason=reason,
        path=result.path,
        bytes_written=result.bytes_written,
        steps=result.steps,
        said=result.said,
    )


def _without_thinking(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The message for another model than the one that thought; none where nothing is left."""
    if message.get("type") == "reasoning":
        return ()
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return ({name: value for name, value in message.items() if name != "id"},)
    kept = [
        block
        for block in content
        if not (isinstance(block, Mapping) and str(block.get("type")).endswith("thinking"))
    ]
    shown = {name: value for name, value in message.items() if name != "id"}
    return ({**shown, "content": kept},) if kept else ()
