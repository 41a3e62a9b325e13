"""Ranks candidates for a question, and can say of each why it stands where it stands.

Owns the order of evidence: words and vectors are fused first, then what stands around lends,
then speaker, role and date lift, and age lowers where that is asked for. Must never read
anything but the values it is given, so that every store ranks alike. What always holds: ties go
by segment and place in it; the points of a hit's parts add up to its score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final, get_args

from recollect.search.evidence import (
    Evidence,
    date_points,
    gather_evidence,
    role_points,
    speaker_points,
    standing_points,
)
from recollect.search.fuse import Fused, fuse, vector_shares
from recollect.search.lift import (
    best_of_segments,
    lift_neighbours,
    lift_stretches,
    stretch_of,
    tools_and_users,
)
from recollect.search.question import Question
from recollect.values.hit import Hit, PartName, ScorePart
from recollect.values.lookup import Candidate, Candidates, EmbedderKind, Surroundings
from recollect.values.segment import SegmentId

_DAY_SECONDS: Final = 86_400.0
_DECIMALS: Final = 6
"""Scores are compared rounded: two stores agree on a cosine to about seven places."""


_PARTS: Final[tuple[PartName, ...]] = get_args(PartName)
_WHY: Final[Mapping[PartName, str]] = {
    "neighbours": "a message beside it answers",
    "stretch": "said where the talk was about it",
    "speaker": "its speaker is named",
    "role": "the user's own words",
    "standing": "an instruction that is to last",
    "age": "it was said some time ago",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """How a search is weighed, where it is not by what was measured."""

    kinds: tuple[EmbedderKind, ...] = ()
    shares: tuple[float, ...] | None = None
    """What each vector weighs; None: by the kinds of embedders."""
    decay_per_day: float = 1.0
    now: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Passages, best first."""

    passages: tuple[Candidate, ...] = field(repr=False)
    scores: tuple[float, ...] = field(repr=False)
    _parts: tuple[tuple[float, ...], ...] = field(repr=False)
    _evidence: Evidence = field(repr=False)
    _question: Question = field(repr=False)
    _kinds: tuple[EmbedderKind, ...] = ()

    def at_least(self, least: float) -> Ranking:
        """Those whose words and vectors alone score at least so much."""
        return self._only([p[0] + p[1] >= least for p in self._parts])

    def near_best(self, share: float) -> Ranking:
        """Those that score at least this share of the best."""
        least = share * max(self.scores, default=0.0)
        return self._only([score >= least for score in self.scores])

    def without_stray_results(self, share: float, beside: AbstractSet[SegmentId]) -> Ranking:
        """Without what tools printed that has neither this share of the best by words and vectors
        of its own, nor stands beside what answers."""
        own = [points[0] + points[1] for points in self._parts]
        least = share * max(own, default=0.0)
        return self._only(
            [
                one.tool is None or worth >= least or one.segment in beside
                for one, worth in zip(self.passages, own, strict=True)
            ]
        )

    def without(self, unwanted: Callable[[Candidate], bool]) -> Ranking:
        """Those that are not unwanted."""
        return self._only([not unwanted(one) for one in self.passages])

    def _only(self, wanted: Sequence[bool]) -> Ranking:
        kept = [at for at, keep in enumerate(wanted) if keep]
        return replace(
            self,
            passages=tuple(self.passages[at] for at in kept),
            scores=tuple(self.scores[at] for at in kept),
            _parts=tuple(self._parts[at] for at in kept),
        )

    def hits(self, most: int) -> tuple[Hit, ...]:
        """The first of them, explained."""
        return tuple([self._hit(at) for at in range(min(most, len(self.passages)))])

    def _hit(self, at: int) -> Hit:
        one = self.passages[at]
        parts = [
            ScorePart(name=name, points=points, why=self._why(name, one))
            for name, points in zip(_PARTS, self._parts[at], strict=True)
            if points
        ]
        return Hit(passage=one, score=self.scores[at], parts=tuple(parts))

    def _why(self, name: PartName, one: Candidate) -> str:
        if name == "words":
            return self._words_said(one)
        if name == "vector":
            return self._vectors_said(one)
        if name == "date":
            return date_points(self._evidence, one)[1]
        return _WHY[name]

    def _words_said(self, one: Candidate) -> str:
        held = [word for word in self._question.words if one.counts.get(word)]
        return f"{len(held)} of {len(self._question.words)} words"

    def _vectors_said(self, one: Candidate) -> str:
        said = [
            f"{similarity:.2f} by {kind}"
            for kind, similarity in zip(self._kinds, one.similarities, strict=False)
            if similarity is not None
        ]
        return ", ".join(said) or "no vector of it yet: by its words"


