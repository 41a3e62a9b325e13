"""`recollect import` and `export`: recorded sessions into a memory, and a memory into files.

Interrupted at any point, an import can be run again: what is stored is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.cli.import_files import (
    FileOutcome,
    ImportRun,
    Recorded,
    counted,
    find_sources,
    import_rules,
    import_source,
    print_outcome,
    summed,
    totals,
)
from recollect.cli.store_options import (
    Memory,
    Place,
    ShownProgress,
    confirmed,
    instant,
    memory_options,
    new_memory_options,
    size_text,
    yes_option,
)
from recollect.errors import FormatError, RecollectError
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from recollect.cli.store_options import OpenStore
    from recollect.core.ports import Store
    from recollect.core.transfer.agent_histories import AgentHistory, FoundHistories, HistoryAgent

AGENT_NAMES: Final[dict[HistoryAgent, str]] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
    "openclaw": "OpenClaw",
}


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[PATH…]", type=click.Path(path_type=Path))
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Import the histories of every agent here, each project's into its own memory.",
)
@yes_option
@click.option("--dry-run", is_flag=True, help="With --all: show what there is, import nothing.")
@click.option("--session", metavar="NAME", help="Name the session, whatever the file says.")
@click.option(
    "--restore",
    is_flag=True,
    help="Import your own export: facts keep their trust, maker and pins.",
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

    PATH is a session file of pi, OpenClaw, Claude Code or Codex, or a list of messages. It may be a
    folder or archive of them, or one with segments.jsonl and knowledge.jsonl.
    --all finds what these agents keep on this machine, shows it and asks. Run it
    again at any time: what is stored is skipped.
    """
    if everything:
        if paths or session is not None or restore or memory.space is not None:
            raise RecollectError(
                "--all takes no PATH, --session, --restore or --space: each project has its own "
                "memory"
            )
        _import_all(memory, yes=yes, dry_run=dry_run)
        return
    if yes or dry_run:
        raise RecollectError("--yes and --dry-run belong to --all")
    _check_paths(paths, session)
    with ShownProgress(quiet=memory.as_json) as progress:

        async def work(store: OpenStore, place: Place) -> list[FileOutcome]:
            run = ImportRun(
                store=store,
                rules=import_rules(place),
                session=session,
                progress=progress,
                restore=restore,
            )
            outcomes = []
            for source in find_sources(paths):  # archives are read one file at a time
                outcomes.append(await import_source(source, run))
                if not memory.as_json:
                    progress.clear()
                    print_outcome(outcomes[-1])
            return outcomes

        outcomes = memory.run_at_need(work)
    if not outcomes:
        raise FormatError("nothing in there could be a recording; name the files themselves")

    def draw() -> None:
        if len(outcomes) > 1:
            click.echo(f"in all: {counted(summed(outcomes))}")

    files = [outcome.as_json() for outcome in outcomes]
    memory.show({"files": files, "totals": totals(outcomes)}, draw)
    if any(outcome.problem for outcome in outcomes):
        raise SystemExit(1)


def _check_paths(paths: tuple[Path, ...], session: str | None) -> None:
    if not paths:
        raise RecollectError("give files or folders, or --all for what every agent keeps here")
    for path in paths:
        if not path.exists():
            raise FormatError(f"{path} does not exist; give a file or a folder")
        if not (path.is_file() or path.is_dir()):  # reading a pipe would wait
            raise FormatError(f"{path} is no regular file; give a file or a folder")
    if session is not None and sum(1 for _ in find_sources(paths)) > 1:
        raise RecollectError("--session names one session, but several files were found")


# `recollect import --all`


@dataclass(slots=True)
class _Project:
    """What one agent has of one project, and what became of it."""

    agent: HistoryAgent
    space: str
    histories: list[AgentHistory]
    outcomes: list[FileOutcome] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{AGENT_NAMES[self.agent]}, {plain_line(_short(self.space))}"

    @property
    def sessions(self) -> int:
        return len(self.histories)

    @property
    def bytes(self) -> int:
        return sum(one.size_bytes for one in self.histories)

    @property
    def dates(self) -> tuple[str | None, str | None]:
        first = min((one.first_at for one in self.histories if one.first_at), default=None)
        return instant(first), instant(max(one.last_at for one in self.histories))

    def as_json(self) -> dict[str, Any]:
        known = [one.messages for one in self.histories if one.messages is not None]
        return {
            "agent": self.agent,
            "space": self.space,
            "sessions": self.sessions,
            "messages": sum(known) if len(known) == len(self.histories) else None,
            "bytes": self.bytes,
            "first": self.dates[0],
            "last": self.dates[1],
            "imported": totals(self.outcomes) if self.outcomes else None,
            "not_imported": [
                {"file": one.file, "problem": one.problem} for one in self.outcomes if one.problem
            ],
        }


def _import_all(memory: Memory, *, yes: bool, dry_run: bool) -> None:
    """Find, show, ask, import, report."""
    from recollect.core.transfer.agent_histories import LeftOutReason, find_histories

    found = find_histories()
    ordered = sorted(found.histories, key=lambda one: (one.space, one.agent, one.last_at))
    projects = [
        _Project(agent=agent, space=space, histories=list(histories))
        for (space, agent), histories in groupby(ordered, key=lambda one: (one.space, one.agent))
    ]
    if not memory.as_json:
        _show_found(projects, found)
    wanted = bool(projects) and not dry_run
    if wanted and not yes:
        wanted = confirmed(
            "Import it, each project into a memory of its own?",
            as_json=memory.as_json,
            unasked="nothing was imported: pass --yes to import all of it",
        )
    if wanted:
        _import_projects(memory, projects)
    outcomes = [outcome for project in projects for outcome in project.outcomes]

    def draw() -> None:
        if wanted:
            click.echo(f"in all: {number_of(len(outcomes), 'file')}, {counted(summed(outcomes))}")

    value = {
        "projects": [project.as_json() for project in projects],
        "left_out": [
            {
                "agent": one.agent,
                "file": one.name,
                "reason": one.reason.name.lower(),
                "detail": one.detail,
                "bytes": one.size_bytes,
            }
            for one in found.left_out
        ],
        "totals": totals(outcomes),
    }
    memory.show(value, draw)
    broken = any(one.reason is LeftOutReason.UNREADABLE for one in found.left_out)
    if any(outcome.problem for outcome in outcomes) or (wanted and broken):
        raise SystemExit(1)


