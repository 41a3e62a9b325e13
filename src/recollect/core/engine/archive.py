"""Writes batches durably and reads the store, each within a deadline. A batch that the store
refuses or takes too long to write goes to the spool (a local file). If the spool fails too, the
batch is held in RAM, and later batches wait behind it, so that their order does not change. While
the store is known to be down, turns do not wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Container
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Literal, TypeAlias, TypeVar

from recollect.core.boundary import (
    BoundedTasks,
    Component,
    Failure,
    attempted,
    done_within,
    late,
    loop_ends,
)
from recollect.core.formats.stored_records import read_batch, write_batch
from recollect.core.ports import Spool, Store
from recollect.core.values.batch import Batch, SessionWrite, WriteResult
from recollect.core.values.history import SessionId
from recollect.core.values.model import ModelUse
from recollect.errors import BatchRefused, FormatError, StoreError, StoreReplaced, StoreUnavailable
from recollect.system.config.settings import StoreSettings as StoreSettings
from recollect.system.plain_text import number_of

T = TypeVar("T")
Location: TypeAlias = Literal["store", "spool", "nowhere"]
LOG = logging.getLogger("recollect")

OPEN_SECONDS = 15.0  # time limit for opening the store, and for loading a session
UNDURABLE_SECONDS = 10.0  # after this long without store and spool, messages may leave unstored
RETRY_SECONDS = 0.1  # first pause before the store is tried again; each pause doubles
MAX_RETRY_SECONDS = 3.0  # longest of these pauses
DOUBT_SECONDS = 1.0
"""If a query has run this long, a trivial query must succeed, or the store counts as down."""
PING_SECONDS = 2.0  # time limit of the trivial query that checks the store
SPOOL_SECONDS = 1.0  # time limit of one operation of the spool
RETRY_HELD_SECONDS = 0.3  # time that a turn waits for batches held in RAM to be stored
CLOSE_SECONDS = 1.0  # time limit for the last writes before closing
STOP_SECONDS = 2.0  # time limit for closing the store
STUCK_SECONDS = 60.0  # after this long, a batch that fails unexpectedly is moved aside
MAX_HELD_BYTES = 64 << 20  # size limit of the batches held in RAM
PROBE: SessionId = ""  # the session that the trivial query asks for
_OUTAGES = (StoreUnavailable, OSError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Persisted:
    """Where a batch is durable, and the problem if that is not the store."""

    location: Location
    write_result: WriteResult | None = None
    problem: str = ""
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaitingBatch:
    record: bytes
    on_stored: Callable[[Persisted], None]


class DurableArchive:
    """Writes and reads the store of one engine's space, and falls back to the spool."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        open_spool: Callable[[], Awaitable[Spool]] | None,
        settings: StoreSettings | None = None,
        *,
        sent_again: bool = False,
    ) -> None:
        """`sent_again` means that the caller repeats a batch that the store does not accept in
        time, so the batch is dropped instead of spooled."""
        self._sent_again = sent_again
        self._open_store = open_store
        self._open_spool = open_spool
        self._settings = settings or StoreSettings()
        self.open_seconds = OPEN_SECONDS
        self.undurable_seconds = UNDURABLE_SECONDS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spool_lock = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._opening_spool = asyncio.Lock()
        self._retry_requested, self._retry_ended = asyncio.Event(), asyncio.Event()
        self._store: Store | None = None
        self._spool: Spool | None = None
        self.location: Location = "store"
        """The least durable place of the batches that wait: none do, in the spool, in RAM."""
        self._nowhere_since = 0.0
        self._held_batches: deque[_WaitingBatch] = deque()
        self._held_bytes = 0
        self._store_problem = ""
        self._try_hangs = False
        self._spool_hangs = False
        self._draining: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._tasks = BoundedTasks()
        self._closed = False
        self._gave_up = False
        self._stuck_record: tuple[bytes, float] = (b"", 0.0)
        self.set_aside: int = 0
        self.replaced: int = 0
        self._drain_problem = ""
        self._has_drained = False
        self._store_component, self._spool_component = Component("store"), Component("spool")
        self.jobs_due: Callable[[float], None] = lambda _: None
        self._uses: deque[tuple[ModelUse, str]] = deque()
        self._counting: asyncio.Task[None] | None = None

    @property
    def spooling(self) -> bool:
        """True if batches are waiting in the spool or in RAM."""
        return self.location != "store"

    def trouble(self, *, reported_texts: Container[object] = ()) -> str:
        """Return the problems of the store and the spool as text, without those in
        `reported_texts`."""
        texts = []
        has_waiting = self.spooling and self._spool is not None
        if has_waiting and self._drain_problem and self._drain_problem not in reported_texts:
            texts.append(f"messages wait in the spool (a local file): {self._drain_problem}")
        if self.set_aside:
            texts.append(
                f"the store refused {number_of(self.set_aside, 'write')}: run `recollect memory "
                "check` to list them"
            )
        return "; ".join(texts)

    def has_given_up(self, refused_at: float = 0.0) -> bool:
        """True if no message could be stored for `undurable_seconds`, or since the provider refused
        a request as too large. Requests may then leave out unstored messages."""
        since, now = self._nowhere_since, time.monotonic()
        soon = now - since < self.undurable_seconds and refused_at < since
        if self.location != "nowhere" or soon:
            return False
        if not self._gave_up:
            self._gave_up = True
            LOG.warning(
                "neither the store nor the spool has accepted a write for %.0f s: messages leave "
                "the window without being stored. Check the disk",
                now - since,
            )
        return True

    async def store(self) -> Store:
        async with self._opening:
            if self._store is None and not self._closed:
                store = await self._open_store()
                if self._closed:
                    await store.close()
                else:
                    self._store = store
            if self._store is None:
                raise StoreUnavailable("this memory is closed; open it again")
            return self._store

    async def _run_on_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        store = await self.store()
        try:
            return await work(store)
        except StoreReplaced:
            if self._store is store:
                self._store, self.replaced = None, self.replaced + 1
                await store.close()
            raise

    async def spool(self) -> Spool | None:
        """Return the spool; None if this machine has none or it cannot be opened."""
        await self._open_spool_if_missing()
        return self._spool

    async def ask(
        self, query: Callable[[Store], Awaitable[T]], *, seconds: float | None = None
    ) -> T | Failure:
        """Query the store within `seconds` (default: `store.read_seconds`)."""
        await self._attach_to_event_loop()
        if self._store_problem:
            self._start_probing()
            return Failure(said=self._outage_text(), raised=StoreUnavailable())

        limit = self._settings.read_seconds if seconds is None else seconds
        doubt_seconds = min(limit / 2, self.open_seconds if self._store is None else DOUBT_SECONDS)
        began_at = time.monotonic()
        running = self._tasks.begin(partial(self._run_query, query))
        watching: asyncio.Task[Any] | None = None
        watch = partial(self._watch_query, running, began_at, doubt_seconds, limit)
        try:
            if not await done_within(running, doubt_seconds):
                watching = self._tasks.begin(watch)
                await asyncio.wait({running, watching}, return_when="FIRST_COMPLETED")
                hangs = watching.done() and watching.result() is True
                if not running.done() and not hangs:
                    await done_within(running, limit - (time.monotonic() - began_at))
        except asyncio.CancelledError:
            # So that the next turn knows whether the store hangs.
            watching = watching or self._tasks.begin(watch)
            if self._sent_again:
                running.cancel()
                watching.cancel()
            raise
        if watching is not None and not watching.done():
            watching.cancel()
            await asyncio.wait({watching})
        answer = await self._tasks.ended(running, time.monotonic() - began_at)
        if not isinstance(answer, Failure):
            self._note_store_recovery()
        elif running.done() and (self._store is None or issubclass(answer.error, _OUTAGES)):
            self._mark_store_down(answer)
        return answer

    async def _watch_query(
        self, running: asyncio.Task[Any], began_at: float, seconds: float, limit: float
    ) -> bool:
        """Send a trivial query each `seconds`. If one fails, mark the store as down, and return
        True. Send none that would end after the query's `limit`."""
        ping_seconds, due_at = min(limit - seconds, PING_SECONDS), began_at + seconds
        while not await done_within(running, due_at - time.monotonic()):
            ping_result = await attempted(asyncio.wait_for(self._run_on_store(_ping), ping_seconds))
            if isinstance(ping_result, Failure) and not running.done():
                self._mark_store_down(late("the store", time.monotonic() - began_at))
                return True
            due_at = time.monotonic() + seconds
            if due_at + ping_seconds > began_at + limit:
                break
        return False

    def _mark_store_down(self, failure: Failure) -> None:
        self._store_problem = failure.said
        self._note_store_failure(failure.said)
        self._start_probing()

    async def write(
        self, batch: Batch, on_stored: Callable[[Persisted], None] | None = None
    ) -> Persisted:
        """Make a batch durable. Await each write before the next if their order matters."""
        await self._attach_to_event_loop()
        await self._open_spool_if_missing()
        await self.retry_held()
        text = self._outage_text()
        if self.spooling:
            if not self._store_problem:
                text = "earlier messages are still in the spool (a local file)"
            text = self._drain_problem or text
        elif self._store is not None or not self._store_problem:
            answer = await self._try_to_write(batch)
            if not isinstance(answer, Failure):
                self._note_store_recovery()
                self._note_jobs(answer)
                return Persisted(location="store", write_result=answer)
            # A refused batch is reported when it is moved to the file of rejected batches.
            if not issubclass(answer.error, BatchRefused):
                self._note_store_failure(answer.said)
            text = answer.said
        if self._sent_again or self._closed:
            return Persisted(location="nowhere", problem=text)
        return await self._append_to_spool(write_batch(batch), text, on_stored)

    async def _try_to_write(self, batch: Batch) -> WriteResult | Failure:
        write = partial(self._run_query, methodcaller("write", batch))
        if self._sent_again:  # without a deadline, because a cancelled write would lose the batch
            return await attempted(write())
        seconds = self.open_seconds if self._store is None else self._settings.write_seconds
        return await self._tasks.run(write, seconds)

    def count_model_use(self, use: ModelUse, day: str) -> None:
        """Count a model call in the store, in the background (later if the store is down)."""
        self._uses.append((use, day))
        self._start_counting()

    def _start_counting(self) -> None:
        if self._closed or not self._uses or self._store_problem or self.spooling or loop_ends():
            return
        if self._counting is None or self._counting.done():
            self._counting = self._tasks.start(self._count_uses())

    async def _count_uses(self) -> None:
        await self._attach_to_event_loop()
        while self._uses and not self._closed:
            use, day = self._uses.popleft()
            add = methodcaller("add_model_use", use, day=day)
            if isinstance(await attempted(self._run_on_store(add)), Failure):
                self._uses.appendleft((use, day))
                return

    async def read_waiting(
        self, session: SessionId, *, seconds: float
    ) -> tuple[SessionWrite, ...] | Failure:
        """Return session states that wait in the spool (newer than the store's), oldest first."""
        await self._attach_to_event_loop()
        await self._open_spool_if_missing()
        spool = self._spool
        if spool is None or not self.spooling:
            return ()
        if self._spool_hangs:
            return Failure(said="the spool does not answer")

        def pick(record: bytes) -> SessionWrite | None:
            try:
                write = read_batch(record).session
            except FormatError:
                return None
            return write if write is not None and write.session == session else None

        async def scan_spool() -> tuple[SessionWrite, ...]:
            writes = await spool.scan(pick)
            self._spool_hangs = False
            return tuple(writes)

        session_writes = await self._tasks.run(scan_spool, seconds, "the spool")
        self._spool_hangs = isinstance(session_writes, Failure)
        return session_writes

    async def retry_held(self, seconds: float = RETRY_HELD_SECONDS) -> None:
        """Try once more to store the batches held in RAM, and wait at most `seconds`."""
        if not self._held_batches or (self._try_hangs and seconds == RETRY_HELD_SECONDS):
            return
        self._retry_ended.clear()
        self._start_draining()
        self._retry_requested.set()
        try:
            async with asyncio.timeout(seconds):
                await self._retry_ended.wait()
        except TimeoutError:
            self._try_hangs = True

    async def settle(self, seconds: float) -> int:
        """Wait up to `seconds` until all batches are in the store. Return the number of other
        batches, plus 1 if the spool cannot be read."""
        await self._attach_to_event_loop()
        await self._open_spool_if_missing()
        self._retry_requested.set()
        until = time.monotonic() + seconds
        if self._draining is not None:
            await done_within(self._draining, seconds)
        self._start_counting()
        if self._counting is not None:
            await done_within(self._counting, until - time.monotonic())
        held_count = max(len(self._held_batches), self.location == "nowhere")
        if self._spool is None:
            return held_count if self._open_spool is None else held_count + 1
        waiting = await self._tasks.run(self._spool.waiting, SPOOL_SECONDS, "the spool")
        return held_count + (1 if isinstance(waiting, Failure) else waiting)

    async def close(self) -> int:
        """Stop all work and close the store and the spool. Spooled batches stay on disk. Return the
        number of batches that are held in RAM."""
        await self._attach_to_event_loop()
        self._closed = True
        for task in (self._draining, self._probing):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        until = time.monotonic() + STOP_SECONDS
        for connection, seconds in ((self._store, STOP_SECONDS), (self._spool, SPOOL_SECONDS)):
            if connection is not None:
                await self._tasks.run(connection.close, seconds)
        self._store = self._spool = None
        await self._tasks.stop(max(0.5, until - time.monotonic()))
        return len(self._held_batches)

    async def _attach_to_event_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        old_connections = () if self._loop is None else (self._store, self._spool)
        self._loop = loop
        self._spool_lock, self._opening = asyncio.Lock(), asyncio.Lock()
        self._opening_spool = asyncio.Lock()
        self._retry_requested, self._retry_ended = asyncio.Event(), asyncio.Event()
        self._store = self._spool = self._draining = self._probing = self._counting = None
        self.location = "store" if self.location == "spool" else self.location
        self._store_problem = ""
        self._tasks.forget()
        for connection in old_connections:
            if connection is not None:
                await self._tasks.run(connection.close, SPOOL_SECONDS)
        if self._held_batches:
            self._start_draining()

    async def _run_query(self, work: Callable[[Store], Awaitable[T]]) -> T:
        result = await self._run_on_store(work)
        self._store_problem = ""
        return result

    def _note_jobs(self, write_result: WriteResult) -> None:
        if write_result.due_at is not None and not (self._closed or loop_ends()):
            self.jobs_due(write_result.due_at)

    def _outage_text(self) -> str:
        return f"the store cannot be used: {self._store_problem}"

    def _note_store_failure(self, text: str) -> None:
        if not self._closed:  # a call that began before `close` may fail after it
            self._store_component.fail(text)

    def _note_store_recovery(self) -> None:
        if not self.spooling and not self._store_problem:
            self._store_component.recover()
            self._start_counting()

    async def _open_spool_if_missing(self) -> None:
        if self._spool is None and self._open_spool is not None:
            async with self._opening_spool:
                await self._open_spool_once()

    async def _open_spool_once(self) -> None:
        if self._spool is not None or self._open_spool is None or self._closed:
            return
        open_spool = self._open_spool

        async def open_and_keep() -> Spool:
            spool = await open_spool()
            if self._closed:
                await spool.close()
            else:  # `close` will close it
                self._spool = spool
            return spool

        spool_result = await self._tasks.run(open_and_keep, SPOOL_SECONDS, "the spool")
        if self._closed:
            return
        if isinstance(spool_result, Failure):
            self._spool_component.fail(spool_result.said)
            return
        self._spool_component.recover()
        waiting = await self._tasks.run(spool_result.waiting, SPOOL_SECONDS, "the spool")
        self._spool_hangs = isinstance(waiting, Failure)
        if isinstance(waiting, Failure) or waiting:
            self._use_spool()

    def _use_spool(self) -> None:
        if self.location == "store":
            self.location = "spool"
        self._start_draining()

    async def _append_to_spool(
        self, record: bytes, text: str, on_stored: Callable[[Persisted], None] | None
    ) -> Persisted:
        spool = self._spool
        if spool is None:
            text = f"{text}; and there is no spool"
        elif self._held_batches:
            text = f"{text}; the spool failed too: {self._spool_component.trouble()}"
        else:
            # Mark the spool as in use first, so that no later batch overtakes this one even if the
            # call is cancelled.
            self._use_spool()
            append = partial(self._append, spool, record)
            append_result = await self._tasks.run(append, SPOOL_SECONDS, "the spool")
            self._use_spool()
            if not isinstance(append_result, Failure):
                self._spool_component.recover()
                return Persisted(location="spool", problem=text)
            self._spool_component.fail(append_result.said)
            text = f"{text}; the spool failed too: {append_result.said}"
        waits = on_stored is not None and self._hold(
            _WaitingBatch(record=record, on_stored=on_stored)
        )
        return Persisted(location="nowhere", problem=text, is_waiting=waits)

    async def _append(self, spool: Spool, record: bytes) -> None:
        async with self._spool_lock:
            await spool.append(record)

    def _hold(self, record: _WaitingBatch) -> bool:
        if self.location != "nowhere":
            self.location, self._nowhere_since = "nowhere", time.monotonic()
            self._gave_up = False
        fits = self._held_bytes + len(record.record) <= MAX_HELD_BYTES
        if fits:
            self._held_batches.append(record)
            self._held_bytes += len(record.record)
        self._start_draining()
        return fits

    def _start_draining(self) -> None:
        if self._closed or loop_ends():
            return  # a task started now would never be stopped
        if self._draining is None or self._draining.done():
            self._draining = asyncio.create_task(self._drain(), context=Context())

    def _start_probing(self) -> None:
        if not self._closed and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe_until_up(), context=Context())

    async def _probe_until_up(self) -> None:
        pause_seconds = RETRY_SECONDS
        while self._store_problem:
            await asyncio.sleep(pause_seconds)
            ping_result = await attempted(
                asyncio.wait_for(self._run_on_store(_ping), self.open_seconds)
            )
            if not isinstance(ping_result, Failure):
                self._store_problem = ""
                self._note_store_recovery()
            pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)

    async def _drain(self) -> None:
        pause_seconds, self._has_drained = RETRY_SECONDS, False
        while True:
            failure = await self._move_to_store()
            async with self._spool_lock:  # spool no batch while this checks that none waits
                waiting = 0 if self._spool is None else await attempted(self._spool.waiting())
                done = waiting == 0 and failure is None and not self._held_batches
                if done:
                    self.location, self._drain_problem = "store", ""
                    self._spool_component.recover(how="nothing waits for it any more")
                    # If the spool was empty, nothing was written, so the store may still be down.
                    if self._has_drained:
                        self._note_store_recovery()
            self._try_hangs = False
            self._retry_ended.set()
            if done:
                return
            if failure is None and isinstance(waiting, Failure):
                failure = waiting
            if failure is not None:
                self._drain_problem = failure.said
                self._note_store_failure(failure.said)
                self._retry_requested.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_seconds):
                        await self._retry_requested.wait()
                pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)

    async def _move_to_store(self) -> Failure | None:
        spool = self._spool
        failure: Failure | None = None
        if spool is not None:
            drain_result = await attempted(spool.drain(self._move_record))
            failure = drain_result if isinstance(drain_result, Failure) else None
            self._spool_hangs = False
        while self._held_batches:
            record = self._held_batches[0].record
            move_result = await attempted(self._move_record(record)) if failure is None else failure
            if isinstance(move_result, Failure):
                # Spool the later batches too, so that their order does not change.
                failure = move_result
                if spool is None:
                    return failure
                append_result = await attempted(self._append(spool, record))
                if isinstance(append_result, Failure):
                    self._spool_component.fail(append_result.said)
                    return failure
                outcome = Persisted(location="spool", problem=failure.said)
                self._spool_component.recover()
            else:
                outcome = Persisted(location="store", write_result=move_result)
            waiting_batch = self._held_batches.popleft()
            self._held_bytes -= len(waiting_batch.record)
            waiting_batch.on_stored(outcome)
        if self.location == "nowhere" and spool is not None:
            self.location = "spool"
        return failure

    async def _move_record(self, record: bytes) -> WriteResult | None:
        # The store will never accept some batches. Move them to another file, because they would
        # block all later ones.
        write_result = await attempted(self._write_record(record))
        if not isinstance(write_result, Failure):
            self._store_problem, self._has_drained = "", True
            self._note_jobs(write_result)
            return write_result
        is_refused = issubclass(write_result.error, BatchRefused | FormatError)
        if is_refused or self._is_stuck(record, write_result):
            if self._spool is not None:
                await self._spool.set_aside(record, reason=write_result.error.__name__)
            self.set_aside += 1
            return None
        raise StoreUnavailable(write_result.said)

    async def _write_record(self, record: bytes) -> WriteResult:
        return await self._run_on_store(methodcaller("write", read_batch(record)))

    def _is_stuck(self, record: bytes, failure: Failure) -> bool:
        if issubclass(failure.error, StoreError | OSError):
            return False
        raw, since = self._stuck_record
        if raw != record:
            self._stuck_record = (record, time.monotonic())
            return False
        return time.monotonic() - since > STUCK_SECONDS


async def _ping(store: Store) -> None:
    await store.session(PROBE)
