"""A recording relay: passes TCP on byte for byte and keeps what went each way, with times.

One stands before the gateway and one behind it, so that what a client sent can be held against
what the provider got, and the other way round. Replies are matched by the provider's `request-id`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpExchange:
    """One request and its reply, as they crossed a relay."""

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    status: int | None
    """None: the reply never began."""
    reply_headers: Mapping[str, str] = field(repr=False)
    reply: bytes = field(repr=False)
    """The reply's body as far as it came, without its chunking."""

    @property
    def request_id(self) -> str:
        """The provider's own number of the reply; empty where it gave none."""
        return self.reply_headers.get("request-id", "")

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


@dataclass(slots=True)
class Crossing:
    """One connection."""

    opened_at: float
    sent: bytearray = field(default_factory=bytearray, repr=False)
    replied: bytearray = field(default_factory=bytearray, repr=False)
    left_at: float | None = None
    """When the client closed its side."""


class RecordingHop:
    """A relay to one address, for as long as the block runs."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port
        self._base = parts.path
        """What every target begins with."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.crossings: list[Crossing] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        started = asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(started, self._loop).result(10)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self._base}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def exchanges(self) -> list[HttpExchange]:
        """Every request so far with its reply, in order of connections."""
        found = [one for crossing in list(self.crossings) for one in exchanges_of(crossing)]
        return [replace(one, target=one.target.removeprefix(self._base)) for one in found]

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        crossing = Crossing(time.monotonic())
        self.crossings.append(crossing)
        try:
            onward, away = await asyncio.open_connection(self._host, self._port)
            back = asyncio.create_task(_pass(onward, writer, crossing.replied))
            forth = asyncio.create_task(_pass(reader, away, crossing.sent))
            try:
                done, _ = await asyncio.wait({back, forth}, return_when=asyncio.FIRST_COMPLETED)
                if forth in done:
                    crossing.left_at = time.monotonic()
            finally:
                back.cancel()
                forth.cancel()
                away.close()
        except (OSError, asyncio.CancelledError):
            pass  # the one behind is gone, or the relay is closed
        finally:
            writer.close()
            self._tasks.discard(task)


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    """Hand on what comes, as it comes, until one side is gone."""
    try:
        while chunk := await reader.read(65_536):
            kept.extend(chunk)
            writer.write(chunk)
            await writer.drain()
    except OSError:
        return


def exchanges_of(crossing: Crossing) -> Iterator[HttpExchange]:
    """The requests of one connection, each with its reply."""
    requests = list(_messages(bytes(crossing.sent)))
    without_body = {at for at, (start, _, _) in enumerate(requests) if start.startswith("HEAD ")}
    replies = _messages(bytes(crossing.replied), without_body)
    for start, headers, body in requests:
        method, target, _ = start.split(" ", 2)
        line, reply_headers, reply = next(replies, ("", {}, b""))
        yield HttpExchange(
            method=method,
            target=target,
            headers=headers,
            body=body,
            status=int(line.split(" ", 2)[1]) if line else None,
            reply_headers=reply_headers,
            reply=reply,
        )


def _messages(
    stream: bytes, without_body: Collection[int] = ()
) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """First line, headers and body of each HTTP message in a stream, the last perhaps cut off.

    `without_body` are the places of those that tell the length of a body which they have not.
    """
    at = 0
    for place in count():
        if (end := stream.find(_HEAD_END, at)) < 0:
            return
        first, *lines = stream[at:end].decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        at = end + len(_HEAD_END)
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body, at = _dechunked(stream, at)
        else:
            size = 0 if place in without_body else int(headers.get("content-length", "0"))
            body, at = stream[at : at + size], at + size
        yield first, headers, body


def _dechunked(stream: bytes, at: int) -> tuple[bytes, int]:
    """A chunked body as far as it came, and where the stream goes on."""
    parts: list[bytes] = []
    while (line_end := stream.find(b"\r\n", at)) >= 0:
        size = int(stream[at:line_end].split(b";")[0], 16)
        at = line_end + 2
        parts.append(stream[at : at + size])
        at += size + 2
        if size == 0:
            break
    return b"".join(parts), min(at, len(stream))
