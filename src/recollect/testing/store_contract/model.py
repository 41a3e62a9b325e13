"""The oracle: what a store must answer, worked out slowly from plain dictionaries.

Only the suite asks it, beside the store that is tested; it keeps nothing and is no store. It
scores with `recollect.search.bm25` and numpy, as the engine does with what a store returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from recollect.search.bm25 import score_document
from recollect.values.batch import Batch
from recollect.values.lookup import Candidate, CandidateQuery, Candidates
from recollect.values.message import MessageId
from recollect.values.segment import NewPassage, NewSegment, SegmentId

SIMILARITY_TOLERANCE = 1e-4
_SCORE_TOLERANCE = 1e-9

Place = tuple[SegmentId, int]


@dataclass(slots=True)
class Model:
    """A memory of one space: what was written, what is cold, what was forgotten."""

    segments: dict[SegmentId, NewSegment] = field(default_factory=dict)
    cold: set[SegmentId] = field(default_factory=set)
    vectors: dict[str, dict[Place, bytes]] = field(default_factory=dict)
    tombstones: set[MessageId] = field(default_factory=set)
    empty_places: set[SegmentId] = field(default_factory=set)
    """Segments that were forgotten by place."""

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
            for one in given.vectors:
                new_segment = self.segments.get(one.segment)
                if new_segment is not None and one.ordinal < len(new_segment.passages):
                    held[one.segment, one.ordinal] = one.values
        return tuple(stored)

    def forget(self, ids: Iterable[SegmentId], *, by_place: bool = False) -> None:
        """Remove segments and what rests on them."""
        for one in ids:
            gone = self.segments.pop(one, None)
            if gone is None:
                continue
            if by_place:
                self.empty_places.add(one)
            else:
                self.tombstones.add(gone.segment.message_id)
            self.cold.discard(one)
            for held in self.vectors.values():
                for ordinal in range(len(gone.passages)):
                    held.pop((one, ordinal), None)

    def evict_to(self, max_segments: int) -> int:
        """Move what was said first to cold, until so many are warm; noise does not count."""
        warm = [
            new.segment
            for id_, new in self.segments.items()
            if id_ not in self.cold and new.segment.noise is None
        ]
        warm.sort(key=lambda kept: kept.said_at)
        gone = warm[: max(0, len(warm) - max_segments)]
        self.cold |= {kept.id for kept in gone}
        return len(gone)

    def evict_before(self, said_before: float) -> int:
        """Move what was said before then to cold."""
        gone = {
            id_
            for id_, new in self.segments.items()
            if new.segment.said_at < said_before and new.segment.noise is None
        } - self.cold
        self.cold |= gone
        return len(gone)

    def expect(self, query: CandidateQuery, answer: Candidates) -> None:
        """Hold an answer of the store against what is known here."""
        warm = list(self._passages(self.cold))
        total = sum(len(passage.words) for _, _, passage in warm)
        assert answer.documents == len(warm)
        assert np.isclose(answer.average_length, total / len(warm) if warm else 0.0, rtol=1e-9)
        frequencies = {
            word: sum(word in passage.words for _, _, passage in warm) for word in query.words
        }
        for word in query.words:
            assert answer.document_frequencies.get(word, 0) == frequencies[word], word
        found = {(one.segment, one.ordinal): one for one in answer.passages}
        assert len(found) == len(answer.passages), "a passage stands twice in the answer"
        if not query.cold:
            assert len(found) <= query.lexical_limit + query.vector_limit
            assert answer.cold_searched == 0
        scores: dict[Place, float] = {}
        similarities: dict[Place, float] = {}
        for new, ordinal, passage in self._passages(set() if query.cold else self.cold):
            if not _wanted(new, query):
                continue
            place = (new.segment.id, ordinal)
            counts = Counter(word for word in passage.words if word in frequencies)
            score = score_document(
                term_counts=counts,
                length=len(passage.words),
                average_length=answer.average_length,
                document_frequencies=frequencies,
                documents=len(warm),
                query=query.words,
            )
            if counts:
                scores[place] = score
            similarity = self._similarity(place, query)
            if similarity is not None:
                similarities[place] = similarity
            if (candidate := found.pop(place, None)) is not None:
                _compare(candidate, new, passage, counts, similarity)
                assert candidate.cold == (new.segment.id in self.cold)
        assert not found, "passages that the query does not ask for"
        places = {(one.segment, one.ordinal) for one in answer.passages}
        _holds_best(places, scores, query.lexical_limit, _SCORE_TOLERANCE)
        _holds_best(places, similarities, query.vector_limit, SIMILARITY_TOLERANCE)

    def _passages(self, left_out: set[SegmentId]) -> Iterable[tuple[NewSegment, int, NewPassage]]:
        for id_, new in self.segments.items():
            if id_ not in left_out:
                for ordinal, passage in enumerate(new.passages):
                    yield new, ordinal, passage

    def _similarity(self, place: Place, query: CandidateQuery) -> float | None:
        if query.vector is None:
            return None
        values = self.vectors.get(query.vector.embedder, {}).get(place)
        return None if values is None else cosine(values, query.vector.values)


def cosine(one: bytes, other: bytes) -> float:
    """The cosine of two vectors in double precision."""
    first = np.frombuffer(one, "<f4").astype(np.float64)
    second = np.frombuffer(other, "<f4").astype(np.float64)
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _wanted(new: NewSegment, query: CandidateQuery) -> bool:
    kept = new.segment
    return (
        (query.session is None or kept.session == query.session)
        and (query.said_after is None or kept.said_at > query.said_after)
        and (query.said_before is None or kept.said_at < query.said_before)
    )


def _compare(
    candidate: Candidate,
    new: NewSegment,
    passage: NewPassage,
    counts: Counter[str],
    similarity: float | None,
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
    if similarity is None:
        assert candidate.similarity is None
    else:
        assert candidate.similarity is not None, "found by words, it has its similarity too"
        assert abs(candidate.similarity - similarity) <= SIMILARITY_TOLERANCE


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
