"""`recollect facts pin` and `unpin`: what is always offered first, and stays until people say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recollect.surfaces.cli.facts.shown import as_json as fact_as_json
from recollect.surfaces.cli.facts.shown import book_of, shown_id, statement, with_facts
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    print_json,
    store_options,
)

if TYPE_CHECKING:
    from recollect.facts.results import FactPinned
    from recollect.ports import Store


@click.command("pin")
@click.argument("id_", metavar="ID")
@store_options
def pin(*, id_: str, url: str | None, space: str, as_json: bool) -> None:
    """Offer a fact first from now on; nothing that is extracted replaces it."""

    async def work(store: Store, place: Place) -> FactPinned:
        return await book_of(store, place).pin(id_)

    _tell(with_facts(url, space, work), ("pinned", "was pinned already"), as_json=as_json)


@click.command("unpin")
@click.argument("id_", metavar="ID")
@store_options
def unpin(*, id_: str, url: str | None, space: str, as_json: bool) -> None:
    """Undo `pin`."""

    async def work(store: Store, place: Place) -> FactPinned:
        return await book_of(store, place).unpin(id_)

    _tell(with_facts(url, space, work), ("unpinned", "was not pinned"), as_json=as_json)


def _tell(done: FactPinned, said: tuple[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json({"changed": done.changed, "fact": fact_as_json(done.fact)})
        return
    out = console()
    out.print(f"{said[0] if done.changed else said[1]}: {shown_id(done.fact.id)}", soft_wrap=True)
    out.print(f"     {statement(done.fact)}", soft_wrap=True)
