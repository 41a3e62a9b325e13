"""`recollect facts why ID`: the messages a fact rests on, the words in them, and their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.facts.shown import as_json as fact_as_json
from recollect.surfaces.cli.facts.shown import (
    book_of,
    said_by,
    shown_id,
    statement,
    told,
    with_facts,
)
from recollect.surfaces.cli.memory.said import heading
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    instant,
    print_json,
    store_options,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from recollect.facts.results import FactSource, FactWhy
    from recollect.ports import Store
    from recollect.surfaces.cli.facts.transcript_lines import TranscriptLine

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
        from recollect.surfaces.cli.facts.transcript_lines import find_line

        found = await book_of(store, place).why(id_)
        shown = [
            Shown(
                source=one,
                line=None if one.stored is None else find_line(place.space, one.stored.segment),
            )
            for one in found.sources
        ]
        return found, shown

    found, shown = with_facts(url, space, work)
    if as_json:
        print_json(_as_json(found, shown))
    else:
        _draw(found, shown)


def _as_json(found: FactWhy, shown: list[Shown]) -> dict[str, Any]:
    return {
        "fact": fact_as_json(found.fact),
        "rests_on": None if found.rests_on is None else fact_as_json(found.rests_on),
        "sources": [_source_as_json(one) for one in shown],
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
            {"start": one.start, "end": one.end, "text": segment.text[one.start : one.end]}
            for one in source.spans
        ],
        "lost_spans": source.lost_spans,
    }


def _draw(found: FactWhy, shown: list[Shown]) -> None:
    out = console()
    out.print(statement(found.fact), style="bold", soft_wrap=True)
    out.print(told(found.fact), soft_wrap=True)
    out.print(_how_it_came(found), style="dim", soft_wrap=True)
    for one in shown:
        out.print()
        _draw_source(out, one)


def _how_it_came(found: FactWhy) -> str:
    fact = found.fact
    if found.rests_on is not None:
        return (
            f"You wrote it in these words; it replaced {shown_id(found.rests_on.id)}, which "
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
    line.append_text(said_by(segment.trust))
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
