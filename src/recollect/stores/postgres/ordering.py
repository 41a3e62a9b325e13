"""Orders passages by the words they share with a query (Okapi BM25). Pure.

Never has the last word: `search` scores what is found here. Always holds: passages with the same
words have the very same score, in whatever run they stand; what is left out takes no place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.stores.postgres.lexical import NONE, Floats, Forwards, Ints

_SATURATION, _LENGTH_SHARE = 1.2, 0.75
"""Okapi's k1 and b as in `search/bm25.py`, which a test compares with this."""


@dataclass(frozen=True, slots=True)
class Hit:
    """Where an asked term stands: postings of one block or of forward rows."""

    term: int
    base: int
    """The number that relative ones add to."""
    numbers: NDArray[Any]
    lengths: NDArray[Any]
    counts: NDArray[Any]


def hits_in(rows: Forwards, asked: Iterable[int]) -> Iterator[Hit]:
    """Postings of asked terms in forward rows."""
    wanted = np.array(sorted(asked), np.uint32)
    found = np.flatnonzero(np.isin(rows.terms, wanted))
    if not len(found):
        return
    of_row = np.searchsorted(np.cumsum(rows.sizes), found, side="right")
    terms = rows.terms[found]
    for term in np.unique(terms).tolist():
        here = terms == term
        owner = of_row[here]
        yield Hit(term, 0, rows.numbers[owner], rows.lengths[owner], rows.counts[found[here]])


def order_candidates(
    hits: Sequence[Hit],
    *,
    frequencies: dict[int, int],
    documents: int,
    average_length: float,
    limit: int,
    allowed: Ints | None = None,
    left_out: Ints = NONE,
) -> tuple[Ints, Ints]:
    """The best passages by Okapi BM25, and those of which some fill the limit: they score alike.

    Only allowed ones where that is given, and none of those that are left out.
    """
    if not hits or limit <= 0:
        return NONE, NONE
    by_base: dict[int, dict[int, list[Hit]]] = {}
    for hit in hits:
        by_base.setdefault(hit.base, {}).setdefault(hit.term, []).append(hit)
    best: list[tuple[Ints, Floats]] = []
    for base, by_term in by_base.items():
        # In one order, so that passages with the same words have the very same score.
        mine = [_joined(by_term[term]) for term in sorted(by_term)]
        low, totals = _score(mine, frequencies, documents, average_length)
        first = base + low
        if allowed is not None:
            chosen = np.zeros(len(totals), bool)
            chosen[_places(allowed, first, len(totals))] = True
            totals[~chosen] = 0.0
        if len(left_out):
            totals[_places(left_out, first, len(totals))] = 0.0
        best.append(_highest(totals, first, limit))
    numbers = np.concatenate([one[0] for one in best])
    scores = np.concatenate([one[1] for one in best])
    if len(numbers) <= limit:
        return numbers, NONE
    edge = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    return numbers[scores > edge], numbers[scores == edge]


def _joined(hits: Sequence[Hit]) -> Hit:
    """Hits of one term and base as one: a frequent word stands in many blocks."""
    if len(hits) == 1:
        return hits[0]
    return Hit(
        hits[0].term,
        hits[0].base,
        np.concatenate([hit.numbers for hit in hits]),
        np.concatenate([hit.lengths for hit in hits]),
        np.concatenate([hit.counts for hit in hits]),
    )


def _score(
    hits: Sequence[Hit], frequencies: dict[int, int], documents: int, average_length: float
) -> tuple[int, Floats]:
    """The lowest relative number, and the scores from there on."""
    low = min(int(hit.numbers.min()) for hit in hits)
    high = max(int(hit.numbers.max()) for hit in hits)
    totals = np.zeros(high - low + 1)
    for hit in hits:
        held = frequencies[hit.term]
        worth = np.log1p((documents - held + 0.5) / (held + 0.5)) * (_SATURATION + 1.0)
        share = _LENGTH_SHARE / average_length if average_length else 0.0
        damping = _SATURATION * (1.0 - _LENGTH_SHARE + share * hit.lengths)
        counts = hit.counts.astype(np.float64)
        totals[hit.numbers.astype(np.int64) - low] += worth * counts / (counts + damping)
    return low, totals


def _places(numbers: Ints, first: int, count: int) -> Ints:
    """Where these stand among so many from the first on, as far as they do."""
    return numbers[(numbers >= first) & (numbers < first + count)] - first


def _highest(totals: Floats, first: int, limit: int) -> tuple[Ints, Floats]:
    """The passages with the highest scores, with all that score like the last."""
    matching = np.flatnonzero(totals)
    if len(matching) > limit:
        values = totals[matching]
        edge = np.partition(values, len(values) - limit)[len(values) - limit]
        matching = matching[values >= edge]
    return matching + first, totals[matching]
