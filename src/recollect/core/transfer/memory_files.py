"""Follows memory files: reads them at the start and at intervals, stores sections that changed, and
removes those that the files no longer contain. A scan compares the files with the store, so it
needs no other state. A scan never blocks the event loop or changes a file. A second scan changes
nothing. Forgotten sections are not stored again. Sections of unreadable files are not removed. A
scan that fails or hangs never affects a turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from recollect.core.boundary import Component, Failure, attempted
from recollect.core.ports import Archive, Clock
from recollect.core.transfer.file_sections import (
    SESSION_PREFIX,
    FileChange,
    FileRules,
    ReadFile,
    compare,
    make_segments,
    owner_of,
    read_file,
    read_stored_sections,
    session_of,
)
from recollect.core.transfer.file_walk import FollowedFiles, FoundFile, FoundFiles, ThreadRunner
from recollect.core.values.batch import EMBED_JOB, Batch, NewJob
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.segment import Segment, SegmentId
from recollect.core.values.upkeep import (
    FileOutcome,
    MemoryFileResult,
    MemoryFilesResult,
    SessionSummary,
    SkippedFile,
)
from recollect.errors import StoreError

WriteBatch: TypeAlias = Callable[[Batch], Awaitable[object]]
"""Stores a batch durably, or raises."""
OpenArchive: TypeAlias = Callable[[], Awaitable[Archive]]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of files done, and with the total."""

BATCH_SEGMENTS = 50
"""Not measured; bounds how long one write locks the store for turns."""
STEP_SECONDS = 60.0
"""Time limit for listing the files, and for reading one of them."""

_SETTLED_SECONDS = 2.0  # a file that changed just now may change again without a new time or size

