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

from recollect.errors import FormatError
from recollect.formats.json_spans import encode
from recollect.formats.request import fill_frame
from recollect.ports import Ledger
from recollect.values.history import SessionId
from recollect.values.ledger import Piece, PieceHash, RebuiltTurn, TurnRecord

GONE = encode({"recollect": "this message is no longer kept: it was forgotten or has expired"})
"""Stands where a message was."""
GONE_PART = encode("\0recollect: no longer kept")
"""Stands where the system prompt or the tools were."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRebuilt:
    """The ledger does not know this turn, and why."""

    reason: str


async def rebuild_request(store: Ledger, session: SessionId, number: int) -> Rebuilt | NotRebuilt:
    """The request of turn `number` of a session."""
    turn = await store.turn(session, number)
    if turn is None:
        return NotRebuilt(reason=await _why_not(store, session, number))
    record = turn.record
    names = [*turn.rows, record.rest, record.system, record.tools]
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
