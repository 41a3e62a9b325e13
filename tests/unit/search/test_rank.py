"""Ranking: what is fused, lent, lifted and aged, and what fits a block."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.search.candidates import DAY, NOW, asking, candidate, found

from recollect.core.search.dates import windows_asked
from recollect.core.search.rank import ROLE_POINTS, SPEAKER_POINTS, Ranking, Weighing, rank
from recollect.core.turn.fill import pack
from recollect.core.values.recall import Candidate, Hit, Surroundings
from recollect.core.values.segment import SegmentId

NOTHING_AROUND = Surroundings()


def ranked(
    question: str, *passages: Candidate, around: Any = NOTHING_AROUND, **how: Any
) -> Ranking:
    return rank(asking(question), found(passages), around, Weighing(**{"now": NOW, **how}))


def names(ranking: Ranking) -> list[str]:
    return [one.segment for one in ranking.passages]


def part(hit: Hit, name: str) -> float:
    return sum(part.points for part in hit.parts if part.name == name)


class TestEvidence:
    def test_the_named_speaker_and_a_standing_instruction_are_lifted(self) -> None:
        ann = candidate("ann", "the crane is green", marks=("by=ann",))
        bob = candidate("bob", "the crane is green", marks=("by=bob",))
        best = ranked("what did Bob say of the crane?", ann, bob).hits(1)[0]
        assert best.passage.segment == "bob"
        assert part(best, "speaker") == pytest.approx(SPEAKER_POINTS)
        model = candidate("model", "the crane is green", role="assistant")
        held = ranked("what did Bob say of the crane?", ann, bob, model).hits(9)
        assert not any(part(hit, "speaker") for hit in held)
        order = candidate("order", "always answer in metric units", marks=("is=standing",))
        other = candidate("other", "we answer in feet")
        hit = ranked("how tall is the tower?", order, other).hits(1)[0]
        assert hit.passage.segment == "order"
        assert part(hit, "standing") > 0

    def test_the_users_words_are_lifted_unless_the_assistants_are_wanted(self) -> None:
        user = candidate("user", "a green crane and more")
        model = candidate("model", "a green crane", role="assistant")
        wanted = ranked("which crane is green?", user, model)
        assert names(wanted) == ["user", "model"]
        assert part(wanted.hits(1)[0], "role") == pytest.approx(ROLE_POINTS)
        asked = ranked("which green crane did you recommend?", user, model)
        assert names(asked) == ["model", "user"]
        # among tools' output the user's words are not what is looked for
        result = candidate("result", "a green crane", role="user", tool="look")
        held = ranked("which crane is green?", user, model, result).hits(9)
        assert not any(part(hit, "role") for hit in held)

    def test_what_was_said_then_or_speaks_of_then_is_lifted(self) -> None:
        then = windows_asked("7 May 2023", asked_at=NOW)[0].start + DAY
        said = candidate("said", "crane", said_at=then)
        means = candidate("means", "crane", marks=("on=2023-05-07",))
        others = [candidate(f"{n}", "crane") for n in range(3)]
        held = {
            h.passage.segment: h
            for h in ranked("crane on 7 May 2023?", said, means, *others).hits(9)
        }
        assert part(held[SegmentId("said")], "date") == part(held[SegmentId("means")], "date") > 0
        assert not any(part(held[one.segment], "date") for one in others)
        assert "2023-05" in next(p.why for p in held[SegmentId("said")].parts if p.name == "date")

    def test_age_lowers_where_that_is_asked_for(self) -> None:
        old = candidate("old", "the green crane", said_at=NOW - 100 * DAY)
        new = candidate("new", "the green crane or two", said_at=NOW)
        coming = candidate("coming", "a crane or three of them", said_at=NOW + 9 * DAY)
        assert names(ranked("green crane", old, new, coming))[0] == "old"
        aged = ranked("green crane", old, new, coming, decay_per_day=0.99)
        assert names(aged)[0] == "new"
        by_name = {hit.passage.segment: hit for hit in aged.hits(9)}
        assert part(by_name[SegmentId("old")], "age") < 0
        assert (
            part(by_name[SegmentId("new")], "age") == part(by_name[SegmentId("coming")], "age") == 0
        )


class TestRank:
    def test_a_score_says_what_it_is_made_of_and_ties_go_by_segment_and_place(self) -> None:
        held = [candidate(name, "crane", ordinal=at) for name in "cab" for at in (1, 0)]
        best = [(one.segment, one.ordinal) for one in ranked("crane", *held).passages]
        assert best == [(name, at) for name in "abc" for at in (0, 1)]
        held = [
            candidate("a", "a green crane", similarities=(0.61, None)),
            candidate("b", "a quay"),
        ]
        held[1] = replace(held[1], similarities=(0.2, 0.1))
        hit = ranked("green crane", *held, kinds=("onnx", "static")).hits(1)[0]
        assert {p.name: p.why for p in hit.parts} == {
            "words": "2 of 2 words",
            "vector": "0.61 by onnx",
        }


def packed(costs: list[int], budget: int, **more: Any) -> list[int]:
    """Which places of a ranking with these costs fit; all of one sitting, of many sources."""
    how: dict[str, Any] = {
        "sitting": lambda at: 0,
        "heading_cost": lambda at: 0,
    }
    return pack(
        range(len(costs)), budget_tokens=budget, cost=lambda at: costs[at], **{**how, **more}
    )


class TestPack:
    def test_a_block_skips_what_does_not_fit_and_heads_a_sitting_once(self) -> None:
        assert packed([50, 60, 40, 30], 100) == [0, 2]
        assert packed([50, 60, 50], 100) == [0, 2]
        assert packed([50], 49) == []
        assert packed([1], -5) == []
        headed = {"sitting": lambda at: at % 2, "heading_cost": lambda at: 20}
        assert packed([10, 10, 10, 10], 80, **headed) == [0, 1, 2, 3]
        assert packed([10, 10, 10, 10], 79, **headed) == [0, 1, 2]
        # a heading that does not fit keeps its sitting out, not the others
        assert packed([10, 60, 10], 60, **headed) == [0, 2]
