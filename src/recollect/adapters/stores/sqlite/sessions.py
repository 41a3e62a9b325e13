"""Session state, the session's path, the messages that the state quotes, and tombstones.

A turn writes only the new end of the path, as a chunk. If a session branches inside a chunk, this
chunk is split, so that chunks follow each other without a gap. Forgetting a message also removes it
from `quoted`. A tombstone names a message, segment, ledger piece or compaction, without content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from typing import Final, TypeAlias

from recollect.adapters.stores.invariants import SessionOutcome
from recollect.adapters.stores.sqlite.columns import json_list, pack_ids, pack_text, unpack_ids
from recollect.adapters.stores.sqlite.database import Database
from recollect.core.formats.stored_records import SoughtText, without_quotes
from recollect.core.values.batch import SessionWrite, StoredSession
from recollect.core.values.message import EntryKey, MessageId
from recollect.errors import FormatError

_ANY_TOMBSTONE: Final = "SELECT EXISTS (SELECT 1 FROM tombstone)"
_TOMBSTONES: Final = """
SELECT message_id FROM tombstone WHERE message_id IN (SELECT value FROM json_each(?))
"""
_PUT_TOMBSTONE: Final = "INSERT OR IGNORE INTO tombstone (message_id, at) VALUES (?, ?)"
_FORGOTTEN: Final = "SELECT id FROM gone_segment WHERE id IN (SELECT value FROM json_each(?))"
_ADD_FORGOTTEN: Final = """
INSERT INTO gone_segment (id, message_id) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET message_id = excluded.message_id WHERE message_id IS NULL
"""
_ANY_FORGOTTEN: Final = "SELECT EXISTS (SELECT 1 FROM gone_segment)"
_UNSAID: Final = """
SELECT DISTINCT g.message_id FROM gone_segment AS g
WHERE g.message_id IN (SELECT value FROM json_each(?))
  AND NOT EXISTS (SELECT 1 FROM segment AS s WHERE s.message_id = g.message_id)
