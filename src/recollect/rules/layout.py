"""Where results stand: first in the user message after their calls, or as rows behind them.

Works on matched units; never decides what answers what. Order is kept wherever it is valid.
"""

from __future__ import annotations

from recollect.rules.matching import Match
from recollect.rules.units import Unit, gone, is_result, is_thinking, moved, part_of, repair_of
from recollect.values.edit import Repair
from recollect.values.message import ToolCall
from recollect.values.reason import Cause, Reason
from recollect.values.slot import Kept, Piece, Reworded, Slot, StandIn
from recollect.values.wire import WireRules

STAND_IN = "[recollect] No result was recorded for this tool call; it may not have run."
"""Marks a synthesised result; an agent that reads it can run the tool again."""


def share_a_message(units: list[Unit], match: Match, repairs: list[Repair]) -> list[Unit]:
    """Results become the first parts of the user message right after their calls."""
    held = [unit.pieces for unit in units]  # as matched: units change while results move
    taken = set(match.answers.values()) | set(match.strays)
    out: list[Unit] = []
    owed: list[tuple[int, int, Piece]] = []
    owner = -1
    for u, unit in enumerate(units):
        rest = [piece for p, piece in enumerate(unit.pieces) if (u, p) not in taken]
        if unit.role != "user" and owed:
            out.append(_results_unit(owed, owner, None, repairs))
            owed = []
        if unit.role == "user" and owed:
            if _already_leads(owed, unit, u):
                out.append(unit)
            else:
                out.append(_results_unit(owed, owner, (u, unit, rest), repairs))
            owed = []
            continue
        if len(rest) != len(unit.pieces):
            unit.change(rest)
        if rest or unit.passes_through:
            out.append(unit)
        owed, owner = _owed_results(held, match, u, repairs), u
    if owed:
        out.append(_results_unit(owed, owner, None, repairs))
    return out


def own_messages(
    units: list[Unit], match: Match, rules: WireRules, repairs: list[Repair]
) -> list[Unit]:
    """Results are rows of their own: behind their call at once, or anywhere behind it."""
    held = [unit.pieces for unit in units]
    answered_by = {answer: call for call, answer in match.answers.items()}
    strays = set(match.strays)
    out: list[Unit] = []
    waiting: list[Unit] = []
    for u, unit in enumerate(units):
        if (u, 0) in strays or not (unit.pieces or unit.passes_through):
            continue
        call = answered_by.get((u, 0))
        if call is not None and (rules.results_adjacent or u < call[0]):
            continue  # laid out behind its call
        if waiting and (rules.results_adjacent or unit.role != "assistant"):
            out.extend(waiting)
            waiting = []
        out.append(unit)
        waiting.extend(_following(units, held, match, u, rules, repairs))
    return out + waiting


def without_idle_thinking(units: list[Unit], repairs: list[Repair]) -> list[Unit]:
    """Reasoning items whose item is gone go too, or the provider refuses the request."""
    out: list[Unit] = []
    followed = False
    for unit in reversed(units):
        if unit.role == "assistant" and len(unit.pieces) == 1 and is_thinking(unit.pieces[0]):
            if not followed:
                piece = unit.pieces[0]
                assert isinstance(piece, Kept | Reworded)
                gone(piece.entry, Reason(Cause.REASONING_IDLE), repairs)
                continue
        else:
            followed = unit.role == "assistant"
        out.append(unit)
    out.reverse()
    return out


def _owed_results(
    held: list[list[Piece]], match: Match, u: int, repairs: list[Repair]
) -> list[tuple[int, int, Piece]]:
    """What must follow unit `u`: its results by original position, then stand-ins."""
    owed: list[tuple[int, int, Piece]] = []
    missing: list[tuple[int, int, Piece]] = []
    for p, piece in enumerate(held[u]):
        part = part_of(piece) if isinstance(piece, Kept | Reworded) else None
        if not isinstance(part, ToolCall):
            continue
        answer = match.answers.get((u, p))
        if answer is not None:
            owed.append((*answer, held[answer[0]][answer[1]]))
        else:
            missing.append((u, p, StandIn(call=part, text=STAND_IN)))
            assert isinstance(piece, Kept | Reworded)
            reason = Reason(Cause.RESULT_MISSING)
            repairs.append(repair_of("synthesised", piece.entry, piece.part, reason, part.id))
    owed.sort(key=lambda item: item[:2])
    return owed + missing


def _already_leads(owed: list[tuple[int, int, Piece]], unit: Unit, u: int) -> bool:
    """Whether the unit begins with exactly the results that are owed."""
    leads = [(at_unit, at_piece) for at_unit, at_piece, _ in owed]
    others = range(len(owed), len(unit.pieces))
    return (
        leads == [(u, p) for p in range(len(owed))]
        and not any(isinstance(owed_piece, StandIn) for _, _, owed_piece in owed)
        and not any(is_result(unit.pieces[p]) for p in others)
    )


def _results_unit(
    owed: list[tuple[int, int, Piece]],
    owner: int,
    host: tuple[int, Unit, list[Piece]] | None,
    repairs: list[Repair],
) -> Unit:
    """A user message that begins with the owed results and goes on with the host's rest."""
    host_at = host[0] if host else -1
    for at_unit, _, piece in owed:
        if isinstance(piece, Kept | Reworded) and at_unit not in (owner + 1, host_at):
            repairs.append(moved(piece))
    pieces = [piece for _, _, piece in owed] + (host[2] if host else [])
    base = host[1].base if host else None
    return Unit(Slot(role="user", pieces=(), base=base), pieces)


def _following(
    units: list[Unit],
    held: list[list[Piece]],
    match: Match,
    u: int,
    rules: WireRules,
    repairs: list[Repair],
) -> list[Unit]:
    """The result rows that must stand behind unit `u`."""
    rows: list[Unit] = []
    expected = u + 1
    for at_unit, _, piece in _owed_results(held, match, u, repairs):
        if isinstance(piece, StandIn):
            rows.append(Unit(Slot(role="tool", pieces=(piece,))))
        elif rules.results_adjacent or at_unit < u:
            if at_unit != expected and isinstance(piece, Kept | Reworded):
                repairs.append(moved(piece))
            expected += 1
            rows.append(units[at_unit])
    return rows