LOOK_SECONDS = 2.0
"""Maximum time that a query waits for the first scan."""
CLOSE_SECONDS = 1.0
"""Maximum time to wait for a running scan when closing."""
LEAST_SECONDS = 1.0
"""Shortest interval, so that scans do not need a whole processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """A session that scans skip until its file or the store changes."""

    summary: SessionSummary | None
    file: FoundFile | None = None
    """The file; None if the session belongs to a file of another workspace."""
    sections: int = 0


@dataclass(slots=True, kw_only=True)
class _Scan:
    archive: Archive
    found_files: FoundFiles
    now: float
    files: list[MemoryFileResult] = field(default_factory=list)
    skipped_files: list[SkippedFile] = field(default_factory=list)
    forgotten_origins: list[str] = field(default_factory=list)
    redacted: int = 0

    def skip(self, label: str, reason: str) -> None:
        self.skipped_files.append(SkippedFile(file=label, reason=reason))

    def tell(self, label: str, outcome: FileOutcome, change: FileChange) -> None:
        self.forgotten_origins.extend(section.origin for section in change.forgotten_sections)
        self.files.append(
            MemoryFileResult(
                file=label,
                outcome=outcome,
                added=len(change.new_sections),
                moved=len(change.moved_sections),
                withdrawn=len(change.gone_ids),
                unchanged=change.unchanged,
            )
        )


class MemoryFiles:
    """The memory files of one workspace, which are followed into one space."""

    def __init__(
        self,
        workspace: Path,
        extra_paths: Sequence[str] = (),
        *,
        own_files: bool = True,
        open_archive: OpenArchive,
        write: WriteBatch,
        clock: Clock,
        rules: FileRules,
    ) -> None:
        """With `own_files`, follow the workspace's `MEMORY.md`, `memory.md` and
        `memory/**/*.md`."""
        self._followed_files = FollowedFiles(workspace, extra_paths, own_files=own_files)
        self._open_archive = open_archive
        self._clock = clock
        self._rules = rules
        self._thread = ThreadRunner(STEP_SECONDS)
        self._write = write
        self._settled: dict[str, _Settled] = {}
        self._owners = {
            outside: owner_of(self._followed_files.workspace, outside=outside)
            for outside in (False, True)
        }

    async def look(
        self, *, withdraw: bool = False, progress: Progress | None = None
    ) -> MemoryFilesResult:
        """Scan all files once. Raise StoreError if the store does not answer. `withdraw` removes
        all sections of the workspace's files, without reading the files."""
        found_files = FoundFiles() if withdraw else await self._walk()
        if isinstance(found_files, SkippedFile):
            return MemoryFilesResult(skipped=(found_files,))
        look = _Scan(
            archive=await self._open_archive(),
            found_files=found_files,
            now=self._clock.now(),
            skipped_files=list(found_files.skipped_files),
        )
        sessions = await look.archive.sessions()
        summary_by_name = {
            session.session: session
            for session in sessions
            if session.session.startswith(SESSION_PREFIX)
        }
        names = {session_of(file.label) for file in found_files.files}
        absent = [session for name, session in summary_by_name.items() if name not in names]
        total = len(found_files.files) + len(absent)
        answers = True
        for number, file in enumerate(found_files.files, 1):
            answers = await self._look_at(file, summary_by_name.get(session_of(file.label)), look)
            if not answers:
                break
            if progress is not None:
                progress(number, total)
        for summary in absent if answers else ():
            await self._look_for(summary, look, withdraw=withdraw)
        if progress is not None:
            progress(total, total)
        return MemoryFilesResult(
            files=tuple(look.files),
            skipped=tuple(look.skipped_files),
            forgotten=tuple(look.forgotten_origins),
            redacted=look.redacted,
        )

    async def _walk(self) -> FoundFiles | SkippedFile:
        try:
            return await self._thread.run(self._followed_files.find)
        except OSError as error:
            text = error.strerror or "it does not answer"
            return SkippedFile(file=str(self._followed_files.workspace), reason=text)

    async def _look_at(self, file: FoundFile, summary: SessionSummary | None, look: _Scan) -> bool:
        """Scan one file. Return False if the disk does not answer, to stop the scan."""
        settled_file = self._settled.get(session_of(file.label))
        if settled_file is not None and (settled_file.file, settled_file.summary) == (
            file,
            summary,
        ):
            look.tell(file.label, "unchanged", FileChange(unchanged=settled_file.sections))
            return True
        try:
            owner = self._owners[file.outside]
            read = await self._thread.run(lambda: read_file(file, owner=owner, rules=self._rules))
            if isinstance(read, ReadFile):
                await self._keep(file, read, summary, look)
                return True
            look.skip(file.label, read.reason)
            if read.refused and summary is not None:
                segments = await read_stored_sections(look.archive, summary.session, owner)
                await self._withdraw(file.label, segments, look)
        except TimeoutError:
            look.skip(
                file.label, "its disk does not answer; the next scan reads the remaining files"
            )
            return False
        return True

    async def _keep(
        self, file: FoundFile, read: ReadFile, summary: SessionSummary | None, look: _Scan
    ) -> None:
        if read.left_out:
            look.skip(file.label, f"{read.left_out:,} of its sections: it has more than the limit")
        segments: Mapping[SegmentId, Segment] = {}
        if summary is not None:
            owner = self._owners[file.outside]
            segments = await read_stored_sections(look.archive, summary.session, owner)
        change = await compare(look.archive, read, segments)
        if not change.is_none:
            await self._carry_out(file, change, segments, look)
        look.tell(file.label, _outcome(change, known=bool(segments)), change)
        self._settle(file, summary, change)

    async def _carry_out(
        self,
        file: FoundFile,
        change: FileChange,
        segments: Mapping[SegmentId, Segment],
        look: _Scan,
    ) -> None:
        new_segments = await self._thread.run(
            lambda: make_segments(
                file, change, segments, redaction=self._rules.redaction, now=look.now
            )
        )
        if change.gone_ids:
            await look.archive.withdraw(change.gone_ids)
        moved_ids = {section.id for section in change.moved_sections}
        for index in range(0, len(new_segments), BATCH_SEGMENTS):
            batch = tuple(new_segments[index : index + BATCH_SEGMENTS])
            old_ids = [s.segment.id for s in batch if s.segment.id in moved_ids]
            if old_ids:  # a store ignores known ids, so remove the old segments first
                await look.archive.withdraw(old_ids)
            has_embedded = any(passage.embedded for s in batch for passage in s.passages)
            names = self._rules.embedders if has_embedded else ()
            jobs = tuple(NewJob(kind=EMBED_JOB, key=name, run_at=look.now) for name in names)
            await self._write(Batch(at=look.now, segments=batch, jobs=jobs))
        look.redacted += sum(
            section.masked for section in (*change.new_sections, *change.moved_sections)
        )

    def _settle(self, file: FoundFile, summary: SessionSummary | None, change: FileChange) -> None:
        """Record that later scans may skip this file, unless it changed in the last two seconds."""
        is_fresh = time.time() - file.mtime_ns / 1e9 < _SETTLED_SECONDS
        # never skip a file with forgotten sections: report them, or store them without a tombstone
        if change.is_none and not change.forgotten_sections and not is_fresh:
            self._settled[session_of(file.label)] = _Settled(
                file=file, summary=summary, sections=change.unchanged
            )
        else:
            self._settled.pop(session_of(file.label), None)

    async def _look_for(self, summary: SessionSummary, look: _Scan, *, withdraw: bool) -> None:
        """Handle a stored file that was not found: it was deleted, its folder could not be listed,
        or it belongs to another workspace."""
        if self._settled.get(summary.session) == _Settled(summary=summary) and not withdraw:
            return
        label = summary.session.removeprefix(SESSION_PREFIX)
        is_ours = False
        for outside, owner in self._owners.items():
            segments = await read_stored_sections(look.archive, summary.session, owner)
            if not segments:
                continue
            is_ours = True
            if withdraw:
                gone = self._followed_files.is_within(label, outside=outside)
            else:
                gone = await self._is_gone(label, look.found_files, outside=outside)
            if gone:
                await self._withdraw(label, segments, look)
        if not is_ours:
            self._settled[summary.session] = _Settled(summary=summary)

    async def _is_gone(self, label: str, files: FoundFiles, *, outside: bool) -> bool:
        try:
            return await self._thread.run(
                lambda: self._followed_files.is_gone(label, files, outside=outside)
            )
        except OSError:
            return False

    async def _withdraw(self, label: str, segments: Iterable[SegmentId], look: _Scan) -> None:
        gone = tuple(segments)
        if gone:
            look.tell(label, "withdrawn", FileChange(gone_ids=gone))
            await look.archive.withdraw(gone)


