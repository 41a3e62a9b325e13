"""The path of a compaction: plan, durable, hooks, summary, receipt, commit.

Works on a turn as it was prepared and holds no lock while a model is asked; only committing
does, for as long as a write takes: the cut, the session's state and the record of it in one
durable write. Always holds: it ends as reduced, irreducible or failed; where it is not reduced,
the session's edits are what they were; what is cut is durable; a session that went on another
way meanwhile is left as it is. What was begun to be committed is not cut off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from recollect.core.boundary import Failure, Part, attempted
from recollect.core.compaction.cut import cut, cut_before, replace_past
from recollect.core.compaction.lines import lines_tokens
from recollect.core.compaction.trigger import breaker_after, breaker_is_open
from recollect.core.engine.hooks import Hooks
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.ledger import masked_carried
from recollect.core.engine.session import Session
from recollect.core.engine.summary import Bill, Proved, Summarizer, masked_json, prove
from recollect.core.formats.stored_records import write_record
from recollect.core.ports import Clock, Model, Recaller
from recollect.core.rules.message_redaction import TextMask, redact_entries
from recollect.core.rules.noise import channel_of
from recollect.core.rules.redaction import redact
from recollect.core.turn.draft import Draft
from recollect.core.turn.query import newest_exchange
from recollect.core.values.compaction import (
    CompactionRecord,
    CompactionResult,
    CutPlan,
    NoCut,
    NoSummary,
    ProbeFinding,
    Summarized,
    Trigger,
)
from recollect.core.values.edit import Cut, Edit
from recollect.core.values.history import SessionState, newest_cut, requests_of
from recollect.core.values.message import EntryKey, MessageId, Text
from recollect.core.values.reason import NOT_RUN, Cause, Reason
from recollect.system.config import Settings
from recollect.system.config.settings import Redaction as RedactionSettings
from recollect.system.telemetry import count

WORTHWHILE_RATIO = 0.98
"""Of what it was, what the view has to come down to, or the compaction was for nothing."""


LOST_RACES = frozenset({Cause.ANOTHER_WAY, Cause.ANOTHER_PROCESS, Cause.FORGOTTEN_MEANWHILE})
"""Nothing failed: it was too late, and can be tried again."""


KEEP_SHARES = (1.0, 0.5, 0.25, 0.0)
"""How much of what is usually kept is tried, one after the other, until the view would fit."""
GRACE_SECONDS = 15.0
"""Summarising ends by itself when its time is over, and says what it spent; this ends the rest."""
UNFIT_FIRST_KEPT = (
    "a session_before_compact hook named a firstKeptEntryId that nothing can be kept from; the "
    "planned one was used"
)
FITS_RATIO = 0.9
"""Of the limit, what a plan may come to: a view that is full again at once gains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOrder:
    """Who wants it, and what a person asked to be looked after."""

    trigger: Trigger
    instructions: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    plan: CutPlan
    summary: Summarized
    proved: Proved
    nothing: CompactionResult
    """What is said where it cannot."""


