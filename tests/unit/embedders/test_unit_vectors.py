"""What every embedder's result is held to."""

from __future__ import annotations

import numpy as np
import pytest

from recollect.adapters.embedders.local import readable, unit_vectors
from recollect.errors import EmbedderError


def check(rows: object, *, count: int = 1, dimensions: int = 2) -> tuple[bytes, ...]:
    return unit_vectors(rows, count=count, dimensions=dimensions, embedder="mine")  # type: ignore[arg-type]


def test_vectors_come_out_at_length_one_as_little_endian_floats() -> None:
    (values,) = check([[3.0, -4.0]])
    np.testing.assert_allclose(np.frombuffer(values, "<f4"), [0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([[np.nan, 1.0]], "no number"),
        ([[np.inf, 1.0]], "no number"),
        ([[0.0, 0.0]], "length zero"),
        ([[1.0, 0.0, 0.0]], "2 dimensions were due"),
        ([[1.0, 0.0], [0.0, 1.0]], "1 vectors"),
        ([], "1 vectors"),
        ([[1.0], [1.0, 2.0]], "different sizes"),
        ([["one", "two"]], "no numbers"),
    ],
)
def test_what_is_no_unit_vector_is_refused_by_the_embedders_name(rows: object, why: str) -> None:
    with pytest.raises(EmbedderError, match=f"mine .*{why}"):
        check(rows)


def test_text_is_cut_and_made_encodable() -> None:
    assert readable("a\udc00b" + "c" * 10, chars=4) == "a\ufffdbc"
    assert readable("plain \U0001f600", chars=100) == "plain \U0001f600"
