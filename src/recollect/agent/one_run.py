"""Lets one run of an agent be under way at a time.

A run is an iterator, and whoever iterates may leave it half-way. Always holds: a run that somebody
still holds is never disturbed by the next one; one that nobody holds any more is ended by the
event loop, and the next one waits for that.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from typing import Any

AT_WORK = (
    "this agent is at work: wait for its turn to end, or abort it; to leave an iterator early, use "
    "contextlib.aclosing(agent.run(...))"
)


class Ticket:
    """Names a run without holding it."""

    def __init__(self) -> None:
        self._events: weakref.ref[AsyncGenerator[Any, None]] | None = None

    def give(self, events: AsyncGenerator[Any, None]) -> None:
        """The iterator of the run."""
        self._events = weakref.ref(events)

    @property
    def events(self) -> AsyncGenerator[Any, None] | None:
        """The iterator, while anybody holds it."""
        return None if self._events is None else self._events()


class OneRun:
    """The run that is under way, if one is."""

    def __init__(self) -> None:
        self._ticket: Ticket | None = None
        self._ended = asyncio.Event()

    @property
    def under_way(self) -> bool:
        """Something was begun and has not ended."""
        return self._ticket is not None

    async def begin(self, ticket: Ticket) -> None:
        """RuntimeError where another run is at work; waits for one that was left."""
        while self._ticket is not None:
            if self._ticket.events is not None:
                raise RuntimeError(AT_WORK)
            await self._ended.wait()
        self._ticket = ticket
        self._ended.clear()

    def end(self) -> None:
        """The run is over."""
        self._ticket = None
        self._ended.set()

    async def close(self) -> None:
        """End what was left half-way, and wait for it."""
        while self._ticket is not None:
            events = self._ticket.events
            if events is None or getattr(events, "ag_running", False):  # somebody iterates now
                await self._ended.wait()
            else:
                await events.aclose()
                return
