"""`recollect facts list|history`: what is known, what was known at a time, and who changed it.

Owns how the commands show a fact (its shortest unique id, who said it, since when, how it was
made; text that cannot move the cursor), and the count of sessions that wait to be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from recollect.cli.store_options import (
    Place,
    console,
    instant,
    moment_from,
    print_json,
    store_options,
    when,
    with_store,
)
from recollect.core.values.batch import EXTRACT_JOB, extract_key
from recollect.core.values.fact import FactType, MadeBy, type_named
from recollect.core.values.segment import SPEAKERS, Trust
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.text import Text

    from recollect.core.engine.facts.book import FactBook
    from recollect.core.engine.facts.extraction import ReadingNote
    from recollect.core.facts.results import FactFilter, FactHistory, FactVersion
    from recollect.core.ports import Store
    from recollect.core.values.fact import Fact, FactId


# How many facts were found


@dataclass(slots=True)
class FactCounts:
    """A sum of what readings for facts came to."""

    facts: int = 0
    messages: int = 0
    notes: list[str] = field(default_factory=list)
    """Why a model was not asked, or did not answer; each once."""

    def add(self, note: ReadingNote) -> None:
        """Count one reading."""
        self.facts += note.facts
        self.messages += note.messages
        if note.trouble and note.trouble not in self.notes:
            self.notes.append(note.trouble)

    def __str__(self) -> str:
        """For people."""
        return "1 fact found" if self.facts == 1 else f"{self.facts:,} facts found"


# A fact as the commands show it


T = TypeVar("T")

LEAST_ID_CHARS = 8
NOTHING_KEPT = "nothing is kept in this space yet"
PINNED = "*"
SPEAKER_STYLES: dict[Trust, str] = {
    "high": "green",
    "medium": "cyan",
    "low": "yellow",
    "outside": "red",
}
MAKERS: dict[MadeBy, str] = {
    "rules": "rules",
    "model": "model",
    "user": "by hand",
    "import": "imported",
}


def book_of(store: Store, place: Place) -> FactBook:
    """The facts of a store, for people."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.engine.facts.book import FactBook as Book

    names = [embedder.name for embedder in choose_embedders(place.settings).used]
    return Book(store, place.settings, SystemClock(), embedders=names)


def is_unused(url: str | None, space: str) -> bool:
    """Whether nothing was ever kept in a space; a store that is named must be there."""
    from recollect.adapters.wiring.stores import POSTGRES_SCHEMES, sqlite_path
    from recollect.cli.store_options import place_of

    kept_at = place_of(url, space).url
    if url is not None or (kept_at is not None and kept_at.startswith(POSTGRES_SCHEMES)):
        return False
    return not sqlite_path(kept_at, space).exists()


def with_facts(url: str | None, space: str, work: Callable[[Store, Place], Awaitable[T]]) -> T:
    """Run one piece of work on a space that holds something."""
    if is_unused(url, space):
        raise RecollectError(
            f"{NOTHING_KEPT}; `recollect facts add` writes a fact, `recollect import` reads "
            "recorded sessions"
        )
    return with_store(url, space, work)


def shown_id(id: str) -> str:  # noqa: A002
    """An id on one line; one of a file may be any text."""
    return plain_line(id) or "(no id)"


def short_ids(facts: Iterable[Fact]) -> dict[FactId, str]:
    """The shortest beginnings of ids that tell these facts apart."""
    ordered = sorted(fact.id for fact in facts)
    shown: dict[FactId, str] = {}
    for at, id_ in enumerate(ordered):
        beside = (*ordered[max(at - 1, 0) : at], *ordered[at + 1 : at + 2])
        shared = max((_shared(id_, other) for other in beside), default=0)
        shown[id_] = id_[: max(LEAST_ID_CHARS, shared + 1)]
    return shown


