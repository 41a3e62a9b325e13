"""Tokens of a request by kind of content, and the sizes of a turn that are stored with its report.
Pages and pictures of a session show these numbers. A row is one message of the request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from recollect.core.formats.summaries import SUMMARY_ITEMS
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.align import count_same_first
from recollect.core.values.history import Entry, Row, Slot
from recollect.core.values.message import (
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
from recollect.core.values.model import Usage
from recollect.core.values.report import Report

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
_USAGE: Final = tuple(one.name for one in fields(Usage))
_OWN_OPENING: Final = "[recollect]"
"""First word of each note and placeholder result that Recollect writes."""


def row_kinds(row: Row, weigher: Weigher) -> Iterator[tuple[Part | None, TokenKind, int]]:
    """Yield (part, kind, token count) for each part of one message, then for the message itself."""
    if isinstance(row, Slot) and not row.sources:
        yield None, "ours", row.tokens
        return
    summary = isinstance(row, Entry) and row.message.summary
    lead: TokenKind = "tool results" if row.role == "tool" else row.role
    left = row.tokens
    for part in row.parts:
        for kind, tokens in _weigh(part, row, weigher):
            part_tokens = min(tokens, left)
            left -= part_tokens
            yield part, "summaries" if summary else kind, part_tokens
    yield None, "summaries" if summary else lead, left


def _weigh(part: Part, row: Row, weigher: Weigher) -> list[tuple[TokenKind, int]]:
    tokens = weigher.part(part)
    words = part.text if isinstance(part, Text | ToolResult) else ""
    if isinstance(row, Slot) and words.startswith(_OWN_OPENING):
        return [("ours", tokens)]
    if isinstance(part, ToolResult):
        images = sum([weigher.part(inner) for inner in part.content if isinstance(inner, Image)])
        return [("tool results", tokens - images), ("images", images)]
    if isinstance(part, Other):
        return [("summaries" if part.kind in SUMMARY_ITEMS else "other", tokens)]
    kinds: dict[type, TokenKind] = {ToolCall: "tool calls", Thinking: "thinking", Image: "images"}
    return [(kinds.get(type(part), "other" if row.role == "tool" else row.role), tokens)]


def apportion(estimates: Sequence[int], total: int) -> list[int]:
    """Scale the estimates to integers whose sum is `total` (largest remainders)."""
    estimate_sum = sum(estimates)
    if estimate_sum <= 0:
        return [0] * len(estimates)
    shares = [estimate * total // estimate_sum for estimate in estimates]
    remainders = [estimate * total % estimate_sum for estimate in estimates]
    by_remainder = sorted(range(len(estimates)), key=lambda index: -remainders[index])
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """Sizes of a request, as received and as sent."""

    came: Mapping[TokenKind, int]
    """Calibrated tokens by kind, as received. Their sum is in the report."""
    sent: Mapping[TokenKind, int]
    messages: int
    rows: int
    before: int | None = None
    """Number of messages in the previous request; None if this process did not send it."""
    same: int = 0
    """Number of messages at the start that are the same as in the previous request, except for
    cache marks. 0 if the system prompt or the tools differ."""
    same_tokens: int = 0
    usage: Usage | None = None
    """The provider's token counts for the previous request."""
    asked: EntryKey | None = None
    """The newest user message other than tool results."""

    @property
    def breaks_cache(self) -> bool:
        """True if the request does not begin with the whole previous one."""
        return self.before is not None and self.same < self.before

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, without kinds that do not occur."""
        usage = self.usage
        return {
            "came": dict(self.came),
            "sent": dict(self.sent),
            "rows": [self.messages, self.rows, self.before, self.same, self.same_tokens],
            "asked": self.asked,
            "usage": None if usage is None else [getattr(usage, name) for name in _USAGE],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> TurnFigures:
        messages, rows, before, same_rows, same_tokens = record["rows"]
        counts = record.get("usage")
        return cls(
            came=record["came"],
            sent=record["sent"],
            messages=messages,
            rows=rows,
            before=before,
            same=same_rows,
            same_tokens=same_tokens,
            # earlier versions did not store `reports_cache`
            usage=None if counts is None else Usage(**dict(zip(_USAGE, counts, strict=False))),
            asked=record.get("asked"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTotals:
    """Token counts by kind of a list of messages. `of` counts only the rows that changed."""

    rows: tuple[Row, ...] = field(default=(), repr=False)
    kinds: tuple[tuple[tuple[TokenKind, int], ...], ...] = field(default=(), repr=False)
    totals: Mapping[TokenKind, int] = field(default_factory=dict)

    def of(self, rows: Sequence[Row], weigher: Weigher) -> RowTotals:
        pairs = enumerate(zip(self.rows, rows, strict=False))
        least = min(len(self.rows), len(rows))
        shared_count = next(
            (index for index, (old_row, new_row) in pairs if not _is_same(old_row, new_row)), least
        )
        totals = Counter(self.totals)
        for removed_kinds in self.kinds[shared_count:]:
            totals.subtract(dict(removed_kinds))
        added_kinds = []
        for row in rows[shared_count:]:
            kinds: Counter[TokenKind] = Counter()
            for _, kind, tokens in row_kinds(row, weigher):
                is_summary = kind == "ours" and isinstance(row, Slot) and "summary" in row.notes
                kinds["summaries" if is_summary else kind] += tokens
            totals.update(kinds)
            added_kinds.append(tuple(kinds.items()))
        return RowTotals(
            rows=tuple(rows), kinds=(*self.kinds[:shared_count], *added_kinds), totals=totals
        )

    def scale_to(self, fixed_tokens: int, total: int) -> dict[TokenKind, int]:
        """Return the tokens by kind, scaled so that their sum is the calibrated `total`."""
        raw = Counter(self.totals)
        raw["system"] += fixed_tokens
        present = [kind for kind in KINDS if raw[kind] > 0]
        scaled_tokens = apportion([raw[kind] for kind in present], total)
        return dict(zip(present, scaled_tokens, strict=True))


def _is_same(old_row: Row, new_row: Row) -> bool:
    return old_row is new_row or (type(old_row) is type(new_row) and old_row.raw == new_row.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFigures:
    """Sizes that the next turn is compared with."""

    came: RowTotals = field(default_factory=RowTotals, repr=False)
    sent: RowTotals = field(default_factory=RowTotals, repr=False)
    marks: tuple[MessageId | bytes, ...] | None = field(default=None, repr=False)
    """What a provider's cache compares, per message; None before the first request."""

    def next(
        self, report: Report, weigher: Weigher, usage: Usage | None, *, same_head: bool
    ) -> tuple[TurnFigures, LastFigures]:
        """Return the sizes of a turn. `same_head` means that system prompt and tools are the
        same."""
        rows = report.view.rows
        came, sent = self.came.of(report.entries, weigher), self.sent.of(rows, weigher)
        marks = tuple([row.id if isinstance(row, Entry) else row.raw for row in rows])
        same_rows = 0
        if self.marks is not None and same_head:
            same_rows = count_same_first(self.marks, marks)
        kept_tokens = report.fixed_tokens * same_head + sum(
            [row.tokens for row in rows[:same_rows]]
        )
        total_tokens = report.fixed_tokens + report.view.tokens
        figures = TurnFigures(
            came=came.scale_to(report.fixed_tokens, report.tokens_before),
            sent=sent.scale_to(report.fixed_tokens, report.tokens_after),
            messages=len(report.entries),
            rows=len(rows),
            before=None if self.marks is None else len(self.marks),
            same=same_rows,
            same_tokens=kept_tokens * report.tokens_after // max(1, total_tokens),
            usage=usage,
            asked=next(
                (
                    entry.key
                    for entry in reversed(report.entries)
                    if entry.role == "user" and not entry.results
                ),
                None,
            ),
        )
        return figures, LastFigures(came=came, sent=sent, marks=marks)
