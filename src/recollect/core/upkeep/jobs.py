"""Runs the jobs of a space, in a worker or inside an engine. Only `complete` writes a result, and
in the same write it removes the job. Each result is thus written exactly once, even if workers
crash. A job is stopped if its lease is lost. Failures are reported without content."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, TypeVar

from recollect.core.boundary import Failure, attempted
from recollect.core.ports import Clock, JobQueue
from recollect.core.values.batch import Batch, Lease
from recollect.errors import StoreError
from recollect.system.telemetry import measure_action

T = TypeVar("T")
Handler: TypeAlias = Callable[[Lease], Awaitable[Batch]]
Outcome: TypeAlias = Literal["done", "failed", "dead", "lost"]

GRACE_SECONDS = 5.0
"""Not measured; a job that ends soon after a stop need not run again."""
BEATS_PER_LEASE = 3
"""One heartbeat may be lost without losing the lease."""
REASON_CHARS = 500
"""Not measured; an error may quote a long answer."""

OnEnd: TypeAlias = Callable[[str, Failure | None], None]
"""Called after each job with its kind, and with the failure if it failed."""
IDLE_SECONDS = 60.0
"""Not measured; a job that another process queued starts after this at the latest."""
CLOSE_SECONDS = 3.0
"""Not measured; how long closing an engine waits for a running job."""
GIVE_BACK_SECONDS = 1.0
"""Not measured; one write returns the job of a stopped runner to the queue."""


class GiveUp(Exception):  # noqa: N818 - not an error for callers: JobRunner catches it
    """Raised by a job that would fail every time. The reason quotes no content."""


Answer: TypeAlias = Literal["done", "lost"] | GiveUp


def retry_seconds(
    lease: Lease, *, base: float = 2.0, factor: float = 4.0, max_seconds: float = 3600.0
) -> float:
    """Return the seconds until a failed job runs again: more each time. Jobs that failed together
    are spread over half of that time."""
    full = min(max_seconds, base * factor ** (lease.attempt - 1))
    seed = blake2b(f"{lease.id}:{lease.attempt}".encode(), digest_size=4).digest()
    return full * (1 - int.from_bytes(seed) / 2**33)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job."""

    kind: str
    outcome: Outcome
    reason: str
    seconds: float


