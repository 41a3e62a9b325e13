"""The oracle: what a store must answer, worked out slowly from plain dictionaries.

Only the suite asks it, beside the store that is tested; it keeps nothing and is no store. It
scores with `recollect.core.search.bm25` and numpy, as the engine does with what a store returns.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from recollect.core.ports import Store
from recollect.core.search.bm25 import score_documents
from recollect.core.values.batch import Batch
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.message import MessageId
from recollect.core.values.recall import (
    FILE_SESSIONS,
    Candidate,
    CandidateQuery,
    Candidates,
    Surroundings,
)
from recollect.core.values.segment import NewPassage, NewSegment, Segment, SegmentId

SIMILARITY_TOLERANCE = 1e-4
_SCORE_TOLERANCE = 1e-9
"""How the sessions of memory files begin, as `CandidateQuery.with_files` says."""

Place = tuple[SegmentId, int]


@dataclass(slots=True)
class ReferenceModel:
    """A memory of one space: what was written, and what was forgotten."""

    segments: dict[SegmentId, NewSegment] = field(default_factory=dict)
    vectors: dict[str, dict[Place, bytes]] = field(default_factory=dict)
    tombstones: set[MessageId] = field(default_factory=set)
    empty_places: set[SegmentId] = field(default_factory=set)
    """Segments that were forgotten by place."""
    gone_from: set[MessageId] = field(default_factory=set)
    """Identities of which a segment was forgotten by place."""
    compactions: dict[tuple[str, int], CompactionRecord] = field(default_factory=dict)
    withdrawn: list[CompactionRecord] = field(default_factory=list)
    """Compactions that were forgotten."""

    def write(self, batch: Batch) -> tuple[SegmentId, ...]:
        """Take a batch's segments and vectors; the ids of those that are new."""
        stored: list[SegmentId] = []
        for new in batch.segments:
            kept = new.segment
            gone = kept.message_id in self.tombstones or kept.id in self.empty_places
            if not gone and kept.id not in self.segments:
                self.segments[kept.id] = new
                stored.append(kept.id)
        for given in batch.vectors:
            held = self.vectors.setdefault(given.embedder, {})
            for vector in given.vectors:
                new_segment = self.segments.get(vector.segment)
                if new_segment is not None and vector.ordinal < len(new_segment.passages):
                    held[vector.segment, vector.ordinal] = vector.values
        for record in batch.compactions:
            self._write_compaction(record, batch)
        return tuple(stored)

    def _write_compaction(self, record: CompactionRecord, batch: Batch) -> None:
        refused = {
            new.segment.message_id for new in batch.segments if new.segment.id in self.empty_places
        }
        unsaid = self.gone_from - {new.segment.message_id for new in self.segments.values()}
        if record in self.withdrawn:
            return
        if (self.tombstones | refused | unsaid).isdisjoint(record.about):
            self.compactions.setdefault((record.session, record.number), record)

    def forget(self, ids: Iterable[SegmentId], *, by_place: bool = False) -> int:
        """Remove segments and what rests on them, for good; how many compactions went."""
        removed = self._remove(ids)
        for gone in removed:
            if by_place:
                self.empty_places.add(gone.segment.id)
                self.gone_from.add(gone.segment.message_id)
            else:
                self.tombstones.add(gone.segment.message_id)
        message_ids = {new.segment.message_id for new in self.segments.values()}
        unsaid = {gone.segment.message_id for gone in removed} - message_ids
        places = {(gone.segment.session, gone.segment.message_id) for gone in removed}
        rests = [
            place
            for place, record in self.compactions.items()
            if not unsaid.isdisjoint(record.about)
            or any((record.session, message_id) in places for message_id in record.about)
        ]
        self.withdrawn += [self.compactions.pop(place) for place in rests]
        return len(rests)

    def withdraw(self, ids: Iterable[SegmentId]) -> int:
        """Remove segments until they are written again; returns how many went."""
        return len(self._remove(ids))

    def _remove(self, ids: Iterable[SegmentId]) -> list[NewSegment]:
        removed: list[NewSegment] = []
        for segment_id in ids:
            gone = self.segments.pop(segment_id, None)
            if gone is None:
                continue
            removed.append(gone)
            for vector in self.vectors.values():
                for ordinal in range(len(gone.passages)):
                    vector.pop((segment_id, ordinal), None)
        return removed

    def expect(self, query: CandidateQuery, answer: Candidates) -> None:
        """Hold an answer of the store against what is known here."""
        every = list(self._passages())
        total = sum(len(passage.words) for _, _, passage in every)
        assert answer.documents == len(every)
        assert np.isclose(answer.average_length, total / len(every) if every else 0.0, rtol=1e-9)
        frequencies = {
            word: sum(word in passage.words for _, _, passage in every) for word in query.words
        }
        for word in query.words:
            assert answer.document_frequencies.get(word, 0) == frequencies[word], word
        candidates = {
            (candidate.segment, candidate.ordinal): candidate for candidate in answer.passages
        }
        assert len(candidates) == len(answer.passages), "a passage stands twice in the answer"
        assert len(candidates) <= query.lexical_limit + query.vector_limit * len(query.vectors)
        scores: dict[Place, float] = {}
        similarities: list[dict[Place, float]] = [{} for _ in query.vectors]
        for new, ordinal, passage in every:
            if not _wanted(new, query):
                continue
            place = (new.segment.id, ordinal)
            counts = _counts(passage, query)
            (score,) = score_documents(
                [counts],
                [len(passage.words)],
                average_length=answer.average_length,
                document_frequencies=frequencies,
                documents=len(every),
                query=query.words,
            )
            if counts:
                scores[place] = score
            cosines = self._similarities(place, query)
            for similarity, cosine_ in zip(similarities, cosines, strict=True):
                if cosine_ is not None:
                    similarity[place] = cosine_
            if (candidate := candidates.pop(place, None)) is not None:
                _compare(candidate, new, passage, counts, cosines)
        assert not candidates, "passages that the query does not ask for"
        places = {(candidate.segment, candidate.ordinal) for candidate in answer.passages}
        _holds_best(places, scores, query.lexical_limit, _SCORE_TOLERANCE)
        for similarity in similarities:
            _holds_best(places, similarity, query.vector_limit, SIMILARITY_TOLERANCE)

    def expect_around(
        self,
        ids: Sequence[SegmentId],
        query: CandidateQuery,
        answer: Surroundings,
        *,
        reach: int = 2,
        passages_each: int = 3,
    ) -> None:
        """Hold what a store says of the surroundings of segments against what is known here."""
        neighbours: dict[tuple[SegmentId, SegmentId], int] = {}
        for segment_id in dict.fromkeys(ids):
            if segment_id in self.segments:
                behind, before = self._walks(segment_id, query)
                for distance, near in enumerate(behind[:reach], 1):
                    neighbours[near, segment_id] = distance
                for distance, near in enumerate(before[:reach], 1):
                    neighbours[near, segment_id] = -distance
        told = {
            (neighbour.segment, neighbour.of): neighbour.distance for neighbour in answer.neighbours
        }
        assert len(told) == len(answer.neighbours), "a neighbour is told twice"
        assert told == neighbours
        candidates = {
            (candidate.segment, candidate.ordinal): candidate for candidate in answer.passages
        }
        assert len(candidates) == len(answer.passages), "a passage stands twice in the answer"
        for near in {near for near, _ in neighbours}.difference(ids):
            new = self.segments[near]
            for ordinal, passage in enumerate(new.passages[:passages_each]):
                candidate = candidates.pop((near, ordinal), None)
                assert candidate is not None, "a passage of a neighbour is missing"
                cosines = self._similarities((near, ordinal), query)
                _compare(candidate, new, passage, _counts(passage, query), cosines)
        assert not candidates, "passages that are no neighbour's first ones"

    def _walks(
        self, start: SegmentId, query: CandidateQuery
    ) -> tuple[list[SegmentId], list[SegmentId]]:
        """The places of a session behind a segment and those before it, the nearest first."""
        session = self.segments[start].segment.session
        walk = [
            id_
            for id_, new in self.segments.items()
            if id_ == start or (new.segment.session == session and self._is_place(id_, query))
        ]
        at = walk.index(start)
        return walk[at + 1 :], walk[:at][::-1]

    def _is_place(self, id_: SegmentId, query: CandidateQuery) -> bool:
        new = self.segments[id_]
        indexed = new.segment.noise is None and bool(new.passages)
        return indexed and id_ not in query.leave_out

    def _passages(self) -> Iterable[tuple[NewSegment, int, NewPassage]]:
        for new in self.segments.values():
            for ordinal, passage in enumerate(new.passages):
                yield new, ordinal, passage

    def _similarities(self, place: Place, query: CandidateQuery) -> tuple[float | None, ...]:
        held = [self.vectors.get(near.embedder, {}).get(place) for near in query.vectors]
        return tuple(
            None if values is None else cosine(values, near.values)
            for values, near in zip(held, query.vectors, strict=True)
        )


