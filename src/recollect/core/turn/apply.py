"""Applies a session's edits to its history, and returns a view (the messages to send) that the
provider accepts. A row is one of these messages. The order is: cut, leave out, shorten, pair,
insert, roles. Pairing calls with results comes after the edits that could separate them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Final

from recollect.core.formats.codec import Codec
from recollect.core.formats.summaries import PI_CLOSING, PI_OPENING
from recollect.core.rules.calls import is_well_formed
from recollect.core.rules.pairing import pair
from recollect.core.rules.repairs import (
    are_acceptable,
    is_result,
    make_acceptable,
    pieces_of,
    settle,
    without_excess_marks,
)
from recollect.core.values.edit import Cut, Edit, Insert, LeaveOut, Repair, Shorten
from recollect.core.values.history import (
    Entry,
    KeptPart,
    OwnText,
    RewordedPart,
    Row,
    Slot,
    SlotPiece,
    StandIn,
    View,
    base_of,
    behind_cut,
)
from recollect.core.values.message import (
    CallId,
    EntryKey,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason

Weigh = Callable[[Iterable[Part]], int]


def compose(row: Row, codec: Codec, weigh: Weigh, memory: dict[Slot, Slot]) -> Row:
    """Return the message to send for a row: an unedited message itself, or its edited form."""
    if isinstance(row, Entry):
        return row
    cached_slot = memory.get(row)
    if cached_slot is None:
        cached_slot = memory[row] = _compose_slot(row, codec, weigh)
    return cached_slot


def _compose_slot(slot: Slot, codec: Codec, weigh: Weigh) -> Slot:
    parts = tuple([part_to_send(piece) for piece in slot.pieces])
    notes = tuple([piece.note for piece in slot.pieces if isinstance(piece, OwnText)])
    stand_in = any(isinstance(piece, StandIn) for piece in slot.pieces)
    raw = codec.compose(slot)
    kept_entries = [piece.entry for piece in slot.pieces if isinstance(piece, KeptPart)]
    is_rewritten = any(entry.message.flaws for entry in kept_entries)  # what is sent may be longer
    return replace(
        slot,
        parts=parts,
        raw=raw,
        tokens=weigh(codec.read(raw).parts if is_rewritten else parts),
        sources=tuple(keys_of(slot)),
        notes=notes or (("stand-in",) if stand_in else ()),
    )


def part_to_send(piece: SlotPiece) -> Part:
    if isinstance(piece, KeptPart):
        return _under_id(piece.entry.parts[piece.part], piece.call_id)
    if isinstance(piece, OwnText):
        return Text(text=piece.text)
    if isinstance(piece, StandIn):
        return ToolResult(call_id=piece.call.id, content=(Text(text=piece.text),), is_error=True)
    part = _under_id(piece.entry.parts[piece.part], piece.call_id)
    if isinstance(part, ToolResult):
        other_parts = tuple(inner for inner in part.content if not isinstance(inner, Text))
        return ToolResult(
            call_id=part.call_id,
            content=(Text(text=piece.text), *other_parts),
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


def keys_of(row: Row) -> list[EntryKey]:
    if isinstance(row, Entry):
        return [row.key]
    keys: dict[EntryKey, None] = {}
    for piece in row.pieces:
        if isinstance(piece, KeptPart | RewordedPart):
            keys.setdefault(piece.entry.key)
    return list(keys)


def gap_note(count: int) -> str:
    """Write the note that replaces `count` left-out messages."""
    messages = "message" if count == 1 else "messages"
    return f"[recollect] {count} earlier {messages} left out here to fit the window."


def place(
    rows: list[Row],
    cut: Cut | None,
    inserts: list[Insert],
    missing: dict[EntryKey | None, int],
    rules: WireRules,
) -> list[Row]:
    """Insert the summary, notes and blocks between the messages."""
    if cut is None and not missing and not inserts:
        return rows
    before: dict[EntryKey, list[OwnText]] = {}
    after: dict[EntryKey, list[OwnText]] = {}
    head: list[OwnText] = []
    if cut is not None:
        text = PI_OPENING + cut.summary + PI_CLOSING
        head.append(OwnText(text=text, note="summary"))
    tail: list[OwnText] = []
    for key, count in missing.items():
        note = OwnText(text=gap_note(count), note="gap")
        if key is None:
            tail.append(note)
        else:
            before.setdefault(key, []).append(note)
    for edit in inserts:
        block = OwnText(text=edit.text, note=edit.stage)
        if edit.placement == "head" or edit.anchor is None:
            head.append(block)
        else:
            place = before if edit.placement == "before" else after
            place.setdefault(edit.anchor, []).append(block)
    return _place_blocks(rows, head, before, after, tail, rules)


def _place_blocks(
    rows: list[Row],
    head: list[OwnText],
    before: dict[EntryKey, list[OwnText]],
    after: dict[EntryKey, list[OwnText]],
    tail: list[OwnText],
    rules: WireRules,
) -> list[Row]:
    out: list[Row] = []
    waiting = list(head)
    due: list[OwnText] = []
    openings = _Openings(rules.thinking_leads)
    for row in rows:
        if waiting and row.role != "system" and not _is_summary(row):
            out.extend(_own_row(block) for block in waiting)
            waiting = []
        keys = keys_of(row)
        blocks = [block for key in keys for block in before.get(key, ())]
        if blocks and rules.alternates and row.role == "user":
            row = _with_blocks(row, blocks)
        elif blocks:
            index = openings.last_whole(len(out))
            out[index:index] = [_own_row(block) for block in blocks]
        out.append(row)
        openings.pass_by(row, len(out))
        due.extend(block for key in keys for block in after.get(key, ()))
        if due and openings.last_whole(len(out)) == len(out):
            out.extend(_own_row(block) for block in due)
            due = []
    out.extend(_own_row(block) for block in (*waiting, *due, *tail))
    return out


@dataclass(slots=True)
class _Openings:
    thinking_leads: bool
    unanswered: set[str] = field(default_factory=set)
    whole_at: int = 0
    parted: bool = False

    def pass_by(self, row: Row, position: int) -> None:
        if isinstance(row, Entry):
            leads = isinstance(row.message.parts[-1], Thinking)
            self.unanswered.update(row.calls)
            self.unanswered.difference_update(row.results)
        else:
            leads = False
            for piece in row.pieces:
                part = part_to_send(piece)
                leads = isinstance(part, Thinking)
                if isinstance(part, ToolCall):
                    self.unanswered.add(part.id)
                elif isinstance(part, ToolResult):
                    self.unanswered.discard(part.call_id)
        self.parted = (leads and self.thinking_leads) or bool(self.unanswered)
        if not self.parted:
            self.whole_at = position

    def last_whole(self, position: int) -> int:
        return self.whole_at if self.parted else position


def _is_summary(row: Row) -> bool:
    base = base_of(row)
    return base is not None and base.message.summary


def _own_row(block: OwnText) -> Slot:
    return Slot(role="user", pieces=(block,))


def _with_blocks(row: Row, blocks: list[OwnText]) -> Slot:
    pieces = pieces_of(row)
    lead = 0
    while lead < len(pieces) and is_result(pieces[lead]):
        lead += 1
    pieces = (*pieces[:lead], *blocks, *pieces[lead:])
    return Slot(role="user", pieces=pieces, base=base_of(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The view, and the edits whose message is not in this history."""

    view: View
    ended_edits: tuple[Edit, ...]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        reasons = [Reason(Cause.VIEW_MADE, rows=len(self.view.rows))]
        if self.view.repairs:
            reasons.append(Reason(Cause.REPAIRED, repairs=len(self.view.repairs)))
        if self.ended_edits:
            reasons.append(Reason(Cause.EDITS_REST, edits=len(self.ended_edits)))
        return tuple(reasons)


