"""The suite notices a broken store: each of these breaks one promise, over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import apsw
import pytest
from hypothesis import Phase, settings
from tests.store_contract import CONTRACT, run_check

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, Lease, WriteResult
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.fact import Fact, FactId, FactVectorSet
from recollect.core.values.history import SessionId
from recollect.core.values.message import MessageId
from recollect.core.values.recall import (
    CandidateQuery,
    Candidates,
    FactCandidates,
    FactQuery,
    Surroundings,
)
from recollect.core.values.segment import SegmentId, StoredSegment
from recollect.core.values.upkeep import BodyKind, ForgetOrder, Forgotten, RewriteOrder, Rewritten
from recollect.errors import StaleFacts

T = TypeVar("T")


class Whole:
    """A real store; what a subclass does not break is as it should be."""

    def __init__(self, real: Store) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class WritesInTwo(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(Batch(at=batch.at, segments=batch.segments))
        await self.real.write(replace(batch, segments=()))
        return written


class SaysStoredAgain(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        return replace(written, stored=(*written.stored, *written.known), known=())


class KeepsUnderAnotherName(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        again = tuple(
            replace(new, segment=replace(new.segment, id=SegmentId(new.segment.id[::-1])))
            for new in batch.segments
            if new.segment.id in written.known
        )
        await self.real.write(Batch(at=batch.at, segments=again))
        return written


class CountsWordsNotPassages(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        found = await self.real.candidates(query)
        counts = {
            word: max(df, sum(one.counts.get(word, 0) for one in found.passages))
            for word, df in found.document_frequencies.items()
        }
        return replace(found, document_frequencies=counts)


class FiltersAfterTheLimit(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        found = await self.real.candidates(replace(query, session=None))
        kept = tuple(
            one for one in found.passages if query.session is None or one.session == query.session
        )
        return replace(found, passages=kept)


class ScoresOneWayOnly(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        found = await self.real.candidates(query)
        if query.words:
            kept = tuple(
                replace(one, similarities=(None,) * len(query.vectors)) for one in found.passages
            )
            found = replace(found, passages=kept)
        return found


class MixesEmbeddersUp(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        found = await self.real.candidates(query)
        kept = tuple(replace(one, similarities=one.similarities[::-1]) for one in found.passages)
        return replace(found, passages=kept)


class AsksOneEmbedder(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        found = await self.real.candidates(replace(query, vectors=query.vectors[:1]))
        rest = (None,) * (len(query.vectors) - 1)
        kept = tuple(
            replace(one, similarities=(*one.similarities, *rest)) for one in found.passages
        )
        return replace(found, passages=kept)


class LeavesOutAfterTheLimit(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        found = await self.real.candidates(replace(query, leave_out=frozenset()))
        kept = tuple(one for one in found.passages if one.segment not in query.leave_out)
        return replace(found, passages=kept)


class CountsWithoutTheLeftOut(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        found = await self.real.candidates(query)
        return replace(found, documents=found.documents - len(query.leave_out))


class SeesTheLeftOutAround(Whole):
    async def around(
        self, ids: Sequence[SegmentId], query: CandidateQuery, **asked: Any
    ) -> Surroundings:
        return await self.real.around(ids, replace(query, leave_out=frozenset()), **asked)


class LooksOnePlaceFar(Whole):
    async def around(
        self, ids: Sequence[SegmentId], query: CandidateQuery, **asked: Any
    ) -> Surroundings:
        return await self.real.around(ids, query, **{**asked, "reach": 1})


class CountsArrivalsNotPlaces(Whole):
    """Takes whatever arrived next for a neighbour, of any session, noise too."""

    async def around(
        self, ids: Sequence[SegmentId], query: CandidateQuery, **asked: Any
    ) -> Surroundings:
        found = await self.real.around(ids, query, **asked)
        order = [row.segment.id for row in await self.real.page(limit=10_000)]
        return replace(
            found,
            neighbours=tuple(
                replace(one, distance=order.index(one.segment) - order.index(one.of))
                for one in found.neighbours
            ),
        )


class TellsOfStrangersOnly(Whole):
    async def around(
        self, ids: Sequence[SegmentId], query: CandidateQuery, **asked: Any
    ) -> Surroundings:
        found = await self.real.around(ids, query, **asked)
        kept = tuple(one for one in found.neighbours if one.segment not in ids)
        return replace(found, neighbours=kept)


class DescribesWithoutCounts(Whole):
    async def around(
        self, ids: Sequence[SegmentId], query: CandidateQuery, **asked: Any
    ) -> Surroundings:
        found = await self.real.around(ids, query, **asked)
        return replace(found, passages=tuple(replace(one, counts={}) for one in found.passages))


class WithdrawsForGood(Whole):
    async def withdraw(self, ids: Sequence[SegmentId], *, at: float) -> int:
        done = await self.real.forget(ForgetOrder(at=at, segments=tuple(ids)))
        return len(done.segments)


class WithdrawsNothing(Whole):
    async def withdraw(self, ids: Sequence[SegmentId], *, at: float) -> int:
        return len(await self.real.known(ids))


class LeavesNoTombstone(Whole):
    """What was forgotten gets in again, under an identity that no tombstone stands for."""

    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        again = tuple(
            replace(
                new,
                segment=replace(new.segment, message_id=MessageId(new.segment.message_id[::-1])),
            )
            for new in batch.segments
            if new.segment.id in written.forgotten
        )
        return await self.real.write(replace(batch, segments=again)) if again else written


class ForgetsByIdOnly(Whole):
    async def forget(self, order: ForgetOrder) -> Forgotten:
        return await self.real.forget(ForgetOrder(at=order.at, segments=order.segments))


class ForgetsPlacesEverywhere(Whole):
    """Takes a session for what was said in it, wherever else that was said."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        said: list[MessageId] = []
        for session in order.sessions:
            said += [row.segment.message_id for row in await self.real.page(session=session)]
        return await self.real.forget(replace(order, message_ids=(*order.message_ids, *said)))


