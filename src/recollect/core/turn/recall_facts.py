"""Recalls current facts for a turn, in addition to passages, if the view (the messages of the
request) does not contain their words. Each fact has a trust level."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from recollect.core.ports import Archive
from recollect.core.search.facts import (
    MOST_LISTED,
    RankedFact,
    find_asked_types,
    list_facts,
    rank_facts,
)
from recollect.core.search.question import Question, subject
from recollect.core.search.statements import STANDING_WORD
from recollect.core.turn.gate import segments_in_view
from recollect.core.values.fact import EvidenceSpan, Fact, FactType, fact_identity
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    AskedVector,
    CandidateQuery,
    Candidates,
    FactCandidates,
    FactQuery,
    GateVerdict,
    RecalledFact,
    RecalledPassage,
    RecallRequest,
    fact_name,
)
from recollect.core.values.segment import SegmentId, StoredSegment

OPENS_AT: Final = 0.5
"""A fact without a supporting message opens the gate only at this score."""
OPENS_WITH_WORDS: Final = 2  # one word in common is chance; not measured
OPENS_NEAR: Final = 0.5  # not measured
COMMON_SHARE: Final = 0.03  # not measured; commoner words tell nothing apart
MIN_COMMON: Final = 5  # not measured; for small memories
_CANDIDATES: Final = 40  # four per fact of a block; not measured
_MOST_STANDING: Final = 12  # not measured; bounds the block


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFacts:
    """The facts to show, best first, and the reason if they alone open the gate."""

    facts: tuple[RecalledFact, ...] = ()
    opens: Reason | None = None
    unsure: bool = False
    evidence_texts: tuple[Sequence[Sequence[str]], ...] = field(default=(), repr=False)
    """For each fact, groups of texts. All texts of one group contain the fact."""

    def not_contained_in(self, passages: Sequence[RecalledPassage]) -> tuple[RecalledFact, ...]:
        """Return the facts that these passages do not contain in full."""
        texts = [passage.text for passage in passages]
        return tuple(
            fact
            for fact, groups in zip(self.facts, self.evidence_texts, strict=True)
            if not any(all(any(part in t for t in texts) for part in group) for group in groups)
        )


async def recall_facts(
    request: RecallRequest,
    question: Question,
    verdict: GateVerdict,
    *,
    archive: Archive,
    vectors: Sequence[AskedVector],
    types: tuple[FactType, ...],
    common: Container[str],
    read: dict[FactQuery, FactCandidates],
) -> FoundFacts:
    """Return the facts that fit the question and are not in the view."""
    is_closed = request.gated and not verdict.open
    subject_words = [
        word
        for word in (subject(question.text, question.words) if is_closed else ())
        if len(word) > 1 and word not in common
    ]
    fact_query = facts_asked(request, question, types, vectors, verdict.lost_words)
    if fact_query not in read:
        read[fact_query] = await archive.fact_candidates(fact_query)
    candidates = read[fact_query]
    found = rank_facts(subject_words or fact_query.words, candidates, vectors)
    if types:
        known_ids = {ranked_fact.fact.id for ranked_fact in found}
        listed = list_facts(question, types, candidates)
        found = (*found, *[item for item in listed if item.fact.id not in known_ids])
    elif verdict.lost_words:
        # the gate opened because of these words, so return only facts that contain one
        lost_words = set(verdict.lost_words)
        found = tuple([item for item in found if lost_words.intersection(item.fact.words)])
    after, before = request.said_after, request.said_before
    ranked = [
        ranked_fact
        for ranked_fact in found
        if fact_name(ranked_fact.fact.id) not in request.quoted
        and (after is None or ranked_fact.fact.at > after)
        and (before is None or ranked_fact.fact.at < before)
    ]
    listed_facts = [ranked_fact for ranked_fact in ranked if ranked_fact.fact.type in types]
    if is_closed and not listed_facts:
        opening = [
            ranked_fact
            for ranked_fact in ranked
            if _opens(ranked_fact, subject_words, asks=question.asks == "question")
        ]
        fact_result = _result_of(opening, {}, Reason(Cause.FACT_ANSWERS) if opening else None)
        return replace(
            fact_result,
            unsure=any(not candidate.fact.sources for candidate in ranked) and not opening,
        )
    if is_closed:
        ranked = listed_facts
    source_ids = dict.fromkeys(
        source for ranked_fact in ranked for source in ranked_fact.fact.sources
    )
    stored_segments = await archive.segments(list(source_ids)) if source_ids else ()
    segments = {stored.segment.id: stored for stored in stored_segments}
    view_ids = segments_in_view(request)
    new_facts = [
        ranked_fact
        for ranked_fact in ranked
        if not _in_view(ranked_fact.fact, request, segments, view_ids)
        and not await _in_a_block(ranked_fact.fact, request, archive)
    ]
    reason = Reason(Cause.FACT_ANSWERS if request.gated else Cause.ASKED_FOR)
    return _result_of(new_facts, segments, reason if new_facts and not verdict.open else None)


def facts_asked(
    request: RecallRequest,
    question: Question,
    types: tuple[FactType, ...],
    vectors: Sequence[AskedVector],
    lost_words: Sequence[str] = (),
) -> FactQuery:
    return FactQuery(
        words=tuple(dict.fromkeys((*question.words, *lost_words))),
        vectors=tuple(vectors),
        types=types,
        limit=MOST_LISTED if types else _CANDIDATES,
        session=request.session if request.scope == "session" else None,
    )


def common_words(candidates: Candidates) -> frozenset[str]:
    """Return the words of the query that too many passages contain to say what it is about."""
    max_count = max(MIN_COMMON, COMMON_SHARE * candidates.documents)
    return frozenset(
        word for word, count in candidates.document_frequencies.items() if count > max_count
    )


def types_asked(request: RecallRequest, question: Question) -> tuple[FactType, ...]:
    """Return the types of facts that the message asks to list. An order asks for no list."""
    if request.gated and question.asks != "question":
        return ()
    return find_asked_types(request.newest or question.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """An outdated span of a message, and the statement that replaces it."""

    span: EvidenceSpan
    by: str = field(repr=False)


_DENIED = re.compile(
    r"(?:\bnot|\bno longer|\binstead of|\brather than|\bin place of)\s+[\"'`]?(\w[\w./:@-]*\w|\d)",
    re.IGNORECASE,
)
_DENIALS = ("not", "no longer", "instead of", "rather than", "in place of")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS = re.compile(r"\w(?:[\w./:@-]*\w)?")


def corrections_in(text: str) -> Iterator[tuple[str, str]]:
    """Find sentences that replace a value ("9000, not 8000"): the old value, the sentence."""
    lowercase_text = text.lower()
    # most texts end here, and the pattern is slow
    if not any(map(lowercase_text.__contains__, _DENIALS)):
        return
    for sentence in _SENTENCE_ENDS.split(text):
        for match in _DENIED.finditer(sentence):
            if not (match[1].isalpha() and match[1].islower()):
                yield match[1], sentence.strip()


def is_corrected(text: str, value: str, sentence: str) -> bool:
    """Return whether a text contains the old value and is about the same thing."""
    words = {word.casefold() for word in _WORDS.findall(text)}
    sentence_words = {word.casefold() for word in _WORDS.findall(sentence) if len(word) > 2}
    return value.casefold() in words and len(words & sentence_words - {value.casefold()}) > 1


async def find_replaced_statements(
    read: Mapping[FactQuery, FactCandidates], archive: Archive
) -> Mapping[SegmentId, Sequence[Replaced]]:
    """Return the spans that newer facts replace, by message."""
    current = {
        candidate.fact.id: candidate.fact
        for candidates in read.values()
        for candidate in candidates.facts
        if candidate.fact.change == "supersede" and candidate.fact.subject
    }
    if not current:
        return {}
    subjects = {fact.subject for fact in current.values()}
    versions = {fact.id: fact for fact in await archive.facts(superseded=True, subjects=subjects)}
    replaced_by_segment: dict[SegmentId, list[Replaced]] = defaultdict(list)
    for old_fact in versions.values():
        now, seen_ids = old_fact, {old_fact.id}
        while now.superseded_by in versions and now.superseded_by not in seen_ids:
            now = versions[now.superseded_by]
            seen_ids.add(now.id)
        if old_fact.id == now.id or now.id not in current:
            continue
        for span in old_fact.evidence:
            replaced_by_segment[span.segment].append(Replaced(span=span, by=now.told))
    return replaced_by_segment


async def recall_standing(archive: Archive, session: str | None) -> tuple[RecalledFact, ...]:
    """Return pinned facts, then the user's standing instructions, newest first: those of a session,
    or of the whole space."""
    candidate_query = CandidateQuery(
        words=(STANDING_WORD,), lexical_limit=_MOST_STANDING, vector_limit=0, session=session
    )
    try:
        async with asyncio.TaskGroup() as task_group:  # sent in one round trip
            finding = task_group.create_task(archive.candidates(candidate_query))
            fact_query = FactQuery(limit=0, session=session)
            pinned_task = task_group.create_task(archive.fact_candidates(fact_query))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    candidates = finding.result()
    facts = [
        _recall_fact(RankedFact(fact=candidate.fact, score=1.0, shared=0), {})
        for candidate in pinned_task.result().facts
    ]
    ids = dict.fromkeys(
        candidate.segment for candidate in candidates.passages if STANDING_WORD in candidate.counts
    )
    segments_by_id = {id_: candidates.segments[id_] for id_ in ids if id_ in candidates.segments}
    if missing_ids := [id_ for id_ in ids if id_ not in segments_by_id]:
        for stored in await archive.segments(missing_ids):
            segments_by_id[stored.segment.id] = stored.segment
    segments = [segments_by_id[id_] for id_ in ids if id_ in segments_by_id]
    for segment in sorted(segments, key=lambda segment: -segment.said_at):
        instruction = RecalledFact(
            type="preference",
            text=segment.text,
            score=1.0,
            trust="high",
            said_on=_day(segment.said_at),
            message_ids=(segment.message_id,),
        )
        facts.append(instruction)
    return tuple(facts)


def _opens(ranked_fact: RankedFact, subject_words: Sequence[str], *, asks: bool) -> bool:
    """Return whether a fact fits well enough without a message that supports it. A fact that the
    user stated or pinned must contain one word of the question. Other facts need a high score."""
    fact = ranked_fact.fact
    if not set(subject_words).intersection(fact.words):
        return False
    if fact.pinned or (fact.made_by == "user" and not fact.sources):
        return True
    if fact.sources or ranked_fact.score < OPENS_AT:
        return False
    return asks or ranked_fact.nearness >= OPENS_NEAR or ranked_fact.shared >= OPENS_WITH_WORDS


def _in_view(
    fact: Fact,
    request: RecallRequest,
    segments: Mapping[SegmentId, StoredSegment],
    view_ids: frozenset[SegmentId],
) -> bool:
    """Return whether the view contains a message that states the fact. A joint fact needs all of
    its messages in the view."""
    in_view_flags = [
        source in view_ids
        or (source in segments and segments[source].segment.message_id in request.shown_messages)
        for source in fact.sources
    ]
    return any(in_view_flags) and (not fact.joint or all(in_view_flags))


async def _in_a_block(fact: Fact, request: RecallRequest, archive: Archive) -> bool:
    """Return whether a block quotes any of the fact's evidence (for a joint fact: all of it)."""
    quoted_flags = [await _is_quoted(span, request, archive) for span in fact.evidence]
    return any(quoted_flags) and (not fact.joint or all(quoted_flags))


