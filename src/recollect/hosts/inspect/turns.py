"""One request, message by message, and the state of a window, as values and as plain text. Message
text is printed on one line: cut, with secrets masked and control characters removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from recollect.core.formats.json_text import when
from recollect.core.rules.message_redaction import redact_json_text
from recollect.core.rules.redaction import redact
from recollect.core.values.message import (
    CallId,
    EntryKey,
    Image,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.reason import Reason, join_reasons
from recollect.errors import RecollectError
from recollect.system.plain_text import number_of, plain_block, plain_line

if TYPE_CHECKING:
    from recollect.core.engine.rebuild import KeptTurn, Rebuilt
    from recollect.core.values.edit import StageName
    from recollect.core.values.report import FateKind, Outcome, Report
    from recollect.core.values.segment import SegmentId
    from recollect.hosts.inspect.status import (
        ComponentKind,
        ContextStatus,
        RequestContext,
        Spending,
    )

# Two rows of a terminal with 80 columns.
EXCERPT_CHARS: Final = 160
_LOOKED_AT_CHARS: Final = 4000  # long enough to recognize a long secret before the text is cut
FATES: Final[tuple[FateKind, ...]] = ("kept", "changed", "left out", "summarized", "inserted")


def format_excerpt(text: str, at_most_chars: int = EXCERPT_CHARS) -> str:
    """Return the start of a text on one line, with secrets masked."""
    line = plain_line(redact(text[:_LOOKED_AT_CHARS]).text)
    return line if len(line) <= at_most_chars else line[: at_most_chars - 1].rstrip() + "…"


def format_around(text: str, words: str) -> str:
    """Return the text around the first occurrence of these words, as `format_excerpt` does."""
    lowercase_words = words.casefold()
    first = max(0, text.casefold().find(lowercase_words) - _LOOKED_AT_CHARS // 2)
    passage = redact(text[first : first + _LOOKED_AT_CHARS]).text
    offset = passage.casefold().find(lowercase_words)
    start = max(0, offset - EXCERPT_CHARS // 4)
    return format_excerpt(text if offset < 0 else "…" * (first + start > 0) + passage[start:])


def format_block(text: str, at_most_chars: int) -> str:
    """Return the start of a text with its lines, and with secrets masked."""
    block = plain_block(redact(text[: at_most_chars + _LOOKED_AT_CHARS]).text)
    hidden_chars = len(text) - at_most_chars
    if hidden_chars <= 0:
        return block
    return f"{block[:at_most_chars]}… ({hidden_chars:,} more characters)"


def excerpt_of(parts: Sequence[Part]) -> str:
    """Return the first words of a message."""
    return next((line for part in parts if (line := format_excerpt(words_of(part)))), "")


def words_of(part: Part) -> str:
    """Return the text of a part; for an image or an unknown kind, the kind in brackets."""
    if isinstance(part, Text | Thinking):
        return part.text
    if isinstance(part, ToolCall):
        # Decode the JSON first, because an escape can hide a secret's label.
        arguments, _ = redact_json_text(part.arguments)
        return f"{redact(part.name).text} {arguments}"
    if isinstance(part, ToolResult):
        images = sum(isinstance(inner, Image) for inner in part.content)
        return part.text or (f"[{images} images]" if images > 1 else "[image]" if images else "")
    if isinstance(part, Image):
        return f"[{part.media_type or 'image'}]"
    assert isinstance(part, Other)
    return f"[{part.kind}]"


def tool_names(messages: Iterable[Message]) -> dict[CallId, str]:
    """Return the tool name of every call by its id, because results often do not name it."""
    return {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }


def name_message(message: Message, names: dict[CallId, str]) -> str:
    if message.summary:
        return "summary"
    for part in message.parts:
        if isinstance(part, ToolResult):
            return plain_line(f"{part.name or names.get(part.call_id, '?')} result")
    for part in message.parts:
        if isinstance(part, ToolCall) and message.role == "assistant":
            return plain_line(f"{part.name} call")
    return message.role


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFate:
    """The outcome of one message of a request, or the reason for a row that Recollect added."""

    number: int | None
    """Place in the original request, from 1; None for rows that Recollect added."""
    line: int | None = None
    role: str
    what: str = ""
    fate: FateKind
    reasons: tuple[Reason, ...]
    tokens_before: int
    tokens_after: int
    excerpt: str = field(default="", repr=False)
    key: EntryKey | None = None
    row: int | None = None
    """Place in the sent request, from 0; None if unknown, or if the message was not sent."""
    is_new: bool = False
    """True if the previous request did not contain this row."""
    segment: SegmentId | None = None
    """Id of the stored message; None if unknown."""

    @property
    def why(self) -> str:
        """The reasons, in one sentence."""
        return reason_text(self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNote:
    """The result or failure of one stage of a turn."""

    stage: StageName
    outcome: Outcome
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFates:
    """A request with the outcomes of its messages."""

    messages: tuple[MessageFate, ...] = field(repr=False)
    """All messages, or only the recorded ones: the ledger omits messages sent unchanged."""
    stages: tuple[StageNote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive messages with the same outcome and reason."""

    fate: FateKind
    reasons: tuple[Reason, ...]
    """The reasons without scores, because those differ from message to message."""
    scores: tuple[float, float] | None
    first: int | None
    last: int | None
    """Numbers of the first and the last message; None for rows that Recollect added."""
    count: int
    tokens_before: int
    tokens_after: int


