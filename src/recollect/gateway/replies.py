"""What a provider's reply said, read after it has gone to the client.

The bytes are kept as they pass and read afterwards, in a thread, so that streaming costs nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Any, Final

import msgspec

from recollect.errors import FormatError, MissingExtra

MOST_BYTES: Final = 100_000_000
"""More of one reply or request is not read; no model says or takes so much."""


SHORT_BYTES: Final = 32_768


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
    """What was unpacked; FormatError where more was to come: a few bytes can hold gigabytes."""
    if more:
        raise FormatError(f"a body of more than {MOST_BYTES:,} bytes is not unpacked")
    return unpacked


def first_event(begun: bytes, *, after: Collection[str] = ()) -> Any:
    """The first whole event of a stream's beginning that is of no type in `after`; None where it
    has not come yet. A comment counts: whoever sends some to keep a connection alive has begun."""
    whole, end, _ = begun.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    if end and begun[:1] == b":":
        return {}
    for event in events_of(whole) if end else ():
        if not (isinstance(event, dict) and event.get("type") in after):
            return event
    return None