def _shared(text: str, other: str) -> int:
    """How many signs two ids begin with together."""
    pairs = zip(text, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def speaker(fact: Fact) -> str:
    """Whose word it is, and the word that `--trust` and programs know it by."""
    return f"{SPEAKERS[fact.trust]} ({fact.trust})"


def speaker_text(trust: Trust) -> Text:
    """Whose word something is, in a line."""
    from rich.text import Text as RichText

    lead = "  " if trust == "outside" else "  said by "
    return RichText.assemble((lead, "dim"), (f"{SPEAKERS[trust]} ({trust})", SPEAKER_STYLES[trust]))


def is_past(fact: Fact) -> bool:
    """Whether something has replaced it."""
    return not fact.current


def statement(fact: Fact) -> str:
    """Its words on one line, with its subject where they leave that open."""
    return plain_line(fact.told) or "(no words)"


def fact_line(fact: Fact) -> Text:
    """One line about a fact, without its words: type, who, how, since and until when."""
    from rich.text import Text as RichText

    line = RichText.assemble((fact.type.replace("_", " "), "bold"))
    line.append_text(speaker_text(fact.trust))
    line.append(f"  {when(fact.at)}")
    if fact.valid_to is not None:
        line.append(f" until {when(fact.valid_to)}")
    elif is_past(fact):
        line.append(", replaced since")
    line.append(f"  {made(fact)}", style="dim")
    if fact.pinned:
        line.append("  pinned", style="bold magenta")
    return line


def made(fact: Fact) -> str:
    """How it became a fact."""
    return {
        "rules": "found by rules of an earlier version",
        "model": "found by a model",
        "user": "written by hand",
        "import": "imported",
    }[fact.made_by]


def fact_as_json(fact: Fact) -> dict[str, Any]:
    """Everything that is kept of it, but for what only searching needs."""
    return {
        "id": fact.id,
        "type": fact.type,
        "content": fact.content,
        "context": fact.context,
        "subject": fact.subject,
        "attribute": fact.attribute,
        "trust": fact.trust,
        "made_by": fact.made_by,
        "since": instant(fact.at),
        "until": instant(fact.valid_to),
        "recorded_at": instant(fact.recorded_at),
        "change": fact.change,
        "superseded_by": fact.superseded_by,
        "session": fact.session,
        "pinned": fact.pinned,
        "sources": list(fact.sources),
        "evidence": [
            {"segment": span.segment, "start": span.start, "end": span.end}
            for span in fact.evidence
        ],
    }


# `recollect facts history ID`: what it said before, from when to when, and who changed it.


_HOW = {"update": "told in other words", "supersede": "replaced the one before", None: ""}
_CORRECTED = "corrected"


@click.command("history")
@click.argument("id_", metavar="ID")
@store_options
def history(*, id_: str, url: str | None, space: str, as_json: bool) -> None:
    """Show every version of a fact, oldest first; any version's id will do."""

    async def work(store: Store, place: Place) -> FactHistory:
        return await book_of(store, place).history(id_)

    fact_history = with_facts(url, space, work)
    if as_json:
        versions = [_version_as_json(version) for version in fact_history.versions]
        print_json({"asked": fact_history.asked.id, "versions": versions})
        return
    out = console()
    for version in fact_history.versions:
        if version.fact is None:
            out.print("┊ a version that was forgotten", style="dim", soft_wrap=True)
            continue
        asked = version.fact.id == fact_history.asked.id
        out.print(_heading(version.fact, version.until, asked=asked), soft_wrap=True)
        out.print(f"│    {statement(version.fact)}", soft_wrap=True)


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
    line.append_text(speaker_text(fact.trust))
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


# How many sessions wait to be read


_MOST_JOBS = 100_000


async def sessions_waiting(store: Store) -> int:
    """How many sessions have a job that reads them, and messages that were not read.

    A job alone says nothing: one that waits until a session is idle stays in the queue when the
    session was read meanwhile, and finds nothing to do.
    """
    jobs = await store.jobs(limit=_MOST_JOBS)
    waiting = {job.key for job in jobs if job.kind == EXTRACT_JOB and job.state != "dead"}
    if not waiting:
        return 0
    names = [session.session for session in await store.sessions()]
    queued = [
        name
        for name in names
        if waiting.intersection(extract_key(name, left=left) for left in (True, False))
    ]
    return sum([await _is_unread(store, name) for name in queued])


async def _is_unread(store: Store, session: str) -> bool:
    read_to = await store.extracted_to(session)
    return bool(await store.page(after=read_to, limit=1, session=session))


def said_waiting(count: int, *, of_many: bool = False) -> str:
    """What to do about it, also where they are `of_many` memories; empty where nothing waits."""
    if not count:
        return ""
    who = "1 session waits" if count == 1 else f"{count:,} sessions wait"
    told = f"{who} to be read: `recollect worker --once`"
    return told if of_many else f"{told}, or at once `recollect facts read`"


TYPES: tuple[FactType, ...] = get_args(FactType)
_SCREEN_FACTS = 50
_LEAST_STATEMENT_CELLS = 24
_DATE_CHARS = 10
_NONE_LIKE_THAT = "No fact is like that; leave a condition out, or add --all for what was replaced."
_NONE_YET = (
    "This space has no facts yet. Write one with `recollect facts add`. With models.extraction "
    "set, a model also reads sessions for facts."
)


class TypeChoice(click.Choice[str]):
    """A type of facts, as a list shows it ("task state") or as it is stored ("task_state")."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The type that is meant."""
        return super().convert(type_named(value), param, ctx)


class _TrustChoice(click.Choice[str]):
    """A trust; the names it was asked for by before are still understood."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from recollect.core.facts.results import TRUSTS

        return super().convert(TRUSTS.get(value, value), param, ctx)


@click.command("list")
@click.option("--type", "types", multiple=True, type=TypeChoice(TYPES), help="Only this type.")
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
    from recollect.core.facts.results import FactFilter

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
        facts = await book.list(await _with_id_of_key(asked, store, place.space))
        waiting = 0 if facts else await sessions_waiting(store)
        return Listed(found=facts, every=every, waiting=waiting)

    listed = None if is_unused(url, space) else with_store(url, space, work)
    if as_json:
        _print_json(asked, _newest(() if listed is None else listed.found, limit))
    elif listed is None:
        click.echo(f"{NOTHING_KEPT}; `recollect facts add` writes a fact")
    else:
        _print_listed(listed, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What was asked for, all that ids can mean, and what was not read yet."""

    found: tuple[Fact, ...]
    every: tuple[Fact, ...]
    waiting: int


def _print_listed(listed: Listed, limit: int | None) -> None:
    if listed.found:
        if limit is None and console().is_terminal:
            limit = _SCREEN_FACTS
        shown = _newest(listed.found, limit)
        _draw(shown, short_ids(listed.every))
        if left := len(listed.found) - len(shown):
            text = f"… and {left:,} older ones: --limit {len(listed.found)} shows all"
            click.echo(text, err=not console().is_terminal)
        return
    if listed.every:
        click.echo(_NONE_LIKE_THAT)
    elif not listed.waiting:
        click.echo(_NONE_YET)
    if listed.waiting:
        click.echo(said_waiting(listed.waiting))


def _newest(facts: Sequence[Fact], limit: int | None) -> Sequence[Fact]:
    """What is pinned, and the newest of the others, in the order they came."""
    if limit is None or len(facts) <= limit:
        return facts
    pinned = [fact for fact in facts if fact.pinned]
    others = [fact for fact in facts if not fact.pinned]
    room = max(limit - len(pinned), 0)
    return [*pinned[:limit], *others[len(others) - room :]]


async def _with_id_of_key(asked: FactFilter, store: Store, space: str) -> FactFilter:
    """People name a conversation of the agent by its key or a beginning of its id, facts by its
    transcript's id."""
    from dataclasses import replace

    from recollect.adapters.session.forget_files import sessions_named

    if asked.session is None:
        return asked
    named = sessions_named(space, [asked.session])[-1]
    return replace(asked, session=await stored_session(store, named))


def _print_json(asked: FactFilter, facts: Sequence[Fact]) -> None:
    from recollect.cli.store_options import instant

    print_json({"as_of": instant(asked.as_of), "facts": [fact_as_json(fact) for fact in facts]})


def _draw(facts: Sequence[Fact], ids: Mapping[FactId, str]) -> None:
    from rich.text import Text as RichText

    out = console()
    ids = {id_: shown_id(short) for id_, short in ids.items()}
    width = max(LEAST_ID_CHARS, *(len(ids[fact.id]) for fact in facts))
    kinds = max(len("type"), *(len(fact.type) for fact in facts))
    said = max(len("said by"), *(len(speaker(fact)) for fact in facts))
    how = max(len("made"), *(len(MAKERS[fact.made_by]) for fact in facts))
    header = (
        f"  {'id':{width}}  {'since':{_DATE_CHARS}}  {'type':{kinds}}  {'said by':{said}}  "
        f"{'made':{how}}  statement"
    )
    out.print(RichText(header, style="dim"), soft_wrap=True)
    for fact in facts:
        line = RichText.assemble((PINNED if fact.pinned else " ", "bold magenta"))
        line.append(f" {ids[fact.id]:{width}}  ", style="bold")
        line.append(f"{when(fact.at)[:_DATE_CHARS]:{_DATE_CHARS}}  ", style="dim")
        line.append(f"{fact.type.replace('_', ' '):{kinds}}  ")
        line.append(f"{speaker(fact):{said}}  ", style=SPEAKER_STYLES[fact.trust])
        line.append(f"{MAKERS[fact.made_by]:{how}}  ", style="dim")
        _print_row(out, line, _with_end(fact))


def _with_end(fact: Fact) -> str:
    if not is_past(fact):
        return statement(fact)
    if fact.valid_to is None:
        return f"{statement(fact)}  (replaced)"
    return f"{statement(fact)}  (until {when(fact.valid_to)[:_DATE_CHARS]})"


def _print_row(out: Console, line: Text, text: str) -> None:
    """The statement last: wrapped beside the others on a screen, whole in a pipe."""
    from rich.text import Text as RichText

    room = out.width - line.cell_len
    if not out.is_terminal or room < _LEAST_STATEMENT_CELLS:
        line.append(text)
        out.print(line, soft_wrap=True)
        return
    first, *more = (other.plain.rstrip() for other in RichText(text).wrap(out, room))
    out.print(RichText.assemble(line, first), soft_wrap=True)
    for one in more:
        out.print(" " * line.cell_len + one, soft_wrap=True)
