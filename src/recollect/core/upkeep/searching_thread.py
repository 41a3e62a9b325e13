"""The one thread of a process that searches and masks stored data, outside of the event loop. More
threads would slow down the other requests of a service. Their work takes turns."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache
from itertools import compress
from typing import Final, TypeVar

SLICE_SECONDS: Final = 0.02
"""Time of one turn, unless a single text takes longer. A request that is cancelled wastes its turn.
Passing work to the thread takes 0.1 ms."""
pause_share: Final[ContextVar[float]] = ContextVar("pause_share", default=0.0)
"""Pause after each turn, relative to its time. A service sets it in the context of a request."""
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


async def map_in_thread(work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """Call `work` with each item in the thread."""
    results: list[ResultT] = []
    iterator, loop = iter(items), asyncio.get_running_loop()
    began = loop.time()
    while part := await loop.run_in_executor(_thread(), _work_for_a_slice, work, iterator):
        results += part
        await asyncio.sleep((loop.time() - began) * pause_share.get())
        began = loop.time()
    return results


async def select_in_thread(test: Callable[[ItemT], bool], items: Sequence[ItemT]) -> list[ItemT]:
    """Return the items for which `test`, called in the thread, is true."""
    return list(compress(items, await map_in_thread(test, items)))


def _work_for_a_slice(work: Callable[[ItemT], ResultT], items: Iterator[ItemT]) -> list[ResultT]:
    results: list[ResultT] = []
    until = time.monotonic() + SLICE_SECONDS
    for item in items:
        results.append(work(item))
        if time.monotonic() > until:
            break
    return results


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "recollect-search")


if hasattr(os, "register_at_fork"):  # a child process has no copy of the thread
    os.register_at_fork(after_in_child=_thread.cache_clear)
