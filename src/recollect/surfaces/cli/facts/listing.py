"""`recollect facts list`: what is known, as a table, or what was known at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import click

from recollect.surfaces.cli.facts.shown import (
    LEAST_ID_CHARS,
    MAKERS,
    NOTHING_KEPT,
    PINNED,
    SPEAKER_STYLES,
    book_of,
    is_past,
    is_unused,
    short_ids,
    shown_id,
    speaker,
    statement,
)
from recollect.surfaces.cli.facts.shown import as_json as fact_as_json
from recollect.surfaces.cli.facts.waiting import said_waiting, sessions_waiting
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    moment_from,
    print_json,
    store_options,
    when,
    with_store,
)
from recollect.values.fact import FactType, MadeBy
from recollect.values.segment import SPEAKERS, Trust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.text import Text

    from recollect.facts.results import FactFilter
    from recollect.ports import Store
    from recollect.values.fact import Fact, FactId

TYPES: tuple[FactType, ...] = get_args(FactType)
_SCREEN_FACTS = 50
_LEAST_STATEMENT_CELLS = 24
_DATE_CHARS = 10
_NONE_LIKE_THAT = "No fact is like that; leave a condition out, or add --all for what was replaced."
_NONE_YET = (
    "Nothing is known in this space yet. Facts are found while sessions go on; "
    "`recollect facts add` writes one."
)


class _TrustChoice(click.Choice[str]):
    """A trust; the names it was asked for by before are still understood."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from recollect.facts.results import TRUSTS

        return super().convert(TRUSTS.get(value, value), param, ctx)


