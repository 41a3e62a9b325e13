"""What is said of vectors that are none."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.values.segment import vector_problem

DIMENSIONS = 3
LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
"""The largest number that 32 bits hold."""
SOUND = struct.pack("<3f", 0.5, -1.0, 0.0)

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def wrong(*vectors: bytes, wanted: int | None = None) -> str:
    wanted = len(vectors) if wanted is None else wanted
    return vector_problem(vectors, wanted=wanted, dimensions=DIMENSIONS)


@given(st.lists(st.tuples(finite, finite, finite), max_size=5))
def test_nothing_is_wrong_with_finite_numbers(vectors: list[tuple[float, ...]]) -> None:
    assert wrong(*(struct.pack("<3f", *numbers) for numbers in vectors)) == ""


def test_the_largest_numbers_do_not_add_up_to_none() -> None:
    assert wrong(struct.pack("<3f", LARGEST, LARGEST, LARGEST)) == ""


@given(
    st.lists(finite, min_size=DIMENSIONS, max_size=DIMENSIONS),
    st.dictionaries(
        st.integers(0, DIMENSIONS - 1), st.sampled_from([math.nan, math.inf, -math.inf]), min_size=1
    ),
)
def test_number_none_is_found_in_any_place(numbers: list[float], nones: dict[int, float]) -> None:
    for at, none in nones.items():
        numbers[at] = none
    assert wrong(SOUND, struct.pack("<3f", *numbers)) == "a vector with values that are not numbers"


@pytest.mark.parametrize(
    ("vectors", "wanted", "said"),
    [
        ([], 1, "0 vectors for one text"),
        ([SOUND, SOUND], 3, "2 vectors for 3 texts"),
        ([SOUND, SOUND[:-4]], 2, "2 dimensions instead of 3"),
        ([SOUND[:-1]], 1, "11 bytes instead of 12"),
    ],
)
def test_counts_are_told(vectors: list[bytes], wanted: int, said: str) -> None:
    assert wrong(*vectors, wanted=wanted) == said
