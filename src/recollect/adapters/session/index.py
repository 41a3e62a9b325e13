"""The index of a space's sessions: `sessions.json`, by session key, with OpenClaw's fields.

Must never lose another process's change, nor a field that it does not know. Always holds: the file
is whole at any moment; a change is made to what stands there then, under a lock; "never flushed"
is None, never 0; counts from before a compaction are never taken for those after it.
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

# What the index knows of one session: which transcript, how often compacted, how many tokens


_COUNTS: Final = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "context_tokens": "contextTokens",
}
_FRESH: Final = "totalTokensFresh"  # OpenClaw's own name for it


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session of a space."""

    session_id: str
    """Names the transcript."""
    compaction_count: int = 0
    memory_flush_at: int | None = None
    """When notes were last saved before a compaction, in milliseconds; None for never."""
    memory_flush_compaction_count: int | None = None
    """How many compactions there had been then; None for never."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    context_tokens: int | None = None
    """An estimate of what the next request holds."""
    tokens_are_fresh: bool = False
    """The counts are a provider's, and no compaction came after them."""
    updated_at: int | None = None
    """In milliseconds."""
    others: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The record as it was read, fields included that are not known here."""

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """A record of the file; what is of the wrong type counts as absent."""
        wire = dict(value)
        flushed_at = _count(wire, "memoryFlushAt") or None
        fresh = wire.get(_FRESH)
        return cls(
            session_id=text_at(wire, "sessionId") or "",
            compaction_count=_count(wire, "compactionCount") or 0,
            memory_flush_at=flushed_at,
            memory_flush_compaction_count=(
                _count(wire, "memoryFlushCompactionCount") if flushed_at is not None else None
            ),
            **{name: _count(wire, key) for name, key in _COUNTS.items()},
            tokens_are_fresh=fresh is True,
            updated_at=_count(wire, "updatedAt"),
            others=wire,
        )

    def write(self) -> dict[str, Any]:
        """The record for the file; what is None is left out."""
        known: dict[str, Any] = {
            "sessionId": self.session_id,
            "updatedAt": self.updated_at,
            "compactionCount": self.compaction_count,
            "memoryFlushAt": self.memory_flush_at,
            "memoryFlushCompactionCount": self.memory_flush_compaction_count,
            **{key: getattr(self, name) for name, key in _COUNTS.items()},
            _FRESH: self.tokens_are_fresh,
        }
        merged = {**self.others, **known}
        return {
            key: value for key, value in merged.items() if value is not None or key not in known
        }

    @property
    def flushed_in_this_cycle(self) -> bool:
        """Notes were saved since the last compaction."""
        return self.memory_flush_compaction_count == self.compaction_count

    @property
    def fresh_tokens(self) -> int | None:
        """What the last request held, as its provider counted; None where nobody knows."""
        return self.total_tokens if self.tokens_are_fresh else None

    def after_reply(
        self, *, input_tokens: int, output_tokens: int, context_tokens: int | None = None
    ) -> Self:
        """A provider reported what a call used; the input is the whole input, cached or not."""
        total = input_tokens + output_tokens
        return replace(
            self,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            total_tokens=total,
            context_tokens=total if context_tokens is None else context_tokens,
            tokens_are_fresh=True,
        )

    def after_compaction(self, *, tokens_after: int | None = None) -> Self:
        """The past was replaced: one more, and no count from before it stands."""
        return replace(
            self.with_stale_tokens(tokens_after), compaction_count=self.compaction_count + 1
        )

    def with_stale_tokens(self, tokens_after: int | None = None) -> Self:
        """The view has changed without a call, by a compaction or its undoing: what a provider
        counted before says nothing now, and at most an estimate of the new size is known."""
        known = tokens_after if tokens_after is not None and tokens_after > 0 else None
        return replace(
            self,
            input_tokens=None,
            output_tokens=None,
            total_tokens=known,
            context_tokens=known,
            tokens_are_fresh=False,
        )

    def with_compactions(self, count: int) -> Self:
        """As many compactions as its transcript holds, whatever was counted before: a process may
        have ended between the transcript's line and this one."""
        return replace(self, compaction_count=count)

    def after_flush(self, now: float) -> Self:
        """Notes were saved in this cycle."""
        return replace(
            self,
            memory_flush_at=_milliseconds(now),
            memory_flush_compaction_count=self.compaction_count,
        )

    def begun_anew(self, session_id: str) -> Self:
        """The same key with a new transcript, in which nothing has happened yet."""
        return type(self)(session_id=session_id, updated_at=self.updated_at, others=self.others)

    def touched(self, now: float) -> Self:
        """Changed just now."""
        return replace(self, updated_at=_milliseconds(now))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _count(wire: dict[str, Any], key: str) -> int | None:
    found = number_at(wire, key)
    return int(found) if found is not None and found >= 0 else None


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
            named = before if before.session_id else before.begun_anew(new_session_id())
            after = change(named)
            if after != before:
                after = after.touched(self._now())
                stored[key] = after.write()
                replace_file(self.path, _spelled(stored))
        return after

    def begin_anew(self, key: str) -> SessionRecord:
        """A new transcript under this key; the old one stays on the disk."""
        return self.update(key, lambda record: record.begun_anew(new_session_id()))

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
        """Nobody else changes the file meanwhile."""
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
