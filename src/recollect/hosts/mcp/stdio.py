"""`recollect mcp` on standard input and output, which carry only the protocol. Output of libraries
goes to standard error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any, BinaryIO, Final

from recollect.hosts.mcp import MemoryOrder

_STOP_SECONDS: Final = 10.0
"""Time limit for stopping after a signal: a client that does not read would block the stop."""
_LAST_SECONDS: Final = 30.0
"""Time limit for answers after the end of the input."""
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INVALID_REQUEST: Final = -32_600  # by JSON-RPC 2.0


def serve_stdio(order: MemoryOrder) -> None:
    """Serve the client until its input ends or a signal arrives."""
    from_client, to_client = _claim_streams()

    def stop(*_: object) -> None:
        overdue = threading.Timer(_STOP_SECONDS, os._exit, (1,))
        overdue.daemon = True
        overdue.start()
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    asyncio.run(_serve(order, from_client, to_client))
    # A thread may still be waiting for input.
    sys.stderr.flush()
    os._exit(0)


def _claim_streams() -> tuple[BinaryIO, BinaryIO]:
    """Take over file descriptors 0 and 1, and redirect them to the null device and stderr."""
    sys.stdout.flush()
    streams = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return streams


async def _serve(order: MemoryOrder, from_client: BinaryIO, to_client: BinaryIO) -> None:
    from mcp.server.stdio import stdio_server

    from recollect.hosts.mcp.server import open_client_memory, server_over
    from recollect.hosts.memories import enter_data_folder

    client, loop = LineClient(to_client), asyncio.get_running_loop()

    def read() -> None:
        for line in chain(from_client, (b"",)):
            asyncio.run_coroutine_threadsafe(client.incoming_lines.put(line), loop).result()

    threading.Thread(target=read, daemon=True).start()
    if order.config is None:
        enter_data_folder()
    streams: Any = client, client
    async with open_client_memory(order) as memory, stdio_server(*streams) as (read_end, write_end):
        server = server_over(memory)
        await server.run(read_end, write_end, server.create_initialization_options())


class LineClient:
    """The client as the SDK's input and output: lines that arrive, and lines that are sent."""

    def __init__(self, to_client: BinaryIO) -> None:
        self.incoming_lines: asyncio.Queue[bytes] = asyncio.Queue(64)
        """Lines that the client sent; an empty line marks the end of the input."""
        self._to_client = to_client
        self._under_way: set[str] = set()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the client's lines that the SDK can read. The SDK would skip a line that it cannot
        read, and the client would wait forever. Lone surrogates, which JavaScript clients send, are
        repaired. An unreadable request gets an error."""
        from mcp_types import jsonrpc_message_adapter
        from pydantic import ValidationError

        while line := await self.incoming_lines.get():
            text = _repair(line)
            try:
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
            except ValidationError:
                if (refusal := _refusal(text)) is not None:
                    await self.write(refusal)
                continue
            if hasattr(message, "method") and hasattr(message, "id"):
                self._under_way.add(json.dumps(message.id))
            elif getattr(message, "method", "") == "notifications/cancelled":
                # a cancelled request gets no answer
                taken_back = getattr(message, "params", None) or {}
                self._under_way.discard(json.dumps(taken_back.get("requestId")))
            yield text
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                while self._under_way:  # noqa: ASYNC110 - answers come in other tasks
                    await asyncio.sleep(0.02)

    async def write(self, line: str) -> None:
        message = json.loads(line)
        await asyncio.to_thread(self._send, line.encode("utf-8", "replace"))
        if "method" not in message:
            self._under_way.discard(json.dumps(message.get("id")))

    def _send(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # the client has disconnected
            self._to_client.write(line)
            self._to_client.flush()

    async def flush(self) -> None:
        """Do nothing, because every line is sent at once."""


def _repair(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    if not _HALF.search(text):
        return text
    try:
        valid_text = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return valid_text.encode("utf-8", "replace").decode()


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
    error = {"code": _INVALID_REQUEST, "message": "this is not a valid request"}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}) + "\n"
