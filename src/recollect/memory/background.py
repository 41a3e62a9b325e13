"""Jobs in the process of an embedded engine: a task that runs while there is something to do.

Owns when jobs run, not how. Always holds: it is started only by `wake`, ends by itself when
nothing waits any more, and `close` leaves no task behind and no lease that nobody holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from recollect.memory.runner import GRACE_SECONDS, Attempt, JobRunner, until

IDLE_SECONDS = 60.0
"""How often a queue that is paused or over its budget is looked at again."""


class BackgroundJobs:
    """The jobs of one engine."""

    def __init__(
        self,
        open_runner: Callable[[], Awaitable[JobRunner]],
        *,
        attempt: Attempt,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`open_runner` is called when there is first something to do: it may open the store."""
        self._open_runner = open_runner
        self._attempt = attempt
        self._idle_seconds = idle_seconds
        self._runner: JobRunner | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether it is at work or waits for a job that will be due."""
        return self._task is not None and not self._task.done()

    def wake(self) -> None:
        """There may be something to do; returns at once."""
        if self._stop.is_set():
            return
        self._woken.set()
        if not self.running:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop. A job that does not end within the grace time is given back to the queue."""
        self._stop.set()
        self._woken.set()
        if self._task is None:
            return
        _, waits = await asyncio.wait({self._task}, timeout=2 * GRACE_SECONDS)
        if waits:  # for a store that does not answer
            self._task.cancel()
            await asyncio.wait({self._task})
        self._task = None

    async def _run(self) -> None:
        # the boundary: a store that is away, or jobs that fail, must never be heard of here
        await self._attempt(self._work())

    async def _work(self) -> None:
        if self._runner is None:
            self._runner = await self._open_runner()
        while not self._stop.is_set():
            self._woken.clear()
            await self._runner.run_due(stop=self._stop)
            wait = await self._runner.next_due_seconds(idle_seconds=self._idle_seconds)
            if self._woken.is_set():
                continue
            if wait is None:
                return
            await until(self._woken, wait)
