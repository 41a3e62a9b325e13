"""Call ids and roles as the format demands: plain unique ids, alternating turns, a clean end.

Runs after pairing and joins rows. Local models reuse call ids and other providers put signs into
them: such a call gets a new id together with its result.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from recollect.core.rules.pairing import Pairing
from recollect.core.rules.repairs import (
    base_of,
    is_thinking,
    part_of,
    pieces_of,
    repair_of,
    text_of,
)
from recollect.core.values.edit import Repair
from recollect.core.values.history import (
    Arranged,
    Entry,
    KeptPart,
    OwnText,
    RewordedPart,
    Slot,
    SlotPiece,
    StandIn,
)
from recollect.core.values.message import CallId, EntryKey, ToolCall, ToolResult
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason

_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


def are_acceptable(entries: Sequence[Entry]) -> bool:
    """Whether every call has an id of its own that any host takes."""
    seen: set[CallId] = set()
    for entry in entries:
        for call_id in entry.calls:
            if call_id in seen or not _PLAIN.fullmatch(call_id):
                return False
            seen.add(call_id)
    return True


def make_acceptable(rows: Sequence[Arranged], repairs: list[Repair]) -> list[Arranged]:
    """The rows with ids given anew where two calls share one, or one holds other signs."""
    used: set[str] = set()
    renamed: dict[CallId, CallId] = {}
    out: list[Arranged] = []
    for row in rows:
        out.append(_renamed(row, renamed) if renamed else row)
        renamed = {}
        base = base_of(row)
        for call_id in base.calls if base is not None and row.role == "assistant" else ():
            fit = _fit(call_id, used)
            used.add(fit)
            if fit != call_id:
                assert base is not None
                renamed[call_id] = CallId(fit)
                repairs.append(repair_of("respelled", base, None, Reason(Cause.CALL_ID), call_id))
        if renamed:
            out[-1] = _renamed(row, renamed)
    return out


def _fit(call_id: CallId, used: set[str]) -> str:
    plain = _NOT_PLAIN.sub("_", call_id) or "call"
    fit, number = plain, 2
    while fit in used:
        fit, number = f"{plain}_{number}", number + 1
    return fit


def _renamed(row: Arranged, names: dict[CallId, CallId]) -> Slot:
    pieces = tuple(_renamed_piece(piece, names) for piece in pieces_of(row))
    return Slot(role=row.role, pieces=pieces, base=base_of(row))


def _renamed_piece(piece: SlotPiece, names: dict[CallId, CallId]) -> SlotPiece:
    if isinstance(piece, StandIn):
        return replace(piece, call=replace(piece.call, id=names.get(piece.call.id, piece.call.id)))
    part = part_of(piece)
    called = part.id if isinstance(part, ToolCall) else None
    if isinstance(part, ToolResult):
        called = part.call_id
    if called in names and isinstance(piece, KeptPart | RewordedPart):
        return replace(piece, call_id=names[called])
    return piece


OPENING = "[recollect] No user message stands before this."
"""Stands for the user where a history would begin with the assistant."""
NOTHING_TO_SEND = "[recollect] The message that stood here held nothing further to send."
"""Stands for a message of the user's that had to go, where the assistant would speak twice or
last: a request that ends with the assistant asks a model to go on with its own words."""


def settle(
    rows: Sequence[Arranged],
    rules: WireRules,
    *,
    continued: bool = False,
    thinking: bool = True,
    given: Sequence[Arranged] = (),
) -> Pairing:
    """Join neighbours of one role, let a user begin, end as the client ended.

    `continued`: other rows stand before these, so nobody has to begin. Without `thinking` the
    request has it disabled, and a final assistant message may hold none. `given` are the rows
    before any was repaired: they tell where a message of the user's is gone.
    """
    repairs: list[Repair] = []
    if rows:
        rows = _with_absent(rows, given, rules, repairs)
    if not rules.alternates or not rows:
        return Pairing(rows=tuple(rows), repairs=tuple(repairs))
    settled: list[Arranged] = []
    if rows[0].role != "user" and not continued:
        repairs.append(
            Repair(kind="opened", anchor=None, part=None, reason=Reason(Cause.ASSISTANT_FIRST))
        )
        opening = OwnText(text=OPENING, note="opening")
        settled.append(Slot(role="user", pieces=(opening,)))
    for row in rows:
        if row.role == "system":  # the format allows it here, else it would be a user's by now
            settled.append(row)
        elif settled and settled[-1].role == row.role:
            settled[-1] = _joined(settled[-1], row)
            if (base := base_of(row)) is not None:
                repairs.append(repair_of("merged", base, None, Reason(Cause.SAME_ROLE)))
        else:
            settled.append(row)
    last = _fit_to_end(settled[-1], repairs, thinking=thinking)
    settled[-1:] = [] if last is None else [last]
    return Pairing(rows=tuple(settled), repairs=tuple(repairs))


def _with_absent(
    rows: Sequence[Arranged], given: Sequence[Arranged], rules: WireRules, repairs: list[Repair]
) -> list[Arranged]:
    if not given or (len(rows) == len(given) and all(map(operator.is_, rows, given))):
        return list(rows)
    shown = {entry.key for row in rows for entry in _entries_of(row)}
    places = {entry.key: at for at, row in enumerate(given) for entry in _entries_of(row)}
    users = [  # a row that shows nobody's message is of ours: none of the client's is missed there
        (at, keys)
        for at, row in enumerate(given)
        if row.role != "assistant" and (keys := {entry.key for entry in _entries_of(row)})
    ]
    absent = [at for at, keys in users if shown.isdisjoint(keys)]
    out: list[Arranged] = []
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        out.append(row)
        if row.role != "assistant" or (after is not None and after.role != "assistant"):
            continue
        gone: list[int] = []
        if after is None:
            gone = [at for at, _ in users[-1:] if at == len(given) - 1]
        if absent and not gone and (after is None or rules.alternates):
            first, last = _places(row, places), _places(after, places) or [len(given)]
            gone = [at for at in absent if first and first[-1] < at < last[0]]
        if gone:
            out.append(Slot(role="user", pieces=(OwnText(text=NOTHING_TO_SEND, note="absent"),)))
            entry = next(_entries_of(given[gone[-1]]))
            reason = Reason(Cause.ASSISTANT_LAST_BY_REPAIR)
            repairs.append(repair_of("synthesised", entry, None, reason))
    return out


def _places(row: Arranged | None, places: Mapping[EntryKey, int]) -> list[int]:
    keys = [entry.key for entry in _entries_of(row)] if row is not None else []
    return sorted(places[key] for key in keys if key in places)


def _entries_of(row: Arranged) -> Iterator[Entry]:
    if isinstance(row, Entry):
        yield row
        return
    for piece in row.pieces:
        if isinstance(piece, KeptPart | RewordedPart):
            yield piece.entry


def _joined(first: Arranged, second: Arranged) -> Slot:
    base = base_of(first) or base_of(second)
    return Slot(role=first.role, pieces=pieces_of(first) + pieces_of(second), base=base)


def _fit_to_end(row: Arranged, repairs: list[Repair], *, thinking: bool) -> Arranged | None:
    if row.role != "assistant":
        return row
    pieces = list(pieces_of(row))
    fit = [piece for piece in pieces if thinking or not is_thinking(piece)]
    while fit and is_thinking(fit[-1]):
        fit.pop()
    for piece in pieces:
        if piece not in fit and isinstance(piece, KeptPart):
            reason = Reason(Cause.FINAL_THINKING)
            repairs.append(repair_of("left-out", piece.entry, piece.part, reason))
    if not fit:
        return None
    last = fit[-1]
    text = text_of(last)
    if text is not None and text[-1:].isspace():
        assert isinstance(last, KeptPart | RewordedPart)
        reason = Reason(Cause.FINAL_WHITE_SPACE)
        repairs.append(repair_of("respelled", last.entry, last.part, reason))
        fit[-1] = RewordedPart(entry=last.entry, part=last.part, text=text.rstrip())
    if fit == pieces:
        return row
    return Slot(role="assistant", pieces=tuple(fit), base=base_of(row))
