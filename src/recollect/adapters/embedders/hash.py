"""The hash embedder, OpenClaw's: character trigrams folded into 384 numbers.

The definition must never change under its name: old vectors are compared with today's.

The definition: the first 2,000 characters; lower case; every run of white space one space; what
is no letter, number, white space or one of `@.+-` a space; none at the ends; then one space
before and behind. Each trigram's SHA-256 over UTF-8 gives its place (the first four bytes,
little-endian, modulo 384) and its sign (the lowest bit of the fifth byte, set for minus); the sum
at length one. A text of up to three characters is one gram by itself. Characters are counted in
UTF-16, as JavaScript does. A text in which nothing is left, being empty or by signs that cancel
out, gets `units.nothing` (OpenClaw: a vector of zeros, which no store could compare).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from recollect.adapters.embedders.local import Rows, in_stretches, nothing, readable, unit_vectors
from recollect.core.values.recall import EmbedderKind

DIMENSIONS: Final = 384
HASH_MAX_CHARS: Final = 2_000
"""What is read of a text; a passage is a third of it."""
_NGRAM: Final = 3
_TRIGRAMS_KEPT: Final = 32_768
"""English chat has some 15,000; a dictionary of this size is about 4 MiB."""
_TEXTS_A_STRETCH: Final = 128
"""How many are embedded before looking whether anyone still waits."""
_WHITE_SPACE: Final = re.compile(r"\s+")
_NOT_SPELLED: Final = re.compile(r"[^\w\s@.+-]|_")
_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
_HALF: Final = re.compile("[\ud800-\udfff]")


class _Places(dict[str, int]):
    """Where each trigram goes: its place, raised by `DIMENSIONS` when its sign is minus."""

    __slots__ = ()

    def __missing__(self, trigram: str) -> int:
        digest = hashlib.sha256(trigram.encode()).digest()
        place = int.from_bytes(digest[:4], "little") % DIMENSIONS
        if digest[4] & 1:
            place += DIMENSIONS
        if len(self) >= _TRIGRAMS_KEPT:
            self.clear()
        self[trigram] = place
        return place


class HashEmbedder:
    """Trigrams, hashed."""

    name: Final = f"hash:openclaw-{DIMENSIONS}"
    kind: Final[EmbedderKind] = "hash"
    dimensions: Final = DIMENSIONS
    ready: Final = True

    def __init__(self) -> None:
        self._places = _Places()

    async def load(self) -> None:
        """Nothing: there is nothing to load."""

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """One vector a text, in order."""
        return await in_stretches(self._vectors, texts, size=_TEXTS_A_STRETCH, name=self.name)

    def _vectors(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        rows = [self._row(text) for text in texts]
        return unit_vectors(rows, count=len(texts), dimensions=DIMENSIONS, embedder=self.name)

    def _row(self, text: str) -> Rows:
        places = self._places
        found = [places[gram] for gram in _grams(_folded(text))]
        if not found:
            return nothing(DIMENSIONS)
        counts = np.bincount(found, minlength=2 * DIMENSIONS)
        row = (counts[:DIMENSIONS] - counts[DIMENSIONS:]).astype(np.float32)
        return row if row.any() else nothing(DIMENSIONS)


def _folded(text: str) -> str:
    text = readable(text, chars=HASH_MAX_CHARS)
    if _ASTRAL.search(text):
        text = _whole(_units(text)[:HASH_MAX_CHARS])
    return _NOT_SPELLED.sub(" ", _WHITE_SPACE.sub(" ", text.lower())).strip()


def _grams(folded: str) -> list[str]:
    if not folded:
        return []
    astral = _ASTRAL.search(folded) is not None
    units = _units(folded) if astral else folded
    if len(units) <= _NGRAM:
        return [folded]
    padded = f" {units} "
    grams = [padded[at : at + _NGRAM] for at in range(len(padded) - _NGRAM + 1)]
    return [_whole(gram) for gram in grams] if astral else grams


def _units(text: str) -> str:
    return _ASTRAL.sub(
        lambda match: "".join(
            map(chr, np.frombuffer(match[0].encode("utf-16-le"), "<u2").tolist())
        ),
        text,
    )


def _whole(units: str) -> str:
    joined = units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF.sub("\ufffd", joined)
