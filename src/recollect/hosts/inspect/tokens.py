"""Where the tokens of a request go: by kind of content, and by tool. Texts fit to be shown.

Texts of a transcript are shown on one line, without secrets and without anything that a terminal
acts upon. Always holds: apportioned parts add up to their total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from recollect.core.formats.summaries import SUMMARY_ITEMS
from recollect.core.rules.message_redaction import redact_json_text
from recollect.core.rules.redaction import redact
from recollect.core.rules.tokens import Weigher
from recollect.core.values.history import Entry, Row, Slot
from recollect.core.values.message import (
    CallId,
    Image,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.system.plain_text import plain_line

EXCERPT_CHARS: Final = 160
_LOOKED_AT_CHARS: Final = 4000  # enough to see a long secret whole before it is clipped


def shown_text(text: str, at_most_chars: int = EXCERPT_CHARS) -> str:
    """The start of a text with its secrets masked, on one line."""
    line = plain_line(redact(text[:_LOOKED_AT_CHARS]).text)
    return line if len(line) <= at_most_chars else line[: at_most_chars - 1].rstrip() + "…"


def excerpt_of(parts: Sequence[Part]) -> str:
    """The first words of a message."""
    return next((line for part in parts if (line := shown_text(_words_of(part)))), "")


def _words_of(part: Part) -> str:
    if isinstance(part, Text | Thinking):
        return part.text
    if isinstance(part, ToolCall):
        arguments, _ = redact_json_text(part.arguments)  # as it reads: an escape can hide a label
        return f"{redact(part.name).text} {arguments}"
    if isinstance(part, ToolResult):
        images = sum(isinstance(inner, Image) for inner in part.content)
        return part.text or (f"[{images} images]" if images > 1 else "[image]" if images else "")
    if isinstance(part, Image):
        return f"[{part.media_type or 'image'}]"
    assert isinstance(part, Other)
    return f"[{part.kind}]"


TokenKind: TypeAlias = Literal[
    "system",
    "tools",
    "not recorded",
    "user",
    "assistant",
    "thinking",
    "tool calls",
    "tool results",
    "images",
    "summaries",
    "ours",
    "other",
]
KINDS: Final[tuple[TokenKind, ...]] = get_args(TokenKind)
_OWN_OPENING: Final = "[recollect]"
"""Opens every note and stand-in of ours; looked for only in rows that we composed."""


@dataclass(slots=True)
class Sorted:
    """Tokens by kind, and those of tool results by tool; estimates before calibration."""

    kinds: Counter[TokenKind] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)


def tool_names(messages: Iterable[Message]) -> dict[CallId, str]:
    """The tool of every call, by its id; results often do not name it."""
    return {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }


def name_message(message: Message, names: dict[CallId, str]) -> str:
    """What a reader knows a message by: its tool, else its role."""
    if message.summary:
        return "summary"
    for part in message.parts:
        if isinstance(part, ToolResult):
            return plain_line(f"{part.name or names.get(part.call_id, '?')} result")
    for part in message.parts:
        if isinstance(part, ToolCall) and message.role == "assistant":
            return plain_line(f"{part.name} call")
    return message.role


def sort_rows(rows: Iterable[Row], names: dict[CallId, str], weigher: Weigher) -> Sorted:
    """Sort the tokens of rows; what weighs nothing by itself goes to the row's leading kind."""
    found = Sorted()
    for row in rows:
        if isinstance(row, Slot) and not row.sources:
            found.kinds["ours"] += row.tokens
            continue
        summary = isinstance(row, Entry) and row.message.summary
        lead: TokenKind = "tool results" if row.role == "tool" else row.role
        left = row.tokens
        for part in row.parts:
            for kind, tokens in _weighed(part, row, weigher):
                kept = min(tokens, left)
                left -= kept
                found.kinds["summaries" if summary else kind] += kept
                if kind == "tool results" and isinstance(part, ToolResult):
                    tool = part.name or names.get(part.call_id, "?")
                    found.tools[tool] += kept
                    found.results[tool] += 1
        found.kinds["summaries" if summary else lead] += left
    return found


def _weighed(part: Part, row: Row, weigher: Weigher) -> list[tuple[TokenKind, int]]:
    tokens = weigher.part(part)
    words = part.text if isinstance(part, Text | ToolResult) else ""
    if isinstance(row, Slot) and words.startswith(_OWN_OPENING):
        return [("ours", tokens)]
    if isinstance(part, ToolResult):
        images = sum([weigher.part(inner) for inner in part.content if isinstance(inner, Image)])
        return [("tool results", tokens - images), ("images", images)]
    if isinstance(part, Other):
        return [("summaries" if part.kind in SUMMARY_ITEMS else "other", tokens)]
    kinds: dict[type, TokenKind] = {
        ToolCall: "tool calls",
        Thinking: "thinking",
        Image: "images",
    }
    return [(kinds.get(type(part), "other" if row.role == "tool" else row.role), tokens)]


def apportioned(estimates: Sequence[int], total: int) -> list[int]:
    """The estimates scaled so that they add up to `total` exactly (largest remainders)."""
    whole = sum(estimates)
    if whole <= 0:
        return [0] * len(estimates)
    shares = [estimate * total // whole for estimate in estimates]
    remainders = [estimate * total % whole for estimate in estimates]
    by_remainder = sorted(range(len(estimates)), key=lambda at: -remainders[at])
    for at in by_remainder[: total - sum(shares)]:
        shares[at] += 1
    return shares
