"""What was said in messages, by whom: the texts that probes are taken from.

Owns who counts as speaking: people, the model, its calls, its tools. Never reads thinking, what
memory recalled (it was said before, and is asked about where it was said), the words of a
`/compact` command (they were carried out) or what is no text.
What always holds: speeches come in the order of the messages; a long one is given by its head
and its tail, where results tell what they came to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from recollect.compaction.consumed import consumed
from recollect.compaction.fit import HEADINGS
from recollect.formats.summaries import PINNED_HEADING, PINNED_LINE, PINNED_NOTE, part_pinned
from recollect.rules.noise import strip_channel_prefix
from recollect.rules.text import without_recalled_blocks
from recollect.values.history import Entry
from recollect.values.message import CallId, EntryKey, MessageId, Text, ToolCall, ToolResult

Speaker: TypeAlias = Literal["user", "assistant", "call", "tool"]

FROM_SUMMARY: Final = MessageId("")
"""The source of what stood in the summary before."""
_HEAD_CHARS: Final = {"user": 40_000, "assistant": 40_000, "call": 12_000, "tool": 12_000}
_TAIL_CHARS: Final = 4_000
"""Ours: a million tokens are read within seconds, and what a person writes is read whole."""
_CALL_CHARS: Final = 160
_PINNED: Final = PINNED_HEADING.lstrip("#")
_MOST_DEPTH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One text of a message."""

    speaker: Speaker
    text: str = field(repr=False)
    place: int
    """Which message it is of, from 1; 0 is the summary before."""
    source: MessageId
    key: EntryKey
    before: str = field(default="", repr=False)
    """What people or the model said last before it."""
    failed_call: str = field(default="", repr=False)
    """It is an error's text: the call that led to it."""


def speeches(
    entries: Sequence[Entry], previous_summary: str = "", *, least_chars: int = 0
) -> Iterator[Speech]:
    """What was said, the summary before first; of each text at least so much of its head."""
    before = previous_summary
    told, pinned = part_pinned(previous_summary)
    # what was pinned was somebody's own words, mostly the user's
    parts: tuple[tuple[Speaker, str], ...] = (("assistant", told), ("user", pinned))
    for speaker, text in parts:
        if text.strip():
            yield Speech(
                speaker=speaker,
                text=_unquoted(text).removeprefix(PINNED_HEADING).strip(),
                place=0,
                source=FROM_SUMMARY,
                key=EntryKey(""),
            )
    calls: dict[CallId, str] = {}
    for place, entry in enumerate(entries, start=1):
        for speaker, text, failed in _texts(entry, calls):
            if text.strip():
                yield Speech(
                    speaker=speaker,
                    text=_read(text, max(least_chars, _HEAD_CHARS[speaker])),
                    place=place,
                    source=entry.id,
                    key=entry.key,
                    before=before,
                    failed_call=failed,
                )
            if speaker in ("user", "assistant") and text.strip():
                before = text


def _unquoted(summary: str) -> str:
    """A summary with what was pinned in it as it was said, so that it can be pinned again.

    Also where a model repeats the section, whose heading is a step lower then: nothing else
    follows from it.
    """
    return "".join(
        PINNED_LINE.sub("- ", section).replace(PINNED_NOTE, "")
        if section.lstrip("#").startswith(_PINNED)
        else section
        for section in HEADINGS.split(summary)
    )


def _texts(entry: Entry, calls: dict[CallId, str]) -> Iterator[tuple[Speaker, str, str]]:
    if entry.role == "system":
        return  # it stays in every request
    said_by: Speaker = "user" if entry.role == "user" and not entry.message.summary else "assistant"
    for part in entry.parts:
        if isinstance(part, Text):
            text = without_recalled_blocks(part.text, any_spelling=entry.role == "user")
            text = strip_channel_prefix(text)
            if not (said_by == "user" and consumed(text)):
                yield said_by, text, ""
        elif isinstance(part, ToolCall):
            told = "\n".join(_strings(_decoded(part.arguments), 0))
            calls[part.id] = f"{part.name} {' '.join(told.split())[:_CALL_CHARS]}".strip()
            yield "call", told, ""
        elif isinstance(part, ToolResult):
            failed = _call_of(part, calls) if part.is_error else ""
            yield "tool", without_recalled_blocks(part.text, any_spelling=False), failed


def _call_of(result: ToolResult, calls: Mapping[CallId, str]) -> str:
    return calls.get(result.call_id) or result.name or "a tool"


def _decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _strings(value: Any, depth: int) -> Iterator[str]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, depth + 1)


def _read(text: str, head_chars: int) -> str:
    if len(text) <= head_chars + _TAIL_CHARS:
        return text
    head, tail = text[:head_chars], text[-_TAIL_CHARS:]
    # whole lines, so that nothing is found that nobody wrote
    return f"{head[: head.rfind(chr(10)) + 1] or head}\n{tail[tail.find(chr(10)) + 1 :]}"
