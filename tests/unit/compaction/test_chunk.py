"""Chunks that a model can read, and the share of them that the main summary reads."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.compaction.histories import call, entries_of, result, rules_of, said, turn

from recollect.core.compaction.chunks import MARGIN, ChunkResult, adaptive_ratio, chunk, share
from recollect.core.values.history import Entry


def chunked(messages: list[Any], **more: Any) -> ChunkResult:
    return chunk(entries_of(messages), rules_of(), **more)


def tokens(one: tuple[Entry, ...]) -> int:
    return sum(entry.tokens for entry in one)


def long_history(turns: int = 20) -> list[Any]:
    return [message for n in range(turns) for message in turn(n)]


class TestRatio:
    @pytest.mark.parametrize(
        ("average", "ratio"),
        [(100, 0.4), (833, 0.4), (1_000, 0.4 - 0.24), (2_000, 0.15), (9_000, 0.15)],
    )
    def test_it_falls_with_the_size_of_messages(self, average: int, ratio: float) -> None:
        assert adaptive_ratio([average] * 5, 10_000) == pytest.approx(ratio)


class TestChunks:
    def test_they_are_balanced_and_within_the_budget(self) -> None:
        done = chunked(long_history(), window_tokens=8_000, overhead_tokens=500)
        assert done.budget_tokens == int(7_500 * 0.4 / 1.2)
        sizes = [tokens(one) for one in done.chunks]
        assert len(sizes) > 2
        assert max(sizes) <= done.budget_tokens
        assert max(sizes) - min(sizes) < 450, "no small rest at the end"

    def test_calls_are_read_with_their_results(self) -> None:
        messages = [said("user", 10)]
        for n in range(30):
            messages += [call(n), result(n, 90)]
        for one in chunked(messages, window_tokens=2_000).chunks:
            assert {c for e in one for c in e.calls} == {r for e in one for r in e.results}

    def test_what_is_larger_than_half_of_the_window_is_set_apart_whole(self) -> None:
        messages = [*turn(0), call(5), result(5, 3_000), *turn(6)]
        done = chunked(messages, window_tokens=4_000)
        assert [entry.key for entry in done.oversized] == ["k4", "k5"]
        assert sum(len(one) for one in done.chunks) == 8


class TestShare:
    def test_over_its_share_the_oldest_chunks_go_apart(self) -> None:
        chunks = chunked(long_history(), window_tokens=8_000).chunks
        apart, main = share(chunks, window_tokens=8_000, max_history_share=0.5)
        assert apart + main == chunks
        assert apart
        budget_tokens = int(8_000 * 0.5 / MARGIN)
        assert sum(map(tokens, main)) <= budget_tokens
        assert sum(map(tokens, main)) + tokens(apart[-1]) > budget_tokens
