"""A recorded request, message by message: outcomes, the bytes that the client sent, the bytes that
Recollect sent, and where the provider's cache ends. Bodies are read only to show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from recollect.core.formats.codec import CODECS
from recollect.core.formats.turn_records import (
    OutcomeChanges,
    combine_outcomes,
    read_outcomes,
    read_report,
    sort_outcomes,
)
from recollect.core.rules.identity import segment_id
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.query import OWN_MARKS
from recollect.core.turn.token_kinds import TurnFigures
from recollect.core.values.model import FormatName
from recollect.core.values.reason import Cause
from recollect.core.values.report import Fate
from recollect.errors import FormatError, RecollectError
from recollect.hosts.inspect.turns import (
    MessageFate,
    all_words,
    excerpt_of,
    name_message,
    shown_around,
    shown_block,
    shown_text,
    tool_names,
    words_of,
)

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.values.batch import PieceHash, RebuiltTurn
    from recollect.core.values.segment import Segment, SegmentId, StoredSegment

# Not measured: bounds the bodies in RAM, and the text of one side of a diff on a page.
_AT_ONCE: Final = 400
_AROUND_CHARS: Final = 160
_CHANGED_CHARS: Final = 700
_JOINED: Final = frozenset({Cause.WITH_NEIGHBOR, Cause.SAME_ROLE})
CACHE_MARK: Final = b'"cache_control"'
_KEPT: Final = partial(
    MessageFate, role="", fate="kept", reasons=(), tokens_before=0, tokens_after=0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A turn as the ledger has it."""

    session: str
    rebuilt: RebuiltTurn = field(repr=False)
    report: Mapping[str, Any] = field(repr=False)
    figures: TurnFigures | None
    ratio: float
    """Factor that calibrates the estimated tokens of single messages."""
    messages: tuple[MessageFate, ...] = field(repr=False)

    @property
    def turn(self) -> int:
        return self.rebuilt.record.number

    def row_of(self, one: MessageFate) -> PieceHash | None:
        """Return the stored row of a message; None if the message was not sent."""
        rows = self.rebuilt.rows
        return rows[one.row] if one.row is not None and one.row < len(rows) else None

    def chosen(self, show: str) -> list[MessageFate]:
        """Choose messages: all, edited, new, or those with one outcome."""
        if show == "all":
            return list(self.messages)
        if show == "new":
            return [one for one in self.messages if one.is_new]
        other = "kept" if show == "edited" else ""
        return [one for one in self.messages if one.fate == show or other not in ("", one.fate)]


async def recorded_turn(store: Store, session: str, number: int) -> TurnRequest:
    """Read a turn from the ledger. Raise RecollectError if the ledger lacks the turn."""
    rebuilt = await store.turn(session, number)
    if rebuilt is None:
        raise RecollectError(f"turn {number} of this session is not in the ledger")
    record = rebuilt.record
    names = [name for name in (record.report, *record.outcomes) if name is not None]
    pieces = await store.pieces(names)
    report: dict[str, Any] = {}
    made = OutcomeChanges()
    with suppress(FormatError):  # the request itself is still readable
        if record.report is not None and record.report in pieces:
            report = read_report(pieces[record.report].body, made)
            known = [pieces[name].body for name in record.outcomes if name in pieces]
            made = combine_outcomes([read_outcomes(body) for body in known])
    earlier = [one for one in await store.turns(session) if one < number]
    previous = await store.turn(session, earlier[-1]) if earlier else None
    before = frozenset(() if previous is None else previous.rows)
    stored = report.get("figures")
    figures = None if stored is None else TurnFigures.from_dict(stored)
    ratio = float(report.get("calibration_ratio") or 1.0)
    new = [row not in before for row in rebuilt.rows]
    return TurnRequest(
        session=session,
        rebuilt=rebuilt,
        report=report,
        figures=figures,
        ratio=ratio,
        messages=tuple(_placed(made, figures, new, ratio)),
    )


