"""What is due as the window fills: nothing, a flush, or a compaction.

One function for both, from one set of limits, so that the two can never disagree about the
reserve (notes/formats.md F 8). A count that is not fresh triggers nothing (F 6), and "never
flushed" is None, which no count of compactions equals (F 7).
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.config.settings import Compaction
from recollect.rules.budget import WindowLimits
from recollect.values.compaction import Due
from recollect.values.reason import Cause, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """What is due, and why."""

    due: Due
    reason: Reason
    flush_first: bool = False
    """A compaction is due and no flush was made in this cycle: there is still room for one."""


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
    """What is due at `used_tokens`: the request as it stands, calibrated; None is not known.

    `compactions` counts those of the session, `flushed_in` is that count at the last flush.
    `paused`: a compaction was undone, and the session has not been told to compact again.
    """
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