async def _is_quoted(span: EvidenceSpan, request: RecallRequest, archive: Archive) -> bool:
    if not any(name.startswith(span.segment) for name in request.quoted):
        return False
    return any(
        passage.start <= span.start
        and span.end <= passage.end
        and request.quotes(span.segment, ordinal)
        for ordinal, passage in enumerate(await archive.passages(span.segment))
    )


def _result_of(
    ranked_facts: Sequence[RankedFact],
    segments: Mapping[SegmentId, StoredSegment],
    opens: Reason | None,
) -> FoundFacts:
    return FoundFacts(
        facts=tuple(_recall_fact(ranked_fact, segments) for ranked_fact in ranked_facts),
        opens=opens,
        evidence_texts=tuple(
            _evidence_texts(ranked_fact.fact, segments) for ranked_fact in ranked_facts
        ),
    )


def _recall_fact(
    ranked_fact: RankedFact, segments: Mapping[SegmentId, StoredSegment]
) -> RecalledFact:
    fact = ranked_fact.fact
    said_by = [segments[source].segment.message_id for source in fact.sources if source in segments]
    return RecalledFact(
        id=fact.id,
        type=fact.type,
        text=fact.told,
        score=1.0 if fact.pinned else ranked_fact.score,
        trust=fact.trust,
        said_on=_day(fact.at),
        message_ids=tuple(dict.fromkeys((*said_by, fact_identity(fact.id)))),
    )


def _evidence_texts(
    fact: Fact, segments: Mapping[SegmentId, StoredSegment]
) -> Sequence[Sequence[str]]:
    if fact.change is not None:
        return ()  # never in a passage: the fact's text also shows what it replaced
    if any(span.segment not in segments for span in fact.evidence):
        return ()
    texts = [
        segments[span.segment].segment.text[span.start : span.end].strip() for span in fact.evidence
    ]
    if not all(texts):
        return ()
    return [texts] if fact.joint else [[text] for text in texts]


def _day(epoch_seconds: float) -> str:
    try:
        return datetime.fromtimestamp(epoch_seconds, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""
