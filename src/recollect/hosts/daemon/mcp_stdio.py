"""`recollect mcp` on standard input and output: a process that hands on what its client says.

Clients start one for each of their windows. So it imports next to nothing: what every client asks
first is answered from here (`mcp.handshake`), the rest goes to the daemon, line by line, which has
the SDK, the memory and its models open for all of them. Where no daemon can be started, or it dies
again under the same request, or the settings of this process are others than the daemon's, the
process serves itself, with the same code and the same answers.

Owns descriptors 0 and 1. From the beginning what anybody prints, in Python or below it, goes to
standard error, and the wire is written through a descriptor that nothing else knows. It ends when
its input ends and what was asked is answered, after some seconds at the latest, so that a client
that was killed leaves no process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from recollect.hosts.daemon.client import (
    MCP_PATH,
    DaemonAway,
    connect,
    end_hung,
    ensure_daemon,
    is_older,
    note,
    replace_daemon,
)
from recollect.hosts.mcp import MemoryOrder
from recollect.hosts.mcp.handshake import EarlyAnswers

if TYPE_CHECKING:
    import asyncio

    from recollect.hosts.mcp.lines import LineClient

_CHUNK: Final = 1 << 16
_LONGEST_LINE: Final = 16 << 20
"""A longer line is no call of a model's: it is passed over, unread."""
_STOP_SECONDS: Final = 10.0
"""How long ending may take after a signal: a client that does not read would hold it for ever."""
_LAST_SECONDS: Final = 30.0
"""How long what was asked may take behind the end of the input, on a busy machine, too."""
_ANSWER_SECONDS: Final = 0.02
"""So often it is looked, at the end, whether all was answered."""
_START_SECONDS: Final = 20.0
_HEAD_SECONDS: Final = 30.0
"""So long a daemon that may just have been started takes to say that it serves; on a busy machine
serving alone takes longer still."""
_LOOK_SECONDS: Final = 15.0
"""After so long without an answer it is looked whether the daemon hangs."""
_MOST_LOST: Final = 2
"""A request under which the daemon ended so often is answered here."""
_REPLAY: Final = "recollect-opening"
"""The id of the opening request as it is told to who serves; the client has its answer."""
_INTERNAL_ERROR: Final = -32_603


def serve_stdio(order: MemoryOrder) -> None:
    """Serve until the input ends, or a signal says stop."""
    wire = Wire.claimed()
    process = McpProcess(order, wire)

    def stop(*_: object) -> None:
        overdue = threading.Timer(_STOP_SECONDS, os._exit, (1,))
        overdue.daemon = True
        overdue.start()
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        process.run()
    finally:
        process.close()


class Wire:
    """The client's end of standard input and output, kept apart from everybody who prints."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._writing = threading.Lock()

    @classmethod
    def claimed(cls) -> Wire:
        """Take 0 and 1 for the wire, and give their places to the null device and to standard
        error, for this process and those it starts."""
        sys.stdout.flush()
        read_fd, write_fd = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return cls(read_fd, write_fd)

    def lines(self) -> Iterator[bytes]:
        """What the client sends, line by line, until it is gone; blocks."""
        left, size = list[bytes](), 0
        while chunk := self._chunk():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                line = b"".join((*left, end))
                left, size = [], size + len(end)
                if size <= _LONGEST_LINE and line.strip():
                    yield line
                size = 0
            size += len(rest)
            left = [*left, rest] if size <= _LONGEST_LINE else []
        if size <= _LONGEST_LINE and b"".join(left).strip():
            yield b"".join(left)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._read_fd, _CHUNK)
        except OSError:  # the client is gone
            return b""

    def write(self, line: bytes) -> None:
        """Send a line, which has its end; blocks. Nothing where the client is gone: its input ends,
        too."""
        left = memoryview(line)
        with self._writing, contextlib.suppress(BrokenPipeError, ConnectionError):
            while left:
                left = left[os.write(self._write_fd, left) :]


class LineServer(Protocol):
    """Who answers what is handed on: the daemon, or this process."""

    def send(self, line: bytes) -> None:
        """Hand on a line, which has no end; OSError where nobody takes it any more."""

    def close(self) -> None:
        """No more comes."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """A server has ended."""

    server: LineServer


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the client said: a request's id as JSON, or None, and the line."""

    key: str | None
    line: bytes = field(repr=False)
    cancels: str | None = None
    """The id of the request that the client takes back, as JSON."""


@dataclass(frozen=True, slots=True)
class _End:
    """The client says nothing more."""


@dataclass(slots=True)
class _Waiting:
    """A request without an answer."""

    line: bytes = field(repr=False)
    lost: int = 0
    """How many servers ended while it waited."""