def _placed(
    made: OutcomeChanges, figures: TurnFigures | None, new: Sequence[bool], ratio: float
) -> Iterable[MessageFate]:
    """Pair the received messages with the sent rows. The ledger records outcomes only for changed
    or omitted messages, and for added rows, each with the place of the message before it."""

    def found(fate: Fate, row: int | None) -> MessageFate:
        return MessageFate(
            number=None if fate.place is None else fate.place + 1,
            role=fate.role,
            fate=fate.fate,
            reasons=fate.reasons[-1:] if fate.fate == "left out" else fate.reasons,
            tokens_before=round(fate.tokens_before * ratio),
            tokens_after=round(fate.tokens_after * ratio),
            key=fate.key,
            row=row,
            is_new=row is not None and row < len(new) and new[row],
        )

    outcomes = {one.place: one for one in sort_outcomes(made)}
    added: dict[int, list[Fate]] = {}
    for place, one in made.own_outcomes:
        added.setdefault(place, []).append(one)
    unsent = sum(one.fate != "changed" for one in made.fates.values()) - len(made.own_outcomes)
    count = figures.messages if figures is not None else len(new) + unsent
    merges = count - unsent - len(new)
    row, was_changed = 0, False
    for place in range(-1, count):
        outcome = outcomes.get(place)
        if outcome is None and place >= 0:
            yield _KEPT(number=place + 1, row=row, is_new=row < len(new) and new[row])
            row, was_changed = row + 1, False
        elif outcome is not None and outcome.fate == "changed":
            causes = {reason.cause for reason in outcome.reasons}
            joined = merges > 0 and was_changed and not causes.isdisjoint(_JOINED)
            merges -= joined
            yield found(outcome, row - joined)
            row, was_changed = row + (not joined), True
        elif outcome is not None:
            yield found(outcome, None)
        for one in added.get(place, ()):
            yield found(one, row)
            row, was_changed = row + 1, False


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
    """A message that was changed, omitted or added: its bytes before and after."""

    message: MessageFate
    same: int
    """Number of unchanged messages before this message."""
    left: Side | None
    right: Side | None
    is_text: bool = False
    """True if no recorded request has the original bytes: the left side is the stored text."""