"""


def find_tombstones(db: Database, ids: Iterable[str] | None) -> set[str]:
    if ids is None:
        return {row[0] for row in db.rows("SELECT message_id FROM tombstone")}
    if not db.value(_ANY_TOMBSTONE):
        return set()
    return {row[0] for row in db.rows(_TOMBSTONES, (json_list(set(ids)),))}


def find_unquotable(db: Database, ids: Iterable[str]) -> set[str]:
    """Return the messages that no record may quote: they were forgotten or are not stored."""
    searched_ids = set(ids)
    if not searched_ids:
        return set()
    banned_ids = find_tombstones(db, searched_ids)
    if db.value(_ANY_FORGOTTEN):
        banned_ids.update(value for (value,) in db.rows(_UNSAID, (json_list(searched_ids),)))
    return banned_ids


def put_tombstones(db: Database, ids: Iterable[str], forgotten_at: float) -> None:
    db.run_many(_PUT_TOMBSTONE, [(id_, forgotten_at) for id_ in ids])


def find_gone_segments(db: Database, ids: Iterable[str]) -> set[str]:
    return {row[0] for row in db.rows(_FORGOTTEN, (json_list(set(ids)),))}


def add_forgotten(db: Database, segments: Iterable[tuple[str, str]]) -> None:
    db.run_many(_ADD_FORGOTTEN, list(segments))


# One page of 4 KiB with packed ids: a branch rewrites one chunk of a path.
_CHUNK: Final = 256

_HELD: Final = "SELECT ids FROM quoted WHERE session = ? ORDER BY chunk"
_ALL: Final = "SELECT session, ids FROM quoted ORDER BY session, chunk"
_PUT: Final = "REPLACE INTO quoted (session, chunk, ids) VALUES (?, ?, ?)"
_DROP_QUOTED: Final = "DELETE FROM quoted WHERE session = ? AND chunk >= ?"


Chunks: TypeAlias = list[tuple[bytes | str | None, Sequence[str]]]
"""Message ids in chunks. For each chunk: the stored column, and the ids."""


def to_chunks(ids: Sequence[str]) -> Chunks:
    parts = (ids[index : index + _CHUNK] for index in range(0, len(ids), _CHUNK))
    return [(pack_ids(part), part) for part in parts]


def write_quoted(db: Database, session: int, chunks: Chunks) -> None:
    stored_chunks = [packed_ids for (packed_ids,) in db.rows(_HELD, (session,))]
    for number, (packed_ids, _) in enumerate(chunks):
        if number >= len(stored_chunks) or stored_chunks[number] != packed_ids:
            db.run(_PUT, (session, number, packed_ids))
    if len(stored_chunks) > len(chunks):
        drop_quoted(db, session, first=len(chunks))


def drop_quoted(db: Database, session: int, *, first: int = 0) -> None:
    db.run(_DROP_QUOTED, (session, first))


def _find_new_quotes(db: Database, session: int, chunks: Chunks) -> list[str]:
    """Return the ids of chunks that are not stored yet."""
    stored_chunks = {packed_ids for (packed_ids,) in db.rows(_HELD, (session,))}
    return [id_ for packed_ids, ids in chunks if packed_ids not in stored_chunks for id_ in ids]


def read_quoted(db: Database) -> Iterator[tuple[int, list[str] | None]]:
    """Yield each session with the messages that its state quotes; None if they are unreadable."""
    for session, rows in groupby(db.rows(_ALL), key=lambda row: int(row[0])):
        try:
            yield session, [id_ for _, packed_ids in rows for id_ in unpack_ids(packed_ids)]
        except (ValueError, TypeError):
            yield session, None


_FIND: Final = "SELECT number, turn, length FROM session WHERE name = ?"
_STATE: Final = "SELECT state FROM session WHERE number = ?"
_ADD: Final = "INSERT INTO session (name) VALUES (?)"
_READ: Final = "SELECT number, turn, length, state FROM session WHERE name = ?"
_CHUNKS: Final = "SELECT start, count, keys, ids FROM path WHERE session = ? ORDER BY start"
_LAST_CHUNK: Final = """
SELECT start, count, keys, ids FROM path WHERE session = ? AND start < ?
ORDER BY start DESC LIMIT 1
"""
_DROP_FROM: Final = "DELETE FROM path WHERE session = ? AND start >= ?"
_PUT_CHUNK: Final = "REPLACE INTO path (session, start, count, keys, ids) VALUES (?, ?, ?, ?, ?)"
_PUT_STATE: Final = "UPDATE session SET turn = ?, length = ?, state = ? WHERE number = ?"
_CLEAN_STATE: Final = "UPDATE session SET state = ? WHERE number = ?"


def session_number(db: Database, name: str) -> int:
    number = find_session(db, name)
    if number is None:
        db.run(_ADD, (pack_text(name),))
        number = db.last_number()
    return number


def find_session(db: Database, name: str) -> int | None:
    rows = db.rows(_FIND, (pack_text(name),))
    return int(rows[0][0]) if rows else None


def write_session(
    db: Database, write: SessionWrite, forgotten_ids: AbstractSet[str], said_ids: AbstractSet[str]
) -> SessionOutcome:
    """Store a session's state. The result is stale if the session has advanced or the write does
    not follow the stored state. An unreadable stored state never makes a write stale, or the
    session could not be written again. The state must quote no message in `forgotten_ids`;
    `said_ids` are the messages that this batch stores."""
    rows = db.rows(_FIND, (pack_text(write.session),))
    number, turn, length = rows[0] if rows else (None, None, 0)
    if write.path_from > length:
        return SessionOutcome(stale=True)
    chunks = to_chunks(write.about)
    if turn is not None and write.turn <= turn and read_session(db, write.session) is not None:
        if write.turn < turn:
            return SessionOutcome(stale=True)
        return _compare_repeated(
            db, number, write, _find_forgotten(db, number, chunks, forgotten_ids, said_ids)
        )
    if number is None:
        number = session_number(db, write.session)
    try:
        _write_path(db, number, write, length)
    except (ValueError, TypeError):  # the chunk in which the path branches cannot be read
        forget_state(db, number)
        return SessionOutcome(stale=True)
    state: bytes | None = write.state
    quoted_ids = _find_forgotten(db, number, chunks, forgotten_ids, said_ids)
    if quoted_ids:
        state = _clean_state(db, number, write.state, quoted_ids)
        if state is None:
            forget_state(db, number)
            return SessionOutcome(stale=True, cleaned=True)
        chunks = to_chunks(
            [message_id for message_id in write.about if message_id not in quoted_ids]
        )
    length = write.path_from + len(write.path)
    db.run(_PUT_STATE, (write.turn, length, state, number))
    write_quoted(db, number, chunks)
    return SessionOutcome(cleaned=state != write.state)


def _find_forgotten(
    db: Database,
    number: int,
    chunks: Chunks,
    forgotten_ids: AbstractSet[str],
    said_ids: AbstractSet[str],
) -> set[str]:
    banned_ids = forgotten_ids | (
        find_unquotable(db, _find_new_quotes(db, number, chunks)) - said_ids
    )
    return {id_ for _, ids in chunks for id_ in ids if id_ in banned_ids} if banned_ids else set()


def _compare_repeated(
    db: Database, number: int, write: SessionWrite, quoted_ids: set[str]
) -> SessionOutcome:
    stored_state = db.value(_STATE, (number,))
    if stored_state == write.state:
        return SessionOutcome()
    is_repeat = (
        bool(quoted_ids) and _clean_state(db, number, write.state, quoted_ids) == stored_state
    )
    return SessionOutcome(stale=not is_repeat, cleaned=is_repeat)


def _write_path(db: Database, number: int, write: SessionWrite, length: int) -> None:
    keys: list[str] = list(write.path)
    ids: list[str] = list(write.ids)
    start = write.path_from
    if start < length:
        last = db.rows(_LAST_CHUNK, (number, start))
        db.run(_DROP_FROM, (number, start))
        if last and last[0][0] + last[0][1] > start:  # the path branches inside a chunk
            offset, _, held_keys, held_ids = last[0]
            keys = unpack_ids(held_keys)[: start - offset] + keys
            ids = unpack_ids(held_ids)[: start - offset] + ids
            start = offset
    for offset in range(0, len(keys), _CHUNK):
        chunk_keys = keys[offset : offset + _CHUNK]
        columns = pack_ids(chunk_keys), pack_ids(ids[offset : offset + _CHUNK])
        db.run(_PUT_CHUNK, (number, start + offset, len(chunk_keys), *columns))


def read_session(db: Database, session: str) -> StoredSession | None:
    rows = db.rows(_READ, (pack_text(session),))
    if not rows or rows[0][1] is None:
        return None
    number, turn, length, state = rows[0]
    try:
        keys, ids = read_path(db, number)
    except (ValueError, TypeError):
        return None
    if len(keys) != length or len(ids) != length or not isinstance(state, bytes):
        return None
    return StoredSession(
        session=session,
        turn=turn,
        state=state,
        path=tuple(map(EntryKey, keys)),
        ids=tuple(map(MessageId, ids)),
    )


def read_path(db: Database, number: int) -> tuple[list[str], list[str]]:
    """Return keys and ids of a session's path. Raise ValueError if the path cannot be read."""
    keys: list[str] = []
    ids: list[str] = []
    for start, count, packed_keys, packed_ids in db.rows(_CHUNKS, (number,)):
        if start != len(keys):
            raise ValueError("the path has a gap")
        keys += unpack_ids(packed_keys)
        ids += unpack_ids(packed_ids)
        if len(keys) != start + count or len(ids) != start + count:
            raise ValueError("a chunk of the path is torn")
    return keys, ids