@click.command("list")
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="Only this type.")
@click.option(
    "--trust",
    "trusts",
    multiple=True,
    type=_TrustChoice(tuple(SPEAKERS)),
    help="Only of this trust.",
)
@click.option("--session", metavar="NAME", help="Only from this session.")
@click.option("--as-of", metavar="WHEN", help="What held then: 2026-01-31, or 30d ago.")
@click.option("--all", "superseded", is_flag=True, help="Also what was replaced since.")
@click.option(
    "--made-by",
    multiple=True,
    type=click.Choice(get_args(MadeBy)),
    help="Only found or written this way.",
)
@click.option("--search", default="", metavar="WORDS", help="Only those that hold these words.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="The newest N and what is pinned; on a screen 50, elsewhere all.",
)
@store_options
def list_facts(
    *,
    types: tuple[FactType, ...],
    trusts: tuple[Trust, ...],
    session: str | None,
    as_of: str | None,
    superseded: bool,
    made_by: tuple[MadeBy, ...],
    search: str,
    limit: int | None,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """List the facts of a space: pinned ones first, then by time."""
    from recollect.facts.results import FactFilter

    asked = FactFilter(
        types=types,
        trusts=trusts,
        made_by=made_by,
        session=session,
        as_of=None if as_of is None else moment_from(as_of, option="--as-of"),
        superseded=superseded,
        search=search.strip(),
    )

    async def work(store: Store, place: Place) -> Listed:
        book = book_of(store, place)
        every = await book.list(FactFilter(superseded=True))
        found = await book.list(_with_id_of_key(asked, place.space))
        waiting = 0 if found else await sessions_waiting(store)
        return Listed(found=found, every=every, waiting=waiting)

    listed = None if is_unused(url, space) else with_store(url, space, work)
    if as_json:
        _print_json(asked, _newest(() if listed is None else listed.found, limit))
    elif listed is None:
        click.echo(f"{NOTHING_KEPT}; `recollect facts add` writes a fact")
    else:
        _tell(listed, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What was asked for, all that ids can mean, and what was not read yet."""

    found: tuple[Fact, ...]
    every: tuple[Fact, ...]
    waiting: int


def _tell(listed: Listed, limit: int | None) -> None:
    if listed.found:
        if limit is None and console().is_terminal:
            limit = _SCREEN_FACTS
        shown = _newest(listed.found, limit)
        _draw(shown, short_ids(listed.every))
        if left := len(listed.found) - len(shown):
            said = f"… and {left:,} older ones: --limit {len(listed.found)} shows all"
            click.echo(said, err=not console().is_terminal)
        return
    if listed.every:
        click.echo(_NONE_LIKE_THAT)
    elif not listed.waiting:
        click.echo(_NONE_YET)
    if listed.waiting:
        click.echo(said_waiting(listed.waiting))


def _newest(found: Sequence[Fact], limit: int | None) -> Sequence[Fact]:
    """What is pinned, and the newest of the others, in the order they came."""
    if limit is None or len(found) <= limit:
        return found
    pinned = [one for one in found if one.pinned]
    others = [one for one in found if not one.pinned]
    room = max(limit - len(pinned), 0)
    return [*pinned[:limit], *others[len(others) - room :]]


def _with_id_of_key(asked: FactFilter, space: str) -> FactFilter:
    """People name a conversation of the agent by its key, facts by its transcript's id."""
    from dataclasses import replace

    from recollect.session.forget_files import sessions_named

    if asked.session is None:
        return asked
    return replace(asked, session=sessions_named(space, [asked.session])[-1])


def _print_json(asked: FactFilter, found: Sequence[Fact]) -> None:
    from recollect.surfaces.cli.store_options import instant

    print_json({"as_of": instant(asked.as_of), "facts": [fact_as_json(one) for one in found]})


def _draw(found: Sequence[Fact], ids: Mapping[FactId, str]) -> None:
    from rich.text import Text as RichText

    out = console()
    ids = {id_: shown_id(short) for id_, short in ids.items()}
    width = max(LEAST_ID_CHARS, *(len(ids[one.id]) for one in found))
    kinds = max(len("type"), *(len(one.type) for one in found))
    said = max(len("said by"), *(len(speaker(one)) for one in found))
    how = max(len("made"), *(len(MAKERS[one.made_by]) for one in found))
    header = (
        f"  {'id':{width}}  {'since':{_DATE_CHARS}}  {'type':{kinds}}  {'said by':{said}}  "
        f"{'made':{how}}  statement"
    )
    out.print(RichText(header, style="dim"), soft_wrap=True)
    for fact in found:
        line = RichText.assemble((PINNED if fact.pinned else " ", "bold magenta"))
        line.append(f" {ids[fact.id]:{width}}  ", style="bold")
        line.append(f"{when(fact.at)[:_DATE_CHARS]:{_DATE_CHARS}}  ", style="dim")
        line.append(f"{fact.type.replace('_', ' '):{kinds}}  ")
        line.append(f"{speaker(fact):{said}}  ", style=SPEAKER_STYLES[fact.trust])
        by_rules = "yellow" if fact.made_by == "rules" else "dim"
        line.append(f"{MAKERS[fact.made_by]:{how}}  ", style=by_rules)
        _print_row(out, line, _with_end(fact))


def _with_end(fact: Fact) -> str:
    if not is_past(fact):
        return statement(fact)
    if fact.valid_to is None:
        return f"{statement(fact)}  (replaced)"
    return f"{statement(fact)}  (until {when(fact.valid_to)[:_DATE_CHARS]})"


def _print_row(out: Console, line: Text, said: str) -> None:
    """The statement last: wrapped beside the others on a screen, whole in a pipe."""
    from rich.text import Text as RichText

    room = out.width - line.cell_len
    if not out.is_terminal or room < _LEAST_STATEMENT_CELLS:
        line.append(said)
        out.print(line, soft_wrap=True)
        return
    first, *more = (one.plain.rstrip() for one in RichText(said).wrap(out, room))
    out.print(RichText.assemble(line, first), soft_wrap=True)
    for one in more:
        out.print(" " * line.cell_len + one, soft_wrap=True)
