"""The index of a space's sessions, `sessions.json`: the transcript of each session key.

It never loses another process's change, nor a field that it does not know. The file is whole at any
moment, and is changed under a lock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from recollect.adapters.session.files import (
    held,
    new_session_id,
    private_folder,
    sessions_file,
)
from recollect.core.formats.json_text import decode, number_at, text_at
from recollect.core.ports import Clock
from recollect.errors import FormatError, TranscriptError
from recollect.system.durable import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """The session of a key."""

    session_id: str
    """Names the transcript."""
    updated_at: int | None = None
    """In milliseconds."""
    others: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The record as it was read, with fields that are not known here."""

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """Read a record of the file; a value of the wrong type counts as absent."""
        wire = dict(value)
        at = number_at(wire, "updatedAt")
        return cls(
            session_id=text_at(wire, "sessionId") or "",
            updated_at=None if at is None else int(at),
            others=wire,
        )

    def write(self) -> dict[str, Any]:
        """The record for the file."""
        return {**self.others, "sessionId": self.session_id, "updatedAt": self.updated_at}


LOCK_SECONDS: Final = 10.0
"""How long a change waits for the others: each of theirs is a read, a write and a sync."""


class SessionIndex:
    """One space's sessions. Its methods wait for the disk."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock

    @classmethod
    def of_space(cls, space: str, *, clock: Clock | None = None) -> SessionIndex:
        """The index in the data folder."""
        return cls(sessions_file(space), clock=clock)

    def sessions(self) -> dict[str, SessionRecord]:
        """Every session, by its key."""
        return {key: SessionRecord.read(value) for key, value in self._read().items()}

    def get(self, key: str) -> SessionRecord | None:
        """The session of this key, if there is one."""
        found = self._read().get(key)
        return None if found is None else SessionRecord.read(found)

    def open(self, key: str) -> SessionRecord:
        """The session of this key, begun now where there is none."""
        return self.update(key, lambda record: record)

    def update(self, key: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Change a session's record as it stands now; a new one where there is none.

        `change` is called under the lock and must be quick.
        """
        with self._changing():
            stored = self._read()
            before = SessionRecord.read(stored.get(key) or {})
            named = before if before.session_id else replace(before, session_id=new_session_id())
            after = change(named)
            if after != before:
                after = replace(after, updated_at=round(self._now() * 1000))
                stored[key] = after.write()
                replace_file(self.path, _spelled(stored))
        return after

    def begin_anew(self, key: str) -> SessionRecord:
        """A new transcript under this key; the old one stays on the disk."""
        return self.update(key, lambda record: replace(record, session_id=new_session_id()))

    def remove(self, key: str) -> bool:
        """Take a session out of the index; its transcript stays."""
        with self._changing():
            stored = self._read()
            if stored.pop(key, None) is None:
                return False
            replace_file(self.path, _spelled(stored))
        return True

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            private_folder(self.path.parent)
            with held(self.path.with_name(f"{self.path.name}.lock"), seconds=LOCK_SECONDS):
                yield
        except OSError as error:
            why = error.strerror or str(error)
            raise TranscriptError(
                f"{self.path.name} could not be written: {why}; mend that and try again"
            ) from error

    def _now(self) -> float:
        return time.time() if self._clock is None else self._clock.now()

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            why = error.strerror or str(error)
            raise TranscriptError(f"{self.path.name} could not be read: {why}") from error
        try:
            value = decode(data)
        except FormatError as error:
            raise self._damaged() from error
        if not isinstance(value, dict) or not all(
            isinstance(other, dict) for other in value.values()
        ):
            raise self._damaged()
        return value

    def _damaged(self) -> TranscriptError:
        return TranscriptError(
            f"{self.path.name} is damaged and was left as it is; mend it or move it away (the "
            "transcripts beside it are whole without it)"
        )


def _spelled(stored: Mapping[str, Any]) -> bytes:
    return (json.dumps(stored, indent=2) + "\n").encode("ascii")
