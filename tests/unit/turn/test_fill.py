"""A block takes the best first, and ends when the rest is far below the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.search.candidates import asking, candidate, found

from recollect.core.search.rank import Ranking, Weighing, rank
from recollect.core.turn.fill import (
    FIRST_SHARE,
    MAX_PER_MESSAGE,
    enough_passages,
    likely_passages,
)
from recollect.core.values.recall import Candidate, Surroundings

NAMES = "abcdefgh"


def ranking(scores: Sequence[float], passages: Sequence[Candidate] = ()) -> Ranking:
    """A ranking with these scores, best first, of one passage per message unless given."""
    held = passages or [candidate(NAMES[at], f"{at} " * 50) for at in range(len(scores))]
    made = rank(asking("which crane?"), found(list(held)), Surroundings(), Weighing())
    places = [(one.segment, one.ordinal) for one in made.passages]
    made = made.select([places.index((one.segment, one.ordinal)) for one in held])
    return replace(made, scores=tuple(scores))


def chosen(made: Ranking, *, by_meaning: bool = False, budget_tokens: int = 1_600) -> list[str]:
    taken = enough_passages(made, budget_tokens, by_meaning=by_meaning)
    return [passage.segment for passage in taken.passages]


def test_after_a_clear_best_passage_nothing_far_below_it_comes() -> None:
    assert chosen(ranking([1.0, FIRST_SHARE / 2, FIRST_SHARE / 3])) == ["a"]
    assert chosen(ranking([1.0, 0.9, FIRST_SHARE / 2])) == ["a", "b"]


def test_the_fuller_the_block_the_nearer_to_the_best_a_passage_must_be() -> None:
    long = [candidate(name, f"{name} " * 1_200) for name in NAMES[:4]]
    just_enough = FIRST_SHARE + 0.007
    assert chosen(ranking([1.0, just_enough, just_enough, just_enough])) == ["a", "b"]
    assert chosen(ranking([1.0, just_enough], long[:2])) == ["a"]
    assert chosen(ranking([1.0, 0.99, 0.7, 0.7], long)) == ["a", "b", "c"]


def test_by_meaning_every_second_passage_is_the_nearest_in_meaning() -> None:
    told = [
        candidate("a", "the crane", similarities=(0.1,)),
        candidate("b", "a crane", similarities=(0.2,)),
        candidate("c", "what lifts the cargo", similarities=(0.9,)),
        candidate("d", "printed", similarities=(0.95,), role="user", tool="psql"),
    ]
    made = ranking([1.0, 0.9, 0.05, 0.04], told)
    assert chosen(made, by_meaning=True) == ["a", "c", "b"], "tool output comes by score alone"
    assert chosen(made) == ["a", "b"]


def test_lines_of_the_user_that_match_nothing_do_not_come() -> None:
    told = [
        candidate("a", "the crane is green"),
        candidate("b", "lunch was late"),
        candidate("c", "the harbor is closed on Sundays"),
        candidate("d", "noted", role="assistant"),
    ]
    made = rank(asking("which crane is green?"), found(told), Surroundings(), Weighing())
    assert chosen(made) == ["a"], "points for the role only order what matches"


@pytest.mark.parametrize("by_meaning", [False, True])
def test_the_block_ends_alike_for_embedders_that_find_everything_similar(by_meaning: bool) -> None:
    def ended(mean: float, spread: float) -> list[str]:
        told = [
            candidate(name, name, similarities=(mean + spread * near,))
            for name, near in zip("abcd", (6, 5, 1, 0), strict=True)
        ]
        weighing = Weighing(kinds=("onnx",), means=(mean,))
        made = rank(asking("which crane?"), found(told), Surroundings(), weighing)
        return chosen(made, by_meaning=by_meaning)

    assert ended(0.05, 0.1) == ended(0.5, 0.05) == ["a", "b"]


@pytest.mark.parametrize("by_meaning", [False, True])
def test_a_message_gives_a_few_passages(by_meaning: bool) -> None:
    one = [candidate("a", f"part {at}", ordinal=at) for at in range(5)]
    made = ranking([1.0] * 5, one)
    assert chosen(made, by_meaning=by_meaning) == ["a"] * MAX_PER_MESSAGE
    assert len(likely_passages(made, 4_000).passages) == MAX_PER_MESSAGE


def test_an_empty_ranking_gives_nothing() -> None:
    assert chosen(ranking([])) == []
