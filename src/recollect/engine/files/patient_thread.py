"""Work on files that may never answer: in a thread that nobody has to wait for.

Owns how long such work is waited for. Must never keep a process from ending: a disk that hangs
holds its thread for ever, and the threads of an event loop's own pool are waited for at its end.
Always holds: while one piece of work hangs, no other is begun, so at most one thread is lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class PatientThread:
    """Runs blocking work, each in a thread of its own."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long one piece of work may take."""
        self._seconds = seconds
        self._late: Future[Any] | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` gives; TimeoutError when it takes too long, or earlier work still does."""
        if self._late is not None and not self._late.done():
            raise TimeoutError
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                done.set_exception(error)

        threading.Thread(target=run, name="recollect-files", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(done), self._seconds)
        finally:
            if not done.done():
                self._late = done
