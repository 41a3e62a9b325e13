"""A recorded request message by message: what became of each, the bytes that the client sent and
the bytes that were sent, and where the provider's cache ends. Bodies are read only when shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from recollect.core.engine.rebuild import Rebuilt, rebuild_request
from recollect.core.formats.codec import CODECS
from recollect.core.formats.turn_records import (
    OutcomeChanges,
    combine_outcomes,
    read_outcomes,
    read_report,
)
from recollect.core.rules.identity import segment_id
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.token_kinds import TurnFigures
from recollect.core.values.message import ToolCall, ToolResult
from recollect.core.values.model import FormatName
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Fate, FateKind
from recollect.errors import FormatError, RecollectError
from recollect.hosts.inspect.turns import (
    MessageFate,
    Stretch,
    excerpt_of,
    name_message,
    reason_text,
    shown_block,
    shown_text,
    stretches,
)

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.values.batch import LedgerPiece, PieceHash, RebuiltTurn
    from recollect.core.values.message import Message, MessageId
    from recollect.core.values.segment import SegmentId, StoredSegment

MOST_REBUILT_ROWS: Final = 2_000
"""In longer requests, the offset of the first changed byte is not computed."""
_AT_ONCE: Final = 400
_AROUND_CHARS: Final = 160
_CHANGED_CHARS: Final = 700
_JOINED: Final = frozenset({Cause.WITH_NEIGHBOUR, Cause.SAME_ROLE})
_CACHE_MARK: Final = b'"cache_control"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMessage:
    """One message of a request, or a row that Recollect added."""

    place: int | None
    """Place in the received request, from 0; None for an added row."""
    fate: FateKind
    causes: tuple[Reason, ...] = ()
    role: str = ""
    key: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    row: int | None = None
    """Place in the sent request, from 0; None if it was not sent."""

    @property
    def reasons(self) -> str:
        """Why, in one sentence."""
        return reason_text(self.causes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message of a request with its first words."""

    at: PlacedMessage
    what: str
    excerpt: str = field(repr=False)
    tokens_before: int
    tokens_after: int
    segment: SegmentId | None = None
    """The stored message; None if it is unknown."""
    is_new: bool = False
    """True if the previous request did not contain this row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledQuote:
    """A message that was recalled for a turn, with its origin."""

    id: SegmentId
    score: float
    text: str = field(repr=False)
    session: str = ""
    what: str = ""
    said_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A turn as the ledger has it."""

    session: str
    rebuilt: RebuiltTurn = field(repr=False)
    stages: Sequence[Mapping[str, Any]] = field(repr=False)
    """What each stage did, with its sentence."""
    report: Mapping[str, Any] = field(repr=False)
    figures: TurnFigures | None
    messages: tuple[PlacedMessage, ...] = field(repr=False)
    before: frozenset[PieceHash] = field(repr=False)
    """Rows of the previous turn."""

    @property
    def turn(self) -> int:
        return self.rebuilt.record.number

    @property
    def ratio(self) -> float:
        """Calibrates the tokens of single messages."""
        return float(self.report.get("calibration_ratio") or 1.0)

    def row_of(self, one: PlacedMessage) -> PieceHash | None:
        """Return the stored row of a message; None if it was not sent."""
        rows = self.rebuilt.rows
        return rows[one.row] if one.row is not None and one.row < len(rows) else None

    def groups(self) -> list[Stretch]:
        """Group the messages that were changed by outcome and reason."""
        fates = [
            MessageFate(
                number=None if one.place is None else one.place + 1,
                role=one.role,
                fate=one.fate,
                reasons=one.causes,
                tokens_before=round(one.tokens_before * self.ratio),
                tokens_after=round(one.tokens_after * self.ratio),
            )
            for one in self.messages
            if one.fate != "kept"
        ]
        return stretches(fates, together=True)

    def chosen(self, show: str) -> list[PlacedMessage]:
        """Choose messages: all, changed, new, or those with one outcome."""
        if show == "all":
            return list(self.messages)
        if show == "new":
            pairs = [(one, self.row_of(one)) for one in self.messages]
            return [one for one, row in pairs if row is not None and row not in self.before]
        if show == "shortened":
            return [one for one in self.messages if one.fate == "changed"]
        if show == "changed":
            return [one for one in self.messages if one.fate != "kept"]
        return [one for one in self.messages if one.fate == show]


