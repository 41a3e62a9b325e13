"""The ledger of a space: turns by number, and the pieces they name.

A turn that only grew names only what it added; here its rows are named in full again. Always
holds: expiring a turn leaves every later one complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import escaped, int8s, maybe_plain, plain, texts
from recollect.values.ledger import Piece, PieceHash, RebuiltTurn, TurnRecord
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


async def pieces(work: Transaction, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, Piece]:
    """These pieces, as far as they are kept."""
    rows = await work.rows(_PIECES, (work.space_id, texts(hashes)))
    return {
        PieceHash(plain(named)): Piece(
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
