"""Rebuilds the request of a past turn from the ledger, byte for byte.

Owns what stands for a piece that is gone. Must never guess: what was redacted stands masked, what
was forgotten or has expired stands as a mark, and `exact` says whether there is any of either.
What always holds: the result is JSON; the same ledger gives the same bytes.

"Byte for byte" means, for a caller who hands over an HTTP body, the body that `prepare` gave back.
A caller who hands over a mapping sends it through a client library, which writes bytes we never
see; there it means the mapping as compact JSON (no white space, keys in their order, UTF-8), so
that decoding it gives the request that `prepare` gave back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from recollect.errors import FormatError
from recollect.formats.codec import CODECS
from recollect.formats.json_spans import encode
from recollect.formats.request import fill_frame
from recollect.ports import Ledger
from recollect.turn.query import spoken_text
from recollect.values.history import SessionId
from recollect.values.ledger import Piece, PieceHash, RebuiltTurn, TurnRecord
from recollect.values.request import FormatName

GONE = encode({"recollect": "this message is no longer kept: it was forgotten or has expired"})
"""Stands where a message was."""
GONE_PART = encode("\0recollect: no longer kept")
"""Stands where the system prompt or the tools were."""
_ROWS_AT_ONCE = 8
_OWN_KEY = {"openai-responses": "input"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A request as it was sent, as far as it is still kept."""

    body: bytes = field(repr=False)
    exact: bool
    """Nothing in it was redacted, forgotten or has expired: it is what was sent."""
    missing: tuple[str, ...] = ()
    """What is no longer kept: "message 3 of 12", "system prompt", "tools", "parameters"."""
    redacted: tuple[str, ...] = ()
    """What stands in it with its secrets masked, named alike."""
    record: TurnRecord
    report: bytes | None = field(default=None, repr=False)
    """What was done in the turn and why, as JSON; None where it is no longer kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRebuilt:
    """The ledger does not know this turn, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurn:
    """A turn of the ledger, and by what the user knows it."""

    turn: int
    at: float
    said: str = field(repr=False)
    """The user's newest words in it, as they are kept: masked; empty where they are gone."""
    asked_by: PieceHash | None = None
    """The row with these words: turns that share it answer the same message."""


async def kept_turns(store: Ledger, session: SessionId) -> tuple[KeptTurn, ...]:
    """The turns of a session that are kept, in their order."""
    known: dict[PieceHash, str] = {}
    found = [await _kept(store, session, number, known) for number in await store.turns(session)]
    return tuple(turn for turn in found if turn is not None)


async def _kept(
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
            if said := known.get(name):
                return KeptTurn(turn=number, at=turn.record.at, said=said, asked_by=name)
    return KeptTurn(turn=number, at=turn.record.at, said="")


async def rebuild_request(store: Ledger, session: SessionId, number: int) -> Rebuilt | NotRebuilt:
    """The request of turn `number` of a session."""
    turn = await store.turn(session, number)
    if turn is None:
        return NotRebuilt(reason=await _why_not(store, session, number))
    record = turn.record
    names = [*turn.rows, record.rest, record.system, record.tools, record.report]
    pieces = await store.pieces(list(dict.fromkeys(name for name in names if name)))
    return _joined(turn, dict(pieces))


async def _why_not(store: Ledger, session: SessionId, number: int) -> str:
    kept = await store.turns(session)
    if not kept:
        return "no turn of this session is in the ledger"
    if number in kept:
        return f"turn {number} is in the ledger, but what it rests on is not"
    return f"turn {number} is not in the ledger; it holds {len(kept)}: {kept[0]} to {kept[-1]}"


def _joined(turn: RebuiltTurn, pieces: dict[PieceHash, Piece]) -> Rebuilt:
    missing: list[str] = []
    redacted: list[str] = []

    def body(name: PieceHash, called: str, stand_in: bytes) -> bytes:
        piece = pieces.get(name)
        if piece is None:
            missing.append(called)
            return stand_in
        if not piece.exact:
            redacted.append(called)
        return piece.body

    record, count = turn.record, len(turn.rows)
    system = None if record.system is None else body(record.system, "system prompt", GONE_PART)
    tools = None if record.tools is None else body(record.tools, "tools", GONE_PART)
    rows = [
        body(name, f"message {at} of {count}", GONE) for at, name in enumerate(turn.rows, start=1)
    ]
    frame = b"" if record.rest is None else body(record.rest, "parameters", b"")
    try:
        filled = fill_frame(frame, rows, system=system, tools=tools)
    except FormatError:  # the frame itself is gone: what is left of the request is shown
        if "parameters" not in missing:
            missing.append("parameters")
        filled = _without_frame(record, rows, system, tools)
    return Rebuilt(
        body=filled,
        exact=not missing and not redacted,
        missing=tuple(missing),
        redacted=tuple(redacted),
        record=record,
        report=None if (told := pieces.get(record.report or PieceHash(""))) is None else told.body,
    )


def _without_frame(
    record: TurnRecord, rows: list[bytes], system: bytes | None, tools: bytes | None
) -> bytes:
    fields = [encode(_OWN_KEY.get(record.format, "messages")) + b":[" + b",".join(rows) + b"]"]
    if system is not None:
        fields.append(b'"system":' + system)
    if tools is not None:
        fields.append(b'"tools":' + tools)
    return b"{" + b",".join(fields) + b"}"
