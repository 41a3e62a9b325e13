"""Call ids as the provider wants them: unique in the whole request, of plain characters.

Local models number their calls anew in every turn, other providers put signs into ids; a host
that checks them refuses the request. A call gets another id together with its result, which
stands in the very next row.
Always holds: ids that are fine stay; the same history gives the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from recollect.rules.units import part_of, pieces_of, repair_of
from recollect.values.edit import Repair
from recollect.values.history import Entry
from recollect.values.message import CallId, ToolCall, ToolResult
from recollect.values.reason import Cause, Reason
from recollect.values.slot import Arranged, Kept, Piece, Reworded, Slot, StandIn

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
        base = row if isinstance(row, Entry) else row.base
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
    base = row if isinstance(row, Entry) else row.base
    return Slot(role=row.role, pieces=pieces, base=base)


def _renamed_piece(piece: Piece, names: dict[CallId, CallId]) -> Piece:
    if isinstance(piece, StandIn):
        name = names.get(piece.call.id)
        if name is None:
            return piece
        call = piece.call
        fresh = ToolCall(id=name, name=call.name, arguments=call.arguments, variant=call.variant)
        return StandIn(call=fresh, text=piece.text)
    if not isinstance(piece, Kept | Reworded):
        return piece
    part = part_of(piece)
    if isinstance(part, ToolCall):
        name = names.get(part.id)
    elif isinstance(part, ToolResult):
        name = names.get(part.call_id)
    else:
        return piece
    if name is None:
        return piece
    return replace(piece, call_id=name)
