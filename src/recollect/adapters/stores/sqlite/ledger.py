"""The ledger: the requests that were sent, turn by turn, and the compactions of sessions.

A piece of a request is stored once, and a turn stores only the pieces that it added. A turn's rows
are the first `kept_rows` of the previous turn, followed by its own. Compactions never change."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from recollect.adapters.stores.invariants import compaction_mark, rows_of_turn
from recollect.adapters.stores.sqlite.columns import (
    find_quoting_keys,
    json_list,
    pack_body,
    pack_ids,
    read_rows,
    text_of,
    unpack_body,
    unpack_ids,
)
from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.adapters.stores.sqlite.sessions import find_session, session_number
from recollect.core.formats.stored_records import SoughtText
from recollect.core.values.batch import LedgerPiece, PieceHash, RebuiltTurn, TurnRecord
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.message import MessageId

_ADD_PIECE: Final = """
INSERT OR IGNORE INTO piece (hash, kind, exact, about, body) VALUES (?, ?, ?, ?, ?)
"""
_ADD_TURN: Final = """
INSERT OR IGNORE INTO turn (session, number, at, kept_rows, head, rows) VALUES (?, ?, ?, ?, ?, ?)
"""
_NUMBERS: Final = "SELECT number FROM turn WHERE session = ? ORDER BY number"
_BACK_FROM: Final = """
SELECT number, at, kept_rows, head, rows FROM turn WHERE session = ? AND number <= ?
ORDER BY number DESC
"""
_PIECES: Final = """
SELECT hash, kind, exact, about, body FROM piece
WHERE hash IN (SELECT value FROM json_each(?))
"""
_EXPIRING: Final = "SELECT DISTINCT session FROM turn WHERE at < ?"
_TURNS_OF_SESSION: Final = """
SELECT number, at, kept_rows, head, rows FROM turn WHERE session = ? ORDER BY number
"""
_RECORDS: Final = """
SELECT number, at, kept_rows, head, NULL FROM turn WHERE session = ? ORDER BY number
"""
_DROP_TURN: Final = "DELETE FROM turn WHERE session = ? AND number = ?"
_HAND_ON: Final = "UPDATE turn SET kept_rows = ?, rows = ? WHERE session = ? AND number = ?"
_DROP_PIECES: Final = "DELETE FROM piece WHERE hash IN (SELECT value FROM json_each(?))"
_PIECES_ABOUT: Final = "SELECT hash, about FROM piece WHERE about IS NOT NULL"

_ROWS_ABOUT: Final = "SELECT hash, about FROM piece WHERE kind = 'row' AND about IS NOT NULL"

_ADD_CHUNK: Final = """
INSERT INTO id_chunk (hash, ids) VALUES (?, ?)
ON CONFLICT (hash) DO UPDATE SET ids = excluded.ids WHERE ids != excluded.ids
"""
_CHUNK: Final = "SELECT ids FROM id_chunk WHERE hash = ?"
_LONG_LISTS: Final = """
SELECT about FROM piece WHERE length(about) % 16 = 4 UNION ALL
SELECT about FROM compaction WHERE length(about) % 16 = 4
"""
_CHUNK_BYTES: Final = 32 * 16
"""Bytes of a chunk: 32 message ids. A chunk of 64 ids would need its own page."""
_HASH_BYTES: Final = 16
"""With 128 bits, no two chunks have the same hash in practice."""
_COUNT_BYTES: Final = 4
"""Bytes of the count before a list's chunks. A list with this count has a length that is no
multiple of 16; all other lists have such a length."""

_HASH_CHARS: Final = 32
"""Hexadecimal digits of a piece's hash. A turn's outcomes are hashes without separators."""
_NAMED: Final = ("system", "tools", "rest", "edits", "report")


class SharedIds:
    """Packs and unpacks long lists of ids, and stores each chunk of ids once. The list of a
    compaction repeats the list of the previous compaction. A packed list has the number of its
    chunks in four bytes, the chunks' hashes, then the remaining ids."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._ids_by_hash: dict[bytes, list[str]] = {}

    def pack(self, ids: Sequence[str]) -> bytes | str | None:
        packed_ids = pack_ids(ids)
        if not isinstance(packed_ids, bytes) or len(packed_ids) < _CHUNK_BYTES:
            return packed_ids
        end = len(packed_ids) // _CHUNK_BYTES * _CHUNK_BYTES
        chunks = [
            packed_ids[offset : offset + _CHUNK_BYTES] for offset in range(0, end, _CHUNK_BYTES)
        ]
        hashes = [_hash(chunk) for chunk in chunks]
        self._db.run_many(_ADD_CHUNK, list(zip(hashes, chunks, strict=True)))
        return len(hashes).to_bytes(_COUNT_BYTES) + b"".join(hashes) + packed_ids[end:]

    def unpack(self, packed_ids: bytes | str | None) -> list[str]:
        ids: list[str] = []
        hashes = _hashes_of(packed_ids)
        for hash_ in hashes:
            if hash_ not in self._ids_by_hash:
                chunk = self._db.value(_CHUNK, (hash_,))
                if not isinstance(chunk, bytes) or _hash(chunk) != hash_:
                    raise ValueError("a chunk of ids is missing or torn")
                self._ids_by_hash[hash_] = unpack_ids(chunk)
            ids += self._ids_by_hash[hash_]
        if hashes and isinstance(packed_ids, bytes):
            packed_ids = packed_ids[_COUNT_BYTES + len(hashes) * _HASH_BYTES :] or None
        return ids + unpack_ids(packed_ids)

    def drop_unused(self) -> None:
        unused_hashes = {hash_ for (hash_,) in self._db.rows("SELECT hash FROM id_chunk")}
        if not unused_hashes:
            return
        for (packed_ids,) in self._db.rows(_LONG_LISTS):
            unused_hashes.difference_update(_hashes_of(packed_ids))
        self._db.run_many(
            "DELETE FROM id_chunk WHERE hash = ?", [(hash_,) for hash_ in unused_hashes]
        )


