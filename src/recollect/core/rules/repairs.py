"""Repairs of rows (the messages of the request to send) before and after pairing: invalid parts,
call ids, alternating roles. Valid rows do not change. Equal histories always give equal rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from recollect.core.rules.calls import CALLER_GONE, NONE, Misfits, misfit_of
from recollect.core.values.edit import Repair, RepairKind
from recollect.core.values.history import (
    Entry,
    KeptPart,
    OwnText,
    RewordedPart,
    Row,
    Slot,
    SlotPiece,
    StandIn,
    base_of,
)
from recollect.core.values.message import (
    CallId,
    EntryKey,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason


class Unit:
    """A message under repair. `intact` is true until a repair changes it."""

    __slots__ = ("_pieces", "anonymous", "intact", "role", "source")
    passes_through = False
    """True if the unit holds several messages that need no repair and are not split into pieces."""

    def __init__(self, source: Row, pieces: list[SlotPiece] | None = None) -> None:
        self.source: Row = source
        self.role: Role = source.role
        self.intact: bool = pieces is None
        self._pieces = pieces
        self.anonymous: bool = isinstance(source, Slot) and source.anonymous

    @property
    def pieces(self) -> list[SlotPiece]:
        if self._pieces is None:
            self._pieces = list(pieces_of(self.source))
        return self._pieces

    def change(self, pieces: list[SlotPiece]) -> None:
        self._pieces = pieces
        self.intact = False

    @property
    def base(self) -> Entry | None:
        return base_of(self.source)

    def to_row(self) -> Row:
        if self.intact:
            return self.source
        return Slot(
            role=self.role, pieces=tuple(self.pieces), base=self.base, anonymous=self.anonymous
        )


def pieces_of(row: Row) -> tuple[SlotPiece, ...]:
    if isinstance(row, Slot):
        return row.pieces
    return tuple([KeptPart(entry=row, part=index) for index in range(len(row.parts))])


def part_of(piece: SlotPiece) -> Part | None:
    """Return the message part that a piece is made from; None for text that Recollect added."""
    if isinstance(piece, KeptPart | RewordedPart):
        return piece.entry.parts[piece.part]
    return None


def clean_row(
    row: Row, rules: WireRules, repairs: list[Repair], misfits: Misfits = NONE
) -> Unit | None:
    """Remove all that no provider accepts from the message. Return None if nothing remains."""
    unit = Unit(row)
    entry = unit.base
    if entry is None or (isinstance(row, Entry) and not row.odd and not misfits.touches(entry)):
        return unit
    if entry.message.ending != "complete":
        aborted = entry.message.ending == "aborted"
        note_omission(entry, Reason(Cause.TURN_ABORTED if aborted else Cause.TURN_FAILED), repairs)
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
    blank = all(_is_blank(piece) for piece in unit.pieces)
    if not unit.pieces or (blank and entry.role == "assistant"):
        note_omission(entry, Reason(Cause.EMPTY_MESSAGE), repairs)
        return None
    return unit


def _drop_pieces(
    unit: Unit, entry: Entry, rules: WireRules, repairs: list[Repair], misfits: Misfits
) -> None:
    flaw_reasons = {flaw.part: flaw.reason for flaw in entry.message.flaws if flaw.part is not None}
    unfit = {**flaw_reasons, **misfits.out.get(entry.key, {})}
    direct = misfits.direct.get(entry.key, frozenset())
    kept_pieces: list[SlotPiece] = []
    called: set[CallId] = set()
    for piece in unit.pieces:
        if not isinstance(piece, KeptPart | RewordedPart):
            kept_pieces.append(piece)
            continue
        part = piece.entry.parts[piece.part]
        reason = unfit.get(piece.part)
        if rules.refuses_blank_text and _is_blank(piece):
            reason = Reason(Cause.BLANK_TEXT)
        elif (cause := misfit_of(part, entry.role)) is not None:
            reason = Reason(cause)
        elif isinstance(part, ToolCall):
            if part.id in called:
                reason = Reason(Cause.CALL_REPEATED)
            called.add(part.id)
        if reason is not None:
            repairs.append(repair_of("left-out", entry, piece.part, reason))
        elif piece.part in direct and isinstance(piece, KeptPart):
            repairs.append(repair_of("respelled", entry, piece.part, CALLER_GONE))
            kept_pieces.append(replace(piece, direct=True))
        else:
            kept_pieces.append(piece)
    if kept_pieces != unit.pieces:
        unit.change(kept_pieces)


def is_result(piece: SlotPiece) -> bool:
    """Return whether the piece is a tool result, or a placeholder for one."""
    return isinstance(piece, StandIn) or isinstance(part_of(piece), ToolResult)


def is_thinking(piece: SlotPiece) -> bool:
    return isinstance(piece, KeptPart) and isinstance(part_of(piece), Thinking)


def _text_of(piece: SlotPiece) -> str | None:
    part = part_of(piece)
    if not isinstance(part, Text):
        return None
    return piece.text if isinstance(piece, RewordedPart) else part.text


def _is_blank(piece: SlotPiece) -> bool:
    text = _text_of(piece)
    return text is not None and not text.strip()


def repair_of(
    kind: RepairKind, entry: Entry, part: int | None, reason: Reason, call_id: CallId | None = None
) -> Repair:
    return Repair(kind=kind, anchor=entry.key, part=part, reason=reason, call_id=call_id)


def note_move(piece: KeptPart | RewordedPart) -> Repair:
    part = part_of(piece)
    call_id = part.call_id if isinstance(part, ToolResult) else None
    return repair_of("moved", piece.entry, piece.part, Reason(Cause.RESULT_AWAY), call_id)


def note_omission(entry: Entry, reason: Reason, repairs: list[Repair]) -> None:
    """Record that the whole message is left out, with the calls in it."""
    repairs.append(repair_of("left-out", entry, None, reason))
    for index, part in enumerate(entry.parts):
        if isinstance(part, ToolCall):
            repairs.append(
                repair_of(
                    "left-out", entry, index, Reason(Cause.CALL_GOES_TOO, why=reason), part.id
                )
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Messages in which every call has its result, and the repairs."""

    rows: tuple[Row, ...]
    repairs: tuple[Repair, ...]


