"""Holds two stores against each other: the same question must be ranked alike by both.

Owns what alike means: at every rank of the first fifty the scores are within 1e-4 of each
other, and the passages the same unless their scores are that near too. Scores only; how long
a store takes is another bench.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from recollect.values.recall import Hit
from recollect.values.segment import SegmentId

RANKS: Final = 50
TOLERANCE: Final = 1e-4

PassageKey: TypeAlias = tuple[SegmentId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two rankings of one question agree."""

    alike: bool
    worst: float
    """The largest difference between two scores at one rank, or of one passage."""


def compare(first: Sequence[Hit], second: Sequence[Hit]) -> Agreement:
    """Compare what two stores ranked for the same question."""
    ours, theirs = first[:RANKS], second[:RANKS]
    by_rank = [abs(a.score - b.score) for a, b in zip(ours, theirs, strict=False)]
    scores, others = _scores(first), _scores(second)
    of_passage = [abs(scores[key] - others[key]) for key in map(_key, ours) if key in others]
    near = all(difference <= TOLERANCE for difference in (*by_rank, *of_passage))
    alike = (
        len(ours) == len(theirs)
        and near
        and all(_same_place(a, b, scores, others) for a, b in zip(ours, theirs, strict=True))
    )
    return Agreement(alike=alike, worst=max((*by_rank, *of_passage), default=0.0))


def _same_place(
    ours: Hit, theirs: Hit, scores: Mapping[PassageKey, float], others: Mapping[PassageKey, float]
) -> bool:
    """The same passage, or two that each store scores the same."""
    if _key(ours) == _key(theirs):
        return True
    swapped = (_score(scores, theirs), _score(others, ours))
    return all(abs(score - ours.score) <= TOLERANCE for score in swapped)


def _score(scores: Mapping[PassageKey, float], hit: Hit) -> float:
    """What a ranking gives a passage; one that it left out scores at most what came last."""
    return scores.get(_key(hit), min(scores.values(), default=0.0))


def _key(hit: Hit) -> PassageKey:
    return hit.passage.segment, hit.passage.ordinal


def _scores(hits: Sequence[Hit]) -> dict[PassageKey, float]:
    return {_key(hit): hit.score for hit in hits}
