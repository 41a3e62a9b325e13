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
from recollect.core.engine.session import Session, load
from recollect.core.engine.summary import (
    Hooks,
    SummaryInput,
    SuppliedSummary,
    base_edits,
    lines_room,
    mask_input,
    mask_json,
    mask_result,
    new_cut,
    plan_cut,
    preparation,
    prove,
    summary_tokens,
    supplied_summary,
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
LOST_RACES = frozenset({Cause.ANOTHER_WAY, Cause.ANOTHER_PROCESS, Cause.FORGOTTEN_MEANWHILE})
GRACE_SECONDS = 15.0
KEEP_TRIES = 2
HOOK_SHARE = 0.5
COVERS_TOO_LITTLE = (
    "a session_before_compact hook named a firstKeptEntryId before the cut: its summary is not used"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOrder:
    """Why a compaction was ordered, and the user's instructions for the summary."""

    trigger: Trigger
    instructions: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    plan: CutPlan
    summary: Summarized
    text: str = field(repr=False)
    receipt: Receipt
    nothing: CompactionResult


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
            failed = Reason(Cause.BREAKER_FAILED, error=problem)
            return failed if problem else Reason(Cause.BREAKER_OPEN)
        return None

    async def run(self, session: Session, draft: Draft, order: CompactionOrder) -> CompactionResult:
        """Compact, and wait for the result. If a compaction is running already, wait for that one,
        unless a user asked for a new one."""
        while order.trigger != "manual" and (ahead := _waiting(session)):
            done = await _waited(ahead[0])
            if done.reason.cause is not Cause.ANOTHER_WAY:
                return done
        return await _waited(self._started(session, draft, order, flush_first=False))

    def start_early(self, session: Session, draft: Draft, due: TriggerResult) -> None:
        """Start a compaction or note-taking in the background before the window is full."""
        if _waiting(session):
            return
        if due.due == "flush":
            self._start_flush(session, draft)
        elif due.due == "compaction" and not self.why_not(session.state):
            order = CompactionOrder(trigger="threshold")
            task = self._started(session, draft, order, flush_first=due.flush_first)

            def keep(done: asyncio.Task[CompactionResult]) -> None:
                if not done.cancelled():
                    session.compacted_meanwhile = done.result()

            task.add_done_callback(keep)

    async def undo(self, session: Session, state: SessionState) -> UndoResult:
        """Undo the newest compaction and store that. The caller holds the session's lock."""
        done = undo(state.edits, known_keys=frozenset(state.path))
        if done.undone is None:
            return done
        new = replace(state, edits=done.edits, turn=state.turn + 1, compaction_paused=True)
        why = await self._why_not_kept(session, new)
        if why is not None:
            return UndoResult(edits=state.edits, undone=None, reason=why)
        session.state = new
        return done

    async def flushed(self, session: Session, *, cycle: int | None = None) -> None:
        """Store that the agent has written its notes. The caller holds the session's lock."""
        for _ in range(KEEP_TRIES):
            trouble = tuple(session.keeping.trouble)
            state = await load(session, self._reader, Boundary(turn_seconds=0.0, stage_seconds=0.0))
            session.keeping.trouble[:0] = trouble  # report these problems in a turn
            written_in = state.compactions if cycle is None else min(cycle, state.compactions)
            if state.flushed_in is not None and state.flushed_in >= written_in:
                return
            new = replace(state, flushed_in=written_in)
            if self._keeper is None or not state.path:  # an empty session is not stored
                session.state = new
                return
            session.state = new = replace(new, turn=state.turn + 1)
            why = await self._why_not_kept(session, new)
            if why is None or why.cause is Cause.COULD_NOT_BE_KEPT:
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

    def _started(
        self, session: Session, draft: Draft, order: CompactionOrder, *, flush_first: bool
    ) -> asyncio.Task[CompactionResult]:
        before = _waiting(session)
        newest = draft is session.last_draft and draft.committed

        async def work() -> CompactionResult:
            if before:
                await asyncio.wait(before)
            if flush_first:
                if session.flush is not None:
                    await asyncio.wait({session.flush})
                else:
                    await self._flush(session, draft)
            latest = session.last_draft if newest and session.last_draft is not None else draft
            async with session.lock:  # newer turns may have changed the state
                standing = _as_it_stands(latest, session.state)
            return await self._compact(session, standing, order)

        task = self._task(session, work, order.trigger)
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

        session.flush = self._task(session, work, "threshold")
        session.flush.add_done_callback(over)

    def _task(
        self, session: Session, work: Callable[[], Awaitable[CompactionResult]], trigger: Trigger
    ) -> asyncio.Task[CompactionResult]:
        async def ended() -> CompactionResult:
            done = await attempted(work())
            if isinstance(done, Failure):
                why = Reason(Cause.ERROR, error=done.said)
                return CompactionResult(convergence="failed", reason=why, trigger=trigger)
            return done

        task = session.compacting = asyncio.create_task(ended())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _flush(self, session: Session, draft: Draft) -> None:
        if not self._hooks.listens("flush_due"):
            return
        cycle = session.state.compactions
        event = {"tokenCount": draft.used_tokens(), "compactionCount": cycle}
        await self._hooks.fire("flush_due", event, self._whose(session, draft))
        async with session.lock:
            await self.flushed(session, cycle=cycle)

    async def _compact(
        self, session: Session, draft: Draft, order: CompactionOrder
    ) -> CompactionResult:
        begun = time.monotonic()
        used = draft.used_tokens()
        nothing = CompactionResult(
            convergence="failed",
            reason=NOT_RUN,
            trigger=order.trigger,
            tokens_before=used,
            tokens_after=used,
        )
        why_not = self.why_not(session.state, order.trigger)
        if why_not is not None:
            return replace(nothing, reason=why_not)
        if draft.given.request.continues:
            holds = Reason(Cause.PROVIDER_HOLDS)
            return replace(nothing, convergence="irreducible", reason=holds)
        summarizers: list[Summarizer] = []
        seconds = self._settings.compaction.deadline_seconds + GRACE_SECONDS
        work = self._make_ready(session, draft, order, nothing, begun, summarizers)
        ready = await attempted(asyncio.wait_for(work, seconds))
        if isinstance(ready, _Ready):
            ready = await attempted(self._committed(session, draft, ready, begun))
        if isinstance(ready, Failure):
            late = issubclass(ready.error, TimeoutError)
            error = Reason(Cause.ERROR, error=ready.said)
            spent = summarizers[0].costs if summarizers else Spent()
            ready = replace(
                nothing, reason=Reason(Cause.COMPACTION_LATE) if late else error, spent=spent
            )
        done = replace(ready, seconds=time.monotonic() - begun)
        count("compaction", trigger=order.trigger, outcome=done.convergence)
        if done.reason.cause not in LOST_RACES:
            await self._count(session, draft, done)
        if not done.compacted:
            return done
        event = {
            "messageCount": len(draft.entries) - done.compacted_messages,
            "tokenCount": done.tokens_after,
            "compactedCount": done.compacted_messages,
        }
        answered = await self._hooks.fire("after_compaction", event, self._whose(session, draft))
        return replace(done, notes=(*done.notes, *answered.notes))

    async def _make_ready(
        self,
        session: Session,
        draft: Draft,
        order: CompactionOrder,
        nothing: CompactionResult,
        begun: float,
        summarizers: list[Summarizer],
    ) -> _Ready | CompactionResult:
        plan = plan_cut(draft, self._settings)
        if isinstance(plan, CutPlan):
            if missing := await self._not_durable(session, draft, plan):
                why = Reason(Cause.SOME_NOT_DURABLE, messages=missing)
                return replace(nothing, reason=why)
            plan = without_forgotten(plan, session.keeping.forgotten)
        if isinstance(plan, NoCut):
            return replace(nothing, convergence="irreducible", reason=plan.reason)
        event = {"messageCount": len(draft.entries), "tokenCount": draft.used_tokens()}
        whose = self._whose(session, draft)
        answered = await self._hooks.fire("before_compaction", event, whose)
        mask = TextMask(self._settings.redaction, session.keeping.secrets)
        read = await asyncio.to_thread(mask_input, plan, newest_cut(draft.edits), mask)
        read = replace(read, instructions=mask.text(order.instructions))
        supplied, hook_notes = await self._supplied(draft, read, whose)
        notes = (*answered.notes, *hook_notes)
        if isinstance(supplied, NoSummary):
            return replace(nothing, notes=notes, reason=supplied.reason)
        rules_text = mask.text(await asyncio.to_thread(self._critical_rules))
        summary: Summarized | NoSummary
        if supplied is not None:
            summary = await self._complete(draft, read, mask, supplied, rules_text)
        elif self._model is None:
            summary = NoSummary(reason=Reason(Cause.NO_SUPPLIER), spent=Spent())
        else:
            given, settings = draft.given, self._settings.compaction
            left = settings.deadline_seconds - (time.monotonic() - begun)
            summarizer = Summarizer(
                self._model.ask,
                replace(settings, deadline_seconds=max(1.0, left)),
                given.codec.rules,
                window_tokens=self._model.window_tokens or given.limits.window_tokens,
                count_tokens=given.weigher.text,
                most_summary_tokens=given.estimate(summary_tokens(draft)),
                lines_tokens=lines_room(draft, plan),
                instructions=read.instructions,
                rules_text=rules_text,
                mask=mask.text,
            )
            summarizers.append(summarizer)
            summary = await summarizer.summarize(read.plan, read.previous, read.carried)
        notes = (*notes, *summary.notes)
        nothing = replace(nothing, spent=summary.spent, notes=notes)
        if isinstance(summary, NoSummary):
            return replace(nothing, reason=summary.reason.mask_texts(mask.text))
        text, receipt = await prove(
            draft,
            read,
            summary,
            mask,
            recaller=self._recaller,
            pin_ratio=self._settings.compaction.pin_ratio,
        )
        return _Ready(plan=plan, summary=summary, text=text, receipt=receipt, nothing=nothing)

    async def _supplied(
        self, draft: Draft, read: SummaryInput, whose: dict[str, str | None]
    ) -> tuple[SuppliedSummary | NoSummary | None, tuple[str, ...]]:
        if not self._hooks.listens("session_before_compact"):
            return None, ()
        record = preparation(
            read.plan,
            await asyncio.to_thread(carry, read.plan.summarized, read.carried),
            tokens_before=draft.used_tokens(),
            previous_summary=read.previous,
            reserve_tokens=draft.given.limits.reserve_tokens,
        )
        instructions, signal = read.instructions or None, threading.Event()
        event = {"preparation": record, "customInstructions": instructions, "signal": signal}
        try:
            answered = await self._hooks.fire(
                "session_before_compact",
                event,
                whose,
                seconds=self._settings.compaction.deadline_seconds * HOOK_SHARE,
            )
        finally:
            signal.set()  # a hook that still runs in a thread can stop
        if answered.cancelled:
            why = Reason(Cause.HOOK_SAID_NO)
            return NoSummary(reason=why, spent=Spent()), answered.notes
        supplied = supplied_summary(answered)
        kept = [None, *(entry.key for entry in read.plan.kept)]
        if supplied is not None and supplied.first_kept not in kept:
            return None, (*answered.notes, COVERS_TOO_LITTLE)
        return supplied, answered.notes

    async def _complete(
        self,
        draft: Draft,
        read: SummaryInput,
        mask: TextMask,
        supplied: SuppliedSummary,
        rules_text: str,
    ) -> Summarized:
        plan = read.plan
        carried = await asyncio.to_thread(
            carry, plan.summarized, read.carried, kept_entries=plan.kept
        )
        text = append_carried(
            mask.text(supplied.text),
            carried,
            rules_text,
            most_tokens=draft.given.estimate(summary_tokens(draft)),
            lines_tokens=lines_room(draft, plan),
            count_tokens=draft.given.weigher.text,
        )
        details = mask_json(dict(supplied.details), mask.text)
        return Summarized(text=text, carried=carried, spent=Spent(), details=details)

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
            # The state lacks the turn that waits for this compaction, so align it with that turn's
            # history.
            state, began = session.state, draft.given.state
            if (state.path, state.edits) == (began.path, began.edits):
                state = draft.state_after_alignment(state)
            base = base_edits(state, draft)
            if base is None or plan.anchor not in state.path:
                return replace(nothing, reason=Reason(Cause.ANOTHER_WAY))
            cut = new_cut(state, base, plan, ready.text, ready.summary.carried)
            # Blocks recalled for the newest user message remain.
            blocks = newest_exchange(draft.entries)
            edits = replace_past(base, cut, draft.entries, keep_blocks=blocks)
            tokens_after = draft.with_edits(edits).used_tokens()
            if tokens_after > WORTHWHILE_RATIO * nothing.tokens_before:
                why = Reason(Cause.SUMMARY_AS_LONG)
                return replace(nothing, convergence="irreducible", reason=why)
            result = replace(
                nothing,
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
            new = replace(
                state,
                turn=state.turn + 1,
                edits=edits,
                compactions=cut.number,
                compaction_paused=False,
            )
            record = self._record(session, result, cut, turn=requests_of(state) + 1)
            why_not = await self._why_not_kept(session, new, record)
            if why_not is not None:
                return replace(nothing, reason=why_not)
            session.state = new
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

    async def _why_not_kept(
        self, session: Session, state: SessionState, *records: CompactionRecord
    ) -> Reason | None:
        """Write a session's state and records. Return the reason of a failure, else None."""
        if self._keeper is None:
            return None
        kept = await self._keeper.keep_state(
            session.id, state, session.keeping, now=self._clock.now(), compactions=records
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
        if done.convergence == "failed":
            session.compaction_failure = done.reason
            self.component.fail(str(done.reason), whose=session.id)
        elif done.compacted:
            session.compaction_failure = None
            self.component.recover(whose=session.id)

    async def _not_durable(self, session: Session, draft: Draft, plan: CutPlan) -> int:
        if self._keeper is None:
            return 0
        await self._keeper.make_durable(
            session.id, draft.entries, session.keeping, now=self._clock.now()
        )
        return len(self._keeper.not_durable(plan.summarized, session.keeping))

    def _whose(self, session: Session, draft: Draft) -> dict[str, str | None]:
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


def _waiting(session: Session) -> list[asyncio.Task[CompactionResult]]:
    return [task for task in session.compactions if not task.done()]


def _as_it_stands(draft: Draft, state: SessionState) -> Draft:
    began = draft.given.state
    if draft.committed or state.edits != began.edits:
        return draft if state.edits == draft.edits else draft.with_edits(state.edits)
    if state.path == began.path:
        return replace(draft, given=replace(draft.given, state=state))
    return draft


async def _waited(task: asyncio.Task[CompactionResult]) -> CompactionResult:
    await asyncio.wait({task})
    if task.cancelled():
        return CompactionResult(
            convergence="failed", reason=Reason(Cause.ENGINE_CLOSED), trigger="threshold"
        )
    return task.result()