class Compactor:
    """Compacts the sessions of one engine."""

    def __init__(
        self,
        settings: Settings,
        *,
        space: str,
        model: Model | None,
        hooks: Hooks,
        keeper: SessionKeeper | None,
        recaller: Recaller | None,
        clock: Clock,
        critical_rules: Callable[[], str] = lambda: "",
        workspace: str | None = None,
    ) -> None:
        """`critical_rules` are the workspace's, read anew for every summary."""
        self._settings = settings
        self._space = space
        self._hooks = hooks
        self._keeper = keeper
        self._recaller = recaller
        self._clock = clock
        self._workspace = workspace
        self._summarizer = Summarizer(
            settings.compaction, model=model, hooks=hooks, critical_rules=critical_rules
        )
        self._commits: set[asyncio.Task[CompactionResult]] = set()
        self.part = Part("compaction")
        """Works for a session, or fails for it: then its view is trimmed instead."""

    @property
    def nobody(self) -> Reason | None:
        """Why no summary can ever be had; None where one can."""
        return self._summarizer.why_not

    def why_not(
        self, state: SessionState, *, asked_for: bool = False, overflowed: bool = False
    ) -> Reason | None:
        """Say why there can be no compaction now; None if there can.

        A pause because the window fills too soon does not hold back one after the provider
        `overflowed`: nothing could be sent without it.
        """
        nobody = self._summarizer.why_not
        if nobody is not None or asked_for:
            return nobody
        if not self._settings.compaction.enabled:
            return Reason(Cause.COMPACTION_OFF)
        if state.compaction_paused:
            return Reason(Cause.COMPACTION_UNDONE)
        is_open = breaker_is_open(state.breaker, now=self._clock.now())
        if is_open and not (overflowed and state.breaker.failures == 0):
            return Reason(Cause.BREAKER_OPEN)
        return None

    async def compact(
        self, session: Session, draft: Draft, order: CompactionOrder
    ) -> CompactionResult:
        """Compact a session as `draft` shows it. Never raises for what goes wrong."""
        begun = time.monotonic()
        used = draft.used_tokens()
        nothing = CompactionResult(
            convergence="failed",
            reason=NOT_RUN,
            trigger=order.trigger,
            tokens_before=used,
            tokens_after=used,
        )
        why_not = self.why_not(
            session.state,
            asked_for=order.trigger == "manual",
            overflowed=order.trigger == "overflow",
        )
        if why_not is not None:
            return replace(nothing, reason=why_not)
        if draft.given.request.continues:
            holds = Reason(Cause.PROVIDER_HOLDS)
            return replace(nothing, convergence="irreducible", reason=holds)
        bill = Bill()
        seconds = self._settings.compaction.deadline_seconds + GRACE_SECONDS
        work = self._made_ready(session, draft, order, nothing, begun, bill)
        ready = await attempted(asyncio.wait_for(work, seconds))
        if isinstance(ready, _Ready):
            ready = await attempted(self._committed(session, draft, ready, begun))
        if isinstance(ready, Failure):
            late = issubclass(ready.error, TimeoutError)
            error = Reason(Cause.ERROR, error=ready.said)
            why = Reason(Cause.COMPACTION_LATE) if late else error
            ready = replace(nothing, reason=why, spent=bill.spent)
        done = replace(ready, seconds=time.monotonic() - begun)
        count("compaction", trigger=order.trigger, outcome=done.convergence)
        if done.reason.cause not in LOST_RACES:
            await self._count(session, draft, done)
            if done.convergence == "failed":
                session.compaction_failure = done.reason
                self.part.away(str(done.reason), whose=session.id)
            elif done.compacted:
                session.compaction_failure = None
                self.part.back(whose=session.id)
        return await self._fire_after(session, draft, done)

    async def close(self) -> None:
        """Wait for what is being committed: half of it would be neither done nor undone."""
        loop = asyncio.get_running_loop()
        running = [task for task in self._commits if task.get_loop() is loop]
        if running:
            await asyncio.wait(running)

    async def _made_ready(
        self,
        session: Session,
        draft: Draft,
        order: CompactionOrder,
        nothing: CompactionResult,
        begun: float,
        bill: Bill,
    ) -> _Ready | CompactionResult:
        plan = self._plan(draft)
        if isinstance(plan, CutPlan):
            if missing := await self._not_durable(session, draft, plan):
                why = Reason(Cause.SOME_NOT_DURABLE, messages=missing)
                return replace(nothing, reason=why)
            plan = _without(plan, session.keeping.forgotten)
        if isinstance(plan, NoCut):
            return replace(nothing, convergence="irreducible", reason=plan.reason)
        event = {"messageCount": len(draft.entries), "tokenCount": draft.used_tokens()}
        whose = self.context(session, draft)
        answered = await self._hooks.fire("before_compaction", event, whose)
        mask = TextMask(self._settings.redaction, session.keeping.secrets)
        masked, before = await asyncio.to_thread(_masked, plan, newest_cut(draft.edits), mask)
        supplied, told = await self._summarizer.supplied(
            draft, masked, before, mask, instructions=order.instructions, whose=whose
        )
        notes = (*answered.notes, *told)
        if isinstance(supplied, NoSummary):
            why = supplied.reason.masked(mask.text)
            return replace(nothing, spent=supplied.spent, notes=notes, reason=why)
        if supplied is not None and supplied.first_kept not in (None, plan.anchor):
            other = await self._kept_from(session, draft, supplied.first_kept)
            if other is None:
                notes = (*notes, UNFIT_FIRST_KEPT)
            else:
                plan = other
                masked, before = await asyncio.to_thread(
                    _masked, plan, newest_cut(draft.edits), mask
                )
        summary = await self._summarizer.summarize(
            draft,
            masked,
            before,
            mask,
            instructions=order.instructions,
            supplied=supplied,
            begun=begun,
            bill=bill,
        )
        notes = (*notes, *summary.notes)
        nothing = replace(nothing, spent=summary.spent, notes=notes)
        if isinstance(summary, NoSummary):
            return replace(nothing, reason=summary.reason.masked(mask.text))
        proved = await prove(
            draft,
            masked,
            before,
            summary,
            mask,
            recaller=self._recaller,
            space=self._space,
            session=session.id,
            pin_ratio=self._settings.compaction.pin_ratio,
            now=self._clock.now(),
        )
        return _Ready(plan=plan, summary=summary, proved=proved, nothing=nothing)

    async def _kept_from(
        self, session: Session, draft: Draft, anchor: EntryKey | None
    ) -> CutPlan | None:
        assert anchor is not None
        given = draft.given
        plan = cut_before(
            draft.entries, draft.edits, given.codec.rules, anchor, weigher=given.weigher
        )
        if plan is None or await self._not_durable(session, draft, plan):
            return None
        left = _without(plan, session.keeping.forgotten)
        return left if isinstance(left, CutPlan) else None

    async def _committed(
        self, session: Session, draft: Draft, ready: _Ready, begun: float
    ) -> CompactionResult:
        task = asyncio.create_task(self._commit(session, draft, ready, begun))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return await asyncio.shield(task)

    async def _commit(
        self, session: Session, draft: Draft, ready: _Ready, begun: float
    ) -> CompactionResult:
        plan, nothing = ready.plan, ready.nothing
        async with session.lock:
            # A turn that waits for this compaction has not been committed: its history is new.
            state, began = session.state, draft.given.state
            if (state.path, state.edits) == (began.path, began.edits):
                state = draft.aligned_state(state)
            base = _base(state, draft)
            if base is None or plan.anchor not in state.path:
                return replace(nothing, reason=Reason(Cause.ANOTHER_WAY))
            cut = _new_cut(state, base, ready)
            blocks = newest_exchange(draft.entries)  # what was recalled for it stays
            edits = replace_past(base, cut, draft.entries, keep_blocks=blocks).edits
            tokens_after = draft.under(edits).used_tokens()
            if tokens_after > WORTHWHILE_RATIO * nothing.tokens_before:
                why = Reason(Cause.SUMMARY_AS_LONG)
                return replace(nothing, convergence="irreducible", reason=why)
            result = replace(
                nothing,
                convergence="reduced",
                reason=Reason(Cause.SUMMARISED, messages=len(plan.summarized)),
                number=cut.number,
                summary=ready.proved.text,
                first_kept=plan.anchor,
                compacted_messages=len(plan.summarized),
                tokens_after=tokens_after,
                splits_a_turn=plan.splits_a_turn,
                details={**ready.summary.details, **ready.summary.carried.details()},
                receipt=ready.proved.receipt,
                seconds=time.monotonic() - begun,
            )
            new = replace(
                state,
                turn=state.turn + 1,
                edits=edits,
                compactions=cut.number,
                compaction_paused=False,
            )
            why_not = await self._keep(session, new, result, cut, turn=requests_of(state) + 1)
            if why_not is not None:
                return replace(nothing, reason=why_not)
            session.state = new
            return result

    async def _keep(
        self,
        session: Session,
        state: SessionState,
        result: CompactionResult,
        cut: Cut,
        *,
        turn: int,
    ) -> Reason | None:
        """Write the cut, the state and the record of it; why that failed, None where it did not."""
        if self._keeper is None:
            return None
        now, redaction = self._clock.now(), self._settings.redaction
        kept_result = result
        if redaction.enabled:
            kept_result = _masked_result(result, redaction)
        record = CompactionRecord(
            session=session.id,
            number=result.number,
            at=now,
            body=write_record(kept_result, turn=turn, at=now),
            about=cut.covers,
        )
        kept = await self._keeper.keep_state(
            session.id, state, session.keeping, now=now, compactions=(record,)
        )
        if kept.where == "nowhere":
            return Reason(Cause.COULD_NOT_BE_KEPT, error=kept.said)
        if kept.written is not None and kept.written.session_stale:
            return Reason(Cause.ANOTHER_PROCESS)
        if kept.written is not None and kept.written.session_cleaned:
            return Reason(Cause.FORGOTTEN_MEANWHILE)
        return None

    async def _count(self, session: Session, draft: Draft, done: CompactionResult) -> None:
        async with session.lock:
            breaker = breaker_after(
                session.state.breaker,
                done,
                now=self._clock.now(),
                turn=requests_of(session.state),
                window_tokens=draft.given.limits.window_tokens,
            )
            session.state = replace(session.state, breaker=breaker)

    async def _fire_after(
        self, session: Session, draft: Draft, done: CompactionResult
    ) -> CompactionResult:
        if not done.compacted:
            return done
        event = {
            "messageCount": len(draft.entries) - done.compacted_messages,
            "tokenCount": done.tokens_after,
            "compactedCount": done.compacted_messages,
        }
        answered = await self._hooks.fire("after_compaction", event, self.context(session, draft))
        return replace(done, notes=(*done.notes, *answered.notes))

    def _plan(self, draft: Draft) -> CutPlan | NoCut:
        """The first plan whose view would fit; else the one that keeps least."""
        given, limits = draft.given, draft.given.limits
        allowed = FITS_RATIO * min(limits.compact_tokens, limits.limit_tokens)
        added = self._added_tokens(draft)
        best: CutPlan | NoCut = NoCut(reason=Reason(Cause.NOTHING_BEFORE))
        for share in KEEP_SHARES:
            plan = cut(
                draft.entries,
                draft.edits,
                given.codec.rules,
                keep_tokens=given.estimated(int(limits.keep_recent_tokens * share)),
                weigher=given.weigher,
            )
            if isinstance(plan, NoCut):
                best = plan if isinstance(best, NoCut) else best
                continue
            best = plan
            if given.calibrated(given.fixed_tokens + plan.kept_tokens) + added <= allowed:
                break
        return best

    def _added_tokens(self, draft: Draft) -> int:
        window = draft.given.limits.window_tokens
        lines = lines_tokens(window)
        pins = int(window * self._settings.compaction.pin_ratio)
        return self._summarizer.summary_tokens(draft) + lines + pins

    async def _not_durable(self, session: Session, draft: Draft, plan: CutPlan) -> int:
        """How many messages are not durable yet, so that the past may not be cut."""
        if self._keeper is None:
            return 0
        await self._keeper.make_durable(
            session.id, draft.entries, session.keeping, now=self._clock.now()
        )
        return len(self._keeper.not_durable(plan.summarized, session.keeping))

    def context(self, session: Session, draft: Draft) -> dict[str, str | None]:
        """Whose compaction it is, as hooks are told; where its host does not say by which channel
        messages come, the newest one that names its channel does."""
        said = (
            channel_of(part.text)
            for entry in reversed(draft.entries)
            if entry.role == "user"
            for part in entry.parts
            if isinstance(part, Text)
        )
        heard = session.message_provider or next((name for name in said if name), None)
        return {
            "agentId": self._space,
            "sessionKey": session.id,
            "workspaceDir": self._workspace,
            "messageProvider": heard,
        }


