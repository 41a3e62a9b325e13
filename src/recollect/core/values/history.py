"""A session's history, its state between turns, and the view of one request. An `Entry` is a
message that is sent byte for byte. A `Slot` is a message that Recollect writes."""

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
    """Counts failed or useless compactions. After several, Recollect suspends compaction."""

    failures: int = 0
    """Consecutive failed compactions, including those that never reached the model."""
    refills: int = 0
    """Consecutive compactions after which the window was almost as full as before."""
    problem: str = ""
    """Why the last compaction failed; empty after one that succeeded."""
    opened_at: float | None = None
    """Time at which compaction was suspended, until one succeeds."""
    last_turn: int | None = None
    """Number of requests prepared before the last compaction that reduced the view."""


# If a provider's count divided by the estimate is outside of this range, the count does not
# describe the estimated request. It may omit cached tokens, or add up several calls. Real
# tokenizers count about 0.6 to 1.6 times the tokens of o200k.
_LEAST_RATIO = 0.5
_GREATEST_RATIO = 2.0
# Minimum weight of the provider's newest count in the learned ratio (count to estimate), so that
# the ratio adapts to a new model within a few turns.
_NEWEST_WEIGHT = 0.5
# If more pairs of estimate and count than this are stored, every second pair is dropped.
_MOST_STEPS = 16
# In smaller requests, tokens that Recollect cannot see (a host's prompt, files) outweigh those it
# counted. The counts of such requests set the anchor, but do not change the ratio.
_TELLING_TOKENS = 500
# If a provider's count exceeds a small estimate by more tokens than this, it belongs to another
# request.
_MOST_UNSEEN_TOKENS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCalibration:
    """Corrects token estimates by the provider's counts, per model and session. The anchor is the
    last request with a provider's count: `reported_tokens` and `estimated_tokens` (uncalibrated).
    The next request mostly repeats the anchor, so only the difference is estimated. `earlier` holds
    both numbers of shorter requests that grew into the anchor, to price its older parts."""

    ratio: float = 1.0
    samples: int = 0
    reported_tokens: int | None = None
    estimated_tokens: int | None = None
    earlier: tuple[tuple[int, int], ...] = ()

    def learn(self, *, estimated_tokens: int, reported_tokens: int) -> TokenCalibration:
        """Return the calibration after another count by the provider, which is ignored if
        implausible."""
        if 0 < estimated_tokens < _TELLING_TOKENS:
            return self._with_anchor(estimated_tokens, reported_tokens)
        if not _is_plausible(estimated_tokens, reported_tokens):
            return self
        ratio = reported_tokens / estimated_tokens
        weight = max(_NEWEST_WEIGHT, 1 / (self.samples + 1))
        return TokenCalibration(
            ratio=self.ratio + weight * (ratio - self.ratio),
            samples=self.samples + 1,
            reported_tokens=reported_tokens,
            estimated_tokens=estimated_tokens,
            earlier=self._next_steps(estimated_tokens, reported_tokens),
        )

    def _with_anchor(self, estimated_tokens: int, reported_tokens: int) -> TokenCalibration:
        unseen_tokens = reported_tokens - estimated_tokens
        if reported_tokens <= 0 or unseen_tokens > _MOST_UNSEEN_TOKENS:
            return self
        return replace(
            self, reported_tokens=reported_tokens, estimated_tokens=estimated_tokens, earlier=()
        )

    def apply(self, estimated_tokens: int) -> int:
        """Return the calibrated token count of a request. Tokens added since the anchor are
        multiplied by the learned ratio. Removed tokens are assumed to be the oldest tokens, and are
        subtracted at the ratio learned for them."""
        estimated_tokens = max(0, estimated_tokens)
        if self.reported_tokens is None or self.estimated_tokens is None:
            return ceil(self.ratio * estimated_tokens)
        added_tokens = estimated_tokens - self.estimated_tokens
        if added_tokens >= 0:
            return self.reported_tokens + ceil(self.ratio * added_tokens)
        return self.reported_tokens - floor(self._cost_of_oldest(-added_tokens))

    def _next_steps(self, estimated: int, reported: int) -> tuple[tuple[int, int], ...]:
        if self.reported_tokens is None or self.estimated_tokens is None:
            return ()
        growth = (estimated - self.estimated_tokens, reported - self.reported_tokens)
        if growth == (0, 0):
            return self.earlier
        if not _is_plausible(*growth):
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
    """A message at its position in a history, with derived data. Entries are compared by object
    identity: reading a message twice gives two unequal entries with the same key."""

    key: EntryKey
    id: MessageId
    message: Message = field(repr=False)
    tokens: int
    role: Role
    raw: bytes = field(repr=False)
    calls: tuple[CallId, ...] = ()
    results: tuple[CallId, ...] = ()
    attachments: int = 0
    """Number of documents and results in the message that are segments of their own."""
    odd: bool = False
    """True if some provider refuses the message: it is empty, has blank text, or was aborted."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.message.parts

    @property
    def segment_keys(self) -> tuple[EntryKey, ...]:
        """Keys of the message's segments: of its attachments, and last of its own words."""
        numbers = range(1, self.attachments + 1)
        return (*(EntryKey(f"{self.key}+{number}") for number in numbers), self.key)


