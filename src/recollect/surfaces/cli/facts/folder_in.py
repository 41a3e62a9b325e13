"""`recollect facts import --markdown DIR`: what people changed in the Markdown files.

A changed line is a new version, a new line a new fact. A line that is gone is told; it is
forgotten only on request.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.facts.forgetting import forget_facts, print_certificate
from recollect.surfaces.cli.facts.shown import book_of, shown_id, statement
from recollect.surfaces.cli.facts.writing import said_of, written_as_json
from recollect.surfaces.cli.store_options import Place, print_json, store_options, with_store

if TYPE_CHECKING:
    from recollect.engine.facts.folder import FolderTaken
    from recollect.ports import Store
    from recollect.values.upkeep import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was taken in."""

    taken: FolderTaken
    passed_over: tuple[str, ...]
    certificate: Certificate | None


@click.command("import")
@click.option(
    "--markdown",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    required=True,
    help="The folder that `recollect facts export --markdown` wrote.",
)
@click.option("--forget-missing", is_flag=True, help="Forget facts whose line was deleted.")
@click.option("--yes", is_flag=True, help="Do not ask before forgetting.")
@store_options
def import_(
    *,
    folder: Path,
    forget_missing: bool,
    yes: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Take in what was changed by hand in a folder of Markdown."""
    from recollect.surfaces.cli.facts.folder_files import read_files

    texts = read_files(folder)
    if not texts:
        raise RecollectError(
            f"{folder} holds no memory/preferences.md, memory/facts.md or daily notes; "
            f"`recollect facts export --markdown {folder}` writes them"
        )

    async def work(store: Store, place: Place) -> Imported:
        return await _import(
            store, place, texts, forget_missing=forget_missing, ask=not yes, draw=not as_json
        )

    done = with_store(url, space, work, create=True)
    if as_json:
        print_json(_as_json(done))
    else:
        _draw(done)
    if done.taken.problems:
        raise SystemExit(1)


async def _import(
    store: Store,
    place: Place,
    texts: dict[str, str],
    *,
    forget_missing: bool,
    ask: bool,
    draw: bool,
) -> Imported:
    from recollect.engine.facts.folder import read_plan, take_folder
    from recollect.formats.memory_folder import read_folder

    read = read_folder(texts)
    book = book_of(store, place)
    plan = await read_plan(store, read, place.settings.redaction)
    certificate = None
    if forget_missing and plan.missing and plan.doubt:
        raise RecollectError(
            f"--forget-missing: {plan.doubt}, so a missing line may not mean that you deleted it; "
            "export again, or forget by id with `recollect facts forget`"
        )
    if forget_missing and plan.missing:
        order = await book.order_to_forget([fact.id for fact in plan.missing])
        certificate = await forget_facts(store, place, order, None, ask=ask, draw=draw)
    taken = await take_folder(book, plan)
    return Imported(taken=taken, passed_over=read.passed_over, certificate=certificate)


def _as_json(done: Imported) -> dict[str, Any]:
    from recollect.upkeep import certificates

    taken = done.taken
    return {
        "unchanged": taken.plan.unchanged,
        "written": [
            {"path": line.path, "line": line.number, **written_as_json(written)}
            for line, written in taken.written
        ],
        "missing": [fact.id for fact in taken.plan.missing],
        "forgotten": None
        if done.certificate is None
        else certificates.certificate_json(done.certificate),
        "of_forgotten": taken.plan.forgotten,
        "problems": list(taken.problems),
        "passed_over": list(done.passed_over),
    }


def _draw(done: Imported) -> None:
    taken = done.taken
    for line, written in taken.written:
        click.echo(f"{line.path}:{line.number}: {plain_line(said_of(written))}")
        if written.masked:
            click.echo(f"recollect: {written.masked} secrets in it were masked", err=True)
    if done.certificate is not None:
        print_certificate(done.certificate, as_json=False)
    elif taken.plan.missing:
        for fact in taken.plan.missing:
            click.echo(f"missing, and still known: {shown_id(fact.id)}  {statement(fact)}")
        click.echo("recollect: --forget-missing forgets them", err=True)
    if taken.plan.forgotten:
        lines = "1 line" if taken.plan.forgotten == 1 else f"{taken.plan.forgotten:,} lines"
        click.echo(
            f"recollect: {lines} of facts that were forgotten; export again to be rid of them",
            err=True,
        )
    if not (taken.written or taken.plan.missing or taken.problems):
        click.echo(f"nothing to do: {taken.plan.unchanged:,} facts are as they were written")
    elif taken.written:
        click.echo("recollect: export again, so that the lines name their new versions", err=True)
    for problem in taken.problems:
        click.echo(f"recollect: {problem}", err=True)
    if done.passed_over:
        named = ", ".join(done.passed_over[:5])
        click.echo(
            f"recollect: {len(done.passed_over):,} lines are no list items and were left alone: "
            f"{named}",
            err=True,
        )