class McpProcess:
    """What one client says, handed on to whoever serves it, and the answers handed back."""

    def __init__(self, order: MemoryOrder, wire: Wire) -> None:
        self._order = order
        self._wire = wire
        self._early = EarlyAnswers()
        self._opening: list[bytes] = []
        """What opened the connection: told to every server anew."""
        self._opens: str | None = None
        """The request among those that wait by which it is opened; None: it was answered early."""
        self._tasks: queue.Queue[_Sent | _Lost | _End] = queue.Queue(maxsize=256)
        self._server: LineServer | None = None
        self._servers = 0
        """How many there were."""
        self._waiting: dict[str, _Waiting] = {}
        """Requests without an answer, by their ids as JSON."""
        self._all_handed_on = threading.Event()
        """The client has ended, and what it said was handed on."""
        self._asked: dict[str, tuple[LineServer, Any]] = {}
        """What a server asks the client, by the ids that the client sees: each server counts from
        the beginning, and an answer must not be taken for that of another question."""
        self._alone = order.config is not None  # settings of its own: the daemon has the user's

    def run(self) -> None:
        """Read what the client says until it has ended, and wait a while for what it asked."""
        threading.Thread(target=self._hand_on, daemon=True).start()
        for line in self._wire.lines():
            self._take(line)
        until = time.monotonic() + _LAST_SECONDS
        with contextlib.suppress(queue.Full):
            self._tasks.put(_End(), timeout=_LAST_SECONDS)
        self._all_handed_on.wait(max(0.0, until - time.monotonic()))
        while self._waiting and time.monotonic() < until:
            time.sleep(_ANSWER_SECONDS)

    def close(self) -> None:
        """The client has ended, or this process is to."""
        if self._server is not None:
            self._server.close()

    # From the client

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        early = self._early.answer(message)
        if early is not None:
            self._wire.write(json.dumps(early).encode() + b"\n")
        fields = message if isinstance(message, dict) else {}
        method, known_id = fields.get("method"), fields.get("id")
        if method == "initialize":
            self._opening = [json.dumps({**fields, "id": _REPLAY}).encode()]
            self._opens = None if early is not None else json.dumps(known_id)
        elif method == "notifications/initialized" and self._opening:
            self._opening = [self._opening[0], line]
        if early is not None:
            return
        if method is None and isinstance(known_id, str) and known_id in self._asked:
            server, own_id = self._asked.pop(known_id)
            if server is not self._server:
                return  # it was asked by one that has ended
            line = json.dumps({**fields, "id": own_id}).encode()
        is_request = isinstance(method, str) and isinstance(known_id, int | str)
        cancels = None
        if method == "notifications/cancelled" and isinstance(fields.get("params"), dict):
            cancels = json.dumps(fields["params"].get("requestId"))
        self._tasks.put(_Sent(json.dumps(known_id) if is_request else None, line, cancels))

    # To the server, in a thread of its own: finding one may take seconds

    def _hand_on(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=_LOOK_SECONDS if self._waiting else None)
            except queue.Empty:
                if not self._alone:
                    with contextlib.suppress(OSError):
                        end_hung()  # what it did not answer is asked again when it is gone
                continue
            if isinstance(task, _Lost):
                self._reconnect(task.server)
                continue
            if isinstance(task, _End):
                self._all_handed_on.set()
                continue
            if task.cancels is not None:  # it is not answered any more
                self._waiting.pop(task.cancels, None)
            if task.key is not None:
                self._waiting[task.key] = _Waiting(task.line)
            if self._server is None:
                self._connect(task.line if task.key is None else b"")
            else:
                # where it fails the server has ended, which is told and mended next
                with contextlib.suppress(OSError):
                    self._server.send(task.line)

    def _reconnect(self, lost: LineServer) -> None:
        if lost is not self._server:
            return
        self._server = None
        if not self._waiting:
            return  # with the next request
        waiting = tuple(self._waiting.values())
        for request in waiting:
            request.lost += 1
        if isinstance(lost, Alone):
            self._refuse()
            return
        if any(request.lost >= _MOST_LOST for request in waiting):
            self._go_alone("it ended under the same request again")
        self._connect(b"")

    def _connect(self, line: bytes) -> None:
        """Find who serves; tell it how the connection was opened, what waits, and this."""
        while self._server is None:
            if self._alone:
                self._server = Alone(self._order, self._relay, self._ended)
            else:
                try:
                    self._server = self._daemon()
                except TimeoutError as error:
                    with contextlib.suppress(OSError):
                        end_hung()
                    self._go_alone(str(error))
                except OSError as error:
                    self._go_alone(f"{type(error).__name__}: {error}")
        self._servers += 1
        opening = () if self._opens in self._waiting else tuple(self._opening)
        rest = () if line in (b"", *opening) else (line,)
        waiting = tuple(self._waiting.values())
        with contextlib.suppress(OSError):
            for one in (*opening, *(request.line for request in waiting), *rest):
                self._server.send(one)

    def _daemon(self) -> DaemonConnection:
        opened = self._opened_daemon()
        if is_older(opened.version):
            with contextlib.suppress(OSError):
                replace_daemon()
                opened.close()
                opened = self._opened_daemon()
        if opened.status != 200:
            opened.close()
            raise DaemonAway(f"it serves others (status {opened.status})")
        opened.begin(self._relay, self._ended)
        return opened

    def _opened_daemon(self) -> DaemonConnection:
        try:
            return DaemonConnection(self._order)
        except (FileNotFoundError, ConnectionError):
            ensure_daemon(seconds=_START_SECONDS)
            return DaemonConnection(self._order)

    def _go_alone(self, why: str) -> None:
        self._alone = True
        with contextlib.suppress(OSError):
            note(f"the client is served without the daemon: {why}", who="mcp")

    def _refuse(self) -> None:
        """Tell who waits that nobody can answer; standard error has what went wrong."""
        error = {"code": _INTERNAL_ERROR, "message": "the memory cannot be served here"}
        for key in tuple(self._waiting):
            answer = {"jsonrpc": "2.0", "id": json.loads(key), "error": error}
            self._wire.write(json.dumps(answer).encode() + b"\n")
            self._waiting.pop(key, None)  # behind the answer: at the end it is waited for

    # From the server

    def _relay(self, server: LineServer, line: bytes) -> None:
        """Hand back what a server says."""
        if server is not self._server or not line.strip():
            return
        message = json.loads(line)
        known_id = message.get("id")
        if "method" not in message:
            if known_id == _REPLAY:
                return
            self._wire.write(line + b"\n")
            self._waiting.pop(json.dumps(known_id), None)  # behind it: at the end it is waited for
            return
        if known_id is not None:
            shown = f"recollect-{self._servers}-{known_id}"
            self._asked[shown] = server, known_id
            line = json.dumps({**message, "id": shown}).encode()
        self._wire.write(line + b"\n")

    def _ended(self, server: LineServer) -> None:
        self._tasks.put(_Lost(server))


