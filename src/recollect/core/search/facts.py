"""Ranks facts for a question by shared words, with rare words counting most, and by meaning. Pinned
facts come first. Ties are ordered by time, newest first, then by id. Callers omit replaced
facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from recollect.core.search.bm25 import inverse_document_frequency
from recollect.core.search.question import Question, substance
from recollect.core.search.tokenize import is_unspaced_pair, tokenize
from recollect.core.values.fact import EXTRACTED_TYPES, Fact, FactType
from recollect.core.values.recall import AskedVector, FactCandidate, FactCandidates

LEAST_SCORE: Final = 0.3
"""A fact is shown if it scores at least this share of the weight of the question's words."""
TAIL_SHARE: Final = 0.5
"""Facts after the best one are shown if they score at least this share of its score."""
MOST_FACTS: Final = 10  # not measured; bounds a block
FACTS_SHARE: Final = 0.3
"""Largest share of a recalled block's budget that facts may use (OpenClaw's design)."""
PRIOR_FACTS: Final = 50
"""Number of imaginary facts that contain none of the words. The weight of a word would be
meaningless in a space with only one or two facts."""
_FAR: Final = 2.0  # spreads of unrelated texts; not measured
_NEAR: Final = 6.0
"""Similarities from 0 to this value, in units of `Scale.spread`, are mapped to 0 to 1."""
_BY_VECTOR: Final = 0.6  # not measured; words alone can reach 1

MOST_LISTED: Final = 100
"""Limit of facts returned if a user asks to list all facts of a type."""
_LISTED: Final = 0.4
"""Score of facts in a list of a whole type: below facts that share words with the question."""
# "list our decisions", "any open tasks?", "what is left to do": one group per type.
_ASKS_TYPES: Final = (
    re.compile(
        r"\b(?:list|show|give|tell|name|recap|summari[sz]e|which|what|whats"
        r"|any(?=\ (?:open|pending|remaining)\b))"
        r"(?:\W+(?:me|us|are|were|is|s|all|of|the|our|my|your|every|open|known|pending|remaining"
        r"|current|existing|key|main|important|design|technical))*"
        r"\W+(?:(?P<decision>decisions)|(?P<issue>issues|bugs|problems)"
        r"|(?P<task_state>tasks|to-?dos|action\ items|loose\ ends)"
        r"|(?P<preference>preferences)|(?P<config>settings|configurations?))\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?P<decision>(?:all|everything)(?:\ that)?\ we\ (?:have\ )?"
        r"(?:decided|agreed|settled))\b"
        r"|\b(?P<task_state>open\ (?:items|points)|left\ to\ do|still\ to\ (?:do|be\ done))\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:所有|全部|哪些|列出).{0,6}(?:(?P<decision>决定)|(?P<task_state>任务|待办)"
        r"|(?P<issue>问题)|(?P<preference>偏好)|(?P<config>配置))"
    ),
)
_ASKING_CHARS: Final = 400  # not measured; longer messages order work
LISTING_WORDS: Final = frozenset(
    tokenize(
        "list all every each open pending remaining show tell give name so far current make made "
        "take taken decide decided agree agreed settle settled decision task todo do action item "
        "loose end point issue bug problem preference setting configuration left still know"
    )
)
"""Words of a request to list facts that do not name their subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedFact:
    """A fact for the recalled block, and its score."""

    fact: Fact
    score: float
    shared: int
    """Number of the question's words that the fact contains. In scripts without spaces, overlapping
    pairs are not counted."""
    nearness: float = 0.0


def rank_facts(
    words: Sequence[str], candidates: FactCandidates, vectors: Sequence[AskedVector] = ()
) -> tuple[RankedFact, ...]:
    """Return the facts that fit the question, best first. `vectors` are the query's vectors, to
    which the similarities were computed."""
    worths = _worths(words, candidates)
    total = sum(worths.values())
    ranked = [_rank_fact(candidate, worths, total, vectors) for candidate in candidates.facts]
    near_facts = [
        ranked_fact
        for ranked_fact in ranked
        if ranked_fact.fact.pinned or ranked_fact.score >= LEAST_SCORE
    ]
    near_facts.sort(
        key=lambda ranked_fact: (
            not ranked_fact.fact.pinned,
            -ranked_fact.score,
            -ranked_fact.fact.at,
            ranked_fact.fact.id,
        )
    )
    least = TAIL_SHARE * max((ranked.score for ranked in near_facts), default=0.0)
    return tuple(
        ranked for ranked in near_facts[:MOST_FACTS] if ranked.fact.pinned or ranked.score >= least
    )


def find_asked_types(text: str) -> tuple[FactType, ...]:
    """Return the types of facts that a message asks for: "list our decisions", "open tasks?"."""
    if len(text) > _ASKING_CHARS:
        return ()
    named_types = {
        name
        for pattern in _ASKS_TYPES
        for match in pattern.finditer(text)
        for name, words in match.groupdict().items()
        if words
    }
    if "decision" in named_types:
        named_types.add("architecture")
    return tuple(fact_type for fact_type in EXTRACTED_TYPES if fact_type in named_types)


def list_facts(
    question: Question, types: Sequence[FactType], candidates: FactCandidates
) -> tuple[RankedFact, ...]:
    """Return the facts of these types, newest first: all, or those about the question's subject."""
    subject_words = set(substance(question.text, question.words)) - LISTING_WORDS
    of_type = [candidate.fact for candidate in candidates.facts if candidate.fact.type in types]
    listed_facts = [
        fact for fact in of_type if not subject_words or subject_words.intersection(fact.words)
    ]
    listed_facts.sort(key=lambda fact: (-fact.at, fact.id))
    return tuple(
        RankedFact(fact=fact, score=_LISTED, shared=0) for fact in listed_facts[:MOST_LISTED]
    )


