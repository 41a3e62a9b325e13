"""Runs a check on cases that hypothesis makes up.

Needs hypothesis, which is imported when a check runs. Hypothesis draws in a thread of its own and
hands each case to the event loop of the check, where the store lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_CASES = 25


async def for_every(
    drawn: Callable[[], SearchStrategy[Any]],
    hold: Callable[[Any], Coroutine[Any, Any, None]],
) -> None:
    """Hold for every case that hypothesis thinks of."""
    from hypothesis import HealthCheck, given, settings

    loop = asyncio.get_running_loop()

    @settings(
        max_examples=_CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn())
    def run(case: Any) -> None:
        asyncio.run_coroutine_threadsafe(hold(case), loop).result()

    await asyncio.to_thread(run)
