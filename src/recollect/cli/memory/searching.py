"""`recollect memory search QUERY`: what memory holds on it, best first, explained.

It ranks as the tool `memory_search` does: by words and, if an embedder is available, by meaning;
the user's own earlier questions are left out. Facts have a section of their own. Never shows a
passage without its source. `--explain` reports what each score is made of, and whether a turn that
asks this would have recalled anything if its view showed nothing of it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.facts.listing import fact_as_json, fact_line, shown_id, statement
from recollect.cli.memory.looking import heading, segment_as_json
from recollect.cli.store_options import (
    Place,
    console,
    print_json,
    store_options,
    with_store,
)
from recollect.core.search.tokenize import tokenize
from recollect.core.values.reason import Cause, Reason
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from rich.text import Text

    from recollect.core.ports import Store
    from recollect.core.search.facts import RankedFact
    from recollect.core.values.recall import AskedVector, Hit, Recalled, RecallRequest, ScorePart
    from recollect.core.values.segment import SegmentId, StoredSegment

_HITS_A_MESSAGE = 4
_SNIPPET_CHARS = 240
_BEFORE_MATCH_CHARS = 60
_BAR_CHARS = 24
_BUDGET_TOKENS_A_HIT = 120
_EMBED_SECONDS = 30.0
_EMPTY_VIEW = (
    "That is told for an empty view: where a conversation still shows some of it, less is "
    "recalled, or nothing."
)
# Words as people see them; a character of an unspaced script is one by itself.
_SHOWN_WORDS = re.compile(
    r"[^\W\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\ua000-\uffef]+|\w"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessage:
    """A message that answers, by its best passage."""

    stored: StoredSegment
    hit: Hit
    words: frozenset[str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """What a search found, and what there is to say about it."""

    found: tuple[FoundMessage, ...]
    facts: tuple[RankedFact, ...]
    recalled: Recalled
    embedders: str
    spool_waiting: int


@click.command("search")
@click.argument("query", nargs=-1, required=True, metavar="QUERY…")
@click.option(
    "--limit",
    default=10,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    help="How many at most.",
)
@click.option("--session", metavar="NAME", help="Only in this session.")
@click.option("--cold", is_flag=True, help="Also in what left the index; slower.")
@click.option(
    "--explain",
    is_flag=True,
    help="What each score is made of, and whether a turn with an empty view would recall.",
)
@store_options
def search(
    *,
    query: tuple[str, ...],
    limit: int,
    session: str | None,
    cold: bool,
    explain: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Find what was said, by its words and its meaning."""
    asked = " ".join(query)
    if not tokenize(asked):
        raise RecollectError(
            f"{plain_line(asked)!r} holds no words that are searched for; "
            "use other words than the most common ones"
        )

    async def work(store: Store, place: Place) -> SearchAnswer:
        name = None if session is None else await stored_session(store, session)
        return await _search(store, place, asked, limit=limit, session=name, cold=cold)

    answer = with_store(url, space, work, spool="told")
    if as_json:
        print_json(_answer_json(asked, answer, explain=explain))
        return
    for note in answer.recalled.notes:
        click.echo(note, err=True)
    if not answer.found and not answer.facts:
        where = "" if cold else "; --cold also looks into what left the index"
        click.echo(f"Nothing answers to that query{where}.")
    else:
        _draw(answer, explain=explain)


