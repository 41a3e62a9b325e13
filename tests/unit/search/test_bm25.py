"""One formula, whoever holds the statistics."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.search.bm25 import Bm25Index, score_ceiling

DOCUMENTS = [
    ["webhook", "payment", "retri"],
    ["payment", "payment", "fail", "log", "log"],
    ["cat", "dog"],
    ["cat", "dog"],
]


def _ceiling(index: Bm25Index, query: list[str]) -> float:
    return score_ceiling(
        document_frequencies=index.document_frequencies, documents=index.documents, query=query
    )


def _by_hand(words: list[str], documents: list[list[str]], query: list[str]) -> float:
    average = sum(map(len, documents)) / len(documents)
    score = 0.0
    for word in dict.fromkeys(query):
        held = sum(word in each for each in documents)
        worth = math.log1p((len(documents) - held + 0.5) / (held + 0.5))
        damping = 1.2 * (0.25 + 0.75 * (len(words) / average if average else 1.0))
        score += worth * (words.count(word) * 2.2 / (words.count(word) + damping))
    return score


def test_scores_are_those_of_the_formula_with_the_best_first_and_ties_by_position() -> None:
    # 4 documents of 3, 5, 2 and 2 words: the mean is 3; "payment" is in 2 of them
    worth = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    first = worth * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 3))
    second = worth * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 5 / 3))
    scores = Bm25Index.build(DOCUMENTS).scores(["payment"])
    assert scores == pytest.approx([first, second, 0.0, 0.0])
    index = Bm25Index.build(DOCUMENTS)
    assert [position for position, _ in index.top(["dog"], 5)] == [2, 3]
    assert [position for position, _ in index.top(["payment", "webhook"], 1)] == [0]
    assert Bm25Index.build([]).scores(["cat"]) == []
    assert Bm25Index.build([[], []]).scores(["cat"]) == [0.0, 0.0]
    index = Bm25Index.build(DOCUMENTS)
    assert index.scores([]) == [0.0] * 4
    assert 0.0 / _ceiling(index, []) == 0.0
    index = Bm25Index.build(DOCUMENTS)
    known = index.scores(["webhook"])[0] / _ceiling(index, ["webhook"])
    half_known = index.scores(["webhook", "zebra"])[0] / _ceiling(index, ["webhook", "zebra"])
    assert 0.0 < half_known < known / 2 < 0.5
    full_worth = math.log(1 + (4 + 0.5) / 0.5) * 2.2
    assert _ceiling(index, ["zebra"]) == pytest.approx(full_worth)


word = st.sampled_from([f"w{number}" for number in range(12)])
documents = st.lists(st.lists(word, max_size=30), max_size=12)
query = st.lists(word, max_size=8)


@given(documents, query)
def test_any_index_agrees_with_the_formula_to_the_last_bit_and_stays_below_its_ceiling(
    documents: list[list[str]], query: list[str]
) -> None:
    index = Bm25Index.build(documents)
    assert index.scores(query) == [_by_hand(words, documents, query) for words in documents]
    for score in index.scores(query):
        assert 0.0 <= score / _ceiling(index, query) < 1.0
