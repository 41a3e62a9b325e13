"""Waits for the disk without holding up the event loop.

Must never leave a write behind that nobody waits for: whoever is cancelled meanwhile is told of it
when the write has ended. So what is written next stands behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_Written = TypeVar("_Written")


async def durably(write: Callable[_P, _Written], *given: _P.args, **named: _P.kwargs) -> _Written:
    """What `write` gives, run in a thread; a cancellation is raised behind it, never before."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *given, **named))
    cancelled = await _ended(writing)
    if cancelled is not None:
        writing.exception()  # told to nobody: the cancellation goes first
        raise cancelled
    return writing.result()


async def completed(write: Callable[_P, _Written], *given: _P.args, **named: _P.kwargs) -> _Written:
    """What `write` gives, run in a thread, also where it is cancelled meanwhile: for who has to
    tell what was done and has nothing more to do."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *given, **named))
    await _ended(writing)
    return writing.result()


async def _ended(writing: asyncio.Future[_Written]) -> asyncio.CancelledError | None:
    """Wait for the end, whatever comes; a cancellation that came."""
    cancelled: asyncio.CancelledError | None = None
    while not writing.done():
        try:
            await asyncio.wait({writing})
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
