"""Waits for work that the user may stop waiting for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Waiting:
    """One piece of work at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None

    def abort(self) -> None:
        """End the work; nothing is waited for: nothing happens."""
        if self._task is not None:
            self._task.cancel()

    async def unless_aborted(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """What the work comes to; None where the user did not wait for it.

        Work that has something to tell although it was ended tells it. The engine ends a
        compaction that nobody waits for by itself; it is recorded when the next request shows
        its cut.
        """
        task = self._task = asyncio.create_task(work)
        try:
            await asyncio.wait({task})
        finally:
            self._task = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return None if task.cancelled() else task.result()
