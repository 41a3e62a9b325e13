"""The pages of one request: its messages, its bytes, and the receipts of compactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from recollect.core.engine.rebuild import Rebuilt, rebuild_request
from recollect.core.rules.identity import segment_id
from recollect.core.values.segment import SegmentId
from recollect.core.values.tenant import KeyScope
from recollect.hosts.inspect.requests import (
    CACHE_MARK,
    RequestReader,
    cache_end,
    recalled_messages,
    recorded_turn,
)
from recollect.hosts.inspect.sessions import KIND_NAMES, STANDINGS, read_receipts, standing_of
from recollect.hosts.inspect.turns import shown_block, shown_text, stretches, why_text

if TYPE_CHECKING:
    from recollect.hosts.inspector.view import Page, PageView

_FILTERS: Final[Mapping[str, str]] = {
    "edited": "Changed",
    "changed": "Shortened",
    "left out": "Dropped",
    "summarized": "Summarized",
    "inserted": "Inserted",
    "new": "New since the turn before",
    "all": "All",
}
# Not measured: lengths of lists and texts that a person can still read, and a browser shows at
# once.
MESSAGES_PER_PAGE: Final = 60
DIFFS_PER_PAGE: Final = 30
MOST_REASONS: Final = 20
MOST_SHOWN_CHARS: Final = 60_000
MOST_REBUILT_ROWS: Final = 2_000
"""A request with more rows than this is not rebuilt, so the page shows no size in bytes."""
# Not measured: bounds the bodies that one search reads.
_MOST_SEARCHED: Final = 5_000


async def turn(view: PageView) -> Response:
    """Show a request as it was sent, and the outcome of each message."""
    async with view.open() as opened:
        timeline = await view.timelines.read(opened.store, view.session)
        last = timeline.lines[-1].turn if timeline.lines else 0
        number = view.number("turn") if view.given("turn") else last
        found = await recorded_turn(opened.store, view.session, number)
        show, words = view.given("show") or "edited", view.given("q").strip()
        chosen = found.chosen(show)
        reader = RequestReader(opened.store, found)
        if words:
            chosen = await reader.containing(found.messages[-_MOST_SEARCHED:], words)
        part = view.paged(chosen, MESSAGES_PER_PAGE, "turn", turn=number, show=show, q=words)
        rows = await reader.shown(part, words)
        recalled = await recalled_messages(opened.store, found)
    numbers = [one.turn for one in timeline.lines]
    groups = stretches(found.chosen("edited"), together=True)
    groups.sort(key=lambda one: -max(one.tokens_before, one.tokens_after))
    return view.render(
        "turn.html",
        found=found,
        line=timeline.line(number),
        turns=timeline.turns,
        counts=Counter(one.fate for one in found.messages),
        groups=groups[:MOST_REASONS],
        why_text=why_text,
        recalled=recalled,
        filters={name: (title, len(found.chosen(name))) for name, title in _FILTERS.items()},
        show="" if words else show,
        words=words,
        chosen=len(chosen),
        rows=rows,
        earlier=max((one for one in numbers if one < number), default=0),
        later=min((one for one in numbers if one > number), default=0),
    )


async def wire(view: PageView) -> Response:
    """Show the client's request next to the request that Recollect sent."""
    number = view.number("turn")
    async with view.open() as opened:
        timeline = await view.timelines.read(opened.store, view.session)
        found = await recorded_turn(opened.store, view.session, number)
        rebuilt, rows = None, found.rebuilt.rows
        if len(rows) <= MOST_REBUILT_ROWS:
            rebuilt = await rebuild_request(opened.store, view.session, number)
        body = rebuilt.body if isinstance(rebuilt, Rebuilt) else b""
        changed_row, changed_byte = await cache_end(opened.store, found, body)
        edited = found.chosen("edited")
        breaking = None
        for one in reversed(found.messages):
            if changed_row is None or (one.row is not None and one.row < changed_row):
                break
            breaking = one if one.fate != "kept" else breaking
        part = view.paged(edited, DIFFS_PER_PAGE, "wire", turn=number)
        diffs = await RequestReader(opened.store, found).diffs(part)
    return view.render(
        "wire.html",
        found=found,
        line=timeline.line(number),
        bytes=len(body),
        marks=body.count(CACHE_MARK),
        exact=isinstance(rebuilt, Rebuilt) and rebuilt.exact,
        breaking=breaking,
        breaking_page=edited.index(breaking) // DIFFS_PER_PAGE if breaking else 0,
        changed_byte=changed_byte,
        diffs=diffs,
        edited=len(edited),
    )