class AddsPlacesUp(Whole):
    async def forget(self, order: ForgetOrder) -> Forgotten:
        if order.sessions and order.said_before is not None:
            await self.real.forget(replace(order, said_before=None))
        return await self.real.forget(order)


class OverlooksTexts(Whole):
    async def forget(self, order: ForgetOrder) -> Forgotten:
        return await self.real.forget(replace(order, matching=None))


class KeepsCompactions(Whole):
    """Forgets messages, but writes again what stood for them, as if it were another record."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        held = [
            record
            for session in ("talk", "one", "two", "another")
            for record in await self.real.compactions(session)
        ]
        done = await self.real.forget(order)
        again = tuple(replace(one, about=(), body=one.body + b" ") for one in held)
        await self.real.write(Batch(at=order.at, compactions=again))
        return done


class ReplacesCompactions(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        self.newest = {**getattr(self, "newest", {}), **_by_place(batch)}
        return written

    async def compactions(self, session: str) -> tuple[CompactionRecord, ...]:
        held = await self.real.compactions(session)
        newest = getattr(self, "newest", {})
        return tuple(newest.get((one.session, one.number), one) for one in held)


def _by_place(batch: Batch) -> dict[tuple[str, int], CompactionRecord]:
    return {(one.session, one.number): one for one in batch.compactions}


class RecordsStaleCompactions(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        await self.real.write(Batch(at=batch.at, compactions=batch.compactions))
        return written


class KeepsTheCut(Whole):
    """Says that the state quotes nobody."""

    async def write(self, batch: Batch) -> WriteResult:
        if batch.session is not None:
            batch = replace(batch, session=replace(batch.session, about=()))
        return await self.real.write(batch)


class CleansInSilence(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        return replace(await self.real.write(batch), session_cleaned=False)


class TakesEveryQuoteForCleaned(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        quotes = batch.session is not None and bool(batch.session.about)
        return replace(await self.real.write(batch), session_cleaned=quotes)


class KeepsTheRecordOfNoCut(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        unnamed = tuple(replace(one, about=()) for one in batch.compactions)
        await self.real.write(Batch(at=batch.at, compactions=unnamed))
        return written


class RecordsStaleTurns(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        if written.session_stale:
            await self.real.write(Batch(at=batch.at, turns=batch.turns))
        return written


class EnqueuesAgain(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        await self.real.write(Batch(at=batch.at, jobs=batch.jobs))
        return written


class TakesAnyNumber(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        facts = tuple(replace(one, at=0.0 if isnan(one.at) else one.at) for one in batch.facts)
        return await self.real.write(replace(batch, facts=facts))


class IgnoresSpans(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        sets = tuple(
            replace(one, vectors=tuple(replace(vector, span=None) for vector in one.vectors))
            for one in batch.vectors
        )
        return await self.real.write(replace(batch, vectors=sets))


class BreaksTiesByArrival(Whole):
    async def candidates(self, query: CandidateQuery) -> Candidates:
        wide = replace(query, vector_limit=1_000, lexical_limit=1_000)
        found = await self.real.candidates(wide)
        limit = query.vector_limit if query.vectors else query.lexical_limit
        return replace(found, passages=found.passages[:limit])


class WritesLostEffects(Whole):
    async def complete(self, lease: Lease, batch: Batch) -> bool:
        done = await self.real.complete(lease, batch)
        if not done:
            await self.real.write(batch)
        return done


class ExceedsTheBudget(Whole):
    async def claim(self, *, day_tokens: int | None = None, **asked: Any) -> Any:
        wider = None if day_tokens is None else day_tokens + 30
        return await self.real.claim(day_tokens=wider, **asked)


class RoundsTimes(Whole):
    async def segments(self, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
        rows = await self.real.segments(ids)
        return tuple(
            replace(row, segment=replace(row.segment, said_at=round(row.segment.said_at, 6)))
            for row in rows
        )


class WarmsNothing(Whole):
    async def warm(self, ids: Sequence[SegmentId]) -> int:
        cold = [row for row in await self.real.segments(ids) if row.cold]
        return len(cold)


class ForgetsWhenClosed(Whole):
    async def close(self) -> None:
        rows = await self.real.page(descending=True, limit=1)
        await self.real.forget(ForgetOrder(at=0.0, segments=tuple(row.segment.id for row in rows)))
        await self.real.close()


class DecidesAnyway(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        return await self.real.write(replace(batch, facts_revision=None))

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        return await self.real.complete(lease, replace(batch, facts_revision=None))


class LooksBeforeItWrites(Whole):
    """The revision is compared, but not in the transaction that writes."""

    async def write(self, batch: Batch) -> WriteResult:
        if batch.facts_revision not in (None, await self.real.facts_revision()):
            raise StaleFacts
        await asyncio.sleep(0.01)
        return await self.real.write(replace(batch, facts_revision=None))


class DropsStaleJobs(Whole):
    async def complete(self, lease: Lease, batch: Batch) -> bool:
        try:
            return await self.real.complete(lease, batch)
        except StaleFacts:
            await self.real.complete(lease, Batch(at=batch.at))
            raise


class ReadsFromTheStart(Whole):
    async def extracted_to(self, session: SessionId) -> int:
        place = await self.real.extracted_to(session)
        segments = await self.real.page(session=session)
        return place if segments else 0


class CountsFilteredFacts(Whole):
    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        found = await self.real.fact_candidates(query)
        return replace(found, documents=len(found.facts))


class FiltersFactsAfterTheLimit(Whole):
    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        found = await self.real.fact_candidates(replace(query, session=None))
        asked = query.session
        kept = [one for one in found.facts if asked is None or one.fact.session in (None, asked)]
        return replace(found, facts=tuple(kept))


class OffersAllFacts(Whole):
    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        wider = replace(query, limit=query.limit + 1 if query.limit else 0)
        return await self.real.fact_candidates(wider)


class KeepsVectorsOfOldWords(Whole):
    def __init__(self, real: Store) -> None:
        super().__init__(real)
        self.vectors: list[FactVectorSet] = []

    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        self.vectors.extend(batch.fact_vectors)
        await self.real.write(Batch(at=batch.at, fact_vectors=tuple(self.vectors)))
        return written


class TakesNothingForJoint(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        facts = tuple(replace(one, joint=False) for one in batch.facts)
        return await self.real.write(replace(batch, facts=facts))


class OverlooksEvidence(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        facts = tuple(replace(one, evidence=()) for one in batch.facts)
        return await self.real.write(replace(batch, facts=facts))


class ForgetsFactsForNow(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        known = {one.id for one in await self.real.facts(superseded=True)}
        again = tuple(
            replace(one, id=FactId(f"{one.id} again")) for one in batch.facts if one.id not in known
        )
        await self.real.write(Batch(at=batch.at, facts=again))
        return written


class RewritesNothing(Whole):
    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        known = await self.real.known([new.segment.id for new in order.segments])
        there = tuple(new.segment.id for new in order.segments if new.segment.id in known)
        return Rewritten(segments=there, bodies=len(order.bodies))


class RewritesOnlyTexts(Whole):
    """The new words are not indexed."""

    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        ids = [new.segment.id for new in order.segments]
        spans = {id_: await self.real.passages(id_) for id_ in ids}
        done = await self.real.rewrite(order)
        await self.real.replace_passages(spans, at=order.at)
        return done


class RewritesWhatChanged(Whole):
    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        bodies = []
        for new in order.bodies:
            held = {one.id: one.body for one in await self.real.held(new.kind, limit=1_000)}
            bodies.append(replace(new, was=held.get(new.id, new.was)))
        return await self.real.rewrite(replace(order, bodies=tuple(bodies)))


class SkipsABody(Whole):
    async def held(self, kind: BodyKind, *, after: str | None = None, limit: int = 100) -> Any:
        page = await self.real.held(kind, after=after, limit=limit)
        return page[1:]


class OverlooksTheBeginning(Whole):
    async def forget(self, order: ForgetOrder) -> Forgotten:
        return await self.real.forget(replace(order, said_after=None))


class NeverMovesOn(Whole):
    async def facts_revision(self) -> int:
        return 0


class MovesOnAlways(Whole):
    asked = 0

    async def facts_revision(self) -> int:
        self.asked += 1
        return await self.real.facts_revision() + self.asked


class Unmoved(Whole):
    """The revision does not grow with some of what is done."""

    hidden = 0

    async def facts_revision(self) -> int:
        return await self.real.facts_revision() - self.hidden

    async def write(self, batch: Batch) -> WriteResult:
        if batch.facts_revision is not None:
            batch = replace(batch, facts_revision=batch.facts_revision + self.hidden)
        return await self.real.write(batch)

    async def hide(self, doing: Coroutine[Any, Any, T]) -> T:
        before = await self.real.facts_revision()
        done = await doing
        self.hidden += await self.real.facts_revision() - before
        return done


class ForgetsUnseen(Unmoved):
    async def forget(self, order: ForgetOrder) -> Forgotten:
        return await self.hide(self.real.forget(order))


class WithdrawsUnseen(Unmoved):
    async def withdraw(self, ids: Sequence[SegmentId], *, at: float) -> int:
        return await self.hide(self.real.withdraw(ids, at=at))


class RewritesUnseen(Unmoved):
    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        return await self.hide(self.real.rewrite(order))


class ClosesForNothing(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        written = await self.real.write(batch)
        for one in batch.facts:
            if one.superseded_by is not None:
                await self.real.write(Batch(at=batch.at, facts=(one,)))
        return written


class ReopensTheOld(Whole):
    async def forget(self, order: ForgetOrder) -> Forgotten:
        done = await self.real.forget(order)
        old = [one for one in await self.real.facts(superseded=True) if not one.current]
        opened = tuple(replace(one, superseded_by=None, valid_to=None) for one in old)
        await self.real.write(Batch(at=order.at, facts=opened))
        return done


class KeepsTheOldSource(Whole):
    async def forget(self, order: ForgetOrder) -> Forgotten:
        before = {one.id: one for one in await self.real.facts(superseded=True)}
        self.before = {**getattr(self, "before", {}), **before}
        return await self.real.forget(order)

    async def facts(self, *asked: Any, **more: Any) -> tuple[Fact, ...]:
        found = await self.real.facts(*asked, **more)
        return tuple(getattr(self, "before", {}).get(one.id, one) for one in found)


class CountsForgottenWords(Whole):
    counted: ClassVar[dict[str, int]] = {}

    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        found = await self.real.fact_candidates(query)
        for word, count in found.document_frequencies.items():
            self.counted[word] = max(count, self.counted.get(word, 0))
        return replace(
            found, document_frequencies={word: self.counted[word] for word in query.words}
        )


class MendsKeys(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        jobs = tuple(
            replace(one, key=one.key.encode("utf-8", "replace").decode()) for one in batch.jobs
        )
        return await self.real.write(replace(batch, jobs=jobs))


class ForgetsOnlyWhatWasSaid(Whole):
    """A session goes message by message: its jobs stay, and facts name it still."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        said = tuple(
            row.segment.id
            for row in await self.real.page(limit=1_000)
            if (row.segment.session in order.sessions if order.sessions else order.by_time)
            and order.said_then(row.segment.said_at)
        )
        by_content = replace(order, sessions=(), said_before=None, said_after=None)
        return await self.real.forget(replace(by_content, segments=(*order.segments, *said)))


