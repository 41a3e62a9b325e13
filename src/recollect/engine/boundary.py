"""The one stage boundary: the only place that catches broadly (design.md promise 5).

A stage that fails or comes late leaves its input unchanged and a line in the report. Pure
stages are bounded by size: they run inline, or in a thread where a server must not block its
loop. Deadlines bind what waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from recollect.errors import RecollectError
from recollect.values.edit import StageName
from recollect.values.report import Outcome, StageLine

T = TypeVar("T")
LOG = logging.getLogger("recollect")
"""Failures are told in the report; the trace of one is logged at debug level."""


class Boundary:
    """Runs the stages of one turn and writes their lines."""

    def __init__(
        self, *, turn_seconds: float, stage_seconds: float, off_the_loop: bool = False
    ) -> None:
        self.lines: list[StageLine] = []
        self._stage_seconds = stage_seconds
        self._waits_until = time.monotonic() + turn_seconds
        self._off_the_loop = off_the_loop

    async def run(
        self, stage: StageName, work: Callable[[], T], *, unchanged: T, said: Callable[[T], str]
    ) -> T:
        """Run a pure stage; `unchanged` is what the turn goes on with if it fails."""
        started = time.perf_counter()
        try:
            result = await asyncio.to_thread(work) if self._off_the_loop else work()
            words = said(result)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._line(stage, "failed", _told(error), started)
            return unchanged
        self._line(stage, "done", words, started)
        return result

    async def wait(
        self,
        stage: StageName,
        start: Callable[[], Awaitable[T]],
        *,
        unchanged: T,
        said: Callable[[T], str],
        seconds: float | None = None,
    ) -> T:
        """Wait for a stage, no longer than its deadline and what the turn has left."""
        started = time.perf_counter()
        left = max(0.0, self._waits_until - time.monotonic())
        allowed = min(left, self._stage_seconds if seconds is None else seconds)
        try:
            result = await asyncio.wait_for(start(), allowed)
            words = said(result)
        except TimeoutError:
            self._line(stage, "late", f"no answer within {allowed:.3g} s", started)
            return unchanged
        except Exception as error:  # noqa: BLE001 - the boundary
            self._line(stage, "failed", _told(error), started)
            return unchanged
        self._line(stage, "done", words, started)
        return result

    def note(self, stage: StageName, outcome: Outcome, said: str) -> None:
        """A line for something that did not have to run."""
        self.lines.append(StageLine(stage=stage, outcome=outcome, said=said, seconds=0.0))

    def _line(self, stage: StageName, outcome: Outcome, said: str, started: float) -> None:
        seconds = time.perf_counter() - started
        self.lines.append(StageLine(stage=stage, outcome=outcome, said=said, seconds=seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something failed outside of a turn's stages; told without content."""

    said: str
    error: type[BaseException] = TimeoutError


async def attempted(work: Awaitable[T]) -> T | Failure:
    """What `work` gives, or how it failed: the boundary of what runs beside the turns."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the boundary
        return Failure(said=_told(error), error=type(error))


def _told(error: Exception) -> str:
    """What went wrong, without the text of messages: an error may quote what it choked on."""
    if isinstance(error, RecollectError):
        return str(error)  # ours say what to do, and quote nothing
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
    LOG.debug("a stage failed and was left out of the turn: %s at %s", type(error).__name__, where)
    return f"{type(error).__name__}: the stage was left out of this turn"
