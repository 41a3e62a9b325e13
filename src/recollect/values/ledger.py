"""The ledger: what was sent at each turn, in pieces that are stored once.

A turn's record names its pieces by hash; a turn that only grew names only what it added.
Always holds: a piece is redacted before it is hashed, and says whose content it quotes, so
that forgetting finds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType, TypeAlias

from recollect.values.message import MessageId

PieceHash = NewType("PieceHash", str)
"""32 hexadecimal digits over kind and body."""
PieceKind: TypeAlias = Literal["system", "tools", "row", "edits", "report", "rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of a request, or what was said about it."""

    hash: PieceHash
    kind: PieceKind
    body: bytes = field(repr=False)
    about: tuple[MessageId, ...] = ()
    """The messages whose content it quotes."""
    exact: bool = True
    """Nothing in it was redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One request as it was sent."""

    session: str
    number: int
    at: float
    format: str
    model: str | None = None
    system: PieceHash | None = None
    tools: PieceHash | None = None
    rest: PieceHash | None = None
    """The request without messages, system and tools."""
    edits: PieceHash | None = None
    report: PieceHash | None = None
    kept_rows: int = 0
    """How many rows from the start are those of the record before it."""
    rows: tuple[PieceHash, ...] = ()
    """The rows after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTurn:
    """A turn with all its rows named, whatever records it rests on."""

    record: TurnRecord
    rows: tuple[PieceHash, ...]
