"""A session's transcript on disk, in pi's version 3: entries are appended and never rewritten.

When a method returns, its entry is on the disk (one write, then a sync), with secrets masked
(settings.redaction). Opening a transcript removes an incomplete last line, so after a crash every
entry of a finished call is readable. Only one process writes. Unlike pi, Recollect writes a
transcript from the first message on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from recollect.adapters.session.entries import mask_entry, plan_undo
from recollect.adapters.session.files import OWNER_ONLY, open_for_one, read_all, translate_errors
from recollect.core.formats.json_text import decode
from recollect.core.formats.pi_session import (
    PI_VERSION,
    TORN_NOTE,
    PiContext,
    PiEntry,
    PiHeader,
    PiSession,
    Stamp,
    build_context,
    build_history,
    compaction_value,
    custom_value,
    entry_line,
    header_value,
    message_value,
    migrate,
    new_entry_id,
    path_to,
    read_session,
    session_info_value,
    timestamp_at,
)
from recollect.core.ports import Clock
from recollect.core.upkeep.masks import Masks
from recollect.errors import TranscriptError
from recollect.system.config.settings import Redaction
from recollect.system.durable import make_folder, same_file, sync_file, sync_folder

_OTHERS: Final = 0o077
"""Permission bits of all users but the owner."""


class TranscriptFile:
    """A session file that only this process writes."""

    def __init__(self, path: Path, descriptor: int, *, size: int, lines: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size
        self._lines = lines
        self._closed = False
        self._broken = False

    @classmethod
    def open(cls, path: Path) -> tuple[TranscriptFile, PiSession, list[str]]:
        """Open the file. Return the file, its content and a list of repairs."""
        path = path.absolute()  # the process may change its folder later
        with translate_errors(path, "opened"), ExitStack() as exit_stack:
            make_folder(path.parent)
            descriptor = open_for_one(path, create=True)
            exit_stack.callback(os.close, descriptor)
            sync_folder(path.parent)
            data = read_all(descriptor)
            session = read_session(data)
            _check_ours(path, session)
            notes = [note for note in session.notes if note != TORN_NOTE]
            size = _remove_incomplete_line(descriptor, data, session, notes)
            if os.fstat(descriptor).st_mode & _OTHERS:
                notes.append(f"other users can read {path.name}: run `chmod {OWNER_ONLY:o}` on it")
            exit_stack.pop_all()
        lines = data[:size].count(b"\n") + (1 if size > len(data) else 0)
        return cls(path, descriptor, size=size, lines=lines), session, notes

    def begin(self, *, session_id: str, timestamp: str, cwd: str) -> PiHeader:
        value = header_value(session_id=session_id, timestamp=timestamp, cwd=cwd)
        line = entry_line(value)
        self.append(line)
        return PiHeader(line=line, value=value)

    def append(self, line: bytes) -> int:
        """Append a line durably, and return its number."""
        self._check_usable()
        whole_line = line + b"\n"
        with translate_errors(self.path, "written"):
            try:
                if os.write(self._descriptor, whole_line) != len(whole_line):
                    raise OSError("only a part of the line was written: the disk may be full")  # noqa: TRY301
                self._sync()
            except OSError:
                self._take_back()
                raise
        self._size += len(whole_line)
        self._lines += 1
        return self._lines

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)

    def _check_usable(self) -> None:
        name = self.path.name
        if self._closed:
            raise TranscriptError(f"{name} is closed; open it again to add to it")
        if self._broken:
            raise TranscriptError(f"an earlier write to {name} failed: open it again")
        if not same_file(self._descriptor, self.path):
            raise TranscriptError(
                f"{name} was moved, replaced or deleted while it was open; open it again"
            )
        if os.fstat(self._descriptor).st_size != self._size:
            raise TranscriptError(f"a program that ignores the lock changed {name}: open it again")

    def _take_back(self) -> None:
        """Remove the bytes of a failed write, or the next line would continue them."""
        try:
            os.ftruncate(self._descriptor, self._size)
            self._sync()
        except OSError:
            self._broken = True  # the next open finds the incomplete line and reports it

    def _sync(self) -> None:
        """Sync the file. After a failed sync the data is lost, but a second sync would succeed."""
        try:
            sync_file(self._descriptor)
        except OSError:
            self._broken = True
            raise


def read_session_file(path: Path) -> PiSession:
    """Read a session file of version 3, without a lock and without changing it."""
    with translate_errors(path, "read"):
        data = path.read_bytes()
    return migrate(read_session(data))


def _check_ours(path: Path, session: PiSession) -> None:
    has_unreadable = any(note != TORN_NOTE for note in session.notes)
    if session.header is None and (session.entries or has_unreadable):
        raise TranscriptError(
            f"{path.name} has no session header, so it is not written to; move it away, or give "
            "another path"
        )
    if session.version != PI_VERSION:
        raise TranscriptError(
            f"{path.name} has version {session.version}, but this Recollect writes version "
            f"{PI_VERSION}: rewrite it with pi, or upgrade Recollect"
        )


def _remove_incomplete_line(
    descriptor: int, data: bytes, session: PiSession, notes: list[str]
) -> int:
    size = len(data)
    if session.torn_bytes:
        size -= session.torn_bytes
        os.ftruncate(descriptor, size)
        sync_file(descriptor)
        notes.append(
            f"removed {session.torn_bytes} bytes of a line that a crash cut off; its write was "
            "never confirmed"
        )
    elif data and not data.endswith(b"\n"):
        os.write(descriptor, b"\n")
        sync_file(descriptor)
        size += 1
        notes.append("the last line lacked its line end, which was added")
    return size


Spelling: TypeAlias = Callable[[Stamp], dict[str, Any]]


class SessionTranscript:
    """A transcript that this process has open for writing; `open_transcript` creates it. The
    methods block on disk access. Several threads may share the transcript."""

    def __init__(
        self,
        file: TranscriptFile,
        *,
        header: PiHeader,
        entries: Sequence[PiEntry],
        redaction: Redaction,
        clock: Clock | None,
        notes: Sequence[str],
    ) -> None:
        self.header = header
        self.notes: tuple[str, ...] = tuple(notes)
        """Repairs of the file when it was opened, one sentence each."""
        self._file = file
        self._entries = list(entries)
        self._ids = {entry.id for entry in entries if entry.id is not None}
        self._leaf = next((entry.id for entry in reversed(entries) if entry.id), None)
        self._unmasked_by_id: dict[str, PiEntry] = {}
        self._redaction = redaction
        self._clock = clock
        self._adding = threading.RLock()

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def session_id(self) -> str:
        return self.header.id

    @property
    def entries(self) -> tuple[PiEntry, ...]:
        return tuple(self._entries)

    def context(self) -> PiContext:
        """Return the messages to show to the model, as pi rebuilds them. Messages that this process
        added still contain their secrets, which are masked on the disk."""
        return build_context(self._list_unmasked())

    def history(self) -> PiContext:
        """Return every message up to the newest entry, ignoring compactions."""
        return build_history(self._list_unmasked())

    def append_message(self, message: Mapping[str, Any]) -> PiEntry:
        if not isinstance(message.get("role"), str):
            raise TranscriptError("a message without a role cannot be added; give it one")
        return self._add(lambda stamp: message_value(stamp, message))

    def append_compaction(
        self,
        *,
        summary: str,
        first_kept_entry_id: str | None,
        tokens_before: int,
        tokens_after: int | None = None,
        details: Mapping[str, Any] | None = None,
        from_hook: bool | None = False,
    ) -> PiEntry:
        """Add a compaction that keeps messages from this entry on; None keeps none."""
        with self._adding:
            path = path_to(self._entries)
            if first_kept_entry_id is not None and not any(
                entry.id == first_kept_entry_id for entry in path
            ):
                raise TranscriptError(
                    f"entry {first_kept_entry_id!r} is not on this session's current branch, "
                    "so everything before the compaction would be lost: name an entry of that "
                    "branch"
                )
            return self._add(
                lambda stamp: compaction_value(
                    stamp,
                    summary=summary,
                    # if the entry is not before the compaction, nothing is kept, as in pi
                    first_kept_entry_id=first_kept_entry_id or stamp.id,
                    tokens_before=tokens_before,
                    tokens_after=tokens_after,
                    details=details,
                    from_hook=from_hook,
                )
            )

    def append_undo(self) -> PiEntry | None:
        """Undo the last active compaction, if any, by a compaction that restores the view."""
        with self._adding:
            plan = plan_undo(path_to(self._list_unmasked()))
            if plan is None:
                return None
            return self._add(lambda stamp: compaction_value(stamp, **plan))

    def append_custom(self, custom_type: str, data: Any = None) -> PiEntry:
        """Add an entry that no model sees."""
        return self._add(lambda stamp: custom_value(stamp, custom_type=custom_type, data=data))

    def append_name(self, name: str) -> PiEntry:
        return self._add(lambda stamp: session_info_value(stamp, name=name))

    def close(self) -> None:
        """Close the file, so that another process may write. A second call does nothing."""
        with self._adding:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, spell: Spelling) -> PiEntry:
        with self._adding:
            now = time.time() if self._clock is None else self._clock.now()
            stamp = Stamp(
                id=new_entry_id(self._ids), parent_id=self._leaf, timestamp=timestamp_at(now)
            )
            entry_value = spell(stamp)
            masked_value = entry_value
            if self._redaction.enabled:
                masked_value = mask_entry(entry_value, Masks(pii=self._redaction.pii))
            line = entry_line(masked_value)
            number = self._file.append(line)
            entry = PiEntry(number=number, line=line, value=decode(line))
            self._entries.append(entry)
            self._ids.add(stamp.id)
            self._leaf = stamp.id
            if masked_value is not entry_value:
                line = entry_line(entry_value)
                self._unmasked_by_id[stamp.id] = PiEntry(
                    number=number, line=line, value=decode(line)
                )
            return entry

    def _list_unmasked(self) -> list[PiEntry]:
        with self._adding:
            if not self._unmasked_by_id:
                return list(self._entries)
            return [self._unmasked_by_id.get(entry.id or "", entry) for entry in self._entries]


def open_transcript(
    path: Path,
    *,
    session_id: str,
    redaction: Redaction,
    cwd: Path | None = None,
    clock: Clock | None = None,
) -> SessionTranscript:
    """Open a transcript for writing, or create it.

    Raises TranscriptLocked if another process has it open, TranscriptError if it is not a session
    file of version 3. An incomplete last line is removed and reported in `notes`.
    """
    file, session, notes = TranscriptFile.open(path)
    try:
        header = session.header
        if header is None:
            now = time.time() if clock is None else clock.now()
            header = file.begin(
                session_id=session_id,
                timestamp=timestamp_at(now),
                cwd=str(cwd) if cwd is not None else os.getcwd(),  # noqa: PTH109 - as pi spells it
            )
    except BaseException:
        file.close()
        raise
    return SessionTranscript(
        file, header=header, entries=session.entries, redaction=redaction, clock=clock, notes=notes
    )
