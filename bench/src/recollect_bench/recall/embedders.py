"""The embedders of a run, by the names people give them on the command line.

Owns which embedder a name stands for, where its model is looked for, and the cache of vectors
that makes a second run quick. It must never download anything. Always holds: a model that is
missing is an error that says where it was looked for, never another embedder in its place.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import platformdirs

from recollect.adapters.embedders.cache import CachedEmbedder
from recollect.core.ports import Embedder
from recollect_bench.data import minilm_folder

_CACHE_FILE: Final = "bench-vectors.db"
_CACHE_KEY: Final = b"recollect bench"
_MOST_CACHED: Final = 200_000
"""BEAM alone has some 40,000 passages and messages; a row is 1.5 KiB."""
ALSO_KNOWN_AS: Final = {"onnx": "minilm", "onnx+static": "minilm+static"}
"""The settings' words for what is measured under the model's name."""
_QUICK: Final = ("hash", "static")
"""Made faster than they are looked up."""


@asynccontextmanager
async def opened_embedders(name: str, *, cached: bool) -> AsyncIterator[tuple[Embedder, ...]]:
    """The embedders a name stands for, loaded, in the order their vectors are asked for."""
    embedders = [_embedder(one) for one in name.split("+") if one != "none"]
    caches = [_cached(embedder) for embedder in embedders if cached and embedder.kind not in _QUICK]
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


def _cached(embedder: Embedder) -> CachedEmbedder:
    return CachedEmbedder(embedder, cache_file(), max_entries=_MOST_CACHED, key=_CACHE_KEY)


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
