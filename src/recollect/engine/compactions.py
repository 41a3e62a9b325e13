"""When compactions of a session run: one at a time, beside the turns, undone on request.

Owns the tasks. A turn that waits for a compaction which runs already waits for that one; closing
the engine stops what runs, and the history is then as it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recollect.compaction.trigger import TriggerResult
from recollect.compaction.undo import UndoResult, undo
from recollect.engine.compacting import CompactionOrder, Compactor
from recollect.engine.hooks import Hooks
from recollect.engine.keeping import SessionKeeper
from recollect.engine.session import Session
from recollect.engine.turn_path import TurnPath
from recollect.ports import Clock
from recollect.values.compaction import CompactionResult
from recollect.values.history import SessionState


class Compactions:
    """The compactions of one engine's sessions."""

    def __init__(
        self, compactor: Compactor, hooks: Hooks, keeper: SessionKeeper | None, clock: Clock
    ) -> None:
        self._compactor = compactor
        self._hooks = hooks
        self._keeper = keeper
        self._clock = clock
        self._running: set[asyncio.Task[CompactionResult]] = set()

    async def run(self, held: Session, path: TurnPath, order: CompactionOrder) -> CompactionResult:
        """Compact, and wait for it. One that runs already does, unless somebody wants their own."""
        running = held.compacting
        if running is not None and not running.done():
            done = await _waited(running)
            if order.trigger != "manual":
                return done
        return await _waited(self._started(held, path, order, flush_first=False))

    def ahead_of_need(self, held: Session, path: TurnPath, due: TriggerResult) -> None:
        """Do what a window that fills asks for, while nobody waits."""
        if held.compacting is not None and not held.compacting.done():
            return
        flush = due.due == "flush" or due.flush_first
        if due.due == "flush" and not self._hooks.listens("flush_due"):
            return
        if due.due == "compaction" and self._compactor.why_not(held.state):
            return
        order = CompactionOrder(trigger="threshold") if due.due == "compaction" else None
        task = self._started(held, path, order, flush_first=flush)

        def keep(done: asyncio.Task[CompactionResult]) -> None:
            if order is not None and not done.cancelled():
                held.compacted_meanwhile = done.result()

        task.add_done_callback(keep)

    async def undo(self, held: Session, state: SessionState) -> UndoResult:
        """Take back the newest cut, durably; the caller holds the session's lock."""
        done = undo(state.edits, turn=state.turn + 1, known=frozenset(state.path))
        if done.undone is None:
            return done
        new = replace(state, edits=done.edits, turn=state.turn + 1, compaction_paused=True)
        if self._keeper is not None:
            now = self._clock.now()
            kept = await self._keeper.keep_state(held.id, new, held.keeping, now=now)
            stale = kept.written is not None and kept.written.session_stale
            if kept.where == "nowhere" or stale:
                why = "another process went on with the session; try again" if stale else kept.said
                return UndoResult(edits=state.edits, undone=None, reason=why)
        held.state = new
        return done

    async def close(self) -> None:
        """Stop what runs; nothing is half done by that."""
        loop = asyncio.get_running_loop()
        running = [task for task in self._running if task.get_loop() is loop]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _started(
        self, held: Session, path: TurnPath, order: CompactionOrder | None, *, flush_first: bool
    ) -> asyncio.Task[CompactionResult]:
        async def work() -> CompactionResult:
            if flush_first:
                await self._flush(held, path)
            if order is None:
                return CompactionResult(
                    convergence="irreducible", reason="only notes were due", trigger="threshold"
                )
            async with held.lock:  # turns may have gone on since the path was made
                if not path.wants_compaction and held.state.edits != path.edits:
                    path.under(held.state.edits)
            return await self._compactor.compact(held, path, order)

        task = held.compacting = asyncio.create_task(work())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _flush(self, held: Session, path: TurnPath) -> None:
        if not self._hooks.listens("flush_due"):
            return
        event = {"tokenCount": path.used_tokens(), "compactionCount": held.state.compactions}
        await self._hooks.fire("flush_due", event, self._compactor.context(held))
        async with held.lock:
            held.state = replace(held.state, flushed_in=held.state.compactions)


async def _waited(task: asyncio.Task[CompactionResult]) -> CompactionResult:
    """The result of a task that goes on when who waits for it does not."""
    await asyncio.wait({task})
    if task.cancelled():
        return CompactionResult(
            convergence="failed", reason="the engine was closed meanwhile", trigger="threshold"
        )
    return task.result()
