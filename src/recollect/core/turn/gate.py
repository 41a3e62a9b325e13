"""The gate: decides whether a turn refers to something that is no longer in the request, so that
memory is searched for it. The gate opens if memory contains terms that the request lacks, or if a
calibrated probability is high enough. The gate must open rarely, because an unneeded block costs
tokens and the provider's cache. Also contains other steps of recall without I/O. The view is the
request's messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from recollect.core.rules.identity import segment_id
from recollect.core.search.bm25 import inverse_document_frequency
from recollect.core.search.calibrate import THRESHOLD, Certainty, calibrate
from recollect.core.search.identifiers import identifiers_in, words_of
from recollect.core.search.names import names_in
from recollect.core.search.question import (
    Question,
    asking_part,
    is_echo,
    orders_politely,
    subject,
    substance,
    wants_list,
)
from recollect.core.search.rank import Ranking, Weighing, lending, tools_and_users, vector_shares
from recollect.core.search.tokenize import is_unspaced_pair, tokenize
from recollect.core.turn.standing_block import only_states
from recollect.core.values.history import SessionId
from recollect.core.values.message import EntryKey
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    AskedVector,
    Asks,
    Candidate,
    Candidates,
    GateVerdict,
    Neighbour,
    RecallRequest,
    Surroundings,
)
from recollect.core.values.segment import SegmentId
from recollect.system.config.settings import Hybrid
from recollect.system.config.settings import Recall as RecallSettings

NEAREST_SHARE: Final = 0.8
_EXCHANGES: Final = 3
_EXCHANGE_ENDS: Final = 32
_KNOWN_IDS: Final = 16_384
TAIL_SHARE: Final = 0.4
"""A passage is recalled only if it has this share of the best passage's score (measured)."""
ASKED_TAIL_SHARE: Final = 0.3
UNSPACED_TAIL_SHARE: Final = 0.25
COMMON_SHARE: Final = 0.03
COMMON_LEAST: Final = 5


def left_out(request: RecallRequest) -> frozenset[SegmentId]:
    """Return the segments that the view contains in full: as a message or quoted in a block."""
    shown = {known_id(request.session, key) for key in request.shown}
    if request.asking is not None:
        shown.add(known_id(request.session, request.asking))
    return frozenset(shown | request.quoted_whole)


@lru_cache(maxsize=_KNOWN_IDS)
def known_id(session: SessionId, key: EntryKey) -> SegmentId:
    """Return the segment id of a message, cached, because most messages are the same every turn."""
    return segment_id(session, key)


def exchanges_of(
    nearest: Sequence[Candidate], request: RecallRequest
) -> dict[SegmentId, tuple[SegmentId, ...]]:
    """Return the first exchanges (a user message and its answers) that are only partly in the
    view."""
    segment_ids: dict[tuple[EntryKey, ...], SegmentId] = {}
    for candidate in nearest:
        if len(segment_ids) < _EXCHANGES:
            segment_ids.setdefault(request.shown_in_part[candidate.key], candidate.segment)
    return {
        segment: tuple([known_id(request.session, key) for key in exchange])
        for exchange, segment in segment_ids.items()
    }


def near_missing(
    exchange: Sequence[SegmentId], shown: AbstractSet[SegmentId]
) -> tuple[SegmentId, ...]:
    """Return the messages of an exchange that are in the view, next to a message that is not."""
    ends = [
        segment_id
        for before, segment_id, after in zip(
            (None, *exchange), exchange, (*exchange[1:], None), strict=False
        )
        if segment_id in shown
        and any(near is not None and near not in shown for near in (before, after))
    ]
    return tuple(ends[:_EXCHANGE_ENDS])


def within_exchanges(
    around: Surroundings,
    in_view: AbstractSet[SegmentId],
    exchanges: Mapping[SegmentId, Sequence[SegmentId]],
) -> Surroundings:
    """Replace neighbors of messages in the view by the other messages of the same exchange."""
    others = [
        neighbour
        for neighbour in around.neighbours
        if neighbour.of not in in_view and neighbour.segment not in in_view
    ]
    own = [
        Neighbour(segment=segment_id, of=of, distance=1)
        for of, exchange in exchanges.items()
        for segment_id in exchange
        if segment_id != of
    ]
    return replace(around, neighbours=(*others, *own))