_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")
_KIND = re.compile(r"[a-z_]+_call:")


def _without_call_kind(call_id: CallId) -> str:
    """Return an id without the kind of its call, which some formats put before it."""
    return _KIND.sub("", call_id, count=1) if ":" in call_id else call_id


def are_acceptable(entries: Sequence[Entry], rules: WireRules) -> bool:
    """Return whether all call ids are different, with only characters that the server accepts."""
    seen: set[str] = set()
    for entry in entries:
        for call_id in entry.calls:
            name = _without_call_kind(call_id)
            if name in seen or (rules.ids_plain and not _PLAIN.fullmatch(call_id)):
                return False
            seen.add(name)
    return True


def make_acceptable(rows: Sequence[Row], rules: WireRules, repairs: list[Repair]) -> list[Row]:
    """Give a new id to each call whose id is used twice or has other characters, and to its
    result."""
    used: set[str] = set()
    names = _SentIds()
    out: list[Row] = []
    for row in rows:
        base = base_of(row)
        for call_id in base.calls if base is not None and row.role == "assistant" else ():
            fit = _fit(call_id, used, rules)
            used.add(_without_call_kind(fit))
            names.unanswered[call_id] = fit
            if fit != call_id:
                assert base is not None
                repairs.append(repair_of("respelled", base, None, Reason(Cause.CALL_ID), call_id))
        if names.unanswered or names.answered:
            row = _with_pieces(row, [_rename_piece(piece, names) for piece in pieces_of(row)])
        out.append(row)
    return out


