"""Compacts sessions, in parallel with turns, but only one compaction per session at a time. The
steps are: plan, store the messages, call hooks, write the summary, check it, commit. No lock is
held while a hook or model runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from recollect.core.boundary import Boundary, Component, Failure, attempted
from recollect.core.compaction.carry import append_carried, carry
from recollect.core.compaction.cut import (
    TriggerResult,
    UndoResult,
    breaker_after,
    breaker_is_open,
    replace_past,
    undo,
)
from recollect.core.compaction.summarize import Summarizer
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.session import Session, load_state
from recollect.core.engine.summary import (
    Hooks,
    HookSummary,
    SummaryInput,
    base_edits,
    find_hook_summary,
    hook_preparation,
    lines_room,
    mask_input,
    mask_json,
    mask_result,
    new_cut,
    plan_cut,
    prove_summary,
    summary_tokens,
    without_forgotten,
)
from recollect.core.formats.stored_records import write_record
from recollect.core.ports import Clock, Model, Recaller
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.noise import channel_of
from recollect.core.turn.draft import Draft
from recollect.core.turn.query import newest_exchange
from recollect.core.values.compaction import (
    CompactionRecord,
    CompactionResult,
    CutPlan,
    NoCut,
    NoSummary,
    Receipt,
    Spent,
    Summarized,
    Trigger,
)
from recollect.core.values.edit import Cut
from recollect.core.values.history import Entry, SessionState, newest_cut, requests_of
from recollect.core.values.message import Text
from recollect.core.values.reason import NOT_RUN, Cause, Reason
from recollect.system.config import Settings
from recollect.system.telemetry import count

WORTHWHILE_RATIO = 0.98
"""A cut that leaves more of the request breaks the cache for nothing. Not measured."""
LOST_RACES = frozenset({Cause.ANOTHER_WAY, Cause.ANOTHER_PROCESS, Cause.FORGOTTEN_MEANWHILE})
GRACE_SECONDS = 15.0
"""Time for hooks and checks, beyond the deadline of the model's calls. Not measured."""
KEEP_TRIES = 2
"""A second try follows if another process wrote the session first. Bounds the work."""
HOOK_SHARE = 0.5
"""Share of the deadline for hooks that may write the summary. The rest is for the model."""
COVERS_TOO_LITTLE = (
    "a session_before_compact hook named a firstKeptEntryId before the cut: its summary is not used"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOrder:
    """Why a compaction was ordered, and the user's instructions for the summary."""

    trigger: Trigger
    instructions: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadyCut:
    plan: CutPlan
    summary: Summarized
    text: str = field(repr=False)
    receipt: Receipt
    base_result: CompactionResult


class Compactor:
    """Compacts the sessions of one engine."""

    def __init__(
        self,
        settings: Settings,
        *,
        model: Model | None,
        hooks: Hooks,
        keeper: SessionKeeper | None,
        reader: SessionKeeper | None,
        recaller: Recaller | None,
        clock: Clock,
        critical_rules: Callable[[], str] = lambda: "",
        workspace: str | None = None,
    ) -> None:
        """Each summary calls `critical_rules`. `keeper` is None if nothing may be stored."""
        self._settings, self._model, self._hooks = settings, model, hooks
        self._keeper, self._reader, self._recaller = keeper, reader, recaller
        self._clock, self._critical_rules, self._workspace = clock, critical_rules, workspace
        self._running: set[asyncio.Task[CompactionResult]] = set()
        self._commits: set[asyncio.Task[CompactionResult]] = set()
        self.component: Component = Component("compaction")

    @property
    def why_never(self) -> Reason | None:
        """Return why this engine never compacts; None if it does."""
        if self._model is None and not self._hooks.listens("session_before_compact"):
            return Reason(Cause.NO_MODEL)
        return None

    def why_not(self, state: SessionState, trigger: Trigger = "threshold") -> Reason | None:
        """Return why this session cannot be compacted now; None if it can. Compactions are paused
        if the window refilled too soon, but not after an overflow error."""
        if self.why_never is not None or trigger == "manual":
            return self.why_never
        if not self._settings.compaction.enabled:
            return Reason(Cause.COMPACTION_OFF)
        if state.compaction_paused:
            return Reason(Cause.COMPACTION_UNDONE)
        is_open = breaker_is_open(state.breaker, now=self._clock.now())
        if is_open and not (trigger == "overflow" and state.breaker.failures == 0):
            problem = state.breaker.problem
            failure_reason = Reason(Cause.BREAKER_FAILED, error=problem)
            return failure_reason if problem else Reason(Cause.BREAKER_OPEN)
        return None

    async def run(self, session: Session, draft: Draft, order: CompactionOrder) -> CompactionResult:
        """Compact, and wait for the result. If a compaction is running already, wait for that one,
        unless a user asked for a new one."""
        while order.trigger != "manual" and (unfinished_tasks := _list_unfinished(session)):
            result = await _wait_for_result(unfinished_tasks[0])
            if result.reason.cause is not Cause.ANOTHER_WAY:
                return result
        task = self._start_compaction(session, draft, order, flush_first=False)
        return await _wait_for_result(task)

    def start_early(self, session: Session, draft: Draft, due: TriggerResult) -> None:
        """Start a compaction or note-taking in the background before the window is full."""
        if _list_unfinished(session):
            return
        if due.due == "flush":
            self._start_flush(session, draft)
        elif due.due == "compaction" and not self.why_not(session.state):
            order = CompactionOrder(trigger="threshold")
            task = self._start_compaction(session, draft, order, flush_first=due.flush_first)

            def keep(ended_task: asyncio.Task[CompactionResult]) -> None:
                if not ended_task.cancelled():
                    session.compacted_meanwhile = ended_task.result()

            task.add_done_callback(keep)

    async def undo(self, session: Session, state: SessionState) -> UndoResult:
        """Undo the newest compaction and store that. The caller holds the session's lock."""
        undo_result = undo(state.edits, known_keys=frozenset(state.path))
        if undo_result.undone is None:
            return undo_result
        edits, turn = undo_result.edits, state.turn + 1
        new_state = replace(state, edits=edits, turn=turn, compaction_paused=True)
        failure_reason = await self._store_state(session, new_state)
        if failure_reason is not None:
            return UndoResult(edits=state.edits, undone=None, reason=failure_reason)
        session.state = new_state
        return undo_result

    async def note_flush(self, session: Session, *, cycle: int | None = None) -> None:
        """Store that the agent has written its notes. The caller holds the session's lock."""
        for _ in range(KEEP_TRIES):
            trouble = tuple(session.archive_state.report_lines)
            boundary = Boundary(turn_seconds=0.0, stage_seconds=0.0)
            state = await load_state(session, self._reader, boundary)
            session.archive_state.report_lines[:0] = trouble  # report these problems in a turn
            written_in = state.compactions if cycle is None else min(cycle, state.compactions)
            if state.flushed_in is not None and state.flushed_in >= written_in:
                return
            new_state = replace(state, flushed_in=written_in)
            if self._keeper is None or not state.path:  # an empty session is not stored
                session.state = new_state
                return
            session.state = new_state = replace(new_state, turn=state.turn + 1)
            failure_reason = await self._store_state(session, new_state)
            if failure_reason is None or failure_reason.cause is Cause.COULD_NOT_BE_KEPT:
                return

    def cancel(self, session: Session) -> None:
        for task in (*session.compactions, *([] if session.flush is None else [session.flush])):
            task.cancel()

    async def close(self) -> None:
        """Cancel all work, but wait until running commits are complete."""
        loop = asyncio.get_running_loop()
        running = [task for task in self._running if task.get_loop() is loop]
        for task in running:
            task.cancel()
        commits = [task for task in self._commits if task.get_loop() is loop]
        if running or commits:
            await asyncio.wait([*running, *commits])

    def _start_compaction(
        self, session: Session, draft: Draft, order: CompactionOrder, *, flush_first: bool
    ) -> asyncio.Task[CompactionResult]:
        before = _list_unfinished(session)
        is_newest = draft is session.last_draft and draft.committed

        async def work() -> CompactionResult:
            if before:
                await asyncio.wait(before)
            if flush_first:
                if session.flush is not None:
                    await asyncio.wait({session.flush})
                else:
                    await self._flush(session, draft)
            latest = session.last_draft if is_newest and session.last_draft is not None else draft
            async with session.lock:  # newer turns may have changed the state
                current_draft = _follow_state(latest, session.state)
            return await self._compact(session, current_draft, order)

        task = self._start_task(session, work, order.trigger)
        session.compactions = [*before, task]
        return task

    def _start_flush(self, session: Session, draft: Draft) -> None:
        if session.flush is not None or not self._hooks.listens("flush_due"):
            return

        async def work() -> CompactionResult:
            await self._flush(session, draft)
            return CompactionResult(
                convergence="irreducible", reason=Reason(Cause.ONLY_NOTES), trigger="threshold"
            )

        def over(_: object) -> None:
            session.flush = None

        session.flush = self._start_task(session, work, "threshold")
        session.flush.add_done_callback(over)

    def _start_task(
        self, session: Session, work: Callable[[], Awaitable[CompactionResult]], trigger: Trigger
    ) -> asyncio.Task[CompactionResult]:
        async def run_safely() -> CompactionResult:
            result = await attempted(work())
            if isinstance(result, Failure):
                reason = Reason(Cause.ERROR, error=result.said)
                return CompactionResult(convergence="failed", reason=reason, trigger=trigger)
            return result

        task = session.compacting = asyncio.create_task(run_safely())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _flush(self, session: Session, draft: Draft) -> None:
        if not self._hooks.listens("flush_due"):
            return
        cycle = session.state.compactions
        event = {"tokenCount": draft.used_tokens(), "compactionCount": cycle}
        await self._hooks.fire("flush_due", event, self._hook_context(session, draft))
        async with session.lock:
            await self.note_flush(session, cycle=cycle)

    async def _compact(
        self, session: Session, draft: Draft, order: CompactionOrder
    ) -> CompactionResult:
        begun = time.monotonic()
        used_tokens = draft.used_tokens()
        base_result = CompactionResult(
            convergence="failed",
            reason=NOT_RUN,
            trigger=order.trigger,
            tokens_before=used_tokens,
            tokens_after=used_tokens,
        )
        refusal = self.why_not(session.state, order.trigger)
        if refusal is not None:
            return replace(base_result, reason=refusal)
        if draft.given.request.continues:
            holds = Reason(Cause.PROVIDER_HOLDS)
            return replace(base_result, convergence="irreducible", reason=holds)
        summarizers: list[Summarizer] = []
        seconds = self._settings.compaction.deadline_seconds + GRACE_SECONDS
        work = self._prepare_cut(session, draft, order, base_result, begun, summarizers)
        ready = await attempted(asyncio.wait_for(work, seconds))
        if isinstance(ready, _ReadyCut):
            ready = await attempted(self._commit_to_the_end(session, draft, ready, begun))
        if isinstance(ready, Failure):
            is_late = issubclass(ready.error, TimeoutError)
            error = Reason(Cause.ERROR, error=ready.said)
            costs = summarizers[0].costs if summarizers else Spent()
            ready = replace(
                base_result, reason=Reason(Cause.COMPACTION_LATE) if is_late else error, spent=costs
            )
        result = replace(ready, seconds=time.monotonic() - begun)
        count("compaction", trigger=order.trigger, outcome=result.convergence)
        if result.reason.cause not in LOST_RACES:
            await self._count_attempt(session, draft, result)
        if not result.compacted:
            return result
        event = {
            "messageCount": len(draft.entries) - result.compacted_messages,
            "tokenCount": result.tokens_after,
            "compactedCount": result.compacted_messages,
        }
        hook_answers = await self._hooks.fire(
            "after_compaction", event, self._hook_context(session, draft)
        )
        return replace(result, notes=(*result.notes, *hook_answers.notes))

    async def _prepare_cut(
        self,
        session: Session,
        draft: Draft,
        order: CompactionOrder,
        base_result: CompactionResult,
        begun: float,
        summarizers: list[Summarizer],
    ) -> _ReadyCut | CompactionResult:
        plan = plan_cut(draft, self._settings)
        if isinstance(plan, CutPlan):
            if missing := await self._count_not_durable(session, draft, plan):
                reason = Reason(Cause.SOME_NOT_DURABLE, messages=missing)
                return replace(base_result, reason=reason)
            plan = without_forgotten(plan, session.archive_state.forgotten_ids)
        if isinstance(plan, NoCut):
            return replace(base_result, convergence="irreducible", reason=plan.reason)
        event = {"messageCount": len(draft.entries), "tokenCount": draft.used_tokens()}
        hook_context = self._hook_context(session, draft)
        hook_answers = await self._hooks.fire("before_compaction", event, hook_context)
        mask = TextMask(self._settings.redaction, session.archive_state.secrets)
        summary_input = await asyncio.to_thread(mask_input, plan, newest_cut(draft.edits), mask)
        summary_input = replace(summary_input, instructions=mask.text(order.instructions))
        hook_summary, hook_notes = await self._ask_hooks(draft, summary_input, hook_context)
        notes = (*hook_answers.notes, *hook_notes)
        if isinstance(hook_summary, NoSummary):
            return replace(base_result, notes=notes, reason=hook_summary.reason)
        rules_text = mask.text(await asyncio.to_thread(self._critical_rules))
        summary: Summarized | NoSummary
        if hook_summary is not None:
            summary = await self._complete_summary(
                draft, summary_input, mask, hook_summary, rules_text
            )
        elif self._model is None:
            summary = NoSummary(reason=Reason(Cause.NO_SUPPLIER), spent=Spent())
        else:
            turn_input, settings = draft.given, self._settings.compaction
            left_seconds = settings.deadline_seconds - (time.monotonic() - begun)
            summarizer = Summarizer(
                self._model.ask,
                replace(settings, deadline_seconds=max(1.0, left_seconds)),
                turn_input.codec.rules,
                window_tokens=self._model.window_tokens or turn_input.limits.window_tokens,
                count_tokens=turn_input.weigher.text,
                most_summary_tokens=turn_input.estimate(summary_tokens(draft)),
                lines_tokens=lines_room(draft, plan),
                instructions=summary_input.instructions,
                rules_text=rules_text,
                mask=mask.text,
            )
            summarizers.append(summarizer)
            summary = await summarizer.summarize(
                summary_input.plan, summary_input.previous, summary_input.carried_details
            )
        notes = (*notes, *summary.notes)
        base_result = replace(base_result, spent=summary.spent, notes=notes)
        if isinstance(summary, NoSummary):
            return replace(base_result, reason=summary.reason.mask_texts(mask.text))
        text, receipt = await prove_summary(
            draft,
            summary_input,
            summary,
            mask,
            recaller=self._recaller,
            pin_ratio=self._settings.compaction.pin_ratio,
        )
        return _ReadyCut(
            plan=plan, summary=summary, text=text, receipt=receipt, base_result=base_result
        )

    async def _ask_hooks(
        self, draft: Draft, summary_input: SummaryInput, hook_context: dict[str, str | None]
    ) -> tuple[HookSummary | NoSummary | None, tuple[str, ...]]:
        if not self._hooks.listens("session_before_compact"):
            return None, ()
        record = hook_preparation(
            summary_input.plan,
            await asyncio.to_thread(
                carry, summary_input.plan.summarized, summary_input.carried_details
            ),
            tokens_before=draft.used_tokens(),
            previous_summary=summary_input.previous,
            reserve_tokens=draft.given.limits.reserve_tokens,
        )
        instructions, signal = summary_input.instructions or None, threading.Event()
        event = {"preparation": record, "customInstructions": instructions, "signal": signal}
        try:
            hook_answers = await self._hooks.fire(
                "session_before_compact",
                event,
                hook_context,
                seconds=self._settings.compaction.deadline_seconds * HOOK_SHARE,
            )
        finally:
            signal.set()  # a hook that still runs in a thread can stop
        if hook_answers.is_cancelled:
            reason = Reason(Cause.HOOK_SAID_NO)
            return NoSummary(reason=reason, spent=Spent()), hook_answers.notes
        hook_summary = find_hook_summary(hook_answers)
        kept_keys = [None, *(entry.key for entry in summary_input.plan.kept)]
        if hook_summary is not None and hook_summary.first_kept not in kept_keys:
            return None, (*hook_answers.notes, COVERS_TOO_LITTLE)
        return hook_summary, hook_answers.notes

    async def _complete_summary(
        self,
        draft: Draft,
        summary_input: SummaryInput,
        mask: TextMask,
        hook_summary: HookSummary,
        rules_text: str,
    ) -> Summarized:
        plan = summary_input.plan
        carried_details = await asyncio.to_thread(
            carry, plan.summarized, summary_input.carried_details, kept_entries=plan.kept
        )
        text = append_carried(
            mask.text(hook_summary.text),
            carried_details,
            rules_text,
            most_tokens=draft.given.estimate(summary_tokens(draft)),
            lines_tokens=lines_room(draft, plan),
            count_tokens=draft.given.weigher.text,
        )
        details = mask_json(dict(hook_summary.details), mask.text)
        return Summarized(text=text, carried=carried_details, spent=Spent(), details=details)

    async def _commit_to_the_end(
        self, session: Session, draft: Draft, ready: _ReadyCut, begun: float
    ) -> CompactionResult:
        task = asyncio.create_task(self._commit(session, draft, ready, begun))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return await asyncio.shield(task)

    async def _commit(
        self, session: Session, draft: Draft, ready: _ReadyCut, begun: float
    ) -> CompactionResult:
        plan, base_result = ready.plan, ready.base_result
        async with session.lock:
            # The state lacks the turn that waits for this compaction, so align it with that turn's
            # history.
            state, began = session.state, draft.given.state
            if (state.path, state.edits) == (began.path, began.edits):
                state = draft.state_after_alignment(state)
            base = base_edits(state, draft)
            if base is None or plan.anchor not in state.path:
                return replace(base_result, reason=Reason(Cause.ANOTHER_WAY))
            cut = new_cut(state, base, plan, ready.text, ready.summary.carried)
            # Blocks recalled for the newest user message remain.
            blocks = newest_exchange(draft.entries)
            edits = replace_past(base, cut, draft.entries, keep_blocks=blocks)
            tokens_after = draft.with_edits(edits).used_tokens()
            if tokens_after > WORTHWHILE_RATIO * base_result.tokens_before:
                reason = Reason(Cause.SUMMARY_AS_LONG)
                return replace(base_result, convergence="irreducible", reason=reason)
            result = replace(
                base_result,
                convergence="reduced",
                reason=Reason(Cause.SUMMARIZED, messages=len(plan.summarized)),
                number=cut.number,
                summary=ready.text,
                first_kept=plan.anchor,
                compacted_messages=len(plan.summarized),
                tokens_after=tokens_after,
                splits_a_turn=plan.splits_a_turn,
                details={**ready.summary.carried.details(), **ready.summary.details},
                receipt=ready.receipt,
                seconds=time.monotonic() - begun,
            )
            new_state = replace(
                state,
                turn=state.turn + 1,
                edits=edits,
                compactions=cut.number,
                compaction_paused=False,
            )
            record = self._record(session, result, cut, turn=requests_of(state) + 1)
            failure_reason = await self._store_state(session, new_state, record)
            if failure_reason is not None:
                return replace(base_result, reason=failure_reason)
            session.state = new_state
            return result

    def _record(
        self, session: Session, result: CompactionResult, cut: Cut, *, turn: int
    ) -> CompactionRecord:
        now = self._clock.now()
        if self._settings.redaction.enabled:
            result = mask_result(result, self._settings.redaction)
        body = write_record(result, turn=turn, written_at=now)
        return CompactionRecord(
            session=session.id, number=result.number, at=now, body=body, about=cut.covers
        )

    async def _store_state(
        self, session: Session, state: SessionState, *records: CompactionRecord
    ) -> Reason | None:
        """Write a session's state and records. Return the reason of a failure, else None."""
        if self._keeper is None:
            return None
        outcome = await self._keeper.store_state(
            session.id, state, session.archive_state, now=self._clock.now(), compactions=records
        )
        if outcome.location == "nowhere":
            return Reason(Cause.COULD_NOT_BE_KEPT, error=outcome.problem)
        if outcome.write_result is not None and outcome.write_result.session_stale:
            return Reason(Cause.ANOTHER_PROCESS)
        if outcome.write_result is not None and outcome.write_result.session_cleaned:
            return Reason(Cause.FORGOTTEN_MEANWHILE)
        return None

    async def _count_attempt(
        self, session: Session, draft: Draft, result: CompactionResult
    ) -> None:
        async with session.lock:
            breaker = breaker_after(
                session.state.breaker,
                result,
                now=self._clock.now(),
                turn=requests_of(session.state),
                window_tokens=draft.given.limits.window_tokens,
            )
            session.state = replace(session.state, breaker=breaker)
        if result.convergence == "failed":
            session.compaction_failure = result.reason
            self.component.fail(str(result.reason), whose=session.id)
        elif result.compacted:
            session.compaction_failure = None
            self.component.recover(whose=session.id)

    async def _count_not_durable(self, session: Session, draft: Draft, plan: CutPlan) -> int:
        if self._keeper is None:
            return 0
        await self._keeper.make_durable(
            session.id, draft.entries, session.archive_state, now=self._clock.now()
        )
        return len(self._keeper.find_not_durable(plan.summarized, session.archive_state))

    def _hook_context(self, session: Session, draft: Draft) -> dict[str, str | None]:
        return {
            "agentId": draft.given.space,
            "sessionKey": session.id,
            "workspaceDir": self._workspace,
            "messageProvider": session.message_provider
            or next(filter(None, map(_channel, reversed(draft.entries))), None),
        }


def _channel(entry: Entry) -> str | None:
    texts = [part.text for part in entry.parts if isinstance(part, Text)]
    return channel_of(texts[0]) if texts and entry.role == "user" else None


def _list_unfinished(session: Session) -> list[asyncio.Task[CompactionResult]]:
    return [task for task in session.compactions if not task.done()]


def _follow_state(draft: Draft, state: SessionState) -> Draft:
    began = draft.given.state
    if draft.committed or state.edits != began.edits:
        return draft if state.edits == draft.edits else draft.with_edits(state.edits)
    if state.path == began.path:
        return replace(draft, given=replace(draft.given, state=state))
    return draft


async def _wait_for_result(task: asyncio.Task[CompactionResult]) -> CompactionResult:
    await asyncio.wait({task})
    if task.cancelled():
        return CompactionResult(
            convergence="failed", reason=Reason(Cause.ENGINE_CLOSED), trigger="threshold"
        )
    return task.result()
