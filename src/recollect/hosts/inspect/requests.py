"""A recorded request message by message: what became of each, the bytes that the client sent and
the bytes that were sent, and where the provider's cache ends. Bodies are read only when shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from recollect.core.values.model import FormatName
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Fate
from recollect.errors import FormatError, RecollectError
from recollect.hosts.inspect.turns import (
    MessageFate,
    Stretch,
    all_words,
    excerpt_of,
    name_message,
    reason_text,
    shown_block,
    shown_text,
    stretches,
    tool_names,
    words_of,
)

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.values.batch import PieceHash, RebuiltTurn
    from recollect.core.values.message import CallId, Message
    from recollect.core.values.segment import Segment, SegmentId, StoredSegment

MOST_REBUILT_ROWS: Final = 2_000
"""In longer requests, the offset of the first changed byte is not computed."""
_AT_ONCE: Final = 400
_AROUND_CHARS: Final = 160
_CHANGED_CHARS: Final = 700
_JOINED: Final = frozenset({Cause.WITH_NEIGHBOR, Cause.SAME_ROLE})
_CACHE_MARK: Final = b'"cache_control"'


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage(MessageFate):
    """A message of a recorded request, or a row that Recollect added. Its words are empty until
    they are read."""

    row: int | None = None
    """Place in the sent request, from 0; None if it was not sent."""
    is_new: bool = False
    """True if the previous request did not contain this row."""
    segment: SegmentId | None = None
    """The stored message; None if it is unknown."""

    @property
    def why(self) -> str:
        """The reasons, in one sentence."""
        return reason_text(self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A turn as the ledger has it."""

    session: str
    rebuilt: RebuiltTurn = field(repr=False)
    report: Mapping[str, Any] = field(repr=False)
    figures: TurnFigures | None
    messages: tuple[SentMessage, ...] = field(repr=False)

    @property
    def turn(self) -> int:
        return self.rebuilt.record.number

    @property
    def ratio(self) -> float:
        """Calibrates the tokens of single messages."""
        return float(self.report.get("calibration_ratio") or 1.0)

    def row_of(self, one: SentMessage) -> PieceHash | None:
        """Return the stored row of a message; None if it was not sent."""
        rows = self.rebuilt.rows
        return rows[one.row] if one.row is not None and one.row < len(rows) else None

    def groups(self) -> list[Stretch]:
        """Group the messages that were changed by outcome and reason."""
        return stretches(self.chosen("edited"), together=True)

    def chosen(self, show: str) -> list[SentMessage]:
        """Choose messages: all, edited, new, or those with one outcome."""
        if show == "all":
            return list(self.messages)
        if show == "new":
            return [one for one in self.messages if one.is_new]
        other = "kept" if show == "edited" else ""
        return [one for one in self.messages if one.fate == show or other not in ("", one.fate)]


async def recorded_turn(store: Store, session: str, number: int) -> TurnRequest:
    """Read a turn. Raise RecollectError if it is not stored."""
    rebuilt = await store.turn(session, number)
    if rebuilt is None:
        raise RecollectError(f"turn {number} of this session is not in the ledger")
    record = rebuilt.record
    names = [name for name in (record.report, *record.outcomes) if name is not None]
    pieces = await store.pieces(names)
    report: dict[str, Any] = {}
    made = OutcomeChanges()
    try:
        if record.report is not None and record.report in pieces:
            report = read_report(pieces[record.report].body, OutcomeChanges())
        if all(name in pieces for name in record.outcomes):
            made = combine_outcomes([read_outcomes(pieces[name].body) for name in record.outcomes])
    except FormatError:
        pass  # the request itself is still readable
    stored = report.get("figures")
    found = TurnRequest(
        session=session,
        rebuilt=rebuilt,
        report=report,
        figures=None if stored is None else TurnFigures.from_dict(stored),
        messages=(),
    )
    earlier = [one.number for one in await store.records(session) if one.number < number]
    previous = await store.turn(session, earlier[-1]) if earlier else None
    before = frozenset(() if previous is None else previous.rows)
    rows, ratio = rebuilt.rows, found.ratio
    messages = [
        replace(
            one,
            tokens_before=round(one.tokens_before * ratio),
            tokens_after=round(one.tokens_after * ratio),
            is_new=one.row is not None and one.row < len(rows) and rows[one.row] not in before,
        )
        for one in _placed(found.figures, len(rows), made)
    ]
    return replace(found, messages=tuple(messages))


