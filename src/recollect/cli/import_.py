"""`recollect import` and `export`: import recorded sessions into a memory, and export a memory to
files.

You can repeat an interrupted import, because stored messages are skipped. In a folder, only files
that look like recordings are read; a named file is always read. Reports name lines by number and
never contain message content."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.cli.store_options import (
    Memory,
    ShownProgress,
    confirm,
    instant,
    memory_options,
    new_memory_options,
    size_text,
    yes_option,
)
from recollect.core.boundary import Failure, attempted
from recollect.core.engine.host_receipts import store_host_receipts
from recollect.core.formats.openclaw_files import KNOWLEDGE, SEGMENTS, VECTORS, read_vectors
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.transfer.openclaw import NO_VECTORS, import_facts, import_segments
from recollect.core.transfer.transcripts import ImportCounts, ImportRules, import_transcript
from recollect.errors import FormatError, MissingExtra, RecollectError, UnknownFormat
from recollect.hosts.inspect.sessions import engine_without_models
from recollect.system.plain_text import number_of, plain_line
from recollect.system.projects import stored_until

if TYPE_CHECKING:
    from recollect.core.engine import Engine
    from recollect.core.ports import Store
    from recollect.core.transfer.agent_histories import AgentHistory, FoundHistories, HistoryAgent
    from recollect.core.values.transcript import RecordedSession

AGENT_NAMES: Final[dict[HistoryAgent, str]] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
    "openclaw": "OpenClaw",
}
# Not measured: a file with many broken lines must not push the counts off the screen.
_MAX_NOTES: Final = 5
OPENCLAW_FILES: Final = (SEGMENTS, KNOWLEDGE, VECTORS)
_ENDINGS: Final = (".jsonl", ".json", ".gz", ".ndjson", ".zst")


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[PATH…]", type=click.Path(path_type=Path))
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Import the sessions of every agent on this machine, each project into its own memory.",
)
@yes_option
@click.option("--dry-run", is_flag=True, help="List the sessions of --all, and import nothing.")
@click.option(
    "--session",
    metavar="NAME",
    help="Import into this session. Default: the session that the file names.",
)
@click.option(
    "--restore",
    is_flag=True,
    help="Treat PATH as your own export: each fact keeps its author, trust level and pin. "
    "Default: facts get no pin, and no more trust than the assistant's words.",
)
@new_memory_options
def import_(
    *,
    paths: tuple[Path, ...],
    everything: bool,
    yes: bool,
    dry_run: bool,
    session: str | None,
    restore: bool,
    memory: Memory,
) -> None:
    """Import recorded sessions into a memory.

    PATH is a session file of pi, OpenClaw, Claude Code or Codex, a list of messages, or a folder of
    such files. PATH may also be a folder with segments.jsonl, vectors.bin and knowledge.jsonl.
    --all finds the sessions of these agents on this machine, lists them and asks. You can repeat an
    import: stored messages are skipped."""
    if everything:
        if paths or session is not None or restore or memory.named_space is not None:
            raise RecollectError(
                "--all takes no PATH, --session, --restore or --space: each project has its own "
                "memory"
            )
        _import_all(memory, yes=yes, dry_run=dry_run)
        return
    if yes or dry_run:
        raise RecollectError("--yes and --dry-run work only with --all")
    _check_paths(paths, session)
    run = _ImportRun(memory=memory, session=session, restore=restore)
    with ShownProgress(quiet=memory.as_json) as progress:
        run.show = progress.show

        def report(outcome: FileOutcome) -> None:
            if not memory.as_json:
                progress.clear()
                _print_outcome(outcome)

        # read a folder's files one at a time
        outcomes = asyncio.run(run.take_all(find_sources(paths), report))
    if not outcomes:
        raise FormatError("the folder has no file that looks like a session; name the files")
    value = {"files": [asdict(outcome) for outcome in outcomes], "totals": _totals(outcomes)}
    several = len(outcomes) > 1
    failed = any(outcome.problem for outcome in outcomes)
    memory.show(value, [f"in all: {_count(_sum(outcomes))}"] if several else [], failed=failed)


def _check_paths(paths: tuple[Path, ...], session: str | None) -> None:
    if not paths:
        raise RecollectError(
            "give files or folders, or --all for the sessions of every agent on this machine"
        )
    for path in paths:
        if not path.exists():
            raise FormatError(f"{path} does not exist; give a file or a folder")
        if not (path.is_file() or path.is_dir()):  # reading a pipe would block
            raise FormatError(f"{path} must be a regular file or a folder")
    if session is not None and sum(1 for _ in find_sources(paths)) > 1:
        raise RecollectError(
            "--session names one session, but several files were found: pass one file, or omit "
            "--session"
        )


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
    """What was imported from one file."""

    file: str
    kind: str
    sessions: int = 0
    messages: ImportCounts = field(default_factory=ImportCounts)
    facts: ImportCounts = field(default_factory=ImportCounts)
    altered: int = 0
    receipts: int = 0
    passed_over: tuple[str, ...] = ()
    problem: str | None = None


def _print_outcome(outcome: FileOutcome) -> None:
    """Print the counts to standard output, and problems to standard error."""
    name = plain_line(_short(outcome.file))
    if outcome.problem is not None:
        click.echo(f"{name}: not imported: {plain_line(outcome.problem)}", err=True)
        return
    for text in outcome.passed_over[:_MAX_NOTES]:
        click.echo(f"{name}: {plain_line(text)}", err=True)
    if outcome.altered:
        click.echo(
            f"{name}: {number_of(outcome.altered, 'line')} contained secrets, which are stored "
            "masked; an export differs there",
            err=True,
        )
    sessions = f", {outcome.sessions:,} sessions" if outcome.sessions > 1 else ""
    click.echo(f"{name} ({outcome.kind}{sessions}): {_count(outcome)}")


def _count(outcome: FileOutcome) -> str:
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
    if outcome.receipts:
        parts.append(number_of(outcome.receipts, "compaction receipt"))
    if outcome.facts.read:
        parts.append(
            f"{number_of(outcome.facts.read, 'fact')} read, {outcome.facts.stored:,} stored"
        )
    return ", ".join(parts)


def _sum(outcomes: Iterable[FileOutcome]) -> FileOutcome:
    sum_outcome = FileOutcome(file="", kind="")
    for outcome in outcomes:
        sum_outcome.messages = sum_outcome.messages.plus(outcome.messages)
        sum_outcome.passed_over += outcome.passed_over
        sum_outcome.facts = sum_outcome.facts.plus(outcome.facts)
        sum_outcome.altered += outcome.altered
        sum_outcome.receipts += outcome.receipts
    return sum_outcome


def _totals(outcomes: Sequence[FileOutcome]) -> dict[str, Any]:
    sum_outcome = _sum(outcomes)
    return {
        "files": len(outcomes),
        "not_imported": sum(outcome.problem is not None for outcome in outcomes),
        **asdict(sum_outcome.messages),
        "facts": sum_outcome.facts.stored,
        "altered": sum_outcome.altered,
        "receipts": sum_outcome.receipts,
        "passed_over": len(sum_outcome.passed_over),
    }


@dataclass(slots=True, kw_only=True)
class _ImportRun:
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
        from recollect.adapters.wiring.stores import seal_secret

        memory = self.memory
        await memory.choose()
        seal = partial(seal_secret, memory.space, memory.url)
        self.rules = ImportRules.of(
            memory.settings, secret=memory.secret, seal=seal, now=time.time()
        )
        self.rules = replace(self.rules, stored_until=stored_until(memory.space))
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
            own = self.memory
            opening = engine_without_models(own.space, own.url, own.settings)
            self.engine = await self.opening.enter_async_context(opening)
        added = await attempted(store_host_receipts(self.engine.parts, session, transcript))
        if isinstance(added, Failure):
            outcome.passed_over += (f"the receipts of its compactions: {added.said}",)
        outcome.receipts += 0 if isinstance(added, Failure) else added

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


@dataclass(slots=True)
class _Project:
    """One agent's recordings in one project, and the results of their import."""

    agent: HistoryAgent
    space: str
    histories: list[AgentHistory]
    outcomes: list[FileOutcome] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{AGENT_NAMES[self.agent]}, {plain_line(_short(self.space))}"

    @property
    def bytes(self) -> int:
        return sum(history.size_bytes for history in self.histories)

    @property
    def last(self) -> str:
        return instant(max(history.last_at for history in self.histories)) or ""

    def as_json(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "space": self.space,
            "sessions": len(self.histories),
            "bytes": self.bytes,
            "last": self.last,
            "imported": _totals(self.outcomes) if self.outcomes else None,
            "not_imported": [
                {"file": outcome.file, "problem": outcome.problem}
                for outcome in self.outcomes
                if outcome.problem
            ],
        }


