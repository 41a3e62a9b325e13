"""A recorded request, message by message: outcomes, the bytes that the client sent, the bytes that
Recollect sent, and where the provider's cache ends. Bodies are read only to show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from recollect.core.engine.rebuild import is_reconstructed
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
from recollect.core.values.segment import SegmentId
from recollect.errors import FormatError, RecollectError
from recollect.hosts.inspect.turns import (
    MessageFate,
    all_words,
    excerpt_of,
    format_around,
    format_block,
    format_excerpt,
    name_message,
    tool_names,
    words_of,
)

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.values.batch import PieceHash, RebuiltTurn
    from recollect.core.values.segment import Segment

# Not measured: bounds the bodies in RAM, and the text of one side of a diff on a page.
_BODIES_PER_QUERY: Final = 400
_CONTEXT_CHARS: Final = 160
_CHANGED_CHARS: Final = 700
_JOIN_CAUSES: Final = frozenset({Cause.WITH_NEIGHBOR, Cause.SAME_ROLE})
CACHE_MARK: Final = b'"cache_control"'
_kept_message: Final = partial(
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

    @property
    def is_prompt(self) -> bool:
        """True if a hook recorded the turn: Recollect never saw the agent's own request."""
        return is_reconstructed(self.report)

    def row_of(self, message: MessageFate) -> PieceHash | None:
        """Return the stored row of a message; None if the message was not sent."""
        rows = self.rebuilt.rows
        return rows[message.row] if message.row is not None and message.row < len(rows) else None

    def choose_messages(self, show: str) -> list[MessageFate]:
        """Choose messages: all, edited, new, or those with one outcome."""
        if show == "all":
            return list(self.messages)
        if show == "new":
            return [message for message in self.messages if message.is_new]
        other_fate = "kept" if show == "edited" else ""
        return [
            message
            for message in self.messages
            if message.fate == show or other_fate not in ("", message.fate)
        ]


async def read_turn(store: Store, session: str, number: int) -> TurnRequest:
    """Read a turn from the ledger. Raise RecollectError if the ledger lacks the turn."""
    rebuilt = await store.turn(session, number)
    if rebuilt is None:
        raise RecollectError(f"turn {number} of this session is not in the ledger")
    record = rebuilt.record
    names = [name for name in (record.report, *record.outcomes) if name is not None]
    pieces = await store.pieces(names)
    report: dict[str, Any] = {}
    changes = OutcomeChanges()
    with suppress(FormatError):  # the request itself is still readable
        if record.report is not None and record.report in pieces:
            report = read_report(pieces[record.report].body, changes)
            outcome_bodies = [pieces[name].body for name in record.outcomes if name in pieces]
            changes = combine_outcomes([read_outcomes(body) for body in outcome_bodies])
    earlier = [turn_number for turn_number in await store.turns(session) if turn_number < number]
    previous = await store.turn(session, earlier[-1]) if earlier else None
    before = frozenset(() if previous is None else previous.rows)
    stored_figures = report.get("figures")
    figures = None if stored_figures is None else TurnFigures.from_dict(stored_figures)
    ratio = float(report.get("calibration_ratio") or 1.0)
    is_new_row = [row not in before for row in rebuilt.rows]
    return TurnRequest(
        session=session,
        rebuilt=rebuilt,
        report=report,
        figures=figures,
        ratio=ratio,
        messages=tuple(_pair_messages(changes, figures, is_new_row, ratio)),
    )


