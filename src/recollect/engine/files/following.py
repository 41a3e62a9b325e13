"""Looks at memory files beside the turns: at the start, and again whenever the interval is over.

Owns when files are looked at, not how. Always holds: it is started only by `wake`, in the event
loop that runs then; a look that fails, or never ends, is never heard of in a turn; `close` returns
soon, whatever a disk does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from recollect.engine.boundary import Failure, Part, attempted
from recollect.errors import StoreError
from recollect.values.reason import Cause, Reason
from recollect.values.upkeep import MemoryFilesResult

CLOSE_SECONDS = 1.0
"""How long a look under way may take to end."""
LEAST_SECONDS = 1.0
"""The shortest interval: an interval of nothing would never let go of the processor."""


class Following:
    """The looks of one engine."""

    def __init__(
        self, look: Callable[[], Awaitable[MemoryFilesResult]], *, interval_seconds: float
    ) -> None:
        self._look = look
        self.interval_seconds = max(interval_seconds, LEAST_SECONDS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._closed = False
        self.last: MemoryFilesResult | Failure | None = None
        """What the last look did, or how it failed."""
        self._part = Part("memory files")

    @property
    def running(self) -> bool:
        """Whether it looks, or waits to look again."""
        task, loop = self._task, self._loop
        return task is not None and loop is not None and not (task.done() or loop.is_closed())

    def trouble(self) -> Reason | None:
        """What people should know of the last look; None when all is well."""
        if isinstance(self.last, Failure):
            return Reason(Cause.FILES_NOT_LOOKED_AT, error=self.last.said)
        if self.last is None or not self.last.skipped:
            return None
        first = self.last.skipped[0]
        if more := len(self.last.skipped) - 1:
            return Reason(Cause.FILES_PASSED_OVER, file=first.file, why=first.reason, more=more)
        return Reason(Cause.FILE_PASSED_OVER, file=first.file, why=first.reason)

    def wake(self) -> None:
        """Begin, unless it has begun; returns at once."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what ran in another loop ended with it
            self._loop, self._task, self._stop = loop, None, asyncio.Event()
        if not self.running:
            self._task = loop.create_task(self._follow(self._stop))

    async def close(self) -> None:
        """Stop. What a look could not finish in time is finished by the next one."""
        self._closed = True
        task, self._task = self._task, None
        if task is None or self._loop is not asyncio.get_running_loop():
            return
        self._stop.set()
        _, looks = await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if looks:
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_SECONDS)

    async def _follow(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.last = await attempted(self._look())
            if isinstance(self.last, Failure):
                if not issubclass(self.last.error, StoreError):  # the store's trouble is its own
                    self._part.away(self.last.said)
            else:
                self._part.back()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self.interval_seconds)
