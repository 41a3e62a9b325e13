"""Which kind of content the tokens of a request belong to.

Owns the sorting of parts into kinds and tools. Counts with the engine's own weigher, so that
kinds add up to its estimates; `apportioned` carries them over to its calibrated totals.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from recollect.formats.summaries import SUMMARY_ITEMS
from recollect.rules.tokens import Weigher
from recollect.surfaces.cli.explained import TokenKind
from recollect.values.history import Composed, Entry
from recollect.values.message import (
    CallId,
    Image,
    Message,
    Other,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recollect.values.history import Row
    from recollect.values.message import Part

KINDS: tuple[TokenKind, ...] = get_args(TokenKind)

_OWN_OPENING = "[recollect]"
"""Opens every note and stand-in of ours; looked for only in rows that we composed."""


@dataclass(slots=True)
class Sorted:
    """Tokens by kind, and those of tool results by tool; estimates before calibration."""

    kinds: Counter[TokenKind] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)


def tool_names(messages: Iterable[Message]) -> dict[CallId, str]:
    """The tool of every call, by its id; results often do not say it."""
    return {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }


def sort_rows(rows: Iterable[Row], names: dict[CallId, str], weigher: Weigher) -> Sorted:
    """Sort the tokens of rows; what weighs nothing by itself goes to the row's leading kind."""
    found = Sorted()
    for row in rows:
        if isinstance(row, Composed) and not row.sources:
            found.kinds["ours"] += row.tokens
            continue
        summary = isinstance(row, Entry) and row.message.summary
        lead: TokenKind = "summaries" if summary else _lead(row)
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
        found.kinds[lead] += left
    return found


def _lead(row: Row) -> TokenKind:
    if row.role in ("system", "user", "assistant"):
        return row.role
    return "tool results"


def _weighed(part: Part, row: Row, weigher: Weigher) -> list[tuple[TokenKind, int]]:
    tokens = weigher.part(part)
    words = part.text if isinstance(part, Text | ToolResult) else ""
    if isinstance(row, Composed) and words.startswith(_OWN_OPENING):
        return [("ours", tokens)]
    if isinstance(part, ToolResult):
        images = sum([weigher.part(inner) for inner in part.content if isinstance(inner, Image)])
        text: tuple[TokenKind, int] = ("tool results", tokens - images)
        return [text, ("images", images)] if images else [text]
    if isinstance(part, ToolCall):
        return [("tool calls", tokens)]
    if isinstance(part, Thinking):
        return [("thinking", tokens)]
    if isinstance(part, Image):
        return [("images", tokens)]
    if isinstance(part, Other):
        return [("summaries" if part.kind in SUMMARY_ITEMS else "other", tokens)]
    return [("other" if row.role == "tool" else row.role, tokens)]


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
