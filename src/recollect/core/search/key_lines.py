"""The line of a tool's output that is most relevant to its call (decision 0043).

Rare words weigh most. A line is verbatim, but for white space, and bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from recollect.core.search.bm25 import inverse_document_frequency
from recollect.core.search.tokenize import tokenize

_READ_CHARS: Final = 12_000
"""Of an output, from its end: what was found out stands behind the noise."""
_RARE: Final = 0.1
"""Of the lines of all outputs, so many may hold a word that chooses one of them."""


class KeyLines:
    """The lines of some outputs, and how common their words are."""

    def __init__(self, line_chars: int) -> None:
        """With lines of so many characters at the most: a longer one is cut where it can be."""
        self._pieces = re.compile(rf".{{1,{line_chars}}}(?:(?<=[\s,;}}\])])|$)|.{{1,{line_chars}}}")
        self._held_by: Counter[str] = Counter()
        self._count = 0

    def read(self, text: str) -> None:
        """Learn from an output which words are common."""
        for line in self._lines(text):
            self._held_by.update(set(tokenize(line)))
            self._count += 1

    def of(self, text: str, asked: AbstractSet[str]) -> str:
        """The line of an output that bears most on these words; empty where none does."""
        asked = {word for word in asked if self._held_by[word] <= max(1, _RARE * self._count)}
        best, chosen = 0.0, ""
        for line in self._lines(text):
            words = set(tokenize(line))
            shared = sum([self._worth(word) for word in words & asked])
            worth = shared + sum(map(self._worth, words)) / max(1, len(words))
            if shared and worth > best:
                best, chosen = worth, line
        return chosen

    def _worth(self, word: str) -> float:
        return inverse_document_frequency(
            document_frequency=self._held_by[word], documents=self._count
        )

    def _lines(self, text: str) -> Iterator[str]:
        for line in text[-_READ_CHARS:].splitlines():
            yield from (piece[0].strip() for piece in self._pieces.finditer(" ".join(line.split())))