async def recorded_turn(store: Store, session: str, number: int) -> TurnRequest:
    """Read a turn. Raise RecollectError if it is not stored."""
    rebuilt = await store.turn(session, number)
    if rebuilt is None:
        raise RecollectError(f"turn {number} of this session is not in the ledger")
    record = rebuilt.record
    names = [name for name in (record.report, *record.outcomes) if name is not None]
    pieces = await store.pieces(names)
    report: dict[str, Any] = {}
    fates: Mapping[int, Fate] = {}
    own: Sequence[tuple[int, Fate]] = ()
    cut: tuple[Reason, ...] = ()
    try:
        if record.report is not None and record.report in pieces:
            report = read_report(pieces[record.report].body, OutcomeChanges())
        if record.outcomes and all(name in pieces for name in record.outcomes):
            made = combine_outcomes([read_outcomes(pieces[name].body) for name in record.outcomes])
            fates, own = made.fates, made.own
            cut = () if made.cut is None else (made.cut,)
    except FormatError:
        pass  # the request itself is still readable
    figures = report.get("figures")
    figures = None if figures is None else TurnFigures.from_dict(figures)
    earlier = [one.number for one in await store.records(session) if one.number < number]
    previous = await store.turn(session, earlier[-1]) if earlier else None
    return TurnRequest(
        session=session,
        rebuilt=rebuilt,
        stages=report.get("lines") or (),
        report=report,
        figures=figures,
        messages=tuple(_placed(figures, len(rebuilt.rows), fates, own, cut)),
        before=frozenset(() if previous is None else previous.rows),
    )


def _placed(
    figures: TurnFigures | None,
    rows: int,
    fates: Mapping[int, Fate],
    own: Sequence[tuple[int, Fate]],
    cut: tuple[Reason, ...],
) -> Iterable[PlacedMessage]:
    """Pair the received messages with the sent rows. Outcomes are recorded only for messages that
    were not sent as they came; the others follow in order."""
    added: dict[int, list[Fate]] = {}
    for after, row_fate in own:
        added.setdefault(after, []).append(row_fate)
    changed = sum(fate.fate == "changed" for fate in fates.values())
    count = figures.messages if figures is not None else rows - len(own) + len(fates) - changed
    merges = (count - len(fates)) + changed + len(own) - rows
    row, last = 0, ""
    for place in range(-1, count):
        fate = fates.get(place)
        if place >= 0 and fate is None:
            yield PlacedMessage(place=place, fate="kept", row=row)
            row, last = row + 1, "kept"
        elif fate is not None:
            at = None
            if fate.fate == "changed":
                joined = merges > 0 and last == "changed" and _is_joined(fate)
                merges -= joined
                at = row - joined
                row, last = row + (not joined), "changed"
            yield _outcome(fate, at, cut)
        for one in added.get(place, ()):
            yield _outcome(one, row, cut)
            row, last = row + 1, "inserted"


def _is_joined(fate: Fate) -> bool:
    return any(reason.cause in _JOINED for reason in fate.reasons)


def _outcome(fate: Fate, row: int | None, cut: tuple[Reason, ...]) -> PlacedMessage:
    reasons = fate.reasons[-1:] if fate.fate == "left out" else fate.reasons
    return PlacedMessage(
        place=fate.place,
        fate=fate.fate,
        causes=reasons or (cut if fate.fate == "summarised" else ()),
        role=fate.role,
        key=fate.key,
        tokens_before=fate.tokens_before,
        tokens_after=fate.tokens_after,
        row=row,
    )