class RequestReader:
    """Reads the bodies of one turn's messages."""

    def __init__(self, store: Store, turn: TurnRequest) -> None:
        self._store = store
        self._turn = turn
        self._codec = CODECS[cast("FormatName", turn.rebuilt.record.format)]
        self._weigher = Weigher()

    async def _read(
        self, chosen: Sequence[MessageFate]
    ) -> tuple[dict[PieceHash | None, bytes], dict[str | None, StoredSegment]]:
        """Return the sent bytes by row, and the stored messages by key."""
        names = [row for one in chosen if (row := self._turn.row_of(one)) is not None]
        pieces = await self._store.pieces(names)
        ids = [segment_id(self._turn.session, one.key) for one in chosen if one.key is not None]
        stored = await self._store.segments(ids) if ids else ()
        bodies: dict[PieceHash | None, bytes] = {name: one.body for name, one in pieces.items()}
        return bodies, {one.segment.key: one for one in stored}

    async def shown(self, chosen: Sequence[MessageFate], words: str = "") -> list[MessageFate]:
        """Return these messages with their first words, or with the text around `words`."""
        bodies, stored = await self._read(chosen)
        read = {name: self._codec.read(body) for name, body in bodies.items()}
        called = tool_names(read.values())
        found = []
        for one in chosen:
            message, own = read.get(self._turn.row_of(one)), stored.get(one.key)
            what, excerpt, size = one.role or "message", "(no longer stored)", one.tokens_after
            if own is not None:
                tool = own.segment.tool if own.segment.role == "tool" else None
                what = f"{tool} result" if tool else own.segment.role
                excerpt = shown_text(own.segment.text)
            elif message is not None:
                what = "Recollect" if one.fate == "inserted" else name_message(message, called)
                excerpt = excerpt_of(message.parts)
            if words:
                texts = ["" if own is None else own.segment.text]
                texts += [] if message is None else [all_words(message.parts)]
                hits = (text for text in texts if words.casefold() in text.casefold())
                excerpt = shown_around(next(hits, excerpt), words)
            if one.fate == "kept" and message is not None:
                size = round(self._weigher.message(message.parts) * self._turn.ratio)
            segment = None if own is None else own.segment.id
            what = shown_text(what, 40)
            found.append(
                replace(one, what=what, excerpt=excerpt, tokens_after=size, segment=segment)
            )
        return found

    async def containing(self, chosen: Sequence[MessageFate], words: str) -> list[MessageFate]:
        """Return the given messages that contain these words, ignoring case."""
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

    async def row_of(self, segment: Segment) -> int | None:
        """Return the row of a message that was sent unchanged; None if there is none."""
        names = frozenset(await self._store.quoting([segment.message_id]))
        kept = [one for one in self._turn.messages if one.fate == "kept"]
        return next((one.row for one in kept if self._turn.row_of(one) in names), None)

    async def sent_text(self, row: int) -> str:
        """Return the text of a sent row, with all parts; empty if the row is missing."""
        name = self._turn.rebuilt.rows[row : row + 1]
        pieces = await self._store.pieces(name)
        bodies = [self._codec.read(one.body).parts for one in pieces.values()]
        return "\n\n".join(words_of(part) for parts in bodies for part in parts)

    async def diffs(self, chosen: Sequence[MessageFate]) -> list[Diff]:
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
            same = before[id(one)]
            found.append(Diff(message=shown, same=same, left=left, right=right, is_text=is_text))
        return found

    async def _originals(
        self, stored: Mapping[str | None, StoredSegment]
    ) -> dict[str | None, bytes]:
        """Return the bytes of messages as an earlier request contained them, by key."""
        known = {one.segment.message_id: one.segment for one in stored.values()}
        now = frozenset(self._turn.rebuilt.rows)
        names = [name for name in await self._store.quoting(list(known)) if name not in now]
        found: dict[str | None, bytes] = {}
        for at in range(0, len(names) if known else 0, _AT_ONCE):
            for piece in (await self._store.pieces(names[at : at + _AT_ONCE])).values():
                own = known.get(piece.about[0]) if piece.about else None
                if own is None or len(piece.body) <= len(found.get(own.key, b"")):
                    continue
                words = all_words(self._codec.read(piece.body).parts)
                if not any(mark in words and mark not in own.text for mark in OWN_MARKS):
                    found[own.key] = piece.body  # else the piece is a block that quotes it
        return found


async def recalled_messages(store: Store, turn: TurnRequest) -> list[tuple[float, Segment | None]]:
    """Return the recalled messages of a turn by score, best first; None for a removed message."""
    scores = {cast("SegmentId", one[0]): float(one[1]) for one in turn.report.get("recalled") or ()}
    stored = {one.segment.id: one.segment for one in await store.segments(list(scores))}
    ranked = sorted(scores.items(), key=lambda one: -one[1])
    return [(score, stored.get(id_)) for id_, score in ranked]


def compare_bytes(left: bytes | None, right: bytes | None) -> tuple[Side | None, Side | None]:
    """Compare two versions of a message, and mark the changed span of each. Pass None for a missing
    version, whose side is then None."""
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
        cache_mark=CACHE_MARK in raw,
    )


async def cache_end(store: Store, turn: TurnRequest, body: bytes) -> tuple[int | None, int | None]:
    """Find where a request differs from the previous one, which the provider has cached. Return the
    first changed row, and the place of its first changed byte in `body`; None for each if unknown,
    or if the cache is not broken."""
    rows, figures = turn.rebuilt.rows, turn.figures
    if figures is None or not figures.breaks_cache or figures.same >= len(rows):
        return None, None
    row, earlier = figures.same, await store.turn(turn.session, turn.turn - 1)
    if earlier is None or row >= len(earlier.rows):
        return row, None
    now, old = rows[row], earlier.rows[row]
    pieces = await store.pieces([now, old])
    if now not in pieces or old not in pieces:
        return row, None
    at = body.find(pieces[now].body)
    return row, None if at < 0 else at + _same_start(pieces[old].body, pieces[now].body)