def _worths(words: Sequence[str], candidates: FactCandidates) -> dict[str, float]:
    """Return the weight of each word. A word that no fact contains weighs as much as a word in one
    fact. It weighs nothing in a script without spaces, in which most pairs of characters are not
    words."""
    frequencies = candidates.document_frequencies
    return {
        word: inverse_document_frequency(
            document_frequency=max(1, frequencies.get(word, 0)),
            documents=candidates.documents + PRIOR_FACTS,
        )
        for word in dict.fromkeys(words)
        if frequencies.get(word) or not is_unspaced_pair(word)
    }


def _rank_fact(
    candidate: FactCandidate, worths: dict[str, float], total: float, vectors: Sequence[AskedVector]
) -> RankedFact:
    own_words = set(candidate.fact.words)
    # in the question's order, so that every process adds floats in the same order
    shared_words = [word for word in worths if word in own_words]
    by_words = sum(worths[word] for word in shared_words) / (total or 1.0)
    nearness = _nearness(candidate, vectors)
    return RankedFact(
        fact=candidate.fact,
        score=1 - (1 - by_words) * (1 - _BY_VECTOR * nearness),
        shared=_words_apart(shared_words),
        nearness=nearness,
    )


def _words_apart(shared_words: Sequence[str]) -> int:
    taken: set[str] = set()
    count = 0
    for word in shared_words:
        if word.isascii():
            count += 1
        elif is_unspaced_pair(word):
            if not taken & set(word):
                taken |= set(word)
                count += 1
        elif len(word) > 1:
            count += 1
    return count


def _nearness(candidate: FactCandidate, vectors: Sequence[AskedVector]) -> float:
    best = 0.0
    for similarity, vector in zip(candidate.similarities, vectors, strict=False):
        if similarity is None or vector.scale is None or not vector.scale.spread:
            continue
        spreads = (similarity - vector.scale.mean) / vector.scale.spread
        best = max(best, min(1.0, (spreads - _FAR) / (_NEAR - _FAR)))
    return best
