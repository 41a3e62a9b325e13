"""The memory behind the server, and the SDK between a client's lines and our handlers.

A memory is opened when it is first needed. A failure is an answer, never the server's end, and the
next call tries again. In the daemon it is the memory that hooks have open, if that is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from recollect.core.boundary import attempted
from recollect.hosts.mcp import MemoryOrder
from recollect.system.config import load_settings

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.values.tenant import KeyScope
    from recollect.hosts.gateway.spaces import OpenSpaces
    from recollect.system.config import Settings

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INVALID_REQUEST: Final = -32_600


class ServedMemory:
    """One memory, as the server uses it."""

    def __init__(
        self,
        order: MemoryOrder,
        *,
        settings: Settings | None = None,
        spaces: OpenSpaces | None = None,
    ) -> None:
        """Without `settings`, the user's own. `spaces` are open in this process already."""
        self.order = order
        self._settings = settings
        self._spaces = spaces
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def engine(self, scope: KeyScope = "read") -> AsyncIterator[Engine]:
        """The open engine for one question; RecollectError if there is none."""
        del scope
        opened = None if self._spaces is None else await self._spaces.get(self.order.space)
        if opened is None:  # where the others' cannot be opened, trying it here says why
            yield await self._own_engine()
            return
        with opened.in_use(f"mcp {id(self)}"):
            yield opened.engine

    def refusal(self, scope: KeyScope) -> str:
        """Why a call that needs this scope is refused; empty if it is allowed."""
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
        """Open it and search once, so that the first question finds its models loaded."""
        await attempted(self._warm_up())

    async def _warm_up(self) -> None:
        await _load()
        from recollect.adapters.wiring.stores import is_stored

        async with self.engine() as engine:
            # looking must not create one
            if is_stored(self.order.store or engine.settings.store.url, self.order.space):
                await engine.search("warm up", budget_tokens=1)

    async def close(self) -> None:
        """Close the engine, if it is open."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await attempted(engine.close())


async def _load() -> None:
    """Import the engine in a thread, so that the server answers meanwhile."""
    await asyncio.to_thread(import_module, "recollect.adapters.wiring")


@contextlib.asynccontextmanager
async def served_memory(
    order: MemoryOrder, *, settings: Settings | None = None, spaces: OpenSpaces | None = None
) -> AsyncIterator[ServedMemory]:
    """The memory for one client, warming up in parallel; `spaces` are those that hooks use."""
    # Hooks see a whole space: who may see one session alone is given an engine that knows it.
    usual = order.store is None and order.session is None
    memory = ServedMemory(order, settings=settings, spaces=spaces if usual else None)
    warming = asyncio.ensure_future(memory.warm_up())
    try:
        yield memory
    finally:
        warming.cancel()
        await asyncio.wait({warming})
        await memory.close()


# A client that sends and gets lines


class LineClient:
    """One client, which sends and gets lines."""

    def __init__(
        self,
        write: Callable[[str], Awaitable[None]],
        arrived: asyncio.Queue[bytes | None] | None = None,
    ) -> None:
        """`write` sends a line to the client."""
        self.arrived = arrived or asyncio.Queue[bytes | None](maxsize=64)
        """The client's lines; None is the end."""
        self.under_way: set[str] = set()
        self._write = write

    async def serve(self, memory: ServedMemory) -> None:
        """Answer until the client has ended."""
        # in a thread, so that others are heard meanwhile
        await asyncio.to_thread(import_module, "recollect.hosts.mcp.server")
        from mcp.server.stdio import stdio_server

        from recollect.hosts.mcp.server import server_over

        streams: Any = self, self
        async with stdio_server(*streams) as (read, write):
            server = server_over(memory)
            await server.run(read, write, server.create_initialization_options())

    # as the SDK reads a file

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield lines that the SDK can read: it skips others, and the client would wait for ever.

        Repairs half characters, which JavaScript's clients send, and answers unreadable requests.
        """
        from mcp_types import jsonrpc_message_adapter
        from pydantic import ValidationError

        while (line := await self.arrived.get()) is not None:
            text = _mended(line)
            try:
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
            except ValidationError:
                if (refusal := _refusal(text)) is not None:
                    await self._write(refusal)
                continue
            if hasattr(message, "method") and hasattr(message, "id"):
                self.under_way.add(json.dumps(message.id))
            elif getattr(message, "method", "") == "notifications/cancelled":
                # a request that was taken back gets no answer
                taken_back = getattr(message, "params", None) or {}
                self.under_way.discard(json.dumps(taken_back.get("requestId")))
            yield text

    # as the SDK writes one

    async def write(self, line: str) -> None:
        """Send a message."""
        message = json.loads(line)
        await self._write(line)
        if "method" not in message:
            self.under_way.discard(json.dumps(message.get("id")))

    async def flush(self) -> None:
        """Nothing waits to be sent."""


def _mended(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    if not _HALF.search(text):
        return text
    try:
        whole = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return whole.encode("utf-8", "replace").decode()


def _refusal(text: str) -> str | None:
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return None
    request_id = request.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    error = {"code": _INVALID_REQUEST, "message": "this is no request that can be read"}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}) + "\n"
