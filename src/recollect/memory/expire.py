"""Expire: remove turns from the ledger that are older than it keeps them.

Segments are not touched. The store does it in one write of its own, and doing it again finds
nothing, so a job that is repeated does no harm.
"""

from __future__ import annotations

from typing import Final

from recollect.ports import Clock, Ledger
from recollect.values.batch import Batch, Lease

KIND: Final = "expire"
_DAY_SECONDS: Final = 86_400.0


async def expire(
    lease: Lease, *, store: Ledger, clock: Clock, retention_days: float | None
) -> Batch:
    """Keep the ledger to its age; `ledger.retention_days`, None for ever."""
    del lease
    now = clock.now()
    if retention_days is not None:
        await store.expire(before=now - retention_days * _DAY_SECONDS)
    return Batch(at=now)
