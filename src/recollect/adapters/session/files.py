"""Where sessions lie (as OpenClaw lays them out), and how their files are opened, locked, replaced.

Raises TranscriptError where the system refuses. Always holds: two spaces, and two sessions of a
space, never share a file, and no name leads out of its folder; files are their owner's alone; who
has a lock has it on the file that stands under that name now; nobody waits without an end.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from recollect.errors import TranscriptError, TranscriptLocked
from recollect.system.config.places import file_name, sessions_folder
from recollect.system.durable import (
    locked_within,
    make_folder,
    replace_file,
    same_file,
    sync_file,
    sync_folder,
)

# Files that only their owner can read, and locks that the system takes back when a process dies


OWNER_ONLY: Final = 0o600
_ATTEMPTS: Final = 5


def private_folder(folder: Path) -> None:
    """The folder and what is missing above it, each for its owner alone."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        make_folder(path)


def open_for_one(path: Path, *, create: bool, seconds: float = 0.0) -> int:
    """The file, open for appending, and locked until it is closed or the process ends."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(_ATTEMPTS):
        descriptor = os.open(path, flags | (os.O_CREAT if create else 0), OWNER_ONLY)
        try:
            _check_regular(descriptor, path)
            if not locked_within(descriptor, seconds):
                raise TranscriptLocked(  # noqa: TRY301 - closes the file
                    f"{path.name} is open for writing elsewhere; close that session, or start "
                    "another"
                )
            if same_file(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise TranscriptError(f"{path.name} is replaced again and again by another program")


def _check_regular(descriptor: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise TranscriptError(f"{path.name} is no regular file; give another path")


@contextlib.contextmanager
def held(lock: Path, *, seconds: float) -> Iterator[None]:
    """Keep others from changing what the lock stands for."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        if not locked_within(descriptor, seconds):
            raise TranscriptLocked(
                f"{lock.name} is held by another process for more than {seconds:g} s: see "
                "who has it open, and whether it is stopped"
            )
        yield
    finally:
        os.close(descriptor)


def rewrite_locked(
    path: Path, change: Callable[[bytes], bytes | None], *, seconds: float = 0.0
) -> bytes:
    """Replace a file that no other process holds by what `change` makes of it, or delete it for
    None; returns the content before. Waits `seconds` for its lock."""
    descriptor = open_for_one(path, create=False, seconds=seconds)
    try:
        data = read_all(descriptor)
        left = change(data)
        if left is None:
            path.unlink()
            sync_folder(path.parent)
        elif left != data:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            replace_file(path, left)
            path.chmod(mode)
    finally:
        os.close(descriptor)
    return data


def write_new_file(path: Path, content: bytes) -> None:
    """A file that must not be there yet; durable when this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        sync_file(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def read_all(descriptor: int) -> bytes:
    """The whole file, wherever the descriptor stands."""
    size = os.fstat(descriptor).st_size
    pieces: list[bytes] = []
    at = 0
    while at < size:
        piece = os.pread(descriptor, size - at, at)
        if not piece:
            break
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


INDEX_NAME: Final = "sessions.json"
OUTPUTS_SUFFIX: Final = ".outputs"
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMED: Final = "named-"  # keeps a name that was made safe apart from every UUID


def new_session_id() -> str:
    """An id for a new transcript."""
    return str(uuid.uuid4())


def transcript_file(space: str, session_id: str) -> Path:
    """The transcript of a session."""
    plain = _UUID.fullmatch(session_id) is not None
    name = session_id if plain else _NAMED + file_name(session_id)
    return sessions_folder(space) / f"{name}.jsonl"


def outputs_folder(transcript: Path) -> Path:
    """Where long outputs of a session's commands are kept: beside its transcript."""
    return transcript.with_suffix(OUTPUTS_SUFFIX)


def sessions_file(space: str) -> Path:
    """The index of a space's sessions."""
    return sessions_folder(space) / INDEX_NAME
