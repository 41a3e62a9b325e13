"""Which result answers which call, and which answers none.

Ids may be used again later in a conversation, so a result belongs to the latest open call of
its id before it; only a result that no earlier call waits for may answer a later one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from recollect.rules.units import Unit, is_thinking, part_of, repair_of
from recollect.values.edit import Repair
from recollect.values.message import CallId, ToolCall, ToolResult
from recollect.values.reason import Cause, Reason
from recollect.values.slot import Kept, Reworded
from recollect.values.wire import WireRules


@dataclass(slots=True)
class Match:
    """Answers by the place of their call, and results that answer nothing; (unit, piece)."""

    answers: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    strays: list[tuple[int, int]] = field(default_factory=list)
    answered_ids: set[CallId] = field(default_factory=set)


def drop_repeated(units: list[Unit], repairs: list[Repair]) -> None:
    """Where results may stand anywhere, a call id may not open again before its result; and a
    call that comes again after its result, for no other, did run: it needs no stand-in."""
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
                answered = next((c for c in _may_answer(part) if c in waiting), None)
                if answered is not None:
                    done[answered] = waiting.pop(answered)


def _may_answer(result: ToolResult) -> tuple[CallId, ...]:
    """The ids of the calls that a result may answer."""
    also = () if result.alternative is None else (result.alternative,)
    return (result.call_id, *also)


def _same(call: ToolCall, other: ToolCall) -> bool:
    return (call.name, call.arguments) == (other.name, other.arguments)


def matched(units: list[Unit]) -> Match:
    """Results go to the latest open call of their id before them, else to a later one."""
    match = Match()
    open_calls: dict[CallId, list[tuple[int, int]]] = {}
    early: list[tuple[int, int]] = []
    for u, unit in enumerate(units):
        if not _has_tools(unit):
            continue
        for p, piece in enumerate(unit.pieces):
            part = part_of(piece) if isinstance(piece, Kept | Reworded) else None
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
    for at in early:
        call_id = result_id(units, at)
        later = [call for call in open_calls.get(call_id, ()) if call > at]
        if later:
            open_calls[call_id].remove(later[0])
            match.answers[later[0]] = at
            match.answered_ids.add(call_id)
        else:
            match.strays.append(at)
    return match


def report_strays(units: list[Unit], match: Match, repairs: list[Repair]) -> None:
    """Strays stay where the provider holds their call; the others are left out."""
    for u, p in match.strays:
        piece = units[u].pieces[p]
        assert isinstance(piece, Kept | Reworded)
        call_id = result_id(units, (u, p))
        second = call_id in match.answered_ids
        reason = Reason(Cause.RESULT_SECOND if second else Cause.RESULT_ORPHANED)
        repairs.append(
            Repair(
                kind="left-out",
                anchor=piece.entry.key,
                part=piece.part,
                reason=reason,
                call_id=call_id,
            )
        )


def drop_unanswerable(
    units: list[Unit], match: Match, rules: WireRules, repairs: list[Repair]
) -> None:
    """Calls without result of a kind that text cannot answer leave the view."""
    if rules.stand_in_variants is None:
        return
    for u, unit in enumerate(units):
        if not _has_tools(unit):
            continue
        for p, piece in enumerate(unit.pieces):
            part = part_of(piece) if isinstance(piece, Kept) else None
            if not isinstance(part, ToolCall) or (u, p) in match.answers:
                continue
            if part.variant not in rules.stand_in_variants:
                assert isinstance(piece, Kept)
                reason = Reason(Cause.CALL_UNANSWERED, kind=part.variant)
                repairs.append(repair_of("left-out", piece.entry, piece.part, reason, part.id))
                unit.change([])
                _drop_its_reasoning(units, u, repairs)


def result_id(units: list[Unit], at: tuple[int, int]) -> CallId:
    """The call a result names."""
    piece = units[at[0]].pieces[at[1]]
    assert isinstance(piece, Kept | Reworded)
    part = part_of(piece)
    assert isinstance(part, ToolResult)
    return part.call_id


def _drop_its_reasoning(units: list[Unit], u: int, repairs: list[Repair]) -> None:
    """The reasoning right before an item that goes led to it, and goes, too.

    Where another item of the same run follows, it led to that one as well and stays.
    """
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