def stretches(fates: Sequence[MessageFate], *, joins_all: bool = False) -> list[Stretch]:
    """Group consecutive messages by outcome and reason; with `together`, all messages."""
    groups: list[tuple[tuple[object, ...], list[MessageFate]]] = []
    for fate in fates:
        key = (fate.fate, *map(_without_score, fate.reasons))
        known_group = (
            next((group for group in groups if group[0] == key), None) if joins_all else None
        )
        if known_group is None and not joins_all and groups and groups[-1][0] == key:
            known_group = groups[-1]
        if known_group is None:
            groups.append((key, [fate]))
        else:
            known_group[1].append(fate)
    found_stretches = [_stretch(members) for _, members in groups]
    if joins_all:
        found_stretches.sort(key=lambda stretch: (FATES.index(stretch.fate), -stretch.count))
    return found_stretches


def _stretch(members: list[MessageFate]) -> Stretch:
    numbers = [member.number for member in members if member.number is not None]
    reasons = [reason for member in members for reason in member.reasons]
    scores = [
        float(str(reason.numbers["score"])) for reason in reasons if "score" in reason.numbers
    ]
    return Stretch(
        fate=members[0].fate,
        reasons=members[0].reasons,
        scores=(min(scores), max(scores)) if scores else None,
        first=numbers[0] if numbers else None,
        last=numbers[-1] if numbers else None,
        count=len(members),
        tokens_before=sum(member.tokens_before for member in members),
        tokens_after=sum(member.tokens_after for member in members),
    )


def _without_score(reason: Reason) -> Reason:
    return Reason(reason.cause, **{k: v for k, v in reason.numbers.items() if k != "score"})


def turn_of(report: Report, *, ratio: float = 1.0) -> TurnFates:
    """Return the turn of a report. `ratio` calibrates the sizes of messages."""
    entries = [entry.message for entry in report.entries]
    names = tool_names(entries)
    messages: list[MessageFate] = []
    for fate in report.fates():
        message = None if fate.place is None else entries[fate.place]
        messages.append(
            MessageFate(
                number=None if fate.place is None else fate.place + 1,
                role=fate.role,
                what="recollect" if message is None else name_message(message, names),
                fate=fate.fate,
                reasons=fate.reasons[-1:] if fate.fate == "left out" else fate.reasons,
                tokens_before=round(fate.tokens_before * ratio),
                tokens_after=round(fate.tokens_after * ratio),
                excerpt="" if message is None else excerpt_of(message.parts),
                key=fate.key,
            )
        )
    stages = [
        StageNote(stage=line.stage, outcome=line.outcome, reasons=line.reasons)
        for line in report.lines
    ]
    return TurnFates(messages=tuple(messages), stages=tuple(stages))


def find_messages(report: Report, argument: str) -> list[int]:
    """Return the numbers of the messages with this number or these words. Raise RecollectError if
    there are none."""
    count = len(report.entries)
    if argument.isdigit():
        if not 1 <= int(argument) <= count:
            raise RecollectError(f"there is no message {argument}; the request has {count}")
        return [int(argument)]
    words = argument.casefold()
    texts = [all_words(entry.parts).casefold() for entry in report.entries]
    numbers = [number for number, text in enumerate(texts, 1) if words in text]
    if not numbers:
        raise RecollectError("no message of the request contains these words")
    return numbers


def all_words(parts: Sequence[Part]) -> str:
    """Return the words of a message that a search compares."""
    return "\n".join(
        f"{part.name} {part.arguments}" if isinstance(part, ToolCall) else part.text
        for part in parts
        if isinstance(part, Text | ToolResult | ToolCall)
    )


# Not measured: the answer of a command fits a screen.
MAX_LISTED: Final = 20
_MAX_MATCHES: Final = 5


def reason_text(reasons: tuple[Reason, ...]) -> str:
    """Format reasons as one sentence."""
    return format_excerpt(join_reasons(reasons))


def span_text(stretch: Stretch) -> str:
    """Format the numbers of a stretch's first and last message."""
    if stretch.first is None or stretch.last is None:
        return f"{stretch.count} added" if stretch.count > 1 else "ours"
    if stretch.first == stretch.last:
        return f"#{stretch.first:,}"
    return f"#{stretch.first:,}–#{stretch.last:,}"


def why_text(stretch: Stretch) -> str:
    """Format the reason of a stretch, with the range of scores if they differ."""
    if stretch.scores is None:
        return reason_text(stretch.reasons)
    low, high = (f"{score:.2f}" for score in stretch.scores)
    ends = low if low == high else f"{low} to {high}"
    return reason_text(
        tuple(
            Reason(reason.cause, **{**reason.numbers, "score": ends}) for reason in stretch.reasons
        )
    )


