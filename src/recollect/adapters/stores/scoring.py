"""Which facts share the rarest words with a question, or are nearest to it: who is handed over.

Pure; both engines ask here, so that they choose alike. The score only chooses: `search` scores.
Words are known by a number made of them, so that no index spells what was said. Always holds:
scores are added up in the order of the asked words; ties go by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from recollect.core.search.bm25 import inverse_document_frequency

Numbers: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]

NO_NUMBERS: Final[Numbers] = np.empty(0, dtype=np.int64)


def word_number(word: str) -> int:
    """The number a word is known by: 64 bits, so that two words never meet in practice."""
    named = word.encode("utf-8", "surrogatepass")
    hashed = blake2b(named, digest_size=8, person=b"recollect-word").digest()
    return int.from_bytes(hashed, "little", signed=True)


def word_numbers(words: Sequence[str]) -> list[int]:
    """The numbers of a fact's words, each once, ascending."""
    return sorted({word_number(word) for word in words})


def scores_by_words(postings: Sequence[Numbers], documents: int) -> tuple[Numbers, Scores]:
    """The facts that hold any of the words, ascending, and what their shared words are worth.

    `postings` are the facts that hold each of the asked words, in the order of the words.
    """
    held = [facts for facts in postings if len(facts)]
    if not held:
        return NO_NUMBERS, np.empty(0)
    worths = np.repeat(
        [
            inverse_document_frequency(document_frequency=len(facts), documents=documents)
            for facts in held
        ],
        [len(facts) for facts in held],
    )
    facts, at = np.unique(np.concatenate(held), return_inverse=True)
    scores: Scores = np.bincount(at, weights=worths).astype(np.float64, copy=False)
    return facts, scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The facts with the highest scores, as far as scores alone can tell."""

    sure: Numbers
    tied: Numbers
    """Equal at the last place; `wanted` of them are taken, by id."""
    wanted: int

    @property
    def settled(self) -> bool:
        """Whether no id has to be looked at."""
        return len(self.tied) <= self.wanted


def best_of(facts: Numbers, scores: Scores, limit: int) -> Best:
    """The best so many of these facts."""
    if limit <= 0:
        return Best(sure=NO_NUMBERS, tied=NO_NUMBERS, wanted=0)
    if len(facts) <= limit:
        return Best(sure=facts, tied=NO_NUMBERS, wanted=0)
    last = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    sure = facts[scores > last]
    return Best(sure=sure, tied=facts[scores == last], wanted=limit - len(sure))


def among(facts: Numbers, scores: Scores, allowed: Numbers | None) -> tuple[Numbers, Scores]:
    """Those of the facts that may be chosen; None lets all through."""
    if allowed is None:
        return facts, scores
    stays = np.isin(facts, allowed)
    return facts[stays], scores[stays]