def _hash(chunk: bytes) -> bytes:
    return blake2b(chunk, digest_size=_HASH_BYTES).digest()


def _hashes_of(packed_ids: bytes | str | None) -> list[bytes]:
    if not isinstance(packed_ids, bytes) or len(packed_ids) % _HASH_BYTES != _COUNT_BYTES:
        return []
    end = _COUNT_BYTES + int.from_bytes(packed_ids[:_COUNT_BYTES]) * _HASH_BYTES
    end = min(end, len(packed_ids))  # the list may be truncated; an invalid hash finds no chunk
    return [
        packed_ids[offset : offset + _HASH_BYTES]
        for offset in range(_COUNT_BYTES, end, _HASH_BYTES)
    ]


def add_pieces(db: Database, pieces: Sequence[LedgerPiece], tombstones: set[str]) -> None:
    ids = SharedIds(db)
    rows = [
        (piece.hash, piece.kind, int(piece.exact), ids.pack(piece.about), pack_body(piece.body))
        for piece in pieces
        if piece.hash not in tombstones and tombstones.isdisjoint(piece.about)
    ]
    if rows:
        db.run_many(_ADD_PIECE, rows)


def add_turns(db: Database, turns: Sequence[TurnRecord]) -> None:
    """Store the turns that are not stored yet."""
    for turn in turns:
        head = {name: getattr(turn, name) for name in ("format", "model", *_NAMED)}
        if turn.outcomes:
            head["outcomes"] = "".join(turn.outcomes)
        head_text = json.dumps({name: value for name, value in head.items() if value is not None})
        packed_head = pack_body(head_text.encode())
        session = session_number(db, turn.session)
        rows = pack_ids(turn.rows) or b""
        db.run(_ADD_TURN, (session, turn.number, turn.at, turn.kept_rows, packed_head, rows))


def list_turns(db: Database, session: str) -> tuple[int, ...]:
    return tuple(value for (value,) in db.rows(_NUMBERS, (find_session(db, session),)))


def rebuild_turn(db: Database, session: str, number: int) -> RebuiltTurn | None:
    """Rebuild a turn with all its rows; None if it is not stored or cannot be read."""
    turn_rows = db.rows(_BACK_FROM, (find_session(db, session), number))
    if not turn_rows or turn_rows[0][0] != number:
        return None
    try:
        record = _record_from_row(session, turn_rows[0])
        rows = rows_of_turn((row[2], unpack_ids(row[4] or None)) for row in turn_rows)
    except (ValueError, TypeError, KeyError):
        return None
    return None if rows is None else RebuiltTurn(record=record, rows=tuple(map(PieceHash, rows)))


