"""Clients that send and read lines: standard streams, or the daemon's connection."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from recollect.hosts.mcp.memory import ServedMemory

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INVALID_REQUEST: Final = -32_600


class LineClient:
    """One client that sends and reads lines."""

    def __init__(
        self,
        write: Callable[[str], Awaitable[None]],
        arrived: asyncio.Queue[bytes | None] | None = None,
    ) -> None:
        """`write` sends a line to the client."""
        self.arrived: asyncio.Queue[bytes | None] = arrived or asyncio.Queue(maxsize=64)
        """The client's lines; None is the end."""
        self.under_way: set[str] = set()
        self._write = write

    async def serve(self, memory: ServedMemory) -> None:
        """Answer until the client has ended."""
        # in a thread, so that others are served meanwhile
        await asyncio.to_thread(import_module, "recollect.hosts.mcp.server")
        from mcp.server.stdio import stdio_server

        from recollect.hosts.mcp.server import server_over

        streams: Any = self, self
        async with stdio_server(*streams) as (read, write):
            server = server_over(memory)
            await server.run(read, write, server.create_initialization_options())

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield lines that the SDK can read: it skips others, and the client would wait forever.
        Repairs lone surrogates, which JavaScript clients send, and answers unreadable requests."""
        from mcp_types import jsonrpc_message_adapter
        from pydantic import ValidationError

        while (line := await self.arrived.get()) is not None:
            text = _repair(line)
            try:
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
            except ValidationError:
                if (refusal := _refusal(text)) is not None:
                    await self._write(refusal)
                continue
            if hasattr(message, "method") and hasattr(message, "id"):
                self.under_way.add(json.dumps(message.id))
            elif getattr(message, "method", "") == "notifications/cancelled":
                # a cancelled request gets no answer
                taken_back = getattr(message, "params", None) or {}
                self.under_way.discard(json.dumps(taken_back.get("requestId")))
            yield text

    async def write(self, line: str) -> None:
        """Send a message."""
        message = json.loads(line)
        await self._write(line)
        if "method" not in message:
            self.under_way.discard(json.dumps(message.get("id")))

    async def flush(self) -> None:
        """Nothing waits to be sent."""


def _repair(line: bytes) -> str:
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
