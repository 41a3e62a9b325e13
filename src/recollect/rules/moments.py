"""When edits before the tail are allowed: at batch moments, and only then.

Between them nothing before the tail changes, so the provider's prompt cache keeps working;
measured, editing a little every turn costs 4 to 6 times plain compaction (docs/sources.md).
"""

from __future__ import annotations

from recollect.config import Settings
from recollect.rules.budget import Limits
from recollect.values.moment import Moment
from recollect.values.reason import Cause, Reason

WORTHWHILE_SHARE = 20
"""A ratio alone is a batch moment only if it frees at least a twentieth of the window."""


def batch_moment(
    settings: Settings, limits: Limits, *, used_tokens: int, now: float, sent_at: float | None
) -> Moment | None:
    """The batch moment this turn is, if it is one."""
    if used_tokens > limits.limit_tokens:
        over = Reason(Cause.OVER_LIMIT, limit=limits.limit_tokens)
        return Moment(kind="over-limit", reason=over)
    pruning = settings.pruning
    if sent_at is not None and now - sent_at >= pruning.ttl.total_seconds():
        expired = Reason(Cause.CACHE_EXPIRED, minutes=(now - sent_at) / 60)
        return Moment(kind="cache-expired", reason=expired)
    if pruning.mode in ("adaptive", "aggressive"):
        share = used_tokens / limits.window_tokens
        if pruning.mode == "aggressive" or share >= pruning.soft_trim_ratio:
            return Moment(kind="ratio", reason=Reason(Cause.WINDOW_SHARE, share=share))
    return None
