"""When a chat starts a new session by itself: every day at an hour, or after idling.

Pure: the clock and the time zone are handed in. Local hours are the user's, over changes of
daylight saving time, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from recollect.config.settings import Reset


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetResult:
    """Whether a new session is due, and why or why not."""

    due: bool
    reason: str


def reset_due(
    last_activity: float | None, now: float, settings: Reset, tz: tzinfo | None = None
) -> ResetResult:
    """Whether a session that was last used at `last_activity` has ended by `now`.

    Times are seconds since the epoch; without a time zone the machine's own counts. Under
    "daily" an idle time that is set counts as well: whichever comes first.
    """
    if settings.mode is None:
        return ResetResult(due=False, reason="sessions go on until /new (session.reset.mode)")
    if last_activity is None:
        return ResetResult(due=False, reason="nothing was said in this session yet")
    idle = settings.idle_minutes
    if idle is not None and now - last_activity >= idle * 60:
        return ResetResult(due=True, reason=f"idle for {idle} minutes (session.reset.idle_minutes)")
    if settings.mode == "daily":
        if last_activity < _last_change(now, settings.at_hour, tz):
            reason = f"a new day began at {settings.at_hour:02d}:00 (session.reset.at_hour)"
            return ResetResult(due=True, reason=reason)
        return ResetResult(due=False, reason="used since the day began")
    if idle is None:
        return ResetResult(due=False, reason="no idle time is set (session.reset.idle_minutes)")
    return ResetResult(due=False, reason=f"used within the last {idle} minutes")


def _last_change(now: float, hour: int, tz: tzinfo | None) -> float:
    """When the day last began, at or before `now`."""
    local = datetime.fromtimestamp(now, tz).astimezone(tz)
    for back in range(2):
        day = local.date() - timedelta(days=back)
        change = datetime(day.year, day.month, day.day, hour, tzinfo=tz)
        if change.timestamp() <= now:
            return change.timestamp()
    return now - 24 * 3600
