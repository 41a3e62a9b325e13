"""How a session's compactions have been going; kept with the session between turns.

Only numbers and None, so that it is written as JSON as it stands. What they mean and when they
change is decided in `compaction.breaker`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Counts of what went wrong in a row; as made, nothing has."""

    failures: int = 0
    """Compactions in a row that failed, those that never reached the model included."""
    refills: int = 0
    """Compactions in a row after which the window was full again at once, or hardly emptier."""
    opened_at: float | None = None
    """Since when no compaction is tried; it stays until one proves itself."""
    last_turn: int | None = None
    """The turn of the last compaction that reduced; None is never."""
