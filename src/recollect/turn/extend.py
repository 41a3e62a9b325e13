"""Extend the last view by what is new, where nothing before it can have changed.

Between batch moments a history only grows at its end and its edits stay the same, so the rows
of the last view up to some closed place are the rows of this one. Only speed depends on this:
always holds, and a test says so: what `extend` gives is what `apply` would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.formats.codec import Codec
from recollect.turn.apply import Applied, apply
from recollect.turn.compose import Weigh
from recollect.values.edit import Cut, Edit
from recollect.values.history import Composed, Entry, View
from recollect.values.message import CallId
from recollect.values.slot import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class LastView:
    """The last turn's history and edits, and the view that they gave."""

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
    composed: dict[Slot, Composed],
) -> Applied | None:
    """The view of `entries`, if it can be had from the last one; else None."""
    if last is None or last.edits is not edits or not _only_grew(last, entries):
        return None
    joint = _joint(last, thinking_leads=codec.rules.thinking_leads)
    if joint is None:
        return None
    row_at, entry_at = joint
    tail = entries[entry_at:]
    if not _stands_alone(tail, last.view):
        return None
    reuse_matters = codec.rules.ids_unique or not codec.rules.results_adjacent
    if reuse_matters and _reuses_an_id(tail, entries[:entry_at]):
        return None
    if codec.rules.thinking_leads and _repeats_an_item(tail, entries[:entry_at]):
        return None
    if any(entry.message.opens for entry in entries[:entry_at]):
        return None  # whether it is still at work is told by what follows
    keys = {entry.key for entry in tail}
    tail_edits = [edit for edit in edits if edit.anchor in keys]
    if any(isinstance(edit, Cut) for edit in tail_edits):
        return None  # its summary stands before the joint
    applied = apply(
        tail, tail_edits, codec, weigh, composed=composed, continued=True, thinking=thinking
    )
    first = applied.view.rows[0] if applied.view.rows else None
    if isinstance(first, Composed) and not first.sources:
        return None  # a row of our own that may stand further up
    again = {entry.key for entry in last.entries[entry_at:]}
    repairs = [repair for repair in last.view.repairs if repair.anchor not in again]
    rows = last.view.rows[:row_at] + applied.view.rows
    view = View(
        rows=rows,
        tokens=sum([row.tokens for row in rows]),
        repairs=(*repairs, *applied.view.repairs),
    )
    return Applied(view=view, gone=())


def _only_grew(last: LastView, entries: Sequence[Entry]) -> bool:
    length = len(last.entries)
    return 0 < length <= len(entries) and entries[length - 1] is last.entries[-1]


def _joint(last: LastView, *, thinking_leads: bool) -> tuple[int, int] | None:
    """The last row that came as it is and begins something new, and its place in the history."""
    rows, entries = last.view.rows, last.entries
    entry_at = len(entries)
    for row_at in range(len(rows) - 1, 0, -1):
        row = rows[row_at]
        if not isinstance(row, Entry) or row.role == "tool" or row.results:
            continue
        before = rows[row_at - 1]
        if isinstance(before, Composed) and not before.sources:
            continue  # a row of our own may be there because of this one
        if thinking_leads and row.role == "assistant" and before.role == "assistant":
            continue
        while entry_at > 0 and entries[entry_at - 1] is not row:
            entry_at -= 1
        return (row_at, entry_at - 1) if entry_at else None
    return None


def _repeats_an_item(tail: Sequence[Entry], before: Sequence[Entry]) -> bool:
    """Whether an item's own id stands on both sides of the joint."""
    tail_ids = {entry.message.wire_id for entry in tail if entry.message.wire_id is not None}
    return bool(tail_ids) and any(entry.message.wire_id in tail_ids for entry in before)


def _reuses_an_id(tail: Sequence[Entry], before: Sequence[Entry]) -> bool:
    """Whether a call in the tail may have to be renamed, or dropped, because of one before it."""
    called = {call_id for entry in tail for call_id in entry.calls}
    return bool(called) and any(called.intersection(entry.calls) for entry in before)


def _stands_alone(tail: Sequence[Entry], view: View) -> bool:
    """Whether no call or result in the tail belongs to one before it."""
    called: set[CallId] = set()
    for entry in tail:
        if entry.message.joins:
            return False
        called.update(entry.calls)
    if any(call_id not in called for entry in tail for call_id in entry.results):
        return False
    return not any(repair.call_id in called for repair in view.repairs if repair.call_id)