def _outcome(change: FileChange, *, known: bool) -> FileOutcome:
    if change.is_none:
        return "unchanged"
    if not known:
        return "added"
    return (
        "changed"
        if change.new_sections or change.moved_sections or change.unchanged
        else "withdrawn"
    )


class Following:
    """Scans the files of one engine at intervals."""

    def __init__(
        self, look: Callable[[], Awaitable[MemoryFilesResult]], *, interval_seconds: float
    ) -> None:
        self._look = look
        self.interval_seconds: float = max(interval_seconds, LEAST_SECONDS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop, self._scan_event = asyncio.Event(), asyncio.Event()
        self._due = asyncio.Event()
        self._closed = False
        self.last: MemoryFilesResult | Failure | None = None
        self._component = Component("memory files")

    @property
    def running(self) -> bool:
        """True while a scan runs, or the next one is scheduled."""
        task, loop = self._task, self._loop
        return task is not None and loop is not None and not (task.done() or loop.is_closed())

    def trouble(self) -> Reason | None:
        """Return the problem of the last scan; None if there was none."""
        if isinstance(self.last, Failure):
            return Reason(Cause.FILES_NOT_LOOKED_AT, error=self.last.said)
        if self.last is None or not self.last.skipped:
            return None
        first = self.last.skipped[0]
        if more_count := len(self.last.skipped) - 1:
            return Reason(
                Cause.FILES_PASSED_OVER, file=first.file, why=first.reason, more=more_count
            )
        return Reason(Cause.FILE_PASSED_OVER, file=first.file, why=first.reason)

    def wake(self) -> None:
        """Start the scans if they are not running, without waiting for them."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a task of another event loop ended with that loop
            self._loop, self._task = loop, None
            self._stop, self._scan_event = asyncio.Event(), asyncio.Event()
            self._due = asyncio.Event()
        if not self.running:
            self._task = loop.create_task(self._follow(self._stop))

    async def look_now(self) -> None:
        """Start a scan, and wait for its end for a limited time."""
        self.wake()
        self._scan_event.clear()
        self._due.set()
        if self.running:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._scan_event.wait(), LOOK_SECONDS)

    async def close(self) -> None:
        """Stop the scans. The next start completes an interrupted scan."""
        self._closed = True
        task, self._task = self._task, None
        if task is None or self._loop is not asyncio.get_running_loop():
            return
        self._stop.set()
        self._due.set()
        _, looks = await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if looks:
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_SECONDS)

    async def _follow(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._due.clear()
            self.last = await attempted(self._look())
            if not self._due.is_set():  # else a scan was asked for while this one ran
                self._scan_event.set()
            if isinstance(self.last, Failure):
                # Failures of the store are reported by its own component.
                if not issubclass(self.last.error, StoreError):
                    self._component.fail(self.last.said)
            else:
                self._component.recover()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), self.interval_seconds)
