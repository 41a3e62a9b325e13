"""What a provider's reply says: an overflow before the client sees it, everything else after.

The bytes are kept as they pass and read afterwards, in a thread, so that streaming costs nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from recollect.adapters.providers.overflow import recognise_overflow
from recollect.core.formats.json_text import decode
from recollect.core.formats.replies import read_error
from recollect.errors import FormatError, MissingExtra
from recollect.hosts.gateway.upstream import UpstreamReply

MOST_BYTES: Final = 100_000_000
"""More of one reply or request is not read; no model says or takes so much."""

SHORT_BYTES: Final = 32_768
LARGEST_PEEK: Final = 16_384
"""A stream's first event is looked at before it is handed on; it is shorter than this."""
_OPENING_EVENTS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})


class KeptReply:
    """The bytes of one reply as they passed."""

    def __init__(self, content_type: str, coding: str) -> None:
        self.streamed = "event-stream" in content_type
        self._coding = coding.strip().lower()
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Keep a chunk that has just been handed on."""
        self._size += len(chunk)
        if self._size <= MOST_BYTES:
            self._chunks.append(chunk)

    @property
    def is_short(self) -> bool:
        """Whether it is read in less time than the way into a thread takes."""
        return self._size <= SHORT_BYTES

    def read(self) -> Any:
        """What `observe` takes: a streamed reply's events, or the JSON body's bytes.

        FormatError where it cannot be read; what of a stream came before it broke off is read.
        """
        if self._size > MOST_BYTES:
            raise FormatError("the reply is larger than any that a model gives")
        body = decoded(b"".join(self._chunks), self._coding, whole=not self.streamed)
        return events_of(body) if self.streamed else body


def events_of(body: bytes) -> list[Any]:
    """The JSON events of a server-sent stream; `[DONE]` and comments are none."""
    events: list[Any] = []
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in block.split(b"\n") if line[:5] == b"data:"
        )
        if not data or data == b"[DONE]":
            continue
        try:
            events.append(msgspec.json.decode(data))
        except msgspec.DecodeError:  # cut off in the middle
            continue
    return events


def decoded(body: bytes, coding: str, *, whole: bool = True) -> bytes:
    """A body without its content coding; with `whole` false it may be cut off anywhere."""
    for name in reversed([name.strip() for name in coding.lower().split(",") if name.strip()]):
        body = _decoded(body, name, whole=whole)
    return body


def _decoded(body: bytes, coding: str, *, whole: bool) -> bytes:
    try:
        if coding in ("gzip", "x-gzip"):
            return _inflated(body, 31)
        if coding == "deflate":
            raw = -zlib.MAX_WBITS if body[:1] and body[0] & 0x0F != 8 else zlib.MAX_WBITS
            return _inflated(body, raw)
        if coding == "br":
            return _brotli(body)
        if coding == "zstd":
            return _zstd(body)
    except (zlib.error, ValueError) as error:
        if whole:
            raise FormatError(f"a body said to be {coding} is not") from error
        return b""
    if coding == "identity":
        return body
    raise FormatError(f"the content coding {coding!r} cannot be read here")


def _inflated(body: bytes, bits: int) -> bytes:
    unpacking = zlib.decompressobj(wbits=bits)
    unpacked = unpacking.decompress(body, MOST_BYTES)
    return _bounded(unpacked, more=bool(unpacking.unconsumed_tail))


def _brotli(body: bytes) -> bytes:
    try:
        import brotli  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra(feature="reading replies in Brotli", extra="gateway") from None
    unpacking = brotli.Decompressor()
    try:
        unpacked = bytes(unpacking.process(body, output_buffer_limit=MOST_BYTES))
    except brotli.error as error:
        raise ValueError("not Brotli") from error
    return _bounded(unpacked, more=len(unpacked) >= MOST_BYTES)


def _zstd(body: bytes) -> bytes:
    try:
        from backports import zstd
    except ImportError:
        raise MissingExtra(feature="reading replies in Zstandard", extra="gateway") from None
    unpacking = zstd.ZstdDecompressor()
    try:
        unpacked = bytes(unpacking.decompress(body, MOST_BYTES))
    except zstd.ZstdError as error:
        raise ValueError("not Zstandard") from error
    return _bounded(unpacked, more=not unpacking.eof and not unpacking.needs_input)


def _bounded(unpacked: bytes, *, more: bool) -> bytes:
    if more:
        raise FormatError(f"a body of more than {MOST_BYTES:,} bytes is not unpacked")
    return unpacked


def first_event(begun: bytes, *, after: Collection[str] = ()) -> Any:
    """The first whole event of a type not in `after`; None if none has come. A comment counts."""
    whole, end, _ = begun.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    if end and begun[:1] == b":":
        return {}
    for event in events_of(whole) if end else ():
        if not (isinstance(event, dict) and str(event.get("type")) in after):
            return event
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunReply:
    """A reply whose beginning was looked at."""

    chunks: AsyncIterator[bytes] = field(repr=False)
    """All of its body, what was looked at first."""
    overflow: dict[str, Any] | None = field(repr=False)
    """The provider's error, where it refused the request for its size."""


async def begin_reading(reply: UpstreamReply, *, nearly_full: bool) -> BegunReply:
    """Look whether a provider refuses a request for its size, before the client sees anything.

    Some answer 200 and refuse in the first event of the stream; where the request is
    `nearly_full`, also behind events that only open it.
    """
    chunks = reply.chunks()
    coding = reply.header("content-encoding")
    if reply.status >= 400:
        whole = [chunk async for chunk in chunks]
        error = _overflow(reply.status, b"".join(whole), coding)
        return BegunReply(chunks=_after(whole, chunks), overflow=error)
    if coding or "event-stream" not in reply.header("content-type"):
        return BegunReply(chunks=chunks, overflow=None)
    begun: list[bytes] = []
    event = None
    async for chunk in chunks:
        begun.append(chunk)
        event = first_event(b"".join(begun), after=_OPENING_EVENTS if nearly_full else ())
        if event is not None or sum(map(len, begun)) > LARGEST_PEEK:
            break
    return BegunReply(chunks=_after(begun, chunks), overflow=_refused_for_size(event, None))


async def _after(begun: Sequence[bytes], chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in begun:
        yield chunk
    async for chunk in chunks:
        yield chunk


def _overflow(status: int, body: bytes, coding: str) -> dict[str, Any] | None:
    try:
        fields = decode(decoded(body, coding))
    except (FormatError, MissingExtra):
        fields = {"error": {"message": body[:LARGEST_PEEK].decode("utf-8", "replace")}}
    return _refused_for_size(fields, status)


def _refused_for_size(fields: Any, status: int | None) -> dict[str, Any] | None:
    error = read_error(fields)
    if error is None:
        return None
    found = recognise_overflow(status=status, message=error.message, body=error.body)
    return dict(fields) if found is not None else None
