"""Reads the user's transcripts for the recall bench: each session as it would be stored.

Owns what of a recording is replayed: every message in its order but summaries, which are the
client's own way to remember. A file that cannot be read is counted, never named with its
content. Always holds: entries and segments go together, one to one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from recollect.config.settings import Redaction
from recollect.errors import FormatError, RecollectError
from recollect.formats.codec import CODECS
from recollect.formats.transcripts import read_transcripts
from recollect.rules.identity import ROOT, chain, space_secret
from recollect.rules.tokens import Weigher
from recollect.surfaces.cli.import_sources import Recorded, find_sources
from recollect.turn.align import Remembered, enter, read
from recollect.turn.ingest import ingest
from recollect.values.history import Entry
from recollect.values.message import EntryKey
from recollect.values.recall import RecalledPassage
from recollect.values.segment import NewSegment
from recollect.values.transcript import RecordedSession
from recollect_bench.recall.references import Reference, find_references


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSession:
    """A recorded session, as it would be stored."""

    name: str
    entries: tuple[Entry, ...] = field(repr=False)
    segments: tuple[NewSegment, ...] = field(repr=False)
    references: tuple[Reference, ...] = field(repr=False)

    def passages_at(self, place: int) -> list[RecalledPassage]:
        """The passages of a message as they would stand in a block."""
        new = self.segments[place]
        segment = new.segment
        said = datetime.fromtimestamp(segment.said_at, UTC)
        return [
            RecalledPassage(
                text=segment.text[passage.start : passage.end],
                role=segment.role,
                said_at=f"{said:%Y-%m-%d %H:%M}",
                score=0.0,
                speaker=segment.role,
                sitting=f"{segment.session}\n{said:%Y-%m-%d}",
                order=(segment.said_at, place, passage.start),
            )
            for passage in new.passages
        ]


def own_sessions(
    paths: Sequence[Path], *, most: int | None
) -> tuple[list[OwnSession], Counter[str]]:
    """The sessions of these files and folders, and why files were passed over."""
    for path in paths:
        if not path.exists():
            raise RecollectError(f"there is no {path}: give files or folders of transcripts")
    found: list[OwnSession] = []
    unread: Counter[str] = Counter()
    for source in find_sources(tuple(paths)):
        if not isinstance(source, Recorded):
            unread["not a transcript"] += 1
            continue
        try:
            recorded = read_transcripts(source.read(), name=source.name)
        except FormatError:
            unread["not of a known format"] += 1
            continue
        for number, transcript in enumerate(recorded):
            name = source.stem if len(recorded) == 1 else f"{source.stem}-{number}"
            found.append(as_session(transcript, name=name, said_at=source.modified_at))
            if most is not None and sum(bool(one.references) for one in found) >= most:
                return found, unread
    return found, unread


def as_session(transcript: RecordedSession, *, name: str, said_at: float) -> OwnSession:
    """A recording as the archive would keep it, with what it refers back to."""
    codec = CODECS[transcript.format]
    raws = [item.raw for item in transcript.items]
    readings = read(raws, codec, space_secret(name), Weigher(), Remembered()).fresh
    entries: list[Entry] = []
    times: dict[EntryKey, float] = {}
    key, last = ROOT, said_at
    for item, reading in zip(transcript.items, readings, strict=True):
        last = last if item.timestamp is None else item.timestamp
        if not reading.message.summary:
            key = chain(key, reading.id)
            times[key] = last
            entries.append(enter(reading, key))
    made = ingest(
        entries,
        session=name,
        source="import",
        said_at=times,
        redaction=Redaction(),
        now=last,
    )
    skipped = set(made.skipped)
    kept = tuple(entry for entry in entries if entry.key not in skipped)
    return OwnSession(
        name=name,
        entries=kept,
        segments=made.segments,
        references=tuple(find_references(kept, made.segments)),
    )
