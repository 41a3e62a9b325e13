"""Rows under repair: what a row is made of, and what no provider takes of it.

A unit is lazy: as long as nothing has to change it is its source, and its pieces are only
listed when somebody asks for them.
"""

from __future__ import annotations

from dataclasses import replace

from recollect.core.rules.calls import CALLER_GONE, NONE, Misfits, is_misplaced
from recollect.core.values.edit import Repair, RepairKind
from recollect.core.values.history import (
    Arranged,
    Entry,
    KeptPart,
    RewordedPart,
    Slot,
    SlotPiece,
    StandIn,
)
from recollect.core.values.message import CallId, Part, Role, Text, Thinking, ToolCall, ToolResult
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason


class Unit:
    """A row being worked on; `intact` while it is still shown as it came."""

    __slots__ = ("_pieces", "anonymous", "intact", "role", "source")
    passes_through = False
    """A run of rows that needs no work, and has no pieces of its own here."""

    def __init__(self, source: Arranged, pieces: list[SlotPiece] | None = None) -> None:
        self.source = source
        self.role: Role = source.role
        self.intact = pieces is None
        self._pieces = pieces
        self.anonymous = isinstance(source, Slot) and source.anonymous

    @property
    def pieces(self) -> list[SlotPiece]:
        """What the row shows, in order."""
        if self._pieces is None:
            self._pieces = list(pieces_of(self.source))
        return self._pieces

    def change(self, pieces: list[SlotPiece]) -> None:
        """Show these pieces instead."""
        self._pieces = pieces
        self.intact = False

    @property
    def base(self) -> Entry | None:
        """The message that lends the row its other fields."""
        return base_of(self.source)

    def arranged(self) -> Arranged:
        """The row, as pairing leaves it."""
        if self.intact:
            return self.source
        return Slot(
            role=self.role, pieces=tuple(self.pieces), base=self.base, anonymous=self.anonymous
        )


def pieces_of(row: Arranged) -> tuple[SlotPiece, ...]:
    """The pieces a row is made of."""
    if isinstance(row, Slot):
        return row.pieces
    return tuple([KeptPart(entry=row, part=at) for at in range(len(row.parts))])


def base_of(row: Arranged) -> Entry | None:
    """The message that lends a row its other fields; None for a row of our own."""
    return row if isinstance(row, Entry) else row.base


def part_of(piece: SlotPiece) -> Part | None:
    """The part of a message that a piece shows; None for what is our own."""
    if isinstance(piece, KeptPart | RewordedPart):
        return piece.entry.parts[piece.part]
    return None


def cleaned(
    row: Arranged, rules: WireRules, repairs: list[Repair], misfits: Misfits = NONE
) -> Unit | None:
    """The row without what no provider takes; None when nothing is left."""
    unit = Unit(row)
    entry = unit.base
    if entry is None or (isinstance(row, Entry) and not row.odd and not misfits.touches(entry)):
        return unit
    if entry.message.ending != "complete":
        aborted = entry.message.ending == "aborted"
        gone(entry, Reason(Cause.TURN_ABORTED if aborted else Cause.TURN_FAILED), repairs)
        return None
    if entry.role == "system" and rules.system_inside:
        return unit
    if entry.role == "system" and rules.alternates:
        unit.change(unit.pieces)
        unit.role = "user"
        repairs.append(repair_of("merged", entry, None, Reason(Cause.SYSTEM_INSIDE)))
    for flaw in entry.message.flaws:
        if flaw.part is None:
            unit.change(unit.pieces)
            repairs.append(repair_of("respelled", entry, None, flaw.reason))
    _drop_pieces(unit, entry, rules, repairs, misfits)
    blank = all(is_blank(piece) for piece in unit.pieces)
    if not unit.pieces or (blank and entry.role == "assistant"):
        gone(entry, Reason(Cause.EMPTY_MESSAGE), repairs)
        return None
    return unit


def _drop_pieces(
    unit: Unit, entry: Entry, rules: WireRules, repairs: list[Repair], misfits: Misfits
) -> None:
    flawed = {flaw.part: flaw.reason for flaw in entry.message.flaws if flaw.part is not None}
    unfit = {**flawed, **misfits.out.get(entry.key, {})}
    direct = misfits.direct.get(entry.key, frozenset())
    kept: list[SlotPiece] = []
    called: set[CallId] = set()
    for piece in unit.pieces:
        if not isinstance(piece, KeptPart | RewordedPart):
            kept.append(piece)
            continue
        part = piece.entry.parts[piece.part]
        reason = unfit.get(piece.part)
        if rules.refuses_blank_text and is_blank(piece):
            reason = Reason(Cause.BLANK_TEXT)
        elif is_misplaced(part, entry.role):
            reason = Reason(Cause.MISPLACED_PART)
        elif isinstance(part, ToolCall):
            if part.id in called:
                reason = Reason(Cause.CALL_REPEATED)
            called.add(part.id)
        if reason is not None:
            repairs.append(repair_of("left-out", entry, piece.part, reason))
        elif piece.part in direct and isinstance(piece, KeptPart):
            repairs.append(repair_of("respelled", entry, piece.part, CALLER_GONE))
            kept.append(replace(piece, direct=True))
        else:
            kept.append(piece)
    if kept != unit.pieces:
        unit.change(kept)


def is_result(piece: SlotPiece) -> bool:
    """Whether the piece is a tool result, or stands in for one."""
    return isinstance(piece, StandIn) or isinstance(part_of(piece), ToolResult)


def is_thinking(piece: SlotPiece) -> bool:
    """Whether the piece is thinking as it came."""
    return isinstance(piece, KeptPart) and isinstance(part_of(piece), Thinking)


def text_of(piece: SlotPiece) -> str | None:
    """The text that a piece shows of a message's text; None where it shows something else."""
    part = part_of(piece)
    if not isinstance(part, Text):
        return None
    return piece.text if isinstance(piece, RewordedPart) else part.text


def is_blank(piece: SlotPiece) -> bool:
    """Whether the piece is text without a visible character."""
    text = text_of(piece)
    return text is not None and not text.strip()


def repair_of(
    kind: RepairKind, entry: Entry, part: int | None, reason: Reason, call_id: CallId | None = None
) -> Repair:
    """A repair of one message, or of one of its parts."""
    return Repair(kind=kind, anchor=entry.key, part=part, reason=reason, call_id=call_id)


def moved(piece: KeptPart | RewordedPart) -> Repair:
    """A result that stands elsewhere now."""
    part = part_of(piece)
    call_id = part.call_id if isinstance(part, ToolResult) else None
    return repair_of("moved", piece.entry, piece.part, Reason(Cause.RESULT_AWAY), call_id)


def gone(entry: Entry, reason: Reason, repairs: list[Repair]) -> None:
    """Tell that the whole message is left out, its unanswered calls with it."""
    repairs.append(repair_of("left-out", entry, None, reason))
    for at, part in enumerate(entry.parts):
        if isinstance(part, ToolCall):
            repairs.append(
                repair_of("left-out", entry, at, Reason(Cause.CALL_GOES_TOO, why=reason), part.id)
            )
