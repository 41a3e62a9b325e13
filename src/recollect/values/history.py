"""A session's history as it is known, and the view of it that one request shows.

`Entry` is a message at its place; `View` is what goes out: entries as they came, and rows we
composed. Always holds: an `Entry` in a view is shown byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from recollect.values.breaker import Breaker
from recollect.values.calibration import Calibration
from recollect.values.edit import Cut, Edit, Repair
from recollect.values.message import CallId, EntryKey, Message, MessageId, Part, Role

SpaceId: TypeAlias = str
SessionId: TypeAlias = str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A message at its place in a history, with what was worked out about it once.

    Compared by object: two readings of the same message are two entries with one key.
    """

    key: EntryKey
    id: MessageId
    message: Message = field(repr=False)
    tokens: int
    """Estimate before calibration."""
    role: Role
    raw: bytes = field(repr=False)
    calls: tuple[CallId, ...] = ()
    results: tuple[CallId, ...] = ()
    odd: bool = False
    """Breaks some provider's rules by itself: empty, blank text, an aborted turn."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The message's parts."""
        return self.message.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A row of the view that is not an incoming message as it came."""

    role: Role
    parts: tuple[Part, ...] = field(repr=False)
    raw: bytes = field(repr=False)
    tokens: int
    sources: tuple[EntryKey, ...]
    """The entries that are shown in it; none for rows of our own."""
    notes: tuple[str, ...] = ()
    """For rows of our own: what they are."""


Row: TypeAlias = Entry | Composed


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The messages chosen for one request."""

    rows: tuple[Row, ...] = field(repr=False)
    tokens: int
    """Estimate of the rows, before calibration, without system prompt and tools."""
    repairs: tuple[Repair, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """All that a session remembers between turns; a value in and a value out.

    Dormant edits belong to a branch that the newest history does not take; they wait some
    turns in case the client comes back to it.
    """

    turn: int = 0
    """Its version, one more with every change: also by compactions, undos and notes."""
    requests: int = 0
    """How many requests were prepared: what reports, receipts and `replay` call a turn."""
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    ids: tuple[MessageId, ...] = field(default=(), repr=False)
    """The identities of `path`, in its order."""
    aliases: Mapping[EntryKey, EntryKey] = field(default_factory=dict, repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    dormant: tuple[tuple[Edit, int], ...] = field(default=(), repr=False)
    """Each with the turn since which it rests."""
    calibration: Calibration = field(default_factory=Calibration)
    sent_at: float | None = None
    """When the last request was prepared; the provider's cache is as old as this."""
    sent_estimate_tokens: int | None = None
    """What the last request was estimated at, before calibration."""
    sent_model: str | None = None
    sent_format: str | None = None
    """The wire format of the last request; its reply comes in the same one."""
    learned_window_tokens: int | None = None
    """The limit that a provider named when it refused a request."""
    learned_for_model: str | None = None
    compactions: int = 0
    """How many compactions were made of it."""
    compaction_paused: bool = False
    """A compaction was undone: there is none by itself until one is asked for."""
    flushed_in: int | None = None
    """How many compactions there had been at the last flush; None: it was never flushed."""
    breaker: Breaker = field(default_factory=Breaker)
    blocks: tuple[str, ...] = field(default=(), repr=False)
    """The marks of the newest recalled blocks that were put into it (`rules.identity.block_mark`):
    a client that keeps our view sends them back, and no other text is one of ours."""


def requests_of(state: SessionState) -> int:
    """How many requests were prepared; states that did not count them yet count by version."""
    return state.requests or state.turn


def newest_cut(edits: Sequence[Edit]) -> Cut | None:
    """The cut that stands; older ones lie behind it."""
    return next((edit for edit in reversed(edits) if isinstance(edit, Cut)), None)


def behind_cut(entries: Sequence[Entry], edits: Sequence[Edit]) -> frozenset[EntryKey]:
    """The messages that the summary of the standing cut stands for, where they are.

    Before its anchor, and covered by it: what a client changed, or put in there, was never
    summarised. System messages are always shown.
    """
    cut = newest_cut(edits)
    if cut is None:
        return frozenset()
    covered, hidden = frozenset(cut.covers), set[EntryKey]()
    for entry in entries:
        if entry.key == cut.anchor:
            return frozenset(hidden)
        if entry.id in covered and entry.role != "system":
            hidden.add(entry.key)
    return frozenset()