def turns_text(kept_turns: Sequence[KeptTurn]) -> list[str]:
    """Format one line per user message: the turns that answer the message, and its first words."""
    rows = []
    for _, group in groupby(kept_turns, key=lambda turn: turn.asked_by or turn.turn):
        turns = list(group)
        first, last = turns[0], turns[-1]
        span = f"{first.turn}" if first is last else f"{first.turn}-{last.turn}"
        rows.append(
            f"{span:>9}  {when(first.at)}  {format_excerpt(first.said) or '(no longer kept)'}"
        )
    return rows


def describe_request(rebuilt: Rebuilt) -> str:
    """Describe the turn of a request, and whether the request is byte for byte as sent."""
    record = rebuilt.record
    text = f"turn {record.number}, {when(record.at)}, {record.format}, {len(rebuilt.body):,} bytes"
    reasons = ["exact" if rebuilt.exact else "not exact"]
    if rebuilt.is_reconstructed:
        reasons = ["reconstructed from the agent's transcript, with the memories for the prompt"]
    if rebuilt.redacted:
        reasons.append(f"masked, or changed in the store: {_join_names(rebuilt.redacted)}")
    if rebuilt.missing:
        reasons.append(f"no longer kept: {_join_names(rebuilt.missing)}")
    return f"{text}: {'; '.join(reasons)}"


def _join_names(things: tuple[str, ...]) -> str:
    hidden_count = len(things) - _MAX_MATCHES
    return ", ".join(things[:_MAX_MATCHES]) + (
        f" and {hidden_count:,} more" if hidden_count > 0 else ""
    )


_COMPONENTS: Final[Mapping[ComponentKind, str]] = {
    "system": "system prompt",
    "tools": "tool schemas",
    "files": "workspace files",
    "summary": "summary",
    "recalled": "recalled blocks",
    "history": "history",
}


def status_text(status: ContextStatus) -> str:
    """Format the answer of `/status`."""
    request = status.request
    name_note = f" ({status.name})" if status.name else ""
    messages = number_of(request.messages, "message")
    request_name = (
        "last request" if request.which == "sent" else "next request, before your message"
    )
    lines = [
        f"session {status.session_id}{name_note}, {_duration(status.seconds)}",
        f"model {status.model}, window {request.window_tokens:,} tokens ({request.window_source})",
        f"{status.messages} messages, {status.compactions} compactions in effect",
        f"{request_name}: {request.tokens:,} tokens, {request.window_share:.0%} of the window",
        f"  by the counter: {request.counted_tokens:,} tokens in {messages}",
        f"  limit without the reply: {request.limit_tokens:,}",
    ]
    if status.reported_tokens is not None:
        lines.append(f"  as the provider counted it: {status.reported_tokens:,} tokens")
    lines.extend(
        f"  {_COMPONENTS[component.kind]}: {component.tokens:,} tokens, "
        f"{request.share(component.kind):.0%} of the window"
        for component in request.components
        if component.tokens
    )
    lines.append(_spending_text(status.spending))
    return "\n".join([*lines, *request.notes])


def context_text(request: RequestContext, argument: str) -> str:
    """Format the answer of `/context list`, or of `/context detail`: also the tokens of files."""
    if argument not in ("", "list", "detail"):
        raise RecollectError("give /context list or /context detail")
    request_name = (
        "last request" if request.which == "sent" else "next request, before your message"
    )
    share = f"{request.tokens:,} of {request.window_tokens:,} tokens, {request.window_share:.0%}"
    rows = [
        (
            _COMPONENTS[component.kind],
            f"{component.tokens:,} tokens",
            f"{request.share(component.kind):.0%}",
        )
        for component in request.components
    ]
    for part in request.files:
        sizes = f"{part.raw_chars:,} characters, {part.sent_chars:,} sent"
        cut = "" if part.raw_chars == part.sent_chars else ", truncated"
        tokens = f", {part.tokens:,} tokens" if argument == "detail" else ""
        rows.append((part.name, sizes + cut + tokens, ""))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"  {name:{width}}  {size}  {part}".rstrip() for name, size, part in rows]
    return "\n".join([f"{request_name}: {share}", *lines, *request.notes])


def _spending_text(spending: Spending) -> str:
    if not spending.replies and not spending.side_requests:
        return "cost: nothing was reported yet"
    token_text = f"{spending.input_tokens:,} tokens in, {spending.output_tokens:,} out"
    cached_note = (
        "" if spending.cache_share is None else f", {spending.cache_share:.0%} from the cache"
    )
    usage_text = f"{number_of(spending.replies, 'reply', 'replies')}: {token_text}{cached_note}"
    if spending.side_requests:
        side_note = number_of(
            spending.side_requests, "summary or note-taking turn", "summaries and note-taking turns"
        )
        usage_text += (
            f"; {side_note}: {spending.side_input_tokens:,} in, {spending.side_output_tokens:,} out"
        )
    if spending.cost is None:
        price_note = (
            f"the price of {', '.join(spending.unpriced)} is not known; models.prices can name it"
        )
        return f"cost: not known ({price_note}); {usage_text}"
    return f"cost: ${spending.cost:.4f} for {usage_text}"


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 24:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"
