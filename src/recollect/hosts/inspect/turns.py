"""One request, message by message: what became of each, why, and its tokens.

The same values whether the request was just made (`turn_of` a report), or is reported by another
process as JSON (`turn_from_json`). They hold reasons, not sentences: a renderer words them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

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
from recollect.core.values.reason import Reason
from recollect.errors import RecollectError
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.values.edit import StageName
    from recollect.core.values.history import Entry
    from recollect.core.values.report import FateKind, Outcome, Report

EXCERPT_CHARS: Final = 160
_LOOKED_AT_CHARS: Final = 4000  # enough to see a long secret whole before it is clipped
FATES: Final[tuple[FateKind, ...]] = ("kept", "changed", "left out", "summarised", "inserted")


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


def tool_names(messages: Iterable[Message]) -> dict[CallId, str]:
    """The tool of every call, by its id; results often do not name it."""
    return {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }


def _name_message(message: Message, names: dict[CallId, str]) -> str:
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
    """What became of one message of a request, or why a row of our own is there."""

    number: int | None
    """Its place in the request as it came, from 1; None for rows of our own."""
    line: int | None = None
    """Its line in the recorded file."""
    role: str
    what: str = ""
    """Its tool, or its role."""
    fate: FateKind
    reasons: tuple[Reason, ...]
    tokens_before: int
    tokens_after: int
    excerpt: str = field(default="", repr=False)
    key: EntryKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNote:
    """What one stage of the turn did, or how it failed."""

    stage: StageName
    outcome: Outcome
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFates:
    """A request, explained."""

    messages: tuple[MessageFate, ...] = field(repr=False)
    """All of them, or as many as were recorded: the ledger leaves out those sent as they came."""
    stages: tuple[StageNote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Messages with the same fate for the same reason."""

    fate: FateKind
    reasons: tuple[Reason, ...]
    """Without scores, which differ from message to message."""
    scores: tuple[float, float] | None
    """The lowest and the highest."""
    first: int | None
    last: int | None
    """The numbers of the first and the last; None for rows of our own."""
    count: int
    tokens_before: int
    tokens_after: int


def stretches(fates: Sequence[MessageFate], *, together: bool = False) -> list[Stretch]:
    """Neighbours of one fate and reason; `together` joins them over the whole request."""
    groups: list[tuple[tuple[object, ...], list[MessageFate]]] = []
    for fate in fates:
        key = (fate.fate, *map(_without_score, fate.reasons))
        known = next((group for group in groups if group[0] == key), None) if together else None
        if known is None and not together and groups and groups[-1][0] == key:
            known = groups[-1]
        if known is None:
            groups.append((key, [fate]))
        else:
            known[1].append(fate)
    found = [_stretch(members) for _, members in groups]
    if together:
        found.sort(key=lambda one: (FATES.index(one.fate), -one.count))
    return found


def _stretch(members: list[MessageFate]) -> Stretch:
    numbers = [member.number for member in members if member.number is not None]
    reasons = [reason for member in members for reason in member.reasons]
    scores = [float(str(one.numbers["score"])) for one in reasons if "score" in one.numbers]
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
    """The turn of a report; `ratio` calibrates the sizes of messages."""
    entries = [entry.message for entry in report.entries]
    names = tool_names(entries)
    messages: list[MessageFate] = []
    for fate in report.fates():
        message = None if fate.place is None else entries[fate.place]
        messages.append(
            MessageFate(
                number=None if fate.place is None else fate.place + 1,
                role=fate.role,
                what="recollect" if message is None else _name_message(message, names),
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


def messages_meant(report: Report, wanted: str) -> list[int]:
    """The numbers of the messages with this number or with these words; RecollectError if none."""
    count = len(report.entries)
    if wanted.isdigit():
        if not 1 <= int(wanted) <= count:
            raise RecollectError(f"there is no message {wanted}; the request came with {count}")
        return [int(wanted)]
    words = wanted.casefold()
    found = [at for at, one in enumerate(report.entries, 1) if words in _words(one).casefold()]
    if not found:
        raise RecollectError("no message of the request holds these words")
    return found


def _words(entry: Entry) -> str:
    return "\n".join(
        f"{part.name} {part.arguments}" if isinstance(part, ToolCall) else part.text
        for part in entry.parts
        if isinstance(part, Text | ToolResult | ToolCall)
    )


def turn_from_json(report: Mapping[str, Any]) -> TurnFates:
    """The turn of a running gateway's report as JSON."""
    return TurnFates(
        messages=tuple(
            MessageFate(
                number=None if one.get("place") is None else int(one["place"]) + 1,
                role=str(one.get("role")),
                fate=one["fate"],
                reasons=_reasons(one),
                tokens_before=int(one.get("tokens_before") or 0),
                tokens_after=int(one.get("tokens_after") or 0),
                key=one.get("entry") or one.get("key"),
            )
            for one in report.get("fates") or ()
        ),
        stages=tuple(
            StageNote(stage=one["stage"], outcome=one["outcome"], reasons=_reasons(one))
            for one in report.get("lines") or ()
        ),
    )


def _reasons(record: Mapping[str, Any]) -> tuple[Reason, ...]:
    return tuple(Reason.from_dict(one) for one in record.get("reasons") or ())
