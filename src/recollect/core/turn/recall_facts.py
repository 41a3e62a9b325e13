"""Recalls current facts for a turn, in addition to passages, if the view (the messages of the
request) does not contain their words. Each fact has a trust level."""

from __future__ import annotations

import asyncio
import re
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
from recollect.core.turn.gate import left_out
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
_TOGETHER: Final = "\f"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFacts:
    """The facts to show, best first, and the reason if they alone open the gate."""

    facts: tuple[RecalledFact, ...] = ()
    opens: Reason | None = None
    unsure: bool = False
    said: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def beside(self, passages: Sequence[RecalledPassage]) -> tuple[RecalledFact, ...]:
        """Return the facts that these passages do not contain in full."""
        texts = [passage.text for passage in passages]
        return tuple(
            fact
            for fact, said in zip(self.facts, self.said, strict=True)
            if not any(_holds(texts, each) for each in said)
        )


async def recall_facts(
    request: RecallRequest,
    question: Question,
    verdict: GateVerdict,
    *,
    archive: Archive,
    vectors: Sequence[AskedVector],
    types: tuple[FactType, ...] = (),
    common: Container[str] = frozenset(),
    read: dict[FactQuery, FactCandidates] | None = None,
) -> FoundFacts:
    """Return the facts that fit the question and are not in the view."""
    read = {} if read is None else read
    closed = request.gated and not verdict.open
    about = _about(question, common) if closed else ()
    ranked = [
        ranked_fact
        for ranked_fact in await _ranked(
            request, question, types, verdict, archive, vectors, read, about=about
        )
        if fact_name(ranked_fact.fact.id) not in request.quoted
        and _in_time(ranked_fact.fact, request)
    ]
    listed = [ranked_fact for ranked_fact in ranked if ranked_fact.fact.type in types]
    if closed and not listed:
        opening = [
            ranked_fact
            for ranked_fact in ranked
            if _opens(ranked_fact, about, asks=question.asks == "question")
        ]
        found = _found_facts(opening, {}, Reason(Cause.FACT_ANSWERS) if opening else None)
        return replace(found, unsure=any(not one.fact.sources for one in ranked) and not opening)
    if closed:
        ranked = listed
    wanted = dict.fromkeys(source for ranked_fact in ranked for source in ranked_fact.fact.sources)
    segments = (
        {segment.segment.id: segment for segment in await archive.segments(list(wanted))}
        if wanted
        else {}
    )
    shown = left_out(request)
    fresh = [
        ranked_fact
        for ranked_fact in ranked
        if not _in_view(ranked_fact.fact, request, segments, shown)
        and not await _in_a_block(ranked_fact.fact, request, archive)
    ]
    why = Reason(Cause.FACT_ANSWERS if request.gated else Cause.ASKED_FOR)
    return _found_facts(fresh, segments, why if fresh and not verdict.open else None)


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
    lowered = text.lower()
    if not any(map(lowered.__contains__, _DENIALS)):  # most texts end here, and the pattern is slow
        return
    for sentence in _SENTENCE_ENDS.split(text):
        for match in _DENIED.finditer(sentence):
            if not (match[1].isalpha() and match[1].islower()):
                yield match[1], sentence.strip()


def is_corrected(text: str, value: str, sentence: str) -> bool:
    """Return whether a text contains the old value and is about the same thing."""
    words = {word.casefold() for word in _WORDS.findall(text)}
    about = {word.casefold() for word in _WORDS.findall(sentence) if len(word) > 2}
    return value.casefold() in words and len(words & about - {value.casefold()}) > 1


async def replaced_statements(
    read: Mapping[FactQuery, FactCandidates], archive: Archive
) -> Mapping[SegmentId, tuple[Replaced, ...]]:
    """Return the spans that newer facts replace, by message."""
    current = {
        candidate.fact.id: candidate.fact
        for found in read.values()
        for candidate in found.facts
        if candidate.fact.change == "supersede" and candidate.fact.subject
    }
    if not current:
        return {}
    subjects = {fact.subject for fact in current.values()}
    versions = {fact.id: fact for fact in await archive.facts(superseded=True, subjects=subjects)}
    replaced: dict[SegmentId, tuple[Replaced, ...]] = {}
    for old in versions.values():
        now, seen = old, {old.id}
        while now.superseded_by in versions and now.superseded_by not in seen:
            now = versions[now.superseded_by]
            seen.add(now.id)
        if old.id == now.id or now.id not in current:
            continue
        for span in old.evidence:
            held = Replaced(span=span, by=now.told)
            replaced[span.segment] = (*replaced.get(span.segment, ()), held)
    return replaced


async def recall_standing(archive: Archive, session: str | None) -> tuple[RecalledFact, ...]:
    """Return pinned facts, then the user's standing instructions, newest first: those of a session,
    or of the whole space."""
    asked = CandidateQuery(
        words=(STANDING_WORD,), lexical_limit=_MOST_STANDING, vector_limit=0, session=session
    )
    try:
        async with asyncio.TaskGroup() as together:  # sent in one round trip
            finding = together.create_task(archive.candidates(asked))
            about = FactQuery(limit=0, session=session)
            pinned = together.create_task(archive.fact_candidates(about))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    candidates = finding.result()
    facts = [
        _recalled_fact(RankedFact(fact=candidate.fact, score=1.0, shared=0), {})
        for candidate in pinned.result().facts
    ]
    ids = dict.fromkeys(
        candidate.segment for candidate in candidates.passages if STANDING_WORD in candidate.counts
    )
    held = {id_: candidates.segments[id_] for id_ in ids if id_ in candidates.segments}
    rest = await archive.segments([*(ids.keys() - held.keys())]) if len(held) < len(ids) else ()
    held.update((stored.segment.id, stored.segment) for stored in rest)
    segments = sorted([held[id_] for id_ in ids if id_ in held], key=lambda one: -one.said_at)
    return (
        *facts,
        *(
            RecalledFact(
                type="preference",
                text=segment.text,
                score=1.0,
                trust="high",
                said_on=_day(segment.said_at),
                message_ids=(segment.message_id,),
            )
            for segment in segments
        ),
    )


