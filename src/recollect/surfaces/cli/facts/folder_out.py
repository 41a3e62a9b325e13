"""`recollect facts export`: facts as Markdown files that people read and edit, or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.facts.shown import as_json as fact_as_json
from recollect.surfaces.cli.facts.shown import book_of, with_facts
from recollect.surfaces.cli.store_options import Place, print_json, store_options

if TYPE_CHECKING:
    from recollect.ports import Store
    from recollect.values.fact import Fact


@click.command("export")
@click.option(
    "--markdown",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write memory/*.md into DIR.",
)
@click.option("--force", is_flag=True, help="Write over what was changed there by hand.")
@store_options
def export(*, folder: Path | None, force: bool, url: str | None, space: str, as_json: bool) -> None:
    """Write all facts: as a folder of Markdown, or with --json alone as one object."""
    if folder is None and not as_json:
        raise RecollectError("say how: --markdown DIR writes a folder, --json one object")

    async def work(store: Store, place: Place) -> tuple[tuple[Fact, ...], int]:
        from recollect.engine.facts.folder import every_fact

        facts = await every_fact(book_of(store, place))
        changed = 0 if folder is None else await _write(store, place, folder, facts, force=force)
        return facts, changed

    facts, changed = with_facts(url, space, work)
    if folder is None:
        print_json({"facts": [fact_as_json(one) for one in facts]})
    elif as_json:
        print_json({"folder": str(folder), "facts": len(facts), "files_changed": changed})
    else:
        click.echo(f"{folder}: {len(facts):,} facts, {changed:,} files written")


async def _write(
    store: Store, place: Place, folder: Path, facts: tuple[Fact, ...], *, force: bool
) -> int:
    from recollect.engine.facts.folder import read_plan
    from recollect.formats.memory_folder import read_folder, write_folder
    from recollect.surfaces.cli.facts.folder_files import read_files, strangers, write_files

    before = read_files(folder)
    others = strangers(before)
    if others and not force:
        raise RecollectError(
            f"{folder} holds {' and '.join(others)}, which no export wrote; give another folder, "
            "or --force to write over them"
        )
    plan = await read_plan(store, read_folder(before), place.settings.redaction)
    if not force and (plan.edits or plan.additions):
        raise RecollectError(
            f"{folder} was changed by hand in {len(plan.edits) + len(plan.additions)} places; "
            f"`recollect facts import --markdown {folder}` takes them in, --force drops them"
        )
    return write_files(folder, write_folder(facts), before=before)