def list_records(db: Database, session: str) -> tuple[TurnRecord, ...]:
    rows = db.rows(_RECORDS, (find_session(db, session),))
    return tuple(read_rows(rows, partial(_record_from_row, session)))


def read_pieces(db: Database, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
    rows = db.rows(_PIECES, (json_list(hashes),))
    return {piece.hash: piece for piece in read_rows(rows, partial(_piece_from_row, SharedIds(db)))}


def find_rows_about(db: Database, ids: Collection[MessageId]) -> tuple[PieceHash, ...]:
    quoting_hashes = find_quoting_keys(db.rows(_ROWS_ABOUT), set(ids), SharedIds(db).unpack)
    return tuple(map(PieceHash, quoting_hashes))


def _piece_from_row(ids: SharedIds, row: Row) -> LedgerPiece:
    hash_, kind, exact, packed_about, body = row
    quoted_ids = tuple(map(MessageId, ids.unpack(packed_about)))
    return LedgerPiece(
        hash=PieceHash(hash_),
        kind=kind,
        body=unpack_body(body),
        about=quoted_ids,
        exact=bool(exact),
    )


def expire(db: Database, *, before: float) -> int:
    removed, named_hashes = 0, set()
    for (session,) in db.rows(_EXPIRING, (before,)):
        turn_count, freed_hashes = _expire_session(db, session, before)
        removed += turn_count
        named_hashes |= freed_hashes
    if named_hashes:
        named_hashes -= _find_named_pieces(db)
        drop_pieces(db, named_hashes)
        SharedIds(db).drop_unused()
    return removed


def _expire_session(db: Database, session: int, before: float) -> tuple[int, set[str]]:
    turn_rows: list[str] = []
    last_rows: list[str] = []  # the rows of the last turn that stays
    removed, named_hashes, must_hand_on = 0, set(), False
    for number, sent_at, kept_rows, head, packed_rows in db.rows(_TURNS_OF_SESSION, (session,)):
        own_rows = _read_ids(packed_rows)
        turn_rows = turn_rows[:kept_rows] + own_rows
        if sent_at < before:
            db.run(_DROP_TURN, (session, number))
            named_hashes |= {*own_rows, *_pieces_of_head(head)}
            removed, must_hand_on = removed + 1, True
            continue
        if must_hand_on:
            shared_count = _count_shared(last_rows, turn_rows)
            rows = pack_ids(turn_rows[shared_count:]) or b""
            db.run(_HAND_ON, (shared_count, rows, session, number))
            must_hand_on = False
        last_rows = turn_rows
    return removed, named_hashes


def _count_shared(before: Sequence[str], after: Sequence[str]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(before), len(after)))


def _find_named_pieces(db: Database) -> set[str]:
    hashes: set[str] = set()
    for head, rows in db.rows("SELECT head, rows FROM turn"):
        hashes.update(_read_ids(rows))
        hashes.update(_pieces_of_head(head))
    return hashes


def drop_pieces(db: Database, hashes: set[str]) -> None:
    db.run(_DROP_PIECES, (json_list(sorted(hashes)),))


def forget_pieces(db: Database, forgotten: set[str]) -> int:
    if not forgotten:
        return 0
    removed = set(find_quoting_keys(db.rows(_PIECES_ABOUT), forgotten, SharedIds(db).unpack))
    drop_pieces(db, removed)
    return len(removed)


def forget_turns(db: Database, session: int) -> int:
    hashes: set[str] = set()
    for _, _, _, head, rows in db.rows(_TURNS_OF_SESSION, (session,)):
        hashes.update(_read_ids(rows), _pieces_of_head(head))
    db.run("DELETE FROM turn WHERE session = ?", (session,))
    if not hashes:
        return 0
    drop_pieces(db, hashes - _find_named_pieces(db))
    return db.count_changes()


def forget_text_in_pieces(db: Database, text: SoughtText) -> set[str]:
    hashes = [hash_ for (hash_,) in db.rows("SELECT hash FROM piece")]
    body = "SELECT body FROM piece WHERE hash = ?"
    removed = {hash_ for hash_ in hashes if _holds(db.value(body, (hash_,)), text)}
    drop_pieces(db, removed)
    return removed


def _holds(stored_body: bytes, text: SoughtText) -> bool:
    try:
        return text.occurs_in(unpack_body(stored_body))
    except ValueError:
        return True  # the list is truncated, but its first part is readable


