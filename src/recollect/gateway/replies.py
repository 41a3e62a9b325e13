"""What a provider's reply said, read after it has gone to the client.

The bytes are kept as they pass and read afterwards, in a thread, so that streaming costs nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Any, Final

import msgspec

from recollect.errors import FormatError, MissingExtra

MOST_BYTES: Final = 32_000_000
"""More of one reply is not read; no model says so much."""


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
            return zlib.decompressobj(wbits=31).decompress(body)
        if coding == "deflate":
            raw = -zlib.MAX_WBITS if body[:1] and body[0] & 0x0F != 8 else zlib.MAX_WBITS
            return zlib.decompressobj(wbits=raw).decompress(body)
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


def _brotli(body: bytes) -> bytes:
    try:
        import brotli  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra(feature="reading replies in Brotli", extra="gateway") from None
    try:
        return bytes(brotli.Decompressor().process(body))
    except brotli.error as error:
        raise ValueError("not Brotli") from error


def _zstd(body: bytes) -> bytes:
    try:
        from backports import zstd
    except ImportError:
        raise MissingExtra(feature="reading replies in Zstandard", extra="gateway") from None
    try:
        return bytes(zstd.ZstdDecompressor().decompress(body))
    except zstd.ZstdError as error:
        raise ValueError("not Zstandard") from error


def first_event(begun: bytes, *, after: Collection[str] = ()) -> Any:
    """The first whole event of a stream's beginning that is of no type in `after`; None where it
    has not come yet."""
    whole, end, _ = begun.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    for event in events_of(whole) if end else ():
        if not (isinstance(event, dict) and event.get("type") in after):
            return event
    return None
