"""`recollect memory stats` and `sessions`, `recollect space list`: what is there, at a glance."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from recollect.cli.store_options import (
    Place,
    check_url,
    console,
    instant,
    json_option,
    plain_text,
    print_json,
    store_option,
    store_options,
    when,
    with_store,
)
from recollect.core.values.segment import SegmentId
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from recollect.core.ports import Store
    from recollect.core.values.model import ModelUse
    from recollect.core.values.segment import Segment, StoredSegment
    from recollect.core.values.upkeep import SessionSummary, Stats


# A segment as the commands show it: who, when, where, and its words.


_ROLE_STYLES = {"user": "green", "assistant": "cyan", "tool": "yellow", "system": "magenta"}


def heading(
    stored: StoredSegment, *, score: float | None = None, number: int | None = None
) -> Text:
    """One line: number, score, role, tool, time, session, id, and what is odd about it."""
    odd = ("cold",) if stored.cold else ()
    return heading_of(stored.segment, odd, score=score, number=number)


def heading_of(
    segment: Segment,
    odd: tuple[str, ...] = ("spooled",),
    *,
    score: float | None = None,
    number: int | None = None,
) -> Text:
    """As `heading`, for one that is not stored yet."""
    from rich.text import Text as RichText

    line = RichText()
    if number is not None:
        line.append(f"{number:>3}  ", style="bold")
    if score is not None:
        line.append(f"{score:.2f}  ", style="bold")
    line.append(segment.role, style=_ROLE_STYLES.get(segment.role, ""))
    if segment.tool is not None:
        line.append(f" {plain_line(segment.tool)}", style="yellow")
    line.append(f"  {when(segment.said_at)}  {plain_line(segment.session)}  ")
    line.append(segment.id, style="dim")
    marks: list[str] = [segment.source] if segment.source == "note" else []
    if segment.source == "file" and segment.origin is not None:
        marks.append(plain_line(segment.origin))
    if segment.noise is not None:
        marks.append(f"noise: {segment.noise}")
    marks.extend(odd)
    if marks:
        line.append(f"  ({', '.join(marks)})", style="dim")
    return line


def segment_as_json(stored: StoredSegment) -> dict[str, Any]:
    """Everything that is kept of it but for the line it was imported as."""
    segment = stored.segment
    return {
        "id": segment.id,
        "session": segment.session,
        "role": segment.role,
        "tool": segment.tool,
        "said_at": instant(segment.said_at),
        "text": segment.text,
        "tokens": segment.tokens,
        "source": segment.source,
        "trust": segment.trust,
        "noise": segment.noise,
        "origin": segment.origin,
        "sequence": stored.sequence,
        "cold": stored.cold,
    }


# `recollect memory show ID|SESSION`: a segment with its neighbours, or a session.


_ID = re.compile(r"[0-9a-f]{32}")
_EXCERPT_CHARS = 400


@click.command("show")
@click.argument("what", metavar="ID|SESSION")
@click.option("--around", default=2, show_default=True, metavar="N", help="Neighbours each side.")
@click.option("--limit", default=50, show_default=True, metavar="N", help="Newest of a session.")
@store_options
def show(*, what: str, around: int, limit: int, url: str | None, space: str, as_json: bool) -> None:
    """Show a segment with what was said around it, or the newest of a session."""

    async def work(store: Store, place: Place) -> tuple[StoredSegment | None, list[StoredSegment]]:
        del place
        if _ID.fullmatch(what):
            segments = await store.segments([SegmentId(what)])
            if segments:
                return segments[0], await _around(store, segments[0], max(around, 0))
        name = await stored_session(store, what)
        newest = await store.page(session=name, limit=max(limit, 1), descending=True)
        return None, list(reversed(newest))

    asked, shown = with_store(url, space, work, spool="told")
    if not shown:
        raise RecollectError(
            f"{plain_line(what)!r} is neither a segment nor a session of this space; "
            "`recollect memory sessions` lists the sessions, `search` finds segments"
        )
    if as_json:
        told = [segment_as_json(segment) for segment in shown]
        print_json({"asked": None if asked is None else asked.segment.id, "segments": told})
    else:
        _draw_segments(asked, shown)


async def _around(store: Store, segment: StoredSegment, each_side: int) -> list[StoredSegment]:
    if not each_side:
        return [segment]
    session = segment.segment.session
    before = await store.page(
        after=segment.sequence, limit=each_side, session=session, descending=True
    )
    after = await store.page(after=segment.sequence, limit=each_side, session=session)
    return [*reversed(before), segment, *after]


def _draw_segments(asked: StoredSegment | None, shown: list[StoredSegment]) -> None:
    out = console()
    for segment in shown:
        whole = asked is not None and segment.segment.id == asked.segment.id
        out.print(heading(segment), soft_wrap=True)
        text = plain_text(segment.segment.text).strip("\n")
        if not whole and len(text) > _EXCERPT_CHARS:
            left = len(text) - _EXCERPT_CHARS
            text = f"{text[:_EXCERPT_CHARS].rstrip()}… ({left:,} more characters)"
        out.print(text, style="" if whole or asked is None else "dim", soft_wrap=True)
        out.print()


ModelUses: TypeAlias = "dict[str, tuple[ModelUse, ...]]"
"""What was asked of models besides conversations: "today", and in "total"."""
_BAR_CELLS = 30
_KINDS = (("indexed", "█", "cyan"), ("noise", "▒", "yellow"), ("cold", "░", "blue"))


@click.command("stats")
@store_options
def stats(*, url: str | None, space: str, as_json: bool) -> None:
    """Show how much a space holds, and of what."""

    async def work(store: Store, place: Place) -> tuple[Stats, set[str], ModelUses, int]:
        stored_stats = await store.stats()
        waiting = {name for name in stored_stats.vectors if await store.unembedded(name, limit=1)}
        return stored_stats, waiting, await model_uses(store), place.spool_waiting

    found_stats, waiting, uses, spooled = with_store(url, space, work, spool="told")
    if as_json:
        more = {"vectors_waiting": sorted(waiting), "spool_waiting": spooled}
        print_json({**asdict(found_stats), **more, "model_use": uses_as_json(uses)})
    else:
        _draw(found_stats, waiting, uses)


async def model_uses(store: Store) -> ModelUses:
    """What this space asked of models, today and in all."""
    from recollect.core.upkeep.jobs import day_of

    today = await store.model_use(since=day_of(time.time()))
    return {"today": today, "total": await store.model_use()}


def uses_as_json(uses: ModelUses) -> dict[str, dict[str, dict[str, int]]]:
    """Calls and tokens by purpose, today and in total."""
    return {
        when: {
            use.purpose: {
                "calls": use.calls,
                "input_tokens": use.input_tokens,
                "output_tokens": use.output_tokens,
            }
            for use in model_uses
        }
        for when, model_uses in uses.items()
    }


def said_of_uses(uses: ModelUses) -> str:
    """The same in a line."""
    if not uses["total"]:
        return "nothing so far"
    return "; ".join(f"{when}: {_use_line(uses[when])}" for when in ("today", "total"))


def _use_line(uses: Sequence[ModelUse]) -> str:
    if not uses:
        return "nothing"
    calls, read, written = (
        sum(numbers)
        for numbers in zip(
            *((use.calls, use.input_tokens, use.output_tokens) for use in uses), strict=True
        )
    )
    purposes = ", ".join(f"{use.purpose} {use.calls:,}" for use in uses)
    count = "1 call" if calls == 1 else f"{calls:,} calls"
    return f"{count} ({purposes}), {read:,} tokens in, {written:,} out"


def _draw(found_stats: Stats, waiting: set[str], uses: ModelUses) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(
        Text.assemble((plain_line(found_stats.space), "bold"), ("  " + found_stats.engine, "dim"))
    )
    indexed = max(found_stats.segments - found_stats.noise - found_stats.cold, 0)
    shares = {"indexed": indexed, "noise": found_stats.noise, "cold": found_stats.cold}
    if found_stats.segments:
        out.print(_bar(shares))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for name, count, text in _rows(found_stats):
        table.add_row(name, f"{count:,}", text)
    for embedder, count in sorted(found_stats.vectors.items()):
        share = count / found_stats.passages if found_stats.passages else 0.0
        # the middles of long tool results get none, so all that are made may be fewer than passages
        text = _share_bar(share) if embedder in waiting else "complete"
        table.add_row("vectors", f"{count:,}", f"{plain_line(embedder)}  {text}")
    if found_stats.bytes_on_disk is not None:
        table.add_row("on disk", _size(found_stats.bytes_on_disk), "")
    if uses["total"]:
        for name in ("today", "total"):
            calls = sum(use.calls for use in uses[name])
            table.add_row(f"model calls, {name}", f"{calls:,}", _use_line(uses[name]))
    out.print(table)


def _rows(found_stats: Stats) -> list[tuple[str, int, str]]:
    rows = [
        ("segments", found_stats.segments, f"{found_stats.tokens:,} tokens"),
        ("sessions", found_stats.sessions, ""),
        ("passages", found_stats.passages, "pieces of segments, warm and cold"),
        ("facts", found_stats.facts, ""),
        ("turns", found_stats.turns, f"in the ledger, {found_stats.pieces:,} pieces"),
        ("forgotten", found_stats.tombstones, "identities that stay out"),
        ("jobs", found_stats.jobs_waiting, "waiting"),
    ]
    if found_stats.compactions:
        rows.insert(5, ("compactions", found_stats.compactions, "with summary and receipt"))
    if found_stats.jobs_dead:
        rows.append(("", found_stats.jobs_dead, "dead: `recollect memory jobs` says why"))
    return rows


def _bar(shares: dict[str, int]) -> Text:
    """What the segments are, as one bar with its legend."""
    from rich.text import Text as RichText

    total = sum(shares.values())
    bar, legend = RichText(), RichText("  ")
    for name, sign, style in _KINDS:
        count = shares[name]
        cells = round(count / total * _BAR_CELLS) if total else 0
        bar.append(sign * (max(cells, 1) if count else 0), style=style)
        if count:
            legend.append(sign, style=style)
            legend.append(f" {count:,} {name}  ")
    return bar + legend


def _share_bar(share: float) -> str:
    cells = round(min(share, 1.0) * 10)
    return "█" * cells + "·" * (10 - cells) + f" {min(share, 1.0):.0%} of passages"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes everything")


@click.command("spaces")
@store_option
@json_option
def spaces(*, url: str | None, as_json: bool) -> None:
    """List the spaces of a store, those used last at the end.

    Without --store those of this machine: one a folder for agents that `recollect wrap` started.
    """
    from recollect.adapters.wiring import stored_spaces
    from recollect.system import config

    check_url(url)
    store = config.load_settings().settings.store
    found = asyncio.run(stored_spaces(store.url if url is None else url, key=store.key))
    if as_json:
        told = [{**asdict(one), "last_said_at": instant(one.last_said_at)} for one in found]
        print_json({"spaces": told})
        return
    if not found:
        click.echo("There is no memory here yet.")
        return
    # A line a space, its name last and whole, as with sessions.
    click.echo(f"{'last used':16}  {'sessions':>8}  {'segments':>8}  {'size':>8}  space")
    for one in found:
        size = "·" if one.bytes_on_disk is None else _size(one.bytes_on_disk)
        name = plain_line(one.space) if one.space is not None else f"({plain_line(one.unread)})"
        known = one.space is not None
        counts = [f"{n:,}" if known else "·" for n in (one.sessions, one.segments)]
        numbers = f"{counts[0]:>8}  {counts[1]:>8}  {size:>8}"
        click.echo(f"{when(one.last_said_at):16}  {numbers}  {name}")


@click.command("sessions")
@store_options
def sessions(*, url: str | None, space: str, as_json: bool) -> None:
    """List the sessions of a space, oldest first."""

    async def work(store: Store, place: Place) -> tuple[SessionSummary, ...]:
        del place
        return await store.sessions()

    session_summaries = with_store(url, space, work, spool="told")
    if as_json:
        print_json({"sessions": [_as_json(session) for session in session_summaries]})
        return
    if not session_summaries:
        click.echo("No session has said anything in this space yet.")
        return
    # A line a session, its name last and whole: it is what people copy, and grep for.
    width = max(len(f"{session.segments:,}") for session in session_summaries)
    width = max(width, len("segments"))
    click.echo(f"{'first':16}  {'last':16}  {'segments':>{width}}  session")
    for session in session_summaries:
        first, last = when(session.first_said_at), when(session.last_said_at)
        click.echo(
            f"{first:16}  {last:16}  {session.segments:>{width},}  {plain_line(session.session)}"
        )


def _as_json(session: SessionSummary) -> dict[str, object]:
    return {
        "session": session.session,
        "segments": session.segments,
        "first_said_at": instant(session.first_said_at),
        "last_said_at": instant(session.last_said_at),
    }
