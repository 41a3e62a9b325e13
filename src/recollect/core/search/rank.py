"""Ranks candidates for a question, and explains each rank. A score combines words and vectors.
Neighbors, the surrounding conversation, speaker, role, date and standing instructions add points.
Age can subtract points (docs/contributing/sources.md). Ties are ordered by segment and position."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from typing import Final, get_args

from recollect.core.search.bm25 import score_passages, word_worths
from recollect.core.search.dates import TimeWindow
from recollect.core.search.question import Question
from recollect.core.search.statements import STANDING_WORD
from recollect.core.values.recall import (
    Candidate,
    Candidates,
    EmbedderKind,
    Hit,
    Neighbour,
    PartName,
    ScorePart,
    Surroundings,
)
from recollect.core.values.segment import SegmentId

SPEAKER_POINTS: Final = 0.3  # +2 points (ranking.md, Parts of a score)
ROLE_POINTS: Final = 0.4  # +9 to +13 points on BEAM (ranking.md)
DATE_POINTS: Final = 0.4  # +1.5 points on LoCoMo (ranking.md)
STANDING_POINTS: Final = 0.4  # +3 points on BEAM (ranking.md)
STANDING_MOST: Final = 8
"""Limit of standing instructions in a ranking, because a memory of years contains many."""
RULE_SHARE: Final = 0.3  # +5 points in `bench live`, with the next two (ranking.md)
CALL_SHARE: Final = 0.3  # see RULE_SHARE
RESULT_SHARE: Final = 0.15
"""In an explicit search in a session with tools, decisions gain this share of the best score, and a
tool's calls and output lose it (docs/contributing/ranking.md)."""
WIDE_SHARE: Final = 0.7  # not measured; a window that holds most passages says nothing
NEAREST_SHARE: Final = 0.8
"""Tool output counts as near if the message next to it has this share of the best score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEvidence:
    """Evidence for a passage besides words and vectors."""

    speakers: frozenset[str]
    """People that the question names, only in a chat between people."""
    lifts_user: bool
    windows: tuple[TimeWindow, ...] = field(default=())
    between_people: bool = False
    """True if no candidate is an assistant's message."""


def _gather_evidence(question: Question, passages: Sequence[Candidate]) -> SearchEvidence:
    # in sessions with tools, the answer is as often in a tool's output as in a message
    has_tools = any(passage.tool is not None for passage in passages)
    between_people = all(passage.role != "assistant" for passage in passages)
    return SearchEvidence(
        speakers=frozenset(question.speakers if between_people else ()),
        lifts_user=not between_people and not has_tools and not question.asks_assistant,
        windows=_narrow_windows(question.windows, passages),
        between_people=between_people,
    )


def _standing_points(passages: Sequence[Candidate], scores: Sequence[float]) -> list[float]:
    standing = [index for index, passage in enumerate(passages) if STANDING_WORD in passage.counts]
    if not standing:
        return [0.0] * len(passages)
    standing.sort(key=lambda index: (-round(scores[index], 6), passages[index].segment))
    lifted_indexes = set(standing[:STANDING_MOST])
    return [STANDING_POINTS if index in lifted_indexes else 0.0 for index in range(len(passages))]


def _date_reason(windows: Sequence[TimeWindow], passage: Candidate) -> str:
    for window in windows:
        if window.start <= passage.said_at <= window.end:
            return f"said {window.phrase}"
        if any(word in passage.counts for word in window.words):
            return f"speaks of {window.phrase}"
    return ""


def _narrow_windows(
    windows: Sequence[TimeWindow], passages: Sequence[Candidate]
) -> tuple[TimeWindow, ...]:
    inside = sum([bool(_date_reason(windows, passage)) for passage in passages]) if windows else 0
    return tuple(windows) if 0 < inside <= WIDE_SHARE * len(passages) else ()