async def _search(
    store: Store, place: Place, asked: str, *, limit: int, session: str | None, cold: bool
) -> SearchAnswer:
    from recollect.core.turn.recall import recall
    from recollect.core.values.recall import RecallRequest

    request = RecallRequest(
        space=place.space,
        session=session or "",
        query=asked,
        newest=asked,
        scope="space" if session is None else "session",
        now=time.time(),
        budget_tokens=limit * _BUDGET_TOKENS_A_HIT,
        count_tokens=lambda text: len(text) // 4 + 1,
        asks="past",
        on_purpose=True,
        cold=cold,
        most_hits=limit * _HITS_A_MESSAGE,
    )
    vectors, notes, embedders = await _vectors(store, place, request)
    settings = place.settings.recall
    if settings.method == "openclaw":
        turn = recalled = await _by_openclaw(store, place, request, vectors)
    else:
        # as a turn would ask it, with nothing in view: whether it would have been given anything
        turn = await recall(
            replace(request, asks=None, on_purpose=False),
            archive=store,
            vectors=vectors,
            settings=settings,
        )
        recalled = await recall(request, archive=store, vectors=vectors, settings=settings)
    best: dict[SegmentId, Hit] = {}
    for hit in recalled.hits:
        best.setdefault(hit.passage.segment, hit)
    chosen = dict(list(best.items())[:limit])
    stored = {segment.segment.id: segment for segment in await store.segments(list(chosen))}
    words = frozenset(tokenize(asked))
    hits = tuple(
        FoundMessage(stored=stored[id_], hit=_with_text(hit, stored[id_]), words=words)
        for id_, hit in chosen.items()
        if id_ in stored
    )
    facts = await _facts(store, request, vectors)
    gate = turn.gate or recalled.gate
    return SearchAnswer(
        found=hits,
        facts=facts,
        recalled=replace(recalled, notes=notes, gate=gate),
        embedders=embedders,
        spool_waiting=place.spool_waiting,
    )


def _with_text(hit: Hit, stored: StoredSegment) -> Hit:
    return replace(hit, text=stored.segment.text[hit.passage.start : hit.passage.end])


async def _by_openclaw(
    store: Store, place: Place, request: RecallRequest, vectors: tuple[AskedVector, ...]
) -> Recalled:
    """As a turn asks under `recall.method = "openclaw"`, of all messages there are."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.engine.recaller import WARM_PAGE, warm
    from recollect.core.search.openclaw import WarmIndex
    from recollect.core.turn.recall_openclaw import recall_openclaw

    settings = place.settings
    index = WarmIndex(
        max_segments=settings.index.max_segments, eviction_days=settings.index.eviction_days
    )
    session = request.session if request.scope == "session" else None
    embedders = choose_embedders(settings).used
    while page := await store.page(after=index.reached, limit=WARM_PAGE, session=session):
        await warm(index, page, embedders)
    return await recall_openclaw(
        request, archive=store, index=index, vectors=vectors, settings=settings.recall
    )


async def _facts(
    store: Store, request: RecallRequest, vectors: tuple[AskedVector, ...]
) -> tuple[RankedFact, ...]:
    """The facts that bear on it, as a turn ranks them, though a message says the same."""
    from recollect.core.search.facts import rank_facts
    from recollect.core.values.recall import FactQuery

    words = tuple(dict.fromkeys(tokenize(request.query)))
    session = request.session if request.scope == "session" else None
    candidates = await store.fact_candidates(
        FactQuery(words=words, vectors=vectors, session=session)
    )
    return tuple(ranked for ranked in rank_facts(words, candidates, vectors) if ranked.score > 0)


async def _vectors(
    store: Store, place: Place, request: RecallRequest
) -> tuple[tuple[AskedVector, ...], tuple[Reason, ...], str]:
    """The question's vectors, by the embedders of the settings; a failing one is told."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.engine.recaller import QuestionVectors

    embedders = choose_embedders(place.settings)
    asking = QuestionVectors(
        embedders.used, seconds=_EMBED_SECONDS, pii=place.settings.redaction.pii
    )
    await asking.load()
    vectors, notes = await asking.of(request, store)
    waiting = [
        embedder.kind
        for embedder in embedders.used
        if await store.unembedded(embedder.name, limit=1)
    ]
    if waiting:
        notes = (*notes, Reason(Cause.NOT_EMBEDDED, kinds=" and no ".join(waiting)))
    return vectors, notes, embedders.said


