"""Finds stored content that a turn needs and the view (the request's messages) lacks: searches,
asks the gate, ranks, fills the block. Never returns content of the view or of another space."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.formats.recalled_block import date_line, passage_line, write_block
from recollect.core.ports import Archive
from recollect.core.rules.text import clipped_sentences, sentence_spans
from recollect.core.search.facts import FACTS_SHARE
from recollect.core.search.moments import is_about_order
from recollect.core.search.names import speaker_of
from recollect.core.search.question import Question, is_echo, only_asks
from recollect.core.search.rank import (
    Ranking,
    Weighing,
    rank,
    seeds,
    tool_output_near,
    vector_shares,
)
from recollect.core.turn.fill import (
    FIRST_SHARE,
    enough_passages,
    likely_passages,
    pack,
)
from recollect.core.turn.gate import (
    Texts,
    gate,
    is_among_tools,
    is_the_users,
    spare,
    understands,
    wants_statements,
)
from recollect.core.turn.inject import day_and_minute, quote
from recollect.core.turn.query import count_wanted_passages, queries_of
from recollect.core.turn.recall_facts import (
    Replaced,
    common_words,
    corrections_in,
    facts_asked,
    find_replaced_statements,
    is_corrected,
    recall_facts,
)
from recollect.core.turn.standing_block import rule_strength, states
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
)
from recollect.core.values.segment import Segment, SegmentId
from recollect.system.config.settings import Hybrid
from recollect.system.config.settings import Recall as RecallSettings

SEEDS_SHARE: Final = 1.6  # not measured; bounds the neighbors read
_QUESTION_WORDS: Final = 60  # longer messages count as "anything else" (ranking.md)
_QUESTIONS_READ: Final = 32  # not measured; bounds the reads of one turn
_PASSAGES_EACH: Final = 3  # not measured; bounds the reads of one turn
_WEIGHED_BY_KIND: Final = 300  # not measured; bounds the reads of one search
_MAX_REQUESTS: Final = 3
"""Requests whose outcomes are added, the best first."""
_OUTCOME_CHARS: Final = 400
_MIN_OUTCOME_CHARS: Final = 40
"""Shorter messages, such as "Understood.", tell nothing. Not measured."""
_REACH: Final = 60
"""Messages after a request among which its outcome is. Not measured; bounds the query."""


async def recall(
    request: RecallRequest,
    *,
    archive: Archive,
    vectors: Sequence[AskedVector],
    settings: RecallSettings,
) -> Recalled:
    """Return the content to add to this request, and the ranked hits."""
    question, types, query = queries_of(request)
    query = replace(query, vectors=() if types and not question.words else tuple(vectors))
    if not question.words and not query.vectors and not types:
        return Recalled(gate=GateVerdict(open=False, reason=Reason(Cause.NO_WORDS)))
    reads = RecallReads() if request.reads is None else request.reads
    fact_query = facts_asked(request, question, types, query.vectors)
    search = _MemorySearch(archive, request, question, query, settings, reads, fact_query)
    verdict = await search.decide()
    if request.explicit:
        asked_for = Reason(Cause.ASKED_FOR)
        verdict = replace(verdict, open=True, reason=asked_for, lost_terms=(), lost_words=())
    fact_result = await recall_facts(
        request,
        question,
        verdict,
        archive=archive,
        vectors=query.vectors,
        types=types,
        common=common_words(search.candidates),
        read=reads.facts,
    )
    if not verdict.open:
        if fact_result.opens is None:
            if fact_result.unsure and verdict.reason.cause is Cause.NOTHING_HELD:
                verdict = replace(verdict, reason=Reason(Cause.FACTS_UNSURE))
            return Recalled(gate=verdict)
        verdict = replace(verdict, open=True, reason=fact_result.opens)
        return Recalled(facts=fact_result.facts, gate=verdict)
    if verdict.lost_words:
        search.require_words(verdict.lost_words)
    ranking = await search.rank_passages()
    search.replacements = await find_replaced_statements(reads.facts, archive)
    passages = await search.pack_passages(ranking, fact_result.facts)
    facts = fact_result.not_contained_in(passages)
    # Facts that a passage contains in full were dropped. Fill their space with more passages.
    if len(facts) < len(fact_result.facts):
        wider_passages = await search.pack_passages(ranking, facts)
        # false if the wider passages lack a dropped fact
        if fact_result.not_contained_in(wider_passages) == facts:
            passages = wider_passages
    nothing_fits = Reason(Cause.NOTHING_FITS, tokens=request.budget_tokens)
    return Recalled(
        facts=facts,
        passages=passages,
        gate=verdict,
        hits=await search.hits(ranking),
        notes=() if passages or facts else (nothing_fits,),
    )


@dataclass(slots=True)
class _MemorySearch:
    archive: Archive
    request: RecallRequest
    question: Question
    query: CandidateQuery
    settings: RecallSettings
    reads: RecallReads
    fact_query: FactQuery
    candidates: Candidates = field(default_factory=Candidates, repr=False)
    among_tools: bool = False
    only_stated: bool = False
    """True if only the user's statements may be recalled."""
    replacements: Mapping[SegmentId, Sequence[Replaced]] = field(default_factory=dict, repr=False)

    @property
    def segments(self) -> dict[SegmentId, Segment]:
        return self.reads.segments

    async def decide(self) -> GateVerdict:
        """Query the store, and ask the gate."""
        request, question, vectors = self.request, self.question, self.query.vectors
        candidates = await self._candidates(self.query)
        passages = _without_quoted(candidates.passages, request)
        if request.gated:
            passages = tuple([passage for passage in passages if not is_echo(question, passage)])
        self.candidates = replace(candidates, passages=passages)
        self.among_tools = is_among_tools(request, self.candidates)
        # An explicit search also returns the user's questions, because answers are next to them.
        if request.gated and not request.explicit:
            self.only_stated = wants_statements(question, among_tools=self.among_tools)
            await self._remove_questions()
            if self.settings.sparing and understands(vectors):
                # A command that shares a word answers nothing. By words alone, the gate needs calls
                # to recognize a session with tools.
                self._keep(lambda passage: passage.tool is None or passage.role != "assistant")
        min_score = self.settings.min_score
        verdict = gate(request, question, self.candidates, vectors, min_score=min_score)
        if self.settings.sparing:
            verdict = spare(verdict, question)
        return verdict

    def require_words(self, lost_words: Sequence[str]) -> None:
        """Keep only candidates with one of these words, which count as words of the question."""
        words = tuple(dict.fromkeys((*self.question.words, *lost_words)))
        self.question = replace(self.question, words=words)
        self._keep(lambda passage: any(map(passage.counts.get, lost_words)))

    def _keep(self, wanted: Callable[[Candidate], bool]) -> None:
        passages = tuple(filter(wanted, self.candidates.passages))
        self.candidates = replace(self.candidates, passages=passages)

    async def _candidates(self, query: CandidateQuery) -> Candidates:
        read = self.reads.candidates
        limits = (query.lexical_limit, query.vector_limit)
        for earlier, earlier_result in read.items():
            wide = earlier.lexical_limit >= limits[0] and earlier.vector_limit >= limits[1]
            if wide and query == replace(earlier, lexical_limit=limits[0], vector_limit=limits[1]):
                return earlier_result
        facts = None
        try:  # a store on a server answers all of this in one round trip
            async with asyncio.TaskGroup() as task_group:
                finding = task_group.create_task(self.archive.candidates(query))
                if self.fact_query not in self.reads.facts:
                    facts = task_group.create_task(self.archive.fact_candidates(self.fact_query))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        read[query] = finding.result()
        self.reads.stored.append(read[query].segments)
        if facts is not None:
            self.reads.facts[self.fact_query] = facts.result()
        return read[query]

    async def _remove_questions(self) -> None:
        """Remove the user's messages that only ask from the candidates and the word counts."""
        words, frequencies = self.question.words, dict(self.candidates.document_frequencies)
        rarity = {word: 1.0 / (1 + frequencies.get(word, 0)) for word in words}
        likely_questions = sorted(
            filter(_may_only_ask, self.candidates.passages),
            key=lambda candidate: (
                -sum([worth for word, worth in rarity.items() if candidate.counts.get(word)])
            ),
        )
        asking = await self._asking(likely_questions)
        for candidate in likely_questions:
            for word in words if candidate.segment in asking else ():
                if candidate.counts.get(word) and frequencies.get(word):
                    frequencies[word] -= 1
        self._keep(lambda passage: passage.segment not in asking)
        self.candidates = replace(self.candidates, document_frequencies=frequencies)

    async def _asking(self, nearest: Sequence[Candidate]) -> set[SegmentId]:
        """Return the ids of user messages that only ask; with `only_stated`, also of those that
        state nothing."""
        short = [candidate.segment for candidate in nearest if _may_only_ask(candidate)]
        del short[_QUESTIONS_READ:]
        await self._read(short)
        verdicts, stated = self.reads.judged, self.only_stated
        for segment in [self.segments[id_] for id_ in short if id_ in self.segments]:
            if (segment.id, stated) not in verdicts:
                nothing = _only_asks(segment) or (stated and not states(segment.text))
                verdicts[segment.id, stated] = nothing
        return {id_ for id_ in short if verdicts.get((id_, stated))}

    async def rank_passages(self) -> Ranking:
        """Return the passages in the order in which the block takes them. In a turn, only those
        that the block needs."""
        question, request = self.question, self.request
        ranking, tool_output = await self._rank_candidates()
        if not request.gated:
            if self.settings.min_score is not None:
                ranking = ranking.at_least(self.settings.min_score)
            return ranking
        # remove messages that repeat the question, because they answer nothing
        ranking = ranking.without_matching(
            lambda passage: (
                is_echo(question, passage) or (self.only_stated and not is_the_users(passage))
            )
        )
        asking = await self._asking(ranking.passages)
        ranking = ranking.without_matching(lambda candidate: candidate.segment in asking)
        if request.explicit:  # the caller of an explicit search judges the hits
            return await self._by_kind(ranking)
        if self.settings.sparing:
            best = ranking.passages[0] if ranking.passages else None
            ranking = ranking.without_matching(
                lambda candidate: candidate.tool is not None and candidate is not best
            )
        return enough_passages(
            ranking.without_stray_results(FIRST_SHARE, tool_output),
            request.budget_tokens,
            by_meaning=self.among_tools and understands(self.query.vectors),
        )

    async def _by_kind(self, ranking: Ranking) -> Ranking:
        spoken_ids = [passage.segment for passage in ranking.passages if passage.tool is None]
        if len(spoken_ids) == len(ranking.passages):
            return ranking
        await self._read(list(dict.fromkeys(spoken_ids))[:_WEIGHED_BY_KIND])

        def worth(candidate: Candidate) -> float:
            segment = self.segments.get(candidate.segment)
            if segment is None:
                return 0.0
            text = segment.text[candidate.start : candidate.end]
            return rule_strength(text, by_user=segment.role == "user")

        return ranking.by_kind(worth)

    async def _rank_candidates(self) -> tuple[Ranking, AbstractSet[SegmentId]]:
        """Rank the candidates and their neighbors, and name the tool output next to the best."""
        question, query = self.question, self.query
        weighing = weighing_of(query.vectors, self.settings, self.request.now)
        near_count = round(SEEDS_SHARE * count_wanted_passages(self.request))
        seed_ids = seeds(question, self.candidates, weighing, max_seeds=near_count)
        found = await self.archive.around(seed_ids, query, passages_each=_PASSAGES_EACH)
        self.reads.stored.append(found.segments)
        passages = tuple(
            candidate
            for candidate in _without_quoted(found.passages, self.request)
            if (query.said_after is None or candidate.said_at > query.said_after)
            and (query.said_before is None or candidate.said_at < query.said_before)
        )
        surroundings = replace(found, passages=passages)
        ranking = rank(question, self.candidates, surroundings, weighing)
        return ranking, tool_output_near(ranking, surroundings)

    async def pack_passages(
        self, ranking: Ranking, facts: Sequence[RecalledFact]
    ) -> tuple[RecalledPassage, ...]:
        """Return the passages that fit in addition to the facts, best first."""
        request, segments, citations = self.request, self.segments, self.settings.citations
        count = request.count_tokens
        taken = count(write_block((), ())) + count("<detail>\n</detail>\n\n")
        if facts:
            taken += min(count(write_block(facts, ())), int(FACTS_SHARE * request.budget_tokens))
        budget = request.budget_tokens - taken
        ranking = likely_passages(ranking, budget)
        await self._read([candidate.segment for candidate in ranking.passages])
        corrections = [
            (candidate, value, sentence)
            for candidate in ranking.passages
            if (said_segment := segments.get(candidate.segment)) is not None
            and said_segment.role == "user"
            for value, sentence in corrections_in(
                said_segment.text[candidate.start : candidate.end]
            )
        ]
        ready = [
            quote(
                segments[passage_found.segment],
                passage_found,
                score,
                citations,
                self._correction_of(passage_found, corrections),
            )
            for passage_found, score in zip(ranking.passages, ranking.scores, strict=True)
            if passage_found.segment in segments
            and segments[passage_found.segment].message_id not in request.shown_messages
            and not (request.gated and _only_asks(segments[passage_found.segment]))
        ]
        if request.explicit:  # skip equal texts
            once: dict[str, RecalledPassage] = {}
            for passage in ready:
                once.setdefault(" ".join(passage.text.split()), passage)
            ready = list(once.values())
        elif request.gated:
            view = Texts(request.view)
            ready = [passage for passage in ready if not _is_told(passage.text, view)]
            if self.settings.sparing:
                ready = await _add_outcomes(ready, self.archive, request)
        return tuple(
            pack(
                ready,
                budget_tokens=budget,
                cost=lambda passage: count(passage_line(passage) + "\n"),
                sitting=lambda passage: passage.sitting,
                heading_cost=lambda passage: count(date_line(passage) + "\n"),
                max_count=self.settings.max_results,
            )
        )

    def _correction_of(
        self, candidate: Candidate, corrections: Sequence[tuple[Candidate, str, str]]
    ) -> str:
        by = [
            replacement.by
            for replacement in self.replacements.get(candidate.segment, ())
            if candidate.start <= replacement.span.start and replacement.span.end <= candidate.end
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
            replace(hit, text=self.segments[place.segment].text[place.start : place.end])
            if (place := hit.passage).segment in self.segments
            else hit
            for hit in hits
        )

    async def _read(self, wanted_ids: Sequence[SegmentId]) -> None:
        for segments_read in self.reads.stored:
            new_ids = [
                id_ for id_ in wanted_ids if id_ in segments_read and id_ not in self.segments
            ]
            self.segments.update((id_, segments_read[id_]) for id_ in new_ids)
        missing = [id_ for id_ in dict.fromkeys(wanted_ids) if id_ not in self.segments]
        if missing:
            segments = await self.archive.segments(missing)
            self.segments.update((segment.segment.id, segment.segment) for segment in segments)


