"""Settings into embedders: which make vectors, which are kept at hand, and where they cache.

Must never import a heavy package: an embedder loads when it is asked to, in a thread. What is
remote is taken only where the settings name it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from recollect.config import Settings
from recollect.config.places import embedding_cache_file, models_folders
from recollect.embedders.choose import choose
from recollect.errors import EmbedderError, MissingExtra, SettingsError
from recollect.ports import Embedder, Store
from recollect.values.history import SpaceId
from recollect.values.upkeep import Forgotten

_LOADED: dict[str, Embedder] = {}
ONNX_THREADS = 2
"""Cores that a run of a model may use; a turn's question is one short text."""
CACHE_WAIT_SECONDS = 5.0
"""How long forgetting waits for others who use the embedding cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedders:
    """What makes the vectors of a memory."""

    used: tuple[Embedder, ...] = ()
    """Asked for every question."""
    others: Callable[[], tuple[Embedder, ...]] = field(default=tuple, repr=False)
    """Looks what else is at hand: its vectors may be here from an earlier choice."""
    said: str = ""
    """Which, and why not a better one."""
    lacking: str = ""
    """What was asked for and cannot be had: every recall says so."""


def choose_embedders(settings: Settings) -> Embedders:
    """The embedders of these settings; SettingsError where they ask for what is not here."""
    name = settings.recall.embedder
    if name == "remote":
        return Embedders(used=(_remote(settings),), others=partial(_others, ()), said="remote")
    try:
        choice = choose(
            name,
            models=models_folders(),
            onnx_model=settings.recall.onnx_model,
            threads=min(ONNX_THREADS, os.cpu_count() or 1),
            hash_instead=settings.recall.method == "openclaw",
        )
    except (EmbedderError, MissingExtra) as error:
        raise SettingsError(f"recall.embedder: {error}") from error
    used = tuple(_shared(one) for one in choice.embedders)
    others = partial(_others, used)
    return Embedders(used=used, others=others, said=choice.said, lacking=choice.lacking)


def _shared(embedder: Embedder) -> Embedder:
    """One of a name in a process: every space would load the same model again."""
    return _LOADED.setdefault(embedder.name, embedder)


def cached(
    embedders: Sequence[Embedder], settings: Settings, *, space: SpaceId, file: Path, key: bytes
) -> tuple[Embedder, ...]:
    """The same embedders for passages, with what they made before at hand.

    Only where making a vector takes longer than looking it up, and never beside an encrypted
    store: a vector tells much of its text. `file` is the space's own.
    """
    if not settings.embedding_cache.enabled or settings.store.key is not None:
        return tuple(embedders)
    from recollect.embedders.cache import CachedEmbedder

    return tuple(
        CachedEmbedder(
            one,
            embedding_cache_file(file, space),
            max_entries=settings.embedding_cache.max_entries,
            key=key,
        )
        if one.kind in ("onnx", "remote")
        else one
        for one in embedders
    )


async def forget_cached(store: Store, forgotten: Forgotten) -> Mapping[str, int]:
    """Empty the embedding cache of a store in a file: what was made of forgotten text goes too.

    All of it: a vector is made again sooner than anybody could show that it was another text's.
    """
    from recollect.stores.sqlite import SQLiteStore

    if not isinstance(store, SQLiteStore) or not (forgotten.segments or forgotten.message_ids):
        return {}
    file = embedding_cache_file(store.path, store.space)
    if not file.exists():
        return {}
    import apsw

    from recollect.embedders.cache_file import CacheFile
    from recollect.memory.forget import Unreached

    cache = CacheFile(file, max_entries=1, cipher_key=None, busy_seconds=CACHE_WAIT_SECONDS)
    try:
        await asyncio.to_thread(cache.clear)
    except (apsw.Error, OSError) as error:
        raise Unreached(
            f"embeddings/{file.name} in the data folder, the embedding cache, which could not be "
            f"emptied ({type(error).__name__}): end what uses it, then delete it"
        ) from error
    finally:
        await asyncio.to_thread(cache.close)
    return {"embedding caches emptied": 1}


def _others(used: Sequence[Embedder]) -> tuple[Embedder, ...]:
    """What could be asked beside, were there vectors of it: only what is local and here."""
    taken = {one.name for one in used}
    found: list[Embedder] = []
    for name in ("onnx", "static", "hash"):
        try:
            choice = choose(name, models=models_folders())
        except (EmbedderError, MissingExtra):
            continue
        found.extend(_shared(one) for one in choice.embedders if one.name not in taken)
    return tuple(found)


def _remote(settings: Settings) -> Embedder:
    from recollect.embedders.remote import RemoteEmbedder

    remote = settings.recall.remote
    if remote.provider is None:
        raise SettingsError(
            'recall.embedder is "remote", but recall.remote.provider names nobody: '
            "openai, gemini or voyage"
        )
    try:
        return RemoteEmbedder(
            remote.provider,
            model=remote.model,
            dimensions=remote.dimensions,
            base_url=remote.base_url,
            key_variable=remote.key_variable,
        )
    except EmbedderError as error:
        raise SettingsError(f"recall.remote: {error}") from error
