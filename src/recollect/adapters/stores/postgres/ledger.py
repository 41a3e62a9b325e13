"""The ledger: turns by number, the pieces of their requests, and the compactions of sessions.

A turn stores only the rows that it added; reading joins them with those of earlier turns. A
compaction never changes, and stays when turns expire. Expiring a turn leaves every later turn
complete. Compactions that cover a forgotten message are removed permanently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from recollect.adapters.stores.invariants import compaction_mark, rows_of_turn
from recollect.adapters.stores.postgres import driver
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.core.values.batch import LedgerPiece, PieceHash, RebuiltTurn, TurnRecord
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.message import MessageId

_TURNS_PER_QUERY: Final = 64
"""Not measured; bounds the turns that one query reads to rebuild a turn."""

_NUMBERS: Final = """
    SELECT number FROM recollect.turns WHERE space_id = %s AND session = %s ORDER BY number
"""
_BACKWARDS: Final = """
    SELECT session, number, at, format, model, system_hash AS system, tools_hash AS tools,
           rest_hash AS rest, edits_hash AS edits, report_hash AS report, kept_rows,
           row_hashes AS rows, outcome_hashes AS outcomes
    FROM recollect.turns WHERE space_id = %s AND session = %s AND number <= %s
    ORDER BY number DESC LIMIT %s
"""
_RECORDS: Final = """
    SELECT session, number, at, format, model, system_hash AS system, tools_hash AS tools,
           rest_hash AS rest, edits_hash AS edits, report_hash AS report, kept_rows,
           outcome_hashes AS outcomes
    FROM recollect.turns WHERE space_id = %s AND session = %s ORDER BY number
"""
_PIECES: Final = """
    SELECT hash, kind, body, about, exact FROM recollect.pieces
    WHERE space_id = %s AND hash = ANY(%s::text[])
"""
_QUOTING: Final = """
    SELECT hash FROM recollect.pieces
    WHERE space_id = %s AND kind = 'row' AND about && %s::text[]
"""
_FOLLOWERS: Final = """
    SELECT session, number FROM (
        SELECT session, number, at, kept_rows,
            lag(at) OVER (PARTITION BY session ORDER BY number) AS at_before
        FROM recollect.turns WHERE space_id = %(space)s
    ) AS t WHERE at >= %(before)s AND at_before < %(before)s AND kept_rows > 0
"""
"""SQL for the turns that stay and directly follow a turn that expires."""
_HAND_ON: Final = """
    UPDATE recollect.turns SET kept_rows = 0, row_hashes = %s::text[]
    WHERE space_id = %s AND session = %s AND number = %s
"""
_HASHES: Final = """
    RETURNING row_hashes || outcome_hashes
        || ARRAY[system_hash, tools_hash, rest_hash, edits_hash, report_hash]
"""
_EXPIRE: Final = f"DELETE FROM recollect.turns WHERE space_id = %s AND at < %s {_HASHES}"  # noqa: S608
_DROP_TURNS: Final = f"{driver.delete('turns', 'session', 'text')} {_HASHES}"
_DROP_PIECES: Final = """
    DELETE FROM recollect.pieces AS p
    WHERE p.space_id = %(space)s AND p.hash = ANY(%(hashes)s::text[]) AND NOT EXISTS (
        SELECT FROM recollect.turns AS t
        WHERE t.space_id = %(space)s AND (
            p.hash IN (t.system_hash, t.tools_hash, t.rest_hash, t.edits_hash, t.report_hash)
            OR p.hash = ANY(t.row_hashes) OR p.hash = ANY(t.outcome_hashes)
        )
    ) RETURNING 1
