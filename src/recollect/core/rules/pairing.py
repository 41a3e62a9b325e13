"""Tool pairing: every call gets a result, and every result has a call. A result belongs to the
latest call before it that has its id and no result yet, else to a later call. Recollect invents no
content except placeholder results. Every change is a `Repair`. A second pairing changes nothing. A
row is a message of the request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.core.rules.calls import Misfits, misfits
from recollect.core.rules.repairs import (
    Pairing,
    Unit,
    clean_row,
    is_result,
    is_thinking,
    note_move,
    note_omission,
    part_of,
    pieces_of,
    repair_of,
)
from recollect.core.values.edit import Repair
from recollect.core.values.history import (
    Entry,
    KeptPart,
    RewordedPart,
    Row,
    Slot,
    SlotPiece,
    StandIn,
    base_of,
)
from recollect.core.values.message import CallId, Role, Thinking, ToolCall, ToolResult
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason

STAND_IN = "[recollect] No result was recorded for this tool call; it may not have run."
"""Text of a placeholder result. A model that reads this text may call the tool again."""


class _Stretch(Unit):
    __slots__ = ("rows",)
    passes_through = True

    def __init__(self, rows: list[Row]) -> None:
        super().__init__(Slot(role="system", pieces=()))
        self.rows = rows


def pair(rows: Sequence[Row], rules: WireRules, *, continues: bool = False) -> Pairing:
    """Arrange the messages so that calls and results pair as `rules` require. With `continues` the
    provider stores earlier items, so a result without a call is not removed."""
    repairs: list[Repair] = []
    units = _units(rows, rules, repairs, misfits(rows, rules, continues=continues))
    if all(isinstance(unit, _Stretch) for unit in units):
        return _finish_pairing(units, rows, rules, repairs)
    if not rules.results_adjacent:
        _drop_repeated(units, repairs)
    match = _match_results(units)
    if match.strays:
        match.answered_ids.update(_find_answered_calls(units))
    if continues:
        match.strays = _find_answered_strays(units, match)
    _report_strays(units, match, repairs)
    _drop_unanswerable(units, match, rules, repairs)
    if rules.results_share_a_message:
        laid_out = _share_a_message(units, match, repairs)
    else:
        laid_out = _own_messages(units, match, rules, repairs)
    if rules.thinking_leads:
        laid_out = _without_idle_thinking(laid_out, repairs)
    return _finish_pairing(laid_out, rows, rules, repairs)


def _finish_pairing(
    units: Sequence[Unit], original_rows: Sequence[Row], rules: WireRules, repairs: list[Repair]
) -> Pairing:
    rows: Sequence[Row] = _rows_of_units(units)
    if rules.thinking_leads:
        rows = _with_ids_once(rows, _reasoning_by_item(original_rows), repairs)
    return Pairing(rows=tuple(rows), repairs=tuple(repairs))


def _reasoning_by_item(rows: Sequence[Row]) -> dict[str, str]:
    count: Counter[str] = Counter()
    reasoning_by_item: dict[str, str] = {}
    reasoning: str | None = None
    for base in map(base_of, rows):
        wire_id = base.message.wire_id if base is not None else None
        if base is not None and base.parts and isinstance(base.parts[0], Thinking):
            reasoning = wire_id
            continue
        if wire_id is not None:
            count[wire_id] += 1
            if reasoning is not None:
                reasoning_by_item.setdefault(wire_id, reasoning)
        reasoning = None
    return {
        wire_id: reasoning_by_item[wire_id] for wire_id in reasoning_by_item if count[wire_id] > 1
    }


def _find_answered_strays(units: list[Unit], match: _Match) -> list[tuple[int, int]]:
    answered_ids = {*match.answered_ids, CallId("")}
    answered_strays: list[tuple[int, int]] = []
    for location in match.strays:
        call_id = _result_id(units, location)
        if call_id in answered_ids:
            answered_strays.append(location)
        answered_ids.add(call_id)
    return answered_strays


def _units(
    rows: Sequence[Row], rules: WireRules, repairs: list[Repair], unfit: Misfits
) -> list[Unit]:
    units: list[Unit] = []
    blocks = _blocks(rows, rules, unfit)
    if not rules.results_adjacent:
        blocks = _without_shared_ids(blocks)
    for block, in_order in blocks:
        if not in_order:
            cleaned_rows = [clean_row(row, rules, repairs, unfit) for row in block]
            units.extend(unit for unit in cleaned_rows if unit is not None)
        elif units and isinstance(units[-1], _Stretch):
            units[-1].rows.extend(block)
        else:
            units.append(_Stretch(block))
    return units


def _with_ids_once(
    rows: Sequence[Row], reasoning_by_item: dict[str, str], repairs: list[Repair]
) -> Sequence[Row]:
    """Remove an item's id if an earlier item has the same id, or if the reasoning that produced the
    item comes after it."""
    seen: set[str] = set()
    unique_rows: list[Row] = []
    for row in rows:
        base = base_of(row)
        wire_id = base.message.wire_id if base else None
        if base is not None and wire_id is not None:
            reasoning = reasoning_by_item.get(wire_id)
            if wire_id in seen or (reasoning is not None and reasoning not in seen):
                repairs.append(repair_of("respelled", base, None, Reason(Cause.ID_TAKEN)))
                row = Slot(role=row.role, pieces=pieces_of(row), base=base, anonymous=True)
            else:
                seen.add(wire_id)
        unique_rows.append(row)
    return unique_rows


def _rows_of_units(units: Sequence[Unit]) -> tuple[Row, ...]:
    rows: list[Row] = []
    for unit in units:
        if isinstance(unit, _Stretch):
            rows.extend(unit.rows)
        else:
            rows.append(unit.to_row())
    return tuple(rows)


def _find_answered_calls(units: Sequence[Unit]) -> set[CallId]:
    stretches = [unit for unit in units if isinstance(unit, _Stretch)]
    bases = [base_of(row) for stretch in stretches for row in stretch.rows]
    return {call_id for entry in bases if entry is not None for call_id in entry.results}


def _blocks(rows: Sequence[Row], rules: WireRules, unfit: Misfits) -> list[tuple[list[Row], bool]]:
    blocks: list[tuple[list[Row], bool]] = []
    block: list[Row] = []
    calls: tuple[CallId, ...] = ()
    results: tuple[CallId, ...] = ()
    in_order = True
    previous: Role = "user"
    for row in rows:
        entry, is_whole = _shape(row)
        row_results = entry.results if entry else ()
        joins = bool(row_results) or (
            rules.thinking_leads and previous == "assistant" and row.role == "assistant"
        )
        if block and not joins:
            blocks.append((block, in_order and _answered(calls, results, block, rules)))
            block, calls, results, in_order = [], (), (), True
        if entry is None or not is_whole or entry.odd or (row_results and not block):
            in_order = False
        if unfit.touches(entry):
            in_order = False
        block.append(row)
        if entry is not None:
            if entry.calls and results:
                in_order = False  # this call follows a result of the same group of calls
            calls += entry.calls
            results += row_results
        previous = row.role
    if block:
        blocks.append((block, in_order and _answered(calls, results, block, rules)))
    return blocks


def _without_shared_ids(blocks: list[tuple[list[Row], bool]]) -> list[tuple[list[Row], bool]]:
    """Return each block of messages with true if it needs no repair. A block in correct order needs
    repair too if it shares a call id with a block in wrong order: it may hold its result."""
    loose: set[CallId] = set()
    for block, in_order in blocks:
        if not in_order:
            loose.update(_ids(block))
    return [(block, in_order and loose.isdisjoint(_ids(block))) for block, in_order in blocks]


def _ids(block: list[Row]) -> list[CallId]:
    bases = [base_of(row) for row in block]
    return [c for entry in bases if entry is not None for c in (*entry.calls, *entry.results)]


def _shape(row: Row) -> tuple[Entry | None, bool]:
    base = base_of(row)
    is_whole = isinstance(row, Entry) or (base is not None and len(row.pieces) == len(base.parts))
    return base, is_whole


def _answered(
    calls: tuple[CallId, ...], results: tuple[CallId, ...], block: list[Row], rules: WireRules
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


def _has_idle_thinking(block: list[Row]) -> bool:
    leading = False
    for row in block:
        if leading and row.role != "assistant":
            return True
        entry = base_of(row)
        leading = entry is not None and isinstance(entry.parts[0], Thinking)
    return leading


@dataclass(slots=True)
class _Match:
    answers: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    strays: list[tuple[int, int]] = field(default_factory=list)
    answered_ids: set[CallId] = field(default_factory=set)


def _drop_repeated(units: list[Unit], repairs: list[Repair]) -> None:
    """Drop a call if an earlier call with its id still waits for a result. Also drop a call that
    repeats an answered call and has no result of its own, because the tool did run."""
    waiting: dict[CallId, ToolCall] = {}
    done: dict[CallId, ToolCall] = {}
    results = [part for unit in units if unit.base for part in unit.base.parts]
    left = Counter(
        call_id for part in results if isinstance(part, ToolResult) for call_id in _may_answer(part)
    )
    for u, unit in enumerate(units):
        base = unit.base
        for part in base.parts if base is not None and unit.pieces else ():
            assert base is not None
            if isinstance(part, ToolCall):
                repeated = part.id in done and not left[part.id] and _same(part, done[part.id])
                if part.id not in waiting and not repeated:
                    waiting[part.id] = part
                    continue
                cause = Cause.CALL_OPEN if part.id in waiting else Cause.CALL_TOLD_AGAIN
                repairs.append(repair_of("left-out", base, None, Reason(cause), part.id))
                unit.change([])
                if repeated:
                    _drop_its_reasoning(units, u, repairs)
            elif isinstance(part, ToolResult):
                left.subtract(_may_answer(part))
                answered_call = next((c for c in _may_answer(part) if c in waiting), None)
                if answered_call is not None:
                    done[answered_call] = waiting.pop(answered_call)


def _may_answer(result: ToolResult) -> tuple[CallId, ...]:
    also = () if result.alternative is None else (result.alternative,)
    return (result.call_id, *also)


def _same(call: ToolCall, other: ToolCall) -> bool:
    return (call.name, call.arguments) == (other.name, other.arguments)


def _match_results(units: list[Unit]) -> _Match:
    match = _Match()
    open_calls: dict[CallId, list[tuple[int, int]]] = {}
    early: list[tuple[int, int]] = []
    for u, unit in enumerate(units):
        if not _has_tools(unit):
            continue
        for p, piece in enumerate(unit.pieces):
            part = part_of(piece)
            if isinstance(part, ToolCall):
                open_calls.setdefault(part.id, []).append((u, p))
            elif isinstance(part, ToolResult):
                waiting = open_calls.get(part.call_id)
                if not waiting and part.alternative is not None:
                    waiting = open_calls.get(part.alternative)
                if waiting:
                    match.answers[waiting.pop()] = (u, p)
                    match.answered_ids.add(part.call_id)
                else:
                    early.append((u, p))
    for location in early:
        call_id = _result_id(units, location)
        later = [call for call in open_calls.get(call_id, ()) if call > location]
        if later:
            open_calls[call_id].remove(later[0])
            match.answers[later[0]] = location
            match.answered_ids.add(call_id)
        else:
            match.strays.append(location)
    return match


def _report_strays(units: list[Unit], match: _Match, repairs: list[Repair]) -> None:
    for u, p in match.strays:
        piece = units[u].pieces[p]
        assert isinstance(piece, KeptPart | RewordedPart)
        call_id = _result_id(units, (u, p))
        second = call_id in match.answered_ids
        reason = Reason(Cause.RESULT_SECOND if second else Cause.RESULT_ORPHANED)
        repairs.append(repair_of("left-out", piece.entry, piece.part, reason, call_id))


def _drop_unanswerable(
    units: list[Unit], match: _Match, rules: WireRules, repairs: list[Repair]
) -> None:
    """Drop each call without a result whose kind does not accept a placeholder text as result."""
    if rules.stand_in_variants is None:
        return
    for u, unit in enumerate(units):
        if not _has_tools(unit):
            continue
        for p, piece in enumerate(unit.pieces):
            part = part_of(piece)
            if not isinstance(part, ToolCall) or (u, p) in match.answers:
                continue
            if part.variant not in rules.stand_in_variants:
                assert isinstance(piece, KeptPart)
                reason = Reason(Cause.CALL_UNANSWERED, kind=part.variant)
                repairs.append(repair_of("left-out", piece.entry, piece.part, reason, part.id))
                unit.change([])
                _drop_its_reasoning(units, u, repairs)


def _result_id(units: list[Unit], location: tuple[int, int]) -> CallId:
    part = part_of(units[location[0]].pieces[location[1]])
    assert isinstance(part, ToolResult)
    return part.call_id


def _drop_its_reasoning(units: list[Unit], u: int, repairs: list[Repair]) -> None:
    after = units[u + 1] if u + 1 < len(units) else None
    follows = after.pieces if after is not None and after.role == "assistant" else []
    if follows and not is_thinking(follows[0]):
        return
    while u > 0:
        u -= 1
        before = units[u]
        base = before.base
        if base is None or not before.pieces or not all(is_thinking(p) for p in before.pieces):
            return
        repairs.append(repair_of("left-out", base, None, Reason(Cause.REASONING_IDLE)))
        before.change([])


def _has_tools(unit: Unit) -> bool:
    base = unit.base
    return base is not None and bool(base.calls or base.results)


def _share_a_message(units: list[Unit], match: _Match, repairs: list[Repair]) -> list[Unit]:
    # Copy the pieces first, because moving results changes `unit.pieces`.
    pieces_by_unit = [unit.pieces for unit in units]
    moved_locations = set(match.answers.values()) | set(match.strays)
    out: list[Unit] = []
    owed: list[tuple[int, int, SlotPiece]] = []
    owner = -1
    for u, unit in enumerate(units):
        other_pieces = [
            piece for p, piece in enumerate(unit.pieces) if (u, p) not in moved_locations
        ]
        if unit.role != "user" and owed:
            out.append(_results_unit(owed, owner, None, repairs))
            owed = []
        if unit.role == "user" and owed:
            if _already_leads(owed, unit, u):
                out.append(unit)
            else:
                out.append(_results_unit(owed, owner, (u, unit, other_pieces), repairs))
            owed = []
            continue
        if len(other_pieces) != len(unit.pieces):
            unit.change(other_pieces)
        if other_pieces or unit.passes_through:
            out.append(unit)
        owed, owner = _owed_results(pieces_by_unit, match, u, repairs), u
    if owed:
        out.append(_results_unit(owed, owner, None, repairs))
    return out


def _own_messages(
    units: list[Unit], match: _Match, rules: WireRules, repairs: list[Repair]
) -> list[Unit]:
    pieces_by_unit = [unit.pieces for unit in units]
    answered_by = {answer: call for call, answer in match.answers.items()}
    strays = set(match.strays)
    out: list[Unit] = []
    waiting: list[Unit] = []
    for u, unit in enumerate(units):
        if (u, 0) in strays or not (unit.pieces or unit.passes_through):
            continue
        call = answered_by.get((u, 0))
        if call is not None and (rules.results_adjacent or u < call[0]):
            continue  # the result was placed after its call
        if waiting and (rules.results_adjacent or unit.role != "assistant"):
            out.extend(waiting)
            waiting = []
        out.append(unit)
        waiting.extend(_following(units, pieces_by_unit, match, u, rules, repairs))
    return out + waiting


def _without_idle_thinking(units: list[Unit], repairs: list[Repair]) -> list[Unit]:
    """Drop reasoning items whose following item was removed, because the provider refuses them."""
    out: list[Unit] = []
    followed = False
    for unit in reversed(units):
        if unit.role == "assistant" and len(unit.pieces) == 1 and is_thinking(unit.pieces[0]):
            if not followed:
                piece = unit.pieces[0]
                assert isinstance(piece, KeptPart | RewordedPart)
                note_omission(piece.entry, Reason(Cause.REASONING_IDLE), repairs)
                continue
        else:
            followed = unit.role == "assistant"
        out.append(unit)
    out.reverse()
    return out


def _owed_results(
    pieces_by_unit: list[list[SlotPiece]], match: _Match, u: int, repairs: list[Repair]
) -> list[tuple[int, int, SlotPiece]]:
    owed: list[tuple[int, int, SlotPiece]] = []
    missing: list[tuple[int, int, SlotPiece]] = []
    for p, piece in enumerate(pieces_by_unit[u]):
        part = part_of(piece)
        if not isinstance(part, ToolCall):
            continue
        answer = match.answers.get((u, p))
        if answer is not None:
            owed.append((*answer, pieces_by_unit[answer[0]][answer[1]]))
        else:
            missing.append((u, p, StandIn(call=part, text=STAND_IN)))
            assert isinstance(piece, KeptPart | RewordedPart)
            reason = Reason(Cause.RESULT_MISSING)
            repairs.append(repair_of("synthesised", piece.entry, piece.part, reason, part.id))
    owed.sort(key=lambda item: item[:2])
    return owed + missing


def _already_leads(owed: list[tuple[int, int, SlotPiece]], unit: Unit, u: int) -> bool:
    leads = [(at_unit, at_piece) for at_unit, at_piece, _ in owed]
    other_indexes = range(len(owed), len(unit.pieces))
    return (
        leads == [(u, p) for p in range(len(owed))]
        and not any(isinstance(owed_piece, StandIn) for _, _, owed_piece in owed)
        and not any(is_result(unit.pieces[p]) for p in other_indexes)
    )


def _results_unit(
    owed: list[tuple[int, int, SlotPiece]],
    owner: int,
    host: tuple[int, Unit, list[SlotPiece]] | None,
    repairs: list[Repair],
) -> Unit:
    host_at = host[0] if host else -1
    for at_unit, _, piece in owed:
        if isinstance(piece, KeptPart | RewordedPart) and at_unit not in (owner + 1, host_at):
            repairs.append(note_move(piece))
    pieces = [piece for _, _, piece in owed] + (host[2] if host else [])
    base = host[1].base if host else None
    return Unit(Slot(role="user", pieces=(), base=base), pieces)


def _following(
    units: list[Unit],
    pieces_by_unit: list[list[SlotPiece]],
    match: _Match,
    u: int,
    rules: WireRules,
    repairs: list[Repair],
) -> list[Unit]:
    rows: list[Unit] = []
    expected = u + 1
    for at_unit, _, piece in _owed_results(pieces_by_unit, match, u, repairs):
        if isinstance(piece, StandIn):
            rows.append(Unit(Slot(role="tool", pieces=(piece,))))
        elif rules.results_adjacent or at_unit < u:
            if at_unit != expected and isinstance(piece, KeptPart | RewordedPart):
                repairs.append(note_move(piece))
            expected += 1
            rows.append(units[at_unit])
    return rows