def _pair_messages(
    changes: OutcomeChanges, figures: TurnFigures | None, is_new_row: Sequence[bool], ratio: float
) -> Iterable[MessageFate]:
    """Pair the received messages with the sent rows. The ledger records outcomes only for changed
    or omitted messages, and for added rows, each with the place of the message before it."""

    def fate_at(fate: Fate, row: int | None) -> MessageFate:
        return MessageFate(
            number=None if fate.place is None else fate.place + 1,
            role=fate.role,
            fate=fate.fate,
            reasons=fate.reasons[-1:] if fate.fate == "left out" else fate.reasons,
            tokens_before=round(fate.tokens_before * ratio),
            tokens_after=round(fate.tokens_after * ratio),
            key=fate.key,
            row=row,
            is_new=row is not None and row < len(is_new_row) and is_new_row[row],
        )

    outcomes = {fate.place: fate for fate in sort_outcomes(changes)}
    added: dict[int, list[Fate]] = {}
    for position, own_fate in changes.own_outcomes:
        added.setdefault(position, []).append(own_fate)
    unsent = sum(fate.fate != "changed" for fate in changes.fates.values())
    unsent -= len(changes.own_outcomes)
    count = figures.messages if figures is not None else len(is_new_row) + unsent
    merges = count - unsent - len(is_new_row)
    row, was_changed = 0, False
    for position in range(-1, count):
        outcome = outcomes.get(position)
        if outcome is None and position >= 0:
            yield _kept_message(
                number=position + 1, row=row, is_new=row < len(is_new_row) and is_new_row[row]
            )
            row, was_changed = row + 1, False
        elif outcome is not None and outcome.fate == "changed":
            causes = {reason.cause for reason in outcome.reasons}
            joined = merges > 0 and was_changed and not causes.isdisjoint(_JOIN_CAUSES)
            merges -= joined
            yield fate_at(outcome, row - joined)
            row, was_changed = row + (not joined), True
        elif outcome is not None:
            yield fate_at(outcome, None)
        for own_fate in added.get(position, ()):
            yield fate_at(own_fate, row)
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
    same_count: int
    """Number of unchanged messages before this message."""
    before: Side | None
    after: Side | None
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
        self, messages: Sequence[MessageFate]
    ) -> tuple[dict[PieceHash | None, bytes], dict[str | None, Segment]]:
        """Return the sent bytes by row, and the stored messages by key."""
        rows = [row for message in messages if (row := self._turn.row_of(message)) is not None]
        pieces = await self._store.pieces(rows)
        keys = [message.key for message in messages if message.key is not None]
        ids = [segment_id(self._turn.session, key) for key in keys]
        stored_segments = await self._store.segments(ids) if ids else ()
        bodies: dict[PieceHash | None, bytes] = {row: piece.body for row, piece in pieces.items()}
        return bodies, {stored.segment.key: stored.segment for stored in stored_segments}

    async def with_excerpts(
        self, messages: Sequence[MessageFate], words: str = ""
    ) -> list[MessageFate]:
        """Return these messages with their first words, or with the text around `words`."""
        bodies, segments = await self._read(messages)
        read_messages = {row: self._codec.read(body) for row, body in bodies.items()}
        tools = tool_names(read_messages.values())
        shown_messages = []
        for fate in messages:
            message, segment = read_messages.get(self._turn.row_of(fate)), segments.get(fate.key)
            title, excerpt, size = fate.role or "message", "(no longer stored)", fate.tokens_after
            if segment is not None:
                is_result = segment.role == "tool" and segment.tool
                title = f"{segment.tool} result" if is_result else segment.role
                excerpt = format_excerpt(segment.text)
            elif message is not None:
                title = "Recollect" if fate.fate == "inserted" else name_message(message, tools)
                excerpt = excerpt_of(message.parts)
            if words:
                texts = ["" if segment is None else segment.text]
                texts += [] if message is None else [all_words(message.parts)]
                hits = (text for text in texts if words.casefold() in text.casefold())
                excerpt = format_around(next(hits, excerpt), words)
            if fate.fate == "kept" and message is not None:
                size = round(self._weigher.message(message.parts) * self._turn.ratio)
            id_, title = None if segment is None else segment.id, format_excerpt(title, 40)
            shown_messages.append(
                replace(fate, what=title, excerpt=excerpt, tokens_after=size, segment=id_)
            )
        return shown_messages

    async def containing(self, messages: Sequence[MessageFate], words: str) -> list[MessageFate]:
        """Return the given messages that contain these words, ignoring case."""
        lowercase_words, matches = words.casefold(), []
        for start in range(0, len(messages), _BODIES_PER_QUERY):
            part = messages[start : start + _BODIES_PER_QUERY]
            bodies, segments = await self._read(part)
            for message in part:
                body, segment = bodies.get(self._turn.row_of(message)), segments.get(message.key)
                text = "" if segment is None else segment.text
                if body is not None:
                    text += "\n" + all_words(self._codec.read(body).parts)
                if lowercase_words in text.casefold():
                    matches.append(message)
        return matches

    async def row_of(self, segment: Segment) -> int | None:
        """Return the row of a message that was sent unchanged; None if there is none."""
        names = frozenset(await self._store.quoting([segment.message_id]))
        kept_messages = [message for message in self._turn.messages if message.fate == "kept"]
        return next(
            (message.row for message in kept_messages if self._turn.row_of(message) in names), None
        )

    async def text_of_row(self, row: int) -> str:
        """Return the text of a sent row, with all parts; empty if the row is missing."""
        name = self._turn.rebuilt.rows[row : row + 1]
        pieces = await self._store.pieces(name)
        bodies = [self._codec.read(piece.body).parts for piece in pieces.values()]
        return "\n\n".join(words_of(part) for parts in bodies for part in parts)

    async def diffs(self, messages: Sequence[MessageFate]) -> list[Diff]:
        """Compare what the client sent with what was sent."""
        bodies, segments = await self._read(messages)
        originals = await self._originals(segments.values())
        same_count, same_before = 0, dict[int, int]()
        for message in self._turn.messages:
            same_before[id(message)] = same_count
            same_count = same_count + 1 if message.fate == "kept" else 0
        diffs = []
        for message, shown in zip(messages, await self.with_excerpts(messages), strict=True):
            original, segment = originals.get(message.key), segments.get(message.key)
            is_text = original is None and segment is not None
            if original is None and segment is not None:
                original = segment.text.encode()
            before, after = compare_bytes(original, bodies.get(self._turn.row_of(message)))
            same = same_before[id(message)]
            diffs.append(
                Diff(message=shown, same_count=same, before=before, after=after, is_text=is_text)
            )
        return diffs

    async def _originals(self, segments: Iterable[Segment]) -> dict[str | None, bytes]:
        """Return the bytes of messages as an earlier request contained them, by key."""
        segment_by_message = {segment.message_id: segment for segment in segments}
        sent_rows = frozenset(self._turn.rebuilt.rows)
        rows = await self._store.quoting(list(segment_by_message)) if segment_by_message else ()
        earlier_rows = [row for row in rows if row not in sent_rows]
        body_by_key: dict[str | None, bytes] = {}
        for start in range(0, len(earlier_rows), _BODIES_PER_QUERY):
            pieces = await self._store.pieces(earlier_rows[start : start + _BODIES_PER_QUERY])
            for piece in pieces.values():
                segment = segment_by_message.get(piece.about[0]) if piece.about else None
                if segment is None or len(piece.body) <= len(body_by_key.get(segment.key, b"")):
                    continue
                words = all_words(self._codec.read(piece.body).parts)
                # with a mark of its own, the piece is a block that quotes the message
                if not any(mark in words and mark not in segment.text for mark in OWN_MARKS):
                    body_by_key[segment.key] = piece.body
        return body_by_key