def _placed(figures: TurnFigures | None, rows: int, made: OutcomeChanges) -> Iterable[SentMessage]:
    """Pair the received messages with the sent rows. Outcomes are recorded only for messages that
    were not sent as they came; the others follow in order."""
    cut = () if made.cut is None else (made.cut,)
    added: dict[int, list[Fate]] = {}
    for after, row_fate in made.own:
        added.setdefault(after, []).append(row_fate)
    changed = sum(fate.fate == "changed" for fate in made.fates.values())
    unsent = len(made.fates) - changed - len(made.own)
    count = figures.messages if figures is not None else rows + unsent
    merges = count - unsent - rows
    row, was_changed = 0, False
    for place in range(-1, count):
        fate = made.fates.get(place)
        if fate is not None:
            joined = merges > 0 and was_changed and _is_joined(fate)
            was_changed = fate.fate == "changed" or (was_changed and fate.fate != "kept")
            merges -= joined
            at = row - joined if fate.fate == "changed" else None
            row += fate.fate == "changed" and not joined
            yield _outcome(fate, at, cut)
        elif place >= 0:
            yield SentMessage(
                number=place + 1,
                role="",
                fate="kept",
                reasons=(),
                tokens_before=0,
                tokens_after=0,
                row=row,
            )
            row, was_changed = row + 1, False
        for one in added.get(place, ()):
            yield _outcome(one, row, cut)
            row, was_changed = row + 1, False


def _is_joined(fate: Fate) -> bool:
    return fate.fate == "changed" and any(reason.cause in _JOINED for reason in fate.reasons)


