"""Whom the answers of memory tools quote, so that forgetting reaches them where they come back.

An answer is known by its seal in every process; whom it quotes is known by the one that gave it.
So that is kept in the store, too, under a keyed mark of the answer's text, as a piece of the ledger
that no turn names: an MCP server answers, a gateway sees the answer come back, and what the ledger
keeps of that request goes with the message that is forgotten. A mark holds nothing of what was
said, and outlives what is forgotten, for a client may send the answer again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from recollect.core.boundary import Failure
from recollect.core.engine.archive import DurableArchive
from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import decode, encode
from recollect.core.rules.identity import SealSecret, block_mark
from recollect.core.turn.align import LastRequest, answers_in
from recollect.core.values.batch import Batch, LedgerPiece, PieceHash
from recollect.core.values.message import MessageId
from recollect.core.values.model import Request
from recollect.errors import FormatError

MOST_ANSWERS: Final = 4_096
"""So many answers are remembered by the process that gave them, or saw them come back."""


class ToldAnswers:
    """The marks of what memory tools answered lately, and the messages that each quotes."""

    def __init__(self, secret: bytes, seal: SealSecret) -> None:
        self._secret, self._seal = secret, seal
        self._marks: OrderedDict[str, tuple[MessageId, ...]] = OrderedDict()
        self._unkept: dict[str, tuple[MessageId, ...]] = {}

    @property
    def marks(self) -> Mapping[str, tuple[MessageId, ...]]:
        """All that are remembered here."""
        return dict(self._marks)

    def tell(self, text: str, quotes: Sequence[MessageId]) -> None:
        """This is told to a model, and quotes these messages."""
        mark, quoted = block_mark(text, self._secret), tuple(dict.fromkeys(quotes))
        if quoted and mark not in self._marks:
            self._unkept[mark] = quoted
        self._remember(mark, quoted)

    async def keep(self, archive: DurableArchive, *, now: float) -> None:
        """Have it known to other processes."""
        unkept, self._unkept = self._unkept, {}
        if unkept:
            pieces = tuple(_piece(mark, quotes) for mark, quotes in unkept.items())
            await archive.write(Batch(at=now, pieces=pieces))

    async def look_for(
        self, request: Request, remembered: LastRequest, archive: DurableArchive
    ) -> None:
        """Learn whom the answers quote that another process gave; only what is new in a request is
        looked at."""
        codec = CODECS[request.format]
        found = answers_in(request.messages, codec, self._secret, self._seal, remembered)
        unknown = [mark for mark in found if mark not in self._marks]
        if not unknown:
            return
        names = {_name(mark): mark for mark in unknown}
        pieces = await archive.ask(lambda store: store.pieces(list(names)))
        if not isinstance(pieces, Failure):
            for name, piece in pieces.items():
                self._remember(names[name], _quotes(piece))

    def _remember(self, mark: str, quotes: tuple[MessageId, ...]) -> None:
        self._marks[mark] = quotes
        if len(self._marks) > MOST_ANSWERS:
            self._marks.popitem(last=False)


def _name(mark: str) -> PieceHash:
    return PieceHash(blake2b(mark.encode(), digest_size=16, person=b"told").hexdigest())


def _piece(mark: str, quotes: Sequence[MessageId]) -> LedgerPiece:
    # `about` stays empty: when a message is forgotten, what quotes it has to stay known
    return LedgerPiece(hash=_name(mark), kind="told", body=encode({"quotes": list(quotes)}))


def _quotes(piece: LedgerPiece) -> tuple[MessageId, ...]:
    try:
        quotes = decode(piece.body)["quotes"]
        return tuple(MessageId(id_) for id_ in quotes if isinstance(id_, str))
    except (FormatError, KeyError, TypeError):
        return ()