def _read_ids(packed_ids: bytes | str | None) -> list[str]:
    try:
        return unpack_ids(packed_ids or None)
    except (ValueError, TypeError):
        return []


def _read_head(stored_head: str | bytes) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(
        stored_head if isinstance(stored_head, str) else unpack_body(stored_head)
    )
    return head


def _pieces_of_head(head: str | bytes) -> list[str]:
    try:
        row = _read_head(head)
        return [*[row[name] for name in _NAMED if name in row], *_outcomes_of(row)]
    except (ValueError, TypeError):
        return []


def _outcomes_of(head: Mapping[str, Any]) -> tuple[PieceHash, ...]:
    joined_hashes = head.get("outcomes", "")
    names = [
        joined_hashes[offset : offset + _HASH_CHARS]
        for offset in range(0, len(joined_hashes), _HASH_CHARS)
    ]
    return tuple(map(PieceHash, names))


def _record_from_row(session: str, row: tuple[Any, ...]) -> TurnRecord:
    number, sent_at, kept_rows, head, rows = row
    stored_row = _read_head(head)
    stored_row["outcomes"] = _outcomes_of(stored_row)
    return TurnRecord(
        session=session,
        number=number,
        at=sent_at,
        kept_rows=kept_rows,
        rows=tuple(map(PieceHash, unpack_ids(rows or None))),
        **stored_row,
    )


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


def add_compactions(
    db: Database, records: Sequence[CompactionRecord], refused_keys: AbstractSet[str]
) -> None:
    """Store new compactions, except those whose mark, or a message of which, is in
    `refused_keys`."""
    for record in records:
        if refused_keys.isdisjoint((compaction_mark(record), *record.about)):
            session = session_number(db, record.session)
            packed_about = SharedIds(db).pack(record.about)
            db.run(_ADD, (session, record.number, record.at, packed_about, pack_body(record.body)))


def read_compactions(db: Database, session: str) -> tuple[CompactionRecord, ...]:
    rows = db.rows(_OF_SESSION, (find_session(db, session),))
    return tuple(read_rows(rows, partial(compaction_from_row, SharedIds(db))))


def compaction_from_row(ids: SharedIds, row: Row) -> CompactionRecord:
    _, name, number, compacted_at, packed_about, body = row
    return CompactionRecord(
        session=text_of(name),
        number=int(number),
        at=float(compacted_at),
        body=unpack_body(bytes(body)),
        about=tuple(map(MessageId, ids.unpack(packed_about))),
    )


def forget_compactions(
    db: Database,
    unsaid_ids: AbstractSet[str],
    ids_by_session: Mapping[int, AbstractSet[str]],
    whole_sessions: AbstractSet[int],
) -> list[CompactionRecord | None]:
    """Remove compactions that cover a message in `unsaid_ids`, or one that `ids_by_session` lists
    for its session, or whose session is in `whole_sessions`. Return the removed compactions, with
    None for each unreadable one."""
    if not (unsaid_ids or ids_by_session or whole_sessions):
        return []
    ids = SharedIds(db)
    removed = [
        id_
        for id_, session, packed_about in db.rows(_ABOUT)
        if session in whole_sessions
        or _covers(ids, packed_about, unsaid_ids, ids_by_session.get(session, frozenset()))
    ]
    return [_drop_compaction(db, id_) for id_ in removed]


def forget_text_in_compactions(db: Database, text: SoughtText) -> list[CompactionRecord | None]:
    ids = [id_ for (id_,) in db.rows("SELECT id FROM compaction")]
    body = "SELECT body FROM compaction WHERE id = ?"
    removed = [id_ for id_ in ids if _holds(db.value(body, (id_,)), text)]
    return [_drop_compaction(db, id_) for id_ in removed]


def _covers(
    ids: SharedIds,
    packed_about: bytes | str | None,
    unsaid_ids: AbstractSet[str],
    place_ids: AbstractSet[str],
) -> bool:
    try:
        covered_ids = ids.unpack(packed_about)
    except (ValueError, TypeError):
        return True  # the record does not name the messages that it covers
    return not (unsaid_ids.isdisjoint(covered_ids) and place_ids.isdisjoint(covered_ids))


def _drop_compaction(db: Database, id_: int) -> CompactionRecord | None:
    compactions = read_rows(db.rows(_ONE, (id_,)), partial(compaction_from_row, SharedIds(db)))
    db.run(_DROP, (id_,))
    return compactions[0] if compactions else None
