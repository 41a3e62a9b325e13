"""What commands that look at a session answer: `/why`, `/receipt`, `/replay`, `/sessions`, `/help`.

Text of what the engine, the store and the folder of transcripts know; nothing is changed. Words of
a conversation are printed on one line each, cut where they are long and without signs that a
terminal acts upon. The same nouns and verbs as on the command line, which has more room for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from recollect.agent.commands import COMMANDS, TERMINAL_COMMANDS, one_line
from recollect.errors import FormatError, TranscriptError
from recollect.formats.blocks import texts_of
from recollect.formats.json_text import decode
from recollect.values.history import newest_cut
from recollect.values.message import Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from recollect.agent.conversation import Conversation
    from recollect.engine.engine import Engine
    from recollect.inspect.sessions import SessionLine
    from recollect.values.compaction import CompactionResult
    from recollect.values.history import Entry
    from recollect.values.report import Fate, Report

MOST_LISTED: Final = 20
_MOST_MATCHES: Final = 5
MOST_POINTS: Final = 30


def help_text() -> str:
    """What `/help` answers: every command, and what it does."""
    lines = [*COMMANDS.values(), *TERMINAL_COMMANDS.values()]
    width = max(len(usage) for usage, _ in lines)
    return "\n".join(f"{usage:{width}}  {does}" for usage, does in lines)


# /why


def why_message_text(report: Report, wanted: str, *, which: str) -> str:
    """What became of a message of a request, and why; without one named, of the whole request.

    A message is named by its number in the request, from 1, or by words that stand in it.
    """
    fates = report.fates()
    if not wanted:
        left = [fate for fate in fates if fate.fate not in ("kept", "summarised")][::-1]
        new = {edit.anchor for edit in report.new_edits}
        left.sort(key=lambda fate: fate.key not in new)  # what befell it in this turn comes first
        lines = [f"The {which} request.", report.summary()]
        cut, behind = newest_cut(report.edits), sum(fate.fate == "summarised" for fate in fates)
        if cut is not None and behind:
            were = "1 message is" if behind == 1 else f"{behind:,} messages are"
            lines.append(f"{were} summarised since compaction {cut.number}.")
        lines.extend(_fate_line(fate, report) for fate in left[:MOST_LISTED])
        if len(left) > MOST_LISTED:
            lines.append(
                f"… and {len(left) - MOST_LISTED} more; name one by its number or its words"
            )
        return "\n".join(lines)
    entries = report.entries
    if wanted.isdigit():
        place = int(wanted) - 1
        found = [fate for fate in fates if fate.place == place]
        if not found:
            return f"There is no message {wanted}; the request came with {len(entries)}."
    else:
        asked = wanted.casefold()
        found = [
            fate
            for fate in fates
            if fate.place is not None and asked in words_of(entries[fate.place]).casefold()
        ]
        if not found:
            return "No message of the request holds these words."
    lines = [_fate_line(fate, report) for fate in found[:_MOST_MATCHES]]
    if len(found) > _MOST_MATCHES:
        lines.append(f"… and {len(found) - _MOST_MATCHES} more hold these words.")
    return "\n".join(lines)


def _fate_line(fate: Fate, report: Report) -> str:
    """One message: its number, who said it, what it says, what became of it and why."""
    sizes = f"{fate.tokens_before:,} → {fate.tokens_after:,} tokens"
    if fate.place is None:
        return f"   + {fate.fate}, {fate.tokens_after:,} tokens: {fate.said}"
    said = one_line(words_of(report.entries[fate.place]))[:60]
    return f"{fate.place + 1:>4} {fate.role} »{said}«: {fate.fate}, {sizes}: {fate.said}"


def words_of(entry: Entry) -> str:
    """What a message says, calls and results included."""
    said: list[str] = []
    for part in entry.parts:
        if isinstance(part, Text | ToolResult):
            said.append(part.text)
        elif isinstance(part, ToolCall):
            said.append(f"{part.name} {part.arguments}")
    return "\n".join(said)


# /receipt and /replay


async def receipt_text(engine: Engine, session: str, wanted: str, *, elsewhere: str) -> str:
    """What a compaction did to what was known: the newest, or the one of this number."""
    from recollect.formats.stored_records import read_record

    if wanted and not wanted.isdigit():
        return "A compaction is named by its number: /receipt 2"
    await engine.settle()
    records = await engine._look_up(lambda store: store.compactions(session))
    if not records:
        return "No compaction of this session is kept."
    numbers = [record.number for record in records]
    number = int(wanted) if wanted else numbers[-1]
    if number not in numbers:
        kept = ", ".join(map(str, numbers))
        return f"There is no compaction {number}; there are {kept}."
    try:
        result = read_record(records[numbers.index(number)].body).result
    except FormatError as error:
        return f"Compaction {number} cannot be read: {error}."
    return "\n".join(
        [*_receipt_lines(result, of=numbers[-1]), f"Whole, drawn: {elsewhere} --number {number}"]
    )


def _receipt_lines(result: CompactionResult, *, of: int) -> list[str]:
    sizes = f"{result.tokens_before:,} → {result.tokens_after:,} tokens"
    sizes += f", {result.seconds:.1f} s"
    lines = [f"Compaction {result.number} of {of}, {result.trigger}: {result.reason}; {sizes}"]
    receipt = result.receipt
    if receipt is None:
        return [*lines, "No receipt was made for it."]
    lines.append(str(receipt))
    free = [one for one in receipt.findings if not one.pinned]
    for title, found in (
        ("lost", [one for one in free if one.standing == "lost"]),
        ("not in the summary, recallable", [one for one in free if one.standing == "recallable"]),
        ("pinned", [one for one in receipt.findings if one.pinned]),
    ):
        lines.extend(f"  {title}: {one_line(one.probe.text)}" for one in found[:MOST_LISTED])
        if len(found) > MOST_LISTED:
            lines.append(f"  … and {len(found) - MOST_LISTED} more {title}")
    return lines


async def replay_text(engine: Engine, session: str, wanted: str, *, elsewhere: str) -> str:
    """What was sent at a turn, message by message; without one, which turns are kept."""
    from recollect.engine.ledger import NotRebuilt, kept_turns, rebuild_request

    if wanted and not wanted.isdigit():
        return "A turn is named by its number: /replay 3; /replay lists those that are kept."
    await engine.settle()
    if not wanted:
        turns = await engine._look_up(lambda store: kept_turns(store, session))
        if not turns:
            return "No turn of this session is in the ledger."
        lines = [f"{turn.turn:>5}  {when(turn.at)}  {one_line(turn.said)}" for turn in turns]
        left = len(lines) - MOST_LISTED
        older = [f"… {left} older ones: {elsewhere} --list"] if left > 0 else []
        return "\n".join([*older, *lines[-MOST_LISTED:]])
    found = await engine._look_up(lambda store: rebuild_request(store, session, int(wanted)))
    if isinstance(found, NotRebuilt):
        return f"That turn cannot be shown: {found.reason}."
    state = "as it was sent" if found.exact else "not exact: parts are masked or no longer kept"
    record = found.record
    asked = f"{record.format}, {record.model or 'no model'}, {len(found.body):,} bytes"
    lines = [f"Turn {record.number}, {when(record.at)}, {asked}, {state}"]
    lines.extend(_sent_lines(decode(found.body)))
    return "\n".join([*lines, f"Byte for byte: {elsewhere} --turn {wanted}"])


def _sent_lines(body: Any) -> list[str]:
    """A line for each message of a request."""
    if not isinstance(body, dict):
        return []
    lines = [
        f"     {name}: {len(json.dumps(body[name])):,} characters"
        for name in ("system", "instructions", "tools")
        if body.get(name)
    ]
    messages = body.get("messages") or body.get("input") or []
    for at, message in enumerate(messages if isinstance(messages, list) else [], 1):
        fields = message if isinstance(message, dict) else {}
        who = str(fields.get("role") or fields.get("type") or "?")
        lines.append(f"{at:>4} {who}: {one_line(' '.join(_strings(fields)))}")
    return lines


_SHOWN_KEYS: Final = (
    *("text", "content", "tool_calls", "function", "name"),
    *("input", "arguments", "output", "thinking"),
)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    if not isinstance(value, dict):
        return []
    return [
        text
        for key in _SHOWN_KEYS
        for text in (
            [json.dumps(value[key])]
            if key == "input" and key in value
            else _strings(value.get(key))
        )
    ]


# /sessions


def sessions_text(lines: Sequence[SessionLine]) -> str:
    """What `/sessions` answers."""
    shown = []
    for line in lines[:MOST_LISTED]:
        mark = "*" if line.current else " "
        named = f"  {one_line(line.name)}" if line.name else ""
        key = f"  ({one_line(line.key)})" if line.key else ""
        shown.append(f"{mark} {line.session_id}  {when(line.changed)}{named}{key}")
    if len(lines) > MOST_LISTED:
        shown.append(f"… and {len(lines) - MOST_LISTED} older ones")
    return "\n".join([*shown, "/resume ID goes on with one; a beginning of its id will do."])


# /name and /branch


def name_session(conversation: Conversation, name: str) -> str:
    """Call a session so; the name as it was kept. Waits for the disk."""
    text = one_line(name)
    if not text:
        raise TranscriptError("say how: a name has at least one character")
    conversation.keep_name(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A message of the user's, before which the conversation could go on."""

    number: int
    entry_id: str | None
    """None where it is part of another program's summary."""
    said: str = field(repr=False)