@dataclass(slots=True)
class _Standing:
    cut: Cut | None = None
    out: dict[EntryKey, LeaveOut] = field(default_factory=dict)
    parts_out: dict[EntryKey, set[int]] = field(default_factory=dict)
    reworded: dict[EntryKey, dict[int, str]] = field(default_factory=dict)
    inserts: list[Insert] = field(default_factory=list)


def apply(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    codec: Codec,
    weigh: Weigh,
    *,
    continues: bool = False,
    continued: bool = False,
    thinking: bool = True,
    marks: int = 0,
    composed: dict[Slot, Slot] | None = None,
) -> Applied:
    """Return the view of `entries` under `edits`. `marks` is the number of cache marks outside of
    the messages. `composed` caches messages between turns."""
    is_marked = _is_over_marked(entries, codec.rules, marks)
    if not (edits or continues or continued or is_marked) and _as_it_should_be(entries, codec):
        return Applied(view=_view(entries, ()), ended_edits=())
    standing, ended_edits = _sort_edits(edits, {entry.key for entry in entries})
    hidden_keys = behind_cut(entries, () if standing.cut is None else (standing.cut,))
    turns, inside = _without_system(entries) if codec.rules.system_inside else (entries, [])
    rows, notes = _remaining(turns, standing, hidden_keys)
    original_rows = list(rows)
    repairs: tuple[Repair, ...] = ()
    if continues or not _all_entries_well_formed(rows, codec):
        pairing = pair(rows, codec.rules, continues=continues)
        rows, repairs = list(pairing.rows), pairing.repairs
    if codec.rules.ids_unique:
        id_repairs: list[Repair] = []
        rows = make_acceptable(rows, codec.rules, id_repairs)
        repairs = (*repairs, *id_repairs)
    rows = place(rows, standing.cut, standing.inserts, notes, codec.rules)
    if inside:
        rows, left_out = _with_system(rows, inside, continued=continued)
        repairs = (*repairs, *left_out)
    settlement = settle(
        rows, codec.rules, continued=continued, thinking=thinking, original_rows=original_rows
    )
    final, mark_repairs = settlement.rows, list[Repair]()
    if is_marked and (max_marks := codec.rules.most_marks):
        final = tuple(without_excess_marks(final, marks, max_marks, mark_repairs))
    memory: dict[Slot, Slot] = {} if composed is None else composed
    composed_rows = [compose(row, codec, weigh, memory) for row in final]
    return Applied(
        view=_view(composed_rows, (*repairs, *settlement.repairs, *mark_repairs)),
        ended_edits=tuple(ended_edits),
    )


