"""The static embedder: averages the token vectors that the package wordllama contains.

It never imports wordllama: the import gives the host's root logger a handler, and loads pydantic
and requests for a look-up in a table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from recollect.adapters.embedders.local import (
    Loading,
    Rows,
    fingerprint,
    imported,
    in_stretches,
    nothing,
    package_folder,
    readable,
    unit_vectors,
)
from recollect.core.values.recall import EmbedderKind
from recollect.errors import EmbedderError, MissingExtra

EXTRA: Final = "static"
FEATURE: Final = "the static embedder"
DIMENSIONS: Final = 256
MAX_CHARS: Final = 8_192
"""What is read of a text: 2,000 tokens of English, whose average says little already."""
_MODEL: Final = f"l2_supercat_{DIMENSIONS}"
_WEIGHTS: Final = f"weights/{_MODEL}.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR: Final = "embedding.weight"
_RECIPE: Final = "1"
"""Raise it when this module makes other vectors of the same files."""
_TEXTS_A_STRETCH: Final = 128
"""How many are embedded before looking whether anyone still waits."""


class StaticEmbedder:
    """Averaged token vectors."""

    kind: Final[EmbedderKind] = "static"
    dimensions: Final = DIMENSIONS

    def __init__(self) -> None:
        """Name the model; MissingExtra or EmbedderError where it is not installed."""
        package = static_package()
        self._weights, self._tokenizer = package / _WEIGHTS, package / _TOKENIZER
        mark = fingerprint((self._weights, self._tokenizer), text=f"{_RECIPE}\0{MAX_CHARS}")
        self._name = f"static:{_MODEL}:{mark}"
        self._loading = Loading(self._load, name=self._name)

    @property
    def name(self) -> str:
        """`static:<weights>:<fingerprint>`."""
        return self._name

    @property
    def ready(self) -> bool:
        """Whether the table is read."""
        return self._loading.ready

    async def load(self) -> None:
        """Read table and tokenizer."""
        await self._loading.value()

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """One vector a text, in order."""
        vectors = partial(self._vectors, await self._loading.value())
        return await in_stretches(vectors, texts, size=_TEXTS_A_STRETCH, name=self.name)

    def _vectors(self, table: _Table, texts: Sequence[str]) -> tuple[bytes, ...]:
        rows = [table.row(text) for text in texts]
        return unit_vectors(rows, count=len(texts), dimensions=DIMENSIONS, embedder=self.name)

    def _load(self) -> _Table:
        tokenizers = imported("tokenizers", feature=FEATURE, extra=EXTRA)
        tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer))
        return _Table(_read_weights(self._weights), tokenizer)


class _Table:
    """The vectors of all tokens; only read, so any number of threads may."""

    def __init__(self, vectors: Rows, tokenizer: Any) -> None:
        self._vectors = vectors
        self._tokenizer = tokenizer

    def row(self, text: str) -> Rows:
        # One by one: a batch would start the tokenizer's own threads, which a host that forks
        # is then warned of; and an average needs no padding.
        shown = readable(text, chars=MAX_CHARS)
        tokens: list[int] = self._tokenizer.encode(shown, add_special_tokens=False).ids
        if not tokens:
            return nothing(DIMENSIONS)
        average: Rows = self._vectors[tokens].mean(axis=0)
        return average


def static_package() -> Path:
    """Where the weights are installed; MissingExtra or EmbedderError where they are not."""
    package = package_folder("wordllama")
    if package is None or package_folder("tokenizers") is None:
        raise MissingExtra(feature=FEATURE, extra=EXTRA)
    if not (package / _WEIGHTS).is_file() or not (package / _TOKENIZER).is_file():
        raise EmbedderError(
            "this version of wordllama does not carry its weights: "
            f"pip install --force-reinstall 'recollect[{EXTRA}]'"
        )
    return package


def _read_weights(path: Path) -> Rows:
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    told = json.loads(raw[8:end])[_TENSOR]
    first, last = told["data_offsets"]
    if told["dtype"] != "F16" or told["shape"][1] != DIMENSIONS:
        raise EmbedderError(
            f"wordllama's {path.name} is not what it was: {told['dtype']} of {told['shape']}; "
            f"pip install --force-reinstall 'recollect[{EXTRA}]'"
        )
    numbers = np.frombuffer(raw[end + first : end + last], dtype="<f2")
    return numbers.astype(np.float32).reshape(told["shape"])
