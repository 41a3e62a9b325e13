"""Keyed marks in the ledger, as pieces that no turn names and that hold no content.

`ToldAnswers`: the messages that an answer of a memory tool quotes. One process gives the answer,
another sees it come back: forgetting a quoted message must reach what the ledger keeps of it. A
mark outlives what is forgotten, because a client may send the answer again.
`find_sessions`: the session that received a reply, for a host whose clients name no session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from recollect.core.boundary import Failure
from recollect.core.engine.archive import DurableArchive
from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import decode, encode
from recollect.core.ports import Store
from recollect.core.rules.identity import SealSecret, block_mark
from recollect.core.turn.align import LastRequest, answers_in
from recollect.core.values.batch import Batch, LedgerPiece, PieceHash, PieceKind
from recollect.core.values.history import SessionId
from recollect.core.values.message import Message, MessageId
from recollect.core.values.model import Request
from recollect.errors import FormatError

MarkReply: TypeAlias = Callable[[Sequence[Message]], Sequence[str]]
MOST_ANSWERS: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardReply:
    """The session that received a reply, and the turn that the reply answered."""

    session: SessionId
    turn: int


def heard_pieces(marks: Sequence[str], heard: HeardReply) -> tuple[LedgerPiece, ...]:
    """The pieces by which `find_sessions` finds the session."""
    body = {"session": heard.session, "turn": heard.turn}
    return tuple(_piece("heard", mark, body) for mark in marks)


async def find_sessions(store: Store, marks: Sequence[str]) -> Mapping[str, HeardReply]:
    """The sessions that are stored under these marks; unknown marks are left out."""
    names = {_name("heard", mark): mark for mark in marks}
    found: dict[str, HeardReply] = {}
    for name, piece in (await store.pieces(list(names))).items():
        try:
            body = decode(piece.body)
            found[names[name]] = HeardReply(session=str(body["session"]), turn=int(body["turn"]))
        except (FormatError, KeyError, TypeError, ValueError):
            continue
    return found


class ToldAnswers:
    """The marks of recent answers of memory tools, and the messages that each quotes."""

    def __init__(self, secret: bytes, seal: SealSecret) -> None:
        self._secret, self._seal = secret, seal
        self._marks: OrderedDict[str, tuple[MessageId, ...]] = OrderedDict()
        self._unkept: dict[str, tuple[MessageId, ...]] = {}

    @property
    def marks(self) -> Mapping[str, tuple[MessageId, ...]]:
        """All that this process knows."""
        return dict(self._marks)

    def add(self, text: str, quotes: Sequence[MessageId]) -> None:
        """A model gets this answer, which quotes these messages."""
        mark, quoted = block_mark(text, self._secret), tuple(dict.fromkeys(quotes))
        if quoted and mark not in self._marks:
            self._unkept[mark] = quoted
        self._remember(mark, quoted)

    async def keep(self, archive: DurableArchive, *, now: float) -> None:
        """Make new marks known to other processes."""
        unkept, self._unkept = self._unkept, {}
        if unkept:
            # `about` stays empty: when a message is forgotten, what quotes it has to stay known
            pieces = [_piece("told", mark, {"quotes": list(ids)}) for mark, ids in unkept.items()]
            await archive.write(Batch(at=now, pieces=tuple(pieces)))

    async def look_for(
        self, request: Request, remembered: LastRequest, archive: DurableArchive
    ) -> None:
        """Learn which messages the answers of other processes quote that are new in a request."""
        codec = CODECS[request.format]
        found = answers_in(request.messages, codec, self._secret, self._seal, remembered)
        names = {_name("told", mark): mark for mark in found if mark not in self._marks}
        if not names:
            return
        pieces = await archive.ask(lambda store: store.pieces(list(names)))
        if not isinstance(pieces, Failure):
            for name, piece in pieces.items():
                self._remember(names[name], _quotes(piece))

    def _remember(self, mark: str, quotes: tuple[MessageId, ...]) -> None:
        self._marks[mark] = quotes
        if len(self._marks) > MOST_ANSWERS:
            self._marks.popitem(last=False)


def _name(kind: PieceKind, mark: str) -> PieceHash:
    return PieceHash(blake2b(mark.encode(), digest_size=16, person=kind.encode()).hexdigest())


def _piece(kind: PieceKind, mark: str, body: Mapping[str, Any]) -> LedgerPiece:
    return LedgerPiece(hash=_name(kind, mark), kind=kind, body=encode(body))


def _quotes(piece: LedgerPiece) -> tuple[MessageId, ...]:
    try:
        return tuple(MessageId(i) for i in decode(piece.body)["quotes"] if isinstance(i, str))
    except (FormatError, KeyError, TypeError):
        return ()