async def message(view: PageView) -> Response:
    """Show one message: as it is stored, and as the newest recorded request shows it."""
    number, row, id_ = view.number("turn"), view.number("row"), view.given("id")
    async with view.open() as opened:
        stored = await opened.store.segments([SegmentId(id_)]) if id_ else ()
        segment = stored[0].segment if stored else None
        session = view.session if segment is None else segment.session
        records = await opened.store.records(session)
        at = number or (records[-1].number if records else 0)
        place, body, is_reply = None, "", False
        if at:
            found = await recorded_turn(opened.store, session, at)
            reader = RequestReader(opened.store, found)
            sent = row if view.given("row") else None
            if segment is not None:
                place = next((one for one in found.messages if one.key == segment.key), None)
                sent = place.row if place else await reader.row_of(segment)
                late = at == records[-1].number and segment.said_at >= records[-1].at
                is_reply = late and segment.role == "assistant"
            if sent is not None:
                body = await reader.sent_text(sent)
    if not (segment or body):
        return view.notice("No such message", "It is not stored, or was forgotten.", 404)
    return view.render(
        "message.html",
        segment=segment,
        owner=session,
        text=shown_block(segment.text, MOST_SHOWN_CHARS) if segment else "",
        body=shown_block(body, MOST_SHOWN_CHARS),
        turn=at,
        place=place,
        is_reply=is_reply,
    )


async def receipt(view: PageView) -> Response:
    """Show what a compaction kept, what can be recalled and what is lost."""
    async with view.open() as opened:
        found = await read_receipts(opened.store, view.session)
        if not found.records:
            text = "No compaction of this session is stored in this memory."
            return view.notice("No compaction", text, 404, back=(view.here("session"), "Timeline"))
        page = found.page(view.number("number") or None)
        findings = page.recorded.result.receipt.findings if page.recorded.result.receipt else ()
        ids = {one.probe.key: segment_id(view.session, one.probe.key) for one in findings}
        known = await opened.store.known(ids.values())
    kinds = Counter((one.probe.kind, standing_of(one)) for one in findings)
    rows = found.rows()
    return view.render(
        "receipt.html",
        page=page,
        result=page.recorded.result,
        diff=page.diff(),
        rows=rows,
        newest=max((one["number"] for one in rows if not one["undone"]), default=0),
        lists={name: [one for one in findings if standing_of(one) == name] for name in STANDINGS},
        kinds=[
            (title, [kinds[kind, name] for name in STANDINGS])
            for kind, title in KIND_NAMES.items()
            if any(kinds[kind, name] for name in STANDINGS)
        ],
        ids={key: id_ for key, id_ in ids.items() if id_ in known},
        summary=shown_block(page.recorded.result.summary, MOST_SHOWN_CHARS),
    )


async def undo(view: PageView) -> Response:
    """Undo the newest compaction of a session, after a confirmation."""
    back = (view.here("receipt"), "Receipt")
    if not view.given("confirmed"):
        text = (
            "The next request contains the original messages again instead of the summary. Nothing "
            "is deleted. Recollect does not compact this session again until you ask for it. A "
            "running agent sends one more turn with the summary."
        )
        given = {"space": view.space, "session": view.session, "confirmed": "yes"}
        act = ("undo", "Undo the compaction", given)
        return view.notice("Undo the newest compaction?", text, act=act, back=back)
    async with view.visitor.spaces.engine(view.space) as engine:
        done = await engine.undo(view.session)
    title = "Undone" if done.undone is not None else "Nothing was undone"
    return view.notice(title, shown_text(str(done.reason)), back=back)


PAGES: Final[dict[str, Page]] = {"turn": turn, "wire": wire, "message": message, "receipt": receipt}
ACTIONS: Final[dict[str, tuple[KeyScope, Page]]] = {"undo": ("write", undo)}
