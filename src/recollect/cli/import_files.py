"""The files that `recollect import` reads, and what becomes of each.

In a folder only what could be a recording is read; a file that is named is always tried; OpenClaw's
two files go together. Reports name lines by number and never hold message content.
"""

from __future__ import annotations

import errno
import sqlite3
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.cli.store_options import Place, ShownProgress
from recollect.core.formats.openclaw_files import KNOWLEDGE, SEGMENTS
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.transfer.openclaw import FileCounts, import_facts, import_segments
from recollect.core.transfer.transcripts import ImportCounts, ImportRules, import_transcript
from recollect.errors import FormatError, MissingExtra, RecollectError, UnknownFormat
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from recollect.cli.store_options import OpenStore
    from recollect.core.values.transcript import RecordedSession

OPENCLAW_FILES: Final = frozenset({SEGMENTS, KNOWLEDGE})
_LOOKED_AT: Final = (".jsonl", ".json", ".gz", ".tgz", ".tar", ".ndjson", ".traj", ".zst")
_ARCHIVES: Final = (".tgz", ".tar", ".tar.gz")
_SUFFIXES: Final = (".gz", ".jsonl", ".ndjson", ".json", ".tgz", ".tar", ".traj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A file that may be a recording."""

    name: str
    """For people."""
    stem: str
    """The name of a session that has none of its own."""
    modified_at: float
    read: Callable[[], bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenclawFolder:
    """A folder with OpenClaw's files, or one of them by itself."""

    name: str
    folder: Path
    files: frozenset[str]


def find_sources(paths: tuple[Path, ...]) -> Iterator[Recorded | OpenclawFolder]:
    """Everything to be imported, in a settled order, each file once."""
    seen: set[Path] = set()
    for path in paths:
        for found_path in _within(path):
            where = found_path.resolve()
            if where in seen:
                continue
            seen.add(where)
            if _leads_out(found_path, path):
                name = str(found_path.relative_to(path))
                yield Recorded(name=name, stem=name, modified_at=0.0, read=_refuse_link)
            else:
                yield from _source(found_path, path, seen)


def _leads_out(file: Path, given: Path) -> bool:
    """Whether a file of a folder is a link to one outside: the folder may be a cloned project."""
    return given.is_dir() and not file.resolve().is_relative_to(given.resolve())


def _refuse_link() -> bytes:
    raise OSError(errno.EPERM, "it is a link that leads out of the folder")


def _within(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file() and (file.name in OPENCLAW_FILES or _worth_trying(file.name)):
            yield file


def _worth_trying(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(_LOOKED_AT)


def _source(file: Path, given: Path, seen: set[Path]) -> Iterator[Recorded | OpenclawFolder]:
    name = str(file.relative_to(given)) if given.is_dir() else file.name
    if file.name in OPENCLAW_FILES:
        beside = frozenset(
            text
            for text in OPENCLAW_FILES
            if (file.parent / text).is_file() and not _leads_out(file.parent / text, given)
        )
        files = beside if given.is_dir() else frozenset({file.name})
        seen.update((file.parent / other).resolve() for other in files)
        folder = str(Path(name).parent) if given.is_dir() else name
        yield OpenclawFolder(
            name=given.name if folder == "." else folder, folder=file.parent, files=files
        )
    elif file.name.lower().endswith(_ARCHIVES):
        yield from _members(file, name)
    else:
        yield Recorded(
            name=name,
            stem=stem_of(file.name),
            modified_at=file.stat().st_mtime,
            read=file.read_bytes,
        )


def _members(file: Path, name: str) -> Iterator[Recorded]:
    """The files of an archive, read into memory one by one."""
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                if not (member.isfile() and _worth_trying(Path(member.name).name)):
                    continue
                opened = archive.extractfile(member)
                held = BytesIO(opened.read() if opened is not None else b"")
                yield Recorded(
                    name=f"{name}/{member.name}",
                    stem=stem_of(Path(member.name).name),
                    modified_at=float(member.mtime),
                    read=held.getvalue,
                )
    except (tarfile.TarError, OSError, EOFError) as problem:
        raise FormatError(f"{name} is a damaged archive: {problem}") from None


def stem_of(name: str) -> str:
    """A file's name without the endings that say how it is packed."""
    stem = name
    while stem.lower().endswith(_SUFFIXES) and Path(stem).stem:
        stem = Path(stem).stem
    return stem or name


_TOLD_LINES = 5


@dataclass(slots=True, kw_only=True)
class FileOutcome:
    """What became of one file."""

    file: str
    kind: str
    sessions: int = 0
    messages: ImportCounts = field(default_factory=ImportCounts)
    facts: ImportCounts | None = None
    altered: int = 0
    passed_over: tuple[str, ...] = ()
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def print_outcome(outcome: FileOutcome) -> None:
    """Print the counts on standard output, problems on standard error."""
    name = plain_line(outcome.file)
    if outcome.problem is not None:
        click.echo(f"{name}: not imported: {plain_line(outcome.problem)}", err=True)
        return
    for text in outcome.passed_over[:_TOLD_LINES]:
        click.echo(f"{name}: {plain_line(text)}", err=True)
    if len(outcome.passed_over) > _TOLD_LINES:
        more = len(outcome.passed_over) - _TOLD_LINES
        click.echo(f"{name}: {more:,} more like this", err=True)
    if outcome.altered:
        click.echo(
            f"{name}: {number_of(outcome.altered, 'line')} held secrets; kept masked, "
            "and an export differs there",
            err=True,
        )
    sessions = f", {outcome.sessions:,} sessions" if outcome.sessions > 1 else ""
    click.echo(f"{name} ({outcome.kind}{sessions}): {counted(outcome)}")


def counted(outcome: FileOutcome) -> str:
    """The counts as one sentence."""
    counts = outcome.messages
    parts = [f"{number_of(counts.read, 'message')} read", f"{counts.stored:,} stored"]
    if counts.noise:
        parts[-1] += f" ({counts.noise:,} of them noise)"
    parts.append(f"{counts.known:,} known")
    for count, word in (
        (counts.forgotten, "forgotten before and left out"),
        (counts.skipped, "recalled blocks left out"),
        (len(outcome.passed_over), "passed over"),
    ):
        if count:
            parts.append(f"{count:,} {word}")
    if outcome.facts is not None:
        parts.append(
            f"{number_of(outcome.facts.read, 'fact')} read, {outcome.facts.stored:,} stored"
        )
        if outcome.facts.forgotten:
            parts.append(f"{outcome.facts.forgotten:,} forgotten before")
    return ", ".join(parts)


def summed(outcomes: list[FileOutcome]) -> FileOutcome:
    """All files together."""
    whole = FileOutcome(file="", kind="")
    for outcome in outcomes:
        whole.messages = whole.messages.plus(outcome.messages)
        whole.passed_over += outcome.passed_over
        if outcome.facts is not None:
            whole.facts = (whole.facts or ImportCounts()).plus(outcome.facts)
        whole.altered += outcome.altered
    return whole


def totals(outcomes: list[FileOutcome]) -> dict[str, Any]:
    """The sums that `--json` ends with."""
    whole = summed(outcomes)
    return {
        "files": len(outcomes),
        "not_imported": sum(outcome.problem is not None for outcome in outcomes),
        **asdict(whole.messages),
        "facts": 0 if whole.facts is None else whole.facts.stored,
        "altered": whole.altered,
        "passed_over": len(whole.passed_over),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRun:
    """One call of the command."""

    store: OpenStore
    rules: ImportRules
    session: str | None
    progress: ShownProgress
    restore: bool


def import_rules(place: Place) -> ImportRules:
    """The rules of a memory's settings for what comes into it."""
    from recollect.adapters.wiring.stores import seal_secret

    seal = partial(seal_secret, place.space)
    return ImportRules.of(place.settings, secret=place.secret, seal=seal, now=time.time())


async def import_source(source: Recorded | OpenclawFolder, run: ImportRun) -> FileOutcome:
    """Import one file; one that cannot be read is reported and keeps no other out."""
    try:
        if isinstance(source, OpenclawFolder):
            return await _import_openclaw(source, run)
        return await _import_recording(source, run)
    except UnknownFormat:
        text = "unknown format; `recollect import -h` lists the formats"
        return FileOutcome(file=source.name, kind="unknown", problem=text)
    except FormatError as problem:
        text = " ".join(str(problem).split())
        return FileOutcome(file=source.name, kind="unknown", problem=text)
    except (OSError, sqlite3.Error, MissingExtra) as problem:
        text = f"{source.name} cannot be read: {getattr(problem, 'strerror', None) or problem}"
        return FileOutcome(file=source.name, kind="unknown", problem=text)


async def _import_recording(source: Recorded, run: ImportRun) -> FileOutcome:
    show = run.progress.show
    transcripts = read_transcripts(source.read(), name=source.name)
    if run.session is not None and len(transcripts) > 1:
        raise RecollectError(
            f"--session names one session, but {source.name} holds {len(transcripts):,}"
        )
    outcome = FileOutcome(file=source.name, kind=transcripts[0].kind, sessions=len(transcripts))
    several = len(transcripts) > 1
    for number, transcript in enumerate(transcripts, 1):
        if several:
            show(source.name, number, len(transcripts))
        counts = await import_transcript(
            await run.store(),
            transcript,
            session=run.session or session_name(transcript, source.stem, number, several=several),
            file=source.name,
            file_said_at=source.modified_at,
            rules=run.rules,
            progress=None if several else lambda done, total: show(source.name, done, total),
        )
        outcome.messages = outcome.messages.plus(counts)
        outcome.passed_over += transcript.passed_over
    return outcome


def session_name(transcript: RecordedSession, stem: str, number: int, *, several: bool) -> str:
    """A recording's own session name, else one from its file."""
    if transcript.session_id:
        return transcript.session_id
    return f"{stem} {number}" if several else stem


async def _import_openclaw(source: OpenclawFolder, run: ImportRun) -> FileOutcome:
    outcome = FileOutcome(file=source.name, kind="openclaw")
    if SEGMENTS in source.files:
        done = await _import_segments(source, run)
        outcome.messages, outcome.altered, outcome.passed_over = (
            done.messages,
            done.altered,
            done.passed_over,
        )
    if KNOWLEDGE in source.files:
        with (source.folder / KNOWLEDGE).open("rb") as file:
            facts = await import_facts(
                await run.store(), file, rules=run.rules, restore=run.restore
            )
        outcome.facts = facts.messages
        outcome.altered += facts.altered
        outcome.passed_over += tuple(f"{KNOWLEDGE} {text}" for text in facts.passed_over)
    return outcome


async def _import_segments(source: OpenclawFolder, run: ImportRun) -> FileCounts:
    def show(done: int, _: int) -> None:
        run.progress.show(source.name, done, None)

    with (source.folder / SEGMENTS).open("rb") as file:
        return await import_segments(
            await run.store(), file, rules=run.rules, session=run.session, progress=show
        )
