"""`recollect import` and `export`: import recorded sessions into a memory, and export a memory to
files.

You can repeat an interrupted import, because stored messages are skipped. Reports name lines by
number and never contain message content."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.cli.import_run import OPENCLAW_FILES, FileOutcome, ImportRun, Recorded, find_sources
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
from recollect.core.formats.openclaw_files import KNOWLEDGE, SEGMENTS, VECTORS
from recollect.errors import FormatError, RecollectError
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from recollect.core.transfer.agent_histories import AgentHistory, FoundHistories, HistoryAgent

AGENT_NAMES: Final[dict[HistoryAgent, str]] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
    "openclaw": "OpenClaw",
}
# Not measured: a file with many broken lines must not push the counts off the screen.
_MAX_NOTES: Final = 5


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
    run = ImportRun(memory=memory, session=session, restore=restore)
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

    histories = find_histories()
    sorted_histories = sorted(
        histories.histories, key=lambda history: (history.space, history.agent, history.last_at)
    )
    projects = [
        _Project(agent=agent, space=space, histories=list(group))
        for (space, agent), group in groupby(
            sorted_histories, key=lambda history: (history.space, history.agent)
        )
    ]
    if not memory.as_json:
        _show_found(projects, histories)
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
                "agent": file.agent,
                "file": file.name,
                "reason": file.reason.name.lower(),
                "detail": file.detail,
                "bytes": file.size_bytes,
            }
            for file in histories.left_out
        ],
        "totals": _totals(outcomes),
    }
    sums = f"in all: {number_of(len(outcomes), 'file')}, {_count(_sum(outcomes))}"
    reasons = {file.reason for file in histories.left_out}
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
            work = ImportRun(memory=project_memory).take_all(read(project), project.outcomes.append)
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


def _show_found(projects: Sequence[_Project], histories: FoundHistories) -> None:
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
    for line in _lines_for_left_out(histories):
        click.echo(line, err=True)


def _lines_for_left_out(histories: FoundHistories) -> list[str]:
    from recollect.core.transfer.agent_histories import LeftOutReason

    lines: list[str] = []
    for reason in LeftOutReason:
        files = [file for file in histories.left_out if file.reason is reason]
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
