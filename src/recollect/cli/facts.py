"""`recollect facts list|why|add|edit|expire|pin|export|import`: read, write and correct facts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from recollect.cli.store_options import (
    MAKERS,
    Memory,
    change_options,
    fact_as_json,
    fact_line,
    format_id,
    format_speaker,
    heading,
    instant,
    memory_options,
    moment_from,
    new_memory_options,
    segment_as_json,
    speaker,
    statement,
    text_argument,
    when,
)
from recollect.core.values.fact import EXTRACTED_TYPES, FactType, type_named
from recollect.errors import RecollectError
from recollect.hosts.inspect.searching import fact_book
from recollect.hosts.inspect.sessions import resolve_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.core.facts.history import (
        FactSource,
        FactVersion,
        FactWhy,
        FactWritten,
    )
    from recollect.core.values.fact import Fact

# Not measured: as short as an id that people can copy from a list by hand.
MIN_ID_CHARS: Final = 8
_MAX_FILE_BYTES: Final = 100_000
"""A fact has at most 2,000 characters. Not measured; bounds the work of one file."""
_CONTEXT_CHARS: Final = 100  # not measured: a quote with its context takes three rows


class TypeChoice(click.Choice[str]):
    """A type of facts, written as in lists ("task state") or as in the store ("task_state")."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(type_named(value), param, ctx)


@click.command("list")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=TypeChoice(get_args(FactType)),
    help="List only this type.",
)
@click.option("--session", metavar="NAME", help="List only facts from this session.")
@click.option(
    "--as-of",
    metavar="WHEN",
    help="List facts that were true at this time: 2026-01-31, or 30d for 30 days ago.",
)
@click.option("--all", "superseded", is_flag=True, help="Also list facts that were replaced.")
@click.option(
    "--search", default="", metavar="WORDS", help="List only facts with all of these words."
)
@memory_options
async def facts_list(
    *,
    types: tuple[FactType, ...],
    session: str | None,
    as_of: str | None,
    superseded: bool,
    search: str,
    memory: Memory,
) -> None:
    """List the facts of a memory: pinned facts first, then the others by time."""
    from recollect.adapters.session.clean_files import resolve_sessions
    from recollect.core.facts.history import FactFilter

    valid_at = None if as_of is None else moment_from(as_of, option="--as-of")
    async with memory.open() as store:
        if session is not None:
            session = await resolve_session(store, resolve_sessions(memory.space, [session])[-1])
        fact_filter = FactFilter(
            types=types,
            session=session,
            as_of=valid_at,
            superseded=superseded,
            search=search.strip(),
        )
        book = fact_book(store, memory.settings)
        all_facts = await book.list(FactFilter(superseded=True))
        facts = await book.list(fact_filter)
    value = {"as_of": instant(valid_at), "facts": [fact_as_json(fact) for fact in facts]}
    memory.show(value, _list_lines(facts, all_facts))


def id_chars(facts: Sequence[Fact]) -> int:
    """Return how many characters of each id distinguish all these facts."""
    ids = {fact.id for fact in facts}
    longest = max((len(id_) for id_ in ids), default=0)
    lengths = range(MIN_ID_CHARS, longest)
    return next((n for n in lengths if len({id_[:n] for id_ in ids}) == len(ids)), longest)


def _list_lines(facts: Sequence[Fact], all_facts: Sequence[Fact]) -> Iterator[str]:
    if not all_facts:
        yield (
            "This memory has no facts yet. Write one with `recollect facts add`, or set "
            "models.extraction and run `recollect worker --once` to extract facts from the "
            "sessions."
        )
        return
    if not facts:
        yield "No fact matches; omit a condition, or add --all to include replaced facts."
        return
    chars = id_chars(all_facts)
    speaker_width = max(len("said by"), *(len(speaker(fact.trust)) for fact in facts))
    header = (
        f"  {'id':{chars}}  since       {'type':10}  {'said by':{speaker_width}}  made    statement"
    )
    yield click.style(header, dim=True)
    for fact in facts:
        until = ""
        if not fact.current:
            end = "replaced" if fact.valid_to is None else f"until {when(fact.valid_to)[:10]}"
            until = f"  ({end})"
        yield (
            f"{'*' if fact.pinned else ' '} {format_id(fact.id[:chars]):{chars}}  "
            f"{when(fact.at)[:10]:10}  {fact.type.replace('_', ' '):10}  "
            f"{speaker(fact.trust):{speaker_width}}  {fact.made_by:6}  {statement(fact)}{until}"
        )