def tool_output_near(ranking: Ranking, around: Surroundings) -> AbstractSet[SegmentId]:
    """Return the tool output next to the messages that match the question best."""
    nearest = ranking.near_best(NEAREST_SHARE).passages
    tools, users = tools_and_users(ranking.passages)
    best = {candidate.segment for candidate in nearest if candidate.tool is None}
    return {
        taker
        for taker, lender, _ in lending(around.neighbours, tools, users)
        if lender in best and taker in tools
    }


def common_words(candidates: Candidates) -> frozenset[str]:
    most = max(COMMON_LEAST, COMMON_SHARE * candidates.documents)
    return frozenset(
        word for word, count in candidates.document_frequencies.items() if count > most
    )


def tail_share(question: Question) -> float:
    """Return the share of the best passage's score that a passage needs to be recalled."""
    pairs = sum(map(is_unspaced_pair, question.words))
    if 4 * pairs > len(question.words):
        return UNSPACED_TAIL_SHARE
    return TAIL_SHARE if question.asks == "other" else ASKED_TAIL_SHARE


def weighing_of(vectors: Sequence[AskedVector], settings: RecallSettings, now: float) -> Weighing:
    """Return the measured weights for these embedders, or those of the settings."""
    kinds = tuple(vector.kind for vector in vectors)
    shares = vector_shares(kinds)
    hybrid = settings.hybrid
    if kinds and (hybrid.vector_weight, hybrid.text_weight) != (None, None):
        wanted = _vector_share(hybrid)
        shares = tuple(share * wanted / sum(shares) for share in shares)
    return Weighing(kinds=kinds, shares=shares, decay_per_day=settings.decay_per_day, now=now)


def _vector_share(hybrid: Hybrid) -> float:
    vector, text = hybrid.vector_weight, hybrid.text_weight
    if text is None:
        return vector or 0.0
    if vector is None:
        return 1.0 - text
    return vector / (vector + text)


LEAST_WORDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a match by meaning needs to open the gate, for one kind of message."""

    certainty: float
    ahead: float
    words: int
    told_ahead: float | None = None
    together: float = math.inf


class _Worth(NamedTuple):
    worth: float
    known: bool


_QUESTION: Final = Opening(certainty=THRESHOLD, ahead=-12.0, told_ahead=-2.0, words=1)
OPENINGS: Final[Mapping[Asks, Opening]] = {
    "past": Opening(certainty=0.05, ahead=-math.inf, words=1),
    "question": _QUESTION,
    "advice": _QUESTION,
    "reference": Opening(certainty=THRESHOLD, ahead=0.5, words=LEAST_WORDS, together=2),
    "other": Opening(certainty=0.97, ahead=2.0, words=LEAST_WORDS, together=3),
}
"""What each kind of message needs, as measured (docs/contributing/ranking.md)."""
MOST_OF_IT: Final = 0.48
LIKELY: Final = 0.5
"""If the probability is at least this, words that memory does not contain are ignored."""
NEARLY_ALL: Final = 0.8
RARE_SHARE: Final = 0.005
RARE_LEAST: Final = 2
IDENTIFIER_SHARE: Final = 0.01
IDENTIFIER_LEAST: Final = 3
_TOGETHER: Final = 2
_PAIR: Final = 2


def gate(
    request: RecallRequest,
    question: Question,
    candidates: Candidates,
    vectors: Sequence[AskedVector],
    *,
    shown: Sequence[Candidate] = (),
    least: float | None = None,
    may_correct: Callable[[Candidate], bool] = bool,
) -> GateVerdict:
    """Decide whether to recall, and give the reason."""
    shown = [
        one for one in shown if one.key not in request.questions_only and not is_echo(question, one)
    ]
    if not candidates.passages:
        return GateVerdict(open=False, reason=Reason(Cause.NOTHING_HELD))
    among_tools = is_among_tools(request, candidates)
    is_work = wants_statements(question, among_tools=among_tools)
    if is_work:
        candidates = of_the_user(candidates)
        shown = [candidate for candidate in shown if is_the_users(candidate)]
    newest = request.newest or question.text
    opening = _opening(newest, question, among_tools=among_tools)
    worths = _worths(request, question, candidates)
    shown = _still_holding(shown, candidates, worths, may_correct)
    certainty = calibrate(question, candidates, vectors, shown=shown)
    if vectors and among_tools and question.asks != "other":
        certainty = _surer(certainty, calibrate(question, candidates, (), shown=shown))
    threshold = max(opening.certainty, 0.0 if among_tools else THRESHOLD)
    if least is not None:
        threshold = least
    reason = Reason(Cause.CERTAIN, certainty=certainty.probability, threshold=threshold)
    lost: Mapping[str, str] = {}
    closed = None
    if not request.gated:
        reason = Reason(Cause.ASKED_FOR)
    else:
        says_enough = _says_enough(question, candidates, opening.words)
        ahead = opening.ahead
        if opening.told_ahead is not None and _view_tells(worths, shown):
            ahead = opening.told_ahead
        closed = _closed(certainty, threshold, ahead, says_enough=says_enough)
        if is_work and only_states(newest):
            closed = Reason(Cause.ONLY_STATES)
        may_stand_apart = certainty.near or request.refers_to or wants_list(newest)
        if closed is None and least is None and among_tools and not may_stand_apart:
            closed = _stand_apart(worths, candidates, opening, certainty)
        if closed is not None:
            lost = _lost_identifiers(request, candidates)
            if not lost and says_enough and not is_work:
                lost = _held_together(_lost_rare_words(request, question, candidates), candidates)
            # The reason contains only their number, because the ledger's reports contain no message
            # content.
            reason = Reason(Cause.TERMS_LOST, terms=len(lost)) if lost else closed
    return GateVerdict(
        open=closed is None or bool(lost),
        reason=reason,
        score=certainty.probability,
        threshold=threshold,
        lost_terms=tuple(lost.values()),
        lost_words=tuple(lost),
    )


def is_among_tools(request: RecallRequest, candidates: Candidates) -> bool:
    """Return whether this session calls tools, or tools wrote some of the passages found."""
    return request.uses_tools or any(
        candidate.tool is not None for candidate in candidates.passages
    )


def wants_statements(question: Question, *, among_tools: bool) -> bool:
    """Return whether only a user's statements help, because the message is work for an agent."""
    return among_tools and question.asks == "other"