@dataclass(slots=True)
class _SentIds:
    """The ids under which calls are sent, by the ids with which they were received."""

    unanswered: dict[CallId, CallId] = field(default_factory=dict)
    answered: dict[CallId, CallId] = field(default_factory=dict)

    def of_call(self, call_id: CallId) -> CallId | None:
        """Return the new id of a call, or None if it keeps its own."""
        sent_id = self.unanswered.get(call_id, self.answered.get(call_id))
        return None if sent_id == call_id else sent_id

    def of_result(self, result: ToolResult) -> CallId | None:
        """Return the new id of a result's call: of one that waits for a result, if there is one. A
        result that names calls of two kinds by one id belongs to the one that waits."""
        for calls in (self.unanswered, self.answered):
            for call_id in (result.call_id, result.alternative):
                if call_id is not None and (sent_id := calls.pop(call_id, None)) is not None:
                    self.answered[call_id] = sent_id
                    return sent_id if sent_id != call_id else None
        return None


def _fit(call_id: CallId, used: set[str], rules: WireRules) -> CallId:
    plain = (_NOT_PLAIN.sub("_", call_id) or "call") if rules.ids_plain else call_id
    fit, number = plain, 2
    while _without_call_kind(CallId(fit)) in used:
        fit, number = f"{plain}_{number}", number + 1
    return CallId(fit)


def _with_pieces(row: Row, pieces: Sequence[SlotPiece]) -> Row:
    if tuple(pieces) == pieces_of(row):
        return row
    slot = row if isinstance(row, Slot) else Slot(role=row.role, pieces=(), base=row)
    return replace(slot, pieces=tuple(pieces))


def _rename_piece(piece: SlotPiece, names: _SentIds) -> SlotPiece:
    if isinstance(piece, StandIn):
        call_id = names.of_call(piece.call.id) or piece.call.id
        return replace(piece, call=replace(piece.call, id=call_id))
    part, sent_id = part_of(piece), None
    if isinstance(part, ToolCall):
        sent_id = names.of_call(part.id)
    elif isinstance(part, ToolResult):
        sent_id = names.of_result(part)
    if sent_id is not None and isinstance(piece, KeptPart | RewordedPart):
        return replace(piece, call_id=sent_id)
    return piece


def without_excess_marks(
    rows: Sequence[Row], marks: int, max_marks: int, repairs: list[Repair]
) -> list[Row]:
    """Remove the oldest cache marks of the messages if there are more than `most`, with the `marks`
    outside of the messages. The newest cover most of the request."""
    spare, out = max_marks - marks, list[Row]()
    for row in reversed(rows):
        pieces: list[SlotPiece] = []
        for piece in reversed(pieces_of(row)):
            if isinstance(piece, KeptPart | RewordedPart):
                count = piece.entry.message.marks.count(piece.part)
                spare -= count
                if count and spare < 0:
                    over = Reason(Cause.MARKS_OVER, most=max_marks)
                    repairs.append(repair_of("respelled", piece.entry, piece.part, over))
                    piece = replace(piece, unmarked=True)
            pieces.append(piece)
        out.append(_with_pieces(row, pieces[::-1]))
    return out[::-1]


OPENING = "[recollect] No user message stands before this."
"""Text of a user message that Recollect adds before an assistant's first message."""
NOTHING_TO_SEND = "[recollect] The message that stood here held nothing further to send."
"""Text that replaces a dropped user message between two messages of the assistant, or at the end. A
request that ends with the assistant asks the model to continue its own text."""


