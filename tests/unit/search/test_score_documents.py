"""Scoring many documents at once says of each what scoring it alone says, to the last bit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.search.bm25 import score_document, score_documents

WORDS = ("crane", "quay", "door", "boat", "keeper")
COUNTS = st.dictionaries(st.sampled_from(WORDS), st.integers(0, 9))
DOCUMENTS = st.lists(st.tuples(COUNTS, st.integers(0, 4_000)), max_size=12)
FREQUENCIES = st.dictionaries(st.sampled_from(WORDS), st.integers(0, 50))
QUERIES = st.lists(st.sampled_from((*WORDS, "unheard")), max_size=8)


@given(held=DOCUMENTS, frequencies=FREQUENCIES, query=QUERIES, average=st.floats(0.0, 500.0))
def test_many_at_once_score_as_each_alone(
    held: list[tuple[dict[str, int], int]],
    frequencies: dict[str, int],
    query: list[str],
    average: float,
) -> None:
    at_once = score_documents(
        [counts for counts, _ in held],
        [length for _, length in held],
        average_length=average,
        document_frequencies=frequencies,
        documents=60,
        query=query,
    )
    alone = [
        score_document(
            term_counts=counts,
            length=length,
            average_length=average,
            document_frequencies=frequencies,
            documents=60,
            query=query,
        )
        for counts, length in held
    ]
    assert at_once == alone
