"""Scores documents against a query by shared words (Okapi BM25), for every store. Words are added
in the query's order, so that equal inputs give equal floats. Scores are from 0 to below
`score_ceiling`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from recollect.core.search.tokenize import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from recollect.core.values.recall import Candidate, Candidates

SATURATION: Final = 1.2
"""Parameter k1 of BM25: how often a word can repeat and still raise the score
(docs/contributing/sources.md)."""
LENGTH_SHARE: Final = 0.75
"""Parameter b of BM25: how much less a long document scores (docs/contributing/sources.md)."""

Number = TypeVar("Number", float, NDArray[np.float64])


def inverse_document_frequency(*, document_frequency: int, documents: int) -> float:
    """Return a word's weight, at least 0. The fewer documents contain it, the higher it is."""
    return math.log1p((documents - document_frequency + 0.5) / (document_frequency + 0.5))


def word_worths(
    query: Iterable[str], document_frequencies: Mapping[str, int], documents: int
) -> dict[str, float]:
    """Return the weight of each different word of a query, in the query's order."""
    return {
        word: inverse_document_frequency(
            document_frequency=document_frequencies.get(word, 0), documents=documents
        )
        for word in dict.fromkeys(query)
    }


def length_damping(length: Number, average_length: float) -> Number:
    """Return how much a document's length lowers its word scores, for one length or an array."""
    relative = length / average_length if average_length else 0.0 * length + 1.0
    return SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * relative)


def saturate(count: Number, damping: Number) -> Number:
    """Return the factor on a word's weight in a document that contains it `count` times."""
    return count * (SATURATION + 1.0) / (count + damping)


def score_documents(
    counted: Sequence[Mapping[str, int]],
    lengths: Sequence[int],
    *,
    average_length: float,
    document_frequencies: Mapping[str, int],
    documents: int,
    query: Iterable[str],
) -> list[float]:
    """Return a score per document. `counted` is how often each document contains each word,
    `lengths` its number of words. `document_frequencies` is how many of `documents` contain each
    word."""
    worths = word_worths(query, document_frequencies, documents)
    # Cache gains by count and length: a recall scores a thousand passages, and most pairs repeat.
    dampings = {length: length_damping(float(length), average_length) for length in set(lengths)}
    gains: dict[tuple[int, int], float] = {}
    scores: list[float] = []
    place_of = {word: place for place, word in enumerate(worths)}.__getitem__
    for counts, length in zip(counted, lengths, strict=True):
        score = 0.0
        # A passage contains few words of a long question, so iterate over those, in the question's
        # order.
        shared_words = [word for word in counts if word in worths]
        if len(shared_words) > 1:
            shared_words.sort(key=place_of)
        for word in shared_words:
            if count := counts[word]:
                gain = gains.get((count, length))
                if gain is None:
                    gain = gains[count, length] = saturate(float(count), dampings[length])
                score += worths[word] * gain
        scores.append(score)
    return scores


def score_passages(
    passages: Sequence[Candidate], statistics: Candidates, query: Iterable[str]
) -> list[float]:
    """Return a score per passage, from the word statistics that a store returned with them."""
    return score_documents(
        [passage.counts for passage in passages],
        [passage.length for passage in passages],
        average_length=statistics.average_length,
        document_frequencies=statistics.document_frequencies,
        documents=statistics.documents,
        query=query,
    )


def score_ceiling(
    *, document_frequencies: Mapping[str, int], documents: int, query: Iterable[str]
) -> float:
    """Return a score that no document reaches. Scores divided by this ceiling are comparable across
    queries and memories. A word that no document contains raises the ceiling too, so that a
    question about unknown things scores low. If the query has no words, return 1."""
    total = sum(word_worths(query, document_frequencies, documents).values())
    return total * (SATURATION + 1.0) or 1.0


class Bm25Index:
    """Tokenized documents in RAM, identified by position."""

    __slots__ = ("_lengths", "_word_counts", "document_frequencies")

    def __init__(self, word_counts: list[Counter[str]]) -> None:
        self._word_counts = word_counts
        self._lengths = [counts.total() for counts in word_counts]
        self.document_frequencies: Final[Mapping[str, int]] = Counter(
            word for counts in self._word_counts for word in counts
        )

    @classmethod
    def build(cls, documents: Sequence[Sequence[str]]) -> Self:
        return cls([Counter(words) for words in documents])

    @property
    def documents(self) -> int:
        return len(self._lengths)

    def scores(self, query: Iterable[str]) -> list[float]:
        """Return the score of every document, by position; 0 if no word is shared."""
        return score_documents(
            self._word_counts,
            self._lengths,
            average_length=sum(self._lengths) / (len(self._lengths) or 1),
            document_frequencies=self.document_frequencies,
            documents=self.documents,
            query=query,
        )

    def top(self, query: Iterable[str], limit: int) -> list[tuple[int, float]]:
        """Return the documents that share words with the query, best first, then by position."""
        matches = [(index, score) for index, score in enumerate(self.scores(query)) if score]
        return nsmallest(limit, matches, key=lambda match: (-match[1], match[0]))


_READ_CHARS: Final = 12_000
"""Only this many characters at a tool output's end are searched, because results come last."""
_RARE: Final = 0.1
"""A word selects a line only if at most this share of all output lines contain it."""


class KeyLines:
    """Finds the line of a tool's output that is most relevant (decision 0043)."""

    def __init__(self, line_chars: int) -> None:
        """Cut lines that are longer than `line_chars`, after a separator if possible."""
        self._pieces = re.compile(rf".{{1,{line_chars}}}(?:(?<=[\s,;}}\])])|$)|.{{1,{line_chars}}}")
        self._held_by: Counter[str] = Counter()
        self._count = 0

    def read(self, text: str) -> None:
        """Count the words of an output, to know which words are common."""
        for line in self._lines(text):
            self._held_by.update(set(tokenize(line)))
            self._count += 1

    def of(self, text: str, asked_words: AbstractSet[str]) -> str:
        """Return the line of an output that shares most with these words; empty if none does."""
        asked_words = {
            word for word in asked_words if self._held_by[word] <= max(1, _RARE * self._count)
        }
        best, best_line = 0.0, ""
        for line in self._lines(text):
            words = set(tokenize(line))
            shared = sum([self._worth(word) for word in words & asked_words])
            worth = shared + sum(map(self._worth, words)) / max(1, len(words))
            if shared and worth > best:
                best, best_line = worth, line
        return best_line

    def _worth(self, word: str) -> float:
        return inverse_document_frequency(
            document_frequency=self._held_by[word], documents=self._count
        )

    def _lines(self, text: str) -> Iterator[str]:
        for line in text[-_READ_CHARS:].splitlines():
            yield from (piece[0].strip() for piece in self._pieces.finditer(" ".join(line.split())))
