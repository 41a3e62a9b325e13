"""The embedders of a run, by the names people give them on the command line.

Owns which embedder a name stands for, where its model is looked for, and the cache of vectors
that makes a second run quick. It must never download anything. Always holds: a model that is
missing is an error that says where it was looked for, never another embedder in its place.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

import platformdirs

from recollect.core.ports import Embedder
from recollect_bench.data import minilm_folder

_CACHE_FILE: Final = "bench-texts.db"
ALSO_KNOWN_AS: Final = {"onnx": "minilm", "onnx+static": "minilm+static"}
"""The settings' words for what is measured under the model's name."""
_QUICK: Final = ("hash", "static")
"""Made faster than they are looked up."""


@asynccontextmanager
async def opened_embedders(name: str, *, cached: bool) -> AsyncIterator[tuple[Embedder, ...]]:
    """The embedders a name stands for, loaded, in the order their vectors are asked for."""
    embedders = [_embedder(one) for one in name.split("+") if one != "none"]
    caches = [
        _CachedEmbedder(embedder, cache_file())
        for embedder in embedders
        if cached and embedder.kind not in _QUICK
    ]
    by_name: dict[str, Embedder] = {
        cached_embedder.name: cached_embedder for cached_embedder in caches
    }
    try:
        for embedder in embedders:
            await embedder.load()
        yield tuple(by_name.get(other.name, other) for other in embedders)
    finally:
        for cache in caches:
            await cache.close()


class _CachedEmbedder:
    """Keeps the vectors of texts in a file, so that a second run does not make them again."""

    def __init__(self, inner: Embedder, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._inner, self._file = inner, sqlite3.connect(file)
        self._file.execute("CREATE TABLE IF NOT EXISTS cached (key BLOB PRIMARY KEY, vector BLOB)")
        self.name, self.kind = inner.name, inner.kind

    @property
    def dimensions(self) -> int:
        """The inner embedder's."""
        return self._inner.dimensions

    @property
    def ready(self) -> bool:
        """Whether the inner embedder is loaded."""
        return self._inner.ready

    async def load(self) -> None:
        """Load the inner embedder."""
        await self._inner.load()

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """One vector per text, in order."""
        keys = [
            blake2b(f"{self.name}\0{text}".encode("utf-8", "replace")).digest() for text in texts
        ]
        query = "SELECT vector FROM cached WHERE key = ?"
        found = {key: self._file.execute(query, (key,)).fetchone() for key in keys}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if not found[key]}
        made = zip(missing, await self._inner.embed(list(missing.values())), strict=True)
        found.update((key, (vector,)) for key, vector in made)
        rows = [(key, found[key][0]) for key in missing]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO cached VALUES (?, ?)", rows)
        return [found[key][0] for key in keys]

    async def close(self) -> None:
        """Close the file."""
        self._file.close()


def _embedder(name: str) -> Embedder:
    if name == "hash":
        from recollect.adapters.embedders.local import HashEmbedder

        return HashEmbedder()
    if name == "static":
        from recollect.adapters.embedders.local import StaticEmbedder

        return StaticEmbedder()
    from recollect.adapters.embedders.onnx import OnnxEmbedder

    return OnnxEmbedder(minilm_folder(), threads=os.cpu_count() or 1)


def cache_file() -> Path:
    """Where vectors of earlier runs are kept."""
    return Path(platformdirs.user_cache_dir("recollect", appauthor=False)) / _CACHE_FILE
