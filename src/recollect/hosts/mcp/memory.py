"""The memory behind the MCP server, opened when a call first needs it. If opening fails, the call
reports why, and the next call tries again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from recollect.core.boundary import attempted
from recollect.hosts.mcp import MemoryOrder
from recollect.hosts.memories import MemoryPool, OpenMemory
from recollect.system.config import load_settings

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.values.tenant import KeyScope
    from recollect.system.config import Settings


class ServedMemory(Protocol):
    """The memory that an MCP server needs."""

    @property
    def session(self) -> str | None:
        """The session whose messages the client may see; None for the whole space."""

    def engine(self, scope: KeyScope = "read") -> AbstractAsyncContextManager[Engine]:
        """Return the open engine for one call. Raise RecollectError if it cannot be opened."""

    def refusal(self, scope: KeyScope) -> str:
        """Return the reason to refuse a call that needs this scope; empty if it is allowed."""


class ClientMemory:
    """The memory of one client, which stays open until the client disconnects."""

    def __init__(
        self, order: MemoryOrder, pool: MemoryPool[Any, OpenMemory], key: Hashable
    ) -> None:
        self.session: str | None = order.session
        self._order = order
        self._pool, self._key = pool, key
        self._opened: Engine | None = None
        self._opening = asyncio.Lock()
        self._holding = AsyncExitStack()

    @asynccontextmanager
    async def engine(self, scope: KeyScope = "read") -> AsyncIterator[Engine]:
        del scope
        async with self._opening:
            if self._opened is None:
                use = self._pool.use(self._key, f"mcp {id(self)}")
                self._opened = (await self._holding.enter_async_context(use)).engine
        yield self._opened

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
        await self._holding.aclose()


def order_pool(settings: Settings | None = None) -> MemoryPool[MemoryOrder, OpenMemory]:
    """Make a pool of memories with their own stores, each closed when its last client disconnects.
    Without `settings`, the user's settings are loaded."""

    def open_order(order: MemoryOrder) -> OpenMemory:
        from recollect.adapters.wiring import open_memory  # this import is slow

        loaded = settings or load_settings(file=order.config, folder=None).settings
        engine = open_memory(
            space=order.space, store=order.store, settings=loaded, off_the_loop=True
        )
        return OpenMemory(engine)

    return MemoryPool(open_order, most_open=0, idle_seconds=0.0)


@asynccontextmanager
async def served_memory(
    order: MemoryOrder, pool: MemoryPool[Any, OpenMemory], key: Hashable
) -> AsyncIterator[ClientMemory]:
    """Return the memory of one client. Load its models in parallel."""
    memory = ClientMemory(order, pool, key)
    warming = asyncio.ensure_future(attempted(memory.warm_up()))
    try:
        yield memory
    finally:
        warming.cancel()
        await asyncio.wait({warming})
        await memory.close()


@asynccontextmanager
async def only_memory(order: MemoryOrder) -> AsyncIterator[ClientMemory]:
    """Return the memory of a process that serves only this client."""
    pool = order_pool()
    try:
        async with served_memory(order, pool, order) as memory:
            yield memory
    finally:
        await pool.close()