def of_the_user(candidates: Candidates) -> Candidates:
    return replace(candidates, passages=tuple(filter(is_the_users, candidates.passages)))


def is_the_users(candidate: Candidate) -> bool:
    return candidate.role == "user" and candidate.tool is None


def _opening(newest: str, question: Question, *, among_tools: bool) -> Opening:
    if question.asks == "other" and not among_tools and orders_politely(newest):
        return OPENINGS["question"]
    return OPENINGS[question.asks]


def _surer(certainty: Certainty, by_words: Certainty) -> Certainty:
    if by_words.probability <= certainty.probability:
        return certainty
    return replace(by_words, near=certainty.near)


def _closed(
    certainty: Certainty, threshold: float, ahead: float, *, says_enough: bool
) -> Reason | None:
    if not says_enough:
        return Reason(Cause.TOO_LITTLE_SAID)
    if certainty.probability < threshold:
        cause = Cause.UNHEARD if certainty.unheard else Cause.UNCERTAIN
        return Reason(cause, certainty=certainty.probability, threshold=threshold)
    if certainty.ahead is not None and certainty.ahead <= ahead:
        return Reason(Cause.VIEW_ANSWERS)
    return None


def _stand_apart(
    worths: Mapping[str, _Worth], candidates: Candidates, opening: Opening, certainty: Certainty
) -> Reason | None:
    """Return why the gate stays closed although the meaning matches: no passage contains enough of
    the question's words. Return None if a passage contains enough."""
    if not worths:
        return None
    least = MOST_OF_IT * sum([worth.worth for worth in worths.values()])
    least_known = MOST_OF_IT * sum([worth.worth for worth in worths.values() if worth.known])
    likely = certainty.probability >= LIKELY
    for candidate in candidates.passages:
        shared = [each.worth for word, each in worths.items() if candidate.counts.get(word)]
        if len(shared) >= opening.together or (shared and sum(shared) >= least):
            return None
        if likely and len(shared) >= _TOGETHER and sum(shared) >= least_known:
            return None
    return Reason(Cause.WORDS_APART, certainty=certainty.probability)


def _still_holding(
    shown: Sequence[Candidate],
    candidates: Candidates,
    worths: Mapping[str, _Worth],
    may_correct: Callable[[Candidate], bool],
) -> list[Candidate]:
    """Return the messages of the view that no later message of the user may have corrected."""
    least = MOST_OF_IT * sum([worth.worth for worth in worths.values() if worth.known])
    later = max(
        [
            candidate.said_at
            for candidate in candidates.passages
            if is_the_users(candidate)
            and 0 < least <= _held(worths, candidate)
            and may_correct(candidate)
        ],
        default=-math.inf,
    )
    return [candidate for candidate in shown if candidate.said_at >= later]


