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
    json_list,
    pack_body,
    pack_ids,
    read_rows,
    rows_quoting,
    text_of,
    unpack_body,
    unpack_ids,
)
from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.adapters.stores.sqlite.sessions import known_session, session_number
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
_COUNT_BYTES: Final = 4
"""Bytes of the count before a list's chunks. A list with this count has a length that is no
multiple of 16; all other lists have such a length."""

_HASH_CHARS: Final = 32
_NAMED: Final = ("system", "tools", "rest", "edits", "report")


class SharedIds:
    """Packs and unpacks long lists of ids, and stores each chunk of ids once. The list of a
    compaction repeats the list of the previous compaction. A packed list has the number of its
    chunks in four bytes, the chunks' hashes, then the remaining ids."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._read: dict[bytes, list[str]] = {}

    def pack(self, ids: Sequence[str]) -> bytes | str | None:
        packed = pack_ids(ids)
        if not isinstance(packed, bytes) or len(packed) < _CHUNK_BYTES:
            return packed
        end = len(packed) // _CHUNK_BYTES * _CHUNK_BYTES
        chunks = [packed[at : at + _CHUNK_BYTES] for at in range(0, end, _CHUNK_BYTES)]
        hashes = [_hash(chunk) for chunk in chunks]
        self._db.run_many(_ADD_CHUNK, list(zip(hashes, chunks, strict=True)))
        return len(hashes).to_bytes(_COUNT_BYTES) + b"".join(hashes) + packed[end:]

    def unpack(self, packed: bytes | str | None) -> list[str]:
        ids: list[str] = []
        hashes = _chunk_hashes(packed)
        for hash_ in hashes:
            if hash_ not in self._read:
                chunk = self._db.value(_CHUNK, (hash_,))
                if not isinstance(chunk, bytes) or _hash(chunk) != hash_:
                    raise ValueError("a chunk of ids is missing or torn")
                self._read[hash_] = unpack_ids(chunk)
            ids += self._read[hash_]
        if hashes and isinstance(packed, bytes):
            packed = packed[_COUNT_BYTES + len(hashes) * _HASH_BYTES :] or None
        return ids + unpack_ids(packed)

    def drop_unused(self) -> None:
        stored = {hash_ for (hash_,) in self._db.rows("SELECT hash FROM id_chunk")}
        if not stored:
            return
        for (packed,) in self._db.rows(_LONG_LISTS):
            stored.difference_update(_chunk_hashes(packed))
        self._db.run_many("DELETE FROM id_chunk WHERE hash = ?", [(hash_,) for hash_ in stored])


def _hash(chunk: bytes) -> bytes:
    return blake2b(chunk, digest_size=_HASH_BYTES).digest()


def _chunk_hashes(packed: bytes | str | None) -> list[bytes]:
    if not isinstance(packed, bytes) or len(packed) % _HASH_BYTES != _COUNT_BYTES:
        return []
    end = _COUNT_BYTES + int.from_bytes(packed[:_COUNT_BYTES]) * _HASH_BYTES
    end = min(end, len(packed))  # the list may be truncated; an invalid hash finds no chunk
    return [packed[at : at + _HASH_BYTES] for at in range(_COUNT_BYTES, end, _HASH_BYTES)]


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
        written = json.dumps({name: value for name, value in head.items() if value is not None})
        packed = pack_body(written.encode())
        session = session_number(db, turn.session)
        rows = pack_ids(turn.rows) or b""
        db.run(_ADD_TURN, (session, turn.number, turn.at, turn.kept_rows, packed, rows))


def turn_numbers(db: Database, session: str) -> tuple[int, ...]:
    number = known_session(db, session)
    return tuple(value for (value,) in db.rows(_NUMBERS, (number,)))


def rebuilt_turn(db: Database, session: str, number: int) -> RebuiltTurn | None:
    """Rebuild a turn with all its rows; None if it is not stored or cannot be read."""
    back = db.rows(_BACK_FROM, (known_session(db, session), number))
    if not back or back[0][0] != number:
        return None
    try:
        record = _record(session, back[0])
        rows = rows_of_turn((row[2], unpack_ids(row[4] or None)) for row in back)
    except (ValueError, TypeError, KeyError):
        return None
    return None if rows is None else RebuiltTurn(record=record, rows=tuple(map(PieceHash, rows)))


def turn_records(db: Database, session: str) -> tuple[TurnRecord, ...]:
    rows = db.rows(_RECORDS, (known_session(db, session),))
    return tuple(read_rows(rows, partial(_record, session)))


def read_pieces(db: Database, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
    rows = db.rows(_PIECES, (json_list(hashes),))
    read = partial(_piece, SharedIds(db))
    return {piece.hash: piece for piece in read_rows(rows, read)}


def rows_about(db: Database, ids: Collection[MessageId]) -> tuple[PieceHash, ...]:
    quoting = rows_quoting(db.rows(_ROWS_ABOUT), set(ids), SharedIds(db).unpack)
    return tuple(map(PieceHash, quoting))


def _piece(ids: SharedIds, row: Row) -> LedgerPiece:
    hash_, kind, exact, about, body = row
    quoted = tuple(map(MessageId, ids.unpack(about)))
    return LedgerPiece(
        hash=PieceHash(hash_), kind=kind, body=unpack_body(body), about=quoted, exact=bool(exact)
    )


def expire(db: Database, *, before: float) -> int:
    removed, named = 0, set()
    for (session,) in db.rows(_EXPIRING, (before,)):
        expired, freed = _expire_session(db, session, before)
        removed += expired
        named |= freed
    if named:
        named -= _named_by_all(db)
        drop_pieces(db, named)
        SharedIds(db).drop_unused()
    return removed


def _expire_session(db: Database, session: int, before: float) -> tuple[int, set[str]]:
    full: list[str] = []
    resting: list[str] = []  # the rows of the last turn that stays
    removed, named, handed = 0, set(), False
    for number, at, kept, head, packed in db.rows(_TURNS_OF_SESSION, (session,)):
        own = _ids(packed)
        full = full[:kept] + own
        if at < before:
            db.run(_DROP_TURN, (session, number))
            named |= {*own, *_named_by(head)}
            removed, handed = removed + 1, True
            continue
        if handed:
            shared = _shared_length(resting, full)
            rows = pack_ids(full[shared:]) or b""
            db.run(_HAND_ON, (shared, rows, session, number))
            handed = False
        resting = full
    return removed, named


def _shared_length(before: Sequence[str], after: Sequence[str]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))


def _named_by_all(db: Database) -> set[str]:
    named: set[str] = set()
    for head, rows in db.rows("SELECT head, rows FROM turn"):
        named.update(_ids(rows))
        named.update(_named_by(head))
    return named


def drop_pieces(db: Database, hashes: set[str]) -> None:
    db.run(_DROP_PIECES, (json_list(sorted(hashes)),))


def forget_pieces(db: Database, forgotten: set[str]) -> int:
    if not forgotten:
        return 0
    removed = set(rows_quoting(db.rows(_PIECES_ABOUT), forgotten, SharedIds(db).unpack))
    drop_pieces(db, removed)
    return len(removed)


def forget_turns(db: Database, session: int) -> int:
    named: set[str] = set()
    for _, _, _, head, rows in db.rows(_TURNS_OF_SESSION, (session,)):
        named.update(_ids(rows), _named_by(head))
    db.run("DELETE FROM turn WHERE session = ?", (session,))
    if not named:
        return 0
    drop_pieces(db, named - _named_by_all(db))
    return db.changed()


def forget_text_in_pieces(db: Database, text: SoughtText) -> set[str]:
    hashes = [hash_ for (hash_,) in db.rows("SELECT hash FROM piece")]
    body = "SELECT body FROM piece WHERE hash = ?"
    removed = {hash_ for hash_ in hashes if _holds(db.value(body, (hash_,)), text)}
    drop_pieces(db, removed)
    return removed


def _holds(stored: bytes, text: SoughtText) -> bool:
    try:
        return text.occurs_in(unpack_body(stored))
    except ValueError:
        return True  # the list is truncated, but its first part is readable


def _ids(packed: bytes | str | None) -> list[str]:
    try:
        return unpack_ids(packed or None)
    except (ValueError, TypeError):
        return []


def _head(stored: str | bytes) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(stored if isinstance(stored, str) else unpack_body(stored))
    return head


def _named_by(head: str | bytes) -> list[str]:
    try:
        row = _head(head)
        return [*[row[name] for name in _NAMED if name in row], *_outcomes(row)]
    except (ValueError, TypeError):
        return []


def _outcomes(head: Mapping[str, Any]) -> tuple[PieceHash, ...]:
    joined = head.get("outcomes", "")
    names = [joined[at : at + _HASH_CHARS] for at in range(0, len(joined), _HASH_CHARS)]
    return tuple(map(PieceHash, names))


def _record(session: str, row: tuple[Any, ...]) -> TurnRecord:
    number, at, kept, head, rows = row
    stored_row = _head(head)
    stored_row["outcomes"] = _outcomes(stored_row)
    return TurnRecord(
        session=session,
        number=number,
        at=at,
        kept_rows=kept,
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
    db: Database, records: Sequence[CompactionRecord], refused: AbstractSet[str]
) -> None:
    """Store new compactions, except those whose mark, or a message of which, is in `refused`."""
    for record in records:
        if refused.isdisjoint((compaction_mark(record), *record.about)):
            session = session_number(db, record.session)
            packed = SharedIds(db).pack(record.about)
            body = pack_body(record.body)
            db.run(_ADD, (session, record.number, record.at, packed, body))


def read_compactions(db: Database, session: str) -> tuple[CompactionRecord, ...]:
    rows = db.rows(_OF_SESSION, (known_session(db, session),))
    return tuple(read_rows(rows, partial(stored_compaction, SharedIds(db))))


def stored_compaction(ids: SharedIds, row: Row) -> CompactionRecord:
    _, name, number, at, about, body = row
    return CompactionRecord(
        session=text_of(name),
        number=int(number),
        at=float(at),
        body=unpack_body(bytes(body)),
        about=tuple(map(MessageId, ids.unpack(about))),
    )


def forget_compactions(
    db: Database,
    unsaid: AbstractSet[str],
    places: Mapping[int, AbstractSet[str]],
    whole: AbstractSet[int],
) -> list[CompactionRecord | None]:
    """Remove compactions that cover a message in `unsaid` or one of `places`, or whose session is
    in `whole`. Return the removed compactions, with None for each unreadable one."""
    if not (unsaid or places or whole):
        return []
    ids = SharedIds(db)
    removed = [
        id_
        for id_, session, packed in db.rows(_ABOUT)
        if session in whole or _covers(ids, packed, unsaid, places.get(session, frozenset()))
    ]
    return [_drop_compaction(db, id_) for id_ in removed]


def forget_text_in_compactions(db: Database, text: SoughtText) -> list[CompactionRecord | None]:
    ids = [id_ for (id_,) in db.rows("SELECT id FROM compaction")]
    body = "SELECT body FROM compaction WHERE id = ?"
    removed = [id_ for id_ in ids if _holds(db.value(body, (id_,)), text)]
    return [_drop_compaction(db, id_) for id_ in removed]


def _covers(
    ids: SharedIds, packed: bytes | str | None, unsaid: AbstractSet[str], places: AbstractSet[str]
) -> bool:
    try:
        about = ids.unpack(packed)
    except (ValueError, TypeError):
        return True  # the record does not name the messages that it covers
    return not (unsaid.isdisjoint(about) and places.isdisjoint(about))


def _drop_compaction(db: Database, id_: int) -> CompactionRecord | None:
    compactions = read_rows(db.rows(_ONE, (id_,)), partial(stored_compaction, SharedIds(db)))
    db.run(_DROP, (id_,))
    return compactions[0] if compactions else None
