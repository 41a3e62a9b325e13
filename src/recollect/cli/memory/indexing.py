"""`recollect memory index|add|embed`: files and notes into a memory, and the vectors it lacks.

The same work that an engine does in the background, done now. Never alters a file; safe to run at
any time, beside an engine too, and to interrupt: what was made stays.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import (
    Place,
    filling_store_options,
    print_json,
    store_options,
    with_store,
)
from recollect.errors import EmbedderError, RecollectError
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.engine.keeper import NoteResult
    from recollect.core.ports import Embedder, Store
    from recollect.core.transfer.memory_files import MemoryFiles
    from recollect.core.values.upkeep import FileOutcome, MemoryFileResult, MemoryFilesResult


# `recollect memory add TEXT`: a note, kept like something the user said.


NOTES_SESSION = "notes"


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option("--session", default=NOTES_SESSION, show_default=True, metavar="NAME")
@filling_store_options
def add(*, text: str, session: str, url: str | None, space: str, as_json: bool) -> None:
    """Remember a note; a dash reads it from standard input."""
    said = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    said = said.strip()
    if not said:
        raise RecollectError("there is no text in that note; say what is to be remembered")

    async def work(store: Store, place: Place) -> NoteResult:
        from recollect.core.engine.keeper import keep_note
        from recollect.core.rules.tokens import Weigher

        return await keep_note(
            store,
            said,
            session=session,
            secret=place.secret,
            weigher=Weigher(place.settings.tokens.counter),
            redaction=place.settings.redaction,
            now=time.time(),
        )

    noted = with_store(url, space, work, create=True)
    segment = noted.segment
    if segment is None:
        raise RecollectError("that is nothing but a recalled block; there is nothing to keep")
    if as_json:
        print_json({"id": segment.id, "session": session, "outcome": noted.outcome})
    else:
        click.echo(f"{noted.outcome}: {segment.id}")
        if segment.noise is not None and noted.outcome == "stored":
            click.echo(f"recollect: it is kept but not indexed: {segment.noise}", err=True)
    if noted.outcome == "forgotten":
        click.echo("recollect: this text was forgotten on purpose and stays out", err=True)
        raise SystemExit(1)


# `recollect memory embed`: make the vectors that are missing, now, and show how far it is


_MANY_PASSAGES = 1_000
"""From so many on, whoever waits is told at the start, on a terminal or not."""


@click.command("embed")
@store_options
def embed(*, url: str | None, space: str, as_json: bool) -> None:
    """Make the vectors that are missing, by the embedder of the settings."""
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> dict[str, Any]:
            from recollect.adapters.wiring.models import choose_embedders

            chosen = choose_embedders(place.settings)
            if not chosen.used:
                raise RecollectError(f"no embedder is in use: {chosen.said}")
            before = (await store.stats()).vectors
            for embedder in chosen.used:
                await _embed_all(store, embedder, progress)
            after = (await store.stats()).vectors
            return {
                embedder.name: {
                    "made": after.get(embedder.name, 0) - before.get(embedder.name, 0),
                    "vectors": after.get(embedder.name, 0),
                }
                for embedder in chosen.used
            }

        made = with_store(url, space, work)
    if as_json:
        print_json({"space": space, "embedders": made})
        return
    for name, counts in made.items():
        click.echo(f"{name}: {counts['made']:,} vectors made, {counts['vectors']:,} in all")


async def _embed_all(store: Store, embedder: Embedder, progress: ShownProgress) -> None:
    from recollect.core.boundary import SystemClock
    from recollect.core.upkeep.chores import embed_next
    from recollect.core.upkeep.jobs import GiveUp

    stats = await store.stats()
    done = held = stats.vectors.get(embedder.name, 0)
    missing = stats.passages - held
    if missing > _MANY_PASSAGES:
        click.echo(f"{embedder.kind}: about {missing:,} passages get a vector", err=True)
    await embedder.load()
    while True:
        try:
            batch, more = await embed_next(store, embedder, SystemClock())
        except GiveUp as reason:
            raise EmbedderError(
                f"{embedder.name} cannot be used: {reason}; what was made before stays, choose "
                "another by recall.embedder"
            ) from None
        if batch.vectors:
            await store.write(batch)
            done += sum(len(vectors.vectors) for vectors in batch.vectors)
            progress.show(f"{embedder.kind} vectors", done - held, max(missing, 1))
        if not more:
            return
        await asyncio.sleep(0)


_OUTCOMES: tuple[FileOutcome, ...] = ("added", "changed", "withdrawn", "unchanged")


@dataclass(frozen=True, slots=True, kw_only=True)
class _FolderResult:
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

        async def work(store: Store, place: Place) -> list[_FolderResult]:
            looked = []
            for folder in named:
                show = partial(progress.show, plain_line(folder.name) or "indexing")
                files = _files(folder, store, place)
                look = await files.look(dry_run=dry_run, withdraw=withdraw, progress=show)
                looked.append(_FolderResult(folder=str(folder), look=look))
            return looked

        looked = with_store(url, space, work, create=not (dry_run or withdraw))
    if as_json:
        print_json(_as_json(looked, dry_run=dry_run))
    else:
        for result in looked:
            _print_result(result, several=len(looked) > 1, dry_run=dry_run)
    if any(look.look.skipped and not look.look.files for look in looked):
        raise SystemExit(1)


def _files(folder: Path, store: Store, place: Place) -> MemoryFiles:
    from recollect.adapters.wiring.models import Embedders, choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.rules.tokens import Weigher
    from recollect.core.transfer.file_sections import FileRules
    from recollect.core.transfer.memory_files import MemoryFiles

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
            embedders=tuple(embedder.name for embedder in vectors.used),
        ),
    )


def _as_json(looked: list[_FolderResult], *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "folders": [{"folder": look.folder, **asdict(look.look)} for look in looked],
        "totals": {
            **{kind: sum(look.look.count(kind) for look in looked) for kind in _OUTCOMES},
            "skipped": sum(len(look.look.skipped) for look in looked),
            "forgotten": sum(len(look.look.forgotten) for look in looked),
            "redacted": sum(look.look.redacted for look in looked),
        },
    }


def _print_result(looked: _FolderResult, *, several: bool, dry_run: bool) -> None:
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
