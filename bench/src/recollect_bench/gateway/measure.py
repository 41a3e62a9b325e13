"""The clocks of the gateway bench: the first byte of a reply, and the gaps between its chunks."""

from __future__ import annotations

import asyncio
import http.client
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from recollect.errors import RecollectError
from recollect_bench.gateway.servers import SENT_AT
from recollect_bench.gateway.traffic import PATH, BenchRequest, slow

REPLY_SECONDS: Final = 120.0
_SENT: Final = re.compile(SENT_AT.encode() + rb"(\d+\.\d+)")


class Client:
    """A client that keeps its connection, as agents do."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_SECONDS)
        self._headers = {
            "content-type": "application/json",
            "anthropic-version": "2023-06-01",
            "x-api-key": "sk-bench",
            **(headers or {}),
        }

    def first_byte(self, request: BenchRequest) -> float:
        """Seconds from sending a request to the first byte of its reply's body.

        Anew where the server had closed the connection meanwhile.
        """
        try:
            return self._first_byte(request)
        except (ConnectionError, http.client.RemoteDisconnected):
            self._connection.close()
            return self._first_byte(request)

    def _first_byte(self, request: BenchRequest) -> float:
        headers = {**self._headers, "x-recollect-session": request.session}
        started = time.perf_counter()
        self._connection.request("POST", PATH, request.body, headers)
        reply = self._connection.getresponse()
        first = reply.read(1)
        taken = time.perf_counter() - started
        rest = reply.read()
        if reply.status != 200 or not first:
            raise RecollectError(f"a target answered {reply.status}: {(first + rest)[:300]!r}")
        return taken

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """When a chunk was sent, and when it was here; one clock for both."""

    sent: float
    came: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Many streams at once, and how evenly they came."""

    seconds: float
    streams: Sequence[Sequence[Chunk]] = field(repr=False)

    @property
    def per_second(self) -> float:
        """How many streams came to their end in a second."""
        return len(self.streams) / self.seconds

    @property
    def longest_gap_seconds(self) -> float:
        """The longest wait between two chunks, beyond the wait between their sending."""
        return max(
            (later.came - earlier.came) - (later.sent - earlier.sent)
            for chunks in self.streams
            for earlier, later in pairwise(chunks)
        )

    def delay_seconds(self, share: float) -> float:
        """How long chunks were on their way, at this share of them."""
        return quantile(
            [chunk.came - chunk.sent for chunks in self.streams for chunk in chunks], share
        )


async def stream_many(port: int, count: int, headers: Mapping[str, str] | None = None) -> Streams:
    """Open so many slow streams at once, and read them to their ends."""
    started = time.monotonic()
    streams = await asyncio.gather(
        *(_stream(port, number, headers or {}) for number in range(count))
    )
    return Streams(seconds=time.monotonic() - started, streams=streams)


async def _stream(port: int, number: int, headers: Mapping[str, str]) -> Sequence[Chunk]:
    request = slow(number)
    sent = {
        "host": f"127.0.0.1:{port}",
        "content-type": "application/json",
        "content-length": str(len(request.body)),
        "anthropic-version": "2023-06-01",
        "x-api-key": "sk-bench",
        "x-recollect-session": request.session,
        "connection": "close",
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"POST {PATH} HTTP/1.1\r\n{lines}\r\n".encode() + request.body)
        chunks: list[Chunk] = []
        begun = b""
        while received := await asyncio.wait_for(reader.read(65_536), REPLY_SECONDS):
            came = time.monotonic()
            begun = (begun + received)[-8_192:] if not chunks else b""
            chunks += [Chunk(sent=float(at), came=came) for at in _SENT.findall(received)]
    finally:
        writer.close()
    if len(chunks) < 2:
        raise RecollectError(f"a target answered a stream with {begun[:300]!r}")
    return chunks


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share is not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
