"""The compactions of sessions, as they are kept for receipts, diffs and undo.

Owns `compaction`. A record that is there is never changed. Always holds: no record stands for a
message that was forgotten, nor for one of its session whose place was; and what was removed does
not come back. They stay when the ledger expires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from recollect.formats.stored_records import SoughtText
from recollect.stores.marks import compaction_mark
from recollect.stores.sqlite.database import Database, Row
from recollect.stores.sqlite.marks import tombstoned, unquotable
from recollect.stores.sqlite.packing import pack_ids, text_of, unpack_ids
from recollect.stores.sqlite.rows import readable
from recollect.stores.sqlite.sessions import known_session, session_number
from recollect.values.compaction import CompactionRecord
from recollect.values.message import MessageId

SELECT_COMPACTION: Final = """
SELECT c.id, CAST(s.name AS BLOB), c.number, c.at, c.about, c.body
FROM compaction AS c JOIN session AS s ON s.number = c.session
"""
_ADD: Final = """
INSERT OR IGNORE INTO compaction (session, number, at, about, body) VALUES (?, ?, ?, ?, ?)
"""
_OF_SESSION: Final = SELECT_COMPACTION + "WHERE c.session = ? ORDER BY c.number"
_ONE: Final = SELECT_COMPACTION + "WHERE c.id = ?"
_ABOUT: Final = "SELECT id, session, about FROM compaction"
_DROP: Final = "DELETE FROM compaction WHERE id = ?"


def covers_forgotten(
    db: Database, records: Sequence[CompactionRecord], said: AbstractSet[str]
) -> set[str]:
    """Whom these records stand for and may not; `said` are the identities this batch stores."""
    return unquotable(db, {one for record in records for one in record.about}) - said


def add_compactions(
    db: Database,
    records: Sequence[CompactionRecord],
    forgotten: AbstractSet[str],
    *,
    but_of: str | None,
) -> None:
    """Keep records that are not kept yet, `but_of` a session whose write is stale.

    None that stands for what was `forgotten`.
    """
    if not records:
        return
    refused = forgotten | tombstoned(db, map(compaction_mark, records))
    for record in records:
        if record.session == but_of or compaction_mark(record) in refused:
            continue
        if refused.isdisjoint(record.about):
            session = session_number(db, record.session)
            packed = pack_ids(record.about)
            db.run(_ADD, (session, record.number, record.at, packed, record.body))


def read_compactions(db: Database, session: str) -> tuple[CompactionRecord, ...]:
    """The compactions of a session by number."""
    rows = db.rows(_OF_SESSION, (known_session(db, session),))
    return tuple(readable(rows, stored_compaction))


def stored_compaction(row: Row) -> CompactionRecord:
    """A row of `SELECT_COMPACTION`; ValueError or TypeError when it cannot be read."""
    _, name, number, at, about, body = row
    return CompactionRecord(
        session=text_of(name),
        number=int(number),
        at=float(at),
        body=bytes(body),
        about=tuple(map(MessageId, unpack_ids(about))),
    )


def forget_compactions(
    db: Database,
    unsaid: AbstractSet[str],
    places: Mapping[int, AbstractSet[str]],
    whole: AbstractSet[int],
) -> list[CompactionRecord | None]:
    """Drop those that stand for the `unsaid`, for `places` of their session that went, or whose
    session goes as a `whole`; what went, None for one that could not be read."""
    if not (unsaid or places or whole):
        return []
    gone = [
        id_
        for id_, session, packed in db.rows(_ABOUT)
        if session in whole or _stands_for(packed, unsaid, places.get(session, frozenset()))
    ]
    return [_dropped(db, id_) for id_ in gone]


def forget_text_in_compactions(db: Database, text: SoughtText) -> list[CompactionRecord | None]:
    """Drop those whose body holds a text, looked at one at a time; what went."""
    ids = [id_ for (id_,) in db.rows("SELECT id FROM compaction")]
    body = "SELECT body FROM compaction WHERE id = ?"
    gone = [id_ for id_ in ids if text.stands_in(db.value(body, (id_,)))]
    return [_dropped(db, id_) for id_ in gone]


def _stands_for(
    packed: bytes | str | None, unsaid: AbstractSet[str], places: AbstractSet[str]
) -> bool:
    try:
        about = unpack_ids(packed)
    except (ValueError, TypeError):
        return True  # it does not say for whom it stands
    return not (unsaid.isdisjoint(about) and places.isdisjoint(about))


def _dropped(db: Database, id_: int) -> CompactionRecord | None:
    held = readable(db.rows(_ONE, (id_,)), stored_compaction)
    db.run(_DROP, (id_,))
    return held[0] if held else None
