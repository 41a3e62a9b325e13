"""Writing so that it lasts, and removing so that it is gone, through the system's own calls.

Owns the few places where a file is synced or overwritten. Raises OSError as the system does;
who calls it says what that means.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

_CHUNK_BYTES: Final = 1 << 20
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)


def sync_file(descriptor: int) -> None:
    """Return when the file is on the disk."""
    if _FULL_SYNC is not None:  # on macOS a plain sync stops at the drive's own memory
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make names that were added, replaced or removed in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """A folder only its owner can look into, durable itself."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_folder(folder.parent)


def write_at(descriptor: int, content: bytes, offset: int) -> None:
    """All of it at this place, or an error."""
    left = memoryview(content)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """The bytes at this place, fewer only where the file ends."""
    parts: list[bytes] = []
    while length > 0:
        part = os.pread(descriptor, min(length, _CHUNK_BYTES), offset)
        if not part:
            break
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


def blank(descriptor: int, offset: int, length: int) -> None:
    """Overwrite with zeros, as far as the disk lets us; not synced.

    On a disk or file system that writes elsewhere (flash, copy on write) the old bytes may
    stay in unused blocks; they are in no file.
    """
    zeros = bytes(min(length, _CHUNK_BYTES))
    with contextlib.suppress(OSError):  # a full disk must not keep the file from being cut
        while length > 0:
            write_at(descriptor, zeros[:length], offset)
            offset, length = offset + len(zeros), length - len(zeros)


def empty(descriptor: int) -> None:
    """Overwrite a file, then cut it to nothing; durable."""
    size = os.fstat(descriptor).st_size
    if size:
        blank(descriptor, 0, size)
        sync_file(descriptor)
        os.ftruncate(descriptor, 0)
        sync_file(descriptor)
