"""Durable files, locks between processes, safe reading of a project's files, and secrets.

A life lock shows that a process is alive, because the system releases it when the process ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import secrets
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from recollect.errors import RecollectError
from recollect.system.forks import OwnProcess

_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
MODE: Final = 0o600  # only the owner may read and write
STEP_SECONDS: Final = 3.0
"""Time that one step (a read, a write and a sync) waits for the steps of other processes."""
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_STEP: int = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | NO_LINK
"""Flags to open a folder on the path to a file. With `O_PATH`, the folder need not be readable."""
# The polling interval does not grow, because new callers would then get the lock before older ones.
_PAUSE_SECONDS: Final = (0.0005, 0.003)


def sync_file(descriptor: int) -> None:
    """Write the file to the disk, and wait until it is there."""
    if _FULL_SYNC is not None:  # on macOS a plain sync may stop at the drive's cache
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make changes to the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably, each for its owner only."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


@contextlib.contextmanager
def open_replacement(path: Path, *, mode: int = MODE) -> Iterator[BinaryIO]:
    """Open a temporary file, which replaces the file at `path` when it is complete and on the disk.
    The temporary name is random, so that an attacker cannot place a link there."""
    with _open_temporary(path, mode) as (file, temporary_path):
        yield file
        file.flush()
        sync_file(file.fileno())
        temporary_path.replace(path)
    sync_folder(path.parent)


def replace_file(path: Path, content: bytes, *, mode: int = MODE) -> None:
    """Replace a file so that a power failure leaves all of the new content or all of the old."""
    with open_replacement(path, mode=mode) as file:
        file.write(content)


def create_file(path: Path, content: bytes) -> bool:
    """Write a new file durably, for its owner only. Return False if the file exists."""
    with _open_temporary(path, MODE) as (file, temporary_path):
        file.write(content)
        file.flush()
        sync_file(file.fileno())
        try:
            os.link(temporary_path, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


@contextlib.contextmanager
def _open_temporary(path: Path, mode: int) -> Iterator[tuple[BinaryIO, Path]]:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


class LifeLock:
    """A lock that lasts until it is released or the process ends. A forked child does not have the
    lock of its parent."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._process = OwnProcess()
        _LOCKS.add(self)

    @classmethod
    def take(cls, path: Path) -> LifeLock | None:
        """Take the lock of this name; return None if a running process has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        if not try_lock(descriptor) or not same_file(descriptor, path):
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self, *, remove: bool) -> None:
        """Release the lock. `remove` also deletes the lock's file."""
        _LOCKS.discard(self)
        if self._process.is_other:
            return
        if remove:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        os.close(self._descriptor)


_LOCKS: Final[weakref.WeakSet[LifeLock]] = weakref.WeakSet()


def _close_locks() -> None:
    for lock in _LOCKS:
        os.close(lock._descriptor)
    _LOCKS.clear()


os.register_at_fork(after_in_child=_close_locks)


def try_lock(descriptor: int, seconds: float = 0.0) -> bool:
    """Lock an open file. Return False if that takes longer than `seconds`. Closing the file ends
    the lock. The function polls, because a wait inside the system cannot be cancelled."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(random.uniform(*_PAUSE_SECONDS))  # noqa: S311 - no secret


def same_file(descriptor: int, path: Path) -> bool:
    """Return True if this name still belongs to the open file."""
    try:
        path_status = path.stat()
    except FileNotFoundError:
        return False
    open_status = os.fstat(descriptor)
    return (open_status.st_dev, open_status.st_ino) == (path_status.st_dev, path_status.st_ino)


# The author of a project chose the names of its files: `MEMORY.md` may be a link to a private key
# or a pipe that never ends, or may become one while Recollect reads it.


def open_plain(path: Path) -> int:
    """Open a file for reading. Raise OSError if the absolute path contains a link, or names no
    regular file. Never wait for the writer of a pipe."""
    folder = os.open(path.anchor, FOLDER_STEP)
    try:
        for step in path.parts[1:-1]:
            outer, folder = folder, os.open(step, FOLDER_STEP, dir_fd=folder)
            os.close(outer)
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NONBLOCK | NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)
    return _require_regular(descriptor)


def open_regular(path: str, flags: int) -> int:
    """Open a regular file by its name or by a link to it, for use as the `opener` of `open`. Raise
    OSError for another kind of file, without waiting for the writer of a pipe."""
    return _require_regular(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))


def _require_regular(descriptor: int) -> int:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "it is not a regular file")
    return descriptor


def read_plain(path: Path, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """Read a file and its stat. Raise OSError as `open_plain` does, or for over `most` bytes."""
    descriptor = open_plain(path)
    try:
        parts: list[bytes] = []
        left = max_bytes + 1
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes")
        return b"".join(parts), os.fstat(descriptor)
    finally:
        os.close(descriptor)


def read_inside(folder: Path, name: str, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """Read a file of a folder. Raise OSError if the name is a link that leads out of the folder."""
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / name, strict=True))
    if not path.is_relative_to(root):
        raise OSError(errno.EPERM, "it is a link that leads out of the folder")
    return read_plain(path, max_bytes)


def own_secret(file: Path) -> str:
    """Return the secret in this file, and create the file first if it is missing (mode 0600). Two
    processes that start at the same time get the same secret. Raise RecollectError if the file is
    empty, or if other users can read it."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_file(file, secrets.token_urlsafe(32).encode())
    secret = file.read_text(encoding="ascii", errors="replace").strip()
    if not secret:
        raise RecollectError(f"{file} is empty: remove it, and Recollect writes a new one")
    if os.name == "posix" and file.stat().st_mode & 0o077:
        raise RecollectError(
            f"other users can read {file}: remove it, and Recollect writes a new one"
        )
    return secret
