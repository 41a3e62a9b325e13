"""What was forgotten, and may not be written again: tombstones, and segments that are gone.

Owns `tombstone` and `gone_segment`. A tombstone stands for an identity wherever it is said, for
one segment, for a piece of the ledger or for a compaction. Must never hold content.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from recollect.adapters.stores.sqlite.database import Database
from recollect.adapters.stores.sqlite.rows import json_list

_ANY_TOMBSTONE: Final = "SELECT EXISTS (SELECT 1 FROM tombstone)"
_TOMBSTONES: Final = """
SELECT message_id FROM tombstone WHERE message_id IN (SELECT value FROM json_each(?))
"""
_PUT_TOMBSTONE: Final = "INSERT OR IGNORE INTO tombstone (message_id, at) VALUES (?, ?)"
_GONE: Final = "SELECT id FROM gone_segment WHERE id IN (SELECT value FROM json_each(?))"
_PUT_GONE: Final = """
INSERT INTO gone_segment (id, message_id) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET message_id = excluded.message_id WHERE message_id IS NULL
"""
_ANY_GONE: Final = "SELECT EXISTS (SELECT 1 FROM gone_segment)"
_UNSAID: Final = """
SELECT DISTINCT g.message_id FROM gone_segment AS g
WHERE g.message_id IN (SELECT value FROM json_each(?))
  AND NOT EXISTS (SELECT 1 FROM segment AS s WHERE s.message_id = g.message_id)
"""


def tombstoned(db: Database, ids: Iterable[str]) -> set[str]:
    if not db.value(_ANY_TOMBSTONE):
        return set()
    rows = db.rows(_TOMBSTONES, (json_list(set(ids)),))
    return {row[0] for row in rows}


def unquotable(db: Database, ids: Iterable[str]) -> set[str]:
    """Which of these identities nothing may quote: forgotten, or gone from every place."""
    asked = set(ids)
    if not asked:
        return set()
    found = tombstoned(db, asked)
    if db.value(_ANY_GONE):
        found.update(value for (value,) in db.rows(_UNSAID, (json_list(asked),)))
    return found


def put_tombstones(db: Database, ids: Iterable[str], at: float) -> None:
    db.run_many(_PUT_TOMBSTONE, [(other, at) for other in ids])


def gone_segments(db: Database, ids: Iterable[str]) -> set[str]:
    return {row[0] for row in db.rows(_GONE, (json_list(set(ids)),))}


def put_gone(db: Database, segments: Iterable[tuple[str, str]]) -> None:
    db.run_many(_PUT_GONE, list(segments))
