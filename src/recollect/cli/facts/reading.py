"""`recollect facts read|why|pin`: read what waits, and look at what a fact rests on.

`read` does the same work as the worker's, with the model of `models.extraction` and within the same
budget; what could not be read stays waiting and is reported. `why` names file and line of
each message: an imported one knows them, one of our agent is looked for in its session's
transcript, and no other file is opened.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.facts.listing import (
    FactCounts,
    book_of,
    fact_as_json,
    fact_line,
    said_waiting,
    sessions_waiting,
    shown_id,
    speaker_text,
    statement,
    with_facts,
)
from recollect.cli.memory.looking import heading
from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import (
    Place,
    console,
    instant,
    print_json,
    store_options,
)
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from recollect.core.engine.facts.extraction import Notify, ReadingNote
    from recollect.core.facts.results import FactPinned, FactSource, FactWhy
    from recollect.core.formats.pi_session import PiEntry
    from recollect.core.ports import Model, Store
    from recollect.core.upkeep.jobs import JobRunner, RunResult
    from recollect.core.values.segment import Segment


# Where a message stands: file and line


_MS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptLine:
    """A place in a file, or why there is none."""

    place: str | None = None
    """`FILE:LINE`."""
    reason: str = ""

    def __str__(self) -> str:
        """The place, or the reason in brackets."""
        return self.place if self.place is not None else f"({self.reason})"


def find_line(space: str, segment: Segment) -> TranscriptLine:
    """Where a message stands."""
    if segment.origin is not None:
        return TranscriptLine(place=segment.origin)
    if segment.source == "note":
        return TranscriptLine(reason="a note, written by hand into the memory")
    from recollect.adapters.session.files import transcript_file

    path = transcript_file(space, segment.session)
    if not path.is_file():
        return TranscriptLine(reason="no transcript here: it came through a request")
    return _in_transcript(path, segment)


def _in_transcript(path: Path, segment: Segment) -> TranscriptLine:
    from recollect.core.formats.pi_session import read_session

    try:
        data = path.read_bytes()
    except OSError as error:
        return TranscriptLine(reason=f"{path.name} cannot be read: {error.strerror}")
    entries = [entry for entry in read_session(data).entries if _says(entry, segment.text)]
    if not entries:
        return TranscriptLine(reason=f"not in {path.name}: it was changed or forgotten there")
    # The same words may stand there twice; the one said nearest to then is meant.
    nearest = min(entries, key=lambda pi_entry: abs(pi_entry.milliseconds / _MS - segment.said_at))
    return TranscriptLine(place=f"{path}:{nearest.number}")


def _says(entry: PiEntry, text: str) -> bool:
    from recollect.adapters.session.forget_entries import comparable, text_of
    from recollect.core.rules.text import without_thinking

    said = text_of(entry)
    if not said:
        return False
    wanted = {comparable(text), comparable(without_thinking(text))} - {""}
    forms = {comparable(said), comparable(without_thinking(said))}
    return not wanted.isdisjoint(forms)


# `recollect facts why ID`: the messages a fact rests on, the words in them, and their places.


_MOST_AROUND_CHARS = 200
_SENTENCE_ENDS = frozenset(".!?。！？\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A source with the place where it stands."""

    source: FactSource
    line: TranscriptLine | None


@click.command("why")
@click.argument("id_", metavar="ID")
@store_options
def why(*, id_: str, url: str | None, space: str, as_json: bool) -> None:
    """Tell who said a fact: the messages, the words in them, and where they stand."""

    async def work(store: Store, place: Place) -> tuple[FactWhy, list[Shown]]:

        fact_why = await book_of(store, place).why(id_)
        shown = [
            Shown(
                source=source,
                line=None
                if source.stored is None
                else find_line(place.space, source.stored.segment),
            )
            for source in fact_why.sources
        ]
        return fact_why, shown

    fact_why, shown = with_facts(url, space, work)
    if as_json:
        print_json(_as_json(fact_why, shown))
    else:
        _draw(fact_why, shown)


def _as_json(fact_why: FactWhy, shown: list[Shown]) -> dict[str, Any]:
    return {
        "fact": fact_as_json(fact_why.fact),
        "rests_on": None if fact_why.rests_on is None else fact_as_json(fact_why.rests_on),
        "sources": [_source_as_json(other) for other in shown],
    }