async def list_recalled(store: Store, turn: TurnRequest) -> list[tuple[float, Segment | None]]:
    """Return the recalled messages of a turn by score, best first; None for a removed message."""
    scores = {SegmentId(id_): float(score) for id_, score, *_ in turn.report.get("recalled") or ()}
    stored_segments = await store.segments(list(scores))
    segments = {stored.segment.id: stored.segment for stored in stored_segments}
    return [
        (scores[id_], segments.get(id_)) for id_ in sorted(scores, key=lambda id_: -scores[id_])
    ]


def compare_bytes(
    old_body: bytes | None, new_body: bytes | None
) -> tuple[Side | None, Side | None]:
    """Compare two versions of a message, and mark the changed span of each. Pass None for a missing
    version, whose side is then None."""
    was, now = ((side or b"").decode("utf-8", "replace") for side in (old_body, new_body))
    start = _same_start(was, now)
    end = _same_start(was[start:][::-1], now[start:][::-1])
    return _side(old_body, was, start, end), _side(new_body, now, start, end)


def _same_start(first: str | bytes, second: str | bytes) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next(
        (index for index, (old_item, new_item) in pairs if old_item != new_item),
        min(len(first), len(second)),
    )


def _side(raw: bytes | None, text: str, start: int, end: int) -> Side | None:
    if raw is None:
        return None
    head, tail = text[:start], text[len(text) - end :]
    before = ("… " if len(head) > _CONTEXT_CHARS else "") + head[-_CONTEXT_CHARS:]
    after = tail[:_CONTEXT_CHARS] + (" …" if len(tail) > _CONTEXT_CHARS else "")
    return Side(
        start=format_block(before, 2 * _CONTEXT_CHARS),
        middle=format_block(text[start : len(text) - end], _CHANGED_CHARS),
        end=format_block(after, 2 * _CONTEXT_CHARS),
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
    new_row, old_row = rows[row], earlier.rows[row]
    pieces = await store.pieces([new_row, old_row])
    if new_row not in pieces or old_row not in pieces:
        return row, None
    offset = body.find(pieces[new_row].body)
    return row, None if offset < 0 else offset + _same_start(
        pieces[old_row].body, pieces[new_row].body
    )
