"""Recall as OpenClaw does, for `recall.method = "openclaw"`: whole messages and facts by OpenClaw's
formulas, without a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from recollect.core.ports import Archive
from recollect.core.rules.noise import strip_channel_prefix
from recollect.core.rules.text import without_thinking
from recollect.core.search.openclaw import (
    MIN_SCORE,
    TEXT_WEIGHT,
    VECTOR_WEIGHT,
    WarmHit,
    WarmIndex,
    Weights,
    hit_limit,
    search_facts,
    widen,
)
from recollect.core.turn.gate import segments_in_view
from recollect.core.turn.inject import day_and_minute, pack_openclaw
from recollect.core.values.fact import Fact, fact_identity
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    AskedVector,
    Candidate,
    CandidateQuery,
    GateVerdict,
    Hit,
    Recalled,
    RecalledFact,
    RecalledPassage,
    RecallRequest,
    ScorePart,
)
from recollect.core.values.segment import Segment, SegmentId, StoredSegment
from recollect.system.config.settings import Recall as RecallSettings

_SEARCHES: Final = 3  # not measured; each leaves out forgotten messages


def warm_message(segment: Segment) -> Segment | None:
    """Return a stored message as OpenClaw archives it, without tool calls, results and thinking;
    None if OpenClaw would not archive it."""
    text = _text_as_spoken(segment)
    if not text.strip() or segment.noise is not None:
        return None
    return replace(segment, text=text)


def _text_as_spoken(segment: Segment) -> str:
    if segment.source == "file" or segment.role not in ("user", "assistant"):
        return ""
    if segment.role == "user":
        return "" if segment.tool is not None else strip_channel_prefix(segment.text)
    text = without_thinking(segment.text)
    if segment.tool is not None:
        text = f"\n{text}".partition(f"\n{segment.tool}(")[0][1:]
    return text


async def recall_openclaw(
    request: RecallRequest,
    *,
    archive: Archive,
    index: WarmIndex,
    vectors: Sequence[AskedVector],
    settings: RecallSettings,
) -> Recalled:
    """Return the content to add to this request, found among the messages of `index`."""
    weights = _weights(settings)
    limit = hit_limit(request.budget_tokens)
    cosine_by_id = await _near(archive, request, vectors, limit)
    vector = vectors[0].values if vectors else None
    hits: list[WarmHit] = []
    segments: dict[SegmentId, StoredSegment] = {}
    for _ in range(_SEARCHES):
        warm_hits, timeline = index.search(
            request.query,
            vector,
            now=request.now,
            limit=limit,
            weights=weights,
            leave_out=segments_in_view(request),
            cosine_by_id=cosine_by_id,
        )
        hits = widen(warm_hits, timeline)
        segments = {
            segment.segment.id: segment
            for segment in await archive.segments([hit.id for hit in hits])
        }
        gone = [hit.id for hit in hits if hit.id not in segments]
        if not gone:
            break
        index.drop(gone)
    hits = [
        hit
        for hit in hits
        if hit.id in segments and segments[hit.id].segment.message_id not in request.shown_messages
    ][: settings.max_results]
    passages = [_quote(segments[hit.id], hit) for hit in hits]
    facts = [
        _recall_fact(fact) for fact in search_facts(request.query, await _facts(archive, request))
    ]
    kept_facts, kept = pack_openclaw(facts, passages, request.count_tokens, request.budget_tokens)
    reason = Reason(Cause.ASKED_FOR)
    if not facts and not passages:
        reason = Reason(Cause.BELOW_MIN_SCORE, threshold=weights.min_score)
    elif not kept_facts and not kept:
        reason = Reason(Cause.FACTS_DO_NOT_FIT, tokens=request.budget_tokens)
    return Recalled(
        facts=tuple(kept_facts),
        passages=tuple(kept),
        gate=GateVerdict(open=bool(kept_facts or kept), reason=reason),
        hits=tuple(_explain(segments[hit.id], hit, weights) for hit in hits[: request.most_hits]),
    )


def _weights(settings: RecallSettings) -> Weights:
    hybrid = settings.hybrid
    vector = VECTOR_WEIGHT if hybrid.vector_weight is None else hybrid.vector_weight
    text = TEXT_WEIGHT if hybrid.text_weight is None else hybrid.text_weight
    return Weights(
        vector=vector,
        text=text,
        decay_per_day=settings.decay_per_day,
        min_score=MIN_SCORE if settings.min_score is None else settings.min_score,
    )


async def _near(
    archive: Archive, request: RecallRequest, vectors: Sequence[AskedVector], limit: int
) -> Mapping[SegmentId, float] | None:
    if not vectors or vectors[0].kind == "hash":
        return None
    candidates = await archive.candidates(
        CandidateQuery(
            vectors=tuple(vectors[:1]),
            lexical_limit=0,
            vector_limit=8 * limit,
            session=request.session if request.scope == "session" else None,
            leave_out=segments_in_view(request),
        )
    )
    near: dict[SegmentId, float] = {}
    for candidate in candidates.passages:
        similarity = candidate.similarities[0]
        if similarity is not None:
            near[candidate.segment] = max(similarity, near.get(candidate.segment, similarity))
    return near


async def _facts(archive: Archive, request: RecallRequest) -> list[Fact]:
    return [
        fact
        for fact in await archive.facts()
        if request.scope == "space" or fact.session in (None, request.session)
    ]


def _recall_fact(fact: Fact) -> RecalledFact:
    return RecalledFact(
        id=fact.id,
        type=fact.type,
        text=fact.content,
        score=1.0,
        trust=fact.trust,
        message_ids=(fact_identity(fact.id),),
    )


def _quote(stored_segment: StoredSegment, hit: WarmHit) -> RecalledPassage:
    segment = stored_segment.segment
    return RecalledPassage(
        text=_text_as_spoken(segment),
        role=segment.role,
        said_at=" ".join(day_and_minute(segment.said_at)).strip(),
        score=hit.score,
        message_id=segment.message_id,
        segment=segment.id,
        session=segment.session,
        order=(segment.said_at, stored_segment.sequence, 0),
    )


def _explain(stored_segment: StoredSegment, hit: WarmHit, weights: Weights) -> Hit:
    segment = stored_segment.segment
    vector_points, words = weights.vector * hit.cosine, weights.text * hit.words
    if hit.distance:
        away = "beside a hit" if hit.distance == 1 else f"{hit.distance} messages from a hit"
        parts = [ScorePart(name="neighbors", points=hit.score, why=away)]
    else:
        parts = [
            ScorePart(name="words", points=words, why=f"BM25 {hit.words:.2f} of the best"),
            ScorePart(name="vector", points=vector_points, why=f"cosine {hit.cosine:.2f}"),
            ScorePart(name="age", points=hit.score - vector_points - words, why="OpenClaw's decay"),
        ]
    passage = Candidate(
        segment=segment.id,
        ordinal=0,
        key=segment.key,
        session=segment.session,
        sequence=stored_segment.sequence,
        role=segment.role,
        said_at=segment.said_at,
        trust=segment.trust,
        start=0,
        end=len(segment.text),
        length=0,
        counts={},
        tool=segment.tool,
    )
    score_parts = tuple(part for part in parts if part.points)
    return Hit(passage=passage, score=hit.score, parts=score_parts, text=segment.text)
