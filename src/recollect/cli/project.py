"""`recollect project`: shows which memory a folder uses and why, and changes it."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import click

from recollect.cli.store_options import confirm, end_daemon, json_option, print_json, yes_option
from recollect.errors import RecollectError
from recollect.system import projects
from recollect.system.config import load_settings
from recollect.system.plain_text import harmless, number_of

# Not measured: a person waits for the command, and a large repository is read once.
_HISTORY_SECONDS = 60.0


@click.group("project", invoke_without_command=True)
@json_option
@click.pass_context
def project(context: click.Context, *, as_json: bool) -> None:
    """Show which memory this folder uses, and why.

    The worktrees of a repository share one memory, and a moved or renamed folder keeps its own. A
    second clone is offered the memory of the first: `recollect project join` accepts."""
    if context.invoked_subcommand is not None:
        return
    _finish_moves()
    folder = str(Path.cwd())
    joinable = projects.find_joinable(folder, seconds=_HISTORY_SECONDS)
    match = projects.find_match(folder, keep=False)
    folders = [place.path for place in match.project.folders]
    description: dict[str, Any] = {
        "name": projects.shown_space(match.space),
        "space": match.space,
        "reason": match.reason,
        "folders": folders,
        "joinable": None if joinable is None else joinable.name,
    }
    if as_json:
        print_json(description)
        return
    click.echo(harmless(f"memory   {description['name']}"))
    click.echo(f"reason   {projects.REASONS[match.reason]}")
    for number, path in enumerate(folders):
        click.echo(harmless(f"{'' if number else 'folders':9}{path}"))
    if joinable is not None:
        click.echo(harmless(f"offer    {joinable.name}: use it here with `recollect project join`"))


@project.command("join")
@click.argument("name", metavar="[NAME|FOLDER]", required=False)
@yes_option
def join(*, name: str | None, yes: bool) -> None:
    """Use another memory in this folder from now on, and move this folder's messages into it.

    NAME is a memory or a folder that uses it. Default: the memory that `recollect project`
    offers."""
    _finish_moves()
    folder, joinable = str(Path.cwd()), None
    if name is None:
        joinable = projects.find_joinable(folder, seconds=_HISTORY_SECONDS)
        if joinable is None:
            raise RecollectError(
                "no other memory is known to belong to this folder: name one (`recollect space "
                "list`), or a folder that uses it"
            )
    space = joinable.space if joinable is not None else _space_from(str(name))
    shown_name = projects.shown_space(space)
    effect = f"this folder's messages would be moved into {shown_name}"
    if not yes and not confirm(
        harmless(f"Move this folder's messages into {shown_name}?"), harmless(effect), as_json=False
    ):
        raise SystemExit(1)
    end_daemon()  # it may have this folder's sessions open
    projects.join_project(folder, space)
    end_daemon()
    _finish_moves()
    click.echo(harmless(f"This folder uses the memory {shown_name} from now on."))


def _space_from(name: str) -> str:
    path = Path(name).expanduser()
    return (
        projects.project_space(str(path.resolve())) if path.is_dir() else projects.space_named(name)
    )


def _finish_moves() -> None:
    if not projects.pending_moves():
        return
    from recollect.adapters.wiring.merge import finish_moves

    settings = load_settings().settings
    counts = asyncio.run(finish_moves(settings, settings.store.url))
    if counts.segments or counts.facts:
        counts_text = f"{number_of(counts.segments, 'message')}, {number_of(counts.facts, 'fact')}"
        click.echo(f"Moved {counts_text}.", err=True)


@project.command("split")
def split() -> None:
    """Give this folder a memory of its own, an empty one. The shared memory keeps its messages."""
    end_daemon()
    own_match = projects.split_project(str(Path.cwd()))
    click.echo(harmless(f"This folder uses the memory {own_match.space} from now on."))


@project.command("rename")
@click.argument("name")
def rename(*, name: str) -> None:
    """Give this folder's memory a name, which --space accepts. Its messages stay where they are."""
    projects.rename_project(str(Path.cwd()), name)
    click.echo(harmless(f"The memory of this folder is called {shlex.quote(name)}."))
