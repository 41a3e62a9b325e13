"""`recollect facts add` and `edit`: what a person knows better."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from recollect.surfaces.cli.facts.listing import TYPES
from recollect.surfaces.cli.facts.shown import as_json as fact_as_json
from recollect.surfaces.cli.facts.shown import book_of, is_past, statement, told
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    print_json,
    store_options,
    with_store,
)

if TYPE_CHECKING:
    from recollect.engine.facts.told import FactWritten
    from recollect.ports import Store
    from recollect.values.fact import FactType


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option("--type", "kind", type=click.Choice(TYPES), help="Its type; without it rules guess.")
@click.option("--subject", default="", metavar="NAME", help="What it is about.")
@store_options
def add(
    *, text: str, kind: FactType | None, subject: str, url: str | None, space: str, as_json: bool
) -> None:
    """Write a fact in your own words; a dash reads it from standard input.

    What it corrects is replaced, and kept as history.
    """

    async def work(store: Store, place: Place) -> FactWritten:
        return await book_of(store, place).add(_words(text), type=kind, subject=subject)

    _tell(with_store(url, space, work, create=True), as_json=as_json)


@click.command("edit")
@click.argument("id_", metavar="ID")
@click.argument("text", metavar="TEXT")
@store_options
def edit(*, id_: str, text: str, url: str | None, space: str, as_json: bool) -> None:
    """Correct a fact: a new version in your words; the one before is kept as history."""

    async def work(store: Store, place: Place) -> FactWritten:
        return await book_of(store, place).edit(id_, _words(text))

    _tell(with_store(url, space, work), as_json=as_json)


def _words(text: str) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _tell(written: FactWritten, *, as_json: bool) -> None:
    if as_json:
        print_json(written_as_json(written))
    else:
        _draw(written)
    if written.masked:
        click.echo(f"recollect: {written.masked} secrets in it were masked", err=True)
    if written.outcome == "refused":
        raise SystemExit(1)


def written_as_json(written: FactWritten) -> dict[str, object]:
    """What became of a statement."""
    return {
        "outcome": written.outcome,
        "fact": None if written.fact is None else fact_as_json(written.fact),
        "replaced": [one.id for one in written.replaced],
        "reason": written.reason,
    }


def said_of(written: FactWritten) -> str:
    """What was done, in a few words."""
    fact = written.fact
    named = "" if fact is None else f" {fact.id}"
    if written.outcome == "replaced" and written.replaced:
        return f"replaced {', '.join(one.id for one in written.replaced)}, now{named}"
    if written.outcome in ("added", "replaced"):
        before = fact is not None and is_past(fact)
        return f"added{named}" + (" as what held before" if before else "")
    if written.outcome == "known":
        return f"already known{named}" if named else f"already known: {written.reason}"
    return f"refused: {written.reason}"


def _draw(written: FactWritten) -> None:
    out = console()
    out.print(said_of(written), soft_wrap=True)
    if written.fact is not None:
        out.print(told(written.fact), soft_wrap=True)
        out.print(f"     {statement(written.fact)}", soft_wrap=True)
    for one in written.replaced:
        out.print(f"     before: {statement(one)}", style="dim", soft_wrap=True)
