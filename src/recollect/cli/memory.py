"""`recollect memory stats|sessions|show|search`: show the contents of a memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from recollect.cli.store_options import (
    Memory,
    fact_as_json,
    fact_line,
    format_id,
    heading,
    instant,
    memory_options,
    segment_as_json,
    size_text,
    statement,
    when,
)
from recollect.core.search.tokenize import tokenize
from recollect.core.values.segment import SegmentId
from recollect.errors import RecollectError
from recollect.hosts.inspect.searching import search_memory
from recollect.hosts.inspect.sessions import SessionLine, resolve_session, sessions_of, with_titles
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.core.values.model import ModelUse
    from recollect.core.values.recall import Hit
    from recollect.core.values.segment import Segment, StoredSegment
    from recollect.core.values.upkeep import Stats

ModelUses: TypeAlias = "dict[str, tuple[ModelUse, ...]]"
"""Model calls that belong to no conversation, "today" and in "total"."""
_USE_FIELDS = ("calls", "input_tokens", "output_tokens")
_ID = re.compile(r"[0-9a-f]{32}")
# Not measured: five lines of a terminal with 80 columns, and two messages on either side.
_EXCERPT_CHARS = 400
_NEIGHBOURS = 2
# Not measured: a match takes three lines of a terminal with 80 columns.
_SNIPPET_CHARS = 240
_BEFORE_MATCH_CHARS = 60
_EMPTY_VIEW = "A session that already shows the answer recalls less, or nothing."
# Finds words as people see them. In a script without spaces, each character is a word.
_SHOWN_WORDS = re.compile(
    r"[^\W\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\ua000-\uffef]+|\w"
)


@click.command("stats")
@memory_options
async def memory_stats(*, memory: Memory) -> None:
    """Show how many messages, facts and other items a memory contains."""
    from recollect.core.upkeep.jobs import day_of

    async with memory.open(spool="reported") as store:
        stats = await store.stats()
        waiting_embedders = {
            name for name in stats.vectors if await store.unembedded(name, limit=1)
        }
        today = await store.model_use(since=day_of(time.time()))
        uses = {"today": today, "total": await store.model_use()}
    value = {
        **asdict(stats),
        "vectors_waiting": sorted(waiting_embedders),
        "spool_waiting": memory.spool_waiting,
        "model_use": {
            day: {use.purpose: {name: getattr(use, name) for name in _USE_FIELDS} for use in of_day}
            for day, of_day in uses.items()
        },
    }
    memory.show(value, _stats_lines(stats, waiting_embedders, uses))


def _stats_lines(stats: Stats, waiting: set[str], uses: ModelUses) -> Iterator[str]:
    indexed_count = max(stats.segments - stats.noise, 0)
    kinds = f"{indexed_count:,} indexed, {stats.noise:,} noise"
    rows: list[tuple[str, int | str, str]] = [
        ("messages", stats.segments, f"{stats.tokens:,} tokens; {kinds}"),
        ("sessions", stats.sessions, ""),
        ("passages", stats.passages, "the parts of messages that are searched"),
        ("facts", stats.facts, ""),
        ("turns", stats.turns, f"recorded requests, in {stats.pieces:,} parts"),
        ("compactions", stats.compactions, "with summary and receipt"),
        ("forgotten", stats.tombstones, "messages that are never stored again"),
        ("jobs", stats.jobs_waiting, "waiting"),
    ]
    if stats.jobs_dead:
        rows.append(("", stats.jobs_dead, "failed permanently: `recollect memory jobs` shows why"))
    for embedder, count in sorted(stats.vectors.items()):
        # long tool results have fewer vectors than passages, so a percentage would never reach 100
        state = "incomplete" if embedder in waiting else "complete"
        rows.append(("vectors", count, f"{plain_line(embedder)}, {state}"))
    if stats.bytes_on_disk is not None:
        rows.append(("on disk", size_text(stats.bytes_on_disk), ""))
    for name in ("today", "total") if uses["total"] else ():
        calls = sum(use.calls for use in uses[name])
        rows.append((f"model calls, {name}", calls, _use_line(uses[name])))
    yield f"{plain_line(stats.space)}  {stats.engine}"
    for title, amount, note in rows:
        number = f"{amount:,}" if isinstance(amount, int) else amount
        yield f"{title:18}  {number:>10}  {note}".rstrip()


def _use_line(uses: Sequence[ModelUse]) -> str:
    if not uses:
        return "nothing"
    calls = number_of(sum(use.calls for use in uses), "call")
    purposes = ", ".join(f"{use.purpose} {use.calls:,}" for use in uses)
    input_tokens = sum(use.input_tokens for use in uses)
    output_tokens = sum(use.output_tokens for use in uses)
    return f"{calls} ({purposes}), {input_tokens:,} tokens in, {output_tokens:,} out"


@click.command("sessions")
@memory_options
async def memory_sessions(*, memory: Memory) -> None:
    """List the sessions of a memory, oldest first, each with its name or first prompt."""
    async with memory.open(spool="reported") as store:
        sessions = await store.sessions()
        chats = {line.session_id: line for line in sessions_of(memory.space)}
        session_lines = [
            chats.get(stored.session, SessionLine(session_id=stored.session))
            for stored in reversed(sessions)  # the newest ones get a title
        ]
        chats = {line.session_id: line for line in await with_titles(store, session_lines)}
    no_chat = SessionLine(session_id="")
    rows: list[dict[str, Any]] = []
    # Print the whole name last, because people copy it and grep for it.
    lines = [f"{'first':16}  {'last':16}  {'messages':>8}  session"]
    for session in sessions:
        chat = chats.get(session.session, no_chat)
        times = {name: getattr(session, name) for name in ("first_said_at", "last_said_at")}
        rows.append(
            {
                "session": session.session,
                "segments": session.segments,
                **{name: instant(time) for name, time in times.items()},
                "keys": list(chat.keys),
                "name": chat.name,
            }
        )
        chat_name = "  ".join(filter(None, (", ".join(chat.keys), chat.name)))
        name = plain_line(f"{session.session}  {chat_name}".rstrip())
        first, last = map(when, times.values())
        lines.append(f"{first:16}  {last:16}  {session.segments:>8,}  {name}")
    memory.show({"sessions": rows}, lines if rows else ["This memory has no sessions yet."])


@click.command("show")
@click.argument("id_or_session", metavar="ID|SESSION")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    metavar="N",
    help="Show at most this many messages of a session.",
)
@memory_options
async def memory_show(*, id_or_session: str, limit: int, memory: Memory) -> None:
    """Show a message and the messages around it, or the newest messages of a session."""
    asked_id = None
    async with memory.open(spool="reported") as store:
        ids = [SegmentId(id_or_session)] if _ID.fullmatch(id_or_session) else []
        if segments := await store.segments(ids) if ids else ():
            asked_id, session = segments[0].segment.id, segments[0].segment.session
            page = partial(store.page, after=segments[0].sequence, session=session)
            before = await page(limit=_NEIGHBOURS, descending=True)
            shown_segments = [*reversed(before), segments[0], *await page(limit=_NEIGHBOURS)]
        else:
            name = await resolve_session(store, id_or_session)
            newest = await store.page(session=name, limit=max(limit, 1), descending=True)
            shown_segments = list(reversed(newest))
    if not shown_segments:
        raise RecollectError(
            f"{plain_line(id_or_session)!r} is neither a message nor a session of this memory; "
            "`recollect memory sessions` lists the sessions, `search` finds messages"
        )
    messages = [stored_segment.segment for stored_segment in shown_segments]
    value = {"asked": asked_id, "segments": list(map(segment_as_json, shown_segments))}
    memory.show(
        value, (_message_text(segment, is_whole=segment.id == asked_id) for segment in messages)
    )


def _message_text(segment: Segment, *, is_whole: bool) -> str:
    lines = []
    for line in segment.text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        plain = plain_line(line)
        lines.append(" " * min(indent, 40) + plain if plain else "")
    text = "\n".join(lines).strip("\n")
    if not is_whole and len(text) > _EXCERPT_CHARS:
        hidden_chars = len(text) - _EXCERPT_CHARS
        text = f"{text[:_EXCERPT_CHARS].rstrip()}… ({hidden_chars:,} more characters)"
    return f"{heading(segment)}\n{text}\n"


@click.command("search")
@click.argument("query", nargs=-1, required=True, metavar="QUERY…")
@click.option(
    "--limit",
    default=10,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    help="Show at most this many matches.",
)
@click.option("--session", metavar="NAME", help="Search only this session.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show the parts of each score, and whether a turn with this query would recall anything.",
)
@click.option("--cold", is_flag=True, help="Also find messages that index.max_segments leaves out.")
@memory_options
async def memory_search(
    *,
    query: tuple[str, ...],
    limit: int,
    session: str | None,
    explain: bool,
    cold: bool,
    memory: Memory,
) -> None:
    """Find messages and facts by their words and, with an embedder, by their meaning."""
    query_text = " ".join(query)
    async with memory.open(spool="reported") as store:
        settings = memory.settings
        if cold:
            settings = replace(settings, recall=replace(settings.recall, method="recollect"))
        name = None if session is None else await resolve_session(store, session)
        result = await search_memory(
            store, settings, memory.space, query_text, limit=limit, session=name
        )
    gate = result.gate
    value = {
        "query": query_text,
        "embedders": result.embedders,
        "notes": [str(note) for note in result.notes],
        "spool_waiting": memory.spool_waiting,
        "certainty": None if gate is None or gate.score is None else round(gate.score, 4),
        "needed": None if gate is None else gate.threshold,
        "a_turn_would_recall": gate is not None and gate.open,
        "reason": "" if gate is None else str(gate.reason),
        "assumed_view": "empty",
        "facts": [{"score": round(hit.score, 4), **fact_as_json(hit.fact)} for hit in result.facts],
        "hits": [_hit_json(segment, hit, explain=explain) for segment, hit in result.hits],
    }
    for note in result.notes if not memory.as_json else ():
        click.echo(note, err=True)
    facts = [click.style("facts", bold=True)] if result.facts else []
    for ranked_fact in result.facts:
        fact = ranked_fact.fact
        facts.append(f"     {ranked_fact.score:.2f}  {fact_line(fact)}  {format_id(fact.id)}")
        facts.append(f"     {statement(fact)}")
    lines = [*facts, *_hit_lines(result.hits, query_text, explain=explain, after=bool(facts))]
    if explain and result.verdict and lines:
        lines.append(f"{result.verdict} {_EMPTY_VIEW} Vectors: {result.embedders or 'none'}.")
    memory.show(value, lines or ["Nothing matches that query."])


def _hit_json(stored_segment: StoredSegment, hit: Hit, *, explain: bool) -> dict[str, Any]:
    record = segment_as_json(stored_segment)
    record.pop("text")
    parts = [
        {"name": part.name, "points": round(part.points, 4), "why": part.why} for part in hit.parts
    ]
    return {
        "score": round(hit.score, 4),
        "passage": _passage(stored_segment, hit),
        "start": hit.passage.start,
        **({"parts": parts} if explain else {}),
        **record,
    }


def _passage(stored_segment: StoredSegment, hit: Hit) -> str:
    return stored_segment.segment.text[hit.passage.start : hit.passage.end]


def _hit_lines(
    hits: Sequence[tuple[StoredSegment, Hit]], query_text: str, *, explain: bool, after: bool
) -> Iterator[str]:
    """Format the messages, with a title if they follow facts (`after`)."""
    if hits and after:
        yield click.style("\nmessages", bold=True)
    words = frozenset(tokenize(query_text))
    for number, (stored_segment, hit) in enumerate(hits, 1):
        yield f"{number:>3}  {hit.score:.2f}  {heading(stored_segment.segment)}"
        yield f"     {_snippet(_passage(stored_segment, hit), words)}"
        for part in hit.parts if explain else ():
            yield f"     {part.points:+.3f}  {part.name:<10}  {part.why}"


def _snippet(text: str, words: frozenset[str]) -> str:
    """Format the part of a text around the first of these words, in bold."""
    line = plain_line(text)
    spans = [
        match.span()
        for match in _SHOWN_WORDS.finditer(line)
        if not words.isdisjoint(tokenize(match[0]))
    ]
    start = 0
    if len(line) > _SNIPPET_CHARS and spans:
        start = max(0, min(spans[0][0] - _BEFORE_MATCH_CHARS, len(line) - _SNIPPET_CHARS))
    end = start + _SNIPPET_CHARS
    snippet, offset = "…" * bool(start), start
    for first, last in spans:
        if start <= first and last <= end:
            snippet += line[offset:first] + click.style(line[first:last], bold=True)
            offset = last
    return snippet + line[offset:end] + "…" * (end < len(line))
