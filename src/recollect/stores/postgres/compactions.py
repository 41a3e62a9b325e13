"""The compactions of sessions, as they are kept for receipts, diffs and undo.

A record that is there is never changed. Always holds: no record stands for a message that was
forgotten, nor for one of its session whose place was; and what was removed does not come back.
They stay when the ledger expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from recollect.formats.held_text import HeldText
from recollect.stores.marks import compaction_mark
from recollect.stores.postgres.pool import Cursor, Transaction
from recollect.stores.postgres.wire import (
    escaped,
    id_bytes,
    ids_of,
    int8s,
    plain,
    texts,
    uuids,
)
from recollect.values.compaction import CompactionRecord
from recollect.values.message import MessageId

_AT_ONCE: Final = 50

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


async def look_at_quoted(work: Transaction, ids: Iterable[str]) -> Cursor:
    """Queue the question which of these identities nothing may quote."""
    return await work.send(UNQUOTABLE, {"space": work.space_id, "about": texts(ids)})


async def unquotable(looked: Cursor, said: AbstractSet[str]) -> set[str]:
    """The answer, without those that are `said` again."""
    return {plain(one) for (one,) in await looked.fetchall()} - said


async def add(
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


async def read(work: Transaction, session: str) -> tuple[CompactionRecord, ...]:
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


async def forget(
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


async def forget_text(work: Transaction, text: HeldText) -> list[CompactionRecord]:
    """Drop those whose body holds a text; what went."""
    gone: list[tuple[str, int]] = []
    last: tuple[str, int] = ("", -(2**62))
    while rows := await work.rows(_BODIES, (work.space_id, *last, _AT_ONCE)):
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
