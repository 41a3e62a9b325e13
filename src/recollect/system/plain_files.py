"""Reads files of a project so that no link, pipe or race leads to any other file.

A project's author chose its names: `MEMORY.md` may be a link to a private key, a pipe that
never ends, or become one while it is read. Imports nothing of Recollect.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_STEP: int = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _NO_LINK
"""A folder on the way to a file; where the system can, one that may be entered but not listed."""


def open_plain(path: Path) -> int:
    """Open a file to read it; OSError if its absolute path holds a link, or it is not regular.

    Without waiting: nobody may ever write to a pipe.
    """
    folder = os.open(path.anchor, _STEP)
    try:
        for step in path.parts[1:-1]:
            outer, folder = folder, os.open(step, _STEP, dir_fd=folder)
            os.close(outer)
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)
    return _require_regular(descriptor)


def open_regular(path: str, flags: int) -> int:
    """Open a file by its name or a link; OSError if it is not regular. An `opener` of `open`.

    Without waiting, like `open_plain`.
    """
    return _require_regular(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))


def _require_regular(descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return descriptor


def read_plain(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """A file's content and what it is; OSError as `open_plain`, or if it has more bytes."""
    descriptor = open_plain(path)
    try:
        parts: list[bytes] = []
        left = most + 1
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
        return b"".join(parts), os.fstat(descriptor)
    finally:
        os.close(descriptor)


def read_inside(folder: Path, name: str, most: int) -> tuple[bytes, os.stat_result]:
    """A file of a folder, by a link in it too if that stays inside; OSError if it leads out."""
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / name, strict=True))
    if not path.is_relative_to(root):
        raise OSError(errno.EPERM, "it is a link that leads out of the folder")
    return read_plain(path, most)
