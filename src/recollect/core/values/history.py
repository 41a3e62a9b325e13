"""A session's history, its state between turns, and the view that one request shows.

An `Entry` is a message at its place and is shown byte for byte. A codec composes a `Slot`. One
absurd usage report changes no calibration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import TypeAlias

from recollect.core.values.edit import Cut, Edit, Repair
from recollect.core.values.message import CallId, EntryKey, Message, MessageId, Part, Role, ToolCall
from recollect.core.values.model import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Counts of what went wrong in a row; as made, nothing has."""

    failures: int = 0
    """Compactions in a row that failed, those that never reached the model included."""
    refills: int = 0
    """Compactions in a row after which the window was full again at once, or hardly emptier."""
    opened_at: float | None = None
    """Since when no compaction is tried; it stays until one proves itself."""
    last_turn: int | None = None
    """How many requests were prepared before the last compaction that reduced; None is never."""


# Outside this band a report does not describe the request we estimated (tokens read from a cache
# left out, a total over several calls): real tokenizers stay within about 0.6 and 1.6 of o200k.
_LEAST_RATIO = 0.5
_GREATEST_RATIO = 2.0
# The newest report counts this much at least, so that a change of model is followed in a few turns.
_NEWEST_WEIGHT = 0.5
# More steps than these are thinned out, every second one going: the value stays small.
_MOST_STEPS = 16
# Below this estimate what we cannot see (a prompt that the host adds, ids of files) outweighs what
# we counted: such a report is an anchor, but says nothing about the ratio.
_TELLING_TOKENS = 500
# More than this beyond a small estimate is not the same request at all.
_MOST_UNSEEN_TOKENS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCalibration:
    """What reported usage has taught about our estimates, for one model in one session.

    `reported_tokens` and `estimated_tokens` are the anchor: the last request, as the provider
    counted it and as we had estimated it, uncalibrated. The next request is mostly that one, so
    only the difference is left to estimate. `earlier` holds the same pair for the shorter requests
    that grew into the anchor: they tell what its older parts cost.
    """

    ratio: float = 1.0
    samples: int = 0
    reported_tokens: int | None = None
    estimated_tokens: int | None = None
    earlier: tuple[tuple[int, int], ...] = ()

    def learn(self, *, estimated_tokens: int, reported_tokens: int) -> TokenCalibration:
        """The calibration after one more report; an absurd report changes nothing."""
        if 0 < estimated_tokens < _TELLING_TOKENS:
            return self._anchored(estimated_tokens, reported_tokens)
        if not _is_plausible(estimated_tokens, reported_tokens):
            return self
        seen = reported_tokens / estimated_tokens
        weight = max(_NEWEST_WEIGHT, 1 / (self.samples + 1))
        return TokenCalibration(
            ratio=self.ratio + weight * (seen - self.ratio),
            samples=self.samples + 1,
            reported_tokens=reported_tokens,
            estimated_tokens=estimated_tokens,
            earlier=self._grown_into(estimated_tokens, reported_tokens),
        )

    def _anchored(self, estimated_tokens: int, reported_tokens: int) -> TokenCalibration:
        unseen = reported_tokens - estimated_tokens
        if reported_tokens <= 0 or unseen > _MOST_UNSEEN_TOKENS:
            return self
        return replace(
            self, reported_tokens=reported_tokens, estimated_tokens=estimated_tokens, earlier=()
        )

    def apply(self, estimated_tokens: int) -> int:
        """The calibrated count of a request, never negative. Added tokens cost the learned ratio;
        removed tokens are taken to be the oldest, at their cost when added."""
        estimated_tokens = max(0, estimated_tokens)
        if self.reported_tokens is None or self.estimated_tokens is None:
            return ceil(self.ratio * estimated_tokens)
        added = estimated_tokens - self.estimated_tokens
        if added >= 0:
            return self.reported_tokens + ceil(self.ratio * added)
        return self.reported_tokens - floor(self._cost_of_oldest(-added))

    def _grown_into(self, estimated: int, reported: int) -> tuple[tuple[int, int], ...]:
        if self.reported_tokens is None or self.estimated_tokens is None:
            return ()
        grown = (estimated - self.estimated_tokens, reported - self.reported_tokens)
        if grown == (0, 0):
            return self.earlier
        if not _is_plausible(*grown):
            return ()
        steps = (*self.earlier, (self.estimated_tokens, self.reported_tokens))
        return steps if len(steps) <= _MOST_STEPS else steps[1::2]

    def _cost_of_oldest(self, estimated: int) -> float:
        assert self.estimated_tokens is not None
        assert self.reported_tokens is not None
        low_estimated, low_reported = 0, 0
        for step_estimated, step_reported in self.earlier:
            if step_estimated >= estimated:
                break
            low_estimated, low_reported = step_estimated, step_reported
        else:
            step_estimated, step_reported = self.estimated_tokens, self.reported_tokens
        share = (estimated - low_estimated) / (step_estimated - low_estimated)
        return low_reported + share * (step_reported - low_reported)


def _is_plausible(estimated: int, reported: int) -> bool:
    return estimated > 0 and _LEAST_RATIO <= reported / estimated <= _GREATEST_RATIO


