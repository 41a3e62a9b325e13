"""The notes of the day: `memory/YYYY-MM-DD.md`, to which a flush turn may only add.

Always holds: nothing that stands in the file is changed; two writers at once lose nothing of
either; the date is the clock's in the user's time zone, whatever the model names (lessons 9 and
10 of the failures in the tests). Secrets are masked before they are written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path

from recollect.config.settings import Redaction
from recollect.rules.redaction import redact
from recollect.stores.durable import same_file

FOLDER = "memory"
LOCK_SECONDS = 5.0
"""How long a note waits for who else writes the file: each holds it for one write and a sync."""
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class DayNote:
    """The one file that may be added to."""

    root: Path
    """The workspace."""
    day: str
    """YYYY-MM-DD."""

    @property
    def shown(self) -> str:
        """Relative to the workspace, as the prompts name it."""
        return f"{FOLDER}/{self.day}.md"

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / FOLDER / f"{self.day}.md"


def day_of(now: float, tz: tzinfo | None) -> str:
    """The date in the user's time zone; without one, the machine's."""
    return datetime.fromtimestamp(now, tz).astimezone(tz).strftime("%Y-%m-%d")


def means_a_day_note(given: str | None) -> bool:
    """Whether a path is one of `memory/….md`: another date than today's is a slip, no wish."""
    if not given:
        return False
    path = Path(given)
    return path.suffix == ".md" and path.parent.name == FOLDER and ".." not in path.parts


def append_note(note: DayNote, text: str, redaction: Redaction) -> int:
    """Add a text to the file of the day; how many bytes were written. OSError where it cannot."""
    clean = redact(text, pii=redaction.pii).text if redaction.enabled else text
    clean = clean.strip("\n")
    if not clean.strip():
        return 0
    root = note.root.resolve()
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    if not folder.resolve().is_relative_to(root):
        raise PermissionError(f"{FOLDER}/ leads out of the workspace")
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = _locked(folder / f"{note.day}.md", flags)
    try:
        size = os.fstat(handle).st_size
        before = os.pread(handle, 2, max(0, size - 2))
        gap = b"" if not size else b"\n" if before.endswith(b"\n") else b"\n\n"
        data = gap + clean.encode("utf-8", "replace") + b"\n"
        left = memoryview(data)
        while left:  # a short write goes on where it stopped; the lock keeps others out
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return len(data)


def _locked(path: Path, flags: int) -> int:
    """The file, open and locked; opened again where forgetting replaced it meanwhile."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        handle = os.open(path, flags, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if same_file(handle, path):
                return handle
        except BlockingIOError:
            pass
        except OSError:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() >= until:
            raise OSError(errno.EAGAIN, f"another program has held it for {LOCK_SECONDS:g} s")
        time.sleep(_PAUSE_SECONDS)


def why_read_only(root: Path) -> str:
    """Why no notes can be written here; empty where they can."""
    folder = root / FOLDER
    place = folder if folder.exists() else root
    if not place.is_dir():
        return f"{place.name}/ is not a folder"
    if not os.access(place, os.W_OK | os.X_OK):
        return "the workspace is read-only"
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return "the workspace is on a read-only disk"
    return ""
