"""Apply standing edits to a history: the view they stand for, valid for its provider.

The order is fixed: the cut, what is left out, what is shortened, pairing, what we insert,
roles. Pairing comes after leaving out, so an edit can never break a pair.
Always holds: the same entries and edits give the same view, byte for byte; an entry that no
edit and no rule touches is shown as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from recollect.formats.codec import Codec
from recollect.rules.call_ids import are_acceptable, make_acceptable
from recollect.rules.pairing import pair
from recollect.rules.roles import settle
from recollect.rules.well_formed import is_well_formed
from recollect.turn.compose import Weigh, compose
from recollect.turn.place import place
from recollect.values.edit import Cut, Edit, Insert, LeaveOut, Repair, Shorten
from recollect.values.history import Composed, Entry, Row, View, behind_cut
from recollect.values.message import (
    EntryKey,
)
from recollect.values.slot import Arranged, Kept, Piece, Reworded, Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The view, and the edits whose anchor this history does not hold."""

    view: View
    gone: tuple[Edit, ...]


@dataclass(slots=True)
class _Standing:
    """Edits by the place they act on."""

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
    composed: dict[Slot, Composed] | None = None,
) -> Applied:
    """The view of `entries` under `edits`; `composed` remembers rows between turns.

    `continued`: other rows stand before these, so nobody has to begin.
    """
    if not edits and not continues and not continued and _as_it_should_be(entries, codec):
        return Applied(view=_view(entries, ()), gone=())
    standing, gone = _sorted(edits, {entry.key for entry in entries})
    hidden = behind_cut(entries, () if standing.cut is None else (standing.cut,))
    rows, notes = _remaining(entries, standing, hidden)
    given = list(rows)
    repairs: tuple[Repair, ...] = ()
    if continues or not _all_entries_well_formed(rows, codec):
        paired = pair(rows, codec.rules, continues=continues)
        rows, repairs = list(paired.rows), paired.repairs
    if codec.rules.ids_unique:
        renamed: list[Repair] = []
        rows = make_acceptable(rows, renamed)
        repairs = (*repairs, *renamed)
    rows = place(rows, standing.cut, standing.inserts, notes, codec.rules)
    settled = settle(rows, codec.rules, continued=continued, thinking=thinking, given=given)
    memory: dict[Slot, Composed] = {} if composed is None else composed
    shown = [compose(row, codec, weigh, memory) for row in settled.rows]
    return Applied(view=_view(shown, (*repairs, *settled.repairs)), gone=tuple(gone))


def _as_it_should_be(entries: Sequence[Entry], codec: Codec) -> bool:
    if codec.rules.ids_unique and not are_acceptable(entries):
        return False
    return is_well_formed(entries, codec.rules)


def _view(rows: Sequence[Row], repairs: tuple[Repair, ...]) -> View:
    return View(rows=tuple(rows), tokens=sum([row.tokens for row in rows]), repairs=repairs)


def _all_entries_well_formed(rows: Sequence[Arranged], codec: Codec) -> bool:
    entries = [row for row in rows if isinstance(row, Entry)]
    return len(entries) == len(rows) and is_well_formed(entries, codec.rules)


def _sorted(edits: Sequence[Edit], known: set[EntryKey]) -> tuple[_Standing, list[Edit]]:
    """Edits by place; those whose anchor is not in this history apart."""
    standing = _Standing()
    gone: list[Edit] = []
    for edit in edits:
        if edit.anchor is not None and edit.anchor not in known:
            gone.append(edit)
        elif isinstance(edit, LeaveOut):
            if edit.part is None:
                standing.out[edit.anchor] = edit
            else:
                standing.parts_out.setdefault(edit.anchor, set()).add(edit.part)
        elif isinstance(edit, Shorten):
            standing.reworded.setdefault(edit.anchor, {})[edit.part] = edit.text
        elif isinstance(edit, Cut):
            standing.cut = edit  # the newest cut stands; older ones lie behind it
        else:
            standing.inserts.append(edit)
    return standing, gone


def _remaining(
    entries: Sequence[Entry], standing: _Standing, hidden: AbstractSet[EntryKey]
) -> tuple[list[Arranged], dict[EntryKey | None, int]]:
    """What is left after cut, leaving out and shortening; and where messages are missing.

    The second value counts missing messages before the entry whose key it names (None: at
    the end), for the note that stands there.
    """
    rows: list[Arranged] = []
    missing: dict[EntryKey | None, int] = {}
    gap = 0
    for entry in entries:
        if entry.key in hidden:
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


def _with_part_edits(entry: Entry, standing: _Standing) -> Arranged | None:
    out = standing.parts_out.get(entry.key)
    texts = standing.reworded.get(entry.key)
    if not out and not texts:
        return entry
    pieces: list[Piece] = []
    for at in range(len(entry.parts)):
        if out and at in out:
            continue
        if texts and at in texts:
            pieces.append(Reworded(entry=entry, part=at, text=texts[at]))
        else:
            pieces.append(Kept(entry=entry, part=at))
    return Slot(role=entry.role, pieces=tuple(pieces), base=entry) if pieces else None