def settle(
    rows: Sequence[Row],
    rules: WireRules,
    *,
    continued: bool = False,
    thinking: bool = True,
    original_rows: Sequence[Row] = (),
) -> Pairing:
    """Join adjacent messages of the same role, add a first user message if it is missing, and end
    with the same role as the client's request. If `continued` is true, the provider stores earlier
    messages, so any role may begin. If `thinking` is false, a final assistant message loses its
    thinking. `given` are the rows before any repair, to see where a user message is missing."""
    repairs: list[Repair] = []
    if rows:
        rows = _with_absent(rows, original_rows, rules, repairs)
    if not rules.alternates or not rows:
        return Pairing(rows=tuple(rows), repairs=tuple(repairs))
    settled_rows: list[Row] = []
    if rows[0].role != "user" and not continued:
        repairs.append(
            Repair(kind="opened", anchor=None, part=None, reason=Reason(Cause.ASSISTANT_FIRST))
        )
        settled_rows.append(Slot(role="user", pieces=(OwnText(text=OPENING, note="opening"),)))
    for row in rows:
        # Here the format allows a system message; elsewhere it was turned into a user message.
        if row.role == "system":
            settled_rows.append(row)
        elif settled_rows and settled_rows[-1].role == row.role:
            settled_rows[-1] = _join_rows(settled_rows[-1], row)
            if (base := base_of(row)) is not None:
                repairs.append(repair_of("merged", base, None, Reason(Cause.SAME_ROLE)))
        else:
            settled_rows.append(row)
    last = _fit_to_end(settled_rows[-1], repairs, thinking=thinking)
    settled_rows[-1:] = [] if last is None else [last]
    return Pairing(rows=tuple(settled_rows), repairs=tuple(repairs))


def _with_absent(
    rows: Sequence[Row], original_rows: Sequence[Row], rules: WireRules, repairs: list[Repair]
) -> list[Row]:
    if not original_rows or (
        len(rows) == len(original_rows) and all(map(operator.is_, rows, original_rows))
    ):
        return list(rows)
    shown_keys = {entry.key for row in rows for entry in _entries_of(row)}
    places = {
        entry.key: index for index, row in enumerate(original_rows) for entry in _entries_of(row)
    }
    users = [  # messages that Recollect added do not count as the client's
        (index, keys)
        for index, row in enumerate(original_rows)
        if row.role != "assistant" and (keys := {entry.key for entry in _entries_of(row)})
    ]
    absent = [index for index, keys in users if shown_keys.isdisjoint(keys)]
    out: list[Row] = []
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        out.append(row)
        if row.role != "assistant" or (after is not None and after.role != "assistant"):
            continue
        gone: list[int] = []
        if after is None:
            gone = [index for index, _ in users[-1:] if index == len(original_rows) - 1]
        if absent and not gone and (after is None or rules.alternates):
            first, last = _places(row, places), _places(after, places) or [len(original_rows)]
            gone = [index for index in absent if first and first[-1] < index < last[0]]
        if gone:
            out.append(Slot(role="user", pieces=(OwnText(text=NOTHING_TO_SEND, note="absent"),)))
            entry = next(_entries_of(original_rows[gone[-1]]))
            reason = Reason(Cause.ASSISTANT_LAST_BY_REPAIR)
            repairs.append(repair_of("synthesised", entry, None, reason))
    return out


def _places(row: Row | None, places: Mapping[EntryKey, int]) -> list[int]:
    keys = [entry.key for entry in _entries_of(row)] if row is not None else []
    return sorted(places[key] for key in keys if key in places)


def _entries_of(row: Row) -> Iterator[Entry]:
    if isinstance(row, Entry):
        yield row
        return
    for piece in row.pieces:
        if isinstance(piece, KeptPart | RewordedPart):
            yield piece.entry


def _join_rows(first: Row, second: Row) -> Slot:
    base = base_of(first) or base_of(second)
    return Slot(role=first.role, pieces=pieces_of(first) + pieces_of(second), base=base)


def _fit_to_end(row: Row, repairs: list[Repair], *, thinking: bool) -> Row | None:
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
    text = _text_of(last)
    if text is not None and text[-1:].isspace():
        assert isinstance(last, KeptPart | RewordedPart)
        reason = Reason(Cause.FINAL_WHITE_SPACE)
        repairs.append(repair_of("respelled", last.entry, last.part, reason))
        fit[-1] = RewordedPart(entry=last.entry, part=last.part, text=text.rstrip())
    if fit == pieces:
        return row
    return Slot(role="assistant", pieces=tuple(fit), base=base_of(row))
