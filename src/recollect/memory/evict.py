"""Evict: move the oldest segments out of the index once there are too many or they are old.

Nothing leaves the archive. The store moves them itself, in one write of its own; doing it again
finds nothing to move, so a job that is repeated does no harm.
"""

from __future__ import annotations

from typing import Final

from recollect.ports import Archive, Clock
from recollect.values.batch import Batch, Lease

KIND: Final = "evict"
_DAY_SECONDS: Final = 86_400.0


async def evict(
    lease: Lease,
    *,
    store: Archive,
    clock: Clock,
    max_segments: int | None,
    eviction_days: float | None,
) -> Batch:
    """Keep the index at its size; `index.max_segments` and `index.eviction_days`."""
    del lease
    now = clock.now()
    if max_segments is not None or eviction_days is not None:
        before = None if eviction_days is None else now - eviction_days * _DAY_SECONDS
        await store.evict(max_segments=max_segments, said_before=before)
    return Batch(at=now)
