"""Work in threads of its own, so that no event loop waits for it, and the program's end not long.

The loop's own pool will not do: it joins its threads when the loop closes, so a model that hangs
while it loads would hang the program, and a few of them would use the pool up. Always holds:
whoever waits may be cancelled at any time and disturbs nobody; what was raised in the thread is
told to all who wait, as an error of ours; the end of the program waits `END_SECONDS` at most.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from recollect.errors import EmbedderError, RecollectError

T = TypeVar("T")

END_SECONDS: Final = 3.0
"""How long the end of the program waits for work under way, in all."""
_QUOTED_CHARS: Final = 200
_WAKE_SECONDS: Final = 0.05
_ending = threading.Event()


class _Aside(threading.Thread):
    """A thread of ours, known by its class."""


def start(work: Callable[[], T], *, name: str) -> Future[T]:
    """Begin the work; the future is done when it is."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    if _ending.is_set():
        future.set_exception(EmbedderError("the program ends: nothing more is begun"))
        return future

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - not kept here: handed to those who wait
            future.set_exception(error)
        else:
            future.set_result(result)

    _Aside(target=run, name=f"recollect-{name}", daemon=True).start()
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


def _await_end() -> None:
    """Let work under way come to its end, so that it does not come back from C++ to nobody.

    A daemon thread that returns to an interpreter that is being taken down is ended on the spot;
    inside the code of onnxruntime that aborts the process. Runs before that, as `atexit` does.
    """
    _ending.set()
    until = time.monotonic() + END_SECONDS
    # Whoever presses Ctrl-C now wants no more waiting.
    with contextlib.suppress(KeyboardInterrupt):
        while (left := until - time.monotonic()) > 0:
            running = [one for one in threading.enumerate() if isinstance(one, _Aside)]
            if not running:
                return
            running[0].join(min(left, _WAKE_SECONDS))


atexit.register(_await_end)