def _source_as_json(shown: Shown) -> dict[str, Any]:
    source = shown.source
    if source.stored is None or shown.line is None:
        return {"segment": source.id, "there": False}
    segment = source.stored.segment
    return {
        "segment": source.id,
        "there": True,
        "session": segment.session,
        "role": segment.role,
        "tool": segment.tool,
        "said_at": instant(segment.said_at),
        "trust": segment.trust,
        "place": shown.line.place,
        "no_place": shown.line.reason,
        "spans": [
            {"start": span.start, "end": span.end, "text": segment.text[span.start : span.end]}
            for span in source.spans
        ],
        "lost_spans": source.lost_spans,
    }


def _draw(fact_why: FactWhy, shown: list[Shown]) -> None:
    out = console()
    out.print(statement(fact_why.fact), style="bold", soft_wrap=True)
    out.print(fact_line(fact_why.fact), soft_wrap=True)
    out.print(_how_it_came(fact_why), style="dim", soft_wrap=True)
    for one in shown:
        out.print()
        _draw_source(out, one)


def _how_it_came(fact_why: FactWhy) -> str:
    fact = fact_why.fact
    if fact_why.rests_on is not None:
        return (
            f"You wrote it in these words; it replaced {shown_id(fact_why.rests_on.id)}, which "
            "rests on what follows."
        )
    if not fact.sources:
        return {
            "user": "You wrote it; it rests on no message.",
            "import": "It was imported as a fact; which messages it came from is not known.",
        }.get(fact.made_by, "The messages it was found in are not known.")
    if fact.joint and len(fact.sources) > 1:
        return f"It takes all of these {len(fact.sources)} messages to say it:"
    if len(fact.sources) > 1:
        return f"Each of these {len(fact.sources)} messages says it:"
    return "This message says it:"


def _draw_source(out: Console, shown: Shown) -> None:
    from rich.text import Text as RichText

    source = shown.source
    if source.stored is None:
        out.print(
            f"{shown_id(source.id)}  is not in the archive any more", style="dim", soft_wrap=True
        )
        return
    segment = source.stored.segment
    line = heading(source.stored)
    line.append_text(speaker_text(segment.trust))
    out.print(line, soft_wrap=True)
    for span in source.spans:
        out.print(_sentence(segment.text, span.start, span.end), soft_wrap=True)
    if source.lost_spans:
        out.print("     the words are masked by now: it was redacted since", style="dim")
    elif not source.spans:
        out.print(f"     {plain_line(segment.text)[:_MOST_AROUND_CHARS]}", soft_wrap=True)
    out.print(RichText(f"     {plain_line(str(shown.line))}", style="cyan"), soft_wrap=True)


