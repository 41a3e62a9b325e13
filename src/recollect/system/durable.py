"""Durable files, replaced as a whole or not at all, and locks between processes.

A life lock shows that a process is alive: the system releases it when the process dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
MODE: Final = 0o600
STEP_SECONDS: Final = 3.0
"""How long one step waits for the others: each of theirs is a read, a write and a sync."""
# Never longer while waiting: who waited long would lose to whoever comes new.
_PAUSE_SECONDS: Final = (0.0005, 0.003)


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
    """A folder, and what is missing above it, each for its owner only, and durable."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = MODE) -> Iterator[BinaryIO]:
    """A file to write that gets its name only once it is whole and on the disk.

    Until then it has a name that nobody can know, so that no link can lie in its way.
    """
    with _beside(path, mode) as (file, beside):
        yield file
        file.flush()
        sync_file(file.fileno())
        beside.replace(path)
    sync_folder(path.parent)


def replace_file(path: Path, content: bytes, *, mode: int = MODE) -> None:
    """All of the new content or all of the old, whenever the power fails."""
    with replacing(path, mode=mode) as file:
        file.write(content)


def create_file(path: Path, content: bytes) -> bool:
    """Write a file whole, for its owner only; False where one is there, which stays."""
    with _beside(path, MODE) as (file, beside):
        file.write(content)
        file.flush()
        sync_file(file.fileno())
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


@contextlib.contextmanager
def _beside(path: Path, mode: int) -> Iterator[tuple[BinaryIO, Path]]:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


class LifeLock:
    """Held as long as the process lives or until it is released."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> LifeLock | None:
        """The lock under this name; None when somebody alive has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        if not locked_within(descriptor) or not same_file(descriptor, path):
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self, *, remove: bool) -> None:
        """Let go; `remove` when what it stood for is gone too."""
        if remove:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        os.close(self._descriptor)


def locked_within(descriptor: int, seconds: float = 0.0) -> bool:
    """Whether the lock on an open file could be had in this time; it ends when the file is closed.

    Asks again and again: a lock that the system waits for cannot be given up.
    """
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(random.uniform(*_PAUSE_SECONDS))  # noqa: S311 - no secret


def same_file(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that stands under this name."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
