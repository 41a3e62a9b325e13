"""The ledger of a space: turns by number, and the pieces they name.

A turn that only grew names only what it added; here its rows are named in full again. Always
holds: expiring a turn leaves every later one complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from recollect.formats.stored_records import SoughtText
from recollect.stores.invariants import compaction_mark
from recollect.stores.postgres.driver import (
    bools,
    byteas,
    escaped,
    float8s,
    id_bytes,
    ids_of,
    int8s,
    json_list,
    maybe_plain,
    plain,
    texts,
    uuids,
)
from recollect.stores.postgres.pool import Statement, Transaction
from recollect.values.batch import LedgerPiece, PieceHash, RebuiltTurn, TurnRecord
from recollect.values.compaction import CompactionRecord
from recollect.values.message import MessageId

_AT_ONCE: Final = 64

_NUMBERS: Final = """
    SELECT number FROM recollect.turns WHERE space_id = %s AND session = %s ORDER BY number
"""
_BACKWARDS: Final = """
    SELECT number, at, format, model, system_hash, tools_hash, rest_hash, edits_hash,
           report_hash, kept_rows, row_hashes
    FROM recollect.turns WHERE space_id = %s AND session = %s AND number <= %s
    ORDER BY number DESC LIMIT %s
"""
_PIECES: Final = """
    SELECT hash, kind, body, about, exact FROM recollect.pieces
    WHERE space_id = %s AND hash = ANY(%s::text[])
"""
_OLD: Final = """
    SELECT session, number FROM recollect.turns WHERE space_id = %s AND at < %s
    ORDER BY session, number
"""
_HEIRS: Final = """
    SELECT DISTINCT t.session, t.number FROM recollect.turns AS t
    JOIN unnest(%(sessions)s::text[], %(numbers)s::bigint[]) AS gone (session, number)
        ON t.session = gone.session
    WHERE t.space_id = %(space)s AND t.at >= %(before)s AND t.kept_rows > 0
        AND t.number = (
            SELECT min(n.number) FROM recollect.turns AS n
            WHERE n.space_id = %(space)s AND n.session = gone.session AND n.number > gone.number
        )
"""
_HAND_ON: Final = """
    UPDATE recollect.turns SET kept_rows = 0, row_hashes = %s::text[]
    WHERE space_id = %s AND session = %s AND number = %s
"""
_EXPIRE: Final = """
    DELETE FROM recollect.turns WHERE space_id = %s AND at < %s
    RETURNING row_hashes || ARRAY[system_hash, tools_hash, rest_hash, edits_hash, report_hash]
"""
_DROP_TURNS: Final = """
    DELETE FROM recollect.turns WHERE space_id = %s AND session = ANY(%s::text[])
    RETURNING row_hashes || ARRAY[system_hash, tools_hash, rest_hash, edits_hash, report_hash]
"""
_DROP_PIECES: Final = """
    DELETE FROM recollect.pieces AS p
    WHERE p.space_id = %(space)s AND p.hash = ANY(%(hashes)s::text[]) AND NOT EXISTS (
        SELECT FROM recollect.turns AS t
        WHERE t.space_id = %(space)s AND (
            p.hash IN (t.system_hash, t.tools_hash, t.rest_hash, t.edits_hash, t.report_hash)
            OR p.hash = ANY(t.row_hashes)
        )
    ) RETURNING 1
"""


async def turns(work: Transaction, session: str) -> tuple[int, ...]:
    """The numbers of a session's turns."""
    rows = await work.rows(_NUMBERS, (work.space_id, escaped(session)))
    return tuple(number for (number,) in rows)


