"""The hash embedder: character trigrams folded into 384 numbers. Always there, never loading.

It knows no words, only spellings: texts are near when they share trigrams. Owns that definition,
which must never change under its name, for vectors of years ago are compared with today's.

The definition: lower case; every run of white space one space; a space before and behind; each
trigram's SHA-256 over UTF-8 gives its place (the first four bytes, little-endian, modulo 384)
and its sign (the lowest bit of the fifth byte, set for plus); the sum at length one. A text in
which nothing is left, being empty or by signs that cancel out, gets `units.nothing`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from recollect.embedders.aside import aside
from recollect.embedders.units import Rows, nothing, readable, unit_vectors
from recollect.values.lookup import EmbedderKind

DIMENSIONS: Final = 384
MAX_CHARS: Final = 32_768
"""What is read of a text; a passage is a fiftieth of it."""
_TRIGRAMS_KEPT: Final = 32_768
"""English chat has some 15,000; a dictionary of this size is about 4 MiB."""
_TEXTS_A_STRETCH: Final = 128
"""How many are embedded before looking whether anyone still waits."""
_WHITE_SPACE: Final = re.compile(r"\s+")


class _Places(dict[str, int]):
    """Where each trigram goes: its place, raised by `DIMENSIONS` when its sign is minus."""

    __slots__ = ()

    def __missing__(self, trigram: str) -> int:
        digest = hashlib.sha256(trigram.encode()).digest()
        place = int.from_bytes(digest[:4], "little") % DIMENSIONS
        if not digest[4] & 1:
            place += DIMENSIONS
        if len(self) >= _TRIGRAMS_KEPT:
            self.clear()
        self[trigram] = place
        return place


class HashEmbedder:
    """Trigrams, hashed."""

    name: Final = f"hash:{DIMENSIONS}"
    kind: Final[EmbedderKind] = "hash"
    dimensions: Final = DIMENSIONS
    ready: Final = True

    def __init__(self) -> None:
        self._places = _Places()

    async def load(self) -> None:
        """Nothing: there is nothing to load."""

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """One vector a text, in order."""
        vectors: list[bytes] = []
        for first in range(0, len(texts), _TEXTS_A_STRETCH):
            stretch = texts[first : first + _TEXTS_A_STRETCH]
            vectors += await aside(
                partial(self._vectors, stretch),
                name="hash",
                failing=f"{self.name} failed",
            )
        return tuple(vectors)

    def _vectors(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        rows = [self._row(text) for text in texts]
        return unit_vectors(rows, count=len(texts), dimensions=DIMENSIONS, embedder=self.name)

    def _row(self, text: str) -> Rows:
        folded = f" {_WHITE_SPACE.sub(' ', readable(text, chars=MAX_CHARS).lower())} "
        places = self._places
        found = [places[folded[at : at + 3]] for at in range(len(folded) - 2)]
        if not found:
            return nothing(DIMENSIONS)
        counts = np.bincount(found, minlength=2 * DIMENSIONS)
        row = (counts[:DIMENSIONS] - counts[DIMENSIONS:]).astype(np.float32)
        return row if row.any() else nothing(DIMENSIONS)
