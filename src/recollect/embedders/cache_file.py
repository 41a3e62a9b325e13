"""The file of an embedding cache: rows of vectors, found by a hash, the longest unused go first.

Owns the SQLite file. Blocking: one thread at a time, never the event loop. Raises apsw's errors
and the system's as they are; who calls decides. Always holds: rows of texts are written only to
the generation they were looked for in, and to none that is younger than `SETTLE_SECONDS`, so that
what was emptied meanwhile stays empty; vectors that are not finite and of length one are not
handed out.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NewType

import apsw
import numpy as np

Generation = NewType("Generation", int)
"""Changes whenever the file is emptied or made anew."""

SETTLE_SECONDS: Final = 60
"""So long after it was emptied nothing is kept: a text may have been read from the store before
it was forgotten, and come here only now."""
_RANDOM_BITS: Final = 30
_CIPHER: Final = "aegis"
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
class Found:
    """What a look-up found, and when."""

    rows: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    generation: Generation | None = None
    """None: the file was of no use, so nothing is to be kept either."""


class CacheFile:
    """One SQLite file, opened when it is first needed, readable for its owner only."""

    def __init__(
        self, path: Path, *, max_entries: int, cipher_key: bytes | None, busy_seconds: float
    ) -> None:
        self._path = path
        self._max_entries = max_entries
        self._cipher_key = cipher_key
        self._busy_seconds = busy_seconds
        self._connection: apsw.Connection | None = None

    def find(self, keys: Iterable[bytes], *, size: int) -> Found:
        """The rows of these keys, in one statement; `size` in bytes of a vector, 0 for any."""
        connection = self._open()
        with _in_one(connection, "BEGIN"):
            generation = _generation(connection)
            rows: list[Any] = connection.execute(_FIND, (_hexed(keys),)).fetchall()
        sound = {key: row for key, row in rows if _is_sound(row, size)}
        return Found(rows=sound, generation=generation)

    def keep(
        self, generation: Generation, *, used: Sequence[bytes], made: Mapping[bytes, bytes]
    ) -> None:
        """Mark rows as used and add new ones, unless the file was emptied since, or just before."""
        connection = self._open()
        with _in_one(connection, "BEGIN IMMEDIATE"):
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
        with _in_one(connection, "BEGIN IMMEDIATE"):
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
        if self._cipher_key is not None:
            if not hasattr(apsw, "mc_version"):
                raise OSError("an encrypted cache needs: pip install 'recollect[encrypted]'")
            connection.pragma("cipher", _CIPHER)
            connection.pragma("key", f"raw:{self._cipher_key.hex()}")
        connection.pragma("temp_store", 2)
        if connection.pragma("journal_mode") != "wal":
            connection.pragma("journal_mode", "wal")
        # A cache that loses its last writes with the power loses nothing.
        connection.pragma("synchronous", "NORMAL")
        connection.pragma("secure_delete", "ON")
        if connection.pragma("user_version") == _VERSION:
            return
        with _in_one(connection, "BEGIN IMMEDIATE"):
            if connection.pragma("user_version") == _VERSION:
                return
            connection.execute(_MAKE)
            connection.execute("INSERT INTO generation VALUES (?)", (_new_generation(at=0),))
            connection.pragma("user_version", _VERSION)


class _in_one:  # noqa: N801 - reads as the `with` it stands in
    """One transaction: committed, or rolled back when it is left by an error."""

    def __init__(self, connection: apsw.Connection, begin: str) -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> None:
        self._connection.execute(self._begin)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


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
    """Whether it is what was written, and not what a damaged page made of it."""
    if not isinstance(row, bytes) or not row or len(row) % 4 or (size and len(row) != size):
        return False
    values = np.frombuffer(row, "<f4").astype(np.float64)
    return bool(abs(float(values @ values) - 1.0) <= _LENGTH_TOLERANCE)