async def turn(work: Transaction, session: str, number: int) -> RebuiltTurn | None:
    """One turn with all its rows named."""
    rows = await _backwards(work, session, number)
    if not rows or rows[0][0] != number:
        return None
    newest = rows[0]
    record = TurnRecord(
        session=session,
        number=newest[0],
        at=newest[1],
        format=plain(newest[2]),
        model=maybe_plain(newest[3]),
        system=_hash(newest[4]),
        tools=_hash(newest[5]),
        rest=_hash(newest[6]),
        edits=_hash(newest[7]),
        report=_hash(newest[8]),
        kept_rows=newest[9],
        rows=_hashes(newest[10]),
    )
    whole = _all_rows(rows)
    if whole is None:  # a record it rests on is damaged or gone, which `check` tells
        return None
    return RebuiltTurn(record=record, rows=whole)


async def _backwards(work: Transaction, session: str, number: int) -> list[tuple[Any, ...]]:
    """A turn and those before it, as far back as its rows reach."""
    found: list[tuple[Any, ...]] = []
    below = number
    while True:
        given = (work.space_id, escaped(session), below, _AT_ONCE)
        some = await work.rows(_BACKWARDS, given)
        found.extend(some)
        if len(some) < _AT_ONCE or any(row[9] == 0 for row in some):
            return found
        below = some[-1][0] - 1


def _all_rows(backwards: Sequence[tuple[Any, ...]]) -> tuple[PieceHash, ...] | None:
    """The rows of the newest of these records: its own after those it kept of the ones before.

    None when those before it do not have as many.
    """
    stretches: list[tuple[PieceHash, ...]] = []
    wanted: int | None = None
    for row in backwards:
        own, kept = _hashes(row[10]), row[9]
        if wanted is None:
            stretches.append(own)
            wanted = kept
        else:
            if wanted - kept > len(own):
                return None
            stretches.append(own[: max(0, wanted - kept)])
            wanted = min(wanted, kept)
        if not wanted:
            break
    if wanted:
        return None
    return tuple(one for stretch in reversed(stretches) for one in stretch)


