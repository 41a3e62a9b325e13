"""`recollect facts list|why|add|edit|pin`: read, write and correct facts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from recollect.cli.store_options import (
    MAKERS,
    Memory,
    Place,
    fact_as_json,
    fact_line,
    heading,
    instant,
    memory_options,
    moment_from,
    new_memory_options,
    said_by,
    segment_as_json,
    shown_id,
    speaker,
    statement,
    when,
)
from recollect.core.values.fact import EXTRACTED_TYPES, FactType, type_named
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.core.facts.book import FactBook
    from recollect.core.facts.history import (
        FactHistory,
        FactPinned,
        FactSource,
        FactVersion,
        FactWhy,
        FactWritten,
    )
    from recollect.core.ports import Store
    from recollect.core.values.fact import Fact

LEAST_ID_CHARS: Final = 8
_AROUND_CHARS: Final = 100


class TypeChoice(click.Choice[str]):
    """A type of facts, as lists show it ("task state") or as it is stored ("task_state")."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(type_named(value), param, ctx)


def book_of(store: Store, place: Place) -> FactBook:
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.facts.book import FactBook as Book

    names = [embedder.name for embedder in choose_embedders(place.settings).used]
    return Book(store, place.settings, SystemClock(), embedders=names)


@click.command("list")
@click.option(
    "--type", "types", multiple=True, type=TypeChoice(get_args(FactType)), help="Only this type."
)
@click.option("--session", metavar="NAME", help="Only facts from this session.")
@click.option(
    "--as-of",
    metavar="WHEN",
    help="Only facts that were true at this time: 2026-01-31, or 30d for 30 days ago.",
)
@click.option("--all", "superseded", is_flag=True, help="Also facts that were replaced.")
@click.option("--search", default="", metavar="WORDS", help="Only facts with all of these words.")
@memory_options
def facts_list(
    *,
    types: tuple[FactType, ...],
    session: str | None,
    as_of: str | None,
    superseded: bool,
    search: str,
    memory: Memory,
) -> None:
    """List the facts of a memory: pinned ones first, then by time."""
    from recollect.core.facts.history import FactFilter

    at = None if as_of is None else moment_from(as_of, option="--as-of")

    async def work(store: Store, place: Place) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
        book = book_of(store, place)
        asked = FactFilter(
            types=types,
            session=None if session is None else await _session(store, place, session),
            as_of=at,
            superseded=superseded,
            search=search.strip(),
        )
        return await book.list(FactFilter(superseded=True)), await book.list(asked)

    def draw() -> None:
        if found:
            _draw_list(found, every)
        elif every:
            click.echo("No fact matches; leave a condition out, or add --all for replaced facts.")
        else:
            click.echo(
                "This memory has no facts yet. Write one with `recollect facts add`, or have "
                "models.extraction read the sessions with `recollect worker --once`."
            )

    every, found = memory.run(work)
    value = {"as_of": instant(at), "facts": [fact_as_json(fact) for fact in found]}
    memory.show(value, draw)


async def _session(store: Store, place: Place, wanted: str) -> str:
    from recollect.adapters.session.clean_files import sessions_named

    return await stored_session(store, sessions_named(place.space, [wanted])[-1])


def id_chars(facts: Sequence[Fact]) -> int:
    """Return how many characters are needed to tell the ids of these facts apart."""
    ids = {fact.id for fact in facts}
    longest = max((len(id_) for id_ in ids), default=0)
    lengths = range(LEAST_ID_CHARS, longest)
    return next((n for n in lengths if len({id_[:n] for id_ in ids}) == len(ids)), longest)


def _draw_list(facts: Sequence[Fact], every: Sequence[Fact]) -> None:
    chars = id_chars(every)
    said = max(len("said by"), *(len(speaker(fact.trust)) for fact in facts))
    header = f"  {'id':{chars}}  since       {'type':10}  {'said by':{said}}  made    statement"
    click.secho(header, dim=True)
    for fact in facts:
        until = ""
        if not fact.current:
            end = "replaced" if fact.valid_to is None else f"until {when(fact.valid_to)[:10]}"
            until = f"  ({end})"
        click.echo(
            f"{'*' if fact.pinned else ' '} {shown_id(fact.id[:chars]):{chars}}  "
            f"{when(fact.at)[:10]:10}  {fact.type.replace('_', ' '):10}  "
            f"{speaker(fact.trust):{said}}  {fact.made_by:6}  {statement(fact)}{until}"
        )


@click.command("why")
@click.argument("id_", metavar="ID")
@memory_options
def facts_why(*, id_: str, memory: Memory) -> None:
    """Show the messages that support a fact, and all its versions, oldest first.

    ID is the id of any version, or an id prefix.
    """

    async def work(store: Store, place: Place) -> tuple[FactWhy, FactHistory]:
        book = book_of(store, place)
        return await book.why(id_), await book.history(id_)

    def draw() -> None:
        click.secho(statement(why.fact), bold=True)
        click.echo(f"{fact_line(why.fact)}\n{_origin(why)}")
        for source in why.sources:
            click.echo()
            _draw_source(source)
        if len(history.versions) > 1:
            click.secho("\nversions", bold=True)
            for version in history.versions:
                _draw_version(version)

    why, history = memory.run(work)
    value = {
        "fact": fact_as_json(why.fact),
        "rests_on": None if why.rests_on is None else fact_as_json(why.rests_on),
        "sources": [_source_json(source) for source in why.sources],
        "versions": [_version_json(version) for version in history.versions],
    }
    memory.show(value, draw)


