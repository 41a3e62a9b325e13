"""Compactions without progress are paused, tried once, and go on when one works."""

from typing import Any

from recollect.core.compaction import cut
from recollect.core.values.compaction import CompactionResult, Convergence
from recollect.core.values.history import Breaker
from recollect.core.values.reason import NOT_RUN

WINDOW = 100_000


def after(
    held: Breaker, ended: Convergence, freed: int = 0, *, now: float = 0.0, turn: int = 0
) -> Breaker:
    left: dict[str, Any] = {"tokens_before": 90_000, "tokens_after": 90_000 - freed}
    result = CompactionResult(convergence=ended, reason=NOT_RUN, trigger="threshold", **left)
    return cut.breaker_after(held, result, now=now, turn=turn, window_tokens=WINDOW)


def is_open(held: Breaker, now: float) -> bool:
    return cut.breaker_is_open(held, now=now)


def failed_three_times(at: float = 0.0) -> Breaker:
    held = Breaker()
    for n in range(3):
        assert not is_open(held, at + n)
        held = after(held, "failed", now=at + n, turn=n)
    return held


def test_three_failures_pause_it_and_what_the_pause_turns_away_does_not_prolong_it() -> None:
    held = failed_three_times()
    assert is_open(held, 601.9)
    for now in range(10, 600, 10):
        held = after(held, "failed", now=now, turn=now)
    assert not is_open(held, 602)


def test_after_the_pause_one_try_decides() -> None:
    held = failed_three_times()
    again = after(held, "failed", now=700, turn=9)
    assert is_open(again, 1_299)
    little = after(held, "reduced", 10, now=700, turn=9)
    assert is_open(little, 700), "a compaction that frees next to nothing proves nothing"
    assert after(held, "reduced", 40_000, now=700, turn=9) == Breaker(last_turn=9)


def test_lesson_14_compactions_that_free_next_to_nothing_pause_it() -> None:
    """claude-code#24179: 211 compactions, zero progress."""
    held, tried = Breaker(), 0
    for turn in range(0, 2_110, 10):
        if not is_open(held, turn):
            held = after(held, "reduced", WINDOW // 50, now=turn, turn=turn)
            tried += 1
    assert tried < 10


def test_lesson_14_a_window_that_refills_at_once_pauses_it() -> None:
    held = Breaker()
    for turn in (10, 12, 14):
        held = after(held, "reduced", 50_000, turn=turn)
        assert not is_open(held, 0)
    assert is_open(after(held, "reduced", 50_000, turn=16), 0)


def test_a_clock_that_is_set_back_ends_the_pause() -> None:
    assert not is_open(failed_three_times(at=9e9), 1e9)
