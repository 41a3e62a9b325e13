"""One cheap check whether a conversation is already as its provider demands.

Most turns pass, so a long history costs only this. `pairing` leaves accepted conversations
unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.core.rules.calls import misfits
from recollect.core.values.history import Entry
from recollect.core.values.message import (
    CallId,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import WireRules


def is_odd(message: Message, rules: WireRules) -> bool:
    """Whether the message by itself needs repair: unfinished, empty, blank, out of order."""
    parts = message.parts
    if message.role == "system" and rules.system_inside:
        return bool(message.flaws)
    if message.ending != "complete" or not parts or message.flaws:
        return True
    role = message.role
    if role == "system" and rules.alternates:
        return True
    if len(parts) == 1 and isinstance(part := parts[0], Text):
        refused = rules.refuses_blank_text or role == "assistant"
        return refused and (not part.text or part.text.isspace())
    if any(is_misplaced(part, role) for part in parts) or _has_blank(message, rules):
        return True
    if role == "assistant":
        if all(isinstance(part, Text) and not part.text.strip() for part in parts):
            return True
        calls = call_ids(message)
        return len(calls) != len(set(calls))
    return rules.results_share_a_message and _results_not_first(message)


def is_misplaced(part: Part, role: Role) -> bool:
    """Whether a message of this role cannot hold the part; calls need an id everywhere."""
    if role == "assistant":
        return isinstance(part, ToolResult) or (isinstance(part, ToolCall) and not part.id)
    return isinstance(part, ToolCall | Thinking)


def call_ids(message: Message) -> tuple[CallId, ...]:
    """The ids this message calls with."""
    return tuple([part.id for part in message.parts if isinstance(part, ToolCall)])


def result_ids(message: Message) -> tuple[CallId, ...]:
    """The ids this message answers."""
    return tuple([part.call_id for part in message.parts if isinstance(part, ToolResult)])


def is_well_formed(entries: Sequence[Entry], rules: WireRules) -> bool:
    """Whether every call is answered where the format wants it, and nothing else is odd."""
    if not entries or misfits(entries, rules):
        return False
    if rules.results_share_a_message:
        return _shared(entries, rules)
    if rules.results_adjacent:
        return _adjacent(entries)
    return _loose(entries)


def _shared(entries: Sequence[Entry], rules: WireRules) -> bool:
    """Results lead the user message after the calls; roles alternate, a user first.

    Where system messages may stand inside, they stand behind a user's.
    """
    pending: tuple[CallId, ...] = ()
    expected = "user"
    for entry in entries:
        if rules.system_inside and entry.role == "system" and expected == "assistant":
            continue
        if entry.odd or entry.role != expected:
            return False
        if entry.results != pending and sorted(entry.results) != sorted(pending):
            return False
        pending = entry.calls
        expected = "assistant" if expected == "user" else "user"
    return not pending and not _ends_badly(entries[-1])


def _adjacent(entries: Sequence[Entry]) -> bool:
    """Result messages follow their call at once, each id once, and stand nowhere else."""
    pending: set[CallId] = set()
    for entry in entries:
        if entry.odd:
            return False
        if entry.role == "tool":
            if entry.results[0] not in pending:
                return False
            pending.discard(entry.results[0])
        elif pending:
            return False
        elif entry.calls:
            pending = set(entry.calls)
    return not pending


def _loose(entries: Sequence[Entry]) -> bool:
    """Every call has one result somewhere behind it; reasoning is followed by its item."""
    pending: set[CallId] = set()
    item_ids: set[str] = set()
    leading = False
    for entry in entries:
        if entry.odd or (leading and entry.role != "assistant"):
            return False
        item_id = entry.message.wire_id
        if item_id is not None:
            if item_id in item_ids:
                return False
            item_ids.add(item_id)
        leading = False
        if entry.role == "tool":
            if entry.results[0] not in pending:
                return False
            pending.discard(entry.results[0])
        elif entry.calls:
            if entry.calls[0] in pending:
                return False
            pending.add(entry.calls[0])
        elif isinstance(entry.message.parts[0], Thinking):
            leading = True
    return not pending and not leading


def _results_not_first(message: Message) -> bool:
    seen_other = False
    for part in message.parts:
        if not isinstance(part, ToolResult):
            seen_other = True
        elif seen_other:
            return True
    return False


def _has_blank(message: Message, rules: WireRules) -> bool:
    if not rules.refuses_blank_text:
        return False
    return any(isinstance(part, Text) and not part.text.strip() for part in message.parts)


def _ends_badly(entry: Entry) -> bool:
    """A final assistant message may not end in space, and hold thinking only at times."""
    if entry.role != "assistant":
        return False
    last = entry.message.parts[-1]
    if isinstance(last, Text) and last.text[-1:].isspace():
        return True
    return any(isinstance(part, Thinking) for part in entry.message.parts)
