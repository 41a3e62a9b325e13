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
    list_recalled,
    read_turn,
)
from recollect.hosts.inspect.sessions import KIND_NAMES, STANDINGS, read_receipts, standing_of
from recollect.hosts.inspect.turns import format_block, format_excerpt, stretches, why_text

if TYPE_CHECKING:
    from recollect.hosts.inspector.view import Page, PageView

_FILTERS: Final[Mapping[str, str]] = {
    "edited": "All changes",
    "changed": "Rewritten",
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
MAX_REASONS: Final = 20
MAX_SHOWN_CHARS: Final = 60_000
MAX_REBUILT_ROWS: Final = 2_000
"""A request with more rows than this is not rebuilt, so the page shows no size in bytes."""
# Not measured: bounds the bodies that one search reads.
_MAX_SEARCHED: Final = 5_000


async def turn(view: PageView) -> Response:
    """Show a request as it was sent, and the outcome of each message."""
    async with view.open() as opened_space:
        timeline = await view.timelines.read(opened_space.store, view.session)
        last = timeline.lines[-1].turn if timeline.lines else 0
        number = view.number("turn") if view.parameter("turn") else last
        recorded = await read_turn(opened_space.store, view.session, number)
        show, words = view.parameter("show") or "edited", view.parameter("q").strip()
        chosen_messages = recorded.choose_messages(show)
        reader = RequestReader(opened_space.store, recorded)
        if words:
            chosen_messages = await reader.containing(recorded.messages[-_MAX_SEARCHED:], words)
        part = view.page_of(
            chosen_messages, MESSAGES_PER_PAGE, "turn", turn=number, show=show, q=words
        )
        rows = await reader.with_excerpts(part, words)
        recalled = await list_recalled(opened_space.store, recorded)
    numbers = [line.turn for line in timeline.lines]
    groups = stretches(recorded.choose_messages("edited"), joins_all=True)
    groups.sort(key=lambda group: -max(group.tokens_before, group.tokens_after))
    return view.render(
        "turn.html",
        found=recorded,
        line=timeline.line(number),
        turns=timeline.turns,
        counts=Counter(message.fate for message in recorded.messages),
        groups=groups[:MAX_REASONS],
        why_text=why_text,
        recalled=recalled,
        filters={
            name: (title, len(recorded.choose_messages(name))) for name, title in _FILTERS.items()
        },
        show="" if words else show,
        words=words,
        chosen=len(chosen_messages),
        rows=rows,
        earlier=max((turn_number for turn_number in numbers if turn_number < number), default=0),
        later=min((turn_number for turn_number in numbers if turn_number > number), default=0),
    )


async def wire(view: PageView) -> Response:
    """Show the client's request next to the request that Recollect sent."""
    number = view.number("turn")
    async with view.open() as opened_space:
        timeline = await view.timelines.read(opened_space.store, view.session)
        recorded = await read_turn(opened_space.store, view.session, number)
        rebuilt, rows = None, recorded.rebuilt.rows
        if len(rows) <= MAX_REBUILT_ROWS:
            rebuilt = await rebuild_request(opened_space.store, view.session, number)
        body = rebuilt.body if isinstance(rebuilt, Rebuilt) else b""
        changed_row, changed_byte = await cache_end(opened_space.store, recorded, body)
        edited_messages = recorded.choose_messages("edited")
        breaking = None
        for message in reversed(recorded.messages):
            if changed_row is None or (message.row is not None and message.row < changed_row):
                break
            breaking = message if message.fate != "kept" else breaking
        part = view.page_of(edited_messages, DIFFS_PER_PAGE, "wire", turn=number)
        diffs = await RequestReader(opened_space.store, recorded).diffs(part)
    return view.render(
        "wire.html",
        found=recorded,
        line=timeline.line(number),
        bytes=len(body),
        marks=body.count(CACHE_MARK),
        exact=isinstance(rebuilt, Rebuilt) and rebuilt.exact,
        breaking=breaking,
        breaking_page=edited_messages.index(breaking) // DIFFS_PER_PAGE if breaking else 0,
        changed_byte=changed_byte,
        diffs=diffs,
        edited=len(edited_messages),
    )


async def message(view: PageView) -> Response:
    """Show one message: as it is stored, and as the newest recorded request shows it."""
    number, row, id_ = view.number("turn"), view.number("row"), view.parameter("id")
    async with view.open() as opened_space:
        stored_segments = await opened_space.store.segments([SegmentId(id_)]) if id_ else ()
        segment = stored_segments[0].segment if stored_segments else None
        session = view.session if segment is None else segment.session
        records = await opened_space.store.records(session)
        turn_number = number or (records[-1].number if records else 0)
        place, body, is_reply, is_prompt = None, "", False, False
        if turn_number:
            recorded = await read_turn(opened_space.store, session, turn_number)
            is_prompt = recorded.is_prompt
            reader = RequestReader(opened_space.store, recorded)
            sent_row = row if view.parameter("row") else None
            if segment is not None:
                place = next(
                    (message for message in recorded.messages if message.key == segment.key), None
                )
                sent_row = place.row if place else await reader.row_of(segment)
                late = turn_number == records[-1].number and segment.said_at >= records[-1].at
                is_reply = late and segment.role == "assistant"
            if sent_row is not None:
                body = await reader.text_of_row(sent_row)
    if not (segment or body):
        return view.notice("No such message", "It is not stored, or was forgotten.", 404)
    return view.render(
        "message.html",
        segment=segment,
        owner=session,
        text=format_block(segment.text, MAX_SHOWN_CHARS) if segment else "",
        body=format_block(body, MAX_SHOWN_CHARS),
        turn=turn_number,
        place=place,
        is_reply=is_reply,
        is_prompt=is_prompt,
    )


async def receipt(view: PageView) -> Response:
    """Show what a compaction kept, what can be recalled and what is lost."""
    async with view.open() as opened_space:
        receipts = await read_receipts(opened_space.store, view.session)
        if not receipts.records:
            text = "No compaction of this session is stored in this memory."
            return view.notice(
                "No compaction", text, 404, back=(view.session_link("session"), "Timeline")
            )
        page = receipts.page(view.number("number") or None)
        findings = page.recorded.result.receipt.findings if page.recorded.result.receipt else ()
        ids = {
            finding.probe.key: segment_id(view.session, finding.probe.key) for finding in findings
        }
        known_ids = await opened_space.store.known(ids.values())
    kinds = Counter((finding.probe.kind, standing_of(finding)) for finding in findings)
    rows = receipts.rows()
    return view.render(
        "receipt.html",
        page=page,
        result=page.recorded.result,
        diff=page.diff(),
        rows=rows,
        newest=max((row["number"] for row in rows if not row["undone"]), default=0),
        lists={
            name: [finding for finding in findings if standing_of(finding) == name]
            for name in STANDINGS
        },
        kinds=[
            (title, [kinds[kind, name] for name in STANDINGS])
            for kind, title in KIND_NAMES.items()
            if any(kinds[kind, name] for name in STANDINGS)
        ],
        ids={key: id_ for key, id_ in ids.items() if id_ in known_ids},
        summary=format_block(page.recorded.result.summary, MAX_SHOWN_CHARS),
    )


async def undo(view: PageView) -> Response:
    """Undo the newest compaction of a session, after a confirmation."""
    back = (view.session_link("receipt"), "Receipt")
    if not view.parameter("confirmed"):
        text = (
            "The next request contains the original messages again instead of the summary. Nothing "
            "is deleted. Recollect does not compact this session again until you ask for it. A "
            "running agent sends one more turn with the summary."
        )
        fields = {"space": view.space, "session": view.session, "confirmed": "yes"}
        act = ("undo", "Undo the compaction", fields)
        return view.notice("Undo the newest compaction?", text, act=act, back=back)
    async with view.visitor.spaces.engine(view.space) as engine:
        result = await engine.undo(view.session)
    title = "Undone" if result.undone is not None else "Nothing was undone"
    return view.notice(title, format_excerpt(str(result.reason)), back=back)


PAGES: Final[dict[str, Page]] = {"turn": turn, "wire": wire, "message": message, "receipt": receipt}
ACTIONS: Final[dict[str, tuple[KeyScope, Page]]] = {"undo": ("write", undo)}
