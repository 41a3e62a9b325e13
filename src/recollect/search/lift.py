"""Lifts passages by what stands around them: neighbours, and the stretch they stand in.

A question finds the turn that shares its words; the answer often stands in the next one. Owns
how much a neighbour lends. It must never lend across sessions: the store names neighbours, and
a stretch is of one session. What always holds: nothing is ever lowered.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from recollect.search.bm25 import inverse_document_frequency
from recollect.values.lookup import Candidate, Candidates, Neighbour
from recollect.values.segment import SegmentId

NEIGHBOUR_SHARE: Final = 0.5
"""What the best neighbour lends of its score."""
SECOND_SHARE: Final = 0.8
"""What is left of that at two places' distance (docs/sources.md)."""
STRETCH_SEGMENTS: Final = 24
STRETCH_SHARE: Final = 0.2
_STRETCH_SATURATION: Final = 3.0
"""How soon repeating a word in a stretch stops mattering: later than in one passage."""


def best_of_segments(
    passages: Sequence[Candidate], scores: Sequence[float]
) -> dict[SegmentId, float]:
    """Each segment's best score."""
    best: dict[SegmentId, float] = {}
    for one, score in zip(passages, scores, strict=True):
        if score > best.get(one.segment, -1.0):
            best[one.segment] = score
    return best


def lift_neighbours(
    best: Mapping[SegmentId, float],
    neighbours: Iterable[Neighbour],
    tools: AbstractSet[SegmentId] = frozenset(),
    users: AbstractSet[SegmentId] = frozenset(),
) -> dict[SegmentId, float]:
    """What each segment is lent by its best neighbour; `tools` are what tools were asked and
    printed, `users` what the user said."""
    lent: dict[SegmentId, float] = {}
    for taker, lender, distance in lending(neighbours, tools, users):
        score = best.get(lender)
        if score is None:
            continue
        points = NEIGHBOUR_SHARE * score * SECOND_SHARE ** (distance - 1)
        if points > lent.get(taker, 0.0):
            lent[taker] = points
    return lent


def lending(
    neighbours: Iterable[Neighbour],
    tools: AbstractSet[SegmentId],
    users: AbstractSet[SegmentId],
) -> Iterator[tuple[SegmentId, SegmentId, int]]:
    """Taker, lender and the places between them.

    What a tool printed before a user's message answers the message before that one.
    """
    for one in neighbours:
        far = abs(one.distance)
        first, second = (one.of, one.segment) if one.distance > 0 else (one.segment, one.of)
        yield second, first, far
        if not (first in tools and second in users):
            yield first, second, far


def tools_and_users(passages: Iterable[Candidate]) -> tuple[set[SegmentId], set[SegmentId]]:
    """The segments of tools, and those in which the user spoke."""
    tools: set[SegmentId] = set()
    users: set[SegmentId] = set()
    for one in passages:
        if one.tool is not None:
            tools.add(one.segment)
        elif one.role == "user":
            users.add(one.segment)
    return tools, users


def stretch_of(one: Candidate) -> tuple[str, int]:
    """The stretch of its session that a passage stands in."""
    return one.session, one.sequence // STRETCH_SEGMENTS


def lift_stretches(
    passages: Sequence[Candidate], statistics: Candidates, words: Sequence[str]
) -> dict[tuple[str, int], float]:
    """What each stretch lends: how well its passages together answer to the words."""
    held: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for one in passages:
        held[stretch_of(one)].update(one.counts)
    worths = {
        word: inverse_document_frequency(
            document_frequency=statistics.document_frequencies.get(word, 0),
            documents=statistics.documents,
        )
        for word in words
    }
    scores = {
        stretch: math.fsum(
            worth * counts[word] / (counts[word] + _STRETCH_SATURATION)
            for word, worth in worths.items()
            if counts[word]
        )
        for stretch, counts in held.items()
    }
    lowest, highest = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    if highest <= lowest:
        return {}
    return {
        stretch: STRETCH_SHARE * (score - lowest) / (highest - lowest)
        for stretch, score in scores.items()
    }
