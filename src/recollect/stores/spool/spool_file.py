"""One file of records that wait: how they stand in it, and how it is changed.

Blocking, and never locks: `FileSpool` calls it off the event loop and under the space's lock. A
frame is a mark, the record's number and length with a checksum of their own, a checksum of the
payload, a state byte, and the payload. The mark and the key of the checksum come from the file's
random token, so nothing that was said can look like a frame when a reader has to find its way
again. Always holds: `append` is durable when it returns; the file is replaced as a whole or not at
all; a frame is read whole and right, or named as torn or damaged, set aside beside it and told.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, TypeAlias

from recollect.stores import durable
from recollect.stores.durable import MODE, same_file

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
class UnreadableSpan:
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


def scan(read: Read, size: int, token: bytes) -> Iterator[Frame | UnreadableSpan]:
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
        yield UnreadableSpan(kind="torn" if torn else "damaged", offset=offset, end=end)
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


LOG = logging.getLogger("recollect.spool")
SUFFIX: Final = ".spool1"
"""Names the version: a program that does not know a later one leaves its files alone."""
REFUSED: Final = ".refused1"
"""Records that the store refuses; the same frames, never drained."""
DAMAGED: Final = ".damaged"
_NEW: Final = ".new"


class SpoolFile:
    """The records of one process, in the order they came."""

    def __init__(self, folder: Path, stem: str, token: bytes, suffix: str = SUFFIX) -> None:
        self.path = folder / (stem + suffix)
        self.stem = stem
        self.torn = 0
        self.damaged = 0
        self._token = token
        self._descriptor: int | None = None
        self._waiting: deque[Frame] = deque()
        self._end = 0
        self._next_number = 1

    @property
    def waiting(self) -> int:
        """How many records wait, as last read."""
        return len(self._waiting)

    @property
    def current(self) -> bool:
        """Whether what is open is still the file of that name."""
        return self._descriptor is not None and same_file(self._descriptor, self.path)

    def load(self) -> None:
        """Open the file, anew if it was replaced; set aside what cannot be read.

        The caller keeps others from changing it meanwhile.
        """
        if self.current:
            return
        self.close()
        made = not self.path.exists()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        if made:
            durable.sync_folder(self.path.parent)
        self._drop_unfinished()
        self._read_frames()

    def append(self, payload: bytes) -> None:
        """Keep a record, durable when this returns."""
        frame = framed(self._token, self._next_number, payload)
        try:
            durable.write_at(self._open, frame, self._end)
            durable.sync_file(self._open)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._open, self._end)
            raise
        self._waiting.append(
            Frame(
                number=self._next_number,
                offset=self._end,
                length=len(payload),
                digest=frame[STATE_AT - DIGEST_BYTES : STATE_AT],
            )
        )
        self._end += len(frame)
        self._next_number += 1

    def first(self) -> tuple[int, bytes] | None:
        """The oldest record that waits, with its number."""
        while self._waiting:
            frame = self._waiting[0]
            payload = payload_of(frame, self._read, self._token)
            if payload is not None:
                return frame.number, payload
            self._read_frames()  # went bad since it was read: set aside
        return None

    def take(self, number: int) -> None:
        """Mark a record as taken, durable; nothing where it has gone meanwhile."""
        for frame in self._waiting:
            if frame.number == number:
                durable.write_at(self._open, TAKEN, frame.offset + STATE_AT)
                durable.sync_file(self._open)
                durable.blank(self._open, frame.offset + HEADER_BYTES, frame.length)
                self._waiting.remove(frame)
                break
        if not self._waiting:
            self._empty()

    def rewrite(self, change: Callable[[bytes], bytes | None]) -> int:
        """Replace each record by what `change` makes of it; returns how many changed."""
        self._read_frames()  # sets aside what went bad since the file was opened
        changed: dict[int, bytes | None] = {}
        for frame in self._waiting:
            payload = self._payload(frame)
            other = change(payload)
            if other != payload:
                changed[frame.number] = other
        if changed:
            self._replace(changed)
        return len(changed)

    def records(self, *, after: int = -1) -> Iterator[tuple[int, bytes]]:
        """Each record that waits, with its number, in order: those behind this number."""
        for frame in tuple(self._waiting):
            if frame.number > after:
                yield frame.number, self._payload(frame)

    def holds(self, record: bytes) -> bool:
        """Whether this very record waits."""
        return any(
            frame.length == len(record) and self._payload(frame) == record
            for frame in self._waiting
        )

    def close(self) -> None:
        """Let go of the file; what waits stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._waiting.clear()

    def remove(self) -> None:
        """Away with a file in which nothing waits."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self.close()

    @property
    def _open(self) -> int:
        assert self._descriptor is not None, "load() comes first"
        return self._descriptor

    def _read(self, offset: int, length: int) -> bytes:
        return durable.read_at(self._open, offset, length)

    def _payload(self, frame: Frame) -> bytes:
        payload = payload_of(frame, self._read, self._token)
        if payload is None:
            raise OSError(errno.EIO, "a record was read differently twice")
        return payload

    def _read_frames(self) -> None:
        size = os.fstat(self._open).st_size
        frames: list[Frame] = []
        stretches: list[UnreadableSpan] = []
        for found in scan(self._read, size, self._token):
            if isinstance(found, Frame):
                frames.append(found)
            else:
                stretches.append(found)
        self._waiting = deque(frame for frame in frames if not frame.taken)
        self._next_number = max((frame.number for frame in frames), default=0) + 1
        self._end = size
        if stretches:
            self._set_aside(stretches)

    def _set_aside(self, stretches: list[UnreadableSpan]) -> None:
        torn = [stretch for stretch in stretches if stretch.kind == "torn"]
        damaged = [stretch for stretch in stretches if stretch.kind == "damaged"]
        if damaged:
            aside = os.open(
                self.path.with_suffix(DAMAGED),
                os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
                MODE,
            )
            try:
                for stretch in damaged:
                    os.write(aside, self._read(stretch.offset, stretch.end - stretch.offset))
                durable.sync_file(aside)
            finally:
                os.close(aside)
            durable.sync_folder(self.path.parent)
            LOG.warning(
                "spool: %d damaged stretches were set aside in %s; the records around them wait",
                len(damaged),
                self.path.with_suffix(DAMAGED).name,
            )
        if torn:
            LOG.warning("spool: the last record was cut off while it was written, and dropped")
        self.torn += len(torn)
        self.damaged += len(damaged)
        self._replace({})

    def _replace(self, changed: Mapping[int, bytes | None]) -> None:
        """The waiting records with these changes, as a new file under the same name."""
        new = self.path.with_suffix(_NEW)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(new, flags, MODE)
        try:
            self._copy_to(descriptor, changed)
            durable.sync_file(descriptor)
            new.replace(self.path)
            durable.sync_folder(self.path.parent)
        except OSError:
            os.close(descriptor)
            raise
        old, self._descriptor = self._open, descriptor
        durable.empty(old)
        os.close(old)
        self._read_frames()

    def _copy_to(self, descriptor: int, changed: Mapping[int, bytes | None]) -> None:
        end = 0
        for frame in self._waiting:
            payload = changed[frame.number] if frame.number in changed else self._payload(frame)
            if payload is not None:
                copy = framed(self._token, frame.number, payload)
                durable.write_at(descriptor, copy, end)
                end += len(copy)

    def _empty(self) -> None:
        durable.empty(self._open)
        self._end = 0

    def _drop_unfinished(self) -> None:
        """A new file that was never put in place; all it holds is still in the old one."""
        new = self.path.with_suffix(_NEW)
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(new, os.O_RDWR | os.O_CLOEXEC)
            try:
                durable.empty(descriptor)
            finally:
                os.close(descriptor)
            new.unlink()
