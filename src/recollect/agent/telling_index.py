"""The index of sessions while an agent runs: what goes wrong with it is told, never a turn's end.

The index is a convenience beside the transcripts, which are whole without it. Always holds: a run
waits for a lock that somebody holds once at most; what failed is told in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable

from recollect.errors import TranscriptError
from recollect.session.index import SessionIndex, SessionRecord


class TellingIndex(SessionIndex):
    """An index that notes its failures."""

    def __init__(self, index: SessionIndex) -> None:
        super().__init__(index.path)
        self._index = index
        self._failed = False
        self._notes: list[str] = []

    def begin(self) -> None:
        """A run begins: what failed before may succeed now."""
        self._failed = False

    def take_notes(self) -> list[str]:
        """What failed since it was last asked, one sentence each."""
        notes, self._notes = self._notes, []
        return notes

    def update(self, key: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Change a record, where that can be done."""
        if not self._failed:
            try:
                return self._index.update(key, change)
            except TranscriptError as error:
                self._note(error)
        return change(SessionRecord(session_id=""))

    def get(self, key: str) -> SessionRecord | None:
        """The record; None where it cannot be read."""
        try:
            return self._index.get(key)
        except TranscriptError as error:
            self._note(error)
            return None

    def _note(self, error: TranscriptError) -> None:
        self._failed = True
        self._notes.append(f"The index of sessions was not brought up to date: {error}")
