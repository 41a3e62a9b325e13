"""The pages of sessions: the list, a session's timeline, and a session's stored messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from recollect.core.rules.identity import segment_id
from recollect.core.values.message import EntryKey
from recollect.hosts.inspect import svg
from recollect.hosts.inspect.sessions import SessionLine, sessions_of, stored_sessions
from recollect.hosts.inspect.timeline import SPARK_TURNS, EventKind, Timeline, TurnLine
from recollect.hosts.inspect.turns import shown_text
from recollect.hosts.inspector.access import policy

if TYPE_CHECKING:
    from recollect.hosts.inspector.spaces import OpenSpace
    from recollect.hosts.inspector.view import Page, PageView

# Not measured: lengths of lists that a person can still read, and a browser shows at once.
SESSIONS_PER_PAGE: Final = 50
MOST_TURNS: Final = 2_500
"""The list of sessions reads at most this many turns per session, evenly sampled."""
# Not measured: as SESSIONS_PER_PAGE.
ROWS_PER_PAGE: Final = 100
MESSAGES_PER_PAGE: Final = 60


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
    shown = view.paged(found, SESSIONS_PER_PAGE, "", q=query)
    timelines: dict[tuple[str, str], Timeline] = {}
    left = MOST_TURNS
    for space in dict.fromkeys(space for space, _ in shown):
        async with view.open(space) as opened:
            for id_ in [line.session_id for own, line in shown if own == space]:
                most = max(left, SPARK_TURNS)
                read = await view.timelines.read(opened.store, id_, most=most)
                timelines[space, id_] = read
                left -= len(read.lines)
    return view.render(
        "sessions.html",
        rows=[(space, line, timelines[space, line.session_id]) for space, line in shown],
        spaces=spaces,
        total=len(every),
        found=len(found),
        query=query,
    )


async def _named_sessions(opened: OpenSpace) -> list[SessionLine]:
    lines = await stored_sessions(opened.store)
    if not opened.has_files:
        return lines
    names = {one.session_id: one.name for one in await asyncio.to_thread(sessions_of, opened.space)}
    return [replace(line, name=names.get(line.session_id, "")) for line in lines]


async def session(view: PageView) -> Response:
    """Show a session's timeline."""
    async with view.open() as opened:
        store = opened.store
        found = await view.timelines.read(store, view.session)
        known = {one.session_id: one for one in await _named_sessions(opened)}
        stored = known.get(view.session)
        if not found.turns and stored is None:
            return view.notice("No such session", "No session of this memory has this name.", 404)
        groups = view.paged(_groups(found), ROWS_PER_PAGE, "session")
        asked = await _asked(opened, view.session, [one[0] for one in groups if len(one) == 1])
        compactions = len(await store.compactions(view.session))
    lines = found.lines
    return view.render(
        "session.html",
        name=(stored and stored.name) or view.session,
        timeline=found,
        models=list(dict.fromkeys(line.model or "model unknown" for line in lines)),
        over=sum(line.sizes.sent_tokens > line.sizes.limit_tokens for line in lines),
        outgrown=sum(line.sizes.came_tokens > line.sizes.limit_tokens for line in lines),
        breaks=found.counts()[EventKind.CACHE],
        reported=sum(line.usage is not None for line in lines),
        wide=svg.timeline(found, link=view.here("turn") + "&turn="),
        narrow=svg.timeline(found, svg.NARROW),
        groups=groups,
        asked=asked,
        compactions=compactions,
        messages=stored.messages if stored else 0,
    )


def _groups(found: Timeline) -> list[list[TurnLine]]:
    """Group turns, newest first. The newest turn and each turn with events are groups of their own;
    other consecutive turns form one group."""
    groups: list[list[TurnLine]] = []
    alone = True
    for line in reversed(found.lines):
        if alone or line.events:
            groups.append([line])
        else:
            groups[-1].append(line)
        alone = bool(line.events) or line is found.lines[-1]
    return groups


async def _asked(
    opened: OpenSpace, session: str, lines: Sequence[TurnLine]
) -> Mapping[EntryKey, str]:
    """Return the first words of the user messages that these turns answer."""
    keys = dict.fromkeys(line.asked for line in lines if line.asked is not None)
    ids = [segment_id(session, key) for key in keys]
    stored = {one.segment.key: one.segment.text for one in await opened.store.segments(ids)}
    return {key: shown_text(stored.get(key, "(no longer stored)")) for key in keys}


async def picture(view: PageView) -> Response:
    """Return a session's timeline as an SVG file."""
    async with view.open() as opened:
        found = await view.timelines.read(opened.store, view.session)
    text = await asyncio.to_thread(svg.exported, svg.timeline(found, legend=True))
    saved = {"content-disposition": 'attachment; filename="timeline.svg"'}
    return Response(text, headers=policy(view.nonce) | saved, media_type="image/svg+xml")


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
    if len(found) > MESSAGES_PER_PAGE:
        view.older = view.here("messages", after=shown[-1].sequence)
    return view.render("messages.html", rows=[one.segment for one in shown])


PAGES: Final[dict[str, Page]] = {
    "": sessions,
    "session": session,
    "picture.svg": picture,
    "messages": messages,
}
