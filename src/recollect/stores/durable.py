"""Files that last, and locks between processes.

Owns the few places where a file is synced or locked; raises OSError as the system does. A life lock
says that the process that owns something is alive; the system lets go of it when the process dies.
Always holds: nobody waits for a lock without an end; who has a life lock has it on the file that
stands under that name now, not on one that was removed meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from pathlib import Path
from typing import Final

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
    """A folder, and what is missing above it, each for its owner only, and durable."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


MODE = 0o600
STEP_SECONDS = 3.0
"""How long one step waits for the others: each of theirs is a read, a write and a sync."""
# Never longer while waiting: who waited long would lose to whoever comes new.
_PAUSE_SECONDS = (0.0005, 0.003)


class LifeLock:
    """Held as long as the process lives or until it is released."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> LifeLock | None:
        """The lock under this name; None when somebody alive has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if not same_file(descriptor, path):
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self, *, remove: bool) -> None:
        """Let go; `remove` when what it stood for is gone too."""
        if remove:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        os.close(self._descriptor)


def locked_within(descriptor: int, how: int, seconds: float) -> bool:
    """Whether the lock could be had in this time. Asks again and again: a lock that the system
    waits for cannot be given up."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
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
