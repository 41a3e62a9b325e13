"""The machine's own clock, where nobody gave another one."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
