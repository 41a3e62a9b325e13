"""Waiting for what happens in other threads and processes, and comparing how long work takes.

No verdict depends on how fast the machine is: a condition is waited for as long as the slowest
machine takes, and processor time is compared with the processor time of other work.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

PATIENCE_SECONDS: Final = 60.0
"""Longer than any step of a test takes, however busy the machine is."""

T = TypeVar("T")


def wait_until(condition: Callable[[], T]) -> T:
    """Return the first true value of `condition`; AssertionError if there is none in time."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < until, f"still {found!r} after {PATIENCE_SECONDS:g} s"
        time.sleep(0.01)
    return found


async def eventually(condition: Callable[[], object]) -> None:
    """Wait in a coroutine until `condition`, or what it awaits, is true."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = condition()
        found = await answer if isinstance(answer, Awaitable) else answer
        if found:
            return
        assert time.monotonic() < until, f"still {found!r} after {PATIENCE_SECONDS:g} s"
        await asyncio.sleep(0.005)


def assert_not_delayed(work: Callable[[], object], *, usual_seconds: float) -> None:
    """Fail if work waits for something for long. `usual_seconds` is its time without that, which
    tells how busy the machine is."""
    taken = seconds_of(work)
    assert taken < 5 + 10 * usual_seconds, f"{taken:.1f} s instead of {usual_seconds:.1f} s"


def seconds_of(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def processor_seconds(work: Callable[[], object], *, runs: int = 3) -> float:
    """Return the processor time of the fastest of several runs in this thread."""
    return min(_processor_seconds(work) for _ in range(runs))


def _processor_seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Fail if eight times the size takes far more than eight times as long.

    Quadratic work takes 64 times as long. The fastest of several runs counts, since other
    processes only make a run slower.
    """
    small = max(processor_seconds(lambda: work(size // 8)), 0.002)
    large = processor_seconds(lambda: work(size), runs=1)
    for _ in range(4):
        if large < 30 * small:
            return
        large = min(large, processor_seconds(lambda: work(size), runs=1))
        small = max(small, processor_seconds(lambda: work(size // 8), runs=1))
    raise AssertionError(f"{size // 8}: {small:.4f} s, {size}: {large:.4f} s")


def processor_seconds_of(pid: int) -> float:
    """Return the processor time that a process has used so far, in all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