def _sentence(text: str, start: int, end: int) -> Text:
    """The sentence around a span, the span marked, on one line; marked by signs, too."""
    from rich.text import Text as RichText

    first, last = start, end
    while (
        first > 0 and start - first < _MOST_AROUND_CHARS and text[first - 1] not in _SENTENCE_ENDS
    ):
        first -= 1
    while last < len(text) and last - end < _MOST_AROUND_CHARS and text[last] not in _SENTENCE_ENDS:
        last += 1
    last += last < len(text) and text[last] != "\n"
    before, inside, after = (
        plain_line(part) for part in (text[first:start], text[start:end], text[end:last])
    )
    line = RichText("     ")
    cut = first > 0 and text[first - 1] not in _SENTENCE_ENDS
    if before:
        gap = " " if text[start - 1].isspace() else ""
        line.append(f"{'…' if cut else ''}{before}{gap}", style="dim")
    line.append("»", style="dim")
    line.append(inside, style="bold reverse")
    line.append("«", style="dim")
    if after:
        line.append(f"{' ' if text[end].isspace() else ''}{after}", style="dim")
    return line


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What became of it."""

    sessions: int
    found: FactCounts
    result: RunResult
    waiting: int


@click.command("read")
@click.option("--session", metavar="NAME", help="Only this session.")
@store_options
def read(*, session: str | None, url: str | None, space: str, as_json: bool) -> None:
    """Read sessions for facts now, without waiting until they are idle."""
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> Read:
            return await _read(store, place, session, progress)

        done = with_facts(url, space, work)
    _print_read(done, as_json=as_json)
    if done.result.failed or done.result.dead:
        raise SystemExit(1)


async def _read(store: Store, place: Place, session: str | None, progress: ShownProgress) -> Read:
    from recollect.adapters.wiring.models import choose_model
    from recollect.core.values.batch import Batch, extract_job

    names = await _sessions(store, place, session)
    reader = choose_model(place.settings, "extraction")
    if reader is None:
        raise RecollectError(
            "no model reads for facts: set models.provider and models.extraction, or write facts "
            "with `recollect facts add`"
        )
    now = time.time()
    jobs = tuple(extract_job(name, run_at=now, left=True) for name in names)
    await store.write(Batch(at=now, jobs=jobs))
    counts = FactCounts()
    total = sum(session.segments for session in await store.sessions() if session.session in names)

    def count(note: ReadingNote) -> None:
        counts.add(note)
        progress.show("reading messages for facts", counts.messages, total)

    try:
        result = await _runner(store, place, reader, count).run_due()
    finally:
        await reader.close()
    return Read(
        sessions=len(names), found=counts, result=result, waiting=await sessions_waiting(store)
    )


async def _sessions(store: Store, place: Place, session: str | None) -> list[str]:
    from recollect.adapters.session.forget_files import sessions_named

    held = [session_summary.session for session_summary in await store.sessions()]
    if session is None:
        return held
    named = {*sessions_named(place.space, [session]), await stored_session(store, session)}
    found = [text for text in held if text in named]
    if not found:
        raise RecollectError(
            f"no session is called {plain_line(session)!r}; `recollect memory sessions` lists them"
        )
    return found


def _runner(store: Store, place: Place, reader: Model, notify: Notify) -> JobRunner:
    """A worker that does nothing else: embedding is left to `recollect worker`."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.engine.background import metered
    from recollect.core.engine.facts.extraction import Extraction
    from recollect.core.upkeep.jobs import JobRunner as Runner
    from recollect.core.values.batch import EXTRACT_JOB

    settings, clock = place.settings, SystemClock()
    extraction = Extraction(
        store=store,
        settings=settings,
        clock=clock,
        model=metered(reader, store, clock),
        embedders=tuple(embedder.name for embedder in choose_embedders(settings).used),
        at_once=True,
        told=notify,
    )
    return Runner(
        store,
        {EXTRACT_JOB: extraction.extract},
        clock,
        day_tokens=settings.jobs.day_tokens,
    )


def _print_read(done: Read, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "sessions": done.sessions,
                "messages": done.found.messages,
                "facts_found": done.found.facts,
                "notes": done.found.notes,
                "failed": done.result.failed + done.result.dead,
                "waiting": done.waiting,
            }
        )
        return
    if done.found.messages:
        click.echo(f"{done.found} in {done.found.messages:,} messages")
    elif not done.waiting:
        click.echo("nothing to read: all that was said was read before")
    for note in done.found.notes:
        click.echo(f"recollect: {plain_line(note)}", err=True)
    if done.result.failed or done.result.dead:
        click.echo(f"recollect: a job failed: {plain_line(done.result.reason)}", err=True)
    if done.waiting:
        click.echo(
            f"recollect: {said_waiting(done.waiting)}; `recollect memory jobs` says why it waits",
            err=True,
        )


# `recollect facts pin`: what is always offered first, and stays until people say.


@click.command("pin")
@click.argument("id_", metavar="ID")
@click.option("--off", is_flag=True, help="Undo that.")
@store_options
def pin(*, id_: str, off: bool, url: str | None, space: str, as_json: bool) -> None:
    """Offer a fact first from now on; nothing that is extracted replaces it."""

    async def work(store: Store, place: Place) -> FactPinned:
        book = book_of(store, place)
        return await (book.unpin(id_) if off else book.pin(id_))

    said = ("unpinned", "was not pinned") if off else ("pinned", "was pinned already")
    _print_pinned(with_facts(url, space, work), said, as_json=as_json)


def _print_pinned(done: FactPinned, said: tuple[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json({"changed": done.changed, "fact": fact_as_json(done.fact)})
        return
    out = console()
    out.print(f"{said[0] if done.changed else said[1]}: {shown_id(done.fact.id)}", soft_wrap=True)
    out.print(f"     {statement(done.fact)}", soft_wrap=True)