def _without_quoted(passages: Sequence[Candidate], request: RecallRequest) -> tuple[Candidate, ...]:
    if not request.quoted:
        return tuple(passages)
    return tuple([p for p in passages if not request.quotes(p.segment, p.ordinal)])


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


def _is_told(text: str, view: Texts) -> bool:
    """Return whether the view contains every sentence of a text, for example in its standing
    block."""
    return all(view.contain(text[start:end]) for start, end in sentence_spans(text))


def weighing_of(vectors: Sequence[AskedVector], settings: RecallSettings, now: float) -> Weighing:
    """Return the measured weights for these embedders, or those of the settings."""
    kinds = tuple(vector.kind for vector in vectors)
    shares = vector_shares(kinds)
    hybrid = settings.hybrid
    if kinds and (hybrid.vector_weight, hybrid.text_weight) != (None, None):
        vector_weight = _vector_share(hybrid)
        shares = tuple(share * vector_weight / sum(shares) for share in shares)
    means = tuple(0.0 if vector.scale is None else vector.scale.mean for vector in vectors)
    return Weighing(
        kinds=kinds, shares=shares, means=means, decay_per_day=settings.decay_per_day, now=now
    )


def _vector_share(hybrid: Hybrid) -> float:
    vector, text = hybrid.vector_weight, hybrid.text_weight
    if text is None:
        return vector or 0.0
    if vector is None:
        return 1.0 - text
    return vector / (vector + text)


