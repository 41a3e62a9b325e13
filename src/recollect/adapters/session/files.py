"""Opens, locks and replaces session files, and keeps the index of a space's sessions.

The folders have OpenClaw's layout. Functions raise TranscriptError if the system refuses. No two
spaces or sessions share a file, no name can lead out of its folder, and only the owner can read the
files. A change of `sessions.json` keeps changes by other processes, and unknown fields."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, ParamSpec, Self, TypeVar

from recollect.core.formats.json_text import decode, number_at, text_at
from recollect.core.ports import Clock
from recollect.errors import FormatError, TranscriptError, TranscriptLocked
from recollect.system.durable import make_folder, replace_file, same_file, sync_folder, try_lock
from recollect.system.places import file_name, sessions_folder

_P = ParamSpec("_P")
_Written = TypeVar("_Written")
OWNER_ONLY: Final = 0o600
"""Only the owner may read and write a session file, because it contains conversations."""
_MAX_ATTEMPTS: Final = 5
"""Not measured; bounds the retries if other processes replace the file before it is locked."""


@contextlib.contextmanager
def translate_errors(path: Path, participle: str) -> Iterator[None]:
    """Raise TranscriptError if the operating system refuses an operation inside the block."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise TranscriptError(
            f"{path.name} could not be {participle}: {reason}; fix that and try again"
        ) from error


def open_for_one(
    path: Path, *, create: bool, seconds: float = 0.0, mode: int = OWNER_ONLY, flags: int = 0
) -> int:
    """Open the file for appending, and lock it until it is closed or the process ends."""
    flags |= os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(_MAX_ATTEMPTS):
        descriptor = os.open(path, flags | (os.O_CREAT if create else 0), mode)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TranscriptError(  # noqa: TRY301 - closes the file
                    f"{path.name} must be a regular file: give another path"
                )
            if not try_lock(descriptor, seconds):
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
    raise TranscriptError(
        f"another program keeps replacing {path.name}: stop that program and try again"
    )


@contextlib.contextmanager
def hold_lock(lock: Path, *, seconds: float) -> Iterator[None]:
    """Hold a lock file, so that other processes wait for this one."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        if not try_lock(descriptor, seconds):
            raise TranscriptLocked(
                f"another process has held the lock {lock.name} for more than {seconds:g} s: "
                "end that process if it hangs"
            )
        yield
    finally:
        os.close(descriptor)


def rewrite_locked(
    path: Path, change: Callable[[bytes], bytes | None], *, seconds: float = 0.0
) -> bytes:
    """Replace a file by the result of `change`, or delete the file if the result is None. Return
    the old content. Waits up to `seconds` for other processes to release the file's lock."""
    descriptor = open_for_one(path, create=False, seconds=seconds)
    try:
        data = read_all(descriptor)
        new_data = change(data)
        if new_data is None:
            path.unlink()
            sync_folder(path.parent)
        elif new_data != data:
            replace_file(path, new_data, mode=stat.S_IMODE(os.fstat(descriptor).st_mode))
    finally:
        os.close(descriptor)
    return data


def read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read()


