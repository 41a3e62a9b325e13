"""Finds facts by the words they share with a question, rare words counting most.

Owns when a fact is near enough to be shown: it must hold enough of what the question's words are
worth, by how rare they are among the facts. Must never need a threshold on counts of words,
which no short fact could reach. What always holds: superseded facts are the caller's to leave
out; ties go by time, newest first, then by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from recollect.search.bm25 import inverse_document_frequency
from recollect.values.fact import Fact

LEAST_SHARE: Final = 0.3
"""Of the worth of the question's words, for a fact to be shown."""
MOST_FACTS: Final = 10
FACTS_SHARE: Final = 0.3
"""Of a block's budget, what facts may take; passages get the rest (seeds 000)."""


def find_facts(words: Sequence[str], facts: Sequence[Fact]) -> list[tuple[Fact, float]]:
    """The facts that answer, best first, each with its share of the question's worth."""
    asked = dict.fromkeys(words)
    held = [asked.keys() & set(fact.words) for fact in facts]
    frequencies = Counter(word for shared in held for word in shared)
    worths = {
        word: inverse_document_frequency(document_frequency=frequencies[word], documents=len(facts))
        for word in asked
    }
    total = sum(worths.values())
    if not total:
        return []
    scored = [
        (sum(worths[word] for word in asked if word in shared) / total, fact)
        for fact, shared in zip(facts, held, strict=True)
        if shared
    ]
    near = [(share, fact) for share, fact in scored if share >= LEAST_SHARE]
    near.sort(key=lambda item: (-item[0], -item[1].at, item[1].id))
    return [(fact, share) for share, fact in near[:MOST_FACTS]]
