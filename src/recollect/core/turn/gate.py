"""The gate: decides whether a turn refers to something that is no longer in the request, so that
memory is searched for it. A question opens the gate if memory probably holds an answer, an order
only if the user's own statements do. The gate must open rarely, because an unneeded block costs
tokens and the provider's cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Final

from recollect.core.rules.identity import segment_id
from recollect.core.search.bm25 import word_worths
from recollect.core.search.calibrate import THRESHOLD, UNDERSTANDING_KINDS, Certainty, calibrate
from recollect.core.search.identifiers import identifiers_in, words_of
from recollect.core.search.names import names_in
from recollect.core.search.question import Question, asking_part, subject, substance, wants_list
from recollect.core.search.tokenize import tokenize
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    AskedVector,
    Asks,
    Candidate,
    Candidates,
    GateVerdict,
    RecallRequest,
)
from recollect.core.values.segment import SegmentId

_KNOWN_IDS: Final = 16_384  # not measured; more than the messages of a view
MIN_WORDS: Final = 2
"""A message other than a question must have this many words that are about something."""


def segments_in_view(request: RecallRequest) -> frozenset[SegmentId]:
    """Return the segments that the view contains in full: as a message or quoted in a block."""
    segment_ids = {cached_segment_id(request.session, key) for key in request.shown}
    if request.asking is not None:
        segment_ids.add(cached_segment_id(request.session, request.asking))
    return frozenset(segment_ids | request.quoted_whole)


cached_segment_id: Final = lru_cache(maxsize=_KNOWN_IDS)(segment_id)
"""Ids are cached, because most messages are the same every turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """What opens the gate, for one kind of message."""

    min_certainty: float
    min_words: int
    together: float = math.inf
    """In a session with tools: this many words of the subject in one passage are enough."""


RULES: Final[Mapping[Asks, GateRule]] = {
    "question": GateRule(min_certainty=THRESHOLD, min_words=1),
    "reference": GateRule(min_certainty=THRESHOLD, min_words=MIN_WORDS, together=2),
    "other": GateRule(min_certainty=0.97, min_words=MIN_WORDS, together=3),
}
"""What each kind of message needs, as measured (docs/contributing/ranking.md)."""
NEARNESS_LEAD: Final = 0.8
"""In a session with tools, a question needs no shared words if a passage is nearer in meaning than
the nearest of as many unrelated texts is likely to be, by this much (in units of `Scale.spread`):
so near is the best passage for two thirds of the questions in other words, and for a tenth of
general questions (docs/contributing/ranking.md)."""
SUBJECT_SHARE: Final = 0.48
"""Share of the subject's word weight that one passage must contain if tools were used: tool output
contains almost any pair of words somewhere (docs/contributing/ranking.md)."""
LIKELY: Final = 0.5
"""If the probability is at least this, words that memory does not contain are ignored."""
IDENTIFIER_SHARE: Final = 0.01  # not measured; commoner identifiers tell nothing apart
MIN_COMMON: Final = 3
"""An identifier is no longer specific if its rarest word is in more passages than this many, and
in more than this share of all."""
SPARING_CERTAINTY: Final = 0.5
"""Least certainty of a question with `recall.sparing`: .32 opened for an ordinary question, and no
answered one was below .65 (bench week, tuning half)."""
SPARING_ORDER_CERTAINTY: Final = 0.99
"""The same for other messages: .97 opened for "run the tests again". Rules are in the brief."""
_TOGETHER: Final = 2  # two words: people ask in other words (ranking.md)


def gate(
    request: RecallRequest,
    question: Question,
    candidates: Candidates,
    vectors: Sequence[AskedVector],
    *,
    min_score: float | None = None,
) -> GateVerdict:
    """Decide whether to recall, and give the reason."""
    if not candidates.passages:
        return GateVerdict(open=False, reason=Reason(Cause.NOTHING_HELD))
    among_tools = is_among_tools(request, candidates)
    if wants_statements(question, among_tools=among_tools):
        own_passages = tuple(filter(is_the_users, candidates.passages))
        candidates = replace(candidates, passages=own_passages)
    certainty = calibrate(question, candidates, vectors)
    if vectors and among_tools and question.asks != "other":
        by_words = calibrate(question, candidates, ()).probability
        certainty = replace(certainty, probability=max(certainty.probability, by_words))
    threshold = RULES[question.asks].min_certainty if min_score is None else min_score
    verdict = GateVerdict(
        open=True,
        reason=Reason(Cause.CERTAIN, certainty=certainty.probability, threshold=threshold),
        score=certainty.probability,
        threshold=threshold,
    )
    if not request.gated:
        return replace(verdict, reason=Reason(Cause.ASKED_FOR))
    refusal = _refusal_of(
        request, question, candidates, certainty, min_score, among_tools=among_tools
    )
    if refusal is None:
        return verdict
    lost = _find_lost_identifiers(request, candidates)
    if not lost:
        return replace(verdict, open=False, reason=refusal)
    # The reason contains only their number: the ledger's reports contain no message content.
    return replace(
        verdict,
        reason=Reason(Cause.TERMS_LOST, terms=len(lost)),
        lost_terms=tuple(lost.values()),
        lost_words=tuple(lost),
    )


