"""Unit vectors: what an embedder hands out, checked before anyone stores it.

Owns the last step of every embedder: numbers in, little-endian float32 of length one out. Never
mends what is wrong: a vector that is no number, of another size or without a direction would be
stored for good and found never, so the call fails instead. Always holds: what is handed out is
finite, has the embedder's dimensions and length one.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recollect.errors import EmbedderError

Rows: TypeAlias = NDArray[np.float32]
"""One vector a row."""

_SHORTEST: Final = 1e-12
"""Below this length a direction is rounding noise."""
# What a JSON escape can leave in a string although no encoder takes it.
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def unit_vectors(
    rows: ArrayLike, *, count: int, dimensions: int, embedder: str
) -> tuple[bytes, ...]:
    """The rows at length one, as bytes; EmbedderError where they are not `count` such vectors."""
    try:
        wide = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise EmbedderError(f"{embedder} gave vectors of different sizes, or no numbers") from None
    if wide.shape != (count, dimensions):
        raise EmbedderError(
            f"{embedder} gave an array of {wide.shape} where {count} vectors of {dimensions} "
            "dimensions were due"
        )
    lengths = np.linalg.norm(wide, axis=1)
    # A sum is finite only if every one of its terms is.
    if not np.isfinite(lengths).all():
        raise EmbedderError(f"{embedder} gave a vector that holds no number")
    if count and float(lengths.min()) < _SHORTEST:
        raise EmbedderError(f"{embedder} gave a vector of length zero")
    units = (wide / lengths[:, None]).astype("<f4")
    return tuple(row.tobytes() for row in units)


def nothing(dimensions: int) -> Rows:
    """The vector of a text in which there is nothing to embed: the first axis.

    It has length one, as all have, and is near to no text that says something.
    """
    row = np.zeros(dimensions, np.float32)
    row[0] = 1.0
    return row


def readable(text: str, *, chars: int) -> str:
    """The text up to `chars`, with what no encoder takes replaced."""
    return _LONE_SURROGATE.sub("\ufffd", text[:chars])