def _outcome(fate: Fate, row: int | None, cut: tuple[Reason, ...]) -> SentMessage:
    reasons = fate.reasons[-1:] if fate.fate == "left out" else fate.reasons
    return SentMessage(
        number=None if fate.place is None else fate.place + 1,
        fate=fate.fate,
        reasons=reasons or (cut if fate.fate == "summarized" else ()),
        role=fate.role,
        key=fate.key,
        tokens_before=fate.tokens_before,
        tokens_after=fate.tokens_after,
        row=row,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a diff: an unchanged start, the changed middle, an unchanged end."""

    start: str = field(default="", repr=False)
    middle: str = field(default="", repr=False)
    end: str = field(default="", repr=False)
    bytes: int = 0
    cache_mark: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """A message that was not sent as it came."""

    message: SentMessage
    same: int
    """Number of unchanged messages before it."""
    left: Side | None
    right: Side | None
    is_text: bool = False
    """True if no request contained its bytes, so the left side is its stored text."""


class RequestReader:
    """Reads the bodies of one turn's messages."""

    def __init__(self, store: Store, turn: TurnRequest) -> None:
        self._store = store
        self._turn = turn
        self._codec = CODECS[cast("FormatName", turn.rebuilt.record.format)]
        self._weigher = Weigher()

    async def _read(
        self, chosen: Sequence[SentMessage]
    ) -> tuple[dict[PieceHash | None, bytes], dict[str | None, StoredSegment]]:
        """Return the sent bytes by row, and the stored messages by key."""
        names = [row for one in chosen if (row := self._turn.row_of(one)) is not None]
        pieces = await self._store.pieces(names)
        ids = [segment_id(self._turn.session, one.key) for one in chosen if one.key is not None]
        stored = await self._store.segments(ids) if ids else ()
        bodies: dict[PieceHash | None, bytes] = {name: one.body for name, one in pieces.items()}
        return bodies, {one.segment.key: one for one in stored}

    async def shown(self, chosen: Sequence[SentMessage]) -> list[SentMessage]:
        """Return these messages with their first words."""
        bodies, stored = await self._read(chosen)
        read = {name: self._codec.read(body) for name, body in bodies.items()}
        called = tool_names(read.values())
        return [
            self._with_words(one, read.get(self._turn.row_of(one)), stored.get(one.key), called)
            for one in chosen
        ]

    def _with_words(
        self,
        one: SentMessage,
        message: Message | None,
        stored: StoredSegment | None,
        called: dict[CallId, str],
    ) -> SentMessage:
        what, excerpt = one.role or "message", "(no longer stored)"
        if stored is not None:
            own = stored.segment
            what = f"{own.tool} result" if own.tool and own.role == "tool" else own.role
            excerpt = shown_text(own.text)
        elif message is not None:
            what = "Recollect" if one.fate == "inserted" else name_message(message, called)
            excerpt = excerpt_of(message.parts)
        size = one.tokens_after
        if one.fate == "kept" and message is not None:
            size = round(self._weigher.message(message.parts) * self._turn.ratio)
        return replace(
            one,
            what=shown_text(what, 40),
            excerpt=excerpt,
            tokens_after=size,
            segment=None if stored is None else stored.segment.id,
        )

    async def containing(self, chosen: Sequence[SentMessage], words: str) -> list[SentMessage]:
        """Return those messages that contain these words, ignoring case."""
        wanted, found = words.casefold(), []
        for at in range(0, len(chosen), _AT_ONCE):
            part = chosen[at : at + _AT_ONCE]
            bodies, stored = await self._read(part)
            for one in part:
                body, own = bodies.get(self._turn.row_of(one)), stored.get(one.key)
                text = "" if own is None else own.segment.text
                if body is not None:
                    text += "\n" + all_words(self._codec.read(body).parts)
                if wanted in text.casefold():
                    found.append(one)
        return found

    async def sent_text(self, row: int) -> str:
        """Return the text of a sent row: its parts, one after the other. Empty if there is none."""
        name = self._turn.rebuilt.rows[row : row + 1]
        pieces = await self._store.pieces(name)
        bodies = [self._codec.read(one.body).parts for one in pieces.values()]
        return "\n\n".join(words_of(part) for parts in bodies for part in parts)

    async def diffs(self, chosen: Sequence[SentMessage]) -> list[Diff]:
        """Compare what the client sent with what was sent."""
        bodies, stored = await self._read(chosen)
        originals = await self._originals(stored)
        same, before = 0, dict[int, int]()
        for one in self._turn.messages:
            before[id(one)] = same
            same = same + 1 if one.fate == "kept" else 0
        found = []
        for one, shown in zip(chosen, await self.shown(chosen), strict=True):
            was, own = originals.get(one.key), stored.get(one.key)
            is_text = was is None and own is not None
            if was is None and own is not None:
                was = own.segment.text.encode()
            left, right = compare_bytes(was, bodies.get(self._turn.row_of(one)))
            found.append(
                Diff(message=shown, same=before[id(one)], left=left, right=right, is_text=is_text)
            )
        return found

    async def _originals(
        self, stored: Mapping[str | None, StoredSegment]
    ) -> dict[str | None, bytes]:
        """Return the bytes of messages as an earlier request contained them, by key."""
        keys = {one.segment.message_id: key for key, one in stored.items()}
        now = frozenset(self._turn.rebuilt.rows)
        names = [name for name in await self._store.quoting(list(keys)) if name not in now]
        found: dict[str | None, bytes] = {}
        for at in range(0, len(names) if keys else 0, _AT_ONCE):
            for piece in (await self._store.pieces(names[at : at + _AT_ONCE])).values():
                key = keys.get(piece.about[0]) if piece.about else None
                if key is not None and len(piece.body) > len(found.get(key, b"")):
                    found[key] = piece.body
        return found


async def recalled_messages(store: Store, turn: TurnRequest) -> list[tuple[float, Segment | None]]:
    """Return what was recalled for a turn with its scores, best first; None if it is gone."""
    scores = {cast("SegmentId", one[0]): float(one[1]) for one in turn.report.get("recalled") or ()}
    stored = {one.segment.id: one.segment for one in await store.segments(list(scores))}
    ranked = sorted(scores.items(), key=lambda one: -one[1])
    return [(score, stored.get(id_)) for id_, score in ranked]


def compare_bytes(left: bytes | None, right: bytes | None) -> tuple[Side | None, Side | None]:
    """Compare two versions of a message, with the changed span of each. None is no version."""
    was, now = ((side or b"").decode("utf-8", "replace") for side in (left, right))
    start = _same_start(was, now)
    end = _same_start(was[start:][::-1], now[start:][::-1])
    return _side(left, was, start, end), _side(right, now, start, end)


def _same_start(left: str | bytes, right: str | bytes) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (old, new) in pairs if old != new), min(len(left), len(right)))


def _side(raw: bytes | None, text: str, start: int, end: int) -> Side | None:
    if raw is None:
        return None
    head, tail = text[:start], text[len(text) - end :]
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
        earlier = await store.turn(turn.session, turn.turn - 1)
        old_row = None if earlier is None else next(iter(earlier.rows[row : row + 1]), None)
        pieces = await store.pieces([one for one in (rows[row], old_row) if one is not None])
        if old_row is not None and old_row in pieces and rows[row] in pieces:
            new = pieces[rows[row]].body
            if (at := rebuilt.body.find(new)) >= 0:
                byte = at + _same_start(pieces[old_row].body, new)
    return CacheEnd(
        row=row,
        byte=byte,
        marks=rebuilt.body.count(_CACHE_MARK),
        bytes=len(rebuilt.body),
        exact=rebuilt.exact,
    )