async def pieces(work: Transaction, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
    """These pieces, as far as they are kept."""
    rows = await work.rows(_PIECES, (work.space_id, texts(hashes)))
    return {
        PieceHash(plain(named)): LedgerPiece(
            hash=PieceHash(plain(named)),
            kind=kind,
            body=body,
            about=tuple(MessageId(plain(one)) for one in about),
            exact=exact,
        )
        for named, kind, body, about, exact in rows
    }


async def expire(work: Transaction, *, before: float) -> int:
    """Remove turns recorded before then, and pieces that no other turn names."""
    old = await work.rows(_OLD, (work.space_id, before))
    if not old:
        return 0
    heirs = await work.rows(
        _HEIRS,
        {"space": work.space_id, "before": before,
         "sessions": texts(plain(session) for session, _ in old),
         "numbers": int8s([number for _, number in old])},
    )  # fmt: skip
    for session, number in heirs:
        whole = _all_rows(await _backwards(work, plain(session), number))
        if whole is None:  # damaged: it is not made to look whole
            continue
        await work.send(_HAND_ON, (texts(whole), work.space_id, session, number))
    gone = await work.rows(_EXPIRE, (work.space_id, before))
    await _drop_unnamed(work, gone)
    return len(gone)


async def forget_turns(work: Transaction, sessions: Sequence[str]) -> int:
    """Remove the turns of sessions, and pieces that no other turn names; how many pieces."""
    gone = await work.rows(_DROP_TURNS, (work.space_id, texts(sessions)))
    return await _drop_unnamed(work, gone)


async def _drop_unnamed(work: Transaction, gone: Sequence[tuple[Any, ...]]) -> int:
    """Remove the pieces that turns named which are gone, and no other does."""
    named = {plain(one) for (hashes,) in gone for one in hashes if one is not None}
    given = {"space": work.space_id, "hashes": texts(named)}
    return len(await work.rows(_DROP_PIECES, given)) if named else 0


def _hash(value: str | None) -> PieceHash | None:
    return None if value is None else PieceHash(plain(value))


def _hashes(values: Sequence[str]) -> tuple[PieceHash, ...]:
    return tuple(PieceHash(plain(one)) for one in values)


# The compactions of sessions, as they are kept for receipts, diffs and undo.
#
# A record that is there is never changed. Always holds: no record stands for a message that was
# forgotten, nor for one of its session whose place was; and what was removed does not come back.
# They stay when the ledger expires.


_BODIES_AT_ONCE: Final = 50

# Forgotten, or forgotten by place and said nowhere else: nothing may quote it.
UNQUOTABLE: Final = """
    SELECT t.message_id FROM recollect.tombstones AS t
    WHERE t.space_id = %(space)s AND t.message_id = ANY(%(about)s::text[])
    UNION
    SELECT f.message_id FROM recollect.forgotten_segments AS f
    WHERE f.space_id = %(space)s AND f.message_id = ANY(%(about)s::text[]) AND NOT EXISTS (
        SELECT FROM recollect.segments AS s
        WHERE s.space_id = %(space)s AND s.message_id = f.message_id
    )
"""
_ADD: Final = """
    INSERT INTO recollect.compactions (space_id, session, number, at, about, named, body)
    VALUES (%s, %s, %s, %s, %s::uuid[], %s::text[], %s) ON CONFLICT DO NOTHING
"""
_OF_SESSION: Final = """
    SELECT session, number, at, named, body, (
        SELECT string_agg(uuid_send(u.id), '' ORDER BY u.place)
        FROM unnest(about) WITH ORDINALITY AS u (id, place)
    ) FROM recollect.compactions WHERE space_id = %s AND session = %s ORDER BY number
"""
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
_BODIES: Final = """
    SELECT session, number, body FROM recollect.compactions
    WHERE space_id = %s AND (session, number) > (%s, %s) ORDER BY session, number LIMIT %s
"""
_DROP: Final = """
    DELETE FROM recollect.compactions AS c
    USING unnest(%(sessions)s::text[], %(numbers)s::bigint[]) AS gone (session, number)
    WHERE c.space_id = %(space)s AND c.session = gone.session AND c.number = gone.number
    RETURNING c.session, c.number, c.at, c.named, c.body, (
        SELECT string_agg(uuid_send(u.id), '' ORDER BY u.place)
        FROM unnest(c.about) WITH ORDINALITY AS u (id, place)
    )
"""


async def look_up_unquotable(work: Transaction, ids: Iterable[str]) -> Statement:
    """Queue the question which of these identities nothing may quote."""
    return await work.send(UNQUOTABLE, {"space": work.space_id, "about": texts(ids)})


async def unquotable(looked: Statement, said: AbstractSet[str]) -> set[str]:
    """The answer, without those that are `said` again."""
    return {plain(one) for (one,) in await looked.fetchall()} - said


async def add_compactions(
    work: Transaction, given: Sequence[CompactionRecord], refused: AbstractSet[str]
) -> None:
    """Keep records that are not kept yet, but none `refused`, nor one that stands for such."""
    for record in given:
        if refused.isdisjoint((compaction_mark(record), *record.about)):
            named = None if all(map(_is_number, record.about)) else texts(record.about)
            await work.send(
                _ADD,
                (work.space_id, escaped(record.session), record.number, record.at,
                 uuids(record.about), named, record.body),
            )  # fmt: skip


def _is_number(identity: str) -> bool:
    return id_bytes(identity).hex() == identity


async def read_compactions(work: Transaction, session: str) -> tuple[CompactionRecord, ...]:
    """The compactions of a session by number."""
    rows = await work.rows(_OF_SESSION, (work.space_id, escaped(session)))
    return tuple(_record(row) for row in rows)


def _record(row: tuple[Any, ...]) -> CompactionRecord:
    session, number, at, named, body, packed = row
    about = ids_of(packed) if named is None else [plain(one) for one in named]
    return CompactionRecord(
        session=plain(session), number=number, at=at, body=bytes(body),
        about=tuple(map(MessageId, about)),
    )  # fmt: skip


async def forget_compactions(
    work: Transaction,
    *,
    unsaid: Iterable[str],
    places: Sequence[tuple[str, str]],
    whole: Sequence[str],
) -> list[CompactionRecord]:
    """Drop those that stand for the `unsaid`, for one of the `places` that went (session and
    identity), or whose session goes as a `whole`; what went."""
    gone = await work.rows(
        _STANDING_FOR,
        {"space": work.space_id, "whole": texts(whole), "unsaid": uuids(unsaid),
         "sessions": texts(session for session, _ in places),
         "places": uuids(identity for _, identity in places)},
    )  # fmt: skip
    return await _drop(work, [(session, number) for session, number in gone])


async def forget_compactions_with(work: Transaction, text: SoughtText) -> list[CompactionRecord]:
    """Drop those whose body holds a text; what went."""
    gone: list[tuple[str, int]] = []
    last: tuple[str, int] = ("", -(2**62))
    while rows := await work.rows(_BODIES, (work.space_id, *last, _BODIES_AT_ONCE)):
        gone += [(session, number) for session, number, body in rows if text.stands_in(body)]
        last = rows[-1][:2]
    return await _drop(work, gone)


async def _drop(work: Transaction, gone: Sequence[tuple[str, int]]) -> list[CompactionRecord]:
    """Remove records, named as their columns hold it."""
    if not gone:
        return []
    rows = await work.rows(
        _DROP,
        {"space": work.space_id, "numbers": int8s([number for _, number in gone]),
         "sessions": texts(plain(session) for session, _ in gone)},
    )  # fmt: skip
    return [_record(row) for row in rows]


_ADD_PIECES: Final = """
    INSERT INTO recollect.pieces (space_id, hash, kind, body, about, exact)
    SELECT %s, u.hash, u.kind, u.body,
           ARRAY(SELECT json_array_elements_text(u.about::json)), u.exact
    FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::text[], %s::boolean[])
        AS u (hash, kind, body, about, exact)
    ON CONFLICT DO NOTHING
"""
_ADD_TURNS: Final = """
    INSERT INTO recollect.turns (space_id, session, number, at, format, model, system_hash,
        tools_hash, rest_hash, edits_hash, report_hash, kept_rows, row_hashes)
    SELECT %s, u.session, u.number, u.at, u.format, u.model, u.system_hash, u.tools_hash,
           u.rest_hash, u.edits_hash, u.report_hash, u.kept_rows,
           ARRAY(SELECT json_array_elements_text(u.row_hashes::json))
    FROM unnest(%s::text[], %s::bigint[], %s::float8[], %s::text[], %s::text[], %s::text[],
        %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[])
        AS u (session, number, at, format, model, system_hash, tools_hash, rest_hash,
              edits_hash, report_hash, kept_rows, row_hashes)
    ON CONFLICT DO NOTHING
"""


async def add_pieces(
    work: Transaction, given: Sequence[LedgerPiece], tombstoned: frozenset[str]
) -> None:
    """Write pieces; what is there stays, and one that was forgotten itself stays away."""
    kept = [one for one in given if tombstoned.isdisjoint((one.hash, *one.about))]
    if kept:
        await work.send(
            _ADD_PIECES,
            (
                work.space_id,
                texts(one.hash for one in kept),
                texts(one.kind for one in kept),
                byteas(one.body for one in kept),
                texts(json_list(one.about) for one in kept),
                bools([one.exact for one in kept]),
            ),
        )


async def add_turns(work: Transaction, given: Sequence[TurnRecord]) -> None:
    """Record turns; what is recorded stays."""
    if given:
        await work.send(
            _ADD_TURNS,
            (
                work.space_id,
                texts(one.session for one in given),
                int8s([one.number for one in given]),
                float8s([one.at for one in given]),
                texts(one.format for one in given),
                texts(one.model for one in given),
                texts(one.system for one in given),
                texts(one.tools for one in given),
                texts(one.rest for one in given),
                texts(one.edits for one in given),
                texts(one.report for one in given),
                int8s([one.kept_rows for one in given]),
                texts(json_list(one.rows) for one in given),
            ),
        )
