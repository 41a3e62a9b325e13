"""The breaker: after enough compactions without progress none is tried for a while.

A session may fail to compact again and again, or compact and be full again at once, and each try
costs a model's call (notes/formats.md F 14: 211 compactions, zero progress). Pure: the engine
keeps the value with the session and hands in the time.
Always holds: a breaker that is open opens by itself to one try after `breaker_seconds`; only a
real reduction closes it for good.
"""

from __future__ import annotations

from dataclasses import replace

from recollect.config.settings import Compaction
from recollect.values.compaction import CompactionResult
from recollect.values.history import Breaker

REFILLS = 3
"""So many rapid refills in a row open the breaker; the figure of notes/formats.md F 14."""
RAPID_TURNS = 2
"""A window that is full again within so many turns was refilled rapidly."""
LEAST_FREED_SHARE = 0.05
"""A compaction that frees less of the window than this changed too little."""


def after(
    breaker: Breaker,
    result: CompactionResult,
    settings: Compaction,
    *,
    now: float,
    turn: int,
    window_tokens: int,
) -> Breaker:
    """The breaker after a compaction ended with `result` in this turn.

    A failure counts wherever it came from, transport included. A compaction that somebody asked
    for is no sign of a window that refills, so it counts only where it fails. What fails while
    the breaker is open was turned away by it and does not keep it open any longer.
    """
    if result.convergence == "failed":
        if is_open(breaker, settings, now=now):
            return breaker
        return _opened_if_due(replace(breaker, failures=breaker.failures + 1), settings, now)
    freed_tokens = result.tokens_before - result.tokens_after if result.compacted else 0
    real = freed_tokens >= window_tokens * LEAST_FREED_SHARE
    last_turn = turn if result.compacted else breaker.last_turn
    trying = breaker.opened_at is not None
    if real and (trying or not _refilled_rapidly(breaker, result, turn)):
        return Breaker(last_turn=last_turn)
    if result.trigger == "manual":
        return replace(breaker, last_turn=last_turn)
    counted = replace(breaker, failures=0, refills=breaker.refills + 1, last_turn=last_turn)
    return _opened_if_due(counted, settings, now)


def is_open(breaker: Breaker, settings: Compaction, *, now: float) -> bool:
    """Whether no compaction may be tried now; a clock that was set back never keeps it open."""
    if breaker.opened_at is None:
        return False
    return 0 <= now - breaker.opened_at < settings.breaker_seconds


def _refilled_rapidly(breaker: Breaker, result: CompactionResult, turn: int) -> bool:
    if result.trigger == "manual" or breaker.last_turn is None:
        return False
    return turn - breaker.last_turn <= RAPID_TURNS


def _opened_if_due(counted: Breaker, settings: Compaction, now: float) -> Breaker:
    """Open it at its limits; a try that did not prove itself opens it again at once."""
    trying = counted.opened_at is not None
    if trying or counted.failures >= settings.breaker_failures or counted.refills >= REFILLS:
        return replace(counted, opened_at=now)
    return counted
