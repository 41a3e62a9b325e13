"""Scores documents against a query by the words they share (Okapi BM25).

Owns the formula, once, for both who hold an index in memory and who hold the statistics
themselves: stores return counts, this module scores, so that every engine ranks alike. It must
never tokenize, cut or read anything. What always holds: the terms of a sum are added in the
order in which the query names its words, so equal inputs give equal floats in any process;
repeating a word in the query changes nothing; a score is never negative and always below its
ceiling.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SATURATION: Final = 1.2
"""k1: how soon repeating a word stops mattering (docs/sources.md)."""
LENGTH_SHARE: Final = 0.75
"""b: how much of a document's length counts against it (docs/sources.md)."""


def inverse_document_frequency(*, document_frequency: int, documents: int) -> float:
    """What one word is worth: more, the fewer of the documents hold it; never below zero."""
    return math.log1p((documents - document_frequency + 0.5) / (document_frequency + 0.5))


def score_document(
    *,
    term_counts: Mapping[str, int],
    length: int,
    average_length: float,
    document_frequencies: Mapping[str, int],
    documents: int,
    query: Iterable[str],
) -> float:
    """The score of one document from statistics that the caller holds.

    `length` is the document's number of words, `term_counts` how often it holds each word of the
    query (others do no harm), `document_frequencies` how many of the `documents` hold each.
    """
    damping = _length_damping(length, average_length)
    score = 0.0
    for word in dict.fromkeys(query):
        count = term_counts.get(word, 0)
        if count:
            worth = inverse_document_frequency(
                document_frequency=document_frequencies.get(word, 0), documents=documents
            )
            score += worth * (count * (SATURATION + 1.0) / (count + damping))
    return score


def score_documents(
    counted: Sequence[Mapping[str, int]],
    lengths: Sequence[int],
    *,
    average_length: float,
    document_frequencies: Mapping[str, int],
    documents: int,
    query: Iterable[str],
) -> list[float]:
    """What `score_document` says of each of many: counts and lengths stand in one order.

    What a word is worth is worked out once for all of them: a recall scores a thousand.
    """
    worths = [
        (
            word,
            inverse_document_frequency(
                document_frequency=document_frequencies.get(word, 0), documents=documents
            ),
        )
        for word in dict.fromkeys(query)
    ]
    dampings = {length: _length_damping(length, average_length) for length in set(lengths)}
    scores: list[float] = []
    for counts, length in zip(counted, lengths, strict=True):
        score = 0.0
        if counts:
            damping = dampings[length]
            for word, worth in worths:
                if word in counts:
                    count = counts[word]
                    score += worth * (count * (SATURATION + 1.0) / (count + damping))
        scores.append(score)
    return scores


def score_ceiling(
    *, document_frequencies: Mapping[str, int], documents: int, query: Iterable[str]
) -> float:
    """What no document can reach: every word of the query, known or not, as often as you like.

    A score divided by its ceiling lies between 0 and 1 and can be compared across queries and
    memories. A word no document holds counts at its full worth: asking about what is not in
    memory must look poor. A query without words has the ceiling 1, so that its share is 0.
    """
    total = sum(
        inverse_document_frequency(
            document_frequency=document_frequencies.get(word, 0), documents=documents
        )
        for word in dict.fromkeys(query)
    )
    return total * (SATURATION + 1.0) or 1.0


def _length_damping(length: int, average_length: float) -> float:
    relative_length = length / average_length if average_length else 1.0
    return SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * relative_length)


class Bm25Index:
    """An immutable index of tokenized documents, which are known by their position."""

    __slots__ = ("_damping", "_postings", "average_length", "document_frequencies", "documents")

    def __init__(
        self, *, postings: dict[str, tuple[array[int], array[int]]], lengths: Sequence[int]
    ) -> None:
        self.documents: Final = len(lengths)
        self.average_length: Final = sum(lengths) / len(lengths) if lengths else 0.0
        self.document_frequencies: Final[Mapping[str, int]] = {
            word: len(positions) for word, (positions, _) in postings.items()
        }
        self._postings: Final = postings
        self._damping: Final = array(
            "d", (_length_damping(length, self.average_length) for length in lengths)
        )

    @classmethod
    def build(cls, documents: Sequence[Sequence[str]]) -> Self:
        """Index documents given as their words."""
        postings: dict[str, tuple[array[int], array[int]]] = {}
        for position, words in enumerate(documents):
            for word, count in Counter(words).items():
                held = postings.get(word)
                if held is None:
                    held = postings[word] = (array("L"), array("L"))
                held[0].append(position)
                held[1].append(count)
        return cls(postings=postings, lengths=[len(words) for words in documents])

    def scores(self, query: Iterable[str]) -> list[float]:
        """The score of every document, by position; 0 where no word is shared."""
        scores = [0.0] * self.documents
        for position, score in self._scores_of_matches(query).items():
            scores[position] = score
        return scores

    def top(self, query: Iterable[str], limit: int) -> list[tuple[int, float]]:
        """The best documents that share a word with the query, best first, ties by position."""
        matches = self._scores_of_matches(query)
        return nsmallest(limit, matches.items(), key=lambda match: (-match[1], match[0]))

    def ceiling(self, query: Iterable[str]) -> float:
        """What no score for this query can reach, see `score_ceiling`."""
        return score_ceiling(
            document_frequencies=self.document_frequencies, documents=self.documents, query=query
        )

    def _scores_of_matches(self, query: Iterable[str]) -> dict[int, float]:
        scores: dict[int, float] = {}
        damping = self._damping
        for word in dict.fromkeys(query):
            held = self._postings.get(word)
            if held is None:
                continue
            worth = inverse_document_frequency(
                document_frequency=len(held[0]), documents=self.documents
            )
            for position, count in zip(*held, strict=True):
                gain = worth * (count * (SATURATION + 1.0) / (count + damping[position]))
                scores[position] = scores.get(position, 0.0) + gain
        return scores
