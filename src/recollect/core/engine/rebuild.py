"""Rebuild past requests and reports from the ledger: byte for byte if every piece is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.request import fill_frame
from recollect.core.formats.turn_records import combine_outcomes, read_outcomes, read_report
from recollect.core.ports import Ledger
from recollect.core.turn.query import spoken_text
from recollect.core.values.batch import LedgerPiece, PieceHash, RebuiltTurn, TurnRecord, piece_hash
from recollect.core.values.history import SessionId
from recollect.core.values.model import FormatName
from recollect.core.values.report import AGENTS_OWN_WINDOW_TOKENS
from recollect.errors import FormatError

GONE = encode({"recollect": "this message is no longer stored: it was forgotten or has expired"})
GONE_PART = encode("\0recollect: no longer kept")
_ROWS_AT_ONCE = 8
"""Not measured; the user's newest message is usually among the last rows."""
_OWN_KEY = {"openai-responses": "input"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A past request, rebuilt from stored pieces."""

    body: bytes = field(repr=False)
    exact: bool
    missing: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()
    """Parts in which a secret was masked, or whose stored bytes have changed."""
    record: TurnRecord
    report: bytes | None = field(default=None, repr=False)

    @property
    def is_reconstructed(self) -> bool:
        """True if a hook recorded the turn: Recollect never saw the agent's own request."""
        return self.report is not None and is_reconstructed(decode(self.report))


def is_reconstructed(report: Mapping[str, Any]) -> bool:
    """Return whether a hook recorded the turn of a stored report."""
    return int(report.get("window_tokens") or 0) >= AGENTS_OWN_WINDOW_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRebuilt:
    """Reason why a turn cannot be rebuilt."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurn:
    """A turn in the ledger, with its time and the user's message."""

    turn: int
    at: float
    said: str = field(repr=False)
    asked_by: PieceHash | None = None


async def list_turns(store: Ledger, session: SessionId) -> tuple[KeptTurn, ...]:
    known: dict[PieceHash, str] = {}
    turns = [
        await _read_turn(store, session, number, known) for number in await store.turns(session)
    ]
    return tuple(turn for turn in turns if turn is not None)


async def _read_turn(
    store: Ledger, session: SessionId, number: int, known: dict[PieceHash, str]
) -> KeptTurn | None:
    turn = await store.turn(session, number)
    if turn is None:
        return None
    codec = CODECS[cast(FormatName, turn.record.format)]
    for end in range(len(turn.rows), 0, -_ROWS_AT_ONCE):
        names = turn.rows[max(0, end - _ROWS_AT_ONCE) : end]
        pieces = await store.pieces([name for name in names if name not in known])
        for name, piece in dict(pieces).items():
            message = codec.read(piece.body)
            known[name] = spoken_text(message) if message.role == "user" else ""
        for name in reversed(names):
            if text := known.get(name):
                return KeptTurn(turn=number, at=turn.record.at, said=text, asked_by=name)
    return KeptTurn(turn=number, at=turn.record.at, said="")


async def rebuild_request(store: Ledger, session: SessionId, number: int) -> Rebuilt | NotRebuilt:
    turn = await store.turn(session, number)
    if turn is None:
        return NotRebuilt(reason=await _why_not(store, session, number))
    record = turn.record
    names = [*turn.rows, record.rest, record.system, record.tools, record.report, *record.outcomes]
    pieces = await store.pieces(list(dict.fromkeys(name for name in names if name)))
    return _join_pieces(turn, dict(pieces))


async def _why_not(store: Ledger, session: SessionId, number: int) -> str:
    turn_numbers = await store.turns(session)
    if not turn_numbers:
        return "no turn of this session is in the ledger"
    if number in turn_numbers:
        return (
            f"turn {number} is in the ledger, but some messages that it needs are no longer stored"
        )
    known_turns = f"{len(turn_numbers)} turns: {turn_numbers[0]} to {turn_numbers[-1]}"
    return f"turn {number} is not in the ledger, which has {known_turns}"


def _join_pieces(turn: RebuiltTurn, pieces: dict[PieceHash, LedgerPiece]) -> Rebuilt:
    missing_parts: list[str] = []
    redacted_parts: list[str] = []

    def body(name: PieceHash, part_name: str, stand_in: bytes) -> bytes:
        piece = pieces.get(name)
        if piece is None:
            missing_parts.append(part_name)
            return stand_in
        if not piece.exact or piece_hash(piece.kind, piece.body) != name:
            redacted_parts.append(part_name)
        return piece.body

    record, count = turn.record, len(turn.rows)
    system = None if record.system is None else body(record.system, "system prompt", GONE_PART)
    tools = None if record.tools is None else body(record.tools, "tools", GONE_PART)
    rows = [
        body(name, f"message {index} of {count}", GONE)
        for index, name in enumerate(turn.rows, start=1)
    ]
    frame = b"" if record.rest is None else body(record.rest, "parameters", b"")
    try:
        body_bytes = fill_frame(frame, rows, system=system, tools=tools)
    except FormatError:  # the parameters are not stored: return only the messages
        if "parameters" not in missing_parts:
            missing_parts.append("parameters")
        body_bytes = _without_frame(record, rows, system, tools)
    # Outcomes may be missing, because they are not part of the request.
    exact = not missing_parts and not redacted_parts
    if _lacks_outcomes(record, pieces):
        missing_parts.append("outcomes")
    return Rebuilt(
        body=body_bytes,
        exact=exact,
        missing=tuple(missing_parts),
        redacted=tuple(redacted_parts),
        record=record,
        report=_report_of(record, pieces),
    )


def _report_of(record: TurnRecord, pieces: Mapping[PieceHash, LedgerPiece]) -> bytes | None:
    """Return the report of a turn as JSON, with all outcomes or none; None if it is unreadable."""
    piece = pieces.get(record.report or PieceHash(""))
    if piece is None:
        return None
    try:
        outcome_names = [] if _lacks_outcomes(record, pieces) else record.outcomes
        outcomes = combine_outcomes([read_outcomes(pieces[name].body) for name in outcome_names])
        return encode(read_report(piece.body, outcomes))
    except FormatError:
        return None


def _lacks_outcomes(record: TurnRecord, pieces: Mapping[PieceHash, LedgerPiece]) -> bool:
    return any(name not in pieces for name in record.outcomes)


def _without_frame(
    record: TurnRecord, rows: list[bytes], system: bytes | None, tools: bytes | None
) -> bytes:
    fields = [encode(_OWN_KEY.get(record.format, "messages")) + b":[" + b",".join(rows) + b"]"]
    if system is not None:
        fields.append(b'"system":' + system)
    if tools is not None:
        fields.append(b'"tools":' + tools)
    return b"{" + b",".join(fields) + b"}"
