"""Pure steps of recall: weights, shares, and messages that the view shows in part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from typing import Final

from recollect.core.rules.identity import segment_id
from recollect.core.search.question import Question
from recollect.core.search.rank import Ranking, Weighing, lending, tools_and_users, vector_shares
from recollect.core.search.tokenize import is_unspaced_pair
from recollect.core.values.history import SessionId
from recollect.core.values.message import EntryKey
from recollect.core.values.recall import (
    AskedVector,
    Candidate,
    Candidates,
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
"""Of the best score, for a passage to be put into a turn's view: what lies below fills the block
and answers nothing (measured: a tenth of the tokens, 0.4 points of the evidence)."""
ASKED_TAIL_SHARE: Final = 0.3
UNSPACED_TAIL_SHARE: Final = 0.25
COMMON_SHARE: Final = 0.03
COMMON_LEAST: Final = 5


def left_out(request: RecallRequest) -> frozenset[SegmentId]:
    """What the view shows whole: as a message, in a block, or as the question itself."""
    shown = {known_id(request.session, key) for key in request.shown}
    if request.asking is not None:
        shown.add(known_id(request.session, request.asking))
    return frozenset(shown | request.quoted_whole)


@lru_cache(maxsize=_KNOWN_IDS)
def known_id(session: SessionId, key: EntryKey) -> SegmentId:
    """The segment of a message; cached, since a view shows nearly the same ones every turn."""
    return segment_id(session, key)


def exchanges_of(
    nearest: Sequence[Candidate], request: RecallRequest
) -> dict[SegmentId, tuple[SegmentId, ...]]:
    """The exchanges of the first of these messages, which the view shows in part."""
    segment_ids: dict[tuple[EntryKey, ...], SegmentId] = {}
    for candidate in nearest:
        if len(segment_ids) < _EXCHANGES:
            segment_ids.setdefault(request.told_in_part[candidate.key], candidate.segment)
    return {
        segment: tuple([known_id(request.session, key) for key in exchange])
        for exchange, segment in segment_ids.items()
    }


def beside_cut(
    exchange: Sequence[SegmentId], shown: AbstractSet[SegmentId]
) -> tuple[SegmentId, ...]:
    """The messages of an exchange next to which something was cut: from them it is reached."""
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
    """What the view shows lends to its own exchange, all of it alike, and to nothing else: between
    a question and the result that answers it other results may stand."""
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


def printed_beside(ranking: Ranking, around: Surroundings) -> AbstractSet[SegmentId]:
    """The output of tools next to the messages that are nearest to the question."""
    nearest = ranking.near_best(NEAREST_SHARE).passages
    tools, users = tools_and_users(ranking.passages)
    best = {candidate.segment for candidate in nearest if candidate.tool is None}
    return {
        taker
        for taker, lender, _ in lending(around.neighbours, tools, users)
        if lender in best and taker in tools
    }


def common_words(candidates: Candidates) -> frozenset[str]:
    """Words that too many passages hold to ask for a fact."""
    most = max(COMMON_LEAST, COMMON_SHARE * candidates.documents)
    return frozenset(
        word for word, count in candidates.document_frequencies.items() if count > most
    )


def tail_share(question: Question) -> float:
    """Of the best score, the least that a passage needs."""
    pairs = sum(map(is_unspaced_pair, question.words))
    if 4 * pairs > len(question.words):
        return UNSPACED_TAIL_SHARE
    return TAIL_SHARE if question.asks == "other" else ASKED_TAIL_SHARE


def weighing_of(vectors: Sequence[AskedVector], settings: RecallSettings, now: float) -> Weighing:
    """Weights as measured for these embedders, or as the settings say."""
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
