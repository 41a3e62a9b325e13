"""Frees space in an edit batch (a turn in which older messages may change): removes recalled
blocks, prunes tool results, trims messages. Decides whether a compaction must come first. A message
is left out only if it is stored, unless nothing can be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.boundary import Boundary
from recollect.core.engine.archive import Persisted
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.ledger import ArchiveState
from recollect.core.rules.budget import WORTHWHILE_SHARE
from recollect.core.rules.price import price_edit
from recollect.core.turn.apply import Applied
from recollect.core.turn.draft import Draft, is_block, without_blocks
from recollect.core.turn.prune import PruneResult, TrimResult, prune, trim
from recollect.core.turn.query import LEAST_QUERY_CHARS, QueryResult, last_exchange
from recollect.core.values.edit import Edit, Shorten
from recollect.core.values.history import Row, Slot, requests_of
from recollect.core.values.message import EntryKey, ToolResult
from recollect.core.values.reason import NOT_RUN, Cause, Reason
from recollect.core.values.report import BatchMoment
from recollect.system.config.settings import Trim

PRUNED_ENOUGH_RATIO: Final = 0.8
"""If the request is below this share of its limit after pruning, nothing else is needed."""
VOLUNTARY_MOMENTS: Final = ("ratio", "uncached")
FULL_MOMENTS: Final = ("over-limit", "room", "compaction")
TRIM_ROUNDS: Final = 3
"""Not measured. A trim may end pairs of messages, so that the request is estimated again; bounds
the work."""
FEW_MESSAGES = 100
"""Edits of a longer history leave the event loop, because they may take longer than other requests
should wait. Not measured exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditBatchResult:
    """The draft after an edit batch, or the decision to compact first."""

    draft: Draft
    moment: BatchMoment | None = None
    not_durable_keys: frozenset[EntryKey] = field(default=frozenset(), repr=False)
    compact_first: bool = False
    reported_why_not_compact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """Finds the messages of a turn that are not stored yet."""

    keeper: SessionKeeper
    archive_state: ArchiveState

    async def find_not_durable(self, draft: Draft, boundary: Boundary) -> frozenset[EntryKey]:
        """Return the messages that must be sent because they are not stored. Return no message if
        storing has failed for too long, or the provider refused the request meanwhile."""
        turn_input, keeper = draft.given, self.keeper
        outcome: Persisted | None = None
        seconds = turn_input.settings.turn.deadline_seconds
        async with boundary.stage("ingest", waits=True, seconds=seconds) as stage:
            persisted = await keeper.make_durable(
                turn_input.session, draft.entries, self.archive_state, now=turn_input.now
            )
            outcome = stage.explain(persisted, _durability_reason(persisted))
        if outcome is not None and outcome.location == "nowhere":
            boundary.lines[-1] = replace(boundary.lines[-1], outcome="failed")
        missing_keys = keeper.find_not_durable(draft.entries, self.archive_state)
        if not missing_keys:
            return missing_keys
        gives_up = keeper.archive.has_given_up(self.archive_state.refused_at)
        cause = Cause.GIVEN_UP if gives_up else Cause.NOT_DURABLE
        boundary.note("ingest", "failed", Reason(cause, messages=len(missing_keys)))
        return frozenset() if gives_up else missing_keys


def _durability_reason(outcome: Persisted) -> Reason:
    if outcome.location == "store":
        return Reason(Cause.DURABLE, where=outcome.location)
    return Reason(
        Cause.SPOOLED if outcome.location == "spool" else Cause.NOT_KEPT, error=outcome.problem
    )


async def apply_edits(draft: Draft, edits: tuple[Edit, ...], boundary: Boundary) -> Draft:
    applied_edits: Applied | None = None
    async with boundary.stage("pair") as stage:
        result = await stage.call(draft.apply_edits, edits)
        applied_edits = stage.explain(result, *result.reasons)
    return draft if applied_edits is None else replace(draft, edits=edits, view=applied_edits.view)


