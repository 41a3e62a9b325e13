"""Jobs in the process of an embedded engine: a task that runs while there is something to do.

Owns when jobs run, not how. Always holds: it is started only by `wake`, in the event loop that
runs then; it ends by itself when nothing waits any more; and `close` returns soon, leaves no
task behind that could end, and no lease that nobody holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from recollect.memory.runner import Attempt, JobRunner, until

IDLE_SECONDS = 60.0
"""How often a queue that is paused or over its budget is looked at again."""
CLOSE_SECONDS = 3.0
"""How long a running job may take to end when the engine closes."""
GIVE_BACK_SECONDS = 1.0
"""How long giving it back may take then: a store that hangs lets its lease run out."""


class BackgroundJobs:
    """The jobs of one engine."""

    def __init__(
        self,
        open_runner: Callable[[], Awaitable[JobRunner]],
        *,
        attempt: Attempt,
        idle_seconds: float = IDLE_SECONDS,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        """`open_runner` is called whenever work begins: the store may be another one by then.
        `trouble` tells how jobs failed last, empty where they do not."""
        self._open_runner = open_runner
        self._attempt = attempt
        self._idle_seconds = idle_seconds
        self.trouble = trouble
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._stop = asyncio.Event()
        self._resting = asyncio.Event()
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether it is at work or waits for a job that will be due."""
        task, loop = self._task, self._loop
        return task is not None and loop is not None and not (task.done() or loop.is_closed())

    def wake(self) -> None:
        """There may be something to do; returns at once."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # events and tasks belong to the loop they were made in
            self._loop, self._task = loop, None
            self._woken, self._stop = asyncio.Event(), asyncio.Event()
            self._resting = asyncio.Event()
        self._woken.set()
        self._resting.clear()  # not a new one: somebody may wait for it
        if not self.running:
            self._task = loop.create_task(self._run())

    async def rest(self, seconds: float) -> bool:
        """Wait until all that is due was done, but no longer than this; whether it was."""
        if not self.running:
            return True
        try:
            await asyncio.wait_for(self._resting.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop. A job that does not end in time is given back to the queue."""
        self._closed = True
        task, self._task = self._task, None
        if task is None or self._loop is not asyncio.get_running_loop():
            return  # what ran in another loop ended with it
        self._stop.set()
        self._woken.set()
        _, waits = await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if waits:
            task.cancel()
            await asyncio.wait({task}, timeout=GIVE_BACK_SECONDS)

    async def _run(self) -> None:
        # the boundary: a store that is away, or jobs that fail, must never be heard of here
        await self._attempt(self._work(self._woken, self._stop))
        self._resting.set()

    async def _work(self, woken: asyncio.Event, stop: asyncio.Event) -> None:
        runner = await self._open_runner()
        while not stop.is_set():
            woken.clear()
            await runner.run_due(stop=stop)
            wait = await runner.next_due_seconds(idle_seconds=self._idle_seconds)
            if woken.is_set():
                continue
            self._resting.set()
            if wait is None:
                return
            await until(woken, wait)