def _is_over_marked(entries: Sequence[Entry], rules: WireRules, marks: int) -> bool:
    if rules.most_marks is None:
        return False
    return marks + sum([len(entry.message.marks) for entry in entries]) > rules.most_marks


_Inside = list[tuple[EntryKey | None, Entry]]


def _without_system(entries: Sequence[Entry]) -> tuple[list[Entry], _Inside]:
    turns: list[Entry] = []
    inside: _Inside = []
    for entry in entries:
        if entry.role == "system":
            inside.append((turns[-1].key if turns else None, entry))
        else:
            turns.append(entry)
    return turns, inside


def _with_system(
    rows: Sequence[Row], inside: _Inside, *, continued: bool
) -> tuple[list[Row], list[Repair]]:
    behind: dict[int, list[Entry]] = {}
    index_by_key = {
        key: index for index, row in enumerate(rows) if row.role == "user" for key in keys_of(row)
    }
    begins = next((index for index, row in enumerate(rows) if row.role == "user"), None)
    repairs: list[Repair] = []
    for count, (key, entry) in enumerate(inside):
        index = index_by_key.get(key) if key is not None else None
        if index is None and count == 0 and not continued:
            index = begins
        if index is None or entry.odd:
            reason = Reason(Cause.SYSTEM_ASTRAY if index is None else Cause.EMPTY_MESSAGE)
            repairs.append(Repair(kind="left-out", anchor=entry.key, part=None, reason=reason))
        else:
            behind.setdefault(index, []).append(entry)
    out: list[Row] = []
    for index, row in enumerate(rows):
        out += [row, *behind.get(index, ())]
    return out, repairs


def _as_it_should_be(entries: Sequence[Entry], codec: Codec) -> bool:
    if codec.rules.ids_unique and not are_acceptable(entries, codec.rules):
        return False
    return is_well_formed(entries, codec.rules)


def _view(rows: Sequence[Row], repairs: tuple[Repair, ...]) -> View:
    return View(rows=tuple(rows), tokens=sum([row.tokens for row in rows]), repairs=repairs)


def _all_entries_well_formed(rows: Sequence[Row], codec: Codec) -> bool:
    entries = [row for row in rows if isinstance(row, Entry)]
    return len(entries) == len(rows) and is_well_formed(entries, codec.rules)


def _sort_edits(edits: Sequence[Edit], known: set[EntryKey]) -> tuple[_Standing, list[Edit]]:
    standing = _Standing()
    ended_edits: list[Edit] = []
    out = standing.out
    for edit in edits:
        if type(edit) is LeaveOut and edit.part is None and edit.anchor in known:
            out[edit.anchor] = edit  # most edits leave out a message
        elif edit.anchor not in known and edit.anchor is not None:
            ended_edits.append(edit)
        elif isinstance(edit, LeaveOut):
            standing.parts_out.setdefault(edit.anchor, set()).add(edit.part or 0)
        elif isinstance(edit, Shorten):
            standing.reworded.setdefault(edit.anchor, {})[edit.part] = edit.text
        elif isinstance(edit, Cut):
            standing.cut = edit  # only the newest cut applies; the edits list older ones first
        else:
            standing.inserts.append(edit)
    return standing, ended_edits


def _remaining(
    entries: Sequence[Entry], standing: _Standing, hidden_keys: AbstractSet[EntryKey]
) -> tuple[list[Row], dict[EntryKey | None, int]]:
    rows: list[Row] = []
    missing: dict[EntryKey | None, int] = {}
    gap = 0
    for entry in entries:
        if entry.key in hidden_keys:
            continue
        left_out = standing.out.get(entry.key)
        if left_out is not None:
            gap += left_out.stage == "trim"
            continue
        row = _with_part_edits(entry, standing)
        if row is None:
            continue
        if gap:
            missing[entry.key] = gap
            gap = 0
        rows.append(row)
    if gap:
        missing[None] = gap
    return rows, missing


