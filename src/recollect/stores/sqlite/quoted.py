"""Whom a session's state quotes: a list of identities, in chunks.

Owns `quoted`. A state whose past was cut stands for thousands of messages and is written every
turn; only chunks that changed are written. Always holds: an identity that stands here was not
forgotten when it was written, and forgetting takes it out, so what has not changed needs no
second look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.packing import pack_ids, unpack_ids

# 4 KiB of packed ids: a page.
_CHUNK: Final = 256

_HELD: Final = "SELECT ids FROM quoted WHERE session = ? ORDER BY chunk"
_ALL: Final = "SELECT session, ids FROM quoted ORDER BY session, chunk"
_PUT: Final = "REPLACE INTO quoted (session, chunk, ids) VALUES (?, ?, ?)"
_DROP_FROM: Final = "DELETE FROM quoted WHERE session = ? AND chunk >= ?"


Chunks: TypeAlias = list[tuple[bytes | str | None, Sequence[str]]]
"""Identities in chunks, each as its column holds it, and as it is."""


def in_chunks(ids: Sequence[str]) -> Chunks:
    """Identities as they are kept."""
    cut = (ids[at : at + _CHUNK] for at in range(0, len(ids), _CHUNK))
    return [(pack_ids(some), some) for some in cut]


def write_quoted(db: Database, session: int, chunks: Chunks) -> None:
    """Keep whom a session's state quotes; chunks that are there already stay."""
    held = [packed for (packed,) in db.rows(_HELD, (session,))]
    for number, (packed, _) in enumerate(chunks):
        if number >= len(held) or held[number] != packed:
            db.run(_PUT, (session, number, packed))
    if len(held) > len(chunks):
        drop_quoted(db, session, first=len(chunks))


def drop_quoted(db: Database, session: int, *, first: int = 0) -> None:
    """Forget whom a session's state quotes."""
    db.run(_DROP_FROM, (session, first))


def not_kept_yet(db: Database, session: int, chunks: Chunks) -> list[str]:
    """Those of these identities whose chunk changed."""
    held = {packed for (packed,) in db.rows(_HELD, (session,))}
    return [one for packed, some in chunks if packed not in held for one in some]


def all_quoted(db: Database) -> Iterator[tuple[int, list[str] | None]]:
    """Every session with whom its state quotes; None where that cannot be read."""
    for session, rows in groupby(db.rows(_ALL), key=lambda row: int(row[0])):
        try:
            yield session, [one for _, packed in rows for one in unpack_ids(packed)]
        except (ValueError, TypeError):
            yield session, None
