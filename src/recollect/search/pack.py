"""Packs the best passages into a budget of tokens.

Owns the order in which a block is filled: by rank, at most so many passages of one message,
what does not fit is skipped for what does. It must never exceed the budget. What always holds:
the same ranking and costs give the same choice, and a larger budget never spends fewer tokens:
where it first chooses otherwise, it takes more than the smaller one had left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

Ranked = TypeVar("Ranked")

MOST_OF_ONE: Final = 2
"""Passages of one message in a block (docs/sources.md)."""
MOST_OF_RESULT: Final = 4
"""The same of what a tool printed for what is asked: which line answers no word tells."""
_NEARLY_FULL_TOKENS: Final = 8
_MOST_MISFITS: Final = 200
"""After so many that did not fit, what is left over is too little for any."""


def pack(
    ranked: Sequence[Ranked],
    *,
    budget_tokens: int,
    cost: Callable[[Ranked], int],
    source: Callable[[Ranked], Hashable],
    sitting: Callable[[Ranked], Hashable],
    heading_cost: Callable[[Ranked], int],
    most: int | None = None,
    most_of: Callable[[Ranked], int] = lambda _: MOST_OF_ONE,
) -> list[Ranked]:
    """Those that fit, in the order of their rank.

    `source` names whose passage it is, `most_of` how many of that source may come;
    `heading_cost` is charged once a `sitting`, for the line that says when it was.
    """
    chosen: list[Ranked] = []
    headed: set[Hashable] = set()
    taken: Counter[Hashable] = Counter()
    left = budget_tokens
    misfits = 0
    for one in ranked:
        if left < _NEARLY_FULL_TOKENS or misfits > _MOST_MISFITS or len(chosen) == most:
            break
        if taken[source(one)] >= most_of(one):
            continue
        needs = cost(one)
        if sitting(one) not in headed:
            needs += heading_cost(one)
        if needs > left:
            misfits += 1
            continue
        left -= needs
        taken[source(one)] += 1
        headed.add(sitting(one))
        chosen.append(one)
    return chosen
