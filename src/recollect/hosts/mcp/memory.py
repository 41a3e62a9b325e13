"""The memory that the MCP server answers from, opened when it is first needed.

If opening fails, the call reports why, and the next call tries again. In the daemon, hooks and MCP
clients share a memory if they use the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING

from recollect.core.boundary import attempted
from recollect.hosts.mcp import MemoryOrder
from recollect.system.config import load_settings

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.values.tenant import KeyScope
    from recollect.hosts.gateway.spaces import OpenSpaces
    from recollect.system.config import Settings


class ServedMemory:
    """One memory, as the server uses it."""

    def __init__(
        self,
        order: MemoryOrder,
        *,
        settings: Settings | None = None,
        spaces: OpenSpaces | None = None,
    ) -> None:
        """Without `settings`, the user's own are loaded. `spaces` are memories that this process
        has open already."""
        self.order = order
        self._settings = settings
        self._spaces = spaces
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self.clients = 0

    @contextlib.asynccontextmanager
    async def engine(self, scope: KeyScope = "read") -> AsyncIterator[Engine]:
        """Return the open engine for one call. Raise RecollectError if there is none."""
        del scope
        opened = None if self._spaces is None else await self._spaces.get(self.order.space)
        # Open it here, so that the error shows why the shared one cannot be opened.
        if opened is None:
            yield await self._own_engine()
            return
        with opened.in_use(f"mcp {id(self)}"):
            yield opened.engine

    def refusal(self, scope: KeyScope) -> str:
        """Return why a call that needs this scope is refused; empty if it is allowed."""
        del scope
        return ""

    async def _own_engine(self) -> Engine:
        async with self._opening:
            if self._engine is None:
                await _load()
                self._engine = self._opened()
            return self._engine

    def _opened(self) -> Engine:
        from recollect.adapters.wiring import open_memory

        return open_memory(
            space=self.order.space,
            store=self.order.store,
            settings=self._settings or load_settings(file=self.order.config, folder=None).settings,
            off_the_loop=True,
        )

    async def warm_up(self) -> None:
        """Open the memory and search once, so that models are loaded before the first call."""
        await attempted(self._warm_up())

    async def _warm_up(self) -> None:
        await _load()
        from recollect.adapters.wiring.stores import is_stored

        async with self.engine() as engine:
            # a search must not create a memory
            if is_stored(self.order.store or engine.settings.store.url, self.order.space):
                await engine.search("warm up", budget_tokens=1)

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await attempted(engine.close())


async def _load() -> None:
    """Import the engine in a thread, so that the server answers meanwhile."""
    await asyncio.to_thread(import_module, "recollect.adapters.wiring")


@contextlib.asynccontextmanager
async def served_memory(
    order: MemoryOrder,
    *,
    settings: Settings | None = None,
    spaces: OpenSpaces | None = None,
    shared: dict[MemoryOrder, ServedMemory] | None = None,
) -> AsyncIterator[ServedMemory]:
    """Open the memory of one client, and warm it up in parallel. `spaces` are the memories that
    hooks use, `shared` those of other MCP clients. The last client of a memory closes it."""
    # Hooks see the whole space, so a client of one session gets its own engine.
    usual = order.store is None and order.session is None
    shared = {} if shared is None else shared
    new = ServedMemory(order, settings=settings, spaces=spaces if usual else None)
    memory = shared.setdefault(order, new)
    memory.clients += 1
    warming = asyncio.ensure_future(memory.warm_up())
    try:
        yield memory
    finally:
        memory.clients -= 1
        if not memory.clients:
            del shared[order]
        warming.cancel()
        await asyncio.wait({warming})
        if not memory.clients:
            await memory.close()
