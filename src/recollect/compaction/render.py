"""Writes a conversation down as text, for the model that summarises it.

Owns the labels and cuts, which are pi's, and which texts are a `/compact` command. Must never let
what was said close the tags around it or speak under another's label, show a system prompt or the
workspace's rules, repeat a recalled block, or show the words of a `/compact` command as a wish of
the user. Always pure; the same entries give the same text; linear in what is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from recollect.formats.summaries import OWN_TAGS
from recollect.rules.noise import strip_channel_prefix
from recollect.rules.text import ERROR_MARK, clean_text, quote_labels, without_recalled_blocks
from recollect.values.history import Entry
from recollect.values.message import Image, Other, Part, Text, Thinking, ToolCall, ToolResult

CONSUMED_NOTE: Final = "[User ran /compact]"
"""What is read in its place: that it was run, never what it said."""
_COMMAND: Final = re.compile(r"\s*/compact(?:\s|:|$)", re.IGNORECASE)
_MARKED_UP: Final = "<command-name>/compact</command-name>"
"""How Claude Code writes a command down."""


def consumed(text: str) -> bool:
    """Whether a user's text is a `/compact` command."""
    return _COMMAND.match(text) is not None or _MARKED_UP in text


RESULT_CHARS: Final = 2000
"""So much is shown of a tool result (pi); of thinking, too, whose outcome the answer says."""
ARGUMENT_CHARS: Final = 1000
"""Of one argument of a call: what was written into a file is in the file."""
_TAGS: Final = re.compile(rf"<(?=/?\s*(?:{'|'.join(OWN_TAGS)})\b)", re.IGNORECASE)


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
    said: list[str] = []
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
            said.append(words)
    yield from results
    if thought:
        yield "[Assistant thinking]: " + quote_labels("\n".join(thought))
    if said:
        yield f"[{_speaker(entry)}]: " + quote_labels("\n".join(said))
    if calls:
        yield "[Assistant tool calls]: " + quote_labels("; ".join(calls))


def _speaker(entry: Entry) -> str:
    if entry.message.summary:
        return "Earlier summary"
    return {"assistant": "Assistant", "tool": "Tool result"}.get(entry.role, "User")


def _words(part: Part, entry: Entry) -> str:
    """What a part says by itself; placeholders for what is no text."""
    if isinstance(part, Text):
        if entry.role != "user":
            return part.text if part.text.strip() else ""
        text = without_recalled_blocks(part.text, any_spelling=True)
        if not entry.message.summary and consumed(strip_channel_prefix(text)):
            return CONSUMED_NOTE
        return text if text.strip() else ""
    if isinstance(part, Image):
        return f"[image, {part.media_type}]" if part.media_type else "[image]"
    return f"[{part.kind}]" if isinstance(part, Other) else ""


def _call(part: ToolCall) -> str:
    try:
        arguments = json.loads(part.arguments)
    except (ValueError, RecursionError):
        return f"{part.name}({_cut(part.arguments, ARGUMENT_CHARS)})"
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