async def run_edit_batch(
    draft: Draft,
    moment: BatchMoment,
    query_result: QueryResult,
    boundary: Boundary,
    durability: Durability | None,
    *,
    wanted_tokens: int = 0,
) -> EditBatchResult:
    """Free the space that an edit batch needs, including `wanted_tokens` for a recalled block."""
    if len(draft.entries) > FEW_MESSAGES:
        boundary.expect_work()
    batch = _EditBatch(
        moment=moment, query_result=query_result, boundary=boundary, wanted_tokens=wanted_tokens
    )
    if moment.kind in VOLUNTARY_MOMENTS and await batch.prune(draft) is None:
        return EditBatchResult(draft=draft)  # leave out no message
    draft_without_blocks = draft
    if moment.kind == "room" and any(map(is_block, draft.edits)):
        draft_without_blocks = await apply_edits(draft, batch.without_old_blocks(draft), boundary)
        if draft_without_blocks.has_room(
            wanted_tokens
        ):  # blocks are not messages: they need not be stored
            return EditBatchResult(draft=draft_without_blocks, moment=moment)
    if durability is not None:
        batch = replace(batch, not_durable_keys=await durability.find_not_durable(draft, boundary))
        if len(batch.not_durable_keys) == len(draft.entries):
            return EditBatchResult(draft=draft, not_durable_keys=batch.not_durable_keys)
    return replace(
        await batch.run_edit_batch(draft_without_blocks), not_durable_keys=batch.not_durable_keys
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EditBatch:
    moment: BatchMoment
    query_result: QueryResult
    boundary: Boundary
    wanted_tokens: int
    not_durable_keys: frozenset[EntryKey] = frozenset()

    async def run_edit_batch(self, draft: Draft) -> EditBatchResult:
        """Remove recalled blocks and prune results, then compact or trim."""
        moment, turn_input, limits = self.moment, draft.given, draft.given.limits
        if moment.kind in VOLUNTARY_MOMENTS:
            pruned_draft = await self.prune(draft)
            if pruned_draft is None:
                return EditBatchResult(draft=draft)
            draft = pruned_draft
        if any(map(is_block, draft.edits)):
            draft = await apply_edits(draft, self.without_old_blocks(draft), self.boundary)
        compacts = turn_input.may_compact and moment.kind in FULL_MOMENTS
        if moment.kind not in VOLUNTARY_MOMENTS and not compacts:
            # Do not prune before a summary: measured, that costs the same and removes more.
            draft = await self.prune(draft) or draft
        if draft.used_tokens() > limits.limit_tokens and _has_oversized_result(draft):
            draft = await self.prune(draft, everything=True) or draft
        trims_first = turn_input.settings.turn.trim_first
        if not trims_first and self._stays_full(draft):
            return EditBatchResult(draft=draft, moment=moment, compact_first=True)
        why_not = None
        if draft.used_tokens() > self._enough_tokens(draft):
            why_not = turn_input.why_not_compact
            if why_not is not None:
                self.boundary.note("compact", "skipped", Reason(Cause.NO_COMPACTION, why=why_not))
            draft = await self._trim(draft)
        if trims_first and draft.fills_up():
            return EditBatchResult(draft=draft, moment=moment, compact_first=True)
        draft = await self._prune_at_last(draft)
        return EditBatchResult(
            draft=draft, moment=moment, reported_why_not_compact=why_not is not None
        )

    async def _prune_at_last(self, draft: Draft) -> Draft:
        limits = draft.given.limits
        if draft.used_tokens() > limits.limit_tokens:
            draft = await self.prune(draft) or draft  # different messages are the newest ones now
        if draft.used_tokens() > limits.available_tokens:
            draft = await self.prune(draft, everything=True) or draft
        return await self._trim_protected(draft)

    async def _trim_protected(self, draft: Draft) -> Draft:
        """Leave out protected messages, oldest first, if the request then fits the window. The
        newest user message and the newest tool calls are never left out."""
        settings, limits = draft.given.settings, draft.given.limits
        if settings.turn.trim_first:
            return draft
        shorter, lines_before = draft, len(self.boundary.lines)
        for protected_count in range(settings.trim.protect_messages - 1, -1, -1):
            if shorter.used_tokens() <= limits.available_tokens:
                return shorter
            fewer = replace(
                settings.trim,
                protect_messages=protected_count,
                protect_first_user=protected_count > 0,
            )
            trim_result = await self._choose_trims(shorter, limits.available_tokens, fewer)
            if trim_result.edits:
                shorter = await apply_edits(
                    shorter, shorter.edits + trim_result.edits, self.boundary
                )
        if shorter.used_tokens() <= limits.available_tokens:
            return shorter
        self.boundary.withdraw(lines_before, ("trim", "pair"))
        return draft

    def without_old_blocks(self, draft: Draft) -> tuple[Edit, ...]:
        if self.moment.kind != "cache-expired":
            return without_blocks(draft.edits)
        recent = last_exchange(draft.entries)
        return tuple(edit for edit in draft.edits if not is_block(edit) or edit.anchor in recent)

    def _enough_tokens(self, draft: Draft) -> int:
        limit = draft.given.limits.limit_tokens
        if self.moment.kind == "room":
            return limit - self.wanted_tokens
        if self.moment.kind != "over-limit" or draft.given.settings.turn.trim_first:
            return limit
        return int(PRUNED_ENOUGH_RATIO * limit)

    def _low_tokens(self, draft: Draft) -> int:
        limits = draft.given.limits
        if self.moment.kind != "room":
            return limits.low_water_tokens
        enough = limits.limit_tokens - self.wanted_tokens - limits.window_tokens // 20
        return max(limits.low_water_tokens, enough)

    def _stays_full(self, draft: Draft) -> bool:
        """Return whether pruning freed too little: the request would soon be too large again, and
        each edit breaks the provider's cache."""
        if self.moment.kind not in FULL_MOMENTS:
            return draft.fills_up()
        enough = PRUNED_ENOUGH_RATIO * draft.given.limits.compact_tokens
        return draft.given.may_compact and draft.used_tokens() > enough

    async def prune(self, draft: Draft, *, everything: bool = False) -> Draft | None:
        """Return the draft with pruned tool results; None if nothing was pruned."""
        turn_input = draft.given
        prune_result = PruneResult(edits=(), freed_tokens=0, reason=NOT_RUN)
        async with self.boundary.stage("prune") as stage:
            # Masking and searching long results takes long.
            result = await asyncio.to_thread(self._prune_results, draft, everything=everything)
            prune_result = stage.explain(result, result.reason)
        edits = tuple(
            edit for edit in prune_result.edits if edit.anchor not in self.not_durable_keys
        )
        if not edits:
            return None
        voluntary = (
            self.moment.kind in VOLUNTARY_MOMENTS and not turn_input.settings.turn.trim_first
        )
        if voluntary and not self._edits_pay(draft, edits, prune_result.freed_tokens):
            return None
        replaced_parts = {(edit.anchor, edit.part) for edit in edits}
        other_edits = tuple(
            edit
            for edit in draft.edits
            if not (isinstance(edit, Shorten) and (edit.anchor, edit.part) in replaced_parts)
        )
        return await apply_edits(draft, other_edits + edits, self.boundary)

    def _prune_results(self, draft: Draft, *, everything: bool) -> PruneResult:
        turn_input, limits = draft.given, draft.given.limits
        target = limits.limit_tokens if everything else limits.low_water_tokens
        hidden_parts = {
            (repair.anchor, repair.part)
            for repair in draft.view.repairs
            if repair.kind == "left-out"
        }
        return prune(
            draft.visible(),
            draft.edits,
            turn_input.settings.pruning,
            turn_input.weigher,
            moment=self.moment,
            used_tokens=turn_input.estimate(draft.used_tokens()),
            window_tokens=turn_input.estimate(limits.window_tokens),
            target_tokens=turn_input.estimate(target),
            turn=turn_input.version,
            everything=everything,
            hidden=hidden_parts,
            mask=turn_input.mask.text,
        )

    def _edits_pay(self, draft: Draft, edits: Sequence[Shorten], freed_tokens: int) -> bool:
        turn_input, limits = draft.given, draft.given.limits
        if freed_tokens < turn_input.estimate(limits.window_tokens // WORTHWHILE_SHARE):
            self.boundary.note("prune", "skipped", Reason(Cause.FREES_TOO_LITTLE))
            return False
        anchors = {edit.anchor for edit in edits}
        rows = draft.view.rows
        first = next(index for index, row in enumerate(rows) if not anchors.isdisjoint(_keys(row)))
        before = turn_input.fixed_tokens + sum(row.tokens for row in rows[:first])
        price = price_edit(
            turn_input.request.format,
            turn_input.state.cache,
            freed_tokens=int(freed_tokens * turn_input.state.calibration.ratio),
            before_tokens=turn_input.calibrate(before),
            used_tokens=draft.used_tokens(),
            history_tokens=turn_input.calibrate(draft.incoming_tokens),
            limit_tokens=limits.limit_tokens,
            requests=requests_of(turn_input.state),
        )
        cost = {"saves": int(price.saves), "breaks": int(price.breaks), "requests": price.requests}
        if price.pays:
            self.boundary.note("prune", "done", Reason(Cause.PAYS, **cost))
        else:
            self.boundary.note("prune", "skipped", Reason(Cause.PAYS_TOO_LITTLE, **cost))
        return price.pays

    async def _trim(self, draft: Draft) -> Draft:
        turn_input, settings = draft.given, draft.given.settings
        if settings.turn.trim_first and len(self.query_result.text) < LEAST_QUERY_CHARS:
            self.boundary.note("trim", "skipped", Reason(Cause.QUERY_TOO_SHORT_TO_TRIM))
            return draft
        low_tokens = self._low_tokens(draft)
        for _ in range(TRIM_ROUNDS):
            trim_result = await self._choose_trims(draft, low_tokens, settings.trim)
            if not trim_result.edits:
                return draft
            draft = await apply_edits(draft, draft.edits + trim_result.edits, self.boundary)
            if draft.used_tokens() <= max(low_tokens, turn_input.limits.limit_tokens):
                return draft
        return draft

    async def _choose_trims(self, draft: Draft, low_tokens: int, settings: Trim) -> TrimResult:
        async with self.boundary.stage("trim") as stage:
            result = await stage.call(self._trim_messages, draft, low_tokens, settings)
            return stage.explain(result, result.reason)
        return TrimResult(edits=(), freed_tokens=0, reason=NOT_RUN)

    def _trim_messages(self, draft: Draft, low_tokens: int, settings: Trim) -> TrimResult:
        turn_input = draft.given
        return trim(
            draft.not_left_out(),
            draft.edits,
            turn_input.codec.rules,
            settings,
            turn_input.weigher,
            query=self.query_result.text,
            excess_tokens=turn_input.estimate(draft.used_tokens() - low_tokens),
            turn=turn_input.version,
            by_exchange=not turn_input.settings.turn.trim_first,
            hidden_keys=draft.keys_hidden_by_rules(),
            pinned_keys=self.not_durable_keys,
        )


def _keys(row: Row) -> tuple[EntryKey, ...]:
    return row.sources if isinstance(row, Slot) else (row.key,)


def _has_oversized_result(draft: Draft) -> bool:
    max_tokens = draft.given.estimate(draft.given.limits.available_tokens // 2)
    rows = [row for row in draft.view.rows if row.tokens > max_tokens]
    return any(isinstance(part, ToolResult) for row in rows for part in row.parts)
