"""Finds the recordings among files, and imports them into one memory.

In a folder, only files that look like recordings are read; a named file is always read. A file that
cannot be read is reported, and the import continues."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recollect.cli.store_options import Memory
from recollect.core.boundary import Failure, attempted
from recollect.core.engine.host_receipts import store_host_receipts
from recollect.core.formats.openclaw_files import KNOWLEDGE, SEGMENTS, VECTORS, read_vectors
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.transfer.openclaw import NO_VECTORS, import_facts, import_segments
from recollect.core.transfer.transcripts import ImportCounts, ImportRules, import_transcript
from recollect.errors import FormatError, MissingExtra, RecollectError, UnknownFormat
from recollect.hosts.inspect.sessions import engine_without_models

if TYPE_CHECKING:
    from recollect.core.engine import Engine
    from recollect.core.ports import Store
    from recollect.core.values.transcript import RecordedSession

OPENCLAW_FILES: Final = (SEGMENTS, KNOWLEDGE, VECTORS)
_ENDINGS: Final = (".jsonl", ".json", ".gz", ".ndjson", ".zst")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A file that may be a recording."""

    name: str
    stem: str
    """Name for a recorded session that contains no name."""
    modified_at: float
    read: Callable[[], bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenclawFolder:
    """A folder with OpenClaw's files, or one of these files."""

    name: str
    files: tuple[Path, ...]


def find_sources(paths: tuple[Path, ...]) -> Iterator[Recorded | OpenclawFolder]:
    """Yield every file and folder to import, in a fixed order, each file once."""
    seen: set[Path] = set()
    for path in paths:
        folder = path if path.is_dir() else None
        for file in [path] if folder is None else _files_in(folder):
            if file.resolve() in seen:
                continue
            seen.add(file.resolve())
            name = file.name if folder is None else str(file.relative_to(folder))
            if folder is not None and not _is_inside(file, folder):
                yield Recorded(name=name, stem=name, modified_at=0.0, read=_refuse_link)
            elif file.name not in OPENCLAW_FILES:
                modified_at, stem = file.stat().st_mtime, stem_of(file.name)
                yield Recorded(name=name, stem=stem, modified_at=modified_at, read=file.read_bytes)
            elif folder is None:
                yield OpenclawFolder(name=name, files=(file,))
            else:
                openclaw_paths = [file.parent / file_name for file_name in OPENCLAW_FILES]
                files = [
                    openclaw_path
                    for openclaw_path in openclaw_paths
                    if openclaw_path.is_file() and _is_inside(openclaw_path, folder)
                ]
                seen.update(openclaw_path.resolve() for openclaw_path in files)
                name = str(file.parent.relative_to(folder.parent))
                yield OpenclawFolder(name=name, files=tuple(files))


def _files_in(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        maybe = not file.name.startswith(".") and file.name.lower().endswith(_ENDINGS)
        if file.is_file() and (maybe or file.name in OPENCLAW_FILES):
            yield file


def _is_inside(file: Path, folder: Path) -> bool:
    """Return False for a link to a file outside of the folder: a stranger may have made it."""
    return file.resolve().is_relative_to(folder.resolve())


def _refuse_link() -> bytes:
    raise OSError(errno.EPERM, "it is a link that leads out of the folder")


def stem_of(name: str) -> str:
    while name.lower().endswith(_ENDINGS) and Path(name).suffix:
        name = Path(name).stem
    return name


@dataclass(slots=True, kw_only=True)
class FileOutcome:
    """Counts and problems of one imported file."""

    file: str
    kind: str
    sessions: int = 0
    messages: ImportCounts = field(default_factory=ImportCounts)
    facts: ImportCounts = field(default_factory=ImportCounts)
    altered: int = 0
    receipts: int = 0
    passed_over: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(slots=True, kw_only=True)
class ImportRun:
    """Imports recordings into one memory, and creates it only if there is something to store."""

    memory: Memory
    session: str | None = None
    restore: bool = False
    show: Callable[[str, int, int | None], None] = lambda *_: None
    rules: ImportRules = field(init=False)
    opening: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)
    store: Store | None = field(default=None, init=False)
    engine: Engine | None = field(default=None, init=False)

    async def take_all(
        self,
        sources: Iterable[Recorded | OpenclawFolder],
        report: Callable[[FileOutcome], object],
    ) -> list[FileOutcome]:
        from recollect.adapters.wiring.merge import import_rules

        memory = self.memory
        await memory.choose()
        self.rules = import_rules(memory.settings, memory.space, memory.url)
        outcomes = []
        async with self.opening:
            for source in sources:
                outcomes.append(await self._take(source))
                report(outcomes[-1])
        return outcomes

    async def _store(self) -> Store:
        if self.store is None:
            self.store = await self.opening.enter_async_context(self.memory.open())
        return self.store

    async def _take(self, source: Recorded | OpenclawFolder) -> FileOutcome:
        """Import one file. If the file is unreadable, report it, so that the import continues."""
        try:
            if isinstance(source, OpenclawFolder):
                return await self._take_openclaw(source)
            return await self._take_recording(source)
        except UnknownFormat:
            text = "unknown format; `recollect import -h` lists the formats"
        except FormatError as problem:
            text = str(problem)
        except (OSError, sqlite3.Error, MissingExtra) as problem:
            text = f"{source.name} cannot be read: {getattr(problem, 'strerror', None) or problem}"
        return FileOutcome(file=source.name, kind="unknown", problem=text)

    async def _take_recording(self, source: Recorded) -> FileOutcome:
        transcripts = read_transcripts(source.read(), name=source.name)
        several = len(transcripts) > 1
        if self.session is not None and several:
            raise RecollectError(
                f"--session names one session, but {source.name} contains {len(transcripts):,}"
            )
        kind = transcripts[0].kind
        outcome = FileOutcome(file=source.name, kind=kind, sessions=len(transcripts))
        show = partial(self.show, source.name)
        for number, transcript in enumerate(transcripts, 1):
            if several:
                show(number, len(transcripts))
            stem = f"{source.stem} {number}" if several else source.stem
            session = self.session or transcript.session_id or stem
            counts = await import_transcript(
                await self._store(),
                transcript,
                session=session,
                file=source.name,
                file_said_at=source.modified_at,
                rules=self.rules,
                progress=None if several else show,
            )
            outcome.messages = outcome.messages.plus(counts)
            outcome.passed_over += transcript.passed_over
            if transcript.host_compactions:
                await self._add_receipts(outcome, session, transcript)
        return outcome

    async def _add_receipts(
        self, outcome: FileOutcome, session: str, transcript: RecordedSession
    ) -> None:
        if self.engine is None:
            memory = self.memory
            opening = engine_without_models(memory.space, memory.url, memory.settings)
            self.engine = await self.opening.enter_async_context(opening)
        count = await attempted(store_host_receipts(self.engine.parts, session, transcript))
        if isinstance(count, Failure):
            outcome.passed_over += (f"the receipts of its compactions: {count.said}",)
        else:
            outcome.receipts += count

    async def _take_openclaw(self, source: OpenclawFolder) -> FileOutcome:
        from recollect.adapters.embedders.local import HashEmbedder

        outcome = FileOutcome(file=source.name, kind="openclaw")
        for path in source.files:
            with path.open("rb") as file:
                store, rules = await self._store(), self.rules
                if path.name == VECTORS:
                    if path.with_name(SEGMENTS) not in source.files:
                        raise FormatError(f"{VECTORS} needs the {SEGMENTS} next to it")
                    continue
                if path.name == SEGMENTS:
                    data = path.with_name(VECTORS)
                    vectors = data in source.files and read_vectors(data.read_bytes())
                    result = await import_segments(
                        store,
                        file,
                        rules=rules,
                        session=self.session,
                        vectors=vectors or NO_VECTORS,
                        embed=HashEmbedder().embed,
                        progress=lambda count, _: self.show(source.name, count, None),
                    )
                    outcome.messages = result.messages
                else:
                    result = await import_facts(store, file, rules=rules, restore=self.restore)
                    outcome.facts = result.messages
            outcome.altered += result.altered
            outcome.passed_over += tuple(f"{path.name} {text}" for text in result.passed_over)
        return outcome