def branch_points(conversation: Conversation) -> list[BranchPoint]:
    """What the user said, on the branch that is under way."""
    said = [item for item in conversation.shown() if item.message.get("role") == "user"]
    return [
        BranchPoint(
            number=number,
            entry_id=item.entry_id,
            said=one_line(" ".join(texts_of(item.message.get("content") or ()))),
        )
        for number, item in enumerate(said, 1)
    ]


def branch_session(conversation: Conversation, wanted: str) -> BranchPoint:
    """Go on before one of the user's messages, named by its number or its entry; what came after
    stays in the file. Waits for the disk."""
    points = branch_points(conversation)
    found = [point for point in points if wanted in (str(point.number), point.entry_id)]
    if not found:
        raise TranscriptError(
            f"a message is named by its number, from 1 to {len(points)}, or its entry"
            if points
            else "nothing was said yet"
        )
    if found[0].entry_id is None:
        raise TranscriptError("that message is part of a summary; name a later one")
    conversation.branch_before(found[0].entry_id)
    return found[0]


def branch_points_text(points: Sequence[BranchPoint]) -> str:
    """What `/branch` answers without a message."""
    if not points:
        return "Nothing was said yet."
    lines = [f"{point.number:>4} {point.said}" for point in points[-MOST_POINTS:]]
    left = len(points) - len(lines)
    older = [f"… {left} older ones"] if left else []
    return "\n".join([*older, *lines, "/branch NUMBER goes on before that message."])


def branched_text(point: BranchPoint) -> str:
    """What `/branch NUMBER` answers."""
    return (
        f"The conversation goes on before message {point.number}; what came after it is kept in "
        "the transcript and in memory, and is no part of the requests."
    )


def when(seconds: float) -> str:
    """A time, for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
