"""The pages of sessions: the list, the timeline of one, and its stored messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from recollect.core.rules.identity import segment_id
from recollect.core.values.message import EntryKey
from recollect.hosts.inspect import svg
from recollect.hosts.inspect.sessions import (
    SessionLine,
    sessions_of,
    stored_sessions,
)
from recollect.hosts.inspect.timeline import (
    EVENT_WORDS,
    SHOWN_KINDS,
    SPARK_TURNS,
    EventKind,
    Timeline,
    TurnLine,
    dollars,
)
from recollect.hosts.inspect.turns import shown_text
from recollect.system.plain_text import number_of

if TYPE_CHECKING:
    from recollect.hosts.inspector.spaces import OpenSpace
    from recollect.hosts.inspector.view import Page, PageView

SESSIONS_PER_PAGE: Final = 50
ROWS_PER_PAGE: Final = 100
MESSAGES_PER_PAGE: Final = 60
_COUNTED: Final[Mapping[EventKind, tuple[str, str]]] = {
    EventKind.EDITED: ("edit batch", "edit batches"),
    EventKind.RECALLED: ("recall", "recalls"),
    EventKind.COMPACTED: ("compaction", "compactions"),
    EventKind.CLIENT: ("by the client", "by the client"),
    EventKind.CACHE: ("cache break", "cache breaks"),
    EventKind.FAILED: ("failure", "failures"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionRow:
    space: str
    line: SessionLine
    timeline: Timeline
    picture: str
    signs: Sequence[tuple[str, str]]


async def sessions(view: PageView) -> Response:
    """List the sessions of all memories, newest first."""
    spaces = [one.space for one in await view.visitor.spaces.summaries() if one.space]
    every: list[tuple[str, SessionLine]] = []
    for space in spaces:
        async with view.open(space) as opened:
            every += [(space, line) for line in await _named_sessions(opened)]
    every.sort(key=lambda one: one[1].changed, reverse=True)
    query = view.given("q").strip()
    words = query.casefold()
    found = [
        (space, line)
        for space, line in every
        if words in f"{space} {line.session_id} {line.name}".casefold()
    ]
    page = view.number("page")
    shown = found[page * SESSIONS_PER_PAGE : (page + 1) * SESSIONS_PER_PAGE]
    rows: dict[tuple[str, str], _SessionRow] = {}
    for space in dict.fromkeys(space for space, _ in shown):
        async with view.open(space) as opened:
            for line in [line for own, line in shown if own == space]:
                rows[space, line.session_id] = await _session_row(view, opened, line)
    more = (page + 1) * SESSIONS_PER_PAGE < len(found)
    return view.render(
        "sessions.html",
        rows=[rows[space, line.session_id] for space, line in shown],
        spaces=spaces,
        total=len(every),
        found=len(found),
        query=query,
        before=view.link(q=query, page=page - 1 or "") if page else "",
        after=view.link(q=query, page=page + 1) if more else "",
    )


async def _named_sessions(opened: OpenSpace) -> list[SessionLine]:
    """Return the sessions of a memory, with the names of chats."""
    lines = await stored_sessions(opened.store)
    if not opened.has_files:
        return lines
    names = {one.session_id: one.name for one in await asyncio.to_thread(sessions_of, opened.space)}
    return [
        SessionLine(
            session_id=line.session_id,
            name=names.get(line.session_id, ""),
            messages=line.messages,
            changed=line.changed,
        )
        for line in lines
    ]


async def _session_row(view: PageView, opened: OpenSpace, line: SessionLine) -> _SessionRow:
    reader = view.timelines
    found = await reader.read(opened.store, line.session_id, most=SPARK_TURNS)
    counts = found.counts()
    signs = [
        (kind.value, number_of(counts[kind], *words))
        for kind, words in _COUNTED.items()
        if counts[kind] and not (found.turns > SPARK_TURNS and kind is EventKind.CLIENT)
    ]
    return _SessionRow(
        space=opened.name, line=line, timeline=found, picture=svg.spark(found), signs=signs
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TurnRow:
    """A turn with events, or a run of turns without."""

    line: TurnLine | None = None
    said: str = ""
    signs: Sequence[tuple[str, str]] = ()
    first: int = 0
    last: int = 0
    count: int = 0
    came: str = ""
    sent: str = ""
    cached: str = ""
    dollars: float | None = None


async def session(view: PageView) -> Response:
    """Show a session's timeline."""
    async with view.open() as opened:
        store = opened.store
        found = await view.timelines.read(store, view.session)
        summaries = {one.session: one for one in await store.sessions()}
        if not found.turns and view.session not in summaries:
            return view.notice("No such session", "No session of this memory has this name.", 404)
        rows = _turn_rows(found)
        page = view.number("page")
        shown = rows[page * ROWS_PER_PAGE : (page + 1) * ROWS_PER_PAGE]
        said = await _asked(opened, view.session, [row.line for row in shown if row.line])
        compactions = len(await store.compactions(view.session))
        names = {one.session_id: one.name for one in await _named_sessions(opened)}
    more = (page + 1) * ROWS_PER_PAGE < len(rows)
    stored = summaries.get(view.session)
    return view.render(
        "session.html",
        name=names.get(view.session) or view.session,
        timeline=found,
        lead=_session_lead(found),
        figures=_session_figures(found),
        wide=svg.timeline(found, link=view.here("turn") + "&turn="),
        narrow=svg.timeline(found, svg.NARROW),
        kinds=dict(reversed(SHOWN_KINDS.items())),
        rows=[_with_said(row, said) for row in shown],
        compactions=compactions,
        messages=0 if stored is None else stored.segments,
        before=view.here("session", page=page - 1 or "") if page else "",
        after=view.here("session", page=page + 1) if more else "",
    )


