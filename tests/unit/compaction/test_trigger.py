"""When a flush or a compaction is due; each of the lessons behind it by name."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.core.compaction.cut import TriggerResult, trigger
from recollect.core.rules.budget import limits_of
from recollect.system.config import build

WINDOW = 200_000


def due(used_tokens: int | None, *, options: dict[str, Any] | None = None, **more: Any) -> str:
    return triggered(used_tokens, options=options, **more).due


def triggered(
    used_tokens: int | None, *, options: dict[str, Any] | None = None, **more: Any
) -> TriggerResult:
    settings = build(options or {})
    given = {"compactions": 0, **more}
    return trigger(
        used_tokens=used_tokens,
        limits=limits_of(WINDOW, settings),
        settings=settings.compaction,
        **given,
    )


LIMITS = limits_of(WINDOW, build({}))


def test_first_notes_then_a_compaction() -> None:
    assert due(LIMITS.flush_tokens - 1) == "nothing"
    assert due(LIMITS.flush_tokens) == "flush"
    assert due(LIMITS.compact_tokens) == "flush"
    assert due(LIMITS.compact_tokens + 1) == "compaction"


def test_lesson_8_a_larger_reserve_moves_both_thresholds() -> None:
    """openclaw#25880: the flush took the floor, the compaction the larger reserve, and won."""
    options = {"compaction.reserve_tokens": 45_000}
    limits = limits_of(WINDOW, build(options))
    assert limits.compact_tokens == WINDOW - 45_000
    assert due(limits.flush_tokens, options=options) == "flush"
    assert limits.flush_tokens < limits.compact_tokens


def test_lesson_7_never_flushed_is_not_the_count_zero() -> None:
    """openclaw#47143: no compaction yet, no flush yet, and 0 == 0 said it was done."""
    full = LIMITS.flush_tokens
    assert due(full, compactions=0, flushed_in=None) == "flush"
    assert due(full, compactions=0, flushed_in=0) == "nothing"
    assert due(full, compactions=1, flushed_in=0) == "flush"
    assert due(full, compactions=1, flushed_in=1) == "nothing"


def test_lesson_6_a_stale_count_triggers_nothing() -> None:
    """openclaw#15101: the count from before the compaction asked for the next one."""
    done = triggered(None)
    assert done.due == "nothing"
    assert "not known" in str(done.reason)


@pytest.mark.parametrize(("held", "said"), [("paused", "undone"), ("breaker_open", "no progress")])
def test_held_back_it_does_not_compact_and_says_so(held: str, said: str) -> None:
    over = LIMITS.compact_tokens + 1
    how: dict[str, Any] = {held: True}
    done = triggered(over, flushed_in=0, **how)
    assert done.due == "nothing"
    assert said in str(done.reason)
    assert due(over, **how) == "flush", "notes can be written all the same"
