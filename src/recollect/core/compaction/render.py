"""Writes a conversation down as text for the model that summarises it, and says who said what.

Owns the labels and cuts, which are pi's, and which texts are a `/compact` command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from recollect.core.formats.json_text import strings_of
from recollect.core.formats.summaries import (
    OWN_TAGS,
    PINNED_HEADING,
    PINNED_LINE,
    PINNED_NOTE,
    part_pinned,
)
from recollect.core.rules.noise import strip_channel_prefix
from recollect.core.rules.text import ERROR_MARK, clean_text, quote_labels, without_recalled_blocks
from recollect.core.values.history import Entry
from recollect.core.values.message import (
    CallId,
    EntryKey,
    Image,
    MessageId,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

CONSUMED_NOTE: Final = "[User ran /compact]"
"""What is read in its place: that it was run, never what it said."""
_COMMAND: Final = re.compile(r"\s*/compact(?:\s|:|$)", re.IGNORECASE)
_MARKED_UP: Final = "<command-name>/compact</command-name>"

HEADINGS: Final = re.compile(r"^(?=#{1,4} |\*\*Turn Context)", re.MULTILINE)
RESULT_CHARS: Final = 2000
ARGUMENT_CHARS: Final = 1000
_TAGS: Final = re.compile(rf"<(?=/?\s*(?:{'|'.join(OWN_TAGS)})\b)", re.IGNORECASE)
Speaker: TypeAlias = Literal["user", "assistant", "call", "tool"]
FROM_SUMMARY: Final = MessageId("")
_HEAD_CHARS: Final = {"user": 40_000, "assistant": 40_000, "call": 12_000, "tool": 12_000}
_TAIL_CHARS: Final = 4_000
_CALL_CHARS: Final = 160
_PINNED: Final = PINNED_HEADING.lstrip("#")
_MOST_DEPTH: Final = 8


def consumed(text: str) -> bool:
    """Whether a user's text is a `/compact` command."""
    return _MARKED_UP in text or _COMMAND.match(strip_channel_prefix(text)) is not None


def render(entries: Sequence[Entry]) -> str:
    """The conversation, message by message."""
    written: list[str] = []
    for entry in entries:
        if entry.role != "system":
            written.extend(_written(entry))
    return defuse("\n\n".join(written))


def defuse(text: str) -> str:
    """The text with the tags of prompts and summaries made harmless, and fit to be sent."""
    return _TAGS.sub("&lt;", clean_text(text))


def excerpt(text: str, most_chars: int) -> str:
    """Head and tail of a text that is too long, and how much is missing between them."""
    if len(text) <= most_chars:
        return text
    head, tail = most_chars * 2 // 3, most_chars // 3
    missing = len(text) - head - tail
    kept_tail = text[len(text) - tail :] if tail else ""
    return f"{text[:head]}\n\n[... {missing} more characters truncated]\n\n{kept_tail}"


def _written(entry: Entry) -> Iterable[str]:
    texts: list[str] = []
    thought: list[str] = []
    calls: list[str] = []
    results: list[str] = []
    for part in entry.parts:
        if isinstance(part, ToolCall):
            calls.append(_call(part))
        elif isinstance(part, ToolResult):
            results.append(_result(part))
        elif isinstance(part, Thinking):
            if part.text.strip():
                thought.append(_cut(part.text, RESULT_CHARS))
        elif words := _words(part, entry):
            texts.append(words)
    yield from results
    if thought:
        yield "[Assistant thinking]: " + quote_labels("\n".join(thought))
    if texts:
        yield f"[{_speaker(entry)}]: " + quote_labels("\n".join(texts))
    if calls:
        yield "[Assistant tool calls]: " + quote_labels("; ".join(calls))


def _speaker(entry: Entry) -> str:
    if entry.message.summary:
        return "Earlier summary"
    return {"assistant": "Assistant", "tool": "Tool result"}.get(entry.role, "User")


def _words(part: Part, entry: Entry) -> str:
    if isinstance(part, Text):
        if entry.role != "user":
            return part.text if part.text.strip() else ""
        text = without_recalled_blocks(part.text, any_spelling=True)
        if not entry.message.summary and consumed(text):
            return CONSUMED_NOTE
        return text if text.strip() else ""
    if isinstance(part, Image):
        return f"[image, {part.media_type}]" if part.media_type else "[image]"
    return f"[{part.kind}]" if isinstance(part, Other) else ""


def _call(part: ToolCall) -> str:
    arguments = decoded(part.arguments)
    if not isinstance(arguments, dict):
        return f"{part.name}({_cut(part.arguments, ARGUMENT_CHARS)})"
    spelled = [
        f"{name}={_cut(json.dumps(value, ensure_ascii=False), ARGUMENT_CHARS)}"
        for name, value in arguments.items()
    ]
    return f"{part.name}({', '.join(spelled)})"


def _result(part: ToolResult) -> str:
    shown = [
        inner.text
        if isinstance(inner, Text)
        else f"[{inner.kind if isinstance(inner, Other) else 'image'}]"
        for inner in part.content
    ]
    text = without_recalled_blocks("\n".join(shown), any_spelling=False)
    mark = ERROR_MARK if part.is_error else ""
    return f"[Tool result]: {mark}{quote_labels(_cut(text, RESULT_CHARS))}"


def _cut(text: str, most_chars: int) -> str:
    if len(text) <= most_chars:
        return text
    return f"{text[:most_chars]}\n\n[... {len(text) - most_chars} more characters truncated]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageText:
    """One text of a message."""

    speaker: Speaker
    text: str = field(repr=False)
    place: int
    source: MessageId
    key: EntryKey
    before: str = field(default="", repr=False)
    failed_call: str = field(default="", repr=False)


def utterances(
    entries: Sequence[Entry], previous_summary: str = "", *, least_chars: int = 0
) -> Iterator[MessageText]:
    """Who said what, the summary before first; of each text at least so much of its head."""
    before = previous_summary
    body, pinned = part_pinned(previous_summary)
    # what was pinned was somebody's own words, mostly the user's
    parts: tuple[tuple[Speaker, str], ...] = (("assistant", body), ("user", pinned))
    for speaker, text in parts:
        if text.strip():
            yield MessageText(
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
                yield MessageText(
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
    by_user = entry.role == "user" and not entry.message.summary
    speaker: Speaker = "user" if by_user else "assistant"
    for part in entry.parts:
        if isinstance(part, Text):
            text = without_recalled_blocks(part.text, any_spelling=entry.role == "user")
            if not (by_user and consumed(text)):
                yield speaker, strip_channel_prefix(text), ""
        elif isinstance(part, ToolCall):
            values = "\n".join(strings_of(decoded(part.arguments), depth=_MOST_DEPTH))
            calls[part.id] = f"{part.name} {' '.join(values.split())[:_CALL_CHARS]}".strip()
            yield "call", values, ""
        elif isinstance(part, ToolResult):
            failed = (calls.get(part.call_id) or part.name or "a tool") if part.is_error else ""
            yield "tool", without_recalled_blocks(part.text, any_spelling=False), failed


def decoded(arguments: str) -> Any:
    """The arguments of a call; as they are written where that is no JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _read(text: str, head_chars: int) -> str:
    if len(text) <= head_chars + _TAIL_CHARS:
        return text
    head, tail = text[:head_chars], text[-_TAIL_CHARS:]
    # whole lines, so that nothing is found that nobody wrote
    return f"{head[: head.rfind(chr(10)) + 1] or head}\n{tail[tail.find(chr(10)) + 1 :]}"