def _answer_json(asked: str, answer: SearchAnswer, *, explain: bool) -> dict[str, Any]:
    gate = answer.recalled.gate
    return {
        "query": asked,
        "embedders": answer.embedders,
        "notes": [str(note) for note in answer.recalled.notes],
        "spool_waiting": answer.spool_waiting,
        "certainty": None if gate is None or gate.score is None else round(gate.score, 4),
        "needed": None if gate is None else gate.threshold,
        "a_turn_would_recall": gate is not None and gate.open,
        "reason": "" if gate is None else str(gate.reason),
        "assumed_view": "empty",
        "facts": [
            {"score": round(ranked.score, 4), **fact_as_json(ranked.fact)}
            for ranked in answer.facts
        ],
        "hits": [_as_json(hit, explain=explain) for hit in answer.found],
    }


def _as_json(hit: FoundMessage, *, explain: bool) -> dict[str, Any]:
    passage = hit.hit.passage
    record = segment_as_json(hit.stored)
    record.pop("text")
    shown = {"score": round(hit.hit.score, 4), "passage": hit.hit.text, "start": passage.start}
    if explain:
        shown["parts"] = [
            {"name": part.name, "points": round(part.points, 4), "why": part.why}
            for part in hit.hit.parts
        ]
    return {**shown, **record}


def _draw(answer: SearchAnswer, *, explain: bool) -> None:
    from rich.text import Text as RichText

    out = console()
    if answer.facts:
        out.print("facts", style="bold")
    for ranked in answer.facts:
        line = RichText(f"     {ranked.score:.2f}  ", style="bold")
        line.append_text(fact_line(ranked.fact)).append(
            f"  {shown_id(ranked.fact.id)}", style="dim"
        )
        out.print(line, soft_wrap=True)
        out.print(f"     {statement(ranked.fact)}", soft_wrap=True)
    if answer.facts and answer.found:
        out.print("\nmessages", style="bold")
    for number, hit in enumerate(answer.found, 1):
        out.print(heading(hit.stored, score=hit.hit.score, number=number), soft_wrap=True)
        out.print(_snippet(hit), soft_wrap=True)
        if explain:
            for part in hit.hit.parts:
                out.print(_part_line(part, hit.hit.score), soft_wrap=True)
    if explain:
        out.print(_verdict(answer), soft_wrap=True)


def _part_line(part: ScorePart, score: float) -> Text:
    """A bar as long as the part's share of the score, its points, and why."""
    from rich.text import Text as RichText

    length = round(_BAR_CHARS * min(1.0, abs(part.points) / score)) if score > 0 else 0
    line = RichText(f"     {part.points:+.3f}  ")
    line.append("█" * length, style="cyan" if part.points > 0 else "red")
    line.append(" " * (_BAR_CHARS - length))
    line.append(f"  {part.name:<10}  ", style="bold")
    line.append(part.why, style="dim")
    return line


def _verdict(answer: SearchAnswer) -> str:
    """Whether a turn that asks this would have been given anything, and why."""
    gate = answer.recalled.gate
    if gate is None:
        return ""
    would = "would recall" if gate.open else "would stay silent"
    asked = f"A turn that asks this, and shows nothing of it, {would}: {gate.reason}."
    return f"{asked} {_EMPTY_VIEW} Vectors: {answer.embedders or 'none'}."


def _snippet(hit: FoundMessage) -> Text:
    """The passage around its first match, matches marked."""
    from rich.text import Text as RichText

    line = plain_line(hit.hit.text)
    spans = [match.span() for match in _SHOWN_WORDS.finditer(line) if _matches(match[0], hit.words)]
    start = 0
    if len(line) > _SNIPPET_CHARS and spans:
        start = max(0, min(spans[0][0] - _BEFORE_MATCH_CHARS, len(line) - _SNIPPET_CHARS))
    end = start + _SNIPPET_CHARS
    shown = RichText("     ")
    shown.append("…" if start else "")
    body = RichText(line[start:end])
    for first, last in spans:
        if start <= first and last <= end:
            body.stylize("bold reverse", first - start, last - start)
    return shown + body + RichText("…" if end < len(line) else "")


def _matches(word: str, words: frozenset[str]) -> bool:
    return not words.isdisjoint(tokenize(word))