class JobRunner:
    """A worker of one space, which runs one job at a time."""

    def __init__(
        self,
        store: JobQueue,
        handlers: Mapping[str, Handler],
        clock: Clock,
        *,
        lease_seconds: float = 60.0,
        max_attempts: int = 5,
        backoff: Callable[[Lease], float] = retry_seconds,
        day_tokens: int | None = None,
        on_end: OnEnd = lambda _kind, _failure: None,
    ) -> None:
        self._store = store
        self._handlers = dict(handlers)
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._max_attempts = max_attempts
        self._backoff = backoff
        self._day_tokens = day_tokens
        self._on_end = on_end
        self._looked_at = float("-inf")

    async def run_once(self) -> JobRun | None:
        """Run one due job; None if there is none. Raise StoreError if the store does not answer."""
        self._looked_at = now = self._clock.now()
        lease = await self._store.claim(
            now=now,
            lease_seconds=self._lease_seconds,
            kinds=tuple(self._handlers),
            day=day_of(now),
            day_tokens=self._day_tokens,
            max_attempts=self._max_attempts,
        )
        if lease is None:
            return None
        began = time.monotonic()
        with measure_action("job", lease.kind) as measure:
            outcome, reason = await self._do(lease)
            measure.set_outcome(outcome)
        seconds = time.monotonic() - began
        return JobRun(kind=lease.kind, outcome=outcome, reason=reason, seconds=seconds)

    async def run_due(
        self,
        *,
        stop: asyncio.Event | None = None,
        report: Callable[[JobRun], None] = lambda _: None,
        max_jobs: int | None = None,
    ) -> Counter[Outcome]:
        """Run due jobs until none is left, `max_jobs` have run, or `stop` is set. Return counts."""
        stop = stop or asyncio.Event()
        outcomes: Counter[Outcome] = Counter()
        while not stop.is_set() and (max_jobs is None or outcomes.total() < max_jobs):
            run = await self._run_unless_stopped(stop)
            if run is None:
                break
            report(run)
            outcomes[run.outcome] += 1
        return outcomes

    async def _run_unless_stopped(self, stop: asyncio.Event) -> JobRun | None:
        job_task = asyncio.create_task(self.run_once())
        stop_task = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({job_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            if not job_task.done():
                await asyncio.wait({job_task}, timeout=GRACE_SECONDS)
            return job_task.result() if job_task.done() else None
        finally:
            await _cancel_tasks(job_task, stop_task)

    async def next_due_seconds(self, *, idle_seconds: float) -> float | None:
        """Return the seconds until a job may be due; None if no job is waiting."""
        now = self._clock.now()
        due_at = (await self._store.queue(day=day_of(now))).due_at
        if due_at is None:
            return None
        if due_at <= self._looked_at:
            # The job is due, but paused, over the budget, or of an unknown kind.
            return idle_seconds
        return min(max(due_at - now, 0.0), idle_seconds)

    async def _do(self, lease: Lease) -> tuple[Outcome, str]:
        work = asyncio.create_task(attempted(self._work(lease)))
        beat = asyncio.create_task(self._keep_lease(lease))
        try:
            await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
            if work.cancelled():
                return await self._record_answer(
                    lease, Failure(said="the handler cancelled itself")
                )
            return await self._record_answer(lease, work.result() if work.done() else "lost")
        except asyncio.CancelledError:
            await _cancel_tasks(work, beat)
            await self._give_back(lease, "the worker stopped", self._clock.now())
            raise
        finally:
            await _cancel_tasks(work, beat)

    async def _work(self, lease: Lease) -> Answer:
        try:
            batch = await self._handlers[lease.kind](lease)
        except GiveUp as reason:
            return reason
        return "done" if await self._store.complete(lease, batch) else "lost"

    async def _record_answer(self, lease: Lease, answer: Answer | Failure) -> tuple[Outcome, str]:
        if answer == "done":
            self._on_end(lease.kind, None)
            return "done", ""
        if answer == "lost":
            return "lost", "the lease was lost"
        if isinstance(answer, GiveUp):
            return await self._give_back(lease, str(answer), None)
        self._on_end(lease.kind, answer)
        if lease.attempt >= self._max_attempts:
            text = f"failed {lease.attempt} times: {answer.said}"
            return await self._give_back(lease, text, None)
        retry_at = self._clock.now() + self._backoff(lease)
        return await self._give_back(lease, answer.said, retry_at)

    async def _give_back(
        self, lease: Lease, reason: str, retry_at: float | None
    ) -> tuple[Outcome, str]:
        reason = reason[:REASON_CHARS]
        try:
            is_known = await self._store.fail(lease, reason=reason, retry_at=retry_at)
        except StoreError as error:
            return "lost", str(error)
        if not is_known:
            return "lost", reason
        return ("dead" if retry_at is None else "failed"), reason

    async def _keep_lease(self, lease: Lease) -> None:
        expires_at = lease.expires_at
        while True:
            await asyncio.sleep(self._lease_seconds / BEATS_PER_LEASE)
            new_expires_at = self._clock.now() + self._lease_seconds
            try:
                if not await self._store.heartbeat(lease, expires_at=new_expires_at):
                    return
                expires_at = new_expires_at
            except StoreError:
                if self._clock.now() >= expires_at:  # another worker may run the job by now
                    return


def day_of(now: float) -> str:
    return datetime.fromtimestamp(now, tz=UTC).date().isoformat()


async def until(event: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` for an event. Return whether the event was set."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def _cancel_tasks(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class BackgroundJobs:
    """Runs the jobs of one engine in the background."""

    def __init__(
        self,
        open_runner: Callable[[], Awaitable[JobRunner]],
        *,
        on_end: OnEnd = lambda _kind, _failure: None,
        idle_seconds: float = IDLE_SECONDS,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        """`open_runner` is called when the first job may be due. `on_end` is also called if the
        runner itself fails. `trouble` returns the last failure of jobs."""
        self._open_runner = open_runner
        self._on_end = on_end
        self._idle_seconds = idle_seconds
        self.trouble = trouble
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._stop = asyncio.Event()
        self._resting = asyncio.Event()
        self._look_at = float("-inf")
        self._closed = False

    @property
    def running(self) -> bool:
        """True if jobs are running or waiting for their time."""
        task, loop = self._task, self._loop
        return task is not None and loop is not None and not (task.done() or loop.is_closed())

    def wake(self, seconds: float = 0.0) -> None:
        """Start to check the queue after `seconds`. This call returns at once."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # events and tasks are bound to the event loop that created them
            self._loop, self._task = loop, None
            self._woken, self._stop = asyncio.Event(), asyncio.Event()
            self._resting = asyncio.Event()
            self._look_at = float("-inf")
        self._look_at = min(self._look_at, time.monotonic() + seconds)
        self._woken.set()
        if self._look_at <= time.monotonic():
            self._resting.clear()  # callers of `rest` wait until this check is done
        if not self.running:
            self._task = loop.create_task(self._run(), context=Context())

    async def rest(self, seconds: float) -> bool:
        """Wait up to `seconds` for due jobs. Return whether all due jobs have run."""
        return not self.running or await until(self._resting, seconds)

    async def close(self) -> None:
        """Stop. A job that does not end in time is put back into the queue."""
        self._closed = True
        task, self._task = self._task, None
        if task is None or self._loop is not asyncio.get_running_loop():
            return  # tasks of another event loop ended with that loop
        self._stop.set()
        self._woken.set()
        _, waits = await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if waits:
            task.cancel()
            await asyncio.wait({task}, timeout=GIVE_BACK_SECONDS)

    async def _run(self) -> None:
        woken, stop = self._woken, self._stop
        runner: JobRunner | None = None
        while await self._is_due(woken, stop):
            self._look_at = float("inf")  # only jobs that are queued from now on need another check
            # a failure of the store or of a job must never raise in the event loop
            result = await attempted(self._look(runner, stop))
            runner = None if isinstance(result, Failure) else result
            self._on_end("all", result if isinstance(result, Failure) else None)
            if isinstance(result, Failure):  # the jobs are still due: check again
                self._look_at = min(self._look_at, time.monotonic() + self._idle_seconds)
        self._resting.set()

    async def _is_due(self, woken: asyncio.Event, stop: asyncio.Event) -> bool:
        while not stop.is_set() and (wait := self._look_at - time.monotonic()) > 0:
            self._resting.set()
            if wait == float("inf"):
                return False
            woken.clear()
            await until(woken, wait)
        return not stop.is_set()

    async def _look(self, runner: JobRunner | None, stop: asyncio.Event) -> JobRunner:
        runner = runner or await self._open_runner()
        await runner.run_due(stop=stop)
        next_due = await runner.next_due_seconds(idle_seconds=self._idle_seconds)
        if next_due is not None:
            self._look_at = min(self._look_at, time.monotonic() + next_due)
        return runner
