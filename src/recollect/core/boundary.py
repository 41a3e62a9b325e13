"""The stage boundary: the only place that catches all exceptions. If a stage fails or is late, the
turn continues with the stage's input, and a line of the report says so (docs/design.md)."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from recollect.core.values.edit import StageName
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Outcome, StageLine
from recollect.errors import RecollectError
from recollect.system.telemetry import measure_action

T = TypeVar("T")
P = ParamSpec("P")
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

    def stage(self, name: StageName, *, waits: bool = False, seconds: float | None = None) -> Stage:
        """Return a block that runs one stage. A stage that `waits` for I/O ends at its own deadline
        (`seconds`, or the usual one) or at the turn's, whichever is earlier."""
        if not waits:
            return Stage(self, name, None)
        left_seconds = max(0.0, self._waits_until - time.monotonic())
        return Stage(
            self, name, min(left_seconds, self._stage_seconds if seconds is None else seconds)
        )

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function without I/O, in a thread if this turn may be slow."""
        if self._off_the_loop and not self._is_quick:
            return await asyncio.to_thread(function, *args, **kwargs)
        return function(*args, **kwargs)

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

    def add_line(
        self, stage: StageName, outcome: Outcome, reasons: tuple[Reason, ...], started: float
    ) -> None:
        """Add the report line of a stage that began at `started` (`time.perf_counter`)."""
        seconds = time.perf_counter() - started
        self.lines.append(StageLine(stage=stage, outcome=outcome, reasons=reasons, seconds=seconds))


class Stage:
    """One stage of a turn, as an `async with` block. If the block raises or is late, the error ends
    here, and the report gets a line. Only the last statement of the block sets variables that are
    read after it, to the value that `explain` returns, so they change only if nothing failed."""

    def __init__(self, boundary: Boundary, name: StageName, deadline_seconds: float | None) -> None:
        self._boundary = boundary
        self._name: StageName = name
        self._deadline_seconds = deadline_seconds
        self._timeout: asyncio.Timeout | None = None
        self._reasons: tuple[Reason, ...] = ()
        self._measure = measure_action("stage", name)
        self._started = 0.0

    def explain(self, value: T, *reasons: Reason) -> T:
        """Set the reasons for the report's line, and return the stage's value."""
        self._reasons = reasons
        return value

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function without I/O, in a thread if this turn may be slow."""
        return await self._boundary.call(function, *args, **kwargs)

    async def __aenter__(self) -> Self:
        self._started = time.perf_counter()
        self._measure.__enter__()
        if self._deadline_seconds is not None:
            self._timeout = asyncio.timeout(self._deadline_seconds)
            await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Return whether an error ended here. A cancelled turn is not a failed stage."""
        if self._timeout is not None:
            try:
                await self._timeout.__aexit__(kind, error, trace)
            except TimeoutError as timeout_error:
                error = timeout_error
        if error is not None and not isinstance(error, Exception):
            self._measure.__exit__(kind, error, trace)
            return False
        outcome: Outcome = "done"
        reasons = self._reasons
        if isinstance(error, TimeoutError) and self._deadline_seconds is not None:
            outcome, reasons = "late", (Reason(Cause.LATE, seconds=self._deadline_seconds),)
            self._measure.set_outcome("late", "late")
        elif error is not None:
            outcome, reasons = "failed", (_reason_of(error),)
            self._measure.set_outcome("failed", type(error).__name__)
        self._measure.__exit__(None, None, None)
        self._boundary.add_line(self._name, outcome, reasons, self._started)
        return error is not None


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