def _with_part_edits(entry: Entry, standing: _Standing) -> Row | None:
    out = standing.parts_out.get(entry.key)
    texts = standing.reworded.get(entry.key)
    if not out and not texts:
        return entry
    pieces: list[SlotPiece] = []
    for index in range(len(entry.parts)):
        if out and index in out:
            continue
        if texts and index in texts:
            pieces.append(RewordedPart(entry=entry, part=index, text=texts[index]))
        else:
            pieces.append(KeptPart(entry=entry, part=index))
    return Slot(role=entry.role, pieces=tuple(pieces), base=entry) if pieces else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastView:
    """The history, edits and view of the last turn."""

    entries: tuple[Entry, ...]
    edits: tuple[Edit, ...]
    view: View


def extend(
    last: LastView | None,
    entries: Sequence[Entry],
    edits: tuple[Edit, ...],
    codec: Codec,
    weigh: Weigh,
    *,
    thinking: bool = True,
    marks: int = 0,
    composed: dict[Slot, Slot],
) -> Applied | None:
    """Append new messages to the last view. Return None if `apply` could give a different
    result."""
    if last is None or last.edits is not edits or not _only_grew(last, entries):
        return None
    if _is_over_marked(entries, codec.rules, marks):
        return None
    joint = _joint(last, thinking_leads=codec.rules.thinking_leads)
    if joint is None:
        return None
    row_at, entry_at = joint
    tail = entries[entry_at:]
    if codec.rules.system_inside and tail[0].role == "system":
        return None  # the system message belongs to a message of the last view
    if not _stands_alone(tail, last.view):
        return None
    reuse_matters = codec.rules.ids_unique or not codec.rules.results_adjacent
    if reuse_matters and _reuses_an_id(tail, entries[:entry_at]):
        return None
    if codec.rules.thinking_leads and _repeats_an_item(tail, entries[:entry_at]):
        return None
    if any(map(_OPENED, entries[:entry_at])):
        return None  # only later messages show whether the open call is valid
    keys = {entry.key for entry in tail}
    tail_edits = [edit for edit in edits if edit.anchor in keys]
    if any(isinstance(edit, Cut) for edit in tail_edits):
        return None  # the summary precedes messages of the last view
    tail_result = apply(
        tail, tail_edits, codec, weigh, composed=composed, continued=True, thinking=thinking
    )
    first = tail_result.view.rows[0] if tail_result.view.rows else None
    if isinstance(first, Slot) and not first.sources:
        return None  # Recollect added this row, which may belong before a message of the last view
    repeated_keys = {entry.key for entry in last.entries[entry_at:]}
    repairs = [repair for repair in last.view.repairs if repair.anchor not in repeated_keys]
    rows = last.view.rows[:row_at] + tail_result.view.rows
    return Applied(view=_view(rows, (*repairs, *tail_result.view.repairs)), ended_edits=())


# A long history is read in every turn, so avoid a Python call per message.
_OPENED: Final = attrgetter("message.opens")
_CALLED: Final = attrgetter("calls")


def _only_grew(last: LastView, entries: Sequence[Entry]) -> bool:
    length = len(last.entries)
    return 0 < length <= len(entries) and entries[length - 1] is last.entries[-1]


def _joint(last: LastView, *, thinking_leads: bool) -> tuple[int, int] | None:
    rows, entries = last.view.rows, last.entries
    entry_at = len(entries)
    for row_at in range(len(rows) - 1, 0, -1):
        row = rows[row_at]
        if not isinstance(row, Entry) or row.role == "tool" or row.results:
            continue
        before = rows[row_at - 1]
        if isinstance(before, Slot) and not before.sources:
            continue  # a message that Recollect added may depend on this one
        if thinking_leads and row.role == "assistant" and before.role == "assistant":
            continue
        while entry_at > 0 and entries[entry_at - 1] is not row:
            entry_at -= 1
        return (row_at, entry_at - 1) if entry_at else None
    return None


def _repeats_an_item(tail: Sequence[Entry], before: Sequence[Entry]) -> bool:
    tail_ids = {entry.message.wire_id for entry in tail if entry.message.wire_id is not None}
    return bool(tail_ids) and any(entry.message.wire_id in tail_ids for entry in before)


def _reuses_an_id(tail: Sequence[Entry], before: Sequence[Entry]) -> bool:
    called = {call_id for entry in tail for call_id in entry.calls}
    return bool(called) and not called.isdisjoint(chain.from_iterable(map(_CALLED, before)))


def _stands_alone(tail: Sequence[Entry], view: View) -> bool:
    called: set[CallId] = set()
    for entry in tail:
        if entry.message.joins:
            return False
        called.update(entry.calls)
    if any(call_id not in called for entry in tail for call_id in entry.results):
        return False
    return not any(repair.call_id in called for repair in view.repairs if repair.call_id)
