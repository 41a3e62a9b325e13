"""Vectors that were made once, so that no text is embedded twice; in front of any embedder.

Owns when the file is asked and when the inner embedder is. Never fails for the file's sake: a
file that is damaged, locked or gone costs time, not a turn. Always holds: what comes out is what
the inner embedder would have given for that text; nothing touches the file on the event loop;
what was asked for before a `clear` is not kept after it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, TypeAlias

import apsw

from recollect.embedders.cache_file import CacheFile, Found, Generation
from recollect.errors import EmbedderError
from recollect.ports import Embedder
from recollect.values.lookup import EmbedderKind

_HASH_BYTES: Final = 20
_MAX_KEY_BYTES: Final = blake2b.MAX_KEY_SIZE
_FLOAT_BYTES: Final = 4
_Purpose: TypeAlias = Literal["passage", "question"]


class CachedEmbedder:
    """An `Embedder` that remembers; name, kind, dimensions, ready and load are the inner one's.

    `key` keys the hashes that rows are found by, so that the file does not tell whether a text
    was ever embedded. `cipher_key`, 32 bytes, encrypts the file too; give it for a space that
    is itself encrypted, because a vector tells much of its text.
    """

    def __init__(
        self,
        inner: Embedder,
        file: Path,
        *,
        max_entries: int,
        key: bytes,
        cipher_key: bytes | None = None,
        busy_seconds: float = 1.0,
    ) -> None:
        self._inner = inner
        self._path = file
        self._key = key if len(key) <= _MAX_KEY_BYTES else blake2b(key).digest()
        self._file = CacheFile(
            file, max_entries=max_entries, cipher_key=cipher_key, busy_seconds=busy_seconds
        )
        self._lock = threading.Lock()
        self._trouble = ""
        self._told = False
        self._unusable = False

    @property
    def name(self) -> str:
        """The inner embedder's."""
        return self._inner.name

    @property
    def kind(self) -> EmbedderKind:
        """The inner embedder's."""
        return self._inner.kind

    @property
    def dimensions(self) -> int:
        """The inner embedder's."""
        return self._inner.dimensions

    @property
    def ready(self) -> bool:
        """Whether the inner embedder is loaded."""
        return self._inner.ready

    @property
    def inner(self) -> Embedder:
        """What makes the vectors that are not there yet."""
        return self._inner

    def trouble(self) -> str:
        """What is wrong with the file, or what the inner one has to say; each is told once."""
        told, self._trouble = self._trouble, ""
        ask: Callable[[], str] | None = getattr(self._inner, "trouble", None)
        return told or (ask() if ask is not None else "")

    async def load(self) -> None:
        """Load the inner embedder."""
        await self._inner.load()

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """One vector a text, in order; the inner embedder makes only those that are missing."""
        return await self._through(texts, "passage", self._inner.embed)

    async def embed_questions(self, texts: Sequence[str]) -> Sequence[bytes]:
        """The same for questions, where the inner embedder tells them from passages."""
        asked = getattr(self._inner, "embed_questions", None)
        if asked is None or not getattr(self._inner, "questions_differ", True):
            return await self._through(texts, "passage", asked or self._inner.embed)
        return await self._through(texts, "question", asked)

    async def clear(self) -> None:
        """Empty the file to the last byte; EmbedderError, and what to do, where it cannot."""
        failed = await asyncio.to_thread(self._locked, self._file.clear)
        if failed is not None:
            raise EmbedderError(
                f"the embedding cache {self._path} could not be emptied ({failed}): end other "
                "processes that use it, or delete it"
            )
        self._unusable = False
        self._told = False

    async def close(self) -> None:
        """Close the file, and the inner embedder where it can be closed."""
        await asyncio.to_thread(self._locked, self._file.close)
        close: Callable[[], Awaitable[None]] | None = getattr(self._inner, "close", None)
        if close is not None:
            await close()

    async def _through(
        self,
        texts: Sequence[str],
        purpose: _Purpose,
        make: Callable[[Sequence[str]], Awaitable[Sequence[bytes]]],
    ) -> Sequence[bytes]:
        if not texts:
            return ()
        if self._unusable:
            return await make(texts)
        keys, held = await asyncio.to_thread(self._look_up, texts, purpose)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in held.rows}
        made: dict[bytes, bytes] = {}
        if missing:
            vectors = await make(list(missing.values()))
            if len(vectors) != len(missing):
                raise EmbedderError(f"{self.name} gave another number of vectors than asked")
            made = dict(zip(missing, vectors, strict=True))
        if held.generation is not None:
            keep = asyncio.to_thread(self._keep, held.generation, list(held.rows), made)
            await keep
        whole = {**held.rows, **made}
        return tuple(whole[key] for key in keys)

    def _look_up(self, texts: Sequence[str], purpose: _Purpose) -> tuple[list[bytes], Found]:
        keys = [self._row_key(text, purpose) for text in texts]
        found = Found()

        def ask() -> None:
            nonlocal found
            found = self._file.find(dict.fromkeys(keys), size=self.dimensions * _FLOAT_BYTES)

        self._tried(ask)
        return keys, found

    def _keep(
        self, generation: Generation, used: Sequence[bytes], made: Mapping[bytes, bytes]
    ) -> None:
        self._tried(lambda: self._file.keep(generation, used=used, made=made))

    def _row_key(self, text: str, purpose: _Purpose) -> bytes:
        name = self.name.encode("utf-8", "surrogatepass")
        digest = blake2b(key=self._key, digest_size=_HASH_BYTES)
        digest.update(len(name).to_bytes(4, "little") + name + purpose[:1].encode())
        digest.update(text.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _tried(self, work: Callable[[], None]) -> None:
        failed = self._locked(work)
        if failed is None:
            return
        # A lock passes by itself; a damaged file stays damaged, and is left alone.
        self._unusable = not isinstance(failed, apsw.BusyError | apsw.LockedError)
        if not self._told:
            self._told = True
            what = "was locked for too long" if not self._unusable else "cannot be used"
            hint = "" if not self._unusable else "; delete it, and it is made anew"
            self._trouble = (
                f"the embedding cache {self._path} {what} ({type(failed).__name__}): texts are "
                f"embedded without it{hint}"
            )

    def _locked(self, work: Callable[[], None]) -> apsw.Error | OSError | None:
        """Do it, one thread at a time; the error where it failed."""
        with self._lock:
            try:
                work()
            except (apsw.Error, OSError) as error:
                return error
        return None