async def _ranked(
    request: RecallRequest,
    question: Question,
    types: tuple[FactType, ...],
    verdict: GateVerdict,
    archive: Archive,
    vectors: Sequence[AskedVector],
    read: dict[FactQuery, FactCandidates],
    *,
    about: Sequence[str],
) -> tuple[RankedFact, ...]:
    asked = facts_asked(request, question, types, vectors, verdict.lost_words)
    words = asked.words
    if asked not in read:
        read[asked] = await archive.fact_candidates(asked)
    candidates = read[asked]
    ranked = rank_facts(about or words, candidates, vectors)
    if types:
        known = {ranked_fact.fact.id for ranked_fact in ranked}
        listed = list_facts(question, types, candidates)
        return (
            *ranked,
            *(ranked_fact for ranked_fact in listed if ranked_fact.fact.id not in known),
        )
    if not verdict.lost_words:
        return ranked
    # the gate opened because of these words, so return only facts that contain one
    lost = set(verdict.lost_words)
    return tuple(ranked_fact for ranked_fact in ranked if lost.intersection(ranked_fact.fact.words))


def _in_time(fact: Fact, request: RecallRequest) -> bool:
    after, before = request.said_after, request.said_before
    return (after is None or fact.at > after) and (before is None or fact.at < before)


def _about(question: Question, common: Container[str]) -> tuple[str, ...]:
    words = subject(question.text, question.words)
    return tuple(word for word in words if len(word) > 1 and word not in common)


def _opens(ranked: RankedFact, about: Sequence[str], *, asks: bool) -> bool:
    """Return whether a fact fits well enough without a message that supports it. A fact that the
    user stated or pinned must contain one word of the question. Other facts need a high score."""
    fact = ranked.fact
    if not about or not set(about).intersection(fact.words):
        return False
    if fact.pinned or (fact.made_by == "user" and not fact.sources):
        return True
    if fact.sources or ranked.score < OPENS_AT:
        return False
    return asks or ranked.nearness >= OPENS_NEAR or ranked.shared >= OPENS_WITH_WORDS


def _in_view(
    fact: Fact,
    request: RecallRequest,
    segments: Mapping[SegmentId, StoredSegment],
    shown: frozenset[SegmentId],
) -> bool:
    """Return whether the view contains a message that states the fact. A joint fact needs all of
    its messages in the view."""
    seen = [
        source in shown
        or (source in segments and segments[source].segment.message_id in request.shown_messages)
        for source in fact.sources
    ]
    return bool(seen) and (all(seen) if fact.joint else any(seen))


async def _in_a_block(fact: Fact, request: RecallRequest, archive: Archive) -> bool:
    """Return whether a block quotes any of the fact's evidence (for a joint fact: all of it)."""
    if not fact.evidence:
        return False
    seen = [await _is_quoted(span, request, archive) for span in fact.evidence]
    return all(seen) if fact.joint else any(seen)


async def _is_quoted(span: EvidenceSpan, request: RecallRequest, archive: Archive) -> bool:
    if not any(name.startswith(span.segment) for name in request.quoted):
        return False
    return any(
        passage.start <= span.start
        and span.end <= passage.end
        and request.quotes(span.segment, ordinal)
        for ordinal, passage in enumerate(await archive.passages(span.segment))
    )


def _found_facts(
    chosen: Sequence[RankedFact], segments: Mapping[SegmentId, StoredSegment], opens: Reason | None
) -> FoundFacts:
    return FoundFacts(
        facts=tuple(_recalled_fact(ranked, segments) for ranked in chosen),
        opens=opens,
        said=tuple(_evidence_texts(ranked.fact, segments) for ranked in chosen),
    )


def _recalled_fact(ranked: RankedFact, segments: Mapping[SegmentId, StoredSegment]) -> RecalledFact:
    fact = ranked.fact
    said_by = [segments[source].segment.message_id for source in fact.sources if source in segments]
    return RecalledFact(
        id=fact.id,
        type=fact.type,
        text=fact.told,
        score=1.0 if fact.pinned else ranked.score,
        trust=fact.trust,
        said_on=_day(fact.at),
        message_ids=tuple(dict.fromkeys((*said_by, fact_identity(fact.id)))),
    )


def _evidence_texts(fact: Fact, segments: Mapping[SegmentId, StoredSegment]) -> tuple[str, ...]:
    if fact.change is not None:
        return ()  # never in a passage: the fact's text also shows what it replaced
    if any(span.segment not in segments for span in fact.evidence):
        return ()
    texts = [
        segments[span.segment].segment.text[span.start : span.end].strip() for span in fact.evidence
    ]
    if not all(texts):
        return ()
    return (_TOGETHER.join(texts),) if fact.joint else tuple(texts)


def _holds(texts: Sequence[str], said: str) -> bool:
    return all(any(part in text for text in texts) for part in said.split(_TOGETHER))


def _day(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""