def _held(worths: Mapping[str, _Worth], candidate: Candidate) -> float:
    return sum([each.worth for word, each in worths.items() if candidate.counts.get(word)])


def _view_tells(worths: Mapping[str, _Worth], shown: Sequence[Candidate]) -> bool:
    least = NEARLY_ALL * sum([worth.worth for worth in worths.values()])
    return bool(worths) and any(_held(worths, candidate) >= least for candidate in shown)


def _worths(
    request: RecallRequest, question: Question, candidates: Candidates
) -> Mapping[str, _Worth]:
    frequencies = candidates.document_frequencies
    about = subject(question.text, question.words)
    asking = set(tokenize(f"{request.refers_to}\n{asking_part(request.newest)}"))
    asked = [word for word in about if word in asking]
    return {
        word: _Worth(
            worth=inverse_document_frequency(
                document_frequency=frequencies.get(word, 0), documents=candidates.documents
            ),
            known=bool(frequencies.get(word)),
        )
        for word in (asked if len(asked) >= LEAST_WORDS else about)
    }


def _says_enough(question: Question, candidates: Candidates, least: int) -> bool:
    texts = substance(question.text, question.words)
    if len(texts) >= least:
        return True
    frequencies = candidates.document_frequencies
    names = names_in(question.text)
    return any(word in texts and frequencies.get(word, 0) for name in names for word in name)


def lost_words_asked(request: RecallRequest) -> tuple[str, ...]:
    """Return words that the gate searches for in addition to those of the question."""
    texts = (request.newest or request.query, *request.recent)
    written = dict.fromkeys(each for text in texts for each in identifiers_in(text).values())
    return tuple(dict.fromkeys(word for each in written for word in words_of(each)))


def _lost_identifiers(request: RecallRequest, candidates: Candidates) -> Mapping[str, str]:
    asked = identifiers_in(request.newest or request.query)
    said = {word: text for each in request.recent for word, text in identifiers_in(each).items()}
    most = max(IDENTIFIER_LEAST, IDENTIFIER_SHARE * candidates.documents)
    view = _Shown(request.view)
    beside = _Shown(request.recent)
    lost: dict[str, str] = {}
    for word, written in {**said, **asked}.items():
        words = words_of(written)
        if not any(all(map(candidate.counts.get, words)) for candidate in candidates.passages):
            continue
        rarest = min(words, key=lambda each: candidates.document_frequencies.get(each, 0))
        if (
            candidates.document_frequencies.get(rarest, 0) <= most
            and not view.holds(written)
            and not (word in asked and beside.holds(written))
        ):
            lost[rarest] = written
    return lost


def _lost_rare_words(
    request: RecallRequest, question: Question, candidates: Candidates
) -> Mapping[str, str]:
    most = max(RARE_LEAST, RARE_SHARE * candidates.documents)
    rare = {
        word for word in question.words if 0 < candidates.document_frequencies.get(word, 0) <= most
    }
    held = _words_in(candidates, rare)
    if not held:
        return {}
    shown = _Shown((*request.view, *request.recent))
    written = {
        # a script without spaces does not separate words: use pairs of characters
        word: word if not word.isascii() and word in text else text.strip("\"'`.,:;!?()")
        for text in dict.fromkeys(question.text.split())
        for word in tokenize(text)
        if word in held
    }
    return {
        word: text
        for word, text in written.items()
        if not shown.holds(text) and not shown.holds(word)
    }


def _held_together(rare: Mapping[str, str], candidates: Candidates) -> Mapping[str, str]:
    best: dict[str, str] = {}
    for candidate in candidates.passages:
        held = {word: text for word, text in rare.items() if candidate.counts.get(word)}
        if len(held) > len(best) and _words_apart(held.values()) >= _TOGETHER:
            best = held
    return best


def _words_apart(written: Iterable[str]) -> int:
    taken: set[str] = set()
    count = 0
    for text in dict.fromkeys(written):
        if text.isascii() or len(text) > _PAIR:
            count += 1
        elif len(text) == _PAIR and not taken & set(text):
            taken |= set(text)
            count += 1
    return count


def _words_in(candidates: Candidates, words: Iterable[str]) -> set[str]:
    wanted = set(words)
    return {word for candidate in candidates.passages for word in wanted & candidate.counts.keys()}


class _Shown:
    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._lowered: str | None = None

    def holds(self, written: str) -> bool:
        if self._lowered is None:
            self._lowered = "\n".join(self._texts).lower()
        return written.lower() in self._lowered
