"""How records stand in a spool file, and how they are found again in a damaged one.

Pure: reads through a function it is given, and never writes. A frame is a mark, the record's
number and length with a checksum of their own, a checksum of the payload, a state byte, and the
payload. Always holds: a frame is either read whole and right, or named as torn or damaged.

The mark and the key of the checksum come from the file's random token, so nothing that was said
can look like a frame when a reader has to find its way again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

TOKEN_BYTES: Final = 12
GREATEST_PAYLOAD_BYTES: Final = 2**32 - 1
_MARK: Final = b"RSP1"
_MARK_BYTES: Final = len(_MARK) + TOKEN_BYTES
_NAMED: Final = struct.Struct(">QI")
_CRC: Final = struct.Struct(">I")
DIGEST_BYTES: Final = 16
STATE_AT: Final = _MARK_BYTES + _NAMED.size + _CRC.size + DIGEST_BYTES
HEADER_BYTES: Final = STATE_AT + 1
# Four bits apart from each other and from anything a single flipped bit makes of them.
WAITING: Final = b"\x55"
TAKEN: Final = b"\xaa"
_SEARCH_BYTES: Final = 1 << 20

Read: TypeAlias = Callable[[int, int], bytes]
"""Bytes at an offset, as many as there are up to a length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A record at its place in the file."""

    number: int
    """Its number within the file; it keeps it when the file is rewritten."""
    offset: int
    length: int
    digest: bytes
    taken: bool = False

    @property
    def end(self) -> int:
        """Where the next frame starts."""
        return self.offset + HEADER_BYTES + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Bytes that are no frame: a write that was cut off, or damage."""

    kind: Literal["torn", "damaged"]
    offset: int
    end: int


def framed(token: bytes, number: int, payload: bytes) -> bytes:
    """A waiting record as it stands in the file."""
    mark = _MARK + token
    named = _NAMED.pack(number, len(payload))
    crc = _CRC.pack(zlib.crc32(mark + named))
    return b"".join((mark, named, crc, _digest(token, named, payload), WAITING, payload))


def payload_of(frame: Frame, read: Read, token: bytes) -> bytes | None:
    """The record's bytes; None when they are not the ones that were written."""
    payload = read(frame.offset + HEADER_BYTES, frame.length)
    named = _NAMED.pack(frame.number, frame.length)
    whole = len(payload) == frame.length and _digest(token, named, payload) == frame.digest
    return payload if whole else None


def scan(read: Read, size: int, token: bytes) -> Iterator[Frame | Stretch]:
    """Every frame of a file in order, and every stretch that is none."""
    offset = 0
    while offset < size:
        frame = _header_at(read, offset, token)
        if frame is not None and frame.end <= size and _right(frame, read, token):
            yield frame
            offset = frame.end
            continue
        end = _next_frame(read, offset, size, token, frame)
        torn = end == size and _cut_off(read, offset, size, token, frame)
        yield Stretch(kind="torn" if torn else "damaged", offset=offset, end=end)
        offset = end


def _right(frame: Frame, read: Read, token: bytes) -> bool:
    """Whether its payload is as written; that of a taken one has been overwritten."""
    return frame.taken or payload_of(frame, read, token) is not None


def _digest(token: bytes, named: bytes, payload: bytes) -> bytes:
    hashed = blake2b(named, digest_size=DIGEST_BYTES, key=token)
    hashed.update(payload)
    return hashed.digest()


def _header_at(read: Read, offset: int, token: bytes) -> Frame | None:
    header = read(offset, HEADER_BYTES)
    mark = _MARK + token
    if len(header) < HEADER_BYTES or not header.startswith(mark):
        return None
    named_end = _MARK_BYTES + _NAMED.size
    digest_at = named_end + _CRC.size
    if _CRC.unpack(header[named_end:digest_at])[0] != zlib.crc32(header[:named_end]):
        return None
    number, length = _NAMED.unpack(header[_MARK_BYTES:named_end])
    return Frame(
        number=number,
        offset=offset,
        length=length,
        digest=header[digest_at:STATE_AT],
        taken=header[STATE_AT:] == TAKEN,
    )


def _next_frame(read: Read, offset: int, size: int, token: bytes, frame: Frame | None) -> int:
    """Where reading goes on after something that could not be read."""
    if frame is not None and frame.end < size and _header_at(read, frame.end, token) is not None:
        return frame.end
    mark = _MARK + token
    at = offset + 1
    while at < size:
        found = read(at, _SEARCH_BYTES + len(mark) - 1).find(mark)
        if found < 0:
            at += _SEARCH_BYTES
        elif _header_at(read, at + found, token) is not None:
            return at + found
        else:
            at += found + 1
    return size


def _cut_off(read: Read, offset: int, size: int, token: bytes, frame: Frame | None) -> bool:
    """Whether the end of a file is a write that never finished, and so was never promised."""
    if frame is not None:
        return frame.end > size
    tail = read(offset, HEADER_BYTES)
    if size - offset < HEADER_BYTES:
        mark = _MARK + token
        return tail.startswith(mark) or mark.startswith(tail)
    return False
