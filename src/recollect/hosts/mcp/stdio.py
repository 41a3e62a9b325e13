"""`recollect mcp` on standard input and output. The SDK takes a second to import, so this module
answers the first requests itself (`mcp.handshake`), and imports the SDK when a request needs it.
Output of libraries goes to standard error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from itertools import chain
from typing import Any, Final

from recollect.hosts.mcp import MemoryOrder
from recollect.hosts.mcp.handshake import EarlyAnswers

_LONGEST_LINE: Final = 16 << 20
"""A line longer than this is skipped, because no model writes such a call."""
_STOP_SECONDS: Final = 10.0
"""Time limit for stopping after a signal: a client that does not read would block the stop."""
_LAST_SECONDS: Final = 30.0
"""Time limit for answers after the end of the input."""
_OPENING_ID: Final = "recollect-opening"
"""Id of the opening request to the SDK. The client already has the answer."""
_OPENING: Final = frozenset({"initialize", "notifications/initialized", "server/discover", "ping"})
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INVALID_REQUEST: Final = -32_600


def serve_stdio(order: MemoryOrder) -> None:
    """Serve the client until its input ends or a signal arrives."""
    wire = Wire.claim()

    def stop(*_: object) -> None:
        overdue = threading.Timer(_STOP_SECONDS, os._exit, (1,))
        overdue.daemon = True
        overdue.start()
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    asyncio.run(_serve(order, wire))
    # A thread may still be waiting for input.
    sys.stderr.flush()
    os._exit(0)


async def _serve(order: MemoryOrder, wire: Wire) -> None:
    client = LineClient(wire)
    threading.Thread(target=client.read, daemon=True).start()
    await client.is_needed.wait()
    if not client.has_asked:
        return
    # use a thread, so that early answers are not delayed
    await asyncio.to_thread(import_module, "recollect.hosts.mcp.server")
    from mcp.server.stdio import stdio_server

    from recollect.hosts.mcp.memory import opened_memory
    from recollect.hosts.mcp.server import server_over
    from recollect.hosts.memories import enter_data_folder

    if order.config is None:
        enter_data_folder()
    streams: Any = client, client
    async with opened_memory(order) as memory, stdio_server(*streams) as (read, write):
        server = server_over(memory)
        await server.run(read, write, server.create_initialization_options())


class Wire:
    """The client's standard input and output, which no other output can reach."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._writing = threading.Lock()

    @classmethod
    def claim(cls) -> Wire:
        """Take over file descriptors 0 and 1, and redirect them to the null device and stderr."""
        sys.stdout.flush()
        read_fd, write_fd = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return cls(read_fd, write_fd)

    def lines(self) -> Iterator[bytes]:
        """Yield the client's lines until the input ends. Iterating blocks the thread."""
        left, size = list[bytes](), 0
        while chunk := self._chunk():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                line, size = b"".join((*left, end)), size + len(end)
                if size <= _LONGEST_LINE and line.strip():
                    yield line
                left, size = [], 0
            size += len(rest)
            left = [*left, rest] if size <= _LONGEST_LINE else []
        if size <= _LONGEST_LINE and b"".join(left).strip():
            yield b"".join(left)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._read_fd, 1 << 16)
        except OSError:  # the client has disconnected
            return b""

    def write(self, line: bytes) -> None:
        """Send a line, or do nothing if the client has disconnected. Blocks the calling thread."""
        left = memoryview(line + b"\n")
        with self._writing, contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._write_fd, left) :]


class LineClient:
    """The client as the SDK's input and output: lines that arrive, and lines that are sent."""

    def __init__(self, wire: Wire) -> None:
        """Create the client in the event loop that serves it."""
        self.is_needed: asyncio.Event = asyncio.Event()
        """Set if the SDK must be imported, or the input has ended."""
        self.has_asked: bool = False
        """True if the client sent more than the requests that open the connection."""
        self._wire = wire
        self._early = EarlyAnswers()
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue(64)
        """Lines for the SDK; None marks the end."""
        self._under_way: set[str] = set()

    def read(self) -> None:
        """Read the client's lines until its input ends. Answer the first requests at once, because
        clients wait for them. Blocks the calling thread."""
        for line in chain(self._wire.lines(), (None,)):
            left = line if line is None else self._unanswered(line)
            if line is None or self.has_asked:
                self._loop.call_soon_threadsafe(self.is_needed.set)
            if line is None or left is not None:
                arriving = self._arrived.put(left)
                asyncio.run_coroutine_threadsafe(arriving, self._loop).result()

    def _unanswered(self, line: bytes) -> bytes | None:
        """Answer a line if possible. Return the line for the SDK; None if the SDK needs none."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        early = self._early.answer(message)
        method = message.get("method") if isinstance(message, dict) else None
        if early is not None:
            self._wire.write(json.dumps(early).encode())
        if method not in _OPENING:
            self.has_asked = True
        if early is None:
            return line
        opens = method == "initialize"
        return json.dumps({**message, "id": _OPENING_ID}).encode() if opens else None

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the client's lines that the SDK can read. The SDK would skip a line that it cannot
        read, and the client would wait forever. Lone surrogates, which JavaScript clients send, are
        repaired. An unreadable request gets an error."""
        from mcp_types import jsonrpc_message_adapter
        from pydantic import ValidationError

        while (line := await self._arrived.get()) is not None:
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
        if message.get("id") != _OPENING_ID:
            sent = line.rstrip("\n").encode("utf-8", "replace")
            await asyncio.to_thread(self._wire.write, sent)
        if "method" not in message:
            self._under_way.discard(json.dumps(message.get("id")))

    async def flush(self) -> None:
        """Do nothing, because every line is sent at once."""


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
    error = {"code": _INVALID_REQUEST, "message": "this is not a valid request"}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