VECTOR_SHARES: Final[Mapping[tuple[EmbedderKind, ...], tuple[float, ...]]] = {
    ("hash",): (0.2,),
    ("static",): (0.5,),
    ("onnx",): (0.5,),
    ("remote",): (0.5,),
    ("onnx", "static"): (0.4, 0.2),
    ("static", "onnx"): (0.2, 0.4),
}
_WITHOUT_VECTOR: Final = 0.8
"""Factor on the word score that replaces the vector score of a passage without a vector."""
_OF_SEVERAL: Final = 0.6  # as for the two models that were measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Scores of all passages by words and vectors, in the passages' order."""

    words: list[float] = field(repr=False)
    vectors: list[float] = field(repr=False)
    scores: list[float] = field(repr=False)


def vector_shares(kinds: Sequence[EmbedderKind]) -> tuple[float, ...]:
    """Return the weight of each embedder's vector. The weight of words is 1 minus these weights."""
    several = tuple(_OF_SEVERAL / len(kinds) for _ in kinds)
    return VECTOR_SHARES.get(tuple(kinds), several)


def fuse(
    passages: Sequence[Candidate],
    statistics: Candidates,
    words: Sequence[str],
    weighing: Weighing,
) -> Fused:
    """Combine word scores and similarities per passage."""
    shares = weighing.vector_shares
    raw = score_passages(passages, statistics, words)
    best = max(raw, default=0.0) or 1.0
    by_words = [score / best for score in raw]
    by_vectors = [
        similarity if similarity is not None else sum(shares) * _WITHOUT_VECTOR * lexical
        for similarity, lexical in zip(_by_vectors(passages, weighing), by_words, strict=True)
    ]
    text_share = 1.0 - sum(shares)
    scores = [
        text_share * lexical + similarity
        for lexical, similarity in zip(by_words, by_vectors, strict=True)
    ]
    return Fused(words=by_words, vectors=by_vectors, scores=scores)


def _nearness(held: Sequence[float | None], mean: float) -> list[float | None]:
    """Return how near each passage is to the question by one embedder's similarities: 1 for the
    nearest, 0 if no nearer than unrelated texts are (`Scale.mean`), None without a vector. That
    mean differs between embedders, from 0 to .5."""
    top = max([similarity for similarity in held if similarity is not None], default=0.0) - mean
    if top <= 0:
        return [None if similarity is None else 0.0 for similarity in held]
    return [
        None if similarity is None else max(0.0, (similarity - mean) / top) for similarity in held
    ]


def _by_vectors(passages: Sequence[Candidate], weighing: Weighing) -> list[float | None]:
    """Combine the nearness of each passage; None if it has no vector. The weight of a missing
    vector is divided among the other vectors. Working embedder by embedder takes a quarter of the
    time of working passage by passage."""
    points = [0.0] * len(passages)
    weights = [0.0] * len(passages)
    means = weighing.means or (0.0,) * len(weighing.kinds)
    shares = weighing.vector_shares
    for index, (share, mean) in enumerate(zip(shares, means, strict=True)):
        near = _nearness([passage.similarities[index] for passage in passages], mean)
        points = [
            sofar + share * (closeness or 0.0)
            for sofar, closeness in zip(points, near, strict=True)
        ]
        weights = [
            weight if closeness is None else weight + share
            for weight, closeness in zip(weights, near, strict=True)
        ]
    total = sum(shares)
    return [
        sofar * total / weight if weight else None
        for sofar, weight in zip(points, weights, strict=True)
    ]


NEIGHBOUR_SHARE: Final = 0.5  # +3 to +4 points (ranking.md, Parts of a score)
SECOND_SHARE: Final = 0.8  # see NEIGHBOUR_SHARE
STRETCH_SEGMENTS: Final = 24  # +1 to +4 points in chats (ranking.md)
STRETCH_SHARE: Final = 0.2  # see STRETCH_SEGMENTS
_STRETCH_SATURATION: Final = 3.0
"""BM25's k1 for adjacent messages as one text: repeated words count more than in a passage."""


def _best_of_segments(
    passages: Sequence[Candidate], scores: Sequence[float]
) -> dict[SegmentId, float]:
    best: dict[SegmentId, float] = {}
    for passage, score in zip(passages, scores, strict=True):
        if score > best.get(passage.segment, -1.0):
            best[passage.segment] = score
    return best