class OffersEndedFacts(Whole):
    async def facts(
        self, ids: Any = None, *, superseded: bool = False, **more: Any
    ) -> tuple[Fact, ...]:
        found = await self.real.facts(ids, superseded=True, **more)
        return tuple(one for one in found if superseded or one.superseded_by is None)


class OverlooksSubjects(Whole):
    async def facts(
        self, ids: Any = None, *, superseded: bool = False, **_: Any
    ) -> tuple[Fact, ...]:
        return await self.real.facts(ids, superseded=superseded)


class StopsAtTheUnreadable(Whole):
    async def facts(self, *asked: Any, **more: Any) -> tuple[Fact, ...]:
        found = await self.real.facts(*asked, **more)
        return () if (await self.real.check()).problems else found


class LeavesTheUnreadable(Whole):
    async def write(self, batch: Batch) -> WriteResult:
        broken = (await self.real.check()).problems
        return await self.real.write(replace(batch, facts=()) if broken else batch)


BROKEN = (
    (RewritesNothing, "rewritten_segments_are_found_by_their_new_words_alone"),
    (RewritesNothing, "rewritten_segments_stay_known"),
    (RewritesNothing, "rewritten_bodies_are_read_back"),
    (RewritesOnlyTexts, "rewritten_segments_are_found_by_their_new_words_alone"),
    (RewritesWhatChanged, "what_changed_meanwhile_is_left"),
    (SkipsABody, "every_kind_of_body_is_read_in_pages"),
    (OverlooksTheBeginning, "forgotten_from_a_moment_on"),
    (NeverMovesOn, "revision_grows_with_changes_of_facts"),
    (MovesOnAlways, "revision_grows_with_changes_of_facts"),
    (ForgetsUnseen, "revision_grows_with_changes_of_facts"),
    (ForgetsUnseen, "changed_segments_make_decisions_stale"),
    (WithdrawsUnseen, "changed_segments_make_decisions_stale"),
    (RewritesUnseen, "changed_segments_make_decisions_stale"),
    (ClosesForNothing, "nothing_is_closed_for_what_is_refused"),
    (ReopensTheOld, "closing_outlives_its_successor"),
    (KeepsTheOldSource, "evidence_moves_to_the_twin"),
    (ForgetsPlacesEverywhere, "evidence_moves_to_the_twin"),
    (CountsForgottenWords, "forgotten_facts_are_found_no_more"),
    (MendsKeys, "any_name_can_be_a_job"),
    (ForgetsOnlyWhatWasSaid, "jobs_of_a_forgotten_session_go"),
    (ForgetsOnlyWhatWasSaid, "no_fact_names_a_forgotten_session"),
    (OffersEndedFacts, "superseded_facts_come_on_request"),
    (OverlooksSubjects, "facts_of_subjects_are_read_alone"),
    (StopsAtTheUnreadable, "unreadable_fact_hides_no_other"),
    (LeavesTheUnreadable, "unreadable_fact_can_be_written_again"),
    (DecidesAnyway, "stale_decision_is_refused_whole"),
    (DecidesAnyway, "stale_completion_keeps_the_job"),
    (LooksBeforeItWrites, "one_of_two_decisions_holds"),
    (DropsStaleJobs, "stale_completion_keeps_the_job"),
    (ReadsFromTheStart, "read_place_never_goes_back"),
    (CountsFilteredFacts, "facts_are_found_in_their_session"),
    (FiltersFactsAfterTheLimit, "facts_are_found_in_their_session"),
    (OffersAllFacts, "rare_words_choose_and_ties_go_by_id"),
    (OffersAllFacts, "nearest_facts_are_found"),
    (OffersAllFacts, "facts_are_found_by_type"),
    (OffersAllFacts, "candidates_are_the_right_ones"),
    (KeepsVectorsOfOldWords, "facts_without_vectors_are_told"),
    (TakesNothingForJoint, "joint_fact_goes_with_any_source"),
    (OverlooksEvidence, "evidence_counts_as_a_source"),
    (OverlooksEvidence, "facts_come_back"),
    (ForgetsFactsForNow, "forgotten_fact_stays_away"),
    (WritesInTwo, "batch_is_all_or_nothing"),
    (SaysStoredAgain, "same_batch_twice_is_once"),
    (KeepsUnderAnotherName, "overlapping_batches_add_what_is_new"),
    (KeepsUnderAnotherName, "any_text_is_stored_once"),
    (CountsWordsNotPassages, "repeats_of_a_word_count"),
    (CountsWordsNotPassages, "any_order_of_steps_answers_like_the_model"),
    (FiltersAfterTheLimit, "filters_come_before_limits"),
    (ScoresOneWayOnly, "both_ways_carry_both_scores"),
    (MixesEmbeddersUp, "several_embedders_are_asked_at_once"),
    (AsksOneEmbedder, "several_embedders_are_asked_at_once"),
    (AsksOneEmbedder, "any_order_of_steps_answers_like_the_model"),
    (LeavesOutAfterTheLimit, "what_is_left_out_crowds_nobody_out"),
    (LeavesOutAfterTheLimit, "any_order_of_steps_answers_like_the_model"),
    (CountsWithoutTheLeftOut, "leaving_out_changes_no_statistics"),
    (SeesTheLeftOutAround, "what_is_left_out_is_no_place"),
    (SeesTheLeftOutAround, "any_order_of_steps_answers_like_the_model"),
    (LooksOnePlaceFar, "neighbours_are_counted_in_places"),
    (CountsArrivalsNotPlaces, "neighbours_are_of_the_same_session"),
    (CountsArrivalsNotPlaces, "only_what_is_indexed_is_a_place"),
    (TellsOfStrangersOnly, "asked_ones_are_neighbours_too"),
    (DescribesWithoutCounts, "surroundings_are_described_like_candidates"),
    (WithdrawsForGood, "withdrawn_segments_can_come_back"),
    (WithdrawsForGood, "withdrawing_leaves_all_else"),
    (WithdrawsNothing, "withdrawn_segments_are_gone"),
    (WithdrawsNothing, "any_order_of_steps_answers_like_the_model"),
    (LeavesNoTombstone, "segments_can_be_forgotten"),
    (LeavesNoTombstone, "any_order_of_steps_answers_like_the_model"),
    (ForgetsByIdOnly, "sessions_can_be_forgotten"),
    (ForgetsPlacesEverywhere, "words_said_elsewhere_stay"),
    (ForgetsPlacesEverywhere, "facts_rest_on_words_said_elsewhere"),
    (AddsPlacesUp, "places_narrow_each_other"),
    (AddsPlacesUp, "any_order_of_steps_answers_like_the_model"),
    (LeavesNoTombstone, "batch_of_a_forgotten_place_is_kept_out"),
    (OverlooksTexts, "pieces_that_hold_a_text_go"),
    (OverlooksTexts, "jobs_that_hold_a_text_go"),
    (OverlooksTexts, "states_that_hold_a_text_lose_their_quotes"),
    (OverlooksTexts, "compactions_that_hold_a_text_go"),
    (KeepsCompactions, "compaction_of_a_forgotten_message_goes"),
    (KeepsCompactions, "compactions_of_a_forgotten_session_go"),
    (KeepsCompactions, "compactions_of_forgotten_places_go"),
    (KeepsCompactions, "any_order_of_steps_answers_like_the_model"),
    (ReplacesCompactions, "compaction_that_is_kept_stays_as_it_is"),
    (RecordsStaleCompactions, "compaction_goes_with_its_batch"),
    (KeepsTheCut, "cut_goes_with_a_message_it_covers"),
    (KeepsTheCut, "cut_goes_with_a_place_it_covers"),
    (KeepsTheCut, "write_that_quotes_the_forgotten_is_told"),
    (CleansInSilence, "write_that_quotes_the_forgotten_is_told"),
    (CleansInSilence, "spooled_write_of_the_forgotten_is_told"),
    (CleansInSilence, "state_that_nobody_can_clean_is_told"),
    (CleansInSilence, "refused_compaction_goes_with_a_cleaned_session"),
    (TakesEveryQuoteForCleaned, "ordinary_session_write_is_not_cleaned"),
    (KeepsTheRecordOfNoCut, "refused_compaction_goes_with_a_cleaned_session"),
    (KeepsTheRecordOfNoCut, "refused_compaction_of_a_place_cleans_the_session"),
    (RecordsStaleTurns, "stale_session_takes_its_turns_along"),
    (EnqueuesAgain, "jobs_of_a_known_batch_are_left_out"),
    (TakesAnyNumber, "numbers_out_of_range_are_refused"),
    (IgnoresSpans, "vector_of_an_old_span_is_left_out"),
    (BreaksTiesByArrival, "ties_are_broken_by_id"),
    (WritesLostEffects, "expired_lease_is_handed_on"),
    (ExceedsTheBudget, "budget_is_never_exceeded"),
    (ExceedsTheBudget, "any_claims_stay_within_the_budget"),
    (RoundsTimes, "every_field_comes_back"),
    (WarmsNothing, "warming_brings_back_with_vectors"),
    (ForgetsWhenClosed, "what_was_written_is_there_after_reopening"),
)


