"""When compactions of a session run: one at a time, beside the turns, undone on request.

Owns the tasks, and which of them is a compaction and which only writes notes (a flush). Always
holds: the compactions of a session follow each other in the order they were asked for; a turn
that waits for a compaction which runs already waits for that one, never for a flush; closing the
engine stops what runs, and the history is then as it was. Never holds the session's lock while a
hook or a model is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from recollect.core.boundary import Boundary, Failure, attempted
from recollect.core.compaction.cut import UndoResult, undo
from recollect.core.compaction.trigger import TriggerResult
from recollect.core.engine.compact import CompactionOrder, Compactor
from recollect.core.engine.hooks import Hooks
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.session import Session, load
from recollect.core.ports import Clock
from recollect.core.turn.draft import Draft
from recollect.core.values.compaction import CompactionResult, Trigger
from recollect.core.values.history import SessionId, SessionState
from recollect.core.values.reason import Cause, Reason

KEEP_TRIES = 2
"""A state that came too late is put on top of what another process left, once."""


@dataclass(slots=True)
class _SessionTasks:
    queue: list[asyncio.Task[CompactionResult]] = field(default_factory=list)
    """Compactions, the one that runs first."""
    flush: asyncio.Task[CompactionResult] | None = None
    """Notes are being written, and nothing else."""


class Compactions:
    """The compactions of one engine's sessions."""

    def __init__(
        self,
        compactor: Compactor,
        hooks: Hooks,
        keeper: SessionKeeper | None,
        clock: Clock,
        *,
        reader: SessionKeeper | None,
    ) -> None:
        """`reader` reads what is stored, whether or not `keeper` may write."""
        self._reader = reader
        self._compactor = compactor
        self._hooks = hooks
        self._keeper = keeper
        self._clock = clock
        self._beside: dict[SessionId, _SessionTasks] = {}
        self._running: set[asyncio.Task[CompactionResult]] = set()

    async def run(self, session: Session, draft: Draft, order: CompactionOrder) -> CompactionResult:
        """Compact, and wait for it. One that runs already does, unless somebody wants their own,
        or it came too late."""
        while order.trigger != "manual" and (ahead := self._queue(session)):
            done = await _waited(ahead[0])
            if done.reason.cause is not Cause.ANOTHER_WAY:
                return done
        return await _waited(self._started(session, draft, order, flush_first=False))

    def ahead_of_need(self, session: Session, draft: Draft, due: TriggerResult) -> None:
        """Do what a window that fills asks for, while nobody waits."""
        if self._queue(session):
            return
        if due.due == "flush":
            self._start_flush(session, draft)
        elif due.due == "compaction" and not self._compactor.why_not(session.state):
            order = CompactionOrder(trigger="threshold")
            task = self._started(session, draft, order, flush_first=due.flush_first)

            def keep(done: asyncio.Task[CompactionResult]) -> None:
                if not done.cancelled():
                    session.compacted_meanwhile = done.result()

            task.add_done_callback(keep)

    async def undo(self, session: Session, state: SessionState) -> UndoResult:
        """Take back the newest cut, durably; the caller holds the session's lock."""
        done = undo(state.edits, known=frozenset(state.path))
        if done.undone is None:
            return done
        new = replace(state, edits=done.edits, turn=state.turn + 1, compaction_paused=True)
        if self._keeper is not None:
            now = self._clock.now()
            kept = await self._keeper.keep_state(session.id, new, session.keeping, now=now)
            written = kept.written
            stale = written is not None and (written.session_stale or written.session_cleaned)
            if kept.where == "nowhere" or stale:
                lost = Reason(Cause.COULD_NOT_BE_KEPT, error=kept.said)
                why = Reason(Cause.ANOTHER_PROCESS) if stale else lost
                return UndoResult(edits=state.edits, undone=None, reason=why)
        session.state = new
        return done

    async def flushed(self, session: Session, *, cycle: int | None = None) -> None:
        """Notes were written in this cycle, durably; the caller holds the session's lock.

        `cycle` is the count of compactions when they were begun, None for now. Where it cannot
        be kept, it goes with the next turn.
        """
        for _ in range(KEEP_TRIES):
            trouble = tuple(session.keeping.trouble)
            state = await load(session, self._reader, Boundary(turn_seconds=0.0, stage_seconds=0.0))
            session.keeping.trouble[:0] = trouble  # it is told in a turn's report, not here
            written_in = state.compactions if cycle is None else min(cycle, state.compactions)
            if state.flushed_in is not None and state.flushed_in >= written_in:
                return
            new = replace(state, flushed_in=written_in)
            if self._keeper is None or not state.path:  # a session that said nothing is not kept
                session.state = new
                return
            new = replace(new, turn=state.turn + 1)
            now = self._clock.now()
            kept = await self._keeper.keep_state(session.id, new, session.keeping, now=now)
            session.state = new
            written = kept.written
            if written is None or not (written.session_stale or written.session_cleaned):
                return

    def cancel(self, session: Session) -> None:
        """Stop what runs beside the turns of a session; what is being committed goes on."""
        beside = self._beside.get(session.id)
        if beside is not None:
            for task in (*beside.queue, *([] if beside.flush is None else [beside.flush])):
                task.cancel()

    async def close(self) -> None:
        """Stop what runs; nothing is half done by that."""
        loop = asyncio.get_running_loop()
        running = [task for task in self._running if task.get_loop() is loop]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._compactor.close()

    def _queue(self, session: Session) -> list[asyncio.Task[CompactionResult]]:
        beside = self._beside.get(session.id)
        return [] if beside is None else [task for task in beside.queue if not task.done()]

    def _started(
        self, session: Session, draft: Draft, order: CompactionOrder, *, flush_first: bool
    ) -> asyncio.Task[CompactionResult]:
        before, beside = self._queue(session), self._beside_of(session)
        newest = draft is session.last_draft and draft.committed

        async def work() -> CompactionResult:
            if before:
                await asyncio.wait(before)
            if flush_first:
                await self._flush_once(session, draft)
            latest = session.last_draft if newest and session.last_draft is not None else draft
            async with session.lock:  # turns may have gone on since the draft was made
                standing = _as_it_stands(latest, session.state)
            return await self._compactor.compact(session, standing, order)

        task = self._task(session, work, order.trigger)
        beside.queue = [*before, task]
        return task

    def _start_flush(self, session: Session, draft: Draft) -> None:
        beside = self._beside_of(session)
        if beside.flush is not None or not self._hooks.listens("flush_due"):
            return

        async def work() -> CompactionResult:
            await self._flush(session, draft)
            return CompactionResult(
                convergence="irreducible", reason=Reason(Cause.ONLY_NOTES), trigger="threshold"
            )

        beside.flush = self._task(session, work, "threshold")

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

        def over(done: asyncio.Task[CompactionResult]) -> None:
            self._running.discard(done)
            beside = self._beside.get(session.id)
            if beside is None:
                return
            beside.queue = [task for task in beside.queue if task is not done]
            beside.flush = None if beside.flush is done else beside.flush
            if not beside.queue and beside.flush is None:
                del self._beside[session.id]

        task.add_done_callback(over)
        return task

    def _beside_of(self, session: Session) -> _SessionTasks:
        return self._beside.setdefault(session.id, _SessionTasks())

    async def _flush_once(self, session: Session, draft: Draft) -> None:
        running = self._beside_of(session).flush
        if running is not None:
            await asyncio.wait({running})
        else:
            await self._flush(session, draft)

    async def _flush(self, session: Session, draft: Draft) -> None:
        if not self._hooks.listens("flush_due"):
            return
        cycle = session.state.compactions
        event = {"tokenCount": draft.used_tokens(), "compactionCount": cycle}
        await self._hooks.fire("flush_due", event, self._compactor.context(session, draft))
        async with session.lock:
            await self.flushed(session, cycle=cycle)


def _as_it_stands(draft: Draft, state: SessionState) -> Draft:
    began = draft.given.state
    if draft.committed or state.edits != began.edits:
        return draft if state.edits == draft.edits else draft.under(state.edits)
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