def _lift_neighbors(
    best: Mapping[SegmentId, float], neighbors: Iterable[tuple[SegmentId, SegmentId, int]]
) -> dict[SegmentId, float]:
    """Return the points that each segment gets from its best neighbor."""
    lent: dict[SegmentId, float] = {}
    for taker, lender, distance in neighbors:
        points = NEIGHBOUR_SHARE * best.get(lender, 0.0) * SECOND_SHARE ** (distance - 1)
        if points > lent.get(taker, 0.0):
            lent[taker] = points
    return lent


def _lending(
    neighbours: Iterable[Neighbour], passages: Sequence[Candidate]
) -> Iterator[tuple[SegmentId, SegmentId, int]]:
    """Yield (segment that gets points, segment that it gets them from, distance). A tool's output
    gets no points from a user's message directly after it."""
    tools = {passage.segment for passage in passages if passage.tool is not None}
    users = {
        passage.segment for passage in passages if passage.tool is None and passage.role == "user"
    }
    for neighbour in neighbours:
        first, second = neighbour.segment, neighbour.of
        if neighbour.distance > 0:
            first, second = second, first
        yield second, first, abs(neighbour.distance)
        if not (first in tools and second in users):
            yield first, second, abs(neighbour.distance)


def _stretch_of(passage: Candidate) -> tuple[str, int]:
    return passage.session, passage.sequence // STRETCH_SEGMENTS


def _lift_stretches(
    passages: Sequence[Candidate], statistics: Candidates, words: Sequence[str]
) -> dict[tuple[str, int], float]:
    counters: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for passage in passages:
        counters[_stretch_of(passage)].update(passage.counts)
    worths = word_worths(words, statistics.document_frequencies, statistics.documents)
    scores = {
        stretch: math.fsum(
            worth * counts[word] / (counts[word] + _STRETCH_SATURATION)
            for word, worth in worths.items()
            if counts[word]
        )
        for stretch, counts in counters.items()
    }
    lowest, highest = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    if highest <= lowest:
        return {}
    return {
        stretch: STRETCH_SHARE * (score - lowest) / (highest - lowest)
        for stretch, score in scores.items()
    }


_DAY_SECONDS: Final = 86_400.0  # decay is per day
_DECIMALS: Final = 6
"""Scores are rounded before they are compared, because stores agree only in seven digits."""