def _import_projects(memory: Memory, projects: Sequence[_Project]) -> None:
    """Memory by memory; one that cannot be opened keeps no other out."""
    whole = sum(len(project.histories) for project in projects)
    with ShownProgress(quiet=memory.as_json) as progress:
        for project in projects:
            done = sum(len(one.outcomes) for one in projects)
            work = partial(_import_project, project, progress, done, whole)
            try:
                Memory(url=memory.url, space=project.space, create=True).run_at_need(work)
            except RecollectError as problem:
                failed = FileOutcome(file=project.space, kind="unknown", problem=str(problem))
                project.outcomes.append(failed)
            if not memory.as_json:
                progress.clear()
                for outcome in project.outcomes:
                    if outcome.problem is not None:
                        name = plain_line(_short(outcome.file))
                        click.echo(f"{name}: not imported: {plain_line(outcome.problem)}", err=True)
                click.echo(f"{project}: {counted(summed(project.outcomes))}")


async def _import_project(
    project: _Project,
    progress: ShownProgress,
    done: int,
    whole: int,
    store: OpenStore,
    place: Place,
) -> None:
    quiet = ShownProgress(quiet=True)  # the bar shows the progress of the whole
    run = ImportRun(
        store=store, rules=import_rules(place), session=None, progress=quiet, restore=False
    )
    for number, one in enumerate(project.histories, done + 1):
        progress.show(str(project), number, whole)
        source = Recorded(name=one.name, stem=one.stem, modified_at=one.last_at, read=one.read)
        project.outcomes.append(await import_source(source, run))


def _show_found(projects: Sequence[_Project], found: FoundHistories) -> None:
    if not projects:
        click.echo("no histories of Claude Code, Codex, pi or OpenClaw are here")
    else:
        click.echo(f"{'agent':11}  sessions  {'size':>9}  {'from':10}  {'to':10}  project")
        for project in projects:
            first, last = ((date or "")[:10] for date in project.dates)
            click.echo(
                f"{AGENT_NAMES[project.agent]:11}  {project.sessions:>8,}  "
                f"{size_text(project.bytes):>9}  {first:10}  {last:10}  "
                f"{plain_line(_short(project.space))}"
            )
        sessions = sum(project.sessions for project in projects)
        size = size_text(sum(project.bytes for project in projects))
        spaces = len({project.space for project in projects})
        click.echo(f"{number_of(sessions, 'session')}, {size}, {number_of(spaces, 'project')}")
    for line in _left_out_lines(found):
        click.echo(line, err=True)


def _left_out_lines(found: FoundHistories) -> list[str]:
    """One line per reason; one per file that cannot be read."""
    from recollect.core.transfer.agent_histories import LeftOutReason

    lines: list[str] = []
    for reason in LeftOutReason:
        files = [one for one in found.left_out if one.reason is reason]
        if reason is LeftOutReason.UNREADABLE:
            lines += [
                f"not read: {plain_line(_short(one.name))}: {plain_line(one.detail)}"
                for one in files
            ]
        elif len(files) == 1:
            lines.append(f"left out: {plain_line(_short(files[0].name))}: {reason.value}")
        elif files:
            lines.append(f"left out: {len(files):,} files: {reason.value}")
    return lines


def _short(path: str) -> str:
    """A path as people write it."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


# `recollect export`


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@memory_options
def export(*, folder: Path, force: bool, memory: Memory) -> None:
    """Export a memory to segments.jsonl and knowledge.jsonl in DIR.

    `recollect import --restore DIR` reads them again. A chat session is exported by /export in the
    chat. Exits 1 if messages in the spool are missing.
    """
    from recollect.core.formats.openclaw_files import KNOWLEDGE, SEGMENTS
    from recollect.core.transfer.openclaw import export_facts, export_segments
    from recollect.system.durable import replacing

    there = [name for name in (SEGMENTS, KNOWLEDGE) if (folder / name).exists()]
    if there and not force:
        raise RecollectError(
            f"{folder} holds {' and '.join(there)}; give another folder, or --force to replace them"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RecollectError(f"{folder} cannot be created: {problem.strerror}") from None
    with ShownProgress(quiet=memory.as_json) as progress:

        async def work(store: Store, place: Place) -> dict[str, Any]:
            with replacing(folder / SEGMENTS) as file:
                show = progress.show
                segments = await export_segments(store, file, lambda n: show("messages", n, None))
            with replacing(folder / KNOWLEDGE) as file:
                facts = await export_facts(store, file)
            return {
                "folder": str(folder),
                "segments": segments,
                "facts": facts,
                "spool_waiting": place.spool_waiting,
            }

        done = memory.run(work, spool="drained")
    text = f"{folder}: {done['segments']:,} messages, {done['facts']:,} facts"
    memory.show(done, lambda: click.echo(text))
    if done["spool_waiting"]:
        raise SystemExit(1)
