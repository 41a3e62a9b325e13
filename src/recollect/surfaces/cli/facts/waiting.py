"""How many sessions wait to be read for facts, and what people are told about it.

Only reads. Always holds: a session counts once, whatever made it wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.values.batch import EXTRACT_JOB, extract_key

if TYPE_CHECKING:
    from recollect.ports import Store

_MOST_JOBS = 100_000


async def sessions_waiting(store: Store) -> int:
    """How many sessions have a job that reads them, and messages that were not read.

    A job alone says nothing: one that waits until a session is idle stays in the queue when the
    session was read meanwhile, and finds nothing to do.
    """
    jobs = await store.jobs(limit=_MOST_JOBS)
    waiting = {one.key for one in jobs if one.kind == EXTRACT_JOB and one.state != "dead"}
    if not waiting:
        return 0
    names = [one.session for one in await store.sessions()]
    queued = [
        name
        for name in names
        if waiting.intersection(extract_key(name, left=left) for left in (True, False))
    ]
    return sum([await _is_unread(store, name) for name in queued])


async def _is_unread(store: Store, session: str) -> bool:
    read_to = await store.extracted_to(session)
    return bool(await store.page(after=read_to, limit=1, session=session))


def said_waiting(count: int) -> str:
    """What to do about it; empty where nothing waits."""
    if not count:
        return ""
    who = "1 session waits" if count == 1 else f"{count:,} sessions wait"
    return f"{who} to be read: `recollect worker --once`, or at once `recollect facts read`"
