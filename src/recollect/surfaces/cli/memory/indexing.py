"""`recollect memory index [FOLDER…]`: memory files into a memory, once, and what became of them.

The same look that an engine takes in the background. Never alters a file; safe to run at any time,
beside an engine too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.progress import ShownProgress
from recollect.surfaces.cli.store_options import Place, print_json, store_options, with_store

if TYPE_CHECKING:
    from recollect.ports import Store
    from recollect.transfer.memory_files import MemoryFiles
    from recollect.values.upkeep import FileOutcome, MemoryFileResult, MemoryFilesResult

_OUTCOMES: tuple[FileOutcome, ...] = ("added", "changed", "withdrawn", "unchanged")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """One folder and what became of its files."""

    folder: str
    look: MemoryFilesResult


@click.command("index")
@click.argument("folders", nargs=-1, metavar="[FOLDER…]", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--withdraw", is_flag=True, help="Take what came from the folders out of the memory instead."
)
@store_options
def index(
    *,
    folders: tuple[Path, ...],
    dry_run: bool,
    withdraw: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Bring the memory files of a folder up to date in a memory.

    FOLDER is a workspace, the current folder without it: its MEMORY.md, memory.md and
    memory/**/*.md are read, and what index.extra_paths adds. What changed is indexed anew, what a
    file no longer says is withdrawn.
    """
    named = folders or (Path(),)
    for folder in named:
        if not withdraw and not folder.is_dir():
            raise RecollectError(f"{plain_line(str(folder))} is no folder; name a workspace")
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> list[_Looked]:
            looked = []
            for folder in named:
                show = partial(progress.show, plain_line(folder.name) or "indexing")
                files = _files(folder, store, place)
                look = await files.look(dry_run=dry_run, withdraw=withdraw, progress=show)
                looked.append(_Looked(folder=str(folder), look=look))
            return looked

        looked = with_store(url, space, work, create=not (dry_run or withdraw))
    if as_json:
        print_json(_as_json(looked, dry_run=dry_run))
    else:
        for one in looked:
            _tell(one, several=len(looked) > 1, dry_run=dry_run)
    if any(one.look.skipped and not one.look.files for one in looked):
        raise SystemExit(1)


def _files(folder: Path, store: Store, place: Place) -> MemoryFiles:
    from recollect.boundary import SystemClock
    from recollect.rules.tokens import Weigher
    from recollect.transfer.file_sections import FileRules
    from recollect.transfer.memory_files import MemoryFiles
    from recollect.wiring.models import Embedders, choose_embedders

    async def opened() -> Store:
        return store

    settings = place.settings
    own_files = "memory" in settings.index.sources
    if not own_files and not settings.index.extra_paths:
        raise RecollectError(
            'index.sources leaves memory files out: add "memory" to it, or name files in '
            "index.extra_paths"
        )
    vectors = choose_embedders(settings) if settings.recall.enabled else Embedders()
    return MemoryFiles(
        folder,
        settings.index.extra_paths,
        own_files=own_files,
        open_archive=opened,
        write=store.write,
        clock=SystemClock(),
        rules=FileRules(
            secret=place.secret,
            redaction=settings.redaction,
            weigher=Weigher(settings.tokens.counter),
            embedders=tuple(one.name for one in vectors.used),
        ),
    )


def _as_json(looked: list[_Looked], *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "folders": [{"folder": one.folder, **asdict(one.look)} for one in looked],
        "totals": {
            **{kind: sum(one.look.count(kind) for one in looked) for kind in _OUTCOMES},
            "skipped": sum(len(one.look.skipped) for one in looked),
            "forgotten": sum(len(one.look.forgotten) for one in looked),
            "redacted": sum(one.look.redacted for one in looked),
        },
    }


def _tell(looked: _Looked, *, several: bool, dry_run: bool) -> None:
    look = looked.look
    if several:
        click.echo(f"{plain_line(looked.folder)}:")
    for file in look.files:
        if file.outcome != "unchanged":
            click.echo(f"{plain_line(file.file)}: {file.outcome}: {_counted(file)}")
    for skipped in look.skipped:
        click.echo(
            f"{plain_line(skipped.file)}: not indexed: {plain_line(skipped.reason)}", err=True
        )
    for origin in look.forgotten:
        click.echo(
            f"{plain_line(origin)}: was forgotten on purpose and stays out; the file still says it",
            err=True,
        )
    if not look.files and not look.skipped:
        click.echo("There are no memory files: MEMORY.md, memory.md and memory/**/*.md are read.")
        return
    counts = ", ".join(f"{look.count(kind):,} {kind}" for kind in _OUTCOMES)
    masked = f"; {look.redacted:,} secrets masked" if look.redacted else ""
    nothing = "; nothing was written (--dry-run)" if dry_run else ""
    click.echo(f"{len(look.files):,} files: {counts}{masked}{nothing}")
    if not dry_run and (look.count("added") or look.count("changed")):
        click.echo(
            "`recollect memory embed` makes their vectors now; a worker does so later.", err=True
        )


def _counted(file: MemoryFileResult) -> str:
    counts = (
        (file.added, "added"),
        (file.moved, "moved"),
        (file.withdrawn, "withdrawn"),
        (file.unchanged, "unchanged"),
    )
    return ", ".join(f"{count:,} {word}" for count, word in counts if count) + " (sections)"
