"""A turn as immutable values: its input, and the draft of its request that the stages change. The
view is the messages to send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil
from typing import Final

from recollect.core.formats.codec import Codec, codec_of
from recollect.core.formats.recalled_block import write_block
from recollect.core.rules.budget import WindowLimits
from recollect.core.rules.identity import SealSecret
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.tokens import MESSAGE_TOKENS, Weigher
from recollect.core.turn.align import Alignment, LastRequest, ReadResult
from recollect.core.turn.apply import Applied, apply
from recollect.core.values.edit import Edit, Insert, LeaveOut
from recollect.core.values.history import (
    Entry,
    SessionId,
    SessionState,
    SpaceId,
    View,
    behind_cut,
    newest_cut,
    requests_of,
)
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.model import Request
from recollect.core.values.reason import Reason
from recollect.core.values.recall import Asks, Recalled
from recollect.core.values.report import WindowSource
from recollect.system.config import Settings

VERSIONS_BETWEEN: Final = 1
"""A compaction counts as new until the session's state is more than this many versions newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """The input of a turn."""

    settings: Settings
    space: SpaceId
    session: SessionId
    state: SessionState
    request: Request
    readable: bool = True
    fixed_tokens: int = 0
    limits: WindowLimits
    window_source: WindowSource
    weigher: Weigher
    secret: bytes = field(repr=False)
    seal: SealSecret | None = field(default=None, repr=False)
    now: float
    mask: TextMask = field(repr=False)
    forgotten: AbstractSet[MessageId] = frozenset()
    """Forgotten messages that a client still sends, and that no stored text may quote."""
    answers: Mapping[str, tuple[MessageId, ...]] = field(default_factory=dict, repr=False)
    """Hashes of recent answers of memory tools, and the messages that each answer quotes."""
    remembered: LastRequest = field(repr=False)
    may_compact: bool = False
    why_not_compact: Reason | None = None

    @property
    def codec(self) -> Codec:
        return codec_of(self.request)

    @property
    def version(self) -> int:
        return self.state.turn + 1

    @property
    def number(self) -> int:
        return requests_of(self.state) + 1

    def calibrate(self, estimate_tokens: int) -> int:
        """Correct an estimate by the token counts that providers reported in this session."""
        if not self.settings.tokens.calibrate:
            return estimate_tokens
        return self.state.calibration.apply(estimate_tokens)

    def estimate(self, tokens: int) -> int:
        """Divide calibrated tokens by the calibration ratio, and round up."""
        if not self.settings.tokens.calibrate:
            return tokens
        return ceil(tokens / self.state.calibration.ratio)

    def estimate_within(self, tokens: int) -> int:
        """Return the most uncalibrated tokens whose calibrated size is within `tokens`."""
        if not self.settings.tokens.calibrate:
            return max(0, tokens)
        # Rounded down, minus one, because calibrating the whole request rounds up.
        return max(0, int((tokens - 1) / self.state.calibration.ratio))

    def block_tokens(self, asks: Asks, *, uses_tools: bool) -> int:
        """Return the maximum size of a recalled block, depending on what the message asks for."""
        limits = self.limits
        # OpenClaw limits a block's text, not the message that contains it.
        if self.settings.recall.method == "openclaw":
            return self.estimate_within(limits.block_tokens)
        cap_tokens = limits.hard_cap_tokens if uses_tools else limits.talk_cap_tokens
        wants = asks == "question" or (asks == "reference" and uses_tools)
        return self.estimate_within((cap_tokens if wants else limits.block_tokens) - MESSAGE_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """What recall returned for a turn, and the question."""

    found: Recalled
    budget_tokens: int
    asks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A turn's history, its edits, and the resulting view."""

    given: TurnInput
    read: ReadResult = field(repr=False)
    alignment: Alignment = field(repr=False)
    entries: tuple[Entry, ...] = field(repr=False)
    incoming_tokens: int
    edits: tuple[Edit, ...] = ()
    dormant: tuple[tuple[Edit, int], ...] = ()
    """Edits of other branches, each with the state version in which it became dormant."""
    view: View = field(default=View(rows=(), tokens=0), repr=False)
    committed: bool = False

    def used_tokens(self) -> int:
        return self.given.calibrate(self.given.fixed_tokens + self.view.tokens)

    def room_tokens(self) -> int:
        return self.given.limits.available_tokens - self.used_tokens()

    def fills_up(self) -> bool:
        """Return whether a compaction is due and possible now."""
        return self.given.may_compact and self.used_tokens() > self.given.limits.compact_tokens

    def apply_edits(self, edits: Sequence[Edit]) -> Applied:
        turn_input = self.given
        return apply(
            self.entries,
            edits,
            turn_input.codec,
            turn_input.weigher.message,
            continues=turn_input.request.continues,
            thinking=turn_input.request.thinking,
            marks=turn_input.request.marks,
            composed=turn_input.remembered.composed,
        )

    def with_edits(self, edits: tuple[Edit, ...]) -> Draft:
        return replace(self, edits=edits, view=self.apply_edits(edits).view)

    def visible(self) -> tuple[Entry, ...]:
        """The messages that are sent in full or in part, in the order of the history."""
        shown: set[EntryKey] = set()
        for row in self.view.rows:
            if isinstance(row, Entry):
                shown.add(row.key)
            else:
                shown.update(row.sources)
        return tuple([entry for entry in self.entries if entry.key in shown])

    def not_left_out(self) -> tuple[Entry, ...]:
        """The messages that no edit removes, including those that the provider's rules remove."""
        out = {e.anchor for e in self.edits if isinstance(e, LeaveOut) and e.part is None}
        out |= behind_cut(self.entries, self.edits)
        return tuple([entry for entry in self.entries if entry.key not in out])

    def keys_hidden_by_rules(self) -> set[EntryKey]:
        """The messages that only the provider's rules remove."""
        shown = {entry.key for entry in self.visible()}
        return {entry.key for entry in self.not_left_out() if entry.key not in shown}

    def trims(self) -> int:
        return sum(edit.stage == "trim" for edit in self.edits)

    def outdates_standing_block(self) -> bool:
        """Return whether the standing block must be rebuilt: older messages of the view changed, or
        the view contains a message that the block repeats."""
        blocks = [e for e in self.edits if isinstance(e, Insert) and e.stage == "stand"]
        cut, state = newest_cut(self.edits), self.given.state
        if self.trims() or cut is not None:
            if blocks:
                return False
            is_new = cut is not None and state.turn - cut.turn <= VERSIONS_BETWEEN
            return is_new or without_blocks(self.edits) != without_blocks(state.edits)
        quoted_ids = {id_ for block in blocks for id_ in block.quotes}
        return bool(quoted_ids) and any(entry.id in quoted_ids for entry in self.visible())

    def changed_course(self) -> bool:
        """Return whether this history is no continuation of the last one."""
        branched = self.alignment.course in ("branched", "rejoined")
        return branched or len(self.entries) < len(self.given.state.path)

    def blocks(self) -> list[Insert]:
        inserts = [edit for edit in self.edits if type(edit) is Insert]
        return [edit for edit in inserts if is_block(edit)]

    def names_in_blocks(self) -> set[str]:
        return {name for block in self.blocks() for name in block.recalled}

    def full_block_tokens(self, recall: RecallResult) -> int:
        """Return the size of a block with everything that was recalled."""
        if recall.found.empty:
            return 0
        tokens = min(
            self.given.weigher.text(write_block(recall.found.facts, recall.found.passages)),
            recall.budget_tokens,
        )
        return self.given.calibrate(tokens + MESSAGE_TOKENS)

    def has_room(self, wanted_tokens: int) -> bool:
        """Return whether a block of this size fits the request, and all blocks fit their limit."""
        if wanted_tokens > self.room_tokens():
            return False
        standing = self._blocks_tokens()
        max_tokens = self.given.limits.blocks_tokens
        return not standing or self.given.calibrate(standing) + wanted_tokens <= max_tokens

    def block_budget(self, recall: RecallResult) -> int:
        """Return the limit of the block: the wanted tokens, or the space left in the request."""
        turn_input, room = self.given, self.room_tokens()
        if turn_input.settings.recall.method != "openclaw":
            room = min(
                room, turn_input.limits.blocks_tokens - turn_input.calibrate(self._blocks_tokens())
            )
        return min(recall.budget_tokens, turn_input.estimate_within(max(0, room - MESSAGE_TOKENS)))

    def _blocks_tokens(self) -> int:
        return sum([text_tokens(self.given.weigher, block.text) for block in self.blocks()])

    def state_after_alignment(self, state: SessionState) -> SessionState:
        """Return the session's state with this turn's history, before any edits."""
        return replace(
            state,
            path=self.alignment.keys,
            ids=tuple([entry.id for entry in self.entries]),
            aliases=self.alignment.aliases,
            dormant=self.dormant,
        )


@lru_cache(maxsize=512)
def text_tokens(weigher: Weigher, text: str) -> int:
    return weigher.text(text)


def is_block(edit: Edit) -> bool:
    return isinstance(edit, Insert) and edit.stage != "stand"


def without_blocks(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    return tuple(edit for edit in edits if not is_block(edit))
