"""`recollect mcp` on standard input and output: passes its client's lines to the daemon. This
module imports little, and answers the first requests itself (`mcp.handshake`). It serves the client
without the daemon in three cases: no daemon can be started, the daemon fails twice on the same
requests, or the daemon has other settings. Output of libraries goes to standard error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from recollect.hosts.daemon.client import (
    MCP_PATH,
    DaemonAway,
    end_hung,
    ensure_daemon,
    is_older,
    note,
    replace_daemon,
    socket_path,
)
from recollect.hosts.mcp import MemoryOrder
from recollect.hosts.mcp.handshake import EarlyAnswers

if TYPE_CHECKING:
    from recollect.hosts.mcp.memory import ServedMemory

_LONGEST_LINE: Final = 16 << 20
"""A line longer than this is skipped, because no model writes such a call."""
_STOP_SECONDS: Final = 10.0
"""Time limit for stopping after a signal: a client that does not read would block the stop."""
_LAST_SECONDS: Final = 30.0
_START_SECONDS: Final = 20.0
_HEAD_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 15.0
"""After this time without an answer, check whether the daemon hangs."""
_MOST_LOST: Final = 2
_REPLAY: Final = "recollect-opening"
"""Id of the opening request to a new server. The client already has the answer."""
_INTERNAL_ERROR: Final = -32_603


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
    asyncio.run(McpProcess(order, wire).run())
    # A thread may still be waiting for input or for the daemon.
    sys.stderr.flush()
    os._exit(0)


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


class McpProcess:
    """Passes a client's lines to a server (the daemon, or this process), and answers back."""

    def __init__(self, order: MemoryOrder, wire: Wire) -> None:
        self._order, self._wire = order, wire
        self._early = EarlyAnswers()
        self._opening: list[bytes] = []
        """The client's lines that opened the connection, to send to each new server."""
        self._waiting: dict[str, bytes] = {}
        self._asked: dict[str, tuple[DaemonConnection | Alone, Any]] = {}
        """Questions from servers, by the id that the client sees. Every server numbers its
        questions from the start, so the servers' own ids could collide."""
        self._server: DaemonConnection | Alone | None = None
        self._servers = self._lost = 0
        # The daemon uses the user's settings, not this config file.
        self._alone = order.config is not None
        self._outgoing: asyncio.Queue[tuple[str, str, bytes] | None] = asyncio.Queue()
        """The id of a request, the id of a cancelled request, and the line to send."""
        self._reading: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve the client until its input ends, then wait briefly for its open requests."""
        loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes | None](64)

        def read() -> None:
            for line in chain(self._wire.lines(), (None,)):
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

        threading.Thread(target=read, daemon=True).start()
        passing = asyncio.create_task(self._pass_on())
        watching = asyncio.create_task(self._watch())
        while (line := await lines.get()) is not None:
            await self._take(line)
        self._outgoing.put_nowait(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await passing
                while self._waiting:  # noqa: ASYNC110 - answers come in other tasks
                    await asyncio.sleep(0.02)
        watching.cancel()
        if self._server is not None:
            self._server.close()
            await asyncio.wait(self._reading, timeout=_STOP_SECONDS)

    async def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        early = self._early.answer(message)
        fields = message if isinstance(message, dict) else {}
        method, known_id = fields.get("method"), fields.get("id")
        if method == "initialize":
            self._opening = [json.dumps({**fields, "id": _REPLAY}).encode()]
        elif method == "notifications/initialized" and self._opening:
            self._opening = [self._opening[0], line]
        if early is not None:
            # Write this answer at once, because clients wait for it.
            self._wire.write(json.dumps(early).encode())
            return
        if method is None and isinstance(known_id, str) and known_id in self._asked:
            server, own_id = self._asked.pop(known_id)
            if server is not self._server:
                return  # the server that sent this question has ended
            line = json.dumps({**fields, "id": own_id}).encode()
        is_request = isinstance(method, str) and isinstance(known_id, int | str)
        cancelled = ""
        if method == "notifications/cancelled" and isinstance(fields.get("params"), dict):
            cancelled = json.dumps(fields["params"].get("requestId"))
        self._outgoing.put_nowait((json.dumps(known_id) if is_request else "", cancelled, line))

    async def _write(self, line: bytes) -> None:
        await asyncio.to_thread(self._wire.write, line)

    async def _pass_on(self) -> None:
        while (sent := await self._outgoing.get()) is not None:
            key, cancelled, line = sent
            self._waiting.pop(cancelled, None)
            if key:
                self._waiting[key] = line
            if self._server is None:
                await self._connect()  # `_connect` sends the opening lines and all open requests
                if key or line in (b"", *self._opening):
                    continue
            # If the server has ended, the next server gets the request.
            with contextlib.suppress(OSError):
                if self._server is not None:
                    await self._server.send(line)

    async def _watch(self) -> None:
        while True:
            before = tuple(self._waiting)
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._alone and set(before) & self._waiting.keys():
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(end_hung)

    async def _connect(self) -> None:
        if not self._alone:
            try:
                self._server = await self._daemon()
            except OSError as error:
                if isinstance(error, TimeoutError):
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(end_hung)
                self._go_alone(f"{type(error).__name__}: {error}")
        if self._alone:
            self._server = Alone(self._order)
        server = self._server
        assert server is not None
        self._servers += 1
        task = asyncio.create_task(self._relay(server))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        opens = any(b'"initialize"' in line for line in self._waiting.values())
        with contextlib.suppress(OSError):
            for line in (*([] if opens else self._opening), *self._waiting.values()):
                await server.send(line)

    async def _daemon(self) -> DaemonConnection:
        opened = await self._open_daemon()
        if is_older(opened.version):
            with contextlib.suppress(OSError):
                await asyncio.to_thread(replace_daemon)
                opened.close()
                opened = await self._open_daemon()
        if opened.status != 200:
            opened.close()
            raise DaemonAway(f"the daemon refused this client (status {opened.status})")
        return opened

    async def _open_daemon(self) -> DaemonConnection:
        try:
            return await DaemonConnection.open(self._order)
        except (FileNotFoundError, ConnectionError):
            await asyncio.to_thread(ensure_daemon, seconds=_START_SECONDS)
            return await DaemonConnection.open(self._order)

    def _go_alone(self, why: str) -> None:
        self._alone = True
        with contextlib.suppress(OSError):
            note(f"the client is served without the daemon: {why}", who="mcp")

    async def _relay(self, server: DaemonConnection | Alone) -> None:
        try:
            async for line in server.lines():
                if server is self._server and line.strip():
                    await self._answer(server, line)
        finally:
            if server is self._server:
                self._server = None
        if not self._waiting:
            return  # the next request connects to another server
        self._lost += 1
        if isinstance(server, Alone):
            error = {
                "code": _INTERNAL_ERROR,
                "message": "the memory could not be opened; run `recollect doctor`",
            }
            for key in tuple(self._waiting):
                answer = {"jsonrpc": "2.0", "id": json.loads(key), "error": error}
                await self._write(json.dumps(answer).encode())
                self._waiting.pop(key, None)
            return
        if self._lost >= _MOST_LOST and not self._alone:
            self._go_alone("the daemon ended again during the same request")
        self._outgoing.put_nowait(("", "", b""))

    async def _answer(self, server: DaemonConnection | Alone, line: bytes) -> None:
        message = json.loads(line)
        known_id = message.get("id")
        if "method" not in message:
            if known_id != _REPLAY:
                self._lost = 0
                await self._write(line)
                # Count after the write, because `run` waits for this count at the end.
                self._waiting.pop(json.dumps(known_id), None)
            return
        if known_id is not None:
            shown = f"recollect-{self._servers}-{known_id}"
            self._asked[shown] = server, known_id
            line = json.dumps({**message, "id": shown}).encode()
        await self._write(line)


class DaemonConnection:
    """A connection to the daemon. The client's lines form the body of one request, and the answers
    form the body of its reply."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status: int = 0
        self.version: str = ""

    @classmethod
    async def open(cls, order: MemoryOrder) -> DaemonConnection:
        """Connect to the daemon. Raise OSError if the daemon does not answer."""
        async with asyncio.timeout(_HEAD_SECONDS):
            opened = cls(*await asyncio.open_unix_connection(socket_path(), limit=1 << 26))
            try:
                opened._writer.write(
                    f"POST {MCP_PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                    "transfer-encoding: chunked\r\n\r\n".encode()
                )
                await opened.send(_order_line(order))
                head = await opened._reader.readuntil(b"\r\n\r\n")
            except BaseException as error:
                opened.close()
                if isinstance(error, asyncio.IncompleteReadError):
                    raise ConnectionResetError("the daemon closed the connection") from error
                raise
        opened.status = int(head.split(b" ")[1])
        version = re.search(rb"(?i)\r\nx-recollect-version: *(\S+)", head)
        opened.version = version[1].decode("latin-1") if version else ""
        return opened

    async def send(self, line: bytes) -> None:
        self._writer.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))
        await self._writer.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the reply, read chunk by chunk."""
        left = b""
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            while size := int(await self._reader.readline(), 16):
                chunk = await self._reader.readexactly(size + 2)
                *lines, left = (left + chunk[:-2]).split(b"\n")
                for line in lines:
                    yield line

    def close(self) -> None:
        self._writer.close()


def _order_line(order: MemoryOrder) -> bytes:
    """Return the first line for the daemon: the requested memory and the environment, which show
    whether the daemon would open the same memory. The daemon stores neither."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if f"{name}{value}".encode("utf-8", "ignore").decode() == f"{name}{value}"
    }
    named = environment.get("RECOLLECT_CONFIG")
    if named:
        environment["RECOLLECT_CONFIG"] = os.path.expanduser(named)  # noqa: PTH111
    asked = {"space": order.space, "store": order.store, "session": order.session}
    return json.dumps({**asked, "environment": environment}).encode()