@pytest.fixture(autouse=True)
def without_shrinking() -> Iterator[None]:
    """That a case fails is enough here; the smallest one would take long to find."""
    before = settings.get_current_profile_name()
    settings.register_profile(
        "unshrunk", settings.get_profile(before), phases=(Phase.generate,), derandomize=True
    )
    settings.load_profile("unshrunk")
    yield
    settings.load_profile(before)


MOST_CASES = 400


@pytest.mark.parametrize(
    ("broken", "name"), BROKEN, ids=[f"{broken.__name__}-{name}" for broken, name in BROKEN]
)
def test_broken_store_is_noticed(
    broken: type[Whole], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a property ends at the first case that fails, and which that is depends on how they are drawn
    monkeypatch.setattr("tests.store_contract.harness._CASES", MOST_CASES)
    (check,) = [one for one in CONTRACT if getattr(one, "__name__", "") == name]

    async def open_broken(space: str) -> Store:
        real = await SQLiteStore.open(tmp_path / f"{space}.db", space=space)
        return cast(Store, broken(real))

    async def damage_fact(space: str, fact: FactId) -> None:
        file = apsw.Connection(str(tmp_path / f"{space}.db"))
        file.execute("UPDATE fact SET evidence = 'torn' WHERE id = ?", (fact,)).fetchall()
        file.close()

    with pytest.raises(AssertionError):
        asyncio.run(run_check(check, open_broken, damage_fact=damage_fact))
