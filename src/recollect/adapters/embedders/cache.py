"""Caches vectors in a SQLite file, so that no text is embedded twice; in front of any embedder.

A file that is damaged, locked or gone costs time, never a turn. Rows are written only to the
generation they were looked for in, and to none younger than `SETTLE_SECONDS`, so that what was
emptied meanwhile stays empty. Vectors that are not finite or not of length one are not returned.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NewType, TypeVar

import apsw
import numpy as np

from recollect.core.ports import Embedder
from recollect.core.values.recall import EmbedderKind
from recollect.errors import EmbedderError

T = TypeVar("T")
LOG: Final = logging.getLogger("recollect.embedders")
Generation = NewType("Generation", int)
"""Changes whenever the file is emptied or made anew."""

SETTLE_SECONDS: Final = 60
"""So long after it was emptied nothing is kept: a text may have been read from the store before
it was forgotten, and come here only now."""
_RANDOM_BITS: Final = 30
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")
_VERSION: Final = 1
_LENGTH_TOLERANCE: Final = 1e-3
_MAKE: Final = """
CREATE TABLE generation (number INTEGER NOT NULL);
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    used INTEGER NOT NULL,
    vector BLOB NOT NULL
);
CREATE INDEX vectors_used ON vectors (used, id);
"""
_FIND: Final = """
SELECT key, vector FROM vectors WHERE key IN (SELECT unhex(value) FROM json_each(?))
"""
_USE: Final = """
UPDATE vectors SET used = ? WHERE key IN (SELECT unhex(value) FROM json_each(?))
"""
_PUT: Final = """
INSERT INTO vectors (key, used, vector) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET used = excluded.used, vector = excluded.vector
"""
_EVICT: Final = """
DELETE FROM vectors WHERE id IN (
    SELECT id FROM vectors ORDER BY used, id LIMIT max(0, (SELECT count(*) FROM vectors) - ?)
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRows:
    """What a look-up found, and when."""

    rows: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    generation: Generation | None = None
    """None: the file was of no use, so nothing is to be kept either."""


class CacheFile:
    """One SQLite file, opened when it is first needed, readable for its owner only."""

    def __init__(self, path: Path, *, max_entries: int, busy_seconds: float) -> None:
        self._path = path
        self._max_entries = max_entries
        self._busy_seconds = busy_seconds
        self._connection: apsw.Connection | None = None

    def find(self, keys: Iterable[bytes], *, size: int) -> CachedRows:
        """The rows of these keys, in one statement; `size` in bytes of a vector, 0 for any."""
        connection = self._open()
        with _transaction(connection, "BEGIN"):
            generation = _generation(connection)
            rows: list[Any] = connection.execute(_FIND, (_hexed(keys),)).fetchall()
        sound = {key: row for key, row in rows if _is_sound(row, size)}
        return CachedRows(rows=sound, generation=generation)

    def keep(
        self, generation: Generation, *, used: Sequence[bytes], made: Mapping[bytes, bytes]
    ) -> None:
        """Mark rows as used and add new ones, unless the file was emptied since, or just before."""
        connection = self._open()
        with _transaction(connection, "BEGIN IMMEDIATE"):
            if _generation(connection) != generation or _is_settling(generation):
                return
            now = _number(connection, "SELECT ifnull(max(used), 0) + 1 FROM vectors")
            if used:
                connection.execute(_USE, (now, _hexed(used)))
            if made:
                rows = [(key, now, vector) for key, vector in made.items()]
                connection.executemany(_PUT, rows)
                connection.execute(_EVICT, (self._max_entries,))

    def clear(self) -> None:
        """Empty it, so that no vector is in any of its files; a damaged one is deleted."""
        if not self._path.exists():
            self.close()
            self._delete()
            return
        try:
            self._empty()
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.FormatError):
            self.close()
            self._delete()

    def close(self) -> None:
        """Close it; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _empty(self) -> None:
        connection = self._open()
        with _transaction(connection, "BEGIN IMMEDIATE"):
            connection.execute("DELETE FROM vectors")
            connection.execute("UPDATE generation SET number = ?", (_new_generation(at=_now()),))
        until = time.monotonic() + max(self._busy_seconds, 1.0)
        while True:
            # Pages that were deleted are overwritten in the file; their old images are in the
            # log until it is cut off, which waits for whoever still reads them.
            connection.execute("VACUUM")
            ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy:
                return
            if time.monotonic() > until:
                raise apsw.BusyError("somebody reads the file")
            time.sleep(0.02)

    def _delete(self) -> None:
        for ending in ("", *_SIDE_FILES):
            file = Path(f"{self._path}{ending}")
            if file.is_file():
                # Overwritten first: to remove a name leaves the bytes to whoever has it open.
                with file.open("r+b") as bytes_:
                    bytes_.write(b"\0" * file.stat().st_size)
                    bytes_.flush()
                    os.fsync(bytes_.fileno())
                file.unlink(missing_ok=True)

    def _open(self) -> apsw.Connection:
        if self._connection is not None and not self._path.exists():
            self.close()  # somebody deleted it, as our own words tell them to
        if self._connection is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = self._connected()
        return self._connection

    def _connected(self) -> apsw.Connection:
        until = time.monotonic() + self._busy_seconds
        while True:
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                self._prepare(connection)
            except BaseException as error:
                connection.close(True)
                # SQLite does not wait for whoever is just making the file, or closing it.
                if not isinstance(error, apsw.BusyError) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return connection

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(int(self._busy_seconds * 1000))
        connection.pragma("temp_store", 2)
        if connection.pragma("journal_mode") != "wal":
            connection.pragma("journal_mode", "wal")
        # A cache that loses its last writes with the power loses nothing.
        connection.pragma("synchronous", "NORMAL")
        connection.pragma("secure_delete", "ON")
        if connection.pragma("user_version") == _VERSION:
            return
        with _transaction(connection, "BEGIN IMMEDIATE"):
            if connection.pragma("user_version") == _VERSION:
                return
            connection.execute(_MAKE)
            connection.execute("INSERT INTO generation VALUES (?)", (_new_generation(at=0),))
            connection.pragma("user_version", _VERSION)


@contextmanager
def _transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _hexed(keys: Iterable[bytes]) -> str:
    return json.dumps([key.hex() for key in keys])


def _number(connection: apsw.Connection, statement: str) -> int:
    ((number,),) = connection.execute(statement).fetchall()
    if not isinstance(number, int):
        raise apsw.CorruptError("a number is missing")
    return number


def _generation(connection: apsw.Connection) -> Generation:
    return Generation(_number(connection, "SELECT max(number) FROM generation"))


def _new_generation(*, at: int) -> Generation:
    """A number nobody had, which also tells when the file was emptied; 0 where it never was."""
    return Generation(at << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS))


def _is_settling(generation: Generation) -> bool:
    return abs(_now() - (generation >> _RANDOM_BITS)) < SETTLE_SECONDS


def _now() -> int:
    return int(time.time())


def _is_sound(row: object, size: int) -> bool:
    if not isinstance(row, bytes) or not row or len(row) % 4 or (size and len(row) != size):
        return False
    values = np.frombuffer(row, "<f4").astype(np.float64)
    return bool(abs(float(values @ values) - 1.0) <= _LENGTH_TOLERANCE)


_HASH_BYTES: Final = 20
_MAX_KEY_BYTES: Final = blake2b.MAX_KEY_SIZE
_FLOAT_BYTES: Final = 4


class CachedEmbedder:
    """An `Embedder` of passages that remembers their vectors; all else is the inner one's.

    `key` keys the hashes that rows are found by, so that the file does not tell whether a text
    was ever embedded. The vectors are in clear, and a vector tells much of its text: use none
    beside a store that is itself encrypted.
    """

    def __init__(
        self,
        inner: Embedder,
        file: Path,
        *,
        max_entries: int,
        key: bytes,
        busy_seconds: float = 1.0,
    ) -> None:
        self._inner = inner
        self._path = file
        self._key = key if len(key) <= _MAX_KEY_BYTES else blake2b(key).digest()
        self._file = CacheFile(file, max_entries=max_entries, busy_seconds=busy_seconds)
        self._lock = threading.Lock()
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

    async def load(self) -> None:
        """Load the inner embedder."""
        await self._inner.load()

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """One vector a text, in order; the inner embedder makes only those that are missing."""
        if not texts:
            return ()
        if self._unusable:
            return await self._inner.embed(texts)
        keys, cached = await asyncio.to_thread(self._look_up, texts)
        missing = {
            key: text for key, text in zip(keys, texts, strict=True) if key not in cached.rows
        }
        made: dict[bytes, bytes] = {}
        if missing:
            vectors = await self._inner.embed(list(missing.values()))
            if len(vectors) != len(missing):
                raise EmbedderError(f"{self.name} gave another number of vectors than asked")
            made = dict(zip(missing, vectors, strict=True))
        if cached.generation is not None:
            keep = partial(self._file.keep, cached.generation, used=list(cached.rows), made=made)
            await asyncio.to_thread(self._tried, keep, None)
        whole = {**cached.rows, **made}
        return tuple(whole[key] for key in keys)

    async def close(self) -> None:
        """Close the file, and the inner embedder where it can be closed."""
        with suppress(apsw.Error, OSError):
            await asyncio.to_thread(self._locked, self._file.close)
        close: Callable[[], Awaitable[None]] | None = getattr(self._inner, "close", None)
        if close is not None:
            await close()

    def _look_up(self, texts: Sequence[str]) -> tuple[list[bytes], CachedRows]:
        keys = [self._row_key(text) for text in texts]
        size = self.dimensions * _FLOAT_BYTES
        find = partial(self._file.find, dict.fromkeys(keys), size=size)
        return keys, self._tried(find, CachedRows())

    def _row_key(self, text: str) -> bytes:
        name = self.name.encode("utf-8", "surrogatepass")
        digest = blake2b(key=self._key, digest_size=_HASH_BYTES)
        digest.update(len(name).to_bytes(4, "little") + name + b"p")
        digest.update(text.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _tried(self, work: Callable[[], T], instead: T) -> T:
        """What the work gives; `instead` where the file is of no use, which is told once."""
        try:
            return self._locked(work)
        except (apsw.Error, OSError) as error:
            # A lock passes by itself; a damaged file stays damaged, and is left alone.
            self._unusable = not isinstance(error, apsw.BusyError | apsw.LockedError)
            if not self._told:
                self._told = True
                what = "cannot be used" if self._unusable else "was locked for too long"
                hint = "; delete it, and a new one is created" if self._unusable else ""
                LOG.warning(
                    "the embedding cache %s %s (%s): texts are embedded without it%s",
                    self._path,
                    what,
                    type(error).__name__,
                    hint,
                )
        return instead

    def _locked(self, work: Callable[[], T]) -> T:
        with self._lock:
            return work()