class Alone:
    """Serves the client from this process, with its own memory and the MCP SDK."""

    def __init__(self, order: MemoryOrder) -> None:
        self._order = order
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, line: bytes) -> None:
        self._sent.put_nowait(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the SDK's lines until the SDK ends."""
        serving = asyncio.create_task(self._serve())
        serving.add_done_callback(lambda _: self._answers.put_nowait(None))
        while (line := await self._answers.get()) is not None:
            yield line
        await serving

    async def _serve(self) -> None:
        # use a thread, so that early answers are not delayed
        await asyncio.to_thread(import_module, "recollect.hosts.hooks.memory")
        from recollect.hosts.hooks.memory import enter_data_folder
        from recollect.hosts.mcp.memory import only_memory

        if self._order.config is None:
            enter_data_folder()

        async def write(line: str) -> None:
            self._answers.put_nowait(line.rstrip("\n").encode("utf-8", "replace"))

        client = LineClient(write, self._sent)
        async with only_memory(self._order) as memory:
            await client.serve(memory)

    def close(self) -> None:
        """Stop serving and close the memory."""
        self._sent.put_nowait(None)


_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INVALID_REQUEST: Final = -32_600


class LineClient:
    """A client that sends and reads lines."""

    def __init__(
        self,
        write: Callable[[str], Awaitable[None]],
        arrived: asyncio.Queue[bytes | None] | None = None,
    ) -> None:
        """`write` sends a line to the client."""
        self.arrived: asyncio.Queue[bytes | None] = arrived or asyncio.Queue(maxsize=64)
        """Lines that the client sent; None marks the end."""
        self.under_way: set[str] = set()
        self._write = write

    async def serve(self, memory: ServedMemory) -> None:
        """Answer the client's requests until its input ends."""
        # use a thread, so that other clients are served meanwhile
        await asyncio.to_thread(import_module, "recollect.hosts.mcp.server")
        from mcp.server.stdio import stdio_server

        from recollect.hosts.mcp.server import server_over

        streams: Any = self, self
        async with stdio_server(*streams) as (read, write):
            server = server_over(memory)
            await server.run(read, write, server.create_initialization_options())

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the client's lines that the SDK can read. The SDK would skip other lines, and the
        client would wait forever. Lone surrogates, which JavaScript clients send, are repaired. An
        unreadable request gets an error."""
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
        message = json.loads(line)
        await self._write(line)
        if "method" not in message:
            self.under_way.discard(json.dumps(message.get("id")))

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
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}) + "\n"