def _source_json(source: FactSource) -> dict[str, Any]:
    if source.stored is None:
        return {"segment": source.id, "there": False}
    text = source.stored.segment.text
    spans = [
        {"start": span.start, "end": span.end, "text": text[span.start : span.end]}
        for span in source.spans
    ]
    stored = segment_as_json(source.stored)
    return {"segment": source.id, "there": True, **stored, "spans": spans}


def _version_json(version: FactVersion) -> dict[str, Any]:
    if version.fact is None:
        return {"forgotten": True, "id": version.id}
    return {"forgotten": False, **fact_as_json(version.fact), "until": instant(version.until)}


def _origin(why: FactWhy) -> str:
    fact = why.fact
    if why.rests_on is not None:
        return f"You wrote it. It replaced {shown_id(why.rests_on.id)}, which was found in:"
    if not fact.sources:
        return "The messages that it was found in are not known."
    return "Only together these messages say it:" if fact.joint else "These messages say it:"


def _draw_source(source: FactSource) -> None:
    if source.stored is None:
        click.echo(f"{shown_id(source.id)}  is no longer stored")
        return
    segment = source.stored.segment
    click.echo(f"{heading(source.stored)}  {said_by(segment.trust)}")
    for span in source.spans:
        click.echo(f"     {_quote(segment.text, span.start, span.end)}")
    if source.lost_spans:
        click.echo("     these words have been masked since")
    elif not source.spans:
        click.echo(f"     {plain_line(segment.text)[: 2 * _AROUND_CHARS]}")
    if segment.origin is not None:
        click.echo(f"     {plain_line(segment.origin)}")


def _quote(text: str, start: int, end: int) -> str:
    first = max(0, start - _AROUND_CHARS)
    marked = f"{text[first:start]}»{text[start:end]}«{text[end : end + _AROUND_CHARS]}"
    return plain_line(marked)


def _draw_version(version: FactVersion) -> None:
    fact = version.fact
    if fact is None:
        click.echo("┊ a version that was forgotten")
        return
    sign, until = ("●", "now") if fact.current else ("○", when(version.until))
    details = f"{MAKERS[fact.made_by]}  {shown_id(fact.id)}{'  pinned' * fact.pinned}"
    click.echo(f"{sign} {when(fact.at)} to {until}  {said_by(fact.trust)}  {details}")
    click.echo(f"│    {statement(fact)}")


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option(
    "--type",
    "kind",
    type=TypeChoice(EXTRACTED_TYPES),
    help="Type of the fact. Default: chosen by its words.",
)
@click.option(
    "--subject", default="", metavar="NAME", help="The thing or person that the fact is about."
)
@new_memory_options
def facts_add(*, text: str, kind: FactType | None, subject: str, memory: Memory) -> None:
    """Write a fact in your own words. Pass - to read it from standard input.

    Replaces the facts that it corrects; they stay as its history.
    """

    async def work(store: Store, place: Place) -> FactWritten:
        return await book_of(store, place).add(_words(text), type=kind, subject=subject)

    _print_written(memory, memory.run(work))


@click.command("edit")
@click.argument("id_", metavar="ID")
@click.argument("text", metavar="TEXT")
@memory_options
def facts_edit(*, id_: str, text: str, memory: Memory) -> None:
    """Correct a fact: write a new version of it. The old version stays in its history."""

    async def work(store: Store, place: Place) -> FactWritten:
        book = book_of(store, place)
        return await book.edit((await book.find(id_)).id, _words(text))

    _print_written(memory, memory.run(work))


def _words(text: str) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _print_written(memory: Memory, written: FactWritten) -> None:
    fact = written.fact

    def draw() -> None:
        click.echo(_written_line(written))
        if fact is not None:
            click.echo(f"{fact_line(fact)}\n     {statement(fact)}")
        for old in written.replaced:
            click.echo(f"     before: {statement(old)}")

    value = {
        "outcome": written.outcome,
        "fact": None if fact is None else fact_as_json(fact),
        "replaced": [old.id for old in written.replaced],
        "reason": written.reason,
    }
    memory.show(value, draw)
    if written.masked:
        click.echo(f"recollect: {written.masked} secrets in it were masked", err=True)
    if written.outcome == "refused":
        raise SystemExit(1)


def _written_line(written: FactWritten) -> str:
    named = "" if written.fact is None else f" {shown_id(written.fact.id)}"
    if written.outcome == "replaced" and written.replaced:
        return f"replaced {', '.join(shown_id(old.id) for old in written.replaced)}, now{named}"
    if written.outcome in ("added", "replaced"):
        past = written.fact is not None and not written.fact.current
        return f"added{named}" + (" as an earlier version" if past else "")
    if written.outcome == "known":
        return f"already known{named}" if named else f"already known: {written.reason}"
    return f"refused: {written.reason}"


@click.command("pin")
@click.argument("id_", metavar="ID")
@click.option("--off", is_flag=True, help="Unpin it.")
@memory_options
def facts_pin(*, id_: str, off: bool, memory: Memory) -> None:
    """Rank a fact first in recall, and protect it from being replaced by extracted facts."""

    async def work(store: Store, place: Place) -> FactPinned:
        book = book_of(store, place)
        return await (book.unpin(id_) if off else book.pin(id_))

    def draw() -> None:
        said = ("unpinned", "was not pinned") if off else ("pinned", "was pinned already")
        click.echo(f"{said[not done.changed]}: {shown_id(done.fact.id)}")
        click.echo(f"     {statement(done.fact)}")

    done = memory.run(work)
    memory.show({"changed": done.changed, "fact": fact_as_json(done.fact)}, draw)