_LEAST_CACHED_TOKENS = 4_096
"""Requests shorter than this are not cached by any provider; some providers require more tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """What the provider reported about its prompt cache in one session."""

    misses: int = 0
    """Number of consecutive requests without cache reads or writes."""
    lives_seconds: float = 0.0
    """Longest pause after which most of a request was still cached."""
    held_tokens: int | None = None

    def learn(self, usage: Usage, *, pause_seconds: float | None, went_on: bool) -> CacheUse:
        """Return the cache use after one more usage report. `went_on` is true if its request began
        with the same messages as the previous one."""
        if not usage.reports_cache or usage.input_tokens < _LEAST_CACHED_TOKENS:
            return self
        read_tokens, write_tokens = usage.cache_read_tokens, usage.cache_write_tokens
        if not read_tokens and not write_tokens:
            misses = self.misses + 1 if went_on else self.misses
            return CacheUse(misses=misses, lives_seconds=self.lives_seconds)
        lives = self.lives_seconds
        if pause_seconds is not None and 2 * read_tokens > usage.input_tokens:
            lives = max(lives, pause_seconds)
        # if cache writes are free, providers do not report them: assume that the whole request is
        # cached
        held_tokens = read_tokens + write_tokens if write_tokens else usage.input_tokens
        return CacheUse(lives_seconds=lives, held_tokens=held_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The messages chosen for one request."""

    rows: tuple[Row, ...] = field(repr=False)
    tokens: int
    repairs: tuple[Repair, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """State of a session between turns. Store the state to continue the session elsewhere. Edits
    become dormant if the newest history lacks their messages: the client took another branch."""

    turn: int = 0
    """Version of the state, which grows with each request, compaction, undo and note."""
    requests: int = 0
    """Number of prepared requests. Reports, receipts and `replay` call this the turn."""
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    ids: tuple[MessageId, ...] = field(default=(), repr=False)
    aliases: Mapping[EntryKey, EntryKey] = field(default_factory=dict, repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    dormant: tuple[tuple[Edit, int], ...] = field(default=(), repr=False)
    """Dormant edits, each with the turn in which it became dormant."""
    calibration: TokenCalibration = field(default_factory=TokenCalibration)
    sent_at: float | None = None
    """Time of the last prepared request, from which the age of the provider's cache is computed."""
    pause_seconds: float | None = None
    """Pause between the last two requests; None if the second did not start with the same
    messages."""
    cache: CacheUse = field(default_factory=CacheUse)
    sent_estimate_tokens: int | None = None
    sent_model: str | None = None
    sent_format: str | None = None
    learned_window_tokens: int | None = None
    learned_for_model: str | None = None
    compactions: int = 0
    compaction_paused: bool = False
    """True after an undo: no automatic compaction runs until one is requested."""
    flushed_in: int | None = None
    """Number of compactions at the last note-taking turn; None if there was none."""
    breaker: Breaker = field(default_factory=Breaker)
    blocks: tuple[str, ...] = field(default=(), repr=False)
    """Hashes (`rules.identity.block_mark`) of the newest recalled blocks, which identify blocks
    that a client sends back."""


def requests_of(state: SessionState) -> int:
    """Return the number of prepared requests, which states of earlier versions store as `turn`."""
    return state.requests or state.turn


def newest_cut(edits: Sequence[Edit]) -> Cut | None:
    cuts = [edit for edit in edits if type(edit) is Cut]
    return cuts[-1] if cuts else None


def behind_cut(entries: Sequence[Entry], edits: Sequence[Edit]) -> frozenset[EntryKey]:
    """Return the messages that the newest summary replaces: those that it covers before its anchor.
    System messages, and messages that a client changed or added there, are still sent."""
    cut = newest_cut(edits)
    if cut is None:
        return frozenset()
    covered_ids, hidden_keys = frozenset(cut.covers), set[EntryKey]()
    for entry in entries:
        if entry.key == cut.anchor:
            return frozenset(hidden_keys)
        if entry.id in covered_ids and entry.role != "system":
            hidden_keys.add(entry.key)
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPart:
    """A part that is sent unchanged, except that `call_id`, if set, becomes the id of its call."""

    entry: Entry
    part: int
    call_id: CallId | None = None
    direct: bool = False
    """True to show the call as the model's own, because the request lacks the code that made it."""
    unmarked: bool = False
    """True to send the part without its cache marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewordedPart:
    """A part that is sent with a different text."""

    entry: Entry
    part: int
    text: str
    call_id: CallId | None = None
    unmarked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnText:
    """Text that Recollect adds: a recalled block, a note or a summary."""

    text: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A placeholder result for a call without a result."""

    call: ToolCall
    text: str


SlotPiece: TypeAlias = KeptPart | RewordedPart | OwnText | StandIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A message for a codec to write, with all other fields of `base` if that is set."""

    role: Role
    pieces: tuple[SlotPiece, ...]
    base: Entry | None = None
    anonymous: bool = False
    """True to drop the item's own id, because another item has the same."""
    parts: tuple[Part, ...] = field(default=(), repr=False, compare=False)
    """Parts of the message as sent. The codec sets this field and all fields below it."""
    raw: bytes = field(default=b"", repr=False, compare=False)
    tokens: int = field(default=0, compare=False)
    sources: tuple[EntryKey, ...] = field(default=(), compare=False)
    """Received messages that this one contains; empty if Recollect added the message."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Kinds of text that Recollect added to this message."""


Row: TypeAlias = Entry | Slot


def base_of(row: Row) -> Entry | None:
    """Return the received message behind a message of the view; None if Recollect added it."""
    return row if isinstance(row, Entry) else row.base
