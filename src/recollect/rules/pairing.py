"""Tool pairing in both directions, on parts: every call answered, every result called for.

Displaced results move behind their call, orphans and duplicates go, missing results get a
stand-in that says so, unfinished and empty turns are left out. Nothing is ever invented but
the stand-in, and every change is a `Repair` with its reason.
Always holds: pairing its own output changes nothing; stretches that are in order are passed
over as they are, so a long history costs little more than its defects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.rules.layout import own_messages, share_a_message, without_idle_thinking
from recollect.rules.matching import (
    Match,
    drop_repeated,
    drop_unanswerable,
    matched,
    report_strays,
    result_id,
)
from recollect.rules.provider_calls import Misfits, misfits
from recollect.rules.units import Unit, cleaned, pieces_of, repair_of
from recollect.values.edit import Repair
from recollect.values.history import Entry
from recollect.values.message import CallId, Role, Thinking
from recollect.values.reason import Cause, Reason
from recollect.values.slot import Arranged, Slot
from recollect.values.wire import WireRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Rows in an order that pairs every call, and what that took."""

    rows: tuple[Arranged, ...]
    repairs: tuple[Repair, ...]


class _Stretch(Unit):
    """A run of rows that are in order: passed through whole, and nothing moves into it."""

    __slots__ = ("rows",)
    passes_through = True

    def __init__(self, rows: list[Arranged]) -> None:
        super().__init__(Slot(role="system", pieces=()))
        self.rows = rows


def pair(rows: Sequence[Arranged], rules: WireRules, *, continues: bool = False) -> Pairing:
    """Arrange rows so that calls and results pair as `rules` want.

    With `continues` the provider holds earlier items itself: a result without a call stays.
    """
    repairs: list[Repair] = []
    units = _units(rows, rules, repairs, misfits(rows, rules, continues=continues))
    if all(isinstance(unit, _Stretch) for unit in units):
        return _finished(units, rules, repairs)
    if not rules.results_adjacent:
        drop_repeated(units, repairs)
    match = matched(units)
    if match.strays:
        match.answered_ids.update(_answered_in_stretches(units))
    if continues:
        match.strays = _answered_elsewhere(units, match)
    report_strays(units, match, repairs)
    drop_unanswerable(units, match, rules, repairs)
    if rules.results_share_a_message:
        laid_out = share_a_message(units, match, repairs)
    else:
        laid_out = own_messages(units, match, rules, repairs)
    if rules.thinking_leads:
        laid_out = without_idle_thinking(laid_out, repairs)
    return _finished(laid_out, rules, repairs)


def _finished(units: Sequence[Unit], rules: WireRules, repairs: list[Repair]) -> Pairing:
    rows: Sequence[Arranged] = _expanded(units)
    if rules.thinking_leads:
        rows = _with_ids_once(rows, repairs)
    return Pairing(rows=tuple(rows), repairs=tuple(repairs))


def _answered_elsewhere(units: list[Unit], match: Match) -> list[tuple[int, int]]:
    """The strays that are strays even so: without an id, or a second time."""
    known = {*match.answered_ids, CallId("")}
    left: list[tuple[int, int]] = []
    for at in match.strays:
        call_id = result_id(units, at)
        if call_id in known:
            left.append(at)
        known.add(call_id)
    return left


def _units(
    rows: Sequence[Arranged], rules: WireRules, repairs: list[Repair], unfit: Misfits
) -> list[Unit]:
    """Stretches that are in order, and the rows between them, cleaned."""
    units: list[Unit] = []
    blocks = _blocks(rows, rules, unfit)
    if not rules.results_adjacent:
        blocks = _without_shared_ids(blocks)
    for block, in_order in blocks:
        if not in_order:
            cleaned_rows = [cleaned(row, rules, repairs, unfit) for row in block]
            units.extend(unit for unit in cleaned_rows if unit is not None)
        elif units and isinstance(units[-1], _Stretch):
            units[-1].rows.extend(block)
        else:
            units.append(_Stretch(block))
    return units