def _masked(plan: CutPlan, before: Cut | None, mask: TextMask) -> tuple[CutPlan, Cut | None]:
    summarized = redact_entries(plan.summarized, mask)
    split = len(plan.history)
    plan = replace(plan, history=summarized[:split], turn_prefix=summarized[split:])
    if before is None:
        return plan, None
    carried = before.carried and masked_carried(before.carried, mask.text)
    return plan, replace(before, summary=mask.text(before.summary), carried=carried)


def _without(plan: CutPlan, forgotten: set[MessageId]) -> CutPlan | NoCut:
    history = tuple(entry for entry in plan.history if entry.id not in forgotten)
    prefix = tuple(entry for entry in plan.turn_prefix if entry.id not in forgotten)
    if not history and not prefix:
        return NoCut(reason=Reason(Cause.ALL_FORGOTTEN))
    return replace(plan, history=history, turn_prefix=prefix)


def _base(state: SessionState, draft: Draft) -> tuple[Edit, ...] | None:
    if state.edits == draft.given.state.edits:
        return draft.edits
    return state.edits if newest_cut(state.edits) == newest_cut(draft.edits) else None


def _new_cut(state: SessionState, base: tuple[Edit, ...], ready: _Ready) -> Cut:
    number, before = state.compactions + 1, newest_cut(base)
    earlier = () if before is None else before.covers
    return Cut(
        anchor=ready.plan.anchor,
        summary=ready.proved.text,
        stage="compact",
        reason=Reason(Cause.CUT, number=number, cut=ready.plan.reason),
        turn=state.turn + 1,
        number=number,
        before=0 if before is None else before.number,
        covers=tuple(dict.fromkeys((*earlier, *(entry.id for entry in ready.plan.summarized)))),
        carried=ready.summary.carried,
    )


def _masked_result(result: CompactionResult, redaction: RedactionSettings) -> CompactionResult:
    def masked(text: str) -> str:
        return redact(text, pii=redaction.pii).text

    def told(finding: ProbeFinding) -> ProbeFinding:
        probe = replace(
            finding.probe, text=masked(finding.probe.text), sentence=masked(finding.probe.sentence)
        )
        return replace(finding, probe=probe)

    receipt = result.receipt
    if receipt is not None:
        receipt = replace(receipt, findings=tuple(told(finding) for finding in receipt.findings))
    return replace(
        result,
        reason=result.reason.masked(masked),
        notes=tuple(masked(note) for note in result.notes),
        summary=masked(result.summary),
        receipt=receipt,
        details=masked_json(dict(result.details), masked),
    )
