"""`recollect facts add` and `edit`: what a person knows better."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.facts.shown import as_json as fact_as_json
from recollect.surfaces.cli.facts.shown import (
    book_of,
    is_past,
    shown_id,
    statement,
    told,
    with_facts,
)
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    print_json,
    store_options,
    with_store,
)
from recollect.values.fact import EXTRACTED_TYPES

if TYPE_CHECKING:
    from recollect.facts.results import FactWritten
    from recollect.ports import Store
    from recollect.values.fact import FactType


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option(
    "--type",
    "kind",
    type=click.Choice(EXTRACTED_TYPES),
    help="Its type; without it rules guess.",
)
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
@click.argument("text", metavar="[TEXT]", required=False)
@click.option("--type", "kind", type=click.Choice(EXTRACTED_TYPES), help="Another type.")
@store_options
def edit(
    *,
    id_: str,
    text: str | None,
    kind: FactType | None,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Correct a fact: a new version in your words; the one before is kept as history.

    With --type alone the words stay as they are, and so does who said them.
    """
    if text is None and kind is None:
        raise RecollectError("say what it should be: the new TEXT, --type, or both")

    async def work(store: Store, place: Place) -> FactWritten:
        book = book_of(store, place)
        fact = await book.find(id_)
        if text is None and kind in (None, fact.type):
            return Unchanged(outcome="known", fact=fact, reason="it is of that type already")
        words = fact.content if text is None else _words(text)
        return await book.edit(fact.id, words, type=kind)

    from recollect.facts.results import FactWritten as Unchanged

    _tell(with_facts(url, space, work), as_json=as_json)


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
    named = "" if fact is None else f" {shown_id(fact.id)}"
    if written.outcome == "replaced" and written.replaced:
        return f"replaced {', '.join(shown_id(one.id) for one in written.replaced)}, now{named}"
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
