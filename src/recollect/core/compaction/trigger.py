"""What is due as the window fills, and the breaker that pauses compactions without progress.

One function says whether a flush or a compaction is due, from one set of limits, so that the two
never disagree about the reserve. A count that is not fresh triggers nothing, and "never flushed"
is None, which no count of compactions equals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recollect.core.rules.budget import WindowLimits
from recollect.core.values.compaction import CompactionResult, Due
from recollect.core.values.history import Breaker
from recollect.core.values.reason import Cause, Reason
from recollect.system.config.settings import Compaction

FAILURES = 3
PAUSE_SECONDS = 600.0
REFILLS = 3
RAPID_TURNS = 2
LEAST_FREED_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """What is due, and why."""

    due: Due
    reason: Reason
    flush_first: bool = False


def trigger(
    *,
    used_tokens: int | None,
    limits: WindowLimits,
    settings: Compaction,
    compactions: int,
    flushed_in: int | None = None,
    paused: bool = False,
    breaker_open: bool = False,
) -> TriggerResult:
    """What is due at `used_tokens`: the request as it stands, calibrated; None is not known."""
    if used_tokens is None:
        return TriggerResult(due="nothing", reason=Reason(Cause.COUNT_STALE))
    if not settings.enabled:
        return TriggerResult(due="nothing", reason=Reason(Cause.COMPACTION_OFF))
    flush_due = (
        settings.flush.enabled
        and used_tokens >= limits.flush_tokens
        and (flushed_in is None or flushed_in != compactions)
    )
    if used_tokens > limits.compact_tokens:
        limit = limits.compact_tokens
        if not paused and not breaker_open:
            over = Reason(Cause.DUE_OVER, tokens=used_tokens, limit=limit)
            return TriggerResult(due="compaction", reason=over, flush_first=flush_due)
        why = Reason(Cause.COMPACTION_UNDONE if paused else Cause.BREAKER_OPEN)
        held_back = Reason(Cause.DUE_HELD_BACK, tokens=used_tokens, limit=limit, why=why)
        return TriggerResult(due="flush" if flush_due else "nothing", reason=held_back)
    if flush_due:
        due = Reason(Cause.FLUSH_DUE, tokens=used_tokens, limit=limits.flush_tokens)
        return TriggerResult(due="flush", reason=due)
    if used_tokens >= limits.flush_tokens:
        written = Reason(Cause.FLUSHED if settings.flush.enabled else Cause.FLUSHES_OFF)
        return TriggerResult(due="nothing", reason=written)
    room = Reason(Cause.NOT_FULL, tokens=used_tokens, limit=limits.flush_tokens)
    return TriggerResult(due="nothing", reason=room)


def breaker_after(
    breaker: Breaker,
    result: CompactionResult,
    *,
    now: float,
    turn: int,
    window_tokens: int,
) -> Breaker:
    """The breaker after a compaction ended with `result`, when `turn` requests were prepared."""
    if result.convergence == "failed":
        if breaker_is_open(breaker, now=now):
            return breaker
        return _opened_if_due(replace(breaker, failures=breaker.failures + 1), now)
    freed_tokens = result.tokens_before - result.tokens_after if result.compacted else 0
    real = freed_tokens >= window_tokens * LEAST_FREED_SHARE
    last_turn = turn if result.compacted else breaker.last_turn
    trying = breaker.opened_at is not None
    if real and (trying or not _refilled_rapidly(breaker, result, turn)):
        return Breaker(last_turn=last_turn)
    if result.trigger == "manual":
        return replace(breaker, last_turn=last_turn)
    counted = replace(breaker, failures=0, refills=breaker.refills + 1, last_turn=last_turn)
    return _opened_if_due(counted, now)


def breaker_is_open(breaker: Breaker, *, now: float) -> bool:
    """Whether no compaction may be tried now; a clock that was set back never keeps it open."""
    if breaker.opened_at is None:
        return False
    return 0 <= now - breaker.opened_at < PAUSE_SECONDS


def _refilled_rapidly(breaker: Breaker, result: CompactionResult, turn: int) -> bool:
    # Without a compaction that the provider's overflow asked for, nothing could be sent at all.
    if result.trigger in ("manual", "overflow") or breaker.last_turn is None:
        return False
    return turn - breaker.last_turn <= RAPID_TURNS


def _opened_if_due(counted: Breaker, now: float) -> Breaker:
    trying = counted.opened_at is not None
    if trying or counted.failures >= FAILURES or counted.refills >= REFILLS:
        return replace(counted, opened_at=now)
    return counted
