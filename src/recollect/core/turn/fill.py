"""Fills the recalled block: the best passages first, in sessions with tools in turn with those that
are nearest by meaning, until the block has enough. It has enough if the rest is far below the best:
the more it contains already, the nearer to the best a passage must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, zip_longest
from typing import Final, TypeVar

from recollect.core.search.rank import Ranking
from recollect.core.values.segment import SegmentId

RankedT = TypeVar("RankedT")

FIRST_SHARE: Final = 0.45
"""A passage needs this share of the best match, if the block is empty but for the best one."""
FULL_SHARE: Final = 0.3
"""How much larger that share becomes until the block is full (docs/contributing/ranking.md)."""
NEAREST_BY_MEANING: Final = 8
"""So many passages may come in turn with the best: those that share no words with a question are
among the first (docs/contributing/ranking.md)."""
MAX_PER_MESSAGE: Final = 2
"""Maximum number of passages per message in a block (docs/contributing/sources.md)."""
CHARS_PER_TOKEN: Final = 4  # a rough average, only to compare with the budget
MAX_CHARS_PER_TOKEN: Final = 6
"""No text has more characters per token, so more passages cannot fit and need not be read."""
_NEARLY_FULL_TOKENS: Final = 8  # no passage is shorter
_MAX_MISFITS: Final = 200
"""After this many passages that did not fit, `pack` tries no more."""


def likely_passages(ranking: Ranking, budget_tokens: int) -> Ranking:
    """Return the passages that may fit the budget, at most a few per message."""
    return _choose(ranking, range(len(ranking.passages)), None, budget_tokens)


def enough_passages(ranking: Ranking, budget_tokens: int, *, by_meaning: bool) -> Ranking:
    """Return the passages that the block needs, in the order in which it takes them. `by_meaning`
    takes every second one by its meaning alone."""
    best = max(ranking.matches, default=0.0)
    shares = [match / best if best > 0 else 1.0 for match in ranking.matches]
    order: Sequence[int] = range(len(shares))
    if by_meaning:
        closeness = ranking.nearness
        nearest = sorted(order, key=lambda index: -closeness[index])[:NEAREST_BY_MEANING]
        for index in nearest:
            shares[index] = max(shares[index], closeness[index])
        pairs = zip_longest(order, nearest)
        order = [index for index in dict.fromkeys(chain(*pairs)) if index is not None]
    return _choose(ranking, order, shares, budget_tokens)


def _choose(
    ranking: Ranking,
    order: Sequence[int],
    shares: Sequence[float] | None,
    budget_tokens: int,
) -> Ranking:
    chosen: list[int] = []
    counts: Counter[SegmentId] = Counter()
    chars = 0
    for index in order:
        passage = ranking.passages[index]
        if counts[passage.segment] == MAX_PER_MESSAGE:
            continue
        if shares is not None:
            fullness = chars / (CHARS_PER_TOKEN * max(1, budget_tokens))
            if chosen and shares[index] < FIRST_SHARE + FULL_SHARE * fullness:
                continue
        counts[passage.segment] += 1
        chosen.append(index)
        chars += passage.end - passage.start
        if chars >= MAX_CHARS_PER_TOKEN * budget_tokens:
            break
    return ranking.select(chosen)


def pack(
    passages: Sequence[RankedT],
    *,
    budget_tokens: int,
    cost: Callable[[RankedT], int],
    sitting: Callable[[RankedT], Hashable],
    heading_cost: Callable[[RankedT], int],
    max_count: int | None = None,
) -> list[RankedT]:
    """Return the passages that fit, in order. `heading_cost` is added once per `sitting` (day of a
    session)."""
    chosen: list[RankedT] = []
    headed: set[Hashable] = set()
    left_tokens = budget_tokens
    misfits = 0
    for passage in passages:
        if left_tokens < _NEARLY_FULL_TOKENS or misfits > _MAX_MISFITS or len(chosen) == max_count:
            break
        tokens = cost(passage)
        if sitting(passage) not in headed:
            tokens += heading_cost(passage)
        if tokens > left_tokens:
            misfits += 1
            continue
        left_tokens -= tokens
        headed.add(sitting(passage))
        chosen.append(passage)
    return chosen
