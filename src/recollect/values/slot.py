"""What a row of the view is made of, before a codec writes it in its wire format.

Rules and stages speak of slots and pieces; only codecs know how they are spelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from recollect.values.history import Entry
from recollect.values.message import CallId, Role, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A part as it came; with `call_id`, under another id of its call."""

    entry: Entry
    part: int
    call_id: CallId | None = None
    direct: bool = False
    """A call, shown as one of the model's own: the code that made it is not in the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reworded:
    """A part whose text is shown differently."""

    entry: Entry
    part: int
    text: str
    call_id: CallId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Text of our own: a recalled block, a note, a summary."""

    text: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A result for a call that has none."""

    call: ToolCall
    text: str


Piece: TypeAlias = Kept | Reworded | Written | StandIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One row to be composed; `base` lends its other fields where there is one."""

    role: Role
    pieces: tuple[Piece, ...]
    base: Entry | None = None
    anonymous: bool = False
    """Without the item's own id, which another item carries already."""


Arranged: TypeAlias = Entry | Slot
"""A row of an arrangement: an entry as it came, or something to compose."""
