"""`recollect import --all`: the histories of every agent on this machine, each project's into its
own memory.

Owns what is shown before anything is read (agent, project, sessions, size, dates), the question,
and the report. Which files those are is `transfer.agent_histories`' to say; how one of them is
imported is the same as for a file that is named. Interrupted at any point, killed even, it can be
run again: what is stored is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from recollect.cli.facts.listing import said_waiting, sessions_waiting
from recollect.cli.import_files import (
    FileOutcome,
    ImportRun,
    Recorded,
    counted,
    import_rules,
    import_source,
    summed,
    totals,
)
from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import (
    OpenStore,
    Place,
    console,
    instant,
    print_json,
    with_store_at_need,
)
from recollect.core.transfer.agent_histories import (
    AgentHistory,
    FoundHistories,
    HistoryAgent,
    LeftOutReason,
    find_histories,
)
from recollect.errors import RecollectError
from recollect.system.plain_text import number_of, plain_line

AGENT_NAMES: Final[dict[HistoryAgent, str]] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
    "openclaw": "OpenClaw",
    "opencode": "opencode",
    "aider": "aider",
}


@dataclass(slots=True)
class _Project:
    """What one agent has of one project, and what became of it."""

    agent: HistoryAgent
    space: str
    histories: list[AgentHistory]
    outcomes: list[FileOutcome] = field(default_factory=list)

    @property
    def sessions(self) -> int:
        return sum(one.sessions for one in self.histories)

    @property
    def bytes(self) -> int:
        return sum(one.size_bytes for one in self.histories)

    @property
    def first_at(self) -> float | None:
        return min((one.first_at for one in self.histories if one.first_at), default=None)

    @property
    def last_at(self) -> float:
        return max(one.last_at for one in self.histories)

    def as_json(self) -> dict[str, Any]:
        """For `--json`; messages are told where nothing has to be read for it."""
        known = [one.messages for one in self.histories if one.messages is not None]
        return {
            "agent": self.agent,
            "space": self.space,
            "sessions": self.sessions,
            "messages": sum(known) if len(known) == len(self.histories) else None,
            "bytes": self.bytes,
            "first": instant(self.first_at),
            "last": instant(self.last_at),
            "imported": totals(self.outcomes) if self.outcomes else None,
            "not_imported": [
                {"file": one.file, "problem": one.problem} for one in self.outcomes if one.problem
            ],
        }


def import_all(url: str | None, *, yes: bool, dry_run: bool, quiet: bool, as_json: bool) -> None:
    """Find, show, ask, import, tell."""
    found = find_histories(Path.cwd())
    projects = _by_project(found)
    if not as_json and (not quiet or not (yes or dry_run)):
        _show(projects, found)
    wanted = bool(projects) and not dry_run
    if wanted and not yes:
        if as_json or not sys.stdin.isatty():
            raise RecollectError(
                "nothing was imported: --yes imports all of it, without a question"
            )
        wanted = click.confirm("Import it, each project into a memory of its own?", err=True)
    waiting = _import_projects(url, projects, quiet=quiet, as_json=as_json) if wanted else 0
    outcomes = [outcome for project in projects for outcome in project.outcomes]
    if as_json:
        print_json(_told(projects, found, outcomes, waiting))
    elif wanted and not quiet:
        click.echo(f"in all: {number_of(len(outcomes), 'file')}, {counted(summed(outcomes))}")
        if waiting:
            click.echo(f"recollect: {said_waiting(waiting, of_many=True)}", err=True)
    broken = any(one.reason is LeftOutReason.UNREADABLE for one in found.left_out)
    if any(outcome.problem for outcome in outcomes) or (wanted and broken):
        raise SystemExit(1)


def _by_project(found: FoundHistories) -> list[_Project]:
    """By memory, then by agent, as they are shown and imported."""
    ordered = sorted(found.histories, key=lambda one: (one.space, one.agent, one.last_at))
    return [
        _Project(agent=agent, space=space, histories=list(histories))
        for (space, agent), histories in groupby(ordered, key=lambda one: (one.space, one.agent))
    ]


def _import_projects(
    url: str | None, projects: Sequence[_Project], *, quiet: bool, as_json: bool
) -> int:
    """Memory by memory; one that cannot be opened keeps no other out. Says how many sessions wait
    to be read for facts."""
    waiting: dict[str, int] = {}
    whole = sum(len(project.histories) for project in projects)
    with ShownProgress(quiet=quiet or as_json) as progress:
        for project in projects:
            done = sum(len(one.outcomes) for one in projects)
            work = partial(_import_project, project, progress, done, whole)
            try:
                waiting[project.space] = with_store_at_need(url, project.space, work)
            except RecollectError as problem:
                told = FileOutcome(file=project.space, kind="unknown", problem=str(problem))
                project.outcomes.append(told)
            if not as_json:
                progress.clear()
                _print_project(project, quiet=quiet)
    return sum(waiting.values())


async def _import_project(
    project: _Project,
    progress: ShownProgress,
    done: int,
    whole: int,
    store: OpenStore,
    place: Place,
) -> int:
    one_file = ShownProgress(quiet=True)  # what is shown is how far the whole is
    run = ImportRun(
        store=store, rules=import_rules(place), session=None, progress=one_file, restore=False
    )
    what = f"{AGENT_NAMES[project.agent]} {plain_line(_short(project.space))}"
    for number, history in enumerate(project.histories, done + 1):
        progress.show(what, number, whole)
        project.outcomes.append(await import_source(_recorded(history), run))
    imported = any(outcome.problem is None for outcome in project.outcomes)
    return await sessions_waiting(await store()) if imported else 0


def _recorded(history: AgentHistory) -> Recorded:
    return Recorded(
        name=history.name, stem=history.stem, modified_at=history.last_at, read=history.read
    )


def _print_project(project: _Project, *, quiet: bool) -> None:
    for outcome in project.outcomes:
        if outcome.problem is not None:
            name = plain_line(_short(outcome.file))
            click.echo(f"{name}: not imported: {plain_line(outcome.problem)}", err=True)
    if not quiet:
        what = f"{AGENT_NAMES[project.agent]}, {plain_line(_short(project.space))}"
        click.echo(f"{what}: {counted(summed(project.outcomes))}")


def _show(projects: Sequence[_Project], found: FoundHistories) -> None:
    """What is there, before anything is done with it."""
    from rich.table import Table

    if not projects:
        click.echo("no histories of Claude Code, Codex, pi, OpenClaw, opencode or aider are here")
    else:
        table = Table(box=None, pad_edge=False, header_style="")
        table.add_column("agent")
        table.add_column("project", overflow="fold")
        for name in ("sessions", "size"):
            table.add_column(name, justify="right")
        table.add_column("from")
        table.add_column("to")
        for project in projects:
            table.add_row(
                AGENT_NAMES[project.agent],
                plain_line(_short(project.space)),
                f"{project.sessions:,}",
                _size(project.bytes),
                (instant(project.first_at) or "")[:10],
                (instant(project.last_at) or "")[:10],
            )
        console().print(table)
        sessions = sum(project.sessions for project in projects)
        size = _size(sum(project.bytes for project in projects))
        spaces = len({project.space for project in projects})
        click.echo(f"{number_of(sessions, 'session')}, {size}, {number_of(spaces, 'project')}")
    for line in _left_out_lines(found):
        click.echo(line, err=True)


def _left_out_lines(found: FoundHistories) -> list[str]:
    """Reason by reason; what is broken, file by file."""
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


def _told(
    projects: Sequence[_Project],
    found: FoundHistories,
    outcomes: list[FileOutcome],
    waiting: int,
) -> dict[str, Any]:
    return {
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
        "sessions_waiting": waiting,
    }


def _short(path: str) -> str:
    """A path as people write it."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