class RequestReader:
    """Reads the bodies of one turn's messages."""

    def __init__(self, store: Store, turn: TurnRequest) -> None:
        self._store = store
        self._turn = turn
        self._codec = CODECS[cast("FormatName", turn.rebuilt.record.format)]
        self._weigher = Weigher()

    async def shown(self, chosen: Sequence[PlacedMessage]) -> list[ShownMessage]:
        """Return these messages with their first words."""
        names = [row for one in chosen if (row := self._turn.row_of(one)) is not None]
        pieces = await self._store.pieces(names)
        stored = await self._stored(chosen)
        read: dict[PieceHash, Message] = {
            name: self._codec.read(piece.body) for name, piece in pieces.items()
        }
        called = {
            part.id: part.name
            for message in read.values()
            for part in message.parts
            if isinstance(part, ToolCall)
        }
        found: list[ShownMessage] = []
        for one in chosen:
            name = self._turn.row_of(one)
            message = None if name is None else read.get(name)
            segment = stored.get(one.key or "")
            what, excerpt = one.role or "message", "(no longer stored)"
            if segment is not None:
                own = segment.segment
                what = f"{own.tool} result" if own.tool and own.role == "tool" else own.role
                excerpt = shown_text(own.text)
            elif message is not None:
                what = "Recollect" if one.fate == "inserted" else name_message(message, called)
                excerpt = excerpt_of(message.parts)
            size = 0
            if one.fate == "kept" and message is not None:
                size = self._weigher.message(message.parts)
            found.append(
                ShownMessage(
                    at=one,
                    what=shown_text(what, 40),
                    excerpt=excerpt,
                    tokens_before=round((size or one.tokens_before) * self._turn.ratio),
                    tokens_after=round((size or one.tokens_after) * self._turn.ratio),
                    segment=None if segment is None else segment.segment.id,
                    is_new=name is not None and name not in self._turn.before,
                )
            )
        return found

    async def _stored(self, chosen: Sequence[PlacedMessage]) -> Mapping[str, StoredSegment]:
        ids = [segment_id(self._turn.session, one.key) for one in chosen if one.key]  # type: ignore[arg-type]
        stored = await self._store.segments(ids) if ids else ()
        return {one.segment.key: one for one in stored}

    async def containing(self, chosen: Sequence[PlacedMessage], words: str) -> list[PlacedMessage]:
        """Return those messages that contain these words, ignoring case."""
        wanted, found = words.casefold(), []
        for at in range(0, len(chosen), _AT_ONCE):
            part = chosen[at : at + _AT_ONCE]
            rows = [self._turn.row_of(one) for one in part]
            pieces = await self._store.pieces([row for row in rows if row is not None])
            stored = await self._stored(part)
            for one, row in zip(part, rows, strict=True):
                segment = stored.get(one.key or "")
                text = "" if segment is None else segment.segment.text
                if row is not None and (piece := pieces.get(row)) is not None:
                    text += "\n" + _all_words(self._codec.read(piece.body))
                if wanted in text.casefold():
                    found.append(one)
        return found

    async def sent(self, row: int) -> LedgerPiece | None:
        """Return the bytes of one row."""
        rows = self._turn.rebuilt.rows
        if row >= len(rows):
            return None
        return (await self._store.pieces([rows[row]])).get(rows[row])

    async def originals(self, chosen: Sequence[PlacedMessage]) -> dict[str, bytes]:
        """Return the bytes of messages as an earlier request contained them, by key."""
        stored = await self._stored(chosen)
        keys: dict[MessageId, str] = {one.segment.message_id: key for key, one in stored.items()}
        if not keys:
            return {}
        now = frozenset(self._turn.rebuilt.rows)
        names = [name for name in await self._store.quoting(list(keys)) if name not in now]
        found: dict[str, bytes] = {}
        for at in range(0, len(names), _AT_ONCE):
            for piece in (await self._store.pieces(names[at : at + _AT_ONCE])).values():
                key = keys.get(piece.about[0]) if piece.about else None
                if key is not None and len(piece.body) > len(found.get(key, b"")):
                    found[key] = piece.body
        return found

    async def stored_text(self, chosen: Sequence[PlacedMessage]) -> dict[str, str]:
        return {key: one.segment.text for key, one in (await self._stored(chosen)).items()}


def _all_words(message: Message) -> str:
    texts = []
    for part in message.parts:
        text = getattr(part, "text", "")
        texts.append(part.arguments if isinstance(part, ToolCall) else text)
    return "\n".join(texts)


