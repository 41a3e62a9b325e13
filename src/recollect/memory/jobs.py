"""The jobs of a space: who runs them, in a worker or beside an embedded engine.

What a job does stands in a module of its name: `embed`, `evict`, `expire`.
"""

from recollect.memory.background import BackgroundJobs
from recollect.memory.runner import (
    Attempt,
    Backoff,
    Failed,
    GiveUp,
    Handler,
    JobRunner,
    RunResult,
    day_of,
)

__all__ = [
    "Attempt",
    "BackgroundJobs",
    "Backoff",
    "Failed",
    "GiveUp",
    "Handler",
    "JobRunner",
    "RunResult",
    "day_of",
]
