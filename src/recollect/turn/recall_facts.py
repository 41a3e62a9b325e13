"""Recall the facts that bear on a turn, beside its passages.

Owns which facts a block may show: current ones that answer, whose words the view does not show
already, neither in a message nor in a block. Must never show a fact without saying how far it may
be trusted. What always holds: a fact that rests on messages opens no gate by itself, for its
messages were asked already; one that a person wrote, or a file brought, may. Where the gate stays
shut nothing is read but the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from recollect.ports import Archive
from recollect.rules.identity import segment_id
from recollect.search.facts import RankedFact, rank_facts
from recollect.search.question import Question
from recollect.search.substance import substance
from recollect.values.fact import Fact, fact_identity
from recollect.values.hit import GateVerdict
from recollect.values.lookup import AskedVector, FactQuery
from recollect.values.recalled import RecalledFact, RecalledPassage, RecallRequest, fact_name
from recollect.values.segment import SegmentId, StoredSegment

OPENS_AT: Final = 0.5
"""Of the question's worth, what a fact must hold to be shown though no message speaks for it."""
OPENS_WITH_WORDS: Final = 2
"""So many words of the question it must hold for that: one may be anything's."""
OPENS_NEAR: Final = 0.5
"""Or one, where it lies so near by meaning."""
_CANDIDATES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFacts:
    """The facts that may be shown, best first, and why, where they alone open the gate."""

    facts: tuple[RecalledFact, ...] = ()
    opens: str = ""
    """Why they open the gate; empty where they do not."""
    said: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    """For each of `facts` the texts that say it where all of them are read; empty where only the
    fact itself does, as a digest."""

    def beside(self, passages: Sequence[RecalledPassage]) -> tuple[RecalledFact, ...]:
        """Those whose words these passages do not hold in full."""
        texts = [one.text for one in passages]
        return tuple(
            fact
            for fact, said in zip(self.facts, self.said, strict=True)
            if not said or not all(any(each in text for text in texts) for each in said)
        )


async def recall_facts(
    request: RecallRequest,
    question: Question,
    verdict: GateVerdict,
    *,
    archive: Archive,
    vectors: Sequence[AskedVector],
) -> FoundFacts:
    """What is known that bears on the question and stands nowhere in the view."""
    ranked = [
        one
        for one in await _ranked(request, question, verdict, archive, vectors)
        if fact_name(one.fact.id) not in request.quoted and _in_time(one.fact, request)
    ]
    if not verdict.open and request.gated:
        opening = [one for one in ranked if _opens(one, question)]
        return _found(opening, {}, "a fact that was written down answers it" if opening else "")
    wanted = dict.fromkeys(source for one in ranked for source in one.fact.sources)
    held = {one.segment.id: one for one in await archive.segments(list(wanted))} if wanted else {}
    shown = _shown(request)
    fresh = [
        one
        for one in ranked
        if not _in_view(one.fact, request, held, shown)
        and not await _in_a_block(one.fact, request, archive)
    ]
    return _found(fresh, held, "asked for" if fresh and not verdict.open else "")


async def _ranked(
    request: RecallRequest,
    question: Question,
    verdict: GateVerdict,
    archive: Archive,
    vectors: Sequence[AskedVector],
) -> tuple[RankedFact, ...]:
    words = tuple(dict.fromkeys((*question.words, *verdict.lost_words)))
    asked = FactQuery(
        words=words,
        vectors=tuple(vectors),
        limit=_CANDIDATES,
        session=request.session if request.scope == "session" else None,
    )
    ranked = rank_facts(words, await archive.fact_candidates(asked), vectors)
    if not verdict.lost_words:
        return ranked
    # a term that left the view was asked for, and nothing else
    lost = set(verdict.lost_words)
    return tuple(one for one in ranked if lost.intersection(one.fact.words))


def _in_time(fact: Fact, request: RecallRequest) -> bool:
    after, before = request.said_after, request.said_before
    return (after is None or fact.at > after) and (before is None or fact.at < before)


def _opens(one: RankedFact, question: Question) -> bool:
    """Whether it answers well enough to be shown though no message does."""
    if one.fact.sources or one.score < OPENS_AT:
        return False
    if len(substance(question.text, question.words)) < OPENS_WITH_WORDS:
        return False
    return one.shared >= OPENS_WITH_WORDS or (one.shared > 0 and one.nearness >= OPENS_NEAR)


def _shown(request: RecallRequest) -> frozenset[SegmentId]:
    keys = request.shown if request.asking is None else {*request.shown, request.asking}
    return frozenset(segment_id(request.session, key) for key in keys) | request.quoted_whole


def _in_view(
    fact: Fact,
    request: RecallRequest,
    held: Mapping[SegmentId, StoredSegment],
    shown: frozenset[SegmentId],
) -> bool:
    """Whether messages of the view say all of it, under this session's name or another's."""
    return bool(fact.sources) and all(
        source in shown
        or (source in held and held[source].segment.message_id in request.shown_messages)
        for source in fact.sources
    )


async def _in_a_block(fact: Fact, request: RecallRequest, archive: Archive) -> bool:
    """Whether a passage that a block in the view quotes holds the words it rests on."""
    if len(fact.evidence) != 1 or fact.type == "digest":
        return False
    span = fact.evidence[0]
    if not any(name.startswith(span.segment) for name in request.quoted):
        return False
    return any(
        one.start <= span.start
        and span.end <= one.end
        and request.quotes(span.segment, ordinal)
        for ordinal, one in enumerate(await archive.passages(span.segment))
    )


def _found(
    chosen: Sequence[RankedFact], held: Mapping[SegmentId, StoredSegment], opens: str
) -> FoundFacts:
    return FoundFacts(
        facts=tuple(_told(one, held) for one in chosen),
        opens=opens,
        said=tuple(_said(one.fact, held) for one in chosen),
    )


def _told(one: RankedFact, held: Mapping[SegmentId, StoredSegment]) -> RecalledFact:
    fact = one.fact
    said_by = [held[source].segment.message_id for source in fact.sources if source in held]
    return RecalledFact(
        id=fact.id,
        type=fact.type,
        text=fact.content,
        score=1.0 if fact.pinned else one.score,
        trust=fact.trust,
        said_on=_day(fact.at),
        message_ids=tuple(dict.fromkeys((*said_by, fact_identity(fact.id)))),
    )


def _said(fact: Fact, held: Mapping[SegmentId, StoredSegment]) -> tuple[str, ...]:
    if fact.type == "digest" or any(span.segment not in held for span in fact.evidence):
        return ()
    said = [
        held[span.segment].segment.text[span.start : span.end].strip() for span in fact.evidence
    ]
    return tuple(said) if all(said) else ()


def _day(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""