@click.command("why")
@click.argument("id_", metavar="ID")
@memory_options
async def facts_why(*, id_: str, memory: Memory) -> None:
    """Show the messages that a fact is based on, and all versions of the fact, oldest first.

    ID is the id of any version, or an id prefix."""
    async with memory.open() as store:
        book = fact_book(store, memory.settings)
        fact_why, history = await book.why(id_), await book.history(id_)
    value = {
        "fact": fact_as_json(fact_why.fact),
        "rests_on": None if fact_why.rests_on is None else fact_as_json(fact_why.rests_on),
        "sources": [_source_json(source) for source in fact_why.sources],
        "versions": [_version_json(version) for version in history.versions],
    }
    memory.show(value, _why_lines(fact_why, history.versions))


def _why_lines(fact_why: FactWhy, versions: Sequence[FactVersion]) -> Iterator[str]:
    yield click.style(statement(fact_why.fact), bold=True)
    yield f"{fact_line(fact_why.fact)}\n{_origin(fact_why)}"
    for source in fact_why.sources:
        yield ""
        yield from _source_lines(source)
    if len(versions) > 1:
        yield click.style("\nversions", bold=True)
        for version in versions:
            yield from _version_lines(version)


def _source_json(source: FactSource) -> dict[str, Any]:
    if source.stored is None:
        return {"segment": source.id, "there": False}
    text = source.stored.segment.text
    spans = [
        {"start": span.start, "end": span.end, "text": text[span.start : span.end]}
        for span in source.spans
    ]
    stored_record = segment_as_json(source.stored)
    return {"segment": source.id, "there": True, **stored_record, "spans": spans}


def _version_json(version: FactVersion) -> dict[str, Any]:
    if version.fact is None:
        return {"forgotten": True, "id": version.id}
    return {"forgotten": False, **fact_as_json(version.fact), "until": instant(version.until)}


def _origin(fact_why: FactWhy) -> str:
    fact = fact_why.fact
    if fact_why.rests_on is not None:
        return f"You wrote it. It replaced {format_id(fact_why.rests_on.id)}, which was found in:"
    if not fact.sources:
        if fact.made_by == "user":
            return "It was written by hand, so no message supports it."
        return "The messages that it was found in are not stored."
    return "Only together these messages say it:" if fact.joint else "These messages say it:"


def _source_lines(source: FactSource) -> Iterator[str]:
    if source.stored is None:
        yield f"{format_id(source.id)}  is no longer stored"
        return
    segment = source.stored.segment
    yield f"{heading(segment)}  {format_speaker(segment.trust)}"
    for span in source.spans:
        yield f"     {_quote(segment.text, span.start, span.end)}"
    if source.lost_spans:
        yield "     these words were masked later"
    elif not source.spans:
        yield f"     {plain_line(segment.text)[: 2 * _CONTEXT_CHARS]}"
    if segment.origin is not None:
        yield f"     {plain_line(segment.origin)}"


def _quote(text: str, start: int, end: int) -> str:
    first = max(0, start - _CONTEXT_CHARS)
    passage = f"{text[first:start]}»{text[start:end]}«{text[end : end + _CONTEXT_CHARS]}"
    return plain_line(passage)


def _version_lines(version: FactVersion) -> Iterator[str]:
    fact = version.fact
    if fact is None:
        yield "┊ a version that was forgotten"
        return
    sign, until = ("●", "now") if fact.current else ("○", when(version.until))
    details = f"{MAKERS[fact.made_by]}  {format_id(fact.id)}{'  pinned' * fact.pinned}"
    yield f"{sign} {when(fact.at)} to {until}  {format_speaker(fact.trust)}  {details}"
    yield f"│    {statement(fact)}"


@click.command("add")
@text_argument
@click.option(
    "--type",
    "kind",
    type=TypeChoice(EXTRACTED_TYPES),
    help="Type of the fact. Default: derived from its words.",
)
@click.option(
    "--subject", default="", metavar="NAME", help="The thing or person that the fact is about."
)
@new_memory_options
async def facts_add(*, text: str, kind: FactType | None, subject: str, memory: Memory) -> None:
    """Store TEXT as a fact. Pass - to read TEXT from standard input.

    If the fact corrects earlier facts, it replaces them. The earlier facts stay as its history."""
    async with memory.open() as store:
        result = await fact_book(store, memory.settings).add(text, type=kind, subject=subject)
    _print_written(memory, result)


@click.command("edit")
@click.argument("id_", metavar="ID")
@text_argument
@change_options
async def facts_edit(*, id_: str, text: str, memory: Memory) -> None:
    """Correct a fact: write a new version of it. The old version stays in its history."""
    async with memory.open() as store:
        book = fact_book(store, memory.settings)
        result = await book.edit((await book.find(id_)).id, text)
    _print_written(memory, result)


def _print_written(memory: Memory, result: FactWritten) -> None:
    fact = result.fact
    lines = [_describe_written(result)]
    if fact is not None:
        lines += [fact_line(fact), f"     {statement(fact)}"]
    lines += [f"     before: {statement(replaced_fact)}" for replaced_fact in result.replaced]
    value = {
        "outcome": result.outcome,
        "fact": None if fact is None else fact_as_json(fact),
        "replaced": [replaced_fact.id for replaced_fact in result.replaced],
        "reason": result.reason,
    }
    memory.show(value, lines)
    if result.masked:
        click.echo(f"recollect: {result.masked} secrets in the fact were masked", err=True)
    if result.outcome == "refused":
        raise SystemExit(1)


