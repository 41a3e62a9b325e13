"""What is due as the window fills: nothing, a flush, or a compaction.

One function for both, from one set of limits, so that the two can never disagree about the
reserve (notes/formats.md F 8). A count that is not fresh triggers nothing (F 6), and "never
flushed" is None, which no count of compactions equals (F 7).
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.config.settings import Compaction
from recollect.rules.budget import Limits
from recollect.values.compaction import Due


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """What is due, and why."""

    due: Due
    reason: str
    flush_first: bool = False
    """A compaction is due and no flush was made in this cycle: there is still room for one."""


def trigger(
    *,
    used_tokens: int | None,
    limits: Limits,
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
        return TriggerResult(due="nothing", reason="how full the window is has to be counted anew")
    if not settings.enabled:
        return TriggerResult(due="nothing", reason="compaction is off in the settings")
    flush_due = (
        settings.flush.enabled
        and used_tokens >= limits.flush_tokens
        and (flushed_in is None or flushed_in != compactions)
    )
    if used_tokens > limits.compact_tokens:
        over = f"{used_tokens:,} tokens are over the limit of {limits.compact_tokens:,}"
        held_back = _held_back(paused=paused, breaker_open=breaker_open)
        if not held_back:
            return TriggerResult(due="compaction", reason=over, flush_first=flush_due)
        return TriggerResult(
            due="flush" if flush_due else "nothing", reason=f"{over}, but {held_back}"
        )
    if flush_due:
        return TriggerResult(
            due="flush",
            reason=f"{used_tokens:,} tokens: from {limits.flush_tokens:,} on notes are written",
        )
    if used_tokens >= limits.flush_tokens:
        why = "notes were written in this cycle" if settings.flush.enabled else "flushes are off"
        return TriggerResult(due="nothing", reason=f"no compaction is due yet, and {why}")
    return TriggerResult(
        due="nothing", reason=f"{used_tokens:,} tokens are under {limits.flush_tokens:,}"
    )


def _held_back(*, paused: bool, breaker_open: bool) -> str:
    if paused:
        return "the last compaction was undone: the session waits to be told to compact again"
    if breaker_open:
        return "compactions made no progress lately and are paused for a while"
    return ""