def _session_lead(found: Timeline) -> str:
    if not found.lines:
        return "Its messages are stored, but no request is recorded."
    models = ", ".join(dict.fromkeys(line.model or "model unknown" for line in found.lines))
    over = [line for line in found.lines if line.sizes.sent_tokens > line.sizes.limit_tokens]
    kept = (
        f"{number_of(len(over), 'request')} of {found.turns:,} were sent over the limit"
        if over
        else f"every request was sent within its limit of {found.limit_tokens:,} tokens"
    )
    turns = number_of(found.turns, "turn")
    window = found.lines[-1].sizes.window_tokens
    return f"{turns} with {shown_text(models)}: {kept} (window {window:,})."


def _session_figures(found: Timeline) -> list[tuple[str, ...]]:
    if not found.lines:
        return []
    counts, last = found.counts(), found.lines[-1]
    over = sum(line.sizes.came_tokens > line.sizes.limit_tokens for line in found.lines)
    saved = found.came_tokens - found.sent_tokens
    part = last.sizes.sent_tokens / max(1, last.sizes.limit_tokens)
    full = "bad" if part > 1 else "warn" if part > 0.9 else "ok"
    reported = sum(not line.is_estimate for line in found.lines)
    cost = f"{reported:,} of {found.turns:,} turns as reported" if reported else "estimate"
    return [
        (
            "Window now",
            f"{part:.0%}",
            f"{last.sizes.sent_tokens:,} of {last.sizes.limit_tokens:,}",
            full,
        ),
        ("Largest request", f"{found.peak_tokens:,}", f"limit {found.limit_tokens:,}"),
        ("Over the limit as received", f"{over:,}", f"of {number_of(found.turns, 'turn')}"),
        (
            "Input saved",
            svg.short(saved) if saved > 0 else "0",
            f"{max(0, saved) / max(1, found.came_tokens):.0%} of what was received",
        ),
        ("Cache breaks", f"{counts[EventKind.CACHE]:,}", "turns that changed earlier bytes"),
        ("Cost", dollars(found.dollars), "price unknown" if found.dollars is None else cost),
    ]


