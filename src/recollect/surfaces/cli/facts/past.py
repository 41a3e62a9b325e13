"""`recollect facts history ID`: what it said before, from when to when, and who changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from recollect.surfaces.cli.facts.shown import as_json as fact_as_json
from recollect.surfaces.cli.facts.shown import (
    book_of,
    is_past,
    made,
    said_by,
    shown_id,
    statement,
    with_facts,
)
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    instant,
    print_json,
    store_options,
    when,
)

if TYPE_CHECKING:
    from rich.text import Text

    from recollect.facts.results import FactHistory, FactVersion
    from recollect.ports import Store
    from recollect.values.fact import Fact

_HOW = {"update": "told in other words", "supersede": "replaced the one before", None: ""}
_CORRECTED = "corrected"


@click.command("history")
@click.argument("id_", metavar="ID")
@store_options
def history(*, id_: str, url: str | None, space: str, as_json: bool) -> None:
    """Show every version of a fact, oldest first; any version's id will do."""

    async def work(store: Store, place: Place) -> FactHistory:
        return await book_of(store, place).history(id_)

    found = with_facts(url, space, work)
    if as_json:
        versions = [_version_as_json(one) for one in found.versions]
        print_json({"asked": found.asked.id, "versions": versions})
        return
    out = console()
    for one in found.versions:
        if one.fact is None:
            out.print("┊ a version that was forgotten", style="dim", soft_wrap=True)
            continue
        asked = one.fact.id == found.asked.id
        out.print(_heading(one.fact, one.until, asked=asked), soft_wrap=True)
        out.print(f"│    {statement(one.fact)}", soft_wrap=True)


def _version_as_json(version: FactVersion) -> dict[str, Any]:
    if version.fact is None:
        return {"forgotten": True, "id": version.id}
    return {"forgotten": False, **fact_as_json(version.fact), "until": instant(version.until)}


def _heading(fact: Fact, end: float | None, *, asked: bool) -> Text:
    from rich.text import Text as RichText

    past = is_past(fact)
    line = RichText.assemble(("○ ", "dim") if past else ("● ", "bold green"))
    until = ("?" if end is None else when(end)) if past else "now"
    line.append(f"{when(fact.at)} to {until}", style="bold" if asked else "")
    line.append_text(said_by(fact.trust))
    details = [made(fact)]
    if fact.change == "supersede" and fact.made_by == "user":
        details.append(_CORRECTED)
    elif _HOW[fact.change]:
        details.append(_HOW[fact.change])
    if fact.recorded_at is not None:
        details.append(f"recorded {when(fact.recorded_at)}")
    line.append(f"  {', '.join(details)}  {shown_id(fact.id)}", style="dim")
    if fact.pinned:
        line.append("  pinned", style="bold magenta")
    return line
