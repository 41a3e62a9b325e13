"""How often a call is tried again, and how long it waits in between.

Owns numbers and how a provider's wish to wait is read; `calls.py` decides whether to try again.
"""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_LONGEST_ASKED_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a call is tried again, and how long it waits in between."""

    times: int = 2
    first_seconds: float = 0.5
    longest_seconds: float = 5.0

    def pause(self, tried: int) -> float:
        """Before the next try; drawn, so that many who wait do not come back together."""
        drawn = random.uniform(1.0, 2.0)  # noqa: S311
        return min(self.longest_seconds, self.first_seconds * 2.0**tried * drawn)


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait, by whichever header; None where it does not."""
    if "retry-after-ms" in headers:
        return _seconds(headers["retry-after-ms"], per=1000.0)
    after = headers.get("retry-after")
    if after is None:
        return None
    seconds = _seconds(after)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _seconds(text: str, *, per: float = 1.0) -> float | None:
    try:
        seconds = float(text) / per
    except ValueError:
        return None
    return seconds if 0 <= seconds < _LONGEST_ASKED_SECONDS else None