def forget_state(db: Database, number: int) -> None:
    """Remove the session's state, not its name. The client's next history then counts as new."""
    db.run(_DROP_FROM, (number, 0))
    drop_quoted(db, number)
    db.run(_PUT_STATE, (None, 0, None, number))


def forget_quotes(db: Database, forgotten_ids: set[str]) -> int:
    changed = 0
    for number, listed_ids in list(read_quoted(db)) if forgotten_ids else ():
        # A state that does not list its quoted messages is treated as if it quoted all.
        quoted_ids = forgotten_ids if listed_ids is None else forgotten_ids.intersection(listed_ids)
        if not quoted_ids:
            continue
        changed += 1
        clean_state = _clean_state(db, number, db.value(_STATE, (number,)), quoted_ids)
        if clean_state is None:
            forget_state(db, number)
            continue
        write_quoted(
            db, number, to_chunks([id_ for id_ in listed_ids or () if id_ not in quoted_ids])
        )
        db.run(_CLEAN_STATE, (clean_state, number))
    return changed


def forget_session(db: Database, number: int) -> int:
    """Remove a session that has no segments and turns. Return 1 if it had a state, else 0."""
    had_state = db.value("SELECT turn FROM session WHERE number = ?", (number,)) is not None
    forget_state(db, number)
    db.run("DELETE FROM session WHERE number = ?", (number,))
    return int(had_state)


def forget_text_in_states(db: Database, text: SoughtText) -> int:
    changed = 0
    for number, state in db.rows("SELECT number, state FROM session WHERE state IS NOT NULL"):
        clean_state = text.remove_from(state) if isinstance(state, bytes) else None
        if clean_state == state:
            continue
        changed += 1
        if clean_state is None:
            forget_state(db, number)
        else:
            drop_quoted(db, number)
            db.run(_CLEAN_STATE, (clean_state, number))
    return changed


def _clean_state(db: Database, number: int, state: bytes, quoted_ids: set[str]) -> bytes | None:
    try:
        keys, ids = read_path(db, number)
        cut_keys = frozenset(
            EntryKey(key) for key, id_ in zip(keys, ids, strict=True) if id_ in quoted_ids
        )
        return without_quotes(state, cut_keys)
    except (ValueError, TypeError, FormatError):
        return None