def _describe_written(result: FactWritten) -> str:
    shown_name = "" if result.fact is None else f" {format_id(result.fact.id)}"
    if result.outcome == "replaced" and result.replaced:
        replaced_ids = ", ".join(format_id(fact.id) for fact in result.replaced)
        return f"replaced {replaced_ids}, now{shown_name}"
    if result.outcome in ("added", "replaced"):
        past = result.fact is not None and not result.fact.current
        return f"added{shown_name}" + (" as an earlier version" if past else "")
    if result.outcome == "known":
        return f"already known{shown_name}" if shown_name else f"already known: {result.reason}"
    return f"refused: {result.reason}"


@click.command("pin")
@click.argument("id_", metavar="ID")
@click.option("--off", "unpin", is_flag=True, help="Unpin the fact.")
@change_options
async def facts_pin(*, id_: str, unpin: bool, memory: Memory) -> None:
    """Pin a fact: repeat it in every request, and let no extracted fact replace it."""
    async with memory.open() as store:
        book = fact_book(store, memory.settings)
        result = await (book.unpin(id_) if unpin else book.pin(id_))
    outcomes = ("unpinned", "was not pinned") if unpin else ("pinned", "was pinned already")
    line = f"{outcomes[not result.changed]}: {format_id(result.fact.id)}"
    value = {"changed": result.changed, "fact": fact_as_json(result.fact)}
    memory.show(value, [line, f"     {statement(result.fact)}"])


@click.command("expire")
@click.argument("id_", metavar="ID")
@change_options
async def facts_expire(*, id_: str, memory: Memory) -> None:
    """Mark a fact as no longer true: it is not recalled any more, and stays as history."""
    async with memory.open() as store:
        fact = await fact_book(store, memory.settings).expire(id_)
    lines = [f"expired: {format_id(fact.id)}", f"     {statement(fact)}"]
    memory.show({"fact": fact_as_json(fact)}, lines)


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@memory_options
async def facts_export(*, folder: Path, memory: Memory) -> None:
    """Write each fact into a Markdown file in DIR, which must be empty or missing.

    `recollect facts import DIR` reads the files again, also after you have edited them."""
    from recollect.core.formats.openclaw_files import write_fact_file
    from recollect.system.durable import replace_file
    from recollect.system.places import file_name

    if files_in(folder, "*"):
        raise RecollectError(f"{folder} must be empty or missing: name another folder")
    async with memory.open() as store:
        facts = await store.facts(superseded=True)
    for fact in facts:
        path = folder / fact.type / f"{file_name(fact.id)}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write_fact_file(fact).encode())
    value = {"folder": str(folder), "facts": len(facts)}
    memory.show(value, [f"{folder}: {len(facts):,} facts"])


def files_in(folder: Path, pattern: str) -> list[str]:
    """Return the names of files in a folder and its subfolders, in order."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(pattern))


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--restore", is_flag=True, help="Take trust levels, authors and pins from the files.")
@new_memory_options
async def facts_import_(*, folder: Path, restore: bool, memory: Memory) -> None:
    """Read facts from the Markdown files in DIR, also files that you wrote or edited.

    An edited statement replaces the earlier one, which stays as history. Exits 1 if a file could
    not be read."""
    from recollect.core.transfer.openclaw import import_fact_file
    from recollect.core.transfer.transcripts import ImportRules
    from recollect.system.durable import read_inside

    if not (names := files_in(folder, "*.md")):
        raise RecollectError(
            f"{plain_line(str(folder))} has no Markdown files: name a folder that "
            "`recollect facts export` wrote, or that has your own .md files"
        )
    outcomes: dict[str, str] = {}
    problems: dict[str, str] = {}
    async with memory.open() as store:
        rules = ImportRules.of(memory.settings, secret=memory.secret, now=time.time())
        book = fact_book(store, memory.settings)
        facts = {fact.id: fact for fact in await store.facts(superseded=True)}
        for name in names:
            try:
                data, _ = read_inside(folder, name, _MAX_FILE_BYTES)
                outcomes[name] = await import_fact_file(
                    data, facts, store, book, rules=rules, restore=restore
                )
            except (OSError, RecollectError) as problem:
                problems[name] = f"not read: {problem}"
    problem_lines = [f"{plain_line(name)}: {problem}" for name, problem in problems.items()]
    counts = Counter(outcomes.values())
    totals = ", ".join(f"{count:,} {word}" for word, count in sorted(counts.items()))
    lines = [*problem_lines, totals] if totals else problem_lines
    memory.show({"files": outcomes | problems}, lines, failed=bool(problems))
