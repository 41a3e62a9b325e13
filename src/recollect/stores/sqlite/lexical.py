"""Finds the passages that share words with a query, and what scoring them needs.

Reads the occurrences of each word from the index (fts5vocab) and adds BM25 up with numpy: FTS5's
own rank takes several times as long, values common words at nothing, and does not tell counts.
The score here only chooses whom to hand over: `search` scores. It is the same formula, added up
in the same order, so the best by it are the best by `search` too. Always holds: statistics are
those of the warm index, whatever is looked through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.matrix import number_list
from recollect.stores.sqlite.packing import json_list
from recollect.stores.sqlite.passages import LENGTH_MAX
from recollect.stores.sqlite.vectors import Numbers
from recollect.stores.sqlite.words import form_of

# As in `recollect.search.bm25`, which a store must not import; a test holds them equal.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.75

_OCCURRENCES: Final = "SELECT group_concat(doc) FROM words_at WHERE term = ?"
_COLD_OCCURRENCES: Final = "SELECT group_concat(doc) FROM cold_words_at WHERE term = ?"
_LENGTHS: Final = "SELECT id, length FROM passage WHERE id IN (SELECT value FROM json_each(?))"

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """Where one word stands: passages in ascending order, and how often in each."""

    word: str
    passages: Numbers
    counts: Numbers
    document_frequency: int
    """Warm passages only."""


def postings_of(db: Database, words: Sequence[str], *, cold: bool) -> list[Postings]:
    """The postings of every word, in the order of the words."""
    found = []
    for word in dict.fromkeys(words):
        form = form_of(word)
        passages, counts = _counted(number_list(db.value(_OCCURRENCES, (form,))))
        frequency = len(passages)
        if cold:
            more, more_counts = _counted(number_list(db.value(_COLD_OCCURRENCES, (form,))))
            if len(more):
                order = np.argsort(np.concatenate([passages, more]), kind="stable")
                passages = np.concatenate([passages, more])[order]
                counts = np.concatenate([counts, more_counts])[order]
        found.append(
            Postings(word=word, passages=passages, counts=counts, document_frequency=frequency)
        )
    return found


def scores_of(
    db: Database,
    postings: Sequence[Postings],
    *,
    documents: int,
    average_length: float,
    allowed: Numbers | None,
    left_out: Numbers,
) -> tuple[Numbers, Scores]:
    """The passages that hold any of the words and may be chosen, ascending, and their scores.

    `allowed` are the only ones that may, None for all; `left_out` may not. Both ascend.
    """
    held = [one for one in postings if len(one.passages)]
    if not held:
        return np.empty(0, dtype=np.int64), np.empty(0)
    every = np.concatenate([one.passages for one in held])
    counts = np.concatenate([one.counts for one in held])
    worths = np.repeat(
        [_worth(one.document_frequency, documents) for one in held],
        [len(one.passages) for one in held],
    )
    gains = worths * (
        counts * (_SATURATION + 1.0) / (counts + _damping(_lengths(db, every), average_length))
    )
    passages, at = _places(every)
    # which adds them up in the order of the words
    scores: Scores = np.bincount(at, weights=gains).astype(np.float64, copy=False)
    if allowed is not None:
        among = _found(passages, allowed)[0]
        passages, scores = passages[among], scores[among]
    if len(left_out):
        stays = np.ones(len(passages), dtype=np.bool_)
        stays[_found(passages, left_out)[0]] = False
        passages, scores = passages[stays], scores[stays]
    return passages, scores


def _worth(frequency: int, documents: int) -> float:
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def _places(numbers: Numbers) -> tuple[Numbers, npt.NDArray[np.intp]]:
    """Each number once, ascending, and where each of the given ones stands among them.

    The numbers are a few ascending stretches, which a stable sort only has to merge: searching
    for each of them took twice as long.
    """
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    new = np.concatenate(([True], ascending[1:] != ascending[:-1]))
    at = np.empty(len(numbers), dtype=np.intp)
    at[order] = np.cumsum(new) - 1
    return ascending[new], at


def counts_in(postings: Sequence[Postings], passages: Numbers) -> list[dict[str, int]]:
    """How often each of these passages holds each word; words it does not hold are missing."""
    counts: list[dict[str, int]] = [{} for _ in range(len(passages))]
    for one in postings:
        at, hits = _found(one.passages, passages)
        for hit, count in zip(hits.tolist(), one.counts[at].tolist(), strict=True):
            counts[hit][one.word] = count
    return counts


def _found(held: Numbers, wanted: Numbers) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where those of `wanted` that stand in `held` stand there, and where in `wanted`."""
    if not len(held):
        nowhere = np.empty(0, dtype=np.intp)
        return nowhere, nowhere
    at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    hits = np.flatnonzero(held[at] == wanted)
    return at[hits], hits


def distinct(numbers: Numbers) -> Numbers:
    """Each number once, ascending; np.unique hashes, which takes six times as long here."""
    if not len(numbers):
        return numbers
    numbers = np.sort(numbers)
    return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))]


def _counted(occurrences: Numbers) -> tuple[Numbers, Numbers]:
    """Ascending numbers, each once, and how often each came."""
    if not len(occurrences):
        return occurrences, occurrences
    starts = np.flatnonzero(np.concatenate(([True], occurrences[1:] != occurrences[:-1])))
    counts = np.diff(np.append(starts, len(occurrences)))
    return occurrences[starts], counts.astype(np.int64)


def _lengths(db: Database, passages: Numbers) -> Numbers:
    """Lengths in words, from the passages' numbers; from their rows where they are very long."""
    lengths = passages & LENGTH_MAX
    long = np.flatnonzero(lengths == LENGTH_MAX)
    if len(long):
        exact: dict[int, int] = dict(db.rows(_LENGTHS, (json_list(passages[long].tolist()),)))
        lengths[long] = [exact.get(passage, LENGTH_MAX) for passage in passages[long].tolist()]
    return lengths


def _damping(lengths: Numbers, average_length: float) -> Scores:
    relative: Scores = lengths / average_length if average_length else np.ones(len(lengths))
    return _SATURATION * (1.0 - _LENGTH_SHARE + _LENGTH_SHARE * relative)
