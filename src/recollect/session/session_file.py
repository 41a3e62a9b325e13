"""The file under a transcript: opened under its lock, mended after a crash, added to by lines.

Owns the bytes at the end of the file. Must never change a whole line. Always holds: one write a
line, then a sync, then it counts; a line that could not be written whole is taken back. Where that
or any sync fails, nothing more is written until the file was opened again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from recollect.config.settings import Redaction
from recollect.errors import TranscriptError
from recollect.formats.pi_entries import entry_line, header_value
from recollect.formats.pi_migrate import migrate
from recollect.formats.pi_session import PI_VERSION, TORN_NOTE, PiHeader, PiSession, read_session
from recollect.session.disk import (
    OWNER_ONLY,
    open_for_one,
    private_folder,
    read_all,
    write_new_file,
)
from recollect.session.redacting import redact_entry
from recollect.stores.spool.durable import sync_file, sync_folder
from recollect.stores.spool.locks import same_file

_OTHERS: Final = 0o077


class TranscriptFile:
    """A session file that this process alone writes."""

    def __init__(self, path: Path, descriptor: int, *, size: int, lines: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size
        self._lines = lines
        self._closed = False
        self._broken = False

    @classmethod
    def open(cls, path: Path) -> tuple[TranscriptFile, PiSession, list[str]]:
        """The file, what it holds, and what had to be mended."""
        path = path.absolute()  # whatever folder the process goes to later
        try:
            private_folder(path.parent)
            descriptor = open_for_one(path, create=True)
        except OSError as error:
            raise _refused(path, "opened", error) from error
        try:
            sync_folder(path.parent)
            data = read_all(descriptor)
            session = read_session(data)
            _check_ours(path, session)
            notes = [note for note in session.notes if note != TORN_NOTE]
            size = _mend(descriptor, data, session, notes)
            if os.fstat(descriptor).st_mode & _OTHERS:
                notes.append(f"others may read {path.name}: chmod {OWNER_ONLY:o} it")
        except OSError as error:
            os.close(descriptor)
            raise _refused(path, "opened", error) from error
        except BaseException:
            os.close(descriptor)
            raise
        lines = data[:size].count(b"\n") + (1 if size > len(data) else 0)
        return cls(path, descriptor, size=size, lines=lines), session, notes

    def begin(
        self, *, session_id: str, timestamp: str, cwd: str, parent_session: str | None
    ) -> PiHeader:
        """Write the header of a new session."""
        value = header_value(
            session_id=session_id, timestamp=timestamp, cwd=cwd, parent_session=parent_session
        )
        line = entry_line(value)
        self.append(line)
        return PiHeader(line=line, value=value)

    def append(self, line: bytes) -> int:
        """Add a line; durable when this returns its number."""
        self._check_usable()
        whole = line + b"\n"
        try:
            _write_once(self._descriptor, whole)
            self._sync()
        except OSError as error:
            self._take_back()
            raise _refused(self.path, "written", error) from error
        self._size += len(whole)
        self._lines += 1
        return self._lines

    def close(self) -> None:
        """Let go of the file and its lock."""
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)

    def _check_usable(self) -> None:
        name = self.path.name
        if self._closed:
            raise TranscriptError(f"{name} is closed; open it again to add to it")
        if self._broken:
            raise TranscriptError(f"{name} did not reach the disk before; open it again")
        if not same_file(self._descriptor, self.path):
            raise TranscriptError(
                f"{name} was moved, replaced or deleted while it was open; open it again"
            )
        if os.fstat(self._descriptor).st_size != self._size:
            raise TranscriptError(
                f"{name} was changed by a program that does not heed its lock; open it again"
            )

    def _take_back(self) -> None:
        """Nothing of a line that failed may stay: the next one would be glued to it."""
        try:
            os.ftruncate(self._descriptor, self._size)
            self._sync()
        except OSError:
            self._broken = True  # opening again finds the torn line, and says so

    def _sync(self) -> None:
        """A system that failed to write drops what it held: a later sync says nothing of it."""
        try:
            sync_file(self._descriptor)
        except OSError:
            self._broken = True
            raise


def _write_once(descriptor: int, content: bytes) -> None:
    if os.write(descriptor, content) != len(content):
        raise OSError("the disk took a part of the line only; is it full?")


def read_session_file(path: Path) -> PiSession:
    """A session file as version 3, without a lock; the file stays as it is."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _refused(path, "read", error) from error
    return migrate(read_session(data))


def migrate_file(source: Path, target: Path, *, redaction: Redaction) -> PiSession:
    """Write a session file of any version as a transcript of ours; the source stays as it is."""
    session = read_session_file(source)
    if session.header is None:
        raise TranscriptError(f"{source.name} has no session header; it cannot become a transcript")
    lines = [session.header.line]
    for entry in session.entries:
        masked = redact_entry(entry.value, redaction)
        lines.append(entry.line if masked is entry.value else entry_line(masked))
    try:
        private_folder(target.parent)
        write_new_file(target, b"".join(line + b"\n" for line in lines))
    except FileExistsError as error:
        raise TranscriptError(f"{target.name} is there already; give another name") from error
    except OSError as error:
        raise _refused(target, "written", error) from error
    return session


def _check_ours(path: Path, session: PiSession) -> None:
    if session.header is None and session.entries:
        raise TranscriptError(
            f"{path.name} has no session header, so it is not written to; move it away, or give "
            "another path"
        )
    if session.header is None and any(note != TORN_NOTE for note in session.notes):
        raise TranscriptError(
            f"{path.name} holds lines but no session, so it is not written to; move it away, or "
            "give another path"
        )
    if session.version < PI_VERSION:
        raise TranscriptError(
            f"{path.name} is of version {session.version}; make a copy of version {PI_VERSION} "
            "with recollect.session.migrate_file, and open that"
        )
    if session.version > PI_VERSION:
        raise TranscriptError(
            f"{path.name} is of version {session.version}, which this Recollect can read but not "
            "write; update it"
        )


def _mend(descriptor: int, data: bytes, session: PiSession, notes: list[str]) -> int:
    """End the file with a whole line; how long it is then."""
    size = len(data)
    if session.torn_bytes:
        size -= session.torn_bytes
        os.ftruncate(descriptor, size)
        sync_file(descriptor)
        notes.append(
            f"{session.torn_bytes} bytes of a line that a crash cut off were taken away; "
            "it was never acknowledged"
        )
    elif data and not data.endswith(b"\n"):
        os.write(descriptor, b"\n")
        sync_file(descriptor)
        size += 1
        notes.append("the last line lacked its line end, which was added")
    return size


def _refused(path: Path, done: str, error: OSError) -> TranscriptError:
    why = error.strerror or str(error)
    return TranscriptError(f"{path.name} could not be {done}: {why}; mend that and try again")
