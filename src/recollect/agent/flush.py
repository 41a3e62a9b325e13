"""The flush turn: shortly before a compaction the model writes down what must outlast it.

A side exchange behind the request that was sent last: same system prompt, same tools, same
messages, so that the provider's prompt cache holds; its instructions are one user message at
the tail. Never part of the conversation, never shown, never the end of a turn: whatever goes
wrong is a result. Only the file of the day can be written, and only added to. Who stops it behind
a note that was written gets that told, not an end without a trace: it would be written again.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from recollect.agent.day_note import (
    DayNote,
    append_note,
    day_of,
    means_a_day_note,
    why_read_only,
)
from recollect.agent.durably import durably
from recollect.agent.flush_result import FlushResult
from recollect.agent.request import Shape, messages_field, with_user_text
from recollect.agent.silent import shown_of
from recollect.agent.tools.outcome import CUT_OFF, ToolOutcome, failed, text_given
from recollect.config import Settings
from recollect.errors import ModelError, RecollectError
from recollect.formats.blocks import texts_of
from recollect.formats.translate import Speaker, to_pi, to_wire
from recollect.ports import ChatModel
from recollect.values.model import ReplyDone

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
        said = await _exchange(order, model, settings, note, written)
    except asyncio.CancelledError:
        if not written.bytes:
            raise
        return _ended(note, written, failure="the turn was stopped")
    except RecollectError as error:
        return _ended(note, written, failure=str(error))
    return _ended(note, written, said=shown_of(said))


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
    said = ""
    while written.steps < MAX_STEPS:
        written.steps += 1
        body = {**order.sent, "model": speaker.model, field_name: messages}
        done = await _last_event(model, body)
        message = to_pi(
            done.reply, speaker, stop=done.stop, usage=done.usage, timestamp=int(order.now * 1000)
        )
        said = "\n".join(texts_of(message["content"]))
        calls = [block for block in message["content"] if block["type"] == "toolCall"]
        if not calls:
            break
        whole = message["stopReason"] != "length"
        results = [await _answered(call, note, settings, written, whole=whole) for call in calls]
        messages = [*messages, *to_wire([message, *results], speaker).messages]
    return said


def flush_text(note: DayNote, order: FlushOrder, settings: Settings) -> str:
    """What the model is told: both prompts of the settings with the date filled in, and the time.

    Both stand in one message: a system prompt of its own would cost the whole prompt cache.
    """
    prompts = settings.compaction.flush
    local = datetime.fromtimestamp(order.now, order.tz).astimezone(order.tz)
    told = [text for text in (prompts.system_prompt, prompts.prompt) if text.strip()]
    told.append(f"Current time: {local.strftime('%Y-%m-%d %H:%M')} ({local.tzname()})")
    return "\n\n".join(told).replace(_DATE, note.day)


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


def _ended(note: DayNote, written: _Written, *, said: str = "", failure: str = "") -> FlushResult:
    result = FlushResult(
        outcome="nothing",
        reason="the model had nothing to write down",
        path=note.shown,
        bytes_written=written.bytes,
        steps=written.steps,
        said=said,
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
