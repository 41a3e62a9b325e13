"""One formula, whoever holds the statistics."""

import math

from hypothesis import given
from hypothesis import strategies as st

from recollect.core.search.bm25 import Bm25Index, score_ceiling


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