"""


async def list_turns(work: Transaction, session: str) -> tuple[int, ...]:
    return tuple(number for (number,) in await work.rows(_NUMBERS, (work.space_id, session)))


async def rebuild_turn(work: Transaction, session: str, number: int) -> RebuiltTurn | None:
    turn_records = await _read_back(work, session, number)
    if not turn_records or turn_records[0].number != number:
        return None
    rows = _join_rows(turn_records)
    if rows is None:  # an earlier record is damaged or missing; `check` reports it
        return None
    return RebuiltTurn(record=turn_records[0], rows=tuple(map(PieceHash, rows)))


async def list_records(work: Transaction, session: str) -> tuple[TurnRecord, ...]:
    rows = await work.records(_RECORDS, (work.space_id, session))
    return tuple([TurnRecord(**{**row, "outcomes": tuple(row["outcomes"])}) for row in rows])


def _join_rows(backwards: Iterable[TurnRecord]) -> list[str] | None:
    return rows_of_turn((record.kept_rows, record.rows) for record in backwards)


async def _read_back(work: Transaction, session: str, number: int) -> list[TurnRecord]:
    """Return a turn, and the earlier turns whose rows it contains."""
    turn_records: list[TurnRecord] = []
    while True:
        newest_number = turn_records[-1].number - 1 if turn_records else number
        arguments = (work.space_id, session, newest_number, _TURNS_PER_QUERY)
        page = [
            TurnRecord(**{**row, "rows": tuple(row["rows"]), "outcomes": tuple(row["outcomes"])})
            for row in await work.records(_BACKWARDS, arguments)
        ]
        turn_records += page
        if len(page) < _TURNS_PER_QUERY or any(record.kept_rows == 0 for record in page):
            return turn_records


async def read_pieces(
    work: Transaction, hashes: Sequence[PieceHash]
) -> Mapping[PieceHash, LedgerPiece]:
    rows = await work.records(_PIECES, (work.space_id, driver.texts(hashes)))
    return {row["hash"]: LedgerPiece(**{**row, "about": tuple(row["about"])}) for row in rows}


async def find_rows_about(work: Transaction, ids: Collection[MessageId]) -> tuple[PieceHash, ...]:
    rows = await work.rows(_QUOTING, (work.space_id, driver.texts(ids)))
    return tuple(hash_ for (hash_,) in rows)


async def expire(work: Transaction, *, before: float) -> int:
    for session, number in await work.rows(_FOLLOWERS, {"space": work.space_id, "before": before}):
        all_rows = _join_rows(await _read_back(work, session, number))
        if all_rows is None:  # the turn is damaged: do not make it look complete
            continue
        await work.send(_HAND_ON, (driver.texts(all_rows), work.space_id, session, number))
    expired_rows = await work.rows(_EXPIRE, (work.space_id, before))
    await _drop_unused_pieces(work, expired_rows)
    return len(expired_rows)


async def forget_turns(work: Transaction, sessions: Sequence[str]) -> int:
    dropped_rows = await work.rows(_DROP_TURNS, (work.space_id, driver.texts(sessions)))
    return await _drop_unused_pieces(work, dropped_rows)


async def _drop_unused_pieces(work: Transaction, hash_rows: Sequence[tuple[Any, ...]]) -> int:
    named_hashes = {hash_ for (hashes,) in hash_rows for hash_ in hashes if hash_ is not None}
    arguments = {"space": work.space_id, "hashes": driver.texts(named_hashes)}
    return len(await work.rows(_DROP_PIECES, arguments)) if named_hashes else 0


# No other place contains the forgotten message, so no record may quote it.
FORGOTTEN: Final = """
    SELECT f.message_id FROM recollect.forgotten_segments AS f
    WHERE f.space_id = %(space)s AND f.message_id = ANY(%(about)s::text[]) AND NOT EXISTS (
        SELECT FROM recollect.segments AS s
        WHERE s.space_id = %(space)s AND s.message_id = f.message_id
    )
"""
UNQUOTABLE: Final = f"""
    SELECT t.message_id FROM recollect.tombstones AS t
    WHERE t.space_id = %(space)s AND t.message_id = ANY(%(about)s::text[])
    UNION {FORGOTTEN}
"""  # noqa: S608
_ADD: Final = """
    INSERT INTO recollect.compactions (space_id, session, number, at, about, named, body)
    VALUES (%s, %s, %s, %s, %s::uuid[], %s::text[], %s) ON CONFLICT DO NOTHING
"""
_COMPACTION: Final = """
    c.session, c.number, c.at, c.named, c.body, (
        SELECT string_agg(uuid_send(u.id), '' ORDER BY u.place)
        FROM unnest(c.about) WITH ORDINALITY AS u (id, place)
    )
"""
_OF_SESSION: Final = f"""
    SELECT {_COMPACTION} FROM recollect.compactions AS c
    WHERE c.space_id = %s AND c.session = %s ORDER BY c.number
