"""Answers of the chat's commands about its own session: `/help`, `/why`, `/receipt`, `/replay`,
`/name` and `/branch`.

`recollect.hosts.inspect` makes values and text; only `/name` and `/branch` change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from recollect.agent.commands import COMMANDS, TERMINAL_COMMANDS, one_line
from recollect.core.formats.blocks import texts_of
from recollect.errors import RecollectError, TranscriptError
from recollect.hosts.inspect.text import (
    MOST_LISTED,
    sent_text,
    sessions_text,
    turn_text,
    turns_text,
)
from recollect.hosts.inspect.turns import messages_meant, read_turn, turn_of

if TYPE_CHECKING:
    from recollect.agent.conversation import Conversation
    from recollect.core.engine.engine import Engine
    from recollect.core.values.report import Report
    from recollect.hosts.inspect.sessions import SessionLine

MOST_POINTS: Final = 30


def help_text() -> str:
    """List every command and what it does."""
    lines = [*COMMANDS.values(), *TERMINAL_COMMANDS.values()]
    width = max(len(usage) for usage, _ in lines)
    return "\n".join(f"{usage:{width}}  {does}" for usage, does in lines)


def why_text(report: Report, wanted: str, *, which: str) -> str:
    """Explain the outcome of a request's messages: all, one by its number, or those with words."""
    turn = turn_of(report)
    if wanted:
        return turn_text(turn, messages_meant(report, wanted))
    return f"The {which} request.\n{report.summary()}\n{turn_text(turn)}"


async def receipt_text(engine: Engine, session: str, wanted: str) -> str:
    """Show what a compaction kept and lost: the newest, or the one with this number."""
    from recollect.hosts.inspect.drawn import Sheet, as_text, draw_receipt
    from recollect.hosts.inspect.sessions import read_receipts

    await engine.settle()
    found = await engine._look_up(lambda store: read_receipts(store, session))
    if not found.records:
        return "No compaction of this session is kept."
    page = found.page(_number(wanted, "/receipt") or None)
    return as_text(draw_receipt(page, Sheet(width=100)))


async def replay_text(engine: Engine, session: str, wanted: str, *, elsewhere: str) -> str:
    """Show the messages sent at a turn; without a number, list the recorded turns."""
    from recollect.core.engine.ledger import NotRebuilt, kept_turns

    number = _number(wanted, "/replay")
    await engine.settle()
    if not number:
        lines = turns_text(await engine._look_up(lambda store: kept_turns(store, session)))
        left = len(lines) - MOST_LISTED
        older = [f"… {left} older ones: {elsewhere} --list"] if left > 0 else []
        return "\n".join([*older, *lines[-MOST_LISTED:]]) or "No turn is in the ledger."
    found = await engine._look_up(lambda store: read_turn(store, session, number))
    if isinstance(found, NotRebuilt):
        raise RecollectError(f"that turn cannot be shown: {found.reason}")
    return f"{sent_text(found)}\nByte for byte: {elsewhere} --turn {number}"


def _number(wanted: str, command: str) -> int:
    """The number behind a command, 0 for none."""
    if wanted and not wanted.isdigit():
        raise RecollectError(f"it is named by its number: {command} 2")
    return int(wanted or 0)


def listed_text(lines: Sequence[SessionLine]) -> str:
    """List the chat's sessions."""
    shown = sessions_text(lines[:MOST_LISTED])
    if len(lines) > MOST_LISTED:
        shown.append(f"… and {len(lines) - MOST_LISTED} older ones")
    return "\n".join([*shown, "/resume ID continues one; an id prefix will do."])


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