def _with_ids_once(rows: Sequence[Arranged], repairs: list[Repair]) -> Sequence[Arranged]:
    """No two items under one id of their own: the later one goes out without it."""
    seen: set[str] = set()
    kept: list[Arranged] = []
    for row in rows:
        base = row if isinstance(row, Entry) else row.base
        wire_id = base.message.wire_id if base else None
        if base is None or wire_id is None or wire_id not in seen:
            kept.append(row)
        else:
            repairs.append(repair_of("respelled", base, None, Reason(Cause.ID_TAKEN)))
            kept.append(Slot(role=row.role, pieces=pieces_of(row), base=base, anonymous=True))
        if wire_id is not None:
            seen.add(wire_id)
    return kept


def _expanded(units: Sequence[Unit]) -> tuple[Arranged, ...]:
    rows: list[Arranged] = []
    for unit in units:
        if isinstance(unit, _Stretch):
            rows.extend(unit.rows)
        else:
            rows.append(unit.arranged())
    return tuple(rows)


def _answered_in_stretches(units: Sequence[Unit]) -> set[CallId]:
    stretches = [unit for unit in units if isinstance(unit, _Stretch)]
    shapes = [_shape(row)[0] for stretch in stretches for row in stretch.rows]
    return {call_id for entry in shapes if entry is not None for call_id in entry.results}


def _blocks(
    rows: Sequence[Arranged], rules: WireRules, unfit: Misfits
) -> list[tuple[list[Arranged], bool]]:
    """Runs that belong together, a caller and what answers it, and whether each is in order."""
    blocks: list[tuple[list[Arranged], bool]] = []
    block: list[Arranged] = []
    calls: tuple[CallId, ...] = ()
    results: tuple[CallId, ...] = ()
    in_order = True
    previous: Role = "user"
    for row in rows:
        entry, whole = _shape(row)
        row_results = entry.results if entry else ()
        joins = bool(row_results) or (
            rules.thinking_leads and previous == "assistant" and row.role == "assistant"
        )
        if block and not joins:
            blocks.append((block, in_order and _answered(calls, results, block, rules)))
            block, calls, results, in_order = [], (), (), True
        if entry is None or not whole or entry.odd or (row_results and not block):
            in_order = False
        if unfit.touches(entry):
            in_order = False
        block.append(row)
        if entry is not None:
            if entry.calls and results:
                in_order = False  # a call behind a result of the same run
            calls += entry.calls
            results += row_results
        previous = row.role
    if block:
        blocks.append((block, in_order and _answered(calls, results, block, rules)))
    return blocks


def _without_shared_ids(
    blocks: list[tuple[list[Arranged], bool]],
) -> list[tuple[list[Arranged], bool]]:
    """Where results may stand anywhere, a block that shares an id with one out of order may
    hold what that one lacks."""
    loose: set[CallId] = set()
    for block, in_order in blocks:
        if not in_order:
            loose.update(_ids(block))
    return [(block, in_order and loose.isdisjoint(_ids(block))) for block, in_order in blocks]


def _ids(block: list[Arranged]) -> list[CallId]:
    shapes = [_shape(row)[0] for row in block]
    return [c for entry in shapes if entry is not None for c in (*entry.calls, *entry.results)]


def _shape(row: Arranged) -> tuple[Entry | None, bool]:
    """The message a row shows, and whether it shows all of its parts."""
    if isinstance(row, Entry):
        return row, True
    if row.base is None:
        return None, False
    return row.base, len(row.pieces) == len(row.base.parts)


def _answered(
    calls: tuple[CallId, ...],
    results: tuple[CallId, ...],
    block: list[Arranged],
    rules: WireRules,
) -> bool:
    if calls != results and sorted(calls) != sorted(results):
        return False
    if calls and len(set(calls)) != len(calls):
        return False
    if rules.results_share_a_message:
        return len(block) <= 2
    if rules.thinking_leads:
        return not _has_idle_thinking(block)
    return True


def _has_idle_thinking(block: list[Arranged]) -> bool:
    leading = False
    for row in block:
        if leading and row.role != "assistant":
            return True
        entry, _ = _shape(row)
        leading = entry is not None and isinstance(entry.parts[0], Thinking)
    return leading