def seeds(
    question: Question, found: Candidates, weighing: Weighing, *, most: int
) -> tuple[SegmentId, ...]:
    """The segments whose surroundings are worth looking at: the best by words and vectors."""
    fused = fuse(found.passages, found, question.words, _shares(weighing))
    best = best_of_segments(found.passages, fused.scores)
    ordered = sorted([(-round(score, _DECIMALS), segment) for segment, score in best.items()])
    return tuple([segment for _, segment in ordered[:most]])


def rank(
    question: Question, found: Candidates, around: Surroundings, weighing: Weighing
) -> Ranking:
    """All that was found, best first."""
    passages = _together(found.passages, around.passages)
    fused = fuse(passages, found, question.words, _shares(weighing))
    evidence = gather_evidence(question, passages)
    parts = _parts_of(question, found, around, passages, fused, evidence, weighing)
    scores = [round(sum(points), _DECIMALS) for points in parts]
    scored = [
        (-score, one.segment, one.ordinal, at)
        for at, (one, score) in enumerate(zip(passages, scores, strict=True))
    ]
    order = [at for *_, at in sorted(scored)]
    return Ranking(
        passages=tuple([passages[at] for at in order]),
        scores=tuple([scores[at] for at in order]),
        _parts=tuple([parts[at] for at in order]),
        _evidence=evidence,
        _question=question,
        _kinds=weighing.kinds,
    )


def _parts_of(
    question: Question,
    found: Candidates,
    around: Surroundings,
    passages: Sequence[Candidate],
    fused: Fused,
    evidence: Evidence,
    weighing: Weighing,
) -> list[tuple[float, ...]]:
    """The points of every passage, in the order of `PartName`."""
    best = best_of_segments(passages, fused.scores)
    lent = lift_neighbours(best, around.neighbours, *tools_and_users(passages))
    stretches = lift_stretches(passages, found, question.words) if evidence.between_people else {}
    text_share = 1.0 - sum(_shares(weighing))
    # A column for each kind of evidence: most kinds say nothing on most questions.
    zeros = [0.0] * len(passages)
    columns = (
        [text_share * share for share in fused.words],
        fused.vectors,
        [lent.get(one.segment, 0.0) for one in passages] if lent else zeros,
        [stretches.get(stretch_of(one), 0.0) for one in passages] if stretches else zeros,
        [speaker_points(evidence, one) for one in passages] if evidence.speakers else zeros,
        [role_points(evidence, one) for one in passages] if evidence.lifts_user else zeros,
        [date_points(evidence, one)[0] for one in passages] if evidence.windows else zeros,
        standing_points(passages, fused.scores),
    )
    if weighing.decay_per_day >= 1.0:
        return list(zip(*columns, zeros, strict=True))
    ages = [
        _aged(sum(points), one, weighing) for one, *points in zip(passages, *columns, strict=True)
    ]
    return list(zip(*columns, ages, strict=True))


def _aged(score: float, one: Candidate, weighing: Weighing) -> float:
    """What age takes away."""
    days = max(0.0, weighing.now - one.said_at) / _DAY_SECONDS
    return score * (math.pow(weighing.decay_per_day, days) - 1.0)


def _together(found: Sequence[Candidate], around: Sequence[Candidate]) -> tuple[Candidate, ...]:
    known = {(one.segment, one.ordinal) for one in found}
    return (
        *found,
        *[one for one in around if (one.segment, one.ordinal) not in known],
    )


def _shares(weighing: Weighing) -> tuple[float, ...]:
    if weighing.shares is not None:
        return weighing.shares
    return vector_shares(weighing.kinds)
