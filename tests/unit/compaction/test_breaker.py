"""Compactions without progress are paused, tried once, and go on when one works."""

from typing import Any

from recollect.core.compaction import cut as breaker
from recollect.core.values.compaction import CompactionResult, Convergence, Trigger
from recollect.core.values.history import Breaker
from recollect.core.values.reason import NOT_RUN

WINDOW = 100_000


def ended(convergence: Convergence, freed: int = 0, kind: Trigger = "threshold") -> Any:
    return CompactionResult(
        convergence=convergence,
        reason=NOT_RUN,
        trigger=kind,
        tokens_before=90_000,
        tokens_after=90_000 - freed,
    )


def after(held: Breaker, result: CompactionResult, now: float = 0.0, turn: int = 0) -> Breaker:
    return breaker.breaker_after(held, result, now=now, turn=turn, window_tokens=WINDOW)


def is_open(held: Breaker, now: float) -> bool:
    return breaker.breaker_is_open(held, now=now)


def failed_three_times() -> Breaker:
    held = Breaker()
    for n in range(3):
        assert not is_open(held, n)
        held = after(held, ended("failed"), now=n, turn=n)
    return held


def test_three_failures_in_a_row_open_it_for_its_time_and_one_try_then_decides() -> None:
    held = failed_three_times()
    assert is_open(held, 2)
    assert is_open(held, 601.9)
    assert not is_open(held, 602)
    again = after(held, ended("failed"), now=700, turn=9)
    assert is_open(again, 700)
    assert is_open(again, 1_299)
    little = after(held, ended("reduced", 10), now=700, turn=9)
    assert is_open(little, 700), "a compaction that frees next to nothing proves nothing"
    healed = after(held, ended("reduced", 40_000), now=700, turn=9)
    assert healed == Breaker(last_turn=9)
    for now in range(10, 600, 10):
        held = after(held, ended("failed"), now=now, turn=now)
    assert not is_open(held, 602)
    held = after(
        after(after(Breaker(), ended("failed"), now=9e9), ended("failed"), now=9e9),
        ended("failed"),
        now=9e9,
    )
    assert is_open(held, 9e9)
    assert not is_open(held, 1e9)
