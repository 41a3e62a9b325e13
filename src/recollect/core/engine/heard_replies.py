"""Which session received a reply, so that a host whose clients name no session finds it again.

The host makes the marks, keyed hashes of a history and its reply. Each is stored in the same
batch as the reply itself, as a piece of the ledger that no turn names. A mark holds no content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from recollect.core.formats.json_text import decode, encode
from recollect.core.ports import Store
from recollect.core.values.batch import LedgerPiece, PieceHash
from recollect.core.values.history import SessionId
from recollect.core.values.message import Message
from recollect.errors import FormatError

MarkReply: TypeAlias = Callable[[Sequence[Message]], Sequence[str]]
"""Given the messages of a reply, the marks by which its session is to be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardReply:
    """The session that received a reply, and the turn that the reply answered."""

    session: SessionId
    turn: int


def heard_pieces(marks: Sequence[str], heard: HeardReply) -> tuple[LedgerPiece, ...]:
    """What to store so that `find_sessions` finds the session by these marks."""
    body = encode({"session": heard.session, "turn": heard.turn})
    return tuple(LedgerPiece(hash=_name(mark), kind="heard", body=body) for mark in marks)


async def find_sessions(store: Store, marks: Sequence[str]) -> Mapping[str, HeardReply]:
    """The sessions that are stored under these marks; unknown marks are left out."""
    names = {_name(mark): mark for mark in marks}
    found: dict[str, HeardReply] = {}
    for name, piece in (await store.pieces(list(names))).items():
        try:
            body = decode(piece.body)
            found[names[name]] = HeardReply(session=str(body["session"]), turn=int(body["turn"]))
        except (FormatError, KeyError, TypeError, ValueError):
            continue
    return found


def _name(mark: str) -> PieceHash:
    return PieceHash(blake2b(mark.encode(), digest_size=16, person=b"heard").hexdigest())