SpaceId: TypeAlias = str
SessionId: TypeAlias = str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A message at its place in a history, with what was worked out about it once. Compared by
    object: two readings of the same message are two entries with one key."""

    key: EntryKey
    id: MessageId
    message: Message = field(repr=False)
    tokens: int
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


_LEAST_CACHED_TOKENS = 4_096
"""Providers cache no shorter request than this, some longer ones only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """A provider's reports on its prompt cache, for one session."""

    misses: int = 0
    """Requests in a row for which nothing was read from a cache and nothing written to one."""
    lives_seconds: float = 0.0
    """The longest pause after which most of a request was still read from it."""
    held_tokens: int | None = None

    def learn(self, usage: Usage, *, pause_seconds: float | None, went_on: bool) -> CacheUse:
        """The state after one more report. `went_on`: the request began like the previous one."""
        if not usage.reports_cache or usage.input_tokens < _LEAST_CACHED_TOKENS:
            return self
        read, written = usage.cache_read_tokens, usage.cache_write_tokens
        if not read and not written:
            misses = self.misses + 1 if went_on else self.misses
            return CacheUse(misses=misses, lives_seconds=self.lives_seconds)
        lives = self.lives_seconds
        if pause_seconds is not None and 2 * read > usage.input_tokens:
            lives = max(lives, pause_seconds)
        # where writing costs nothing extra it is not reported, and the whole request is held
        held = read + written if written else usage.input_tokens
        return CacheUse(lives_seconds=lives, held_tokens=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The messages chosen for one request."""

    rows: tuple[Row, ...] = field(repr=False)
    tokens: int
    repairs: tuple[Repair, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """All state of a session between turns. Keep it to continue the session elsewhere. Dormant
    edits belong to a branch that the newest history does not take."""

    turn: int = 0
    """Its version, one more with every change: also by compactions, undos and notes."""
    requests: int = 0
    """How many requests were prepared: what reports, receipts and `replay` call a turn."""
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    ids: tuple[MessageId, ...] = field(default=(), repr=False)
    aliases: Mapping[EntryKey, EntryKey] = field(default_factory=dict, repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    dormant: tuple[tuple[Edit, int], ...] = field(default=(), repr=False)
    """Each with the turn since which it rests."""
    calibration: TokenCalibration = field(default_factory=TokenCalibration)
    sent_at: float | None = None
    """When the last request was prepared; the provider's cache is as old as this."""
    pause_seconds: float | None = None
    """Between the last request and the one before; None where that began otherwise."""
    cache: CacheUse = field(default_factory=CacheUse)
    sent_estimate_tokens: int | None = None
    sent_model: str | None = None
    sent_format: str | None = None
    learned_window_tokens: int | None = None
    learned_for_model: str | None = None
    compactions: int = 0
    compaction_paused: bool = False
    """A compaction was undone: there is none by itself until one is asked for."""
    flushed_in: int | None = None
    """How many compactions there had been at the last flush; None: it was never flushed."""
    breaker: Breaker = field(default_factory=Breaker)
    blocks: tuple[str, ...] = field(default=(), repr=False)
    """The marks of the newest recalled blocks that were put into it (`rules.identity.block_mark`):
    a client that keeps our view sends them back, and no other text is one of ours."""


def requests_of(state: SessionState) -> int:
    """The number of prepared requests; older states count by version."""
    return state.requests or state.turn


def newest_cut(edits: Sequence[Edit]) -> Cut | None:
    """The newest cut; older ones are behind it."""
    cuts = [edit for edit in edits if type(edit) is Cut]
    return cuts[-1] if cuts else None


def behind_cut(entries: Sequence[Entry], edits: Sequence[Edit]) -> frozenset[EntryKey]:
    """The messages that the summary of the newest cut covers: those before its anchor that it
    names. Messages that a client changed there were never summarised. System messages are always
    shown."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPart:
    """An unchanged part; with `call_id`, under another id of its call."""

    entry: Entry
    part: int
    call_id: CallId | None = None
    direct: bool = False
    """A call, shown as one of the model's own: the code that made it is not in the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewordedPart:
    """A part whose text is shown differently."""

    entry: Entry
    part: int
    text: str
    call_id: CallId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnText:
    """Text of our own: a recalled block, a note, a summary."""

    text: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A result for a call that has none."""

    call: ToolCall
    text: str


SlotPiece: TypeAlias = KeptPart | RewordedPart | OwnText | StandIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One row to be composed; `base` lends its other fields where there is one."""

    role: Role
    pieces: tuple[SlotPiece, ...]
    base: Entry | None = None
    anonymous: bool = False
    """Without the item's own id, which another item carries already."""
    parts: tuple[Part, ...] = field(default=(), repr=False, compare=False)
    """This and the fields below are set when it is composed."""
    raw: bytes = field(default=b"", repr=False, compare=False)
    tokens: int = field(default=0, compare=False)
    sources: tuple[EntryKey, ...] = field(default=(), compare=False)
    """The entries that are shown in it; none for rows of our own."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """For rows of our own: what they are."""


Row: TypeAlias = Entry | Slot
Arranged: TypeAlias = Row