_PARTS: Final[tuple[PartName, ...]] = get_args(PartName)
_ROLE: Final = _PARTS.index("role")
_WHY: Final[Mapping[PartName, str]] = {
    "neighbors": "a message next to it answers",
    "stretch": "stated while the conversation was about the question",
    "speaker": "its speaker is named",
    "role": "the user's own words",
    "standing": "a lasting instruction",
    "age": "the message is older",
    "kind": "it states a decision, or is a tool's call or output",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """Weights of a search."""

    kinds: tuple[EmbedderKind, ...] = ()
    shares: tuple[float, ...] | None = None
    means: tuple[float, ...] = ()
    """Similarity of unrelated texts by each embedder; 0 if not given."""
    decay_per_day: float = 1.0
    now: float = 0.0

    @property
    def vector_shares(self) -> tuple[float, ...]:
        """The weight of each embedder's vector. The weight of words is 1 minus these weights."""
        return vector_shares(self.kinds) if self.shares is None else self.shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Passages, best first."""

    passages: tuple[Candidate, ...] = field(repr=False)
    scores: tuple[float, ...] = field(repr=False)
    _parts: tuple[tuple[float, ...], ...] = field(repr=False)
    _evidence: SearchEvidence = field(repr=False)
    _question: Question = field(repr=False)
    _weighing: Weighing = field(default_factory=Weighing, repr=False)

    def at_least(self, least: float) -> Ranking:
        """Return a ranking of the passages whose words and vectors score at least `least`."""
        return self._only([p[0] + p[1] >= least for p in self._parts])

    def without_stray_results(self, share: float, kept_ids: AbstractSet[SegmentId]) -> Ranking:
        """Return the ranking without tool output, except output whose words and vectors score at
        least `share` of the best, and output of the segments in `beside`."""
        own_points = [points[0] + points[1] for points in self._parts]
        least = share * max(own_points, default=0.0)
        return self._only(
            [
                passage.tool is None or worth >= least or passage.segment in kept_ids
                for passage, worth in zip(self.passages, own_points, strict=True)
            ]
        )

    @property
    def matches(self) -> tuple[float, ...]:
        """The scores without the points for a role, which every message of the user gets."""
        return tuple(
            [score - points[_ROLE] for score, points in zip(self.scores, self._parts, strict=True)]
        )

    @property
    def nearness(self) -> list[float]:
        """How near the messages are in meaning by the first embedder, 1 at most; 0 for tool output,
        and without vectors."""
        mean = self._weighing.means[0] if self._weighing.means else 0.0
        held = [
            one.similarities[0] if one.tool is None and one.similarities else None
            for one in self.passages
        ]
        return [closeness or 0.0 for closeness in _nearness(held, mean)]

    def by_kind(self, rule_strength: Callable[[Candidate], float]) -> Ranking:
        """Return a ranking with decisions and rules raised by `rule_strength` (0 to 1), and tool
        calls and output lowered."""
        best = max(self.scores, default=0.0)
        lowered = {"assistant": -CALL_SHARE * best}
        points = [
            best * (RULE_SHARE * rule_strength(passage))
            if passage.tool is None
            else lowered.get(passage.role, -RESULT_SHARE * best)
            for passage in self.passages
        ]
        parts = [
            (*point_parts[:-1], kind_points)
            for point_parts, kind_points in zip(self._parts, points, strict=True)
        ]
        scores = [
            round(score + kind_points, _DECIMALS)
            for score, kind_points in zip(self.scores, points, strict=True)
        ]
        order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
        return replace(self, scores=tuple(scores), _parts=tuple(parts)).select(order)

    def without_matching(self, unwanted: Callable[[Candidate], bool]) -> Ranking:
        return self._only([not unwanted(passage) for passage in self.passages])

    def select(self, indexes: Sequence[int]) -> Ranking:
        """Return a ranking of these passages only, in this order."""
        return replace(
            self,
            passages=tuple([self.passages[index] for index in indexes]),
            scores=tuple([self.scores[index] for index in indexes]),
            _parts=tuple([self._parts[index] for index in indexes]),
        )

    def _only(self, wanted: Sequence[bool]) -> Ranking:
        return self.select(list(compress(range(len(wanted)), wanted)))

    def hits(self, max_hits: int) -> tuple[Hit, ...]:
        """Return the first passages as hits, with the reasons for their rank."""
        ranked = zip(self.passages, self.scores, self._parts, strict=True)
        return tuple(
            Hit(
                passage=passage,
                score=score,
                parts=tuple(
                    ScorePart(name=name, points=points, why=self._explain_part(name, passage))
                    for name, points in zip(_PARTS, part_points, strict=True)
                    if points
                ),
            )
            for passage, score, part_points in islice(ranked, max_hits)
        )

    def _explain_part(self, name: PartName, passage: Candidate) -> str:
        match name:
            case "words":
                query_words = self._question.words
                count = sum(bool(passage.counts.get(word)) for word in query_words)
                return f"{count} of {len(query_words)} words"
            case "vector":
                similarity_notes = [
                    f"{similarity:.2f} by {kind}"
                    for kind, similarity in zip(
                        self._weighing.kinds, passage.similarities, strict=False
                    )
                    if similarity is not None
                ]
                return ", ".join(similarity_notes) or "it has no vector yet, so its words count"
            case "date":
                return _date_reason(self._evidence.windows, passage)
        return _WHY[name]


def seeds(
    question: Question, candidates: Candidates, weighing: Weighing, *, max_seeds: int
) -> tuple[SegmentId, ...]:
    """Return the segments whose neighbors should be read: the best by words and vectors alone."""
    fused_scores = fuse(candidates.passages, candidates, question.words, weighing)
    best = _best_of_segments(candidates.passages, fused_scores.scores)
    ordered_segments = sorted(
        [(-round(score, _DECIMALS), segment) for segment, score in best.items()]
    )
    return tuple([segment for _, segment in ordered_segments[:max_seeds]])


def rank(
    question: Question, candidates: Candidates, surroundings: Surroundings, weighing: Weighing
) -> Ranking:
    """Rank all candidates, best first."""
    known_keys = {(passage.segment, passage.ordinal) for passage in candidates.passages}
    passages = candidates.passages + tuple(
        [near for near in surroundings.passages if (near.segment, near.ordinal) not in known_keys]
    )
    evidence = _gather_evidence(question, passages)
    stretches = (
        _lift_stretches(passages, candidates, question.words) if evidence.between_people else {}
    )
    fused_scores = fuse(passages, candidates, question.words, weighing)
    best = _best_of_segments(passages, fused_scores.scores)
    lent = _lift_neighbors(best, _lending(surroundings.neighbours, passages))
    parts = _parts_of(passages, evidence, weighing, fused_scores, lent, stretches)
    scores = [round(sum(points), _DECIMALS) for points in parts]
    scored_passages = [
        (-score, passage.segment, passage.ordinal, index)
        for index, (passage, score) in enumerate(zip(passages, scores, strict=True))
    ]
    return Ranking(
        passages=passages,
        scores=tuple(scores),
        _parts=tuple(parts),
        _evidence=evidence,
        _question=question,
        _weighing=weighing,
    ).select([index for *_, index in sorted(scored_passages)])


def _parts_of(
    passages: Sequence[Candidate],
    evidence: SearchEvidence,
    weighing: Weighing,
    fused_scores: Fused,
    lent: Mapping[SegmentId, float],
    stretches: Mapping[tuple[str, int], float],
) -> list[tuple[float, ...]]:
    text_share = 1.0 - sum(weighing.vector_shares)
    # One list of points per kind of evidence, because few kinds apply to a question.
    zeros = [0.0] * len(passages)
    columns = (
        [text_share * share for share in fused_scores.words],
        fused_scores.vectors,
        [lent.get(passage.segment, 0.0) for passage in passages] if lent else zeros,
        [stretches.get(_stretch_of(passage), 0.0) for passage in passages] if stretches else zeros,
        [SPEAKER_POINTS * (not evidence.speakers.isdisjoint(p.counts)) for p in passages]
        if evidence.speakers
        else zeros,
        [ROLE_POINTS * (passage.role == "user" and not passage.tool) for passage in passages]
        if evidence.lifts_user
        else zeros,
        [DATE_POINTS * bool(_date_reason(evidence.windows, passage)) for passage in passages]
        if evidence.windows
        else zeros,
        _standing_points(passages, fused_scores.scores),
    )
    if weighing.decay_per_day >= 1.0:
        return list(zip(*columns, zeros, zeros, strict=True))
    days = [max(0.0, weighing.now - passage.said_at) / _DAY_SECONDS for passage in passages]
    ages = [
        sum(points) * (math.pow(weighing.decay_per_day, age) - 1.0)
        for age, *points in zip(days, *columns, strict=True)
    ]
    return list(zip(*columns, ages, zeros, strict=True))


def tool_output_near(ranking: Ranking, surroundings: Surroundings) -> AbstractSet[SegmentId]:
    """Return the tool output next to the messages that match the question best."""
    least = NEAREST_SHARE * max(ranking.scores, default=0.0)
    best = {
        passage.segment
        for passage, score in zip(ranking.passages, ranking.scores, strict=True)
        if score >= least and passage.tool is None
    }
    tools = {passage.segment for passage in ranking.passages if passage.tool is not None}
    lending = _lending(surroundings.neighbours, ranking.passages)
    return {taker for taker, lender, _ in lending if lender in best and taker in tools}