class DaemonConnection:
    """A connection to the daemon: lines go as the body of a request, and come as its reply's."""

    def __init__(self, order: MemoryOrder) -> None:
        """OSError where no daemon answers."""
        from http.client import HTTPException, HTTPResponse

        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        until = time.monotonic() + _HEAD_SECONDS
        try:
            connect(self._socket, until)
            head = f"POST {MCP_PATH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
            self._socket.sendall(f"{head}connection: close\r\n\r\n".encode())
            self.send(_written(order))
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            self._reply = HTTPResponse(self._socket, method="POST")
            self._reply.begin()
        except HTTPException as error:
            self._socket.close()
            raise ConnectionResetError("the daemon broke off") from error
        except OSError:
            self._socket.close()
            raise
        self._socket.settimeout(None)
        self.status = self._reply.status
        self.version = self._reply.getheader("x-recollect-version") or ""

    def begin(
        self, relay: Callable[[LineServer, bytes], None], ended: Callable[[LineServer], None]
    ) -> None:
        """Have every line told to `relay`, and the end to `ended`."""
        from http.client import HTTPException

        def read() -> None:
            with contextlib.suppress(OSError, ValueError, HTTPException):
                while line := self._reply.readline():
                    if line.endswith(b"\n"):  # else it is half of one
                        relay(self, line.rstrip(b"\n"))
            ended(self)

        threading.Thread(target=read, daemon=True).start()

    def send(self, line: bytes) -> None:
        """Send a line, as a chunk of the body."""
        self._socket.sendall(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))

    def close(self) -> None:
        """No more comes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _written(order: MemoryOrder) -> bytes:
    """What the daemon is asked for; with the environment, from which it sees whether it would open
    the same memory. It goes to a process of the same user, which keeps none of it."""
    # what is no UTF-8 is nothing of ours
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
    """The memory and the SDK in this process, in a thread of their own."""

    def __init__(
        self,
        order: MemoryOrder,
        relay: Callable[[LineServer, bytes], None],
        ended: Callable[[LineServer], None],
    ) -> None:
        self._order, self._relay, self._ended = order, relay, ended
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: LineClient | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import asyncio

        try:
            if self._order.config is None:
                from recollect.hosts.hooks.memory import enter_data_folder

                enter_data_folder()
            asyncio.run(self._serve())
        finally:
            self._begun.set()
            self._ended(self)

    async def _serve(self) -> None:
        import asyncio

        from recollect.hosts.mcp.lines import LineClient
        from recollect.hosts.mcp.memory import served_memory

        async def write(line: str) -> None:
            told = line.rstrip("\n").encode("utf-8", "replace")
            await asyncio.to_thread(self._relay, self, told)

        self._loop, self._client = asyncio.get_running_loop(), LineClient(write)
        self._begun.set()
        async with served_memory(self._order) as memory:
            await self._client.serve(memory)

    def send(self, line: bytes) -> None:
        """Hand it to the thread."""
        self._put(line)

    def _put(self, line: bytes | None) -> None:
        import asyncio

        self._begun.wait()
        if self._loop is None or self._client is None or not self._thread.is_alive():
            raise ConnectionResetError("it has ended")
        putting = self._client.arrived.put(line)
        asyncio.run_coroutine_threadsafe(putting, self._loop).result(_STOP_SECONDS)

    def close(self) -> None:
        """No more comes: the memory is closed."""
        with contextlib.suppress(OSError):
            self._put(None)
        self._thread.join(_STOP_SECONDS)