def _import_all(memory: Memory, *, yes: bool, dry_run: bool) -> None:
    from recollect.core.transfer.agent_histories import LeftOutReason, find_histories

    found_histories = find_histories()
    sorted_histories = sorted(
        found_histories.histories,
        key=lambda history: (history.space, history.agent, history.last_at),
    )
    projects = [
        _Project(agent=agent, space=space, histories=list(histories))
        for (space, agent), histories in groupby(
            sorted_histories, key=lambda history: (history.space, history.agent)
        )
    ]
    if not memory.as_json:
        _show_found(projects, found_histories)
    may_import = bool(projects) and not dry_run
    if may_import and not yes:
        question = "Import these sessions, each project into its own memory?"
        may_import = confirm(question, "all sessions would be imported", as_json=memory.as_json)
    if may_import:
        _import_projects(memory, projects)
    outcomes = [outcome for project in projects for outcome in project.outcomes]
    value = {
        "projects": [project.as_json() for project in projects],
        "left_out": [
            {
                "agent": left_out_file.agent,
                "file": left_out_file.name,
                "reason": left_out_file.reason.name.lower(),
                "detail": left_out_file.detail,
                "bytes": left_out_file.size_bytes,
            }
            for left_out_file in found_histories.left_out
        ],
        "totals": _totals(outcomes),
    }
    sums = f"in all: {number_of(len(outcomes), 'file')}, {_count(_sum(outcomes))}"
    reasons = {file.reason for file in found_histories.left_out}
    has_unreadable = may_import and LeftOutReason.UNREADABLE in reasons
    failed = has_unreadable or any(outcome.problem for outcome in outcomes)
    memory.show(value, [sums] if may_import else [], failed=failed)