async def write_durably(
    write: Callable[_P, _Written], *args: _P.args, **kwargs: _P.kwargs
) -> _Written:
    """Run `write` in a thread. A cancellation is raised only after `write` has ended, so that a
    later write cannot run first."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *args, **kwargs))
    cancellation: asyncio.CancelledError | None = None
    while not writing.done():
        try:
            await asyncio.wait({writing})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        # Read the exception, so that asyncio does not warn: the cancellation is raised instead.
        writing.exception()
        raise cancellation
    return writing.result()


INDEX_NAME: Final = "sessions.json"
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMED: Final = "named-"  # distinguishes a name that was made safe from every UUID


def new_session_id() -> str:
    return str(uuid.uuid4())


def transcript_file(space: str, session_id: str) -> Path:
    is_uuid = _UUID.fullmatch(session_id) is not None
    name = session_id if is_uuid else _NAMED + file_name(session_id)
    return sessions_folder(space) / f"{name}.jsonl"


def sessions_file(space: str) -> Path:
    return sessions_folder(space) / INDEX_NAME


TOKEN_FIELDS: Final = ("inputTokens", "outputTokens", "totalTokens", "contextTokens")
COUNT_FIELDS: Final = (
    *("compactionCount", "memoryFlushAt", "memoryFlushCompactionCount"),
    *TOKEN_FIELDS,
)
"""OpenClaw's counts of a session in `sessions.json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A record of `sessions.json`: the session that a key names."""

    session_id: str
    """Id of the session, and name of its transcript."""
    updated_at: int | None = None
    """Time of the last change, in milliseconds."""
    raw_fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All fields of the record as it was read, unknown ones included."""

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """Parse a record of `sessions.json`, and ignore values of the wrong type."""
        wire = dict(value)
        milliseconds = number_at(wire, "updatedAt")
        return cls(
            session_id=text_at(wire, "sessionId") or "",
            updated_at=None if milliseconds is None else int(milliseconds),
            raw_fields=wire,
        )

    def write(self) -> dict[str, Any]:
        return {**self.raw_fields, "sessionId": self.session_id, "updatedAt": self.updated_at}

    def with_counts(self, counts: Mapping[str, int | None]) -> Self:
        """Return the record with these counts in place of all earlier ones."""
        new_counts = {name: count for name, count in counts.items() if count is not None}
        other_fields = {
            name: value for name, value in self.raw_fields.items() if name not in COUNT_FIELDS
        }
        return replace(self, raw_fields={**other_fields, **new_counts})


LOCK_SECONDS: Final = 10.0
"""Maximum time that a change (a read, a write and a sync) waits for other processes."""


class SessionIndex:
    """The index `sessions.json` of one space. The methods block on disk access."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock

    @classmethod
    def of_space(cls, space: str, *, clock: Clock | None = None) -> SessionIndex:
        return cls(sessions_file(space), clock=clock)

    def sessions(self) -> dict[str, SessionRecord]:
        return {key: SessionRecord.read(value) for key, value in self._read_file().items()}

    def open(self, key: str) -> SessionRecord:
        """Return the session of this key; create it if there is none."""
        return self.update(key, lambda record: record)

    def update(self, key: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Change or create a session's record. `change` runs under the lock and must be fast."""
        with self._changing():
            records = self._read_file()
            old_record = SessionRecord.read(records.get(key) or {})
            named_record = (
                old_record
                if old_record.session_id
                else replace(old_record, session_id=new_session_id())
            )
            new_record = change(named_record)
            if new_record != old_record:
                now = time.time() if self._clock is None else self._clock.now()
                new_record = replace(new_record, updated_at=round(now * 1000))
                records[key] = new_record.write()
                replace_file(self.path, _encode(records))
        return new_record

    def start_transcript(self, key: str) -> SessionRecord:
        """Start a new transcript under this key. The old transcript stays on the disk."""
        new_id = new_session_id()
        return self.update(key, lambda record: replace(record.with_counts({}), session_id=new_id))

    def remove(self, key: str) -> bool:
        """Remove a session from the index. The session's transcript stays on the disk."""
        with self._changing():
            records = self._read_file()
            if records.pop(key, None) is None:
                return False
            replace_file(self.path, _encode(records))
        return True

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with translate_errors(self.path, "written"):
            make_folder(self.path.parent)
            with hold_lock(self.path.with_name(f"{self.path.name}.lock"), seconds=LOCK_SECONDS):
                yield

    def _read_file(self) -> dict[str, dict[str, Any]]:
        with translate_errors(self.path, "read"):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return {}
        try:
            value = decode(data)
        except FormatError:
            value = None
        if not isinstance(value, dict) or not all(
            isinstance(record, dict) for record in value.values()
        ):
            raise TranscriptError(
                f"{self.path.name} is damaged and was not changed: fix it or move it away "
                "(transcripts work without this file)"
            )
        return value


def _encode(records: Mapping[str, Any]) -> bytes:
    return (json.dumps(records, indent=2) + "\n").encode("ascii")
