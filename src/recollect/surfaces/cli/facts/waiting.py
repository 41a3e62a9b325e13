"""How many sessions wait to be read for facts, and what people are told about it.

Only reads. Always holds: a session counts once, whatever made it wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.values.job import EXTRACT_JOB

if TYPE_CHECKING:
    from recollect.ports import Store

_MOST_JOBS = 100_000


async def sessions_waiting(store: Store) -> int:
    """How many sessions have a job that reads them and has not run yet."""
    jobs = await store.jobs(limit=_MOST_JOBS)
    waiting = (one for one in jobs if one.kind == EXTRACT_JOB and one.state != "dead")
    return len({one.key.partition(":")[2] for one in waiting})


def said_waiting(count: int) -> str:
    """What to do about it; empty where nothing waits."""
    if not count:
        return ""
    who = "1 session waits" if count == 1 else f"{count:,} sessions wait"
    return f"{who} to be read: `recollect worker --once`, or at once `recollect facts read`"
