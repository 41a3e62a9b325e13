"""What `recollect explain` has to tell, as values: one picture of a session at one turn.

Owns the names that `--json` prints; what is drawn is drawn from here and from nothing else.
Texts from a transcript are made fit to be shown: one line, no secrets, nothing that moves the
cursor, colours the screen or turns the reading direction. Tokens are the engine's calibrated
counts, sorted by kind and tool. Always holds: the kinds add up to what came and to what was sent,
and every message of the request has exactly one fate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from recollect.formats.summaries import SUMMARY_ITEMS
from recollect.plain_text import plain_line
from recollect.rules.message_redaction import redact_json_text
from recollect.rules.redaction import redact
from recollect.rules.tokens import Weigher
from recollect.values.edit import StageName
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
from recollect.values.reason import Reason, joined_reasons
from recollect.values.report import FateKind, MomentKind, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recollect.values.history import Row
    from recollect.values.message import Part


# Text made fit to be shown


EXCERPT_CHARS = 160
_LOOKED_AT_CHARS = 4000  # enough to see a long secret whole before it is clipped


def shown_text(text: str, at_most_chars: int = EXCERPT_CHARS) -> str:
    """A text's beginning with its secrets masked, on one line."""
    line = plain_line(redact(text[:_LOOKED_AT_CHARS]).text)
    return line if len(line) <= at_most_chars else line[: at_most_chars - 1].rstrip() + "…"


def excerpt_of(parts: Sequence[Part]) -> str:
    """The first words of a message."""
    for part in parts:
        line = shown_text(_words_of(part))
        if line:
            return line
    return ""


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


# Tokens by kind of content


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


WindowSource: TypeAlias = Literal["argument", "settings", "recording", "model", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The file and what it holds."""

    file: str
    kind: str
    format: str
    version: str | None
    model: str | None
    session_id: str | None
    run: int
    runs: int
    messages: int
    requests: int
    compactions: int
    passed_over: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUsed:
    """The window the session was replayed in, and where that number came from."""

    tokens: int
    source: WindowSource
    reserve_tokens: int
    limit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KindShare:
    """What one kind of content takes of the request."""

    kind: TokenKind
    came_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShare:
    """What the results of one tool take of the request."""

    tool: str
    results: int
    came_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPoint:
    """One request of the session as it was replayed."""

    turn: int
    came_tokens: int
    sent_tokens: int
    moment: MomentKind | None
    compacted: bool
    """The recording's own client had replaced its past by a summary since the turn before."""
    new_edits: int
    new_repairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFate:
    """What became of one message of the request, or why a row of our own is there."""

    number: int | None
    """Its place in the request, from 1; None for rows of our own."""
    line: int | None
    """Where it stands in the file."""
    role: str
    what: str
    """The tool, or the role, that a reader knows it by."""
    fate: FateKind
    reasons: tuple[Reason, ...]
    """Why; of a message that left, only why it left."""
    tokens_before: int
    tokens_after: int
    excerpt: str

    @property
    def reason(self) -> str:
        """The reasons, as they may be shown."""
        return shown_text(joined_reasons(self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCount:
    """One reason for which the provider's rules changed something."""

    kind: str
    reasons: tuple[Reason, ...]
    this_turn: int
    session: int
    numbers: tuple[int, ...]
    """The messages it touched at this turn."""

    @property
    def reason(self) -> str:
        """The reason, as it may be shown."""
        return shown_text(joined_reasons(self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNote:
    """What one stage of the turn said."""

    stage: StageName
    outcome: Outcome
    reasons: tuple[Reason, ...]

    @property
    def reason(self) -> str:
        """The reasons, as they may be shown."""
        return shown_text(joined_reasons(self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A session at one turn, measured."""

    recording: Recording
    turn: int
    turns: int
    next_request: bool
    """No request is recorded yet: this is what the next one would be."""
    preset: str
    window: WindowUsed
    came_tokens: int
    sent_tokens: int
    reported_tokens: int | None
    """What the provider counted for this request as it was recorded."""
    calibration_ratio: float
    moment: str | None
    kinds: tuple[KindShare, ...]
    tools: tuple[ToolShare, ...]
    filling: tuple[TurnPoint, ...]
    skipped_turns: int
    """Turns before this one that were not replayed, to save time."""
    largest: tuple[MessageFate, ...]
    fates: tuple[MessageFate, ...]
    repairs: tuple[RepairCount, ...]
    stages: tuple[StageNote, ...]
    said: str

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return asdict(self, dict_factory=_with_sentences)


def _with_sentences(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of `--json`: reasons stand in it as their sentence, and apart for code."""
    record = dict(pairs)
    if "reasons" in record:
        record["reason"] = shown_text(joined_reasons(record["reasons"]))
        record["reasons"] = [reason.to_dict() for reason in record["reasons"]]
    return record
