"""Compose rows: slots as they go out, each written once and remembered.

A row that shows its message as it came never gets here as a slot; it is the entry itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from recollect.formats.codec import Codec
from recollect.values.history import Composed, Entry, Row
from recollect.values.message import CallId, EntryKey, Part, Text, ToolCall, ToolResult
from recollect.values.slot import Arranged, Kept, Piece, Reworded, Slot, StandIn, Written

Weigh = Callable[[Iterable[Part]], int]


def compose(row: Arranged, codec: Codec, weigh: Weigh, memory: dict[Slot, Composed]) -> Row:
    """The row as it goes out; a slot that shows its entry unchanged is the entry itself."""
    if isinstance(row, Entry):
        return row
    known = memory.get(row)
    if known is None:
        known = memory[row] = _composed(row, codec, weigh)
    return known


def _composed(slot: Slot, codec: Codec, weigh: Weigh) -> Composed:
    parts = tuple([shown_part(piece) for piece in slot.pieces])
    notes = tuple([piece.note for piece in slot.pieces if isinstance(piece, Written)])
    stand_in = any(isinstance(piece, StandIn) for piece in slot.pieces)
    return Composed(
        role=slot.role,
        parts=parts,
        raw=codec.compose(slot),
        tokens=weigh(parts),
        sources=tuple(keys_of(slot)),
        notes=notes or (("stand-in",) if stand_in else ()),
    )


def shown_part(piece: Piece) -> Part:
    """The part a piece shows, as it shows it."""
    if isinstance(piece, Kept):
        return _under_id(piece.entry.parts[piece.part], piece.call_id)
    if isinstance(piece, Written):
        return Text(text=piece.text)
    if isinstance(piece, StandIn):
        return ToolResult(call_id=piece.call.id, content=(Text(text=piece.text),), is_error=True)
    part = _under_id(piece.entry.parts[piece.part], piece.call_id)
    if isinstance(part, ToolResult):
        rest = tuple(inner for inner in part.content if not isinstance(inner, Text))
        return ToolResult(
            call_id=part.call_id,
            content=(Text(text=piece.text), *rest),
            name=part.name,
            is_error=part.is_error,
        )
    return Text(text=piece.text)


def _under_id(part: Part, call_id: CallId | None) -> Part:
    if call_id is None:
        return part
    if isinstance(part, ToolCall):
        return replace(part, id=call_id)
    return replace(part, call_id=call_id) if isinstance(part, ToolResult) else part


def keys_of(row: Arranged) -> list[EntryKey]:
    """The entries a row shows, in order."""
    if isinstance(row, Entry):
        return [row.key]
    keys: dict[EntryKey, None] = {}
    for piece in row.pieces:
        if isinstance(piece, Kept | Reworded):
            keys.setdefault(piece.entry.key)
    return list(keys)
