"""The hash embedder: its definition, which vectors of years ago rest on."""

import asyncio
import hashlib
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recollect.adapters.embedders.local import HASH_MAX_CHARS, HashEmbedder, readable, unit_vectors
from recollect.errors import EmbedderError


def embed(*texts: str, embedder: HashEmbedder | None = None) -> np.ndarray:
    found = asyncio.run((embedder or HashEmbedder()).embed(texts))
    return np.array([np.frombuffer(one, "<f4") for one in found])


def by_definition(text: str) -> np.ndarray:
    text = re.sub(r"\s+", " ", text[:2000].lower())
    spelled = (c if c.isalnum() or c.isspace() or c in "@.+-" else " " for c in text)
    text = "".join(spelled).strip()
    padded = f" {text} "
    grams = [padded[at : at + 3] for at in range(len(padded) - 2)] if len(text) > 3 else [text]
    row = np.zeros(384)
    for gram in grams if text else ():
        digest = hashlib.sha256(gram.encode()).digest()
        row[int.from_bytes(digest[:4], "little") % 384] += -1 if digest[4] & 1 else 1
    return row


@given(
    st.text(
        alphabet=st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]),
        min_size=1,
        max_size=200,
    )
)
def test_it_is_what_its_definition_says(text: str) -> None:
    expected = by_definition(text)
    assume(expected.any())
    np.testing.assert_allclose(embed(text)[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_the_numbers_never_change() -> None:
    row = embed("Anna moved to Łódź in 2019")[0]
    signs = np.sign(row).astype(np.int8).tobytes()
    assert hashlib.sha256(signs).hexdigest()[:16] == "f31ab9cf0f40c26d"
    assert HashEmbedder().name == "hash:openclaw-384"


def test_a_text_of_nothing_has_length_one_and_is_near_to_nothing() -> None:
    empty, said = embed("", "what did Anna say of the kitchen?")
    assert np.linalg.norm(empty) == pytest.approx(1)
    assert abs(empty @ said) < 0.2


def test_a_half_character_and_a_huge_text_are_embedded_too() -> None:
    rows = embed("broken \ud83d escape", "word " * 200_000)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    np.testing.assert_array_equal(rows[1], embed(("word " * 200_000)[:HASH_MAX_CHARS])[0])


def check(rows: object, *, count: int = 1, dimensions: int = 2) -> tuple[bytes, ...]:
    return unit_vectors(rows, count=count, dimensions=dimensions, embedder="mine")  # type: ignore[arg-type]


def test_vectors_come_out_at_length_one_as_little_endian_floats() -> None:
    (values,) = check([[3.0, -4.0]])
    np.testing.assert_allclose(np.frombuffer(values, "<f4"), [0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([[np.nan, 1.0]], "not a number"),
        ([[np.inf, 1.0]], "not a number"),
        ([[0.0, 0.0]], "length zero"),
        ([[1.0, 0.0, 0.0]], "2 dimensions"),
        ([[1.0, 0.0], [0.0, 1.0]], "1 vectors"),
        ([], "1 vectors"),
        ([[1.0], [1.0, 2.0]], "different sizes"),
        ([["one", "two"]], "not numbers"),
    ],
)
def test_what_is_no_unit_vector_is_refused_by_the_embedders_name(rows: object, why: str) -> None:
    with pytest.raises(EmbedderError, match=f"mine .*{why}"):
        check(rows)


def test_text_is_cut_and_made_encodable() -> None:
    assert readable("a\udc00b" + "c" * 10, chars=4) == "a\ufffdbc"
    assert readable("plain \U0001f600", chars=100) == "plain \U0001f600"