async def recalled_quotes(store: Store, turn: TurnRequest) -> list[RecalledQuote]:
    """Return what was recalled for a turn, best first."""
    scores = {str(one[0]): float(one[1]) for one in turn.report.get("recalled") or ()}
    stored = {
        one.segment.id: one.segment for one in await store.segments(cast("Any", list(scores)))
    }
    found = []
    for id_, score in sorted(scores.items(), key=lambda one: -one[1]):
        segment = stored.get(cast("SegmentId", id_))
        if segment is None:
            gone = "This message is no longer stored."
            found.append(RecalledQuote(id=cast("SegmentId", id_), score=score, text=gone))
            continue
        what = f"{segment.tool} result" if segment.role == "tool" else segment.role
        found.append(
            RecalledQuote(
                id=segment.id,
                score=score,
                text=shown_text(segment.text, 320),
                session=segment.session,
                what=shown_text(what, 40),
                said_at=segment.said_at,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a diff: an unchanged start, the changed middle, an unchanged end."""

    start: str = field(default="", repr=False)
    middle: str = field(default="", repr=False)
    end: str = field(default="", repr=False)
    bytes: int = 0
    cache_mark: bool = False


def compare_bytes(left: bytes, right: bytes) -> tuple[Side, Side]:
    """Compare two versions of a message, with the changed span of each."""
    was, now = (side.decode("utf-8", "replace") for side in (left, right))
    least = min(len(was), len(now))
    start = next((at for at in range(least) if was[at] != now[at]), least)
    end = 0
    while end < least - start and was[-1 - end] == now[-1 - end]:
        end += 1
    return _side(left, was, start, end), _side(right, now, start, end)


def one_side(raw: bytes) -> Side:
    """Return a side whose whole text was added or removed."""
    return _side(raw, raw.decode("utf-8", "replace"), 0, 0)


def _side(raw: bytes, text: str, start: int, end: int) -> Side:
    head, tail = text[:start], text[len(text) - end :] if end else ""
    before = ("… " if len(head) > _AROUND_CHARS else "") + head[-_AROUND_CHARS:]
    after = tail[:_AROUND_CHARS] + (" …" if len(tail) > _AROUND_CHARS else "")
    return Side(
        start=shown_block(before, 2 * _AROUND_CHARS),
        middle=shown_block(text[start : len(text) - end], _CHANGED_CHARS),
        end=shown_block(after, 2 * _AROUND_CHARS),
        bytes=len(raw),
        cache_mark=_CACHE_MARK in raw,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEnd:
    """End of the provider's cache of the previous request."""

    row: int | None
    """The first row that differs; None if the system prompt or the tools do, or nothing does."""
    byte: int | None
    """Its first changed byte in the body; None if it was not computed."""
    marks: int
    """Cache marks in the body."""
    bytes: int
    exact: bool


async def cache_end(store: Store, turn: TurnRequest) -> CacheEnd | None:
    """Return where the cache ends; None if the request is long or cannot be rebuilt."""
    rows, figures = turn.rebuilt.rows, turn.figures
    if figures is None or len(rows) > MOST_REBUILT_ROWS:
        return None
    rebuilt = await rebuild_request(store, turn.session, turn.turn)
    if not isinstance(rebuilt, Rebuilt):
        return None
    row = byte = None
    if figures.breaks_cache and figures.same < len(rows):
        row = figures.same
        pieces = await store.pieces([rows[row]])
        earlier = await store.turn(turn.session, turn.turn - 1)
        if rows[row] in pieces and earlier is not None and row < len(earlier.rows):
            old = (await store.pieces([earlier.rows[row]])).get(earlier.rows[row])
            new = pieces[rows[row]].body
            at = rebuilt.body.find(new)
            if at >= 0 and old is not None:
                least = min(len(old.body), len(new))
                same = next((one for one in range(least) if old.body[one] != new[one]), least)
                byte = at + same
    return CacheEnd(
        row=row,
        byte=byte,
        marks=rebuilt.body.count(_CACHE_MARK),
        bytes=len(rebuilt.body),
        exact=rebuilt.exact,
    )


def shown_body(raw: bytes, format_name: str) -> str:
    """Return the text of a stored row: its parts, one after the other."""
    message = CODECS[cast("FormatName", format_name)].read(raw)
    parts = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            parts.append(f"[call of {part.name}]\n{part.arguments}")
        elif isinstance(part, ToolResult):
            parts.append(part.text)
        else:
            parts.append(getattr(part, "text", "") or f"[{type(part).__name__.lower()}]")
    return "\n\n".join(parts)