"""  # noqa: S608
_STANDING_FOR: Final = """
    SELECT c.session, c.number FROM recollect.compactions AS c
    WHERE c.space_id = %(space)s AND (
        c.session = ANY(%(whole)s::text[])
        OR EXISTS (SELECT FROM unnest(c.about) AS a (id) WHERE a.id = ANY(%(unsaid)s::uuid[]))
        OR EXISTS (
            SELECT FROM unnest(c.about) AS a (id)
            JOIN unnest(%(sessions)s::text[], %(places)s::uuid[]) AS g (session, id)
                ON g.id = a.id
            WHERE g.session = c.session
        )
    )
"""
_DROP: Final = f"""
    DELETE FROM recollect.compactions AS c
    USING unnest(%(sessions)s::text[], %(numbers)s::bigint[]) AS gone (session, number)
    WHERE c.space_id = %(space)s AND c.session = gone.session AND c.number = gone.number
    RETURNING {_COMPACTION}
"""  # noqa: S608


async def add_compactions(
    work: Transaction, records: Sequence[CompactionRecord], refused_keys: AbstractSet[str]
) -> None:
    """Store new compactions, except those whose mark, or a message of which, is in
    `refused_keys`."""
    for record in records:
        if refused_keys.isdisjoint((compaction_mark(record), *record.about)):
            is_hex = all(driver.id_bytes(id_).hex() == id_ for id_ in record.about)
            id_texts = None if is_hex else driver.texts(record.about)
            await work.send(
                _ADD,
                (work.space_id, record.session, record.number, record.at,
                 driver.uuids(record.about), id_texts, record.body),
            )  # fmt: skip


async def read_compactions(work: Transaction, session: str) -> tuple[CompactionRecord, ...]:
    rows = await work.rows(_OF_SESSION, (work.space_id, session))
    return tuple(_record_from_row(row) for row in rows)


def _record_from_row(row: tuple[Any, ...]) -> CompactionRecord:
    session, number, compacted_at, id_texts, body, packed_ids = row
    ids = driver.ids_of(packed_ids) if id_texts is None else id_texts
    return CompactionRecord(
        session=session, number=number, at=compacted_at, body=bytes(body),
        about=tuple(map(MessageId, ids)),
    )  # fmt: skip


async def forget_compactions(
    work: Transaction,
    *,
    unsaid_ids: Iterable[str],
    places: Sequence[tuple[str, str]],
    whole_sessions: Sequence[str],
) -> list[CompactionRecord]:
    """Remove compactions that cover a message in `unsaid_ids`, or one of `places` (session and
    message), or whose session is in `whole_sessions`. Return the removed compactions."""
    keys = await work.rows(
        _STANDING_FOR,
        {"space": work.space_id, "whole": driver.texts(whole_sessions),
         "unsaid": driver.uuids(unsaid_ids),
         "sessions": driver.texts(session for session, _ in places),
         "places": driver.uuids(identity for _, identity in places)},
    )  # fmt: skip
    return await drop_compactions(work, keys)


async def drop_compactions(
    work: Transaction, keys: Sequence[tuple[Any, ...]]
) -> list[CompactionRecord]:
    if not keys:
        return []
    rows = await work.rows(
        _DROP,
        {"space": work.space_id, "numbers": driver.int8s([number for _, number in keys]),
         "sessions": driver.texts(session for session, _ in keys)},
    )  # fmt: skip
    return [_record_from_row(row) for row in rows]


_ADD_PIECES: Final = driver.RowInsert(
    "pieces", "hash text, kind text, body bytea, about text[], exact boolean"
)
_ADD_TURNS: Final = driver.RowInsert(
    "turns",
    "session text, number bigint, at float8, format text, model text, system_hash text, "
    "tools_hash text, rest_hash text, edits_hash text, report_hash text, kept_rows bigint, "
    "row_hashes text[], outcome_hashes text[]",
)


async def add_pieces(
    work: Transaction, pieces: Sequence[LedgerPiece], tombstones: AbstractSet[str]
) -> None:
    rows = [
        (piece.hash, piece.kind, piece.body, piece.about, piece.exact)
        for piece in pieces
        if tombstones.isdisjoint((piece.hash, *piece.about))
    ]
    await work.insert(_ADD_PIECES, rows)


async def add_turns(work: Transaction, turns: Sequence[TurnRecord]) -> None:
    rows = [
        (turn.session, turn.number, turn.at, turn.format, turn.model, turn.system, turn.tools,
         turn.rest, turn.edits, turn.report, turn.kept_rows, turn.rows, turn.outcomes)
        for turn in turns
    ]  # fmt: skip
    await work.insert(_ADD_TURNS, rows)
