"""The stage boundary: the only place that catches all exceptions. If a stage fails or is late, the
turn continues with the stage's input, and a line of the report says so (docs/design.md)."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recollect.core.values.edit import StageName
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Outcome, StageLine
from recollect.errors import RecollectError
from recollect.system.telemetry import Measured, measured

T = TypeVar("T")
U = TypeVar("U")
LOG = logging.getLogger("recollect")


class Boundary:
    """Runs the stages of one turn and writes their lines in the report."""

    def __init__(
        self,
        *,
        turn_seconds: float,
        stage_seconds: float,
        off_the_loop: bool = False,
        is_quick: bool = False,
    ) -> None:
        """With `off_the_loop`, stages without I/O run in a thread, so that they do not block the
        event loop, unless `is_quick`."""
        self.lines: list[StageLine] = []
        self._stage_seconds = stage_seconds
        self._waits_until = time.monotonic() + turn_seconds
        self._off_the_loop = off_the_loop
        self._is_quick = is_quick

    async def run(
        self,
        stage: StageName,
        work: Callable[[], T],
        *,
        unchanged: U,
        reason: Callable[[T], Reason | tuple[Reason, ...]],
        in_thread: bool = False,
    ) -> T | U:
        """Run a stage without I/O, in a thread if slow. Return `unchanged` if the stage fails."""
        started = time.perf_counter()
        with measured("stage", stage) as measure:
            try:
                result = await (asyncio.to_thread(work) if in_thread else self.aside(work))
                reasons = reason(result)
            except Exception as error:  # noqa: BLE001 - the boundary
                self._failed(stage, error, started, measure)
                return unchanged
        self._line(stage, "done", reasons, started)
        return result

    async def aside(self, work: Callable[[], T]) -> T:
        """Run a part of a stage, in a thread if slow."""
        slow = self._off_the_loop and not self._is_quick
        return await asyncio.to_thread(work) if slow else work()

    async def wait(
        self,
        stage: StageName,
        start: Callable[[], Awaitable[T]],
        *,
        unchanged: U,
        reason: Callable[[T], Reason | tuple[Reason, ...]],
        seconds: float | None = None,
    ) -> T | U:
        """Wait for a stage until its own deadline or the turn's, whichever is earlier."""
        started = time.perf_counter()
        left = max(0.0, self._waits_until - time.monotonic())
        allowed = min(left, self._stage_seconds if seconds is None else seconds)
        with measured("stage", stage) as measure:
            try:
                result = await asyncio.wait_for(start(), allowed)
                reasons = reason(result)
            except TimeoutError:
                measure.ended("late", "late")
                self._line(stage, "late", Reason(Cause.LATE, seconds=allowed), started)
                return unchanged
            except Exception as error:  # noqa: BLE001 - the boundary
                self._failed(stage, error, started, measure)
                return unchanged
        self._line(stage, "done", reasons, started)
        return result

    @property
    def failures(self) -> tuple[StageLine, ...]:
        return tuple(line for line in self.lines if line.outcome in ("failed", "late"))

    def expect_work(self) -> None:
        """Run the later stages of the turn in a thread, because they may be slow."""
        self._is_quick = False

    def allow(self, seconds: float) -> None:
        """Extend the turn's deadline by `seconds`."""
        self._waits_until += seconds

    def note(self, stage: StageName, outcome: Outcome, *reasons: Reason) -> None:
        """Add a report line for a stage that was skipped or ran elsewhere."""
        self.lines.append(StageLine(stage=stage, outcome=outcome, reasons=reasons, seconds=0.0))

    def add(self, lines: Iterable[StageLine]) -> None:
        """Add report lines about work that ran in parallel with the turn."""
        self.lines.extend(lines)

    def withdraw(self, first: int, stages: Collection[StageName]) -> None:
        """Remove report lines of stages whose results are not used, from the line with the index
        `first` on. Lines about failures stay."""
        self.lines[first:] = [
            line
            for line in self.lines[first:]
            if line.stage not in stages or line.outcome == "failed"
        ]

    def _failed(
        self, stage: StageName, error: Exception, started: float, measure: Measured
    ) -> None:
        measure.ended("failed", type(error).__name__)
        self._line(stage, "failed", _reason_of(error), started)

    def _line(
        self,
        stage: StageName,
        outcome: Outcome,
        reasons: Reason | tuple[Reason, ...],
        started: float,
    ) -> None:
        reasons = (reasons,) if isinstance(reasons, Reason) else reasons
        seconds = time.perf_counter() - started
        self.lines.append(StageLine(stage=stage, outcome=outcome, reasons=reasons, seconds=seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure outside of a turn's stages, described without message content."""

    said: str
    raised: Exception = field(default_factory=TimeoutError, repr=False, compare=False)

    @property
    def error(self) -> type[Exception]:
        return type(self.raised)

    @property
    def reason(self) -> str:
        """Return the text of a `RecollectError`, or the class of another error, which may quote
        content."""
        own = isinstance(self.raised, RecollectError)
        return self.said if own else f"unexpected error ({self.error.__name__})"


class Component:
    """Whether a component works. Each change is logged once. A component is down from its first
    failure until it works again for each session or kind of job for which it failed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._log = logging.getLogger(f"recollect.{name.replace(' ', '_')}")
        self._failures: dict[str, str] = {}

    def fail(self, text: str, *, whose: str = "") -> None:
        """Record a failure, which `text` describes without message content."""
        if not self._failures:
            self._log.warning("%s: not working: %s", self.name, text)
        self._failures[whose] = text

    def recover(self, *, whose: str = "", how: str = "working again") -> None:
        """End the failure that `fail` recorded for `whose` (such as a session or an embedder)."""
        if self._failures.pop(whose, None) is not None and not self._failures:
            self._log.info("%s: %s", self.name, how)

    def forget(self, *, whose: str) -> None:
        """Drop the failure of `whose`, for example a session that has ended."""
        self._failures.pop(whose, None)

    def trouble(self, whose: str | None = None) -> str:
        """Return all failures, or only that of `whose`. Return "" if the component works."""
        if whose is not None:
            return self._failures.get(whose, "")
        return "; ".join(dict.fromkeys(self._failures.values()))


def guarded(work: Callable[[], T]) -> T | Failure:
    """For code without an event loop: return the result of `work`, or a `Failure` if it raises."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the boundary
        return Failure(said=str(_reason_of(error)), raised=error)


async def attempted(work: Awaitable[T]) -> T | Failure:
    """Outside of a turn: return the result of `work`, or a `Failure` if it raises."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the boundary
        return Failure(said=str(_reason_of(error)), raised=error)


class BoundedTasks:
    """Background tasks that callers await for a limited time. A late task continues."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self, work: Callable[[], Awaitable[T]], seconds: float, whose: str = "the store"
    ) -> T | Failure:
        running = self.begin(work)
        await done_within(running, seconds)
        return await self.ended(running, seconds, whose)

    def begin(self, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T | Failure]:
        """Start `work` in a task that never raises."""

        async def guard_work() -> T | Failure:
            return await attempted(work())

        return self.start(guard_work())

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        running = asyncio.create_task(work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    async def ended(
        self, running: asyncio.Task[T | Failure], seconds: float, whose: str = "the store"
    ) -> T | Failure:
        """Wait up to `seconds` for a task, and return its result or a failure."""
        done = running.done()
        if not done and loop_ends():
            running.cancel()
            await asyncio.wait({running})
        if not done or running.cancelled():
            return late(whose, seconds)
        return running.result()

    async def stop(self, seconds: float) -> None:
        """Wait up to `seconds` for running tasks, then cancel the rest."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        while self._running:  # cancel the tasks that are still running
            for task in tuple(self._running):
                task.cancel()
            await asyncio.wait(self._running)

    def forget(self) -> None:
        """Drop the tasks of an event loop that has ended."""
        self._running.clear()


async def done_within(running: asyncio.Task[Any], seconds: float) -> bool:
    """Return whether a task ends within this many seconds. A late task continues."""
    done, _ = await asyncio.wait({running}, timeout=max(0.0, seconds))
    return bool(done)


def late(whose: str, seconds: float) -> Failure:
    return Failure(said=f"{whose} gave no answer within {round(seconds, 1) or seconds:g} s")


def loop_ends() -> bool:
    """Return whether the caller was cancelled but must continue, because its event loop is
    ending."""
    caller = asyncio.current_task()
    return caller is not None and caller.cancelling() > 0


def _reason_of(error: Exception) -> Reason:
    if isinstance(error, RecollectError):
        # Recollect's own errors name the fix and quote no content.
        return Reason(Cause.ERROR, error=str(error))
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
    LOG.debug(
        "caught an error, and continued without its result: %s at %s", type(error).__name__, where
    )
    return Reason(Cause.RAISED, error=type(error).__name__)


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return time.time()
