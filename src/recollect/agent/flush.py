"""The flush turn: shortly before a compaction the model writes down what must outlast it.

A side exchange behind the request that was sent last: same system prompt, same tools, same
messages, so that the provider's prompt cache holds; its instructions are one user message at
the tail. Never part of the conversation, never shown, never the end of a turn: whatever goes
wrong is a result. A turn that is stopped after it wrote a note says so; otherwise the note would
be written again.

Only `FLUSH_FILES` can be written (the notes of the day by the user's clock, `memory.md`,
`USER.md`), and only added to, with secrets
masked; two writers at once lose nothing. The result says what was written, and what was refused
and why. The reply NO_REPLY is shown to
nobody: a stream is withheld for as long as it could still become that token.
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

from recollect.adapters.session.workspace import LONG_TERM_NOTES
from recollect.agent.durably import durably
from recollect.agent.events import FlushOutcome, FlushRefusal, FlushResult
from recollect.agent.request import Shape, messages_field, with_user_text
from recollect.agent.tools.outcome import CUT_OFF, ToolOutcome, failed, text_given
from recollect.core.formats.blocks import texts_of
from recollect.core.formats.translate import Speaker, to_pi, to_wire
from recollect.core.ports import ChatModel
from recollect.core.rules.redaction import redact
from recollect.core.values.model import ReplyDone, Usage, added
from recollect.errors import ModelError, RecollectError
from recollect.system.config import Settings
from recollect.system.config.settings import FlushFile, Redaction
from recollect.system.durable import locked_within, same_file
from recollect.system.plain_text import plain_line

# The notes of the day


FOLDER = "memory"
LOCK_SECONDS = 5.0
"""How long a note waits for who else writes the file: each holds it for one write and a sync."""
_PAUSE_SECONDS = 0.01
FLUSH_FILES: tuple[FlushFile, ...] = ("daily", "memory.md", "USER.md")
"""The files that a flush may append to; it may not change them otherwise."""
LASTING_FILES: tuple[FlushFile, ...] = ("memory.md", "USER.md", "AGENTS.md", "TOOLS.md")
"""What each is for stands in `_USES`."""
_COMPARED_BYTES = 1_000_000
_USES: Mapping[FlushFile, str] = {
    "daily": "what happened today, and what the user asked to remember",
    "memory.md": "facts that stay true",
    "USER.md": "who the user is and what they prefer",
    "AGENTS.md": "lessons about how to work here",
    "TOOLS.md": "lessons about tools, machines and commands",
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingFile:
    """A file of the workspace's own folder that may be added to."""

    root: Path
    shown: str
    """Its name."""

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / self.shown


def day_of(now: float, tz: tzinfo | None) -> str:
    """The date in the user's time zone; without one, the machine's."""
    return datetime.fromtimestamp(now, tz).astimezone(tz).strftime("%Y-%m-%d")


def means_a_day_note(given: str | None) -> bool:
    """Whether a path is one of `memory/….md`: another date than today's is a slip, no wish."""
    if not given:
        return False
    path = Path(given)
    return path.suffix == ".md" and path.parent.name == FOLDER and ".." not in path.parts


def lasting_file(root: Path, given: str | None) -> LastingFile | None:
    """The workspace file that a path means: one in its own folder, by a name that it has a use for.

    Where there is a `MEMORY.md`, `memory.md` means that.
    """
    path = Path(given or "")
    if path.is_absolute() and path.parent in (root, root.resolve()):
        path = Path(path.name)
    if len(path.parts) != 1:
        return None
    meant = next((name for name in LASTING_FILES if name.lower() == path.name.lower()), None)
    if meant is None:
        return None
    there = [other for other in LONG_TERM_NOTES if os.path.lexists(root / other)]
    shown = there[0] if there and meant == "memory.md" else meant
    return LastingFile(root=root, shown=shown)


