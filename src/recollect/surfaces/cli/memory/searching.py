"""`recollect memory search QUERY`: passages that share words with the query, best first.

The store finds candidates, `search.bm25` scores them; a score is the share of what no passage
could exceed, so 0.8 means the same in every memory. Never shows a passage without its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from recollect.errors import RecollectError
from recollect.search.bm25 import score_ceiling, score_document
from recollect.search.tokenize import tokenize
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.memory.said import as_json as segment_as_json
from recollect.surfaces.cli.memory.said import heading
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    print_json,
    store_options,
    with_store,
)
from recollect.values.lookup import Candidate, CandidateQuery

if TYPE_CHECKING:
    from rich.text import Text

    from recollect.ports import Store
    from recollect.values.segment import SegmentId, StoredSegment

_CANDIDATES_A_HIT = 5
_LEAST_CANDIDATES = 50
_SNIPPET_CHARS = 240
_BEFORE_MATCH_CHARS = 60
# Words as people see them; a character of an unspaced script is one by itself.
_SHOWN_WORDS = re.compile(
    r"[^\W\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\ua000-\uffef]+|\w"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A segment that answers, by its best passage."""

    stored: StoredSegment
    score: float
    start: int
    end: int
    words: frozenset[str] = field(repr=False)


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
@store_options
def search(
    *,
    query: tuple[str, ...],
    limit: int,
    session: str | None,
    cold: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Find what was said, by its words."""
    asked = " ".join(query)
    words = tuple(dict.fromkeys(tokenize(asked)))
    if not words:
        raise RecollectError(
            f"{plain_line(asked)!r} holds no words that are searched for; "
            "use other words than the most common ones"
        )

    async def work(store: Store, place: Place) -> list[Hit]:
        del place
        wanted = CandidateQuery(
            words=words,
            lexical_limit=max(_LEAST_CANDIDATES, limit * _CANDIDATES_A_HIT),
            vector_limit=0,
            session=session,
            cold=cold,
        )
        return await find(store, wanted, limit=limit)

    hits = with_store(url, space, work)
    if as_json:
        print_json({"query": asked, "hits": [_as_json(hit) for hit in hits]})
    elif not hits:
        where = "" if cold else "; --cold also looks into what left the index"
        click.echo(f"Nothing shares a word with that query{where}.")
    else:
        _draw(hits)


async def find(store: Store, query: CandidateQuery, *, limit: int) -> list[Hit]:
    """The best segments for a query, each by its best passage."""
    found = await store.candidates(query)
    ceiling = score_ceiling(
        document_frequencies=found.document_frequencies,
        documents=found.documents,
        query=query.words,
    )
    best: dict[SegmentId, tuple[float, Candidate]] = {}
    for candidate in found.passages:
        score = score_document(
            term_counts=candidate.counts,
            length=candidate.length,
            average_length=found.average_length,
            document_frequencies=found.document_frequencies,
            documents=found.documents,
            query=query.words,
        )
        known = best.get(candidate.segment)
        if score > 0 and (known is None or (-score, candidate.ordinal) < _order(known)):
            best[candidate.segment] = (score, candidate)
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[: max(limit, 0)]
    stored = {one.segment.id: one for one in await store.segments([id_ for id_, _ in ranked])}
    return [
        Hit(
            stored=stored[id_],
            score=score / ceiling,
            start=candidate.start,
            end=candidate.end,
            words=frozenset(query.words),
        )
        for id_, (score, candidate) in ranked
        if id_ in stored
    ]


def _order(known: tuple[float, Candidate]) -> tuple[float, int]:
    return -known[0], known[1].ordinal


def _as_json(hit: Hit) -> dict[str, Any]:
    text = hit.stored.segment.text[hit.start : hit.end]
    told = segment_as_json(hit.stored)
    told.pop("text")
    return {"score": round(hit.score, 4), "passage": text, "start": hit.start, **told}


def _draw(hits: list[Hit]) -> None:
    out = console()
    for number, hit in enumerate(hits, 1):
        out.print(heading(hit.stored, score=hit.score, number=number), soft_wrap=True)
        out.print(_snippet(hit), soft_wrap=True)


def _snippet(hit: Hit) -> Text:
    """The passage around its first match, matches marked."""
    from rich.text import Text as RichText

    line = plain_line(hit.stored.segment.text[hit.start : hit.end])
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
