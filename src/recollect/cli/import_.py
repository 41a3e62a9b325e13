"""`recollect import PATH…` and `recollect import --all`: the command.

Owns the options, what is refused, the order and the sums that are told; `import_files` does the
work on one file, `import_all` finds what every agent keeps. Interrupted, it can be run again: what
is stored is skipped.
"""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from recollect.cli.facts.listing import said_waiting, sessions_waiting
from recollect.cli.import_all import import_all
from recollect.cli.import_files import (
    FileOutcome,
    ImportRun,
    counted,
    find_sources,
    import_rules,
    import_source,
    print_outcome,
    summed,
    totals,
)
from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import (
    OpenStore,
    Place,
    filling_store_options,
    print_json,
    with_store_at_need,
)
from recollect.errors import FormatError, RecollectError


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[PATH…]", type=click.Path(path_type=Path))
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="The histories of every agent on this machine, each project's into its own memory.",
)
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
@click.option("--dry-run", is_flag=True, help="With --all: show what there is, import nothing.")
@click.option("--session", metavar="NAME", help="Call the session so, whatever the file says.")
@click.option(
    "--restore",
    is_flag=True,
    help="It is an export of your own: facts keep their trust, maker and pins.",
)
@click.option("--quiet", is_flag=True, help="Tell only what went wrong.")
@filling_store_options
def import_(
    *,
    paths: tuple[Path, ...],
    everything: bool,
    yes: bool,
    dry_run: bool,
    session: str | None,
    restore: bool,
    quiet: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Take recorded sessions into a memory.

    PATH is a session file of pi, OpenClaw, Claude Code, Codex, opencode or aider, a log, a list of
    messages, a folder or archive of them, or a folder with segments.jsonl and knowledge.jsonl.
    With --all no PATH: what these agents keep on this machine is found, shown and
    imported. Run it again at any time: what is stored is skipped.
    """
    if everything:
        _check_all(paths, session, restore=restore)
        import_all(url, yes=yes, dry_run=dry_run, quiet=quiet, as_json=as_json)
        return
    if yes or dry_run:
        raise RecollectError("--yes and --dry-run belong to --all")
    _check_paths(paths, session)
    with ShownProgress(quiet=quiet or as_json) as progress:

        async def work(store: OpenStore, place: Place) -> tuple[list[FileOutcome], int]:
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
                if not as_json:
                    progress.clear()
                    print_outcome(outcomes[-1], quiet=quiet)
            imported = any(outcome.problem is None for outcome in outcomes)
            return outcomes, await sessions_waiting(await store()) if imported else 0

        outcomes, waiting = with_store_at_need(url, space, work)
    if not outcomes:
        raise FormatError("nothing in there could be a recording; name the files themselves")
    _print_all(outcomes, waiting, quiet=quiet, as_json=as_json)
    if any(outcome.problem for outcome in outcomes):
        raise SystemExit(1)


def _check_paths(paths: tuple[Path, ...], session: str | None) -> None:
    """Refuse what cannot be imported as it is named."""
    if not paths:
        raise RecollectError("give files or folders, or --all for what every agent keeps here")
    for path in paths:
        if not path.exists():
            raise FormatError(f"{path} is not there; give a file or a folder")
        if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
            raise FormatError(f"{path} is no regular file; give a file or a folder")
    if session is not None and sum(1 for _ in find_sources(paths)) > 1:
        raise RecollectError("--session names one session, but several files were found")


def _check_all(paths: tuple[Path, ...], session: str | None, *, restore: bool) -> None:
    """Refuse what --all decides by itself."""
    given = click.get_current_context().get_parameter_source("space")
    if paths or session is not None or restore or given is not ParameterSource.DEFAULT:
        raise RecollectError(
            "--all takes no PATH, --session, --restore or --space: each project has its own memory"
        )


def _print_all(outcomes: list[FileOutcome], waiting: int, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        files = [outcome.as_json() for outcome in outcomes]
        print_json({"files": files, "totals": totals(outcomes), "sessions_waiting": waiting})
    elif not quiet:
        if len(outcomes) > 1:
            click.echo(f"in all: {counted(summed(outcomes))}")
        if waiting:
            click.echo(f"recollect: {said_waiting(waiting)}", err=True)