def _import_projects(memory: Memory, projects: Sequence[_Project]) -> None:
    """Import into one memory after the other, and skip a memory that cannot be opened."""
    history_count = sum(len(project.histories) for project in projects)
    numbers = iter(range(1, history_count + 1))
    with ShownProgress(quiet=memory.as_json) as progress:

        def read(project: _Project) -> Iterator[Recorded]:
            for history in project.histories:
                progress.show(str(project), next(numbers), history_count)
                yield Recorded(
                    name=history.name,
                    stem=history.stem,
                    modified_at=history.last_at,
                    read=history.read,
                )

        for project in projects:
            project_memory = Memory(url=memory.url, named_space=project.space, create=True)
            work = _ImportRun(memory=project_memory).take_all(
                read(project), project.outcomes.append
            )
            try:
                asyncio.run(work)
            except RecollectError as problem:
                failed = FileOutcome(file=project.space, kind="unknown", problem=str(problem))
                project.outcomes.append(failed)
            if not memory.as_json:
                progress.clear()
                for outcome in project.outcomes:
                    if outcome.problem is not None:
                        _print_outcome(outcome)
                click.echo(f"{project}: {_count(_sum(project.outcomes))}")


def _show_found(projects: Sequence[_Project], found_histories: FoundHistories) -> None:
    if not projects:
        click.echo("found no sessions of Claude Code, Codex, pi or OpenClaw")
    else:
        click.echo(f"{'agent':11}  sessions  {'size':>9}  {'last':10}  project")
        for project in projects:
            size = size_text(project.bytes)
            click.echo(
                f"{AGENT_NAMES[project.agent]:11}  {len(project.histories):>8,}  {size:>9}  "
                f"{project.last[:10]:10}  {plain_line(_short(project.space))}"
            )
        sessions = sum(len(project.histories) for project in projects)
        size = size_text(sum(project.bytes for project in projects))
        spaces = len({project.space for project in projects})
        click.echo(f"{number_of(sessions, 'session')}, {size}, {number_of(spaces, 'project')}")
    for line in _lines_for_left_out(found_histories):
        click.echo(line, err=True)


def _lines_for_left_out(found_histories: FoundHistories) -> list[str]:
    from recollect.core.transfer.agent_histories import LeftOutReason

    lines: list[str] = []
    for reason in LeftOutReason:
        files = [file for file in found_histories.left_out if file.reason is reason]
        if reason is LeftOutReason.UNREADABLE:
            for file in files:
                name, detail = plain_line(_short(file.name)), plain_line(file.detail)
                lines.append(f"not read: {name}: {detail}")
        elif files:
            lines.append(f"left out: {number_of(len(files), 'file')}: {reason.value}")
    return lines


def _short(path: str) -> str:
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@memory_options
async def export(*, folder: Path, force: bool, memory: Memory) -> None:
    """Export a memory to segments.jsonl, vectors.bin and knowledge.jsonl in DIR.

    `recollect import --restore DIR` imports the files again. To export a chat session, type /export
    in the chat. Exits 1 if the files lack messages that still wait in the spool, the local file for
    writes while the store is down."""
    from recollect.adapters.embedders.local import HashEmbedder
    from recollect.core.transfer.openclaw import export_facts, export_segments
    from recollect.system.durable import open_replacement

    _create_folder(folder, force=force)
    with ShownProgress(quiet=memory.as_json) as progress:
        async with memory.open(spool="drained") as store:
            with (
                open_replacement(folder / SEGMENTS) as file,
                open_replacement(folder / VECTORS) as vectors,
            ):
                embed, show = HashEmbedder().embed, progress.show
                segments = await export_segments(
                    store, file, vectors, embed, lambda n: show("messages", n, None)
                )
            with open_replacement(folder / KNOWLEDGE) as file:
                facts = await export_facts(store, file)
    waiting = memory.spool_waiting
    value = {"folder": str(folder), "segments": segments, "facts": facts, "spool_waiting": waiting}
    line = f"{folder}: {segments:,} messages, {facts:,} facts"
    memory.show(value, [line], failed=waiting > 0)


def _create_folder(folder: Path, *, force: bool) -> None:
    existing_names = [name for name in OPENCLAW_FILES if (folder / name).exists()]
    if existing_names and not force:
        raise RecollectError(
            f"{folder} already contains {' and '.join(existing_names)}; give another folder, or "
            "--force to replace them"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RecollectError(f"{folder} cannot be created: {problem.strerror}") from None
