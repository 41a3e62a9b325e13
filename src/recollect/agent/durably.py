"""Waits for the disk without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_Written = TypeVar("_Written")


async def durably(write: Callable[_P, _Written], *given: _P.args, **named: _P.kwargs) -> _Written:
    """Run `write` in a thread. A cancellation is raised after it has ended, never before, so that
    no later write overtakes it."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *given, **named))
    cancelled: asyncio.CancelledError | None = None
    while not writing.done():
        try:
            await asyncio.wait({writing})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        writing.exception()  # nobody hears of it: the cancellation goes first
        raise cancelled
    return writing.result()