def _turn_rows(found: Timeline) -> list[_TurnRow]:
    """Return the newest turn and each turn with events as a row, and runs of others as one row,
    newest first."""
    rows: list[_TurnRow] = []
    quiet: list[TurnLine] = []
    for line in reversed(found.lines):
        if line.events or line is found.lines[-1]:
            rows += _run(quiet)
            quiet = []
            rows.append(_TurnRow(line=line, signs=event_signs(line), cached=cache_share([line])))
        else:
            quiet.append(line)
    return rows + _run(quiet)


def _run(lines: Sequence[TurnLine]) -> list[_TurnRow]:
    if not lines:
        return []
    oldest, newest = lines[-1], lines[0]
    costs = [line.dollars for line in lines if line.dollars is not None]
    return [
        _TurnRow(
            first=oldest.turn,
            last=newest.turn,
            count=len(lines),
            came=_span(oldest.sizes.came_tokens, newest.sizes.came_tokens),
            sent=_span(oldest.sizes.sent_tokens, newest.sizes.sent_tokens),
            cached=cache_share(lines),
            dollars=sum(costs) if costs else None,
        )
    ]


def _span(first: int, last: int) -> str:
    return svg.short(last) if first == last else f"{svg.short(first)} → {svg.short(last)}"


def cache_share(lines: Sequence[TurnLine]) -> str:
    """Format the share of the input that came from the provider's cache."""
    known = [line for line in lines if line.cached_tokens is not None]
    whole = sum(line.usage.input_tokens if line.usage else line.sizes.sent_tokens for line in known)
    return (
        f"{min(1.0, sum(line.cached_tokens or 0 for line in known) / whole):.0%}"
        if whole
        else "unknown"
    )


def event_signs(line: TurnLine) -> list[tuple[str, str]]:
    return [(kind.value, EVENT_WORDS[kind]) for kind in EventKind if kind in line.said]


async def _asked(
    opened: OpenSpace, session: str, lines: Sequence[TurnLine]
) -> Mapping[EntryKey, str]:
    """Return the first words of the user messages that these turns answer."""
    keys = {
        key: segment_id(session, key)
        for line in lines
        if line.sizes.figures is not None and (key := line.sizes.figures.asked) is not None
    }
    stored = await opened.store.segments(list(keys.values()))
    texts = {one.segment.key: shown_text(one.segment.text) for one in stored}
    return {key: texts.get(key, "(no longer stored)") for key in keys}


def _with_said(row: _TurnRow, said: Mapping[EntryKey, str]) -> _TurnRow:
    figures = None if row.line is None else row.line.sizes.figures
    asked = None if figures is None else figures.asked
    return replace(row, said=said.get(asked, "") if asked is not None else "")


async def picture(view: PageView) -> Response:
    """Return a session's timeline as an SVG file."""
    from recollect.hosts.inspector.view import stylesheet

    async with view.open() as opened:
        found = await view.timelines.read(opened.store, view.session)
    text = svg.exported(svg.timeline(found), await asyncio.to_thread(stylesheet))
    headers = {
        "content-disposition": 'attachment; filename="timeline.svg"',
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        "x-content-type-options": "nosniff",
    }
    return Response(text, headers=headers, media_type="image/svg+xml")


async def messages(view: PageView) -> Response:
    """List the stored messages of a session, newest first."""
    async with view.open() as opened:
        found = await opened.store.page(
            after=view.number("after") or 2**62,
            limit=MESSAGES_PER_PAGE + 1,
            session=view.session,
            descending=True,
        )
    shown = found[:MESSAGES_PER_PAGE]
    older = len(found) > MESSAGES_PER_PAGE
    return view.render(
        "messages.html",
        rows=[(one.segment, shown_text(one.segment.text)) for one in shown],
        before="",
        after=view.here("messages", after=shown[-1].sequence) if older else "",
    )


PAGES: Final[dict[str, Page]] = {
    "": sessions,
    "session": session,
    "picture.svg": picture,
    "messages": messages,
}
