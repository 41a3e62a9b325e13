"""Work in threads of its own, so that neither the event loop nor the program's end waits for it.

The loop's own pool will not do: it joins its threads when the loop closes, so a model that hangs
while it loads would hang the program, and a few of them would use the pool up. Always holds:
whoever waits may be cancelled at any time and disturbs nobody; what was raised in the thread is
told to all who wait, as an error of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from recollect.errors import EmbedderError, RecollectError

T = TypeVar("T")

_QUOTED_CHARS: Final = 200


def start(work: Callable[[], T], *, name: str) -> Future[T]:
    """Begin the work; the future is done when it is."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - not kept here: handed to those who wait
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"recollect-{name}", daemon=True).start()
    return future


async def outcome(future: Future[T], *, failing: str, quoted: bool = False) -> T:
    """What the work returned; `failing` begins the sentence when it raised something foreign.

    The foreign error's own words are `quoted` only where they cannot hold what was embedded.
    """
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def tell(_: Future[T]) -> None:
        # The loop of one who no longer waits may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, done)

    future.add_done_callback(tell)
    await done
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, RecollectError):
        # The same error is raised for everyone who asks: its trace would grow each time.
        raise error.with_traceback(None)
    reason = type(error).__name__
    if quoted and str(error):
        reason += f": {str(error).splitlines()[0][:_QUOTED_CHARS]}"
    raise EmbedderError(f"{failing} ({reason})") from error


async def aside(work: Callable[[], T], *, name: str, failing: str) -> T:
    """Do the work in a thread and wait for it."""
    return await outcome(start(work, name=name), failing=failing)


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