def cosine(raw: bytes, other: bytes) -> float:
    """The cosine of two vectors in double precision."""
    first = np.frombuffer(raw, "<f4").astype(np.float64)
    second = np.frombuffer(other, "<f4").astype(np.float64)
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _wanted(new: NewSegment, query: CandidateQuery) -> bool:
    kept = new.segment
    return (
        (query.session is None or kept.session == query.session or _asked_file(kept, query))
        and (query.said_after is None or kept.said_at > query.said_after)
        and (query.said_before is None or kept.said_at < query.said_before)
        and kept.id not in query.leave_out
    )


def _asked_file(kept: Segment, query: CandidateQuery) -> bool:
    return query.with_files and kept.session.startswith(FILE_SESSIONS)


def _counts(passage: NewPassage, query: CandidateQuery) -> Counter[str]:
    return Counter(word for word in passage.words if word in query.words)


def _compare(
    candidate: Candidate,
    new: NewSegment,
    passage: NewPassage,
    counts: Counter[str],
    similarities: tuple[float | None, ...],
) -> None:
    """A candidate carries what scoring needs, by whatever way it was found."""
    kept = new.segment
    assert {word: count for word, count in candidate.counts.items() if count} == dict(counts)
    assert candidate.length == len(passage.words)
    assert (candidate.start, candidate.end) == (passage.start, passage.end)
    assert (candidate.key, candidate.session) == (kept.key, kept.session)
    assert (candidate.role, candidate.trust, candidate.tool) == (kept.role, kept.trust, kept.tool)
    assert candidate.said_at == kept.said_at
    assert candidate.sequence > 0
    assert len(candidate.similarities) == len(similarities), "one for each asked vector"
    for said, similarity in zip(candidate.similarities, similarities, strict=True):
        if similarity is None:
            assert said is None
        else:
            assert said is not None, "found in another way, it has its similarity too"
            assert abs(said - similarity) <= SIMILARITY_TOLERANCE


def _holds_best(
    places: set[Place], values: dict[Place, float], limit: int, tolerance: float
) -> None:
    """The answer holds the `limit` best; which of several equal ones is left open."""
    ranked: Sequence[float] = sorted(values.values(), reverse=True)
    wanted = min(limit, len(ranked))
    if not wanted:
        return
    worst = ranked[wanted - 1]
    missing = {place for place, value in values.items() if value > worst + tolerance} - places
    assert not missing, f"{len(missing)} of the best {limit} are missing"
    near = sum(value >= worst - tolerance for place, value in values.items() if place in places)
    assert near >= wanted, f"only {near} of the best {wanted} were found"


async def ask(store: Store, model: ReferenceModel, query: CandidateQuery) -> Candidates:
    """What the store answers, which has to be what the model says."""
    candidates = await store.candidates(query)
    model.expect(query, candidates)
    return candidates
