"""The pages of one request: its messages, its bytes, and the receipts of compactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from recollect.core.rules.identity import segment_id
from recollect.core.values.report import FateKind
from recollect.core.values.segment import SegmentId
from recollect.core.values.tenant import KeyScope
from recollect.hosts.inspect import svg
from recollect.hosts.inspect.requests import (
    RequestReader,
    ShownMessage,
    Side,
    TurnRequest,
    cache_end,
    compare_bytes,
    one_side,
    recalled_quotes,
    recorded_turn,
    shown_body,
)
from recollect.hosts.inspect.sessions import (
    KIND_NAMES,
    STANDINGS,
    read_receipts,
    standing_of,
)
from recollect.hosts.inspect.timeline import (
    SHOWN_KINDS,
    EventKind,
    TurnLine,
    dollars,
)
from recollect.hosts.inspect.turns import shown_block, shown_text, why_text
from recollect.hosts.inspector.sessions import cache_share
from recollect.system.plain_text import number_of

if TYPE_CHECKING:
    from recollect.core.values.batch import LedgerPiece
    from recollect.hosts.inspector.view import Page, PageView

_FILTERS: Final[Mapping[str, str]] = {
    "changed": "Changed",
    "changed only": "Shortened",
    "left out": "Dropped",
    "summarised": "Summarized",
    "inserted": "Inserted",
    "new": "New since the turn before",
    "all": "All",
}
_DID: Final[Mapping[FateKind, str]] = {
    "changed": "shortened or changed",
    "left out": "dropped",
    "summarised": "shown as a summary",
    "inserted": "added by Recollect",
}
FATE_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "kept": ("kept", "Kept"),
    "changed": ("shortened", "Shortened"),
    "left out": ("dropped", "Dropped"),
    "summarised": ("summarised", "Summarized"),
    "inserted": ("inserted", "Inserted"),
}
MESSAGES_PER_PAGE: Final = 60
MOST_REASONS: Final = 20
MOST_SHOWN_CHARS: Final = 60_000
DIFFS_PER_PAGE: Final = 30
_MOST_SEARCHED: Final = 5_000


async def turn(view: PageView) -> Response:
    """Show a request as it was sent, and what became of each message."""
    async with view.open() as opened:
        timeline = await view.timelines.read(opened.store, view.session)
        number = view.number("turn") or (timeline.lines[-1].turn if timeline.lines else 0)
        found = await recorded_turn(opened.store, view.session, number)
        line = timeline.line(number)
        show = view.given("show") or "changed"
        chosen = found.chosen("changed" if show not in _FILTERS else _fate_of(show))
        words = view.given("q").strip()
        reader = RequestReader(opened.store, found)
        if words:
            chosen = await reader.containing(found.messages[-_MOST_SEARCHED:], words)
        page = view.number("page")
        part = chosen[page * MESSAGES_PER_PAGE : (page + 1) * MESSAGES_PER_PAGE]
        shown = await reader.shown(part)
        quotes = await recalled_quotes(opened.store, found)
    more = (page + 1) * MESSAGES_PER_PAGE < len(chosen)
    numbers = [one.turn for one in timeline.lines]
    counts = Counter(one.fate for one in found.messages)
    given = {"turn": number, "show": show, "q": words}
    return view.render(
        "turn.html",
        found=found,
        line=line,
        turns=timeline.turns,
        lead=_turn_lead(line, counts),
        figures=() if line is None else _turn_figures(line),
        bars=() if line is None else _bars(line),
        kinds=[] if line is None else _kind_rows(line),
        reasons=_reason_rows(found),
        quotes=quotes,
        steps=_steps(found),
        filters={name: (title, _count(found, name)) for name, title in _FILTERS.items()},
        show="" if words else show,
        words=words,
        chosen=len(chosen),
        rows=shown,
        fates=FATE_WORDS,
        earlier=max((one for one in numbers if one < number), default=0),
        later=min((one for one in numbers if one > number), default=0),
        before=view.here("turn", **given, page=page - 1 or "") if page else "",
        after=view.here("turn", **given, page=page + 1) if more else "",
    )


def _fate_of(show: str) -> str:
    return "changed" if show == "changed" else {"changed only": "shortened"}.get(show, show)


def _count(found: TurnRequest, name: str) -> int:
    return len(found.chosen(_fate_of(name)))


def _turn_lead(line: TurnLine | None, counts: Counter[FateKind]) -> str:
    if line is None:
        return "The report of this turn is no longer stored."
    sizes = line.sizes
    within = "within" if sizes.sent_tokens <= sizes.limit_tokens else "over"
    did = [
        f"{number_of(counts[fate], 'message')} {word}"
        for fate, word in _DID.items()
        if counts[fate]
    ]
    text = f"{sizes.came_tokens:,} tokens received, {sizes.sent_tokens:,} sent, {within} the limit "
    return (
        f"{text}of {sizes.limit_tokens:,}. {'; '.join(did) or 'Every message was sent unchanged'}."
    )


def _turn_figures(line: TurnLine) -> list[tuple[str, ...]]:
    sizes, usage = line.sizes, line.usage
    part = sizes.sent_tokens / max(1, sizes.limit_tokens)
    full = "bad" if part > 1 else "warn" if part > 0.9 else "ok"
    fewer = sizes.came_tokens - sizes.sent_tokens
    counted = "estimate" if usage is None else "as the provider counted"
    spent = (
        f"input {sizes.sent_tokens:,}"
        if usage is None
        else f"input {usage.input_tokens:,}, output {usage.output_tokens:,}"
    )
    broken = EventKind.CACHE in line.said
    prefix = "earlier bytes changed" if broken else "the start is unchanged"
    return [
        (
            "Sent",
            f"{sizes.sent_tokens:,}",
            f"{part:.0%} of the limit of {sizes.limit_tokens:,}",
            full,
        ),
        (
            "Received",
            f"{sizes.came_tokens:,}",
            f"{abs(fewer):,} {'fewer' if fewer >= 0 else 'more'} sent",
        ),
        ("From the provider's cache", cache_share([line]), prefix, "bad" if broken else ""),
        ("Cost of this turn", dollars(line.dollars), f"{counted}; {spent}"),
        ("Time added", f"{sizes.seconds * 1000:,.0f} ms", "before the request was sent"),
    ]


def _bars(line: TurnLine) -> list[tuple[str, int, str]]:
    sizes = line.sizes
    scale = max(sizes.came_tokens, sizes.sent_tokens)
    return [
        (title, tokens, svg.bar(line.kinds(came=came), scale, f"{title}: {tokens:,} tokens"))
        for title, tokens, came in (
            ("Received", sizes.came_tokens, True),
            ("Sent", sizes.sent_tokens, False),
        )
    ]


def _kind_rows(line: TurnLine) -> list[tuple[str, str, int, int]]:
    came, sent = line.kinds(came=True), line.kinds()
    return [
        (kind, title, came.get(kind, 0), sent.get(kind, 0))
        for kind, title in SHOWN_KINDS.items()
        if came.get(kind) or sent.get(kind)
    ]


def _reason_rows(found: TurnRequest) -> list[tuple[FateKind, str, int, int, int]]:
    """Return what was changed by outcome and reason, the most tokens first."""
    rows = [
        (one.fate, why_text(one), one.count, one.tokens_before, one.tokens_after)
        for one in found.groups()
    ]
    return sorted(rows, key=lambda row: -max(row[3], row[4]))[:MOST_REASONS]


def _steps(found: TurnRequest) -> list[tuple[str, str, str, float]]:
    return [
        (
            str(one["stage"]),
            str(one["outcome"]),
            shown_text(str(one["said"])),
            float(one["seconds"]),
        )
        for one in found.stages
    ]


async def wire(view: PageView) -> Response:
    """Show what the client sent next to what was sent."""
    number = view.number("turn")
    async with view.open() as opened:
        timeline = await view.timelines.read(opened.store, view.session)
        found = await recorded_turn(opened.store, view.session, number)
        end = await cache_end(opened.store, found)
        changed = found.chosen("changed")
        page = view.number("page")
        part = changed[page * DIFFS_PER_PAGE : (page + 1) * DIFFS_PER_PAGE]
        reader = RequestReader(opened.store, found)
        shown = await reader.shown(part)
        originals = await reader.originals(part)
        texts = await reader.stored_text(part)
        sent = {
            one.row: piece
            for one in part
            if one.row is not None and (piece := await reader.sent(one.row)) is not None
        }
    rows = [_diff(one, originals, texts, sent) for one in shown]
    more = (page + 1) * DIFFS_PER_PAGE < len(changed)
    return view.render(
        "wire.html",
        found=found,
        line=timeline.line(number),
        turns=timeline.turns,
        end=end,
        blocks=_with_runs(found, rows, page),
        changed=len(changed),
        fates=FATE_WORDS,
        before=view.here("wire", turn=number, page=page - 1 or "") if page else "",
        after=view.here("wire", turn=number, page=page + 1) if more else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Diff:
    """A message that was not sent as it came."""

    shown: ShownMessage
    left: Side | None
    right: Side | None
    note: str = ""


def _diff(
    one: ShownMessage,
    originals: Mapping[str, bytes],
    texts: Mapping[str, str],
    sent: Mapping[int, LedgerPiece],
) -> _Diff:
    key, note = one.at.key or "", ""
    was = originals.get(key)
    if was is None and key in texts:
        was = texts[key].encode()
        note = "No request contained its bytes, so its stored text is shown."
    piece = None if one.at.row is None else sent.get(one.at.row)
    if was is None or piece is None:
        left = None if was is None else one_side(was)
        right = None if piece is None else one_side(piece.body)
        return _Diff(shown=one, left=left, right=right, note=note)
    left, right = compare_bytes(was, piece.body)
    return _Diff(shown=one, left=left, right=right, note=note)


def _with_runs(found: TurnRequest, rows: Sequence[_Diff], page: int) -> list[tuple[int, _Diff]]:
    """Return each diff with the number of unchanged messages before it."""
    places = {id(one): at for at, one in enumerate(found.messages)}
    last = -1
    if page:
        earlier = [one for one in found.messages if one.fate != "kept"][page * DIFFS_PER_PAGE - 1]
        last = places[id(earlier)]
    blocks = []
    for row in rows:
        at = places[id(row.shown.at)]
        blocks.append((at - last - 1, row))
        last = at
    return blocks


async def message(view: PageView) -> Response:
    """Show one message: as it is stored, and as the newest recorded request shows it."""
    number, row, id_ = view.number("turn"), view.given("row"), view.given("id")
    async with view.open() as opened:
        stored = await opened.store.segments([SegmentId(id_)]) if id_ else ()
        session = stored[0].segment.session if stored else view.session
        records = await opened.store.records(session)
        at = number or (records[-1].number if records else 0)
        found = await recorded_turn(opened.store, session, at) if at else None
        place, body = None, ""
        if found is not None:
            key = stored[0].segment.key if stored else None
            place = next((one for one in found.messages if key and one.key == key), None)
            sent = int(row) if row.isdigit() else None if place is None else place.row
            piece = None if sent is None else await RequestReader(opened.store, found).sent(sent)
            if piece is not None:
                body = shown_body(piece.body, found.rebuilt.record.format)
    if not (stored or body):
        return view.notice("No such message", "It is not stored, or was forgotten.", 404)
    return view.render(
        "message.html",
        segment=stored[0].segment if stored else None,
        owner=session,
        text=shown_block(stored[0].segment.text, MOST_SHOWN_CHARS) if stored else "",
        body=shown_block(body, MOST_SHOWN_CHARS),
        turn=at,
        place=place,
        fates=FATE_WORDS,
    )


async def receipt(view: PageView) -> Response:
    """Show what a compaction kept, what is recallable and what is lost."""
    async with view.open() as opened:
        found = await read_receipts(opened.store, view.session)
        if not found.records:
            text = "No compaction of this session is stored in this memory."
            return view.notice("No compaction", text, 404, back=(view.here("session"), "Timeline"))
        page = found.page(view.number("number") or None)
        findings = page.recorded.result.receipt.findings if page.recorded.result.receipt else ()
        ids = {one.probe.key: segment_id(view.session, one.probe.key) for one in findings}
        known = await opened.store.known(ids.values())
    lists = {name: [one for one in findings if standing_of(one) == name] for name in STANDINGS}
    kinds = Counter((one.probe.kind, standing_of(one)) for one in findings)
    return view.render(
        "receipt.html",
        page=page,
        result=page.recorded.result,
        diff=page.diff(),
        rows=found.rows(),
        newest=page.number == max(one["number"] for one in found.rows() if not one["undone"])
        if any(not one["undone"] for one in found.rows())
        else False,
        lists=lists,
        kinds=[
            (title, [kinds[kind, name] for name in STANDINGS])
            for kind, title in KIND_NAMES.items()
            if any(kinds[kind, name] for name in STANDINGS)
        ],
        ids={key: id_ for key, id_ in ids.items() if id_ in known},
        summary=shown_block(page.recorded.result.summary, MOST_SHOWN_CHARS),
        shown_text=shown_text,
    )


async def undo(view: PageView) -> Response:
    """Undo the newest compaction of a session, after a confirmation."""
    back = (view.here("receipt"), "Receipt")
    if not view.given("confirmed"):
        return view.render("confirm.html", **_undo_question(view))
    async with view.visitor.spaces.engine(view.space) as engine:
        done = await engine.undo(view.session)
    title = "Undone" if done.undone is not None else "Nothing was undone"
    return view.notice(title, shown_text(str(done.reason)), back=back)


def _undo_question(view: PageView) -> dict[str, object]:
    return {
        "title": "Undo the newest compaction?",
        "text": "The next request contains the original messages again instead of the summary. "
        "Nothing is deleted. Recollect does not compact this session again until you ask for it. "
        "A running agent sends one more turn with the summary.",
        "action": "undo",
        "button": "Undo the compaction",
        "fields": {"space": view.space, "session": view.session, "confirmed": "yes"},
        "back": (view.here("receipt"), "Cancel"),
    }


PAGES: Final[dict[str, Page]] = {
    "turn": turn,
    "wire": wire,
    "message": message,
    "receipt": receipt,
}
ACTIONS: Final[dict[str, tuple[KeyScope, Page]]] = {"undo": ("write", undo)}