def append_note(note: DayNote | LastingFile, text: str, redaction: Redaction) -> int:
    """Add a text to the file; how many bytes were written. OSError where it cannot.

    What a lasting file says already, line for line, is not written again.
    """
    clean = redact(text, pii=redaction.pii).text if redaction.enabled else text
    clean = clean.strip("\n")
    if not clean.strip():
        return 0
    root = note.root.resolve()
    place = root / note.shown
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.parent.resolve().is_relative_to(root):
        raise PermissionError(f"{FOLDER}/ leads out of the workspace")
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    handle = _locked(place, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PermissionError(f"{note.shown} is no regular file")
        size = os.fstat(handle).st_size
        if isinstance(note, LastingFile):
            clean = _new_lines(clean, os.pread(handle, min(size, _COMPARED_BYTES), 0))
            if not clean:
                return 0
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


def _new_lines(text: str, before: bytes) -> str:
    """The lines of a text that a file does not have yet; empty where it has all of them."""
    known = {line.strip() for line in before.decode("utf-8", "replace").splitlines()}
    lines = [line for line in text.split("\n") if not line.strip() or line.strip() not in known]
    said = "\n".join(lines).strip("\n")
    return said if said.strip() else ""


def _locked(path: Path, flags: int) -> int:
    """The file, open and locked; opened again where forgetting replaced it meanwhile."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        handle = os.open(path, flags, 0o666)
        if locked_within(handle) and same_file(handle, path):
            return handle
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
_SHOWN_CHARS = 80


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
    files: dict[str, int] = field(default_factory=dict)
    """How many bytes were added to each file."""
    refusals: list[FlushRefusal] = field(default_factory=list)
    refused: str = ""
    """Why the disk took nothing."""
    steps: int = 0
    usage: Usage | None = None

    def count(self, usage: Usage | None) -> None:
        """One more reply came, and took this."""
        if usage is not None:
            self.usage = usage if self.usage is None else added(self.usage, usage)

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


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
        written.count(done.usage)
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
    if allowed := [f"{_shown(name, note)}: {_USES[name]}" for name in FLUSH_FILES]:
        lines.append("You may append to:\n" + "\n".join(f"- {line}" for line in allowed))
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
    """What `write` means here: add to a file that may be added to, never more."""
    allowed = FLUSH_FILES
    names = ", ".join(_shown(name, note) for name in allowed) or "no file at all"
    only = f"Only write works in this turn, and only to {names}; it adds to the file."
    path = text_given(call["arguments"], "path")
    if call["name"] != "write":
        written.refusals.append(FlushRefusal(path=str(call["name"]), reason="only write works"))
        return failed(only)
    target = _target(path, note, allowed)
    if target is None:
        reason = "not a file for notes"
        written.refusals.append(FlushRefusal(path=_name_given(path), reason=reason))
        return failed(only)
    content = text_given(call["arguments"], "content")
    if not content or not content.strip():
        return failed("`content` is empty; give the text to add.")
    shown = target.shown

    def add(text: str) -> int:  # counted where it is written: who waits may be gone by then
        added = append_note(target, text, settings.redaction)
        if added:
            written.files[shown] = written.files.get(shown, 0) + added
        return added

    try:
        added = await durably(add, content)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _READ_ONLY_ERRORS or isinstance(error, PermissionError):
            written.refused = f"{shown} cannot be written: {why}"
        written.refusals.append(FlushRefusal(path=shown, reason=f"it cannot be written: {why}"))
        return failed(f"{shown} cannot be written: {why}.")
    if not added:
        return ToolOutcome(text=f"{shown} says that already. Answer NO_REPLY when done.")
    return ToolOutcome(text=f"Added to {shown}. Answer NO_REPLY when done.")


def _target(
    given: str | None, note: DayNote, allowed: Sequence[FlushFile]
) -> DayNote | LastingFile | None:
    """The file that a path means, where it may be added to; of notes of a day, today's."""
    if means_a_day_note(given):
        return note if "daily" in allowed else None
    meant = lasting_file(note.root, given)
    if meant is None:
        return None
    name = "memory.md" if meant.shown in LONG_TERM_NOTES else meant.shown
    return meant if name in allowed else None


def _shown(name: FlushFile, note: DayNote) -> str:
    return note.shown if name == "daily" else name


def _name_given(path: str | None) -> str:
    """A path of the model's, for people."""
    kept = plain_line(path or "(no path)")
    return kept if len(kept) <= _SHOWN_CHARS else f"{kept[:_SHOWN_CHARS]}…"


def _ended(note: DayNote, written: _Written, *, text: str = "", failure: str = "") -> FlushResult:
    outcome: FlushOutcome = "nothing"
    reason = "the model had nothing to write down"
    if written.bytes:
        outcome = "written"
        reason = f"{written.bytes} bytes were added to {', '.join(written.files)}"
        reason = f"{reason}; then {failure}" if failure else reason
    elif failure:
        outcome, reason = "failed", failure
    elif written.refused:
        outcome, reason = "skipped", written.refused
    refused = "; ".join(dict.fromkeys(map(str, written.refusals)))
    if refused and outcome != "skipped":
        reason = f"{reason}; refused: {refused}"
    return FlushResult(
        outcome=outcome,
        reason=reason,
        path=next(iter(written.files), note.shown),
        bytes_written=written.bytes,
        written=tuple(written.files.items()),
        refused=tuple(written.refusals),
        steps=written.steps,
        usage=written.usage,
        said=text,
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
