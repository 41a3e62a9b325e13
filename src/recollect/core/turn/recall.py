"""Finds stored content that a turn needs and the view (the request's messages) lacks: searches,
asks the gate, ranks, fills the block. Never returns content of the view or of another space."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.formats.recalled_block import date_line, passage_line, write_block
from recollect.core.ports import Archive
from recollect.core.search.facts import FACTS_SHARE
from recollect.core.search.names import speaker_of
from recollect.core.search.question import Question, is_echo, only_asks
from recollect.core.search.rank import Ranking, rank, seeds
from recollect.core.search.tokenize import MOST_OF_ONE, MOST_OF_RESULT, pack
from recollect.core.turn.gate import (
    common_words,
    exchanges_of,
    gate,
    is_among_tools,
    is_the_users,
    known_id,
    near_missing,
    tail_share,
    tool_output_near,
    wants_statements,
    weighing_of,
    within_exchanges,
)
from recollect.core.turn.inject import quote
from recollect.core.turn.query import PASSAGE_TOKENS, first_query, queries_of, wanted_passages
from recollect.core.turn.recall_facts import (
    Replaced,
    corrections_in,
    facts_asked,
    is_corrected,
    recall_facts,
    replaced_statements,
)
from recollect.core.turn.standing_block import may_correct, rule_strength, states
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    AskedVector,
    Candidate,
    CandidateQuery,
    Candidates,
    FactQuery,
    GateVerdict,
    Hit,
    Recalled,
    RecalledFact,
    RecalledPassage,
    RecallReads,
    RecallRequest,
    Surroundings,
)
from recollect.core.values.segment import Segment, SegmentId
from recollect.system.config.settings import Recall as RecallSettings

SEEDS_SHARE: Final = 1.6
_CHARS_A_TOKEN: Final = 6
_QUESTION_WORDS: Final = 60
_QUESTIONS_READ: Final = 32
_PASSAGES_EACH: Final = 3
_PASSAGES_OF_RESULT: Final = 16
_WEIGHED_BY_KIND: Final = 300


async def recall(
    request: RecallRequest,
    *,
    archive: Archive,
    vectors: Sequence[AskedVector],
    settings: RecallSettings,
) -> Recalled:
    """Return the content to add to this request, and the ranked hits."""
    question, types, asked = queries_of(request)
    asked = replace(asked, vectors=() if types and not question.words else tuple(vectors))
    if not question.words and not asked.vectors and not types:
        return Recalled(gate=GateVerdict(open=False, reason=Reason(Cause.NO_WORDS)))
    reads = RecallReads() if request.reads is None else request.reads
    about = facts_asked(request, question, types, asked.vectors)
    search = _MemorySearch(archive, request, question, asked, settings, reads, about)
    judged = await search.judged()
    if request.explicit:
        asked_for = replace(
            judged.verdict, open=True, reason=Reason(Cause.ASKED_FOR), lost_terms=(), lost_words=()
        )
        judged = replace(judged, verdict=asked_for)
    verdict = judged.verdict
    known = await recall_facts(
        request,
        question,
        verdict,
        archive=archive,
        vectors=asked.vectors,
        types=types,
        common=common_words(judged.found),
        read=reads.facts,
    )
    if not verdict.open:
        if known.opens is None:
            if known.unsure and verdict.reason.cause is Cause.NOTHING_HELD:
                verdict = replace(verdict, reason=Reason(Cause.FACTS_UNSURE))
            return Recalled(gate=verdict)
        return Recalled(facts=known.facts, gate=replace(verdict, open=True, reason=known.opens))
    if verdict.lost_words:
        judged = replace(judged, found=_holding(judged.found, verdict.lost_words))
        words = tuple(dict.fromkeys((*question.words, *verdict.lost_words)))
        search = replace(search, question=replace(question, words=words))
    ranking, printed = await search.ranked(judged)
    search = replace(search, replaced=await replaced_statements(reads.facts, archive))
    passages = await search.packed(ranking, known.facts, printed)
    facts = known.beside(passages)
    # Facts that a passage contains in full were dropped. Fill their space with more passages.
    if len(facts) < len(known.facts):
        more = await search.packed(ranking, facts, printed)
        if known.beside(more) == facts:  # false if `more` lacks a dropped fact
            passages = more
    nothing_fits = Reason(Cause.NOTHING_FITS, tokens=request.budget_tokens)
    return Recalled(
        facts=facts,
        passages=passages,
        gate=verdict,
        hits=await search.hits(ranking),
        notes=() if passages or facts else (nothing_fits,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    found: Candidates
    in_view: tuple[Candidate, ...] = ()
    only_cut: bool = False
    only_stated: bool = False
    verdict: GateVerdict


@dataclass(frozen=True, slots=True)
class _MemorySearch:
    archive: Archive
    request: RecallRequest
    question: Question
    asked: CandidateQuery
    settings: RecallSettings
    reads: RecallReads
    facts: FactQuery
    replaced: Mapping[SegmentId, tuple[Replaced, ...]] = field(default_factory=dict, repr=False)

    @property
    def segments(self) -> dict[SegmentId, Segment]:
        return self.reads.segments

    async def judged(self) -> _Judged:
        """Query the store, and ask the gate. If the gate stays closed and the view has part of an
        exchange, search the missing part."""
        question, asked = self.question, self.asked
        candidates, shown = await self._looked_up()
        candidates = await self._without_itself(candidates)
        among_tools = is_among_tools(self.request, candidates)
        request = replace(self.request, uses_tools=among_tools)

        def judge(candidates: Candidates, shown: Sequence[Candidate]) -> GateVerdict:
            return gate(
                request,
                question,
                candidates,
                asked.vectors,
                shown=shown,
                least=self.settings.min_score,
                may_correct=self._may_correct,
            )

        if not request.gated:
            return _Judged(found=candidates, verdict=judge(candidates, shown))
        kept = tuple(
            [candidate for candidate in candidates.passages if not is_echo(question, candidate)]
        )
        candidates = replace(candidates, passages=kept)
        verdict = judge(candidates, shown)
        stated = wants_statements(question, among_tools=among_tools) and not request.explicit
        # An explicit search also returns the user's questions, because answers are next to them.
        if verdict.open and not request.explicit:
            answering = await self._answering(candidates, stated=stated)
            # Ask the gate again only if its input has changed.
            if answering is not candidates or shown:
                candidates, verdict = answering, judge(answering, shown)
        if question.asks == "other":
            return _Judged(found=candidates, verdict=verdict, only_stated=stated)
        in_part = request.shown_in_part
        in_view = tuple(
            [
                candidate
                for candidate in shown
                if candidate.segment in asked.leave_out and candidate.key in in_part
            ]
        )
        if verdict.open or not in_view:
            return _Judged(found=candidates, in_view=in_view, verdict=verdict)
        whole = [candidate for candidate in shown if candidate not in in_view]
        opened = judge(replace(candidates, passages=(*candidates.passages, *in_view)), whole)
        if not opened.open:
            return _Judged(found=candidates, verdict=verdict)
        return _Judged(found=candidates, in_view=in_view, only_cut=True, verdict=opened)

    async def _looked_up(self) -> tuple[Candidates, tuple[Candidate, ...]]:
        request, asked = self.request, self.asked
        first = first_query(request)
        candidates = await self._candidates(replace(first, vectors=asked.vectors))
        if not request.gated or not asked.leave_out:
            return replace(candidates, passages=_unquoted(candidates.passages, request)), ()
        hidden = tuple(
            candidate
            for candidate in _unquoted(candidates.passages, request)
            if candidate.segment not in asked.leave_out
        )
        shown = tuple(
            candidate
            for candidate in candidates.passages
            if candidate.segment in asked.leave_out
            or request.quotes(candidate.segment, candidate.ordinal)
        )
        # Over half of the passages are in the view already, so search for others.
        if 2 * len(shown) > len(candidates.passages):
            candidates = await self._candidates(asked)
            hidden = _unquoted(candidates.passages, request)
        return replace(candidates, passages=hidden), shown

    async def _candidates(self, query: CandidateQuery) -> Candidates:
        read = self.reads.candidates
        limits = (query.lexical_limit, query.vector_limit)
        for earlier, found in read.items():
            wide = earlier.lexical_limit >= limits[0] and earlier.vector_limit >= limits[1]
            if wide and query == replace(earlier, lexical_limit=limits[0], vector_limit=limits[1]):
                return found
        facts = known = None
        itself = self.itself
        try:  # a store on a server answers all of this in one round trip
            async with asyncio.TaskGroup() as together:
                finding = together.create_task(self.archive.candidates(query))
                if self.facts not in self.reads.facts:
                    facts = together.create_task(self.archive.fact_candidates(self.facts))
                if itself is not None:
                    known = together.create_task(self.archive.known([itself]))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        read[query] = finding.result()
        self.reads.stored.append(read[query].segments)
        if facts is not None:
            self.reads.facts[self.facts] = facts.result()
        self.reads.known.clear()  # the new statistics may include newly stored messages
        if itself is not None and known is not None:
            self.reads.known[itself] = itself in known.result()
        return read[query]

    @property
    def itself(self) -> SegmentId | None:
        """The segment of the user message that this turn answers."""
        request = self.request
        return None if request.asking is None else known_id(request.session, request.asking)

    async def _without_itself(self, candidates: Candidates) -> Candidates:
        """Return the word counts without the current message, which contains all searched words."""
        if self.itself is None or not self.reads.known.get(self.itself):
            return candidates
        own = set(self.question.words)
        frequencies = {
            word: max(0, count - 1) if word in own else count
            for word, count in candidates.document_frequencies.items()
        }
        return replace(candidates, document_frequencies=frequencies)

    async def _answering(self, candidates: Candidates, *, stated: bool) -> Candidates:
        mappings, words = candidates.document_frequencies, self.question.words
        rarity = {word: 1.0 / (1 + mappings.get(word, 0)) for word in words}
        near = sorted(
            filter(_may_only_ask, candidates.passages),
            key=lambda candidate: (
                -sum([worth for word, worth in rarity.items() if candidate.counts.get(word)])
            ),
        )
        asking = await self._asking(near, stated=stated)
        if not asking:
            return candidates
        frequencies = dict(mappings)
        for candidate in near:
            for word in words if candidate.segment in asking else ():
                if candidate.counts.get(word) and frequencies.get(word):
                    frequencies[word] -= 1
        kept = tuple(
            [candidate for candidate in candidates.passages if candidate.segment not in asking]
        )
        return replace(candidates, passages=kept, document_frequencies=frequencies)

    def _may_correct(self, candidate: Candidate) -> bool:
        segment = self.segments.get(candidate.segment)
        return segment is None or may_correct(segment.text)

    async def _asking(
        self, nearest: Sequence[Candidate], also: Sequence[SegmentId] = (), *, stated: bool = False
    ) -> set[SegmentId]:
        """Return the ids of user messages that only ask; with `stated`, also of those that state
        nothing. `also` names messages to read from the store in the same query."""
        short = [candidate.segment for candidate in nearest if _may_only_ask(candidate)][
            :_QUESTIONS_READ
        ]
        await self._read([*short, *also])
        read = [self.segments[segment_id] for segment_id in short if segment_id in self.segments]
        judged = self.reads.judged
        for segment in read:
            if (segment.id, stated) not in judged:
                nothing = _only_asks(segment) or (stated and not states(segment.text))
                judged[segment.id, stated] = nothing
        return {segment.id for segment in read if judged[segment.id, stated]}

    async def ranked(self, judged: _Judged) -> tuple[Ranking, AbstractSet[SegmentId]]:
        """Return passages and their neighbors, best first, and tool output next to the best."""
        question, request = self.question, self.request
        ranking, printed = await self._ranked(judged)
        if request.gated:
            # remove messages that repeat the question, because they answer nothing
            ranking = ranking.without(lambda candidate: is_echo(question, candidate))
            share, packed = tail_share(question), list[SegmentId]()
            if not request.explicit:  # roughly the passages that `packed` reads
                near = ranking.near_best(share).without_stray_results(share, printed)
                places = _first(near, request.budget_tokens, printed)
                packed = [candidate.segment for candidate in near.passages[:places]]
            if judged.only_stated:
                ranking = ranking.without(lambda candidate: not is_the_users(candidate))
            asking = await self._asking(ranking.passages, packed, stated=judged.only_stated)
            ranking = ranking.without(lambda candidate: candidate.segment in asking)
            if request.explicit:  # the caller of an explicit search judges the hits
                ranking = await self._by_kind(ranking)
            else:
                ranking = ranking.near_best(share).without_stray_results(share, printed)
        elif self.settings.min_score is not None:
            ranking = ranking.at_least(self.settings.min_score)
        return ranking, printed

    async def _by_kind(self, ranking: Ranking) -> Ranking:
        if all(candidate.tool is None for candidate in ranking.passages):
            return ranking
        said = [one.segment for one in ranking.passages if one.tool is None]
        await self._read(list(dict.fromkeys(said))[:_WEIGHED_BY_KIND])

        def worth(candidate: Candidate) -> float:
            segment = self.segments.get(candidate.segment)
            if segment is None:
                return 0.0
            text = segment.text[candidate.start : candidate.end]
            return rule_strength(text, by_user=segment.role == "user")

        return ranking.by_kind(worth)

    async def _ranked(self, judged: _Judged) -> tuple[Ranking, AbstractSet[SegmentId]]:
        question, request, candidates = self.question, self.request, judged.found
        weighing = weighing_of(self.asked.vectors, self.settings, request.now)
        seen = replace(candidates, passages=(*candidates.passages, *judged.in_view))
        near = seeds(question, seen, weighing, most=round(SEEDS_SHARE * wanted_passages(request)))
        in_view = {candidate.segment: candidate for candidate in judged.in_view}
        exchanges = exchanges_of(
            [in_view[segment_id] for segment_id in near if segment_id in in_view], request
        )
        shown = self.asked.leave_out
        ends = [
            segment_id for each in exchanges.values() for segment_id in near_missing(each, shown)
        ]
        reached = await self._around(tuple(dict.fromkeys([*near, *ends])))
        around = within_exchanges(reached, in_view.keys(), exchanges)
        ranking = rank(question, seen, around, weighing)
        printed = tool_output_near(ranking, around) if request.gated else frozenset()
        rest = await self._rest_of(printed, reached)
        if rest:
            around = replace(around, passages=(*around.passages, *rest))
            ranking = rank(question, seen, around, weighing)
        if in_view:
            ranking = ranking.without(lambda candidate: candidate.segment in in_view)
        if judged.only_cut:
            ranking = ranking.without(lambda candidate: candidate.segment not in printed)
        return ranking, printed

    async def _around(
        self, ids: Sequence[SegmentId], *, passages_each: int = _PASSAGES_EACH
    ) -> Surroundings:
        around = await self.archive.around(ids, self.asked, passages_each=passages_each)
        self.reads.stored.append(around.segments)
        after, before = self.asked.said_after, self.asked.said_before
        passages = tuple(
            candidate
            for candidate in _unquoted(around.passages, self.request)
            if (after is None or candidate.said_at > after)
            and (before is None or candidate.said_at < before)
        )
        return replace(around, passages=passages)

    async def _rest_of(
        self, printed: AbstractSet[SegmentId], reached: Surroundings
    ) -> list[Candidate]:
        beside = tuple(
            {neighbour.of: None for neighbour in reached.neighbours if neighbour.segment in printed}
        )
        if not beside:
            return []
        more = await self._around(beside, passages_each=_PASSAGES_OF_RESULT)
        known = {(candidate.segment, candidate.ordinal) for candidate in reached.passages}
        return [
            candidate
            for candidate in more.passages
            if candidate.segment in printed and (candidate.segment, candidate.ordinal) not in known
        ]

    async def packed(
        self, ranking: Ranking, facts: Sequence[RecalledFact], printed: AbstractSet[SegmentId]
    ) -> tuple[RecalledPassage, ...]:
        """Return the passages that fit in addition to the facts, best first. More than a few
        passages per message are only taken from tool output in `printed`."""
        request, segments, cited = self.request, self.segments, self.settings.citations
        count = request.count_tokens
        taken = count(write_block((), ())) + count("<detail>\n</detail>\n\n")
        if facts:
            taken += min(count(write_block(facts, ())), int(FACTS_SHARE * request.budget_tokens))
        budget = request.budget_tokens - taken
        places = _first(ranking, budget, printed)
        await self._read([ranking.passages[at].segment for at in range(places)])
        corrections = [
            (candidate, value, sentence)
            for candidate in ranking.passages[:places]
            if (said := segments.get(candidate.segment)) is not None and said.role == "user"
            for value, sentence in corrections_in(said.text[candidate.start : candidate.end])
        ]
        ready = [
            quote(segments[one.segment], one, score, cited, self._replaced_by(one, corrections))
            for one, score in zip(ranking.passages[:places], ranking.scores, strict=False)
            if one.segment in segments
            and segments[one.segment].message_id not in request.shown_messages
            and not (request.gated and _only_asks(segments[one.segment]))
        ]
        if request.explicit:  # skip equal texts
            once: dict[str, RecalledPassage] = {}
            for passage in ready:
                once.setdefault(" ".join(passage.text.split()), passage)
            ready = list(once.values())
        return tuple(
            pack(
                ready,
                budget_tokens=budget,
                cost=lambda passage: count(passage_line(passage) + "\n"),
                source=lambda passage: passage.order[:2],
                sitting=lambda passage: passage.sitting,
                heading_cost=lambda passage: count(date_line(passage) + "\n"),
                most=self.settings.max_results,
                most_of=lambda passage: _most_of(passage.segment, printed, budget),
            )
        )

    def _replaced_by(
        self, candidate: Candidate, corrections: Sequence[tuple[Candidate, str, str]]
    ) -> str:
        by = [
            each.by
            for each in self.replaced.get(candidate.segment, ())
            if candidate.start <= each.span.start and each.span.end <= candidate.end
        ]
        text = self.segments[candidate.segment].text[candidate.start : candidate.end]
        by += [
            sentence
            for later, value, sentence in corrections
            if later.session == candidate.session
            and later.sequence > candidate.sequence
            and is_corrected(text, value, sentence)
        ]
        return "; ".join(dict.fromkeys(by))

    async def hits(self, ranking: Ranking) -> tuple[Hit, ...]:
        """Return the best hits. A hit has its text if its message was read (always without a
        gate)."""
        hits = ranking.hits(self.request.most_hits)
        if not self.request.gated:
            await self._read([hit.passage.segment for hit in hits])
        return tuple(
            replace(hit, text=self.segments[at.segment].text[at.start : at.end])
            if (at := hit.passage).segment in self.segments
            else hit
            for hit in hits
        )

    async def _read(self, wanted: Sequence[SegmentId]) -> None:
        for stored in self.reads.stored:
            new = [id_ for id_ in wanted if id_ in stored and id_ not in self.segments]
            self.segments.update((id_, stored[id_]) for id_ in new)
        missing = [id_ for id_ in dict.fromkeys(wanted) if id_ not in self.segments]
        if missing:
            segments = await self.archive.segments(missing)
            self.segments.update((segment.segment.id, segment.segment) for segment in segments)


def _unquoted(passages: Sequence[Candidate], request: RecallRequest) -> tuple[Candidate, ...]:
    if not request.quoted:
        return tuple(passages)
    return tuple(
        candidate
        for candidate in passages
        if not request.quotes(candidate.segment, candidate.ordinal)
    )


def _may_only_ask(candidate: Candidate) -> bool:
    return (
        candidate.role == "user" and candidate.tool is None and candidate.length <= _QUESTION_WORDS
    )


def _only_asks(segment: Segment) -> bool:
    return (
        segment.role == "user"
        and segment.tool is None
        and only_asks(segment.text)
        and not speaker_of(segment.text)
    )


def _holding(candidates: Candidates, words: Sequence[str]) -> Candidates:
    kept = tuple(
        candidate for candidate in candidates.passages if any(map(candidate.counts.get, words))
    )
    return replace(candidates, passages=kept)


def _most_of(segment: SegmentId | None, printed: AbstractSet[SegmentId], budget_tokens: int) -> int:
    if segment not in printed:
        return MOST_OF_ONE
    return max(MOST_OF_RESULT, budget_tokens // (4 * PASSAGE_TOKENS))


def _first(ranking: Ranking, budget_tokens: int, printed: AbstractSet[SegmentId]) -> int:
    """Count how many passages may fit the budget, if each message gets at most its limit."""
    chars = budget_tokens * _CHARS_A_TOKEN
    taken: Counter[SegmentId] = Counter()
    for at, candidate in enumerate(ranking.passages):
        taken[candidate.segment] += 1
        if taken[candidate.segment] > _most_of(candidate.segment, printed, budget_tokens):
            continue
        chars -= candidate.end - candidate.start
        if chars <= 0:
            return at + 1
    return len(ranking.passages)
