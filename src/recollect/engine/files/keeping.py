"""What is to be done about one memory file, and the doing of it.

Owns the comparison of a file's sections with the segments that the store has of it, and the order
of writes: what the file no longer says goes first. Must never write what is stored already or was
forgotten. Always holds: a crash in between leaves something missing at worst, and the next look
adds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from recollect.config.settings import Redaction
from recollect.engine.files.followed import FoundFile
from recollect.engine.files.patient_thread import PatientThread
from recollect.engine.files.sections import ReadFile, ReadSection, said_at_of, session_of
from recollect.ports import Archive
from recollect.rules.tokens import Weigher
from recollect.turn.ingest import index, ingest
from recollect.values.batch import EMBED_JOB, Batch, NewJob
from recollect.values.message import EntryKey, MessageId
from recollect.values.segment import NewSegment, Segment, SegmentId

WriteBatch: TypeAlias = Callable[[Batch], Awaitable[object]]
"""Makes a batch durable, or raises."""

BATCH_SEGMENTS = 50
PAGE_SEGMENTS = 500

# Other kinds of noise are things that chats say: a file that speaks of them means it.
_WORDLESS = (None, "empty", "no words", "short")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """How sections are kept."""

    secret: bytes = field(repr=False)
    """The key of the space's identities."""
    redaction: Redaction
    weigher: Weigher
    embedders: tuple[str, ...] = ()
    """Those that new passages get a vector of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What is to be done about one file."""

    unchanged: int = 0
    fresh: tuple[ReadSection, ...] = ()
    moved: tuple[ReadSection, ...] = ()
    gone: tuple[SegmentId, ...] = ()
    forgotten: tuple[ReadSection, ...] = ()
    """Not stored, and not to be."""

    @property
    def is_none(self) -> bool:
        """Whether the store has the file as it is."""
        return not (self.fresh or self.moved or self.gone)


class FileKeeper:
    """Compares files with a store, and writes what differs."""

    def __init__(self, *, write: WriteBatch, rules: FileRules, thread: PatientThread) -> None:
        self._write = write
        self._rules = rules
        self._thread = thread

    async def stored(
        self, archive: Archive, session: str, owner: str
    ) -> Mapping[SegmentId, Segment]:
        """What the store has of a file of this owner."""
        held: dict[SegmentId, Segment] = {}
        after = 0
        while page := await archive.page(after=after, limit=PAGE_SEGMENTS, session=session):
            after = page[-1].sequence
            for one in page:
                segment = one.segment
                if segment.source == "file" and segment.key.startswith(owner):
                    held[segment.id] = segment
        return held

    async def compare(
        self, archive: Archive, read: ReadFile, held: Mapping[SegmentId, Segment]
    ) -> FileChange:
        """How a file differs from what is stored of it."""
        ids = {section.id for section in read.sections}
        present = [section for section in read.sections if section.id in held]
        missing = [section for section in read.sections if section.id not in held]
        moved = tuple([one for one in present if held[one.id].origin != one.origin])
        marks = await archive.tombstoned(
            [MessageId(mark) for one in missing for mark in (one.id, one.entry.id)]
        )
        forgotten = [not marks.isdisjoint((one.id, one.entry.id)) for one in missing]
        return FileChange(
            unchanged=len(present) - len(moved),
            fresh=tuple([one for one, gone in zip(missing, forgotten, strict=True) if not gone]),
            moved=moved,
            gone=tuple([id_ for id_ in held if id_ not in ids]),
            forgotten=tuple([one for one, gone in zip(missing, forgotten, strict=True) if gone]),
        )

    async def carry_out(
        self,
        archive: Archive,
        file: FoundFile,
        change: FileChange,
        held: Mapping[SegmentId, Segment],
        *,
        now: float,
    ) -> int:
        """Make the store have the file as it is; returns how many secrets were masked."""
        said_at = said_at_of(file, now=now)
        # what moved keeps the time it was first said at, though it is written again
        times = {one.entry.key: held[one.id].said_at for one in change.moved}
        moved = {one.id for one in change.moved}
        written = sorted((*change.fresh, *change.moved), key=lambda one: one.line)
        made = await self._thread.run(lambda: self._made(file.label, written, times, said_at, now))
        if change.gone:
            await archive.withdraw(change.gone, at=now)
        for at in range(0, len(made), BATCH_SEGMENTS):
            batch = made[at : at + BATCH_SEGMENTS]
            again = [new.segment.id for new in batch if new.segment.id in moved]
            if again:  # a store keeps what it knows, so the old place has to go first
                await archive.withdraw(again, at=now)
            await self._write(Batch(at=now, segments=tuple(batch), jobs=self._jobs(batch, now)))
        return sum(section.masked for section in written)

    def _made(
        self,
        label: str,
        sections: Sequence[ReadSection],
        times: Mapping[EntryKey, float],
        said_at: float,
        now: float,
    ) -> list[NewSegment]:
        made = ingest(
            [section.entry for section in sections],
            session=session_of(label),
            source="file",
            said_at={one.entry.key: times.get(one.entry.key, said_at) for one in sections},
            redaction=self._rules.redaction,
            now=now,
            origins={one.entry.key: one.origin for one in sections},
        )
        return [_indexed(new) for new in made.segments]

    def _jobs(self, batch: Iterable[NewSegment], now: float) -> tuple[NewJob, ...]:
        if not any(passage.embedded for new in batch for passage in new.passages):
            return ()
        return tuple(
            NewJob(kind=EMBED_JOB, key=embedder, run_at=now) for embedder in self._rules.embedders
        )


def _indexed(new: NewSegment) -> NewSegment:
    if new.segment.noise in _WORDLESS:
        return new
    segment = replace(new.segment, noise=None)
    return NewSegment(segment=segment, passages=index(segment))