def spare(verdict: GateVerdict, question: Question) -> GateVerdict:
    """Return the verdict with `recall.sparing`, which needs more certainty."""
    least = SPARING_CERTAINTY if question.asks == "question" else SPARING_ORDER_CERTAINTY
    if not verdict.open or verdict.score is None or verdict.score >= least:
        return verdict
    reason = Reason(Cause.UNCERTAIN, certainty=verdict.score, threshold=least)
    return replace(verdict, open=False, reason=reason, lost_terms=(), lost_words=())


def understands(vectors: Sequence[AskedVector]) -> bool:
    """Return whether an embedder made these vectors that finds answers in other words."""
    return any(vector.kind in UNDERSTANDING_KINDS for vector in vectors)


def min_nearness(documents: int) -> float:
    """Return the nearness at which a question in other words opens the gate of a memory with this
    number of passages, because the nearest of n normal values is about √(2 ln n) spreads away."""
    return NEARNESS_LEAD + math.sqrt(2 * math.log(max(1, documents)))


def is_among_tools(request: RecallRequest, candidates: Candidates) -> bool:
    """Return whether this session calls tools, or tools wrote some of the passages found."""
    return request.uses_tools or any(
        candidate.tool is not None for candidate in candidates.passages
    )


def wants_statements(question: Question, *, among_tools: bool) -> bool:
    """Return whether only a user's statements help, because the agent has to use its tools."""
    return among_tools and (question.asks == "other" or question.is_for_tools)


def is_the_users(candidate: Candidate) -> bool:
    return candidate.role == "user" and candidate.tool is None


def _refusal_of(
    request: RecallRequest,
    question: Question,
    candidates: Candidates,
    certainty: Certainty,
    min_score: float | None,
    *,
    among_tools: bool,
) -> Reason | None:
    """Return why the gate stays closed, or None if it opens."""
    rule = RULES[question.asks]
    threshold = rule.min_certainty if min_score is None else min_score
    words = substance(question.text, question.words)
    names = {word for name in names_in(question.text) for word in name}
    if len(words) < rule.min_words and not any(
        word in names and candidates.document_frequencies.get(word) for word in words
    ):
        return Reason(Cause.TOO_LITTLE_SAID)
    is_near = (certainty.nearness or 0.0) >= min_nearness(candidates.documents)
    if among_tools and question.asks == "question" and is_near and min_score is None:
        return None
    if certainty.probability < threshold:
        cause = Cause.UNHEARD if certainty.unheard else Cause.UNCERTAIN
        return Reason(cause, certainty=certainty.probability, threshold=threshold)
    if not among_tools or min_score is not None:
        return None
    if request.refers_to or wants_list(request.newest or question.text):
        return None
    if _shares_words(request, question, candidates, likely=certainty.probability >= LIKELY):
        return None
    return Reason(Cause.WORDS_APART, certainty=certainty.probability)


def _shares_words(
    request: RecallRequest, question: Question, candidates: Candidates, *, likely: bool
) -> bool:
    """Return whether one passage contains enough of the message's words."""
    frequencies = candidates.document_frequencies
    subject_words = subject(question.text, question.words)
    asking = set(tokenize(f"{request.refers_to}\n{asking_part(request.newest)}"))
    asked_words = [word for word in subject_words if word in asking]
    words = asked_words if len(asked_words) >= MIN_WORDS else subject_words
    weights = word_worths(words, frequencies, candidates.documents)
    min_weight = SUBJECT_SHARE * sum(weights.values())
    known_weights = [weight for word, weight in weights.items() if frequencies.get(word)]
    min_known = SUBJECT_SHARE * sum(known_weights)
    together = RULES[question.asks].together
    for candidate in candidates.passages:
        shared = [weight for word, weight in weights.items() if candidate.counts.get(word)]
        if len(shared) >= together or (shared and sum(shared) >= min_weight):
            return True
        if likely and len(shared) >= _TOGETHER and sum(shared) >= min_known:
            return True
    return not weights


def find_lost_words(request: RecallRequest) -> tuple[str, ...]:
    """Return words that the gate searches for in addition to those of the question."""
    texts = (request.newest or request.query, *request.recent)
    identifiers = chain.from_iterable(identifiers_in(text).values() for text in texts)
    return tuple(dict.fromkeys(chain.from_iterable(map(words_of, identifiers))))


def _find_lost_identifiers(request: RecallRequest, candidates: Candidates) -> Mapping[str, str]:
    asked_identifiers = identifiers_in(request.newest or request.query)
    recent_identifiers = {
        word: text for item in request.recent for word, text in identifiers_in(item).items()
    }
    max_count = max(MIN_COMMON, IDENTIFIER_SHARE * candidates.documents)
    view, recent_texts = Texts(request.view), Texts(request.recent)
    lost: dict[str, str] = {}
    for word, identifier in {**recent_identifiers, **asked_identifiers}.items():
        words = words_of(identifier)
        if not any(all(map(candidate.counts.get, words)) for candidate in candidates.passages):
            continue
        rarest = min(words, key=lambda item: candidates.document_frequencies.get(item, 0))
        if (
            candidates.document_frequencies.get(rarest, 0) <= max_count
            and not view.contain(identifier)
            and not (word in asked_identifiers and recent_texts.contain(identifier))
        ):
            lost[rarest] = identifier
    return lost


class Texts:
    """Texts that are searched for strings, whatever the case. They are joined only if needed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._lowercase_text: str | None = None

    def contain(self, text: str) -> bool:
        """Return whether one of the texts contains this string."""
        if self._lowercase_text is None:
            self._lowercase_text = "\n".join(self._texts).lower()
        return text.lower() in self._lowercase_text
