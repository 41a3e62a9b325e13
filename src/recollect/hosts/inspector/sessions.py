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
from recollect.hosts.inspect.sessions import (
    SessionLine,
    list_stored_sessions,
    sessions_of,
    with_titles,
)
from recollect.hosts.inspect.timeline import SPARK_TURNS, EventKind, Timeline, TurnLine
from recollect.hosts.inspect.turns import format_excerpt
from recollect.hosts.inspector.access import policy

if TYPE_CHECKING:
    from recollect.hosts.inspector.spaces import OpenSpace
    from recollect.hosts.inspector.view import Page, PageView

# Not measured: lengths of lists that a person can still read, and a browser shows at once.
SESSIONS_PER_PAGE: Final = 50
MAX_TURNS: Final = 2_500
"""The list of sessions reads at most this many turns per session, evenly sampled."""
# Not measured: as SESSIONS_PER_PAGE.
ROWS_PER_PAGE: Final = 100
MESSAGES_PER_PAGE: Final = 60


async def sessions(view: PageView) -> Response:
    """List the sessions of all memories, newest first."""
    spaces = [summary.space for summary in await view.visitor.spaces.summaries() if summary.space]
    all_lines: list[tuple[str, SessionLine]] = []
    for space in spaces:
        async with view.open(space) as opened_space:
            all_lines += [(space, line) for line in await _list_sessions(opened_space)]
    all_lines.sort(key=lambda entry: entry[1].changed, reverse=True)
    query = view.parameter("q").strip()
    words = query.casefold()
    matching_lines = [
        (space, line)
        for space, line in all_lines
        if words in f"{space} {line.session_id} {line.name}".casefold()
    ]
    page_lines = view.page_of(matching_lines, SESSIONS_PER_PAGE, "", q=query)
    timelines: dict[tuple[str, str], Timeline] = {}
    turns_left = MAX_TURNS
    for space in dict.fromkeys(space for space, _ in page_lines):
        async with view.open(space) as opened_space:
            for id_ in [line.session_id for line_space, line in page_lines if line_space == space]:
                max_turns = max(turns_left, SPARK_TURNS)
                timeline = await view.timelines.read(opened_space.store, id_, max_turns=max_turns)
                timelines[space, id_] = timeline
                turns_left -= len(timeline.lines)
    return view.render(
        "sessions.html",
        rows=[(space, line, timelines[space, line.session_id]) for space, line in page_lines],
        spaces=spaces,
        total=len(all_lines),
        found=len(matching_lines),
        query=query,
    )


async def _list_sessions(opened_space: OpenSpace) -> list[SessionLine]:
    lines = await list_stored_sessions(opened_space.store)
    if not opened_space.has_files:
        return await with_titles(opened_space.store, lines)
    names = {
        line.session_id: line.name
        for line in await asyncio.to_thread(sessions_of, opened_space.space)
    }
    named_lines = [replace(line, name=names.get(line.session_id, "")) for line in lines]
    return await with_titles(opened_space.store, named_lines)


async def session(view: PageView) -> Response:
    """Show a session's timeline."""
    async with view.open() as opened_space:
        store = opened_space.store
        timeline = await view.timelines.read(store, view.session)
        lines_by_id = {line.session_id: line for line in await _list_sessions(opened_space)}
        session_line = lines_by_id.get(view.session)
        if not timeline.turns and session_line is None:
            return view.notice("No such session", "No session of this memory has this name.", 404)
        groups = view.page_of(_groups(timeline), ROWS_PER_PAGE, "session")
        words_by_key = await _first_words(
            opened_space, view.session, [group[0] for group in groups if len(group) == 1]
        )
        compactions = len(await store.compactions(view.session))
    lines = timeline.lines
    return view.render(
        "session.html",
        name=(session_line and session_line.name) or view.session,
        timeline=timeline,
        models=list(dict.fromkeys(line.model or "model unknown" for line in lines)),
        over=sum(line.sizes.sent_tokens > line.sizes.limit_tokens for line in lines),
        outgrown=sum(line.sizes.came_tokens > line.sizes.limit_tokens for line in lines),
        breaks=timeline.counts()[EventKind.CACHE],
        reported=sum(line.usage is not None for line in lines),
        wide=svg.timeline(timeline, link=view.session_link("turn") + "&turn="),
        narrow=svg.timeline(timeline, svg.NARROW),
        groups=groups,
        asked=words_by_key,
        compactions=compactions,
        messages=session_line.messages if session_line else 0,
    )


def _groups(timeline: Timeline) -> list[list[TurnLine]]:
    """Group turns, newest first. The newest turn and each turn with events are groups of their own;
    other consecutive turns form one group."""
    groups: list[list[TurnLine]] = []
    alone = True
    for line in reversed(timeline.lines):
        if alone or line.events:
            groups.append([line])
        else:
            groups[-1].append(line)
        alone = bool(line.events) or line is timeline.lines[-1]
    return groups


async def _first_words(
    opened_space: OpenSpace, session: str, lines: Sequence[TurnLine]
) -> Mapping[EntryKey, str]:
    """Return the first words of the user messages that these turns answer."""
    keys = dict.fromkeys(line.asked_key for line in lines if line.asked_key is not None)
    ids = [segment_id(session, key) for key in keys]
    texts_by_key = {
        stored_segment.segment.key: stored_segment.segment.text
        for stored_segment in await opened_space.store.segments(ids)
    }
    return {key: format_excerpt(texts_by_key.get(key, "(no longer stored)")) for key in keys}


async def picture(view: PageView) -> Response:
    """Return a session's timeline as an SVG file."""
    async with view.open() as opened_space:
        timeline = await view.timelines.read(opened_space.store, view.session)
    text = await asyncio.to_thread(svg.standalone_svg, svg.timeline(timeline, legend=True))
    file_headers = {"content-disposition": 'attachment; filename="timeline.svg"'}
    return Response(text, headers=policy(view.nonce) | file_headers, media_type="image/svg+xml")


async def messages(view: PageView) -> Response:
    """List the stored messages of a session, newest first."""
    async with view.open() as opened_space:
        page_segments = await opened_space.store.page(
            after=view.number("after") or 2**62,
            limit=MESSAGES_PER_PAGE + 1,
            session=view.session,
            descending=True,
        )
    shown_segments = page_segments[:MESSAGES_PER_PAGE]
    if len(page_segments) > MESSAGES_PER_PAGE:
        view.older = view.session_link("messages", after=shown_segments[-1].sequence)
    return view.render(
        "messages.html", rows=[stored_segment.segment for stored_segment in shown_segments]
    )


PAGES: Final[dict[str, Page]] = {
    "": sessions,
    "session": session,
    "picture.svg": picture,
    "messages": messages,
}
