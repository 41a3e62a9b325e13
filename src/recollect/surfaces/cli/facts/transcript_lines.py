"""Where a message of the archive stands in a transcript: file and line.

An imported message knows its file and line. One of Recollect's own agent is looked for in the
session's transcript, by its words. Never opens any other file. What cannot be found is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.formats.pi_session import PiEntry
    from recollect.values.segment import Segment

_MS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptLine:
    """A place in a file, or why there is none."""

    place: str | None = None
    """`FILE:LINE`."""
    reason: str = ""

    def __str__(self) -> str:
        """The place, or the reason in brackets."""
        return self.place if self.place is not None else f"({self.reason})"


def find_line(space: str, segment: Segment) -> TranscriptLine:
    """Where a message stands."""
    if segment.origin is not None:
        from recollect.upkeep.chores import VECTOR_ORIGIN

        return TranscriptLine(place=segment.origin.partition(VECTOR_ORIGIN)[0])
    if segment.source == "note":
        return TranscriptLine(reason="a note, written by hand into the memory")
    from recollect.session.files import transcript_file

    path = transcript_file(space, segment.session)
    if not path.is_file():
        return TranscriptLine(reason="no transcript here: it came through a request")
    return _in_transcript(path, segment)


def _in_transcript(path: Path, segment: Segment) -> TranscriptLine:
    from recollect.formats.pi_session import read_session

    try:
        data = path.read_bytes()
    except OSError as error:
        return TranscriptLine(reason=f"{path.name} cannot be read: {error.strerror}")
    found = [entry for entry in read_session(data).entries if _says(entry, segment.text)]
    if not found:
        return TranscriptLine(reason=f"not in {path.name}: it was changed or forgotten there")
    # The same words may stand there twice; the one said nearest to then is meant.
    nearest = min(found, key=lambda one: abs(one.milliseconds / _MS - segment.said_at))
    return TranscriptLine(place=f"{path}:{nearest.number}")


def _says(entry: PiEntry, text: str) -> bool:
    from recollect.rules.text import without_thinking
    from recollect.session.forget_entries import comparable, text_of

    said = text_of(entry)
    if not said:
        return False
    wanted = {comparable(text), comparable(without_thinking(text))} - {""}
    forms = {comparable(said), comparable(without_thinking(said))}
    return not wanted.isdisjoint(forms)