async def _add_outcomes(
    passages: Sequence[RecalledPassage], archive: Archive, request: RecallRequest
) -> list[RecalledPassage]:
    """Return the passages, best first, with the outcome of each of the best requests behind it: in
    a coding session, many tool calls are between a request and the agent's last message. Prompts
    such as "where did we leave off?" are left out."""
    known_ids = {passage.segment for passage in passages}
    with_outcomes: list[RecalledPassage] = []
    looked_up = 0
    for passage in passages:
        if passage.role == "user" and is_about_order(passage.text):
            continue
        with_outcomes.append(passage)
        if passage.role != "user" or passage.session is None or looked_up == _MAX_REQUESTS:
            continue
        looked_up += 1
        outcome = await _outcome_of(passage, archive)
        if outcome is None or outcome.id in known_ids or _shows(outcome, request):
            continue
        if len(outcome.text) < _MIN_OUTCOME_CHARS:
            continue
        known_ids.add(outcome.id)
        with_outcomes.append(_quote_outcome(outcome, passage))
    return with_outcomes


async def _outcome_of(passage: RecalledPassage, archive: Archive) -> Segment | None:
    sequence = passage.order[1]
    page = await archive.page(after=sequence, limit=_REACH, session=passage.session)
    outcome = None
    for stored_segment in page:
        segment = stored_segment.segment
        if segment.role == "user" and segment.tool is None:
            break
        if segment.role == "assistant" and segment.tool is None and segment.text.strip():
            outcome = segment
    return outcome


def _shows(segment: Segment, request: RecallRequest) -> bool:
    return (
        segment.key in request.shown
        or segment.message_id in request.shown_messages
        or any(name.startswith(segment.id) for name in request.quoted)
    )


def _quote_outcome(segment: Segment, passage: RecalledPassage) -> RecalledPassage:
    day, minute = day_and_minute(segment.said_at)
    text = clipped_sentences(segment.text.strip(), _OUTCOME_CHARS)
    return replace(
        passage,
        text=text,
        role=segment.role,
        speaker=None,
        said_at=f"{day} {minute}".strip(),
        message_id=segment.message_id,
        segment=segment.id,
        ordinal=None if text == segment.text.strip() else 0,
        replaced_by="",
        order=(segment.said_at, passage.order[1] + 1, 0),
    )
