"""The memory behind the MCP server, opened when a call first needs it. If opening fails, the call
reports why, and the next call tries again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from recollect.core.boundary import attempted
from recollect.hosts.mcp import MemoryOrder
from recollect.hosts.memories import OpenMemory
from recollect.system.config import load_settings

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.values.tenant import KeyScope


class ServedMemory(Protocol):
    """The memory that an MCP server needs."""

    @property
    def session(self) -> str | None:
        """The session whose messages the client may see; None for the whole space."""

    def engine(self, scope: KeyScope = "read") -> AbstractAsyncContextManager[Engine]:
        """Return the open engine for one call. Raise RecollectError if the memory cannot be
        opened."""

    def refusal(self, scope: KeyScope) -> str:
        """Return the reason to refuse a call that needs this scope; empty if it is allowed."""


class ClientMemory:
    """The memory of a server, opened for the first call and closed with the server."""

    def __init__(self, order: MemoryOrder) -> None:
        self.session: str | None = order.session
        self._order = order
        self._opened: OpenMemory | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def engine(self, scope: KeyScope = "read") -> AsyncIterator[Engine]:
        del scope
        async with self._opening:
            if self._opened is None:
                self._opened = await asyncio.to_thread(_open, self._order)
        yield self._opened.engine

    def refusal(self, scope: KeyScope) -> str:
        del scope
        return ""

    async def warm_up(self) -> None:
        """Search once, so that models are loaded before the first call."""
        from recollect.adapters.wiring.stores import is_stored

        async with self.engine() as engine:
            # this search must not create a memory
            if is_stored(self._order.store or engine.settings.store.url, self._order.space):
                await engine.search("warm up", budget_tokens=1)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()


def _open(order: MemoryOrder) -> OpenMemory:
    from recollect.adapters.wiring import open_memory  # this import is slow

    settings = load_settings(file=order.config, folder=None).settings
    return OpenMemory(
        open_memory(space=order.space, store=order.store, settings=settings, off_the_loop=True)
    )


@asynccontextmanager
async def opened_memory(order: MemoryOrder) -> AsyncIterator[ClientMemory]:
    """Return the memory of one server. Load the memory's models in parallel."""
    memory = ClientMemory(order)
    warming = asyncio.ensure_future(attempted(memory.warm_up()))
    try:
        yield memory
    finally:
        warming.cancel()
        await asyncio.wait({warming})
        await memory.close()
