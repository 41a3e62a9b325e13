"""When a flush or a compaction is due; each of the lessons behind it by name."""

from typing import Any

import pytest
from tests.unit.compaction.histories import (
    block_at,
    call,
    cut_at,
    entries_of,
    key,
    result,
    rules_of,
    said,
    turn,
)

from recollect.core.compaction.chunks import ChunkResult, chunk
from recollect.core.compaction.cut import TriggerResult, replace_past, trigger, undo
from recollect.core.rules.budget import limits_of
from recollect.core.values.edit import Cut, Edit, Shorten
from recollect.core.values.history import Entry
from recollect.core.values.reason import NOT_RUN
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


@pytest.mark.parametrize(("held", "said"), [("paused", "undone"), ("breaker_open", "no progress")])
def test_held_back_it_does_not_compact_and_says_so(held: str, said: str) -> None:
    over = LIMITS.compact_tokens + 1
    how: dict[str, Any] = {held: True}
    done = triggered(over, flushed_in=0, **how)
    assert done.due == "nothing"
    assert said in str(done.reason)
    assert due(over, **how) == "flush", "notes can be written all the same"


def chunked(messages: list[Any], **more: Any) -> ChunkResult:
    return chunk(entries_of(messages), rules_of(), **more)


def tokens(one: tuple[Entry, ...]) -> int:
    return sum(entry.tokens for entry in one)


def long_history(turns: int = 20) -> list[Any]:
    return [message for n in range(turns) for message in turn(n)]


class TestChunks:
    def test_chunks_are_balanced_keep_calls_with_results_and_set_the_largest_apart(self) -> None:
        done = chunked(long_history(), window_tokens=8_000, overhead_tokens=500)
        assert done.budget_tokens == int(7_500 * 0.4 / 1.2)
        sizes = [tokens(one) for one in done.chunks]
        assert len(sizes) > 2
        assert max(sizes) <= done.budget_tokens
        assert max(sizes) - min(sizes) < 450, "no small rest at the end"
        messages = [said("user", 10)]
        for n in range(30):
            messages += [call(n), result(n, 90)]
        for one in chunked(messages, window_tokens=2_000).chunks:
            assert {c for e in one for c in e.calls} == {r for e in one for r in e.results}
        messages = [*turn(0), call(5), result(5, 3_000), *turn(6)]
        done = chunked(messages, window_tokens=4_000)
        assert [entry.key for entry in done.oversized] == ["k4", "k5"]
        assert sum(len(one) for one in done.chunks) == 8


HISTORY = entries_of([said("system", 5), *turn(0), *turn(1), *turn(2)])


def short(at: int) -> Shorten:
    return Shorten(anchor=key(at), part=0, text="[short]", stage="prune", reason=NOT_RUN, turn=1)


class TestReplacePast:
    def test_two_cuts_stay_and_blocks_end_but_for_those_of_the_current_turn(self) -> None:
        edits: tuple[Edit, ...] = (block_at(1), short(3), block_at(None), block_at(9))
        done = replace_past(edits, cut_at(5), HISTORY, keep_blocks=frozenset({key(9)}))
        made = done[-1]  # the newest cut is the last: it is the one that counts
        assert isinstance(made, Cut)
        assert made.ended == (block_at(1), block_at(None))
        assert set(done) == {short(3), block_at(9), made}
        edits = ()
        for number, at in enumerate(range(2, 12), 1):
            edits = replace_past((*edits, block_at(at)), cut_at(at, number), HISTORY)
        cuts = [edit for edit in edits if isinstance(edit, Cut)]
        assert [one.number for one in cuts] == [9, 10]
        assert len(cuts[0].ended) == 0
        assert len(cuts[1].ended) == 1
        assert len(edits) == 2


class TestUndo:
    def test_undo_takes_last_cut_away_brings_back_its_blocks_and_says_what_it_cannot(self) -> None:
        done = undo((short(3),))
        assert done.undone is None
        assert done.edits == (short(3),)
        assert "no compaction" in str(done.reason)
        before: tuple[Edit, ...] = (block_at(1), short(3), block_at(9))
        made = replace_past(before, cut_at(5), HISTORY)
        done = undo(made)
        assert done.undone == made[-1]
        assert set(done.edits) == set(before)
        assert "whole history" in str(done.reason)
        made = replace_past((cut_at(5, 1), block_at(6)), cut_at(9, 2), HISTORY)
        done = undo(made)
        assert set(done.edits) == {cut_at(5, 1), block_at(6)}
        assert "previous summary is active again" in str(done.reason)
        done = undo((cut_at(9, 2, before=1),))
        assert done.undone is None
        assert "only the last two summaries are kept; the messages are still in" in str(done.reason)
