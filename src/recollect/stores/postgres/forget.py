"""Removes segments and all that quotes them, in one transaction, and leaves tombstones.

What always holds when it commits: no row of the space holds a forgotten text, a word of it in
the index, its vector, or a quote of it; its identity cannot be written again. The bytes stay in
the data files until they are scrubbed, and `cannot` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from recollect.errors import FormatError
from recollect.formats.session_state import without_quotes
from recollect.stores.postgres.jobs import settle
from recollect.stores.postgres.moves import NEW_EPOCH, drop_index, drop_vectors
from recollect.stores.postgres.packing import erase
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import int8s, plain, texts
from recollect.stores.postgres.write import advance, lock_space
from recollect.values.message import EntryKey, MessageId
from recollect.values.segment import FactId, SegmentId
from recollect.values.upkeep import ForgetOrder, Forgotten

UNTIL_SCRUBBED: Final = "data files and indexes of PostgreSQL, until `recollect memory scrub`"
OUT_OF_REACH: Final = (
    "write-ahead log of PostgreSQL that is not yet overwritten, and its archives",
    "replicas, backups and snapshots of the database",
)

# An identity is forgotten as a whole: whoever said the same elsewhere loses it there too.
_NAMED: Final = """
    SELECT t.sequence, t.id, t.key, t.message_id FROM recollect.segments AS t
    WHERE t.space_id = %(space)s AND t.message_id IN (
        SELECT s.message_id FROM recollect.segments AS s
        WHERE s.space_id = %(space)s AND (
            s.id = ANY(%(ids)s::text[]) OR s.message_id = ANY(%(messages)s::text[])
            OR s.session = ANY(%(sessions)s::text[])
            OR (%(before)s::float8 IS NOT NULL AND s.said_at < %(before)s)
        )
    ) ORDER BY t.sequence
"""
_PASSAGES: Final = """
    SELECT passage_no FROM recollect.passages
    WHERE space_id = %s AND sequence = ANY(%s::bigint[]) ORDER BY passage_no
"""
_DROP_SEGMENTS: Final = """
    DELETE FROM recollect.segments WHERE space_id = %s AND sequence = ANY(%s::bigint[])
"""
_TOMBSTONES: Final = """
    INSERT INTO recollect.tombstones (space_id, message_id, at)
    SELECT %s, u.message_id, %s FROM unnest(%s::text[]) AS u (message_id)
    ON CONFLICT DO NOTHING
"""
_GONE: Final = """
    INSERT INTO recollect.forgotten_segments (space_id, id, key, message_id)
    SELECT %s, * FROM unnest(%s::text[], %s::text[], %s::text[]) ON CONFLICT DO NOTHING
"""
_DROP_FACTS: Final = """
    DELETE FROM recollect.facts
    WHERE space_id = %(space)s AND sources && %(ids)s::text[] AND sources <@ %(all)s::text[]
    RETURNING id
"""
_DROP_NAMED_FACTS: Final = """
    DELETE FROM recollect.facts WHERE space_id = %s AND id = ANY(%s::text[]) RETURNING id
"""
_FACTS_SOURCES: Final = """
    UPDATE recollect.facts SET sources = ARRAY(
        SELECT one FROM unnest(sources) WITH ORDINALITY AS u (one, place)
        WHERE NOT one = ANY(%(ids)s::text[]) ORDER BY place
    )
    WHERE space_id = %(space)s AND sources && %(ids)s::text[]
"""
_DROP_PIECES: Final = """
    DELETE FROM recollect.pieces WHERE space_id = %s AND about && %s::text[] RETURNING 1
"""
_DROP_JOBS: Final = """
    DELETE FROM recollect.jobs WHERE space_id = %s AND about && %s::text[] RETURNING 1
"""
_QUOTING: Final = """
    SELECT session, state FROM recollect.sessions WHERE space_id = %s AND about && %s::text[]
    FOR UPDATE
"""
_UNQUOTE: Final = """
    UPDATE recollect.sessions SET state = %(state)s, about = ARRAY(
        SELECT one FROM unnest(about) AS u (one) WHERE NOT one = ANY(%(messages)s::text[])
    )
    WHERE space_id = %(space)s AND session = %(session)s
"""
_DROP_SESSIONS: Final = """
    DELETE FROM recollect.sessions WHERE space_id = %s AND session = ANY(%s::text[])
"""
_DROP_PATHS: Final = """
    DELETE FROM recollect.session_paths WHERE space_id = %s AND session = ANY(%s::text[])
"""


@dataclass(frozen=True, slots=True)
class _Going:
    sequences: tuple[int, ...]
    ids: tuple[SegmentId, ...]
    keys: frozenset[EntryKey]
    messages: tuple[MessageId, ...]


async def forget(work: Transaction, name: str, order: ForgetOrder) -> Forgotten:
    """Carry out an order."""
    ground = await lock_space(work, name)
    rows, going = await _going(work, order)
    passages, vectors = 0, 0
    if rows:
        numbers = np.array(
            [row[0] for row in await work.rows(_PASSAGES, (work.space_id, int8s(going.sequences)))],
            np.int64,
        )
        terms = await drop_index(work, numbers, ground)
        vectors = await drop_vectors(work, numbers)
        await erase(work, numbers[numbers <= ground.packed_to], terms)
        passages = len(numbers)
        await work.send(_DROP_SEGMENTS, (work.space_id, int8s(going.sequences)))
        columns = list(zip(*rows, strict=True))
        await work.send(
            _GONE,
            (work.space_id, texts(map(plain, columns[1])), texts(map(plain, columns[2])),
             texts(map(plain, columns[3]))),
        )  # fmt: skip
    await work.send(_TOMBSTONES, (work.space_id, order.at, texts(going.messages)))
    facts = await _forget_facts(work, going.ids, order.facts)
    messages = texts(going.messages)
    pieces = len(await work.rows(_DROP_PIECES, (work.space_id, messages)))
    jobs = len(await work.rows(_DROP_JOBS, (work.space_id, messages)))
    states = await _unquote(work, going)
    await advance(work, ground)
    await work.send(NEW_EPOCH, (work.space_id,))
    await settle(work)
    return Forgotten(
        segments=going.ids,
        message_ids=going.messages,
        passages=passages,
        vectors=vectors,
        facts=facts,
        pieces=pieces,
        jobs=jobs,
        session_states=states,
        cannot=(UNTIL_SCRUBBED, *OUT_OF_REACH) if rows or facts or pieces or jobs or states else (),
    )


async def _going(work: Transaction, order: ForgetOrder) -> tuple[list[tuple[Any, ...]], _Going]:
    """Which segments go, and which identities get a tombstone."""
    rows = await work.rows(
        _NAMED,
        {
            "space": work.space_id,
            "ids": texts(order.segments),
            "messages": texts(order.message_ids),
            "sessions": texts(order.sessions),
            "before": order.said_before,
        },
    )
    messages = dict.fromkeys([*(MessageId(plain(row[3])) for row in rows), *order.message_ids])
    return rows, _Going(
        tuple(row[0] for row in rows),
        tuple(SegmentId(plain(row[1])) for row in rows),
        frozenset(EntryKey(plain(row[2])) for row in rows),
        tuple(messages),
    )


async def _forget_facts(
    work: Transaction, ids: tuple[SegmentId, ...], facts: tuple[FactId, ...]
) -> tuple[FactId, ...]:
    """Facts that are named or rest on forgotten segments alone go; others lose those sources."""
    rows = []
    if facts:
        rows += await work.rows(_DROP_NAMED_FACTS, (work.space_id, texts(facts)))
    if ids:
        named = texts(ids)
        rows += await work.rows(_DROP_FACTS, {"space": work.space_id, "ids": named, "all": named})
        await work.send(_FACTS_SOURCES, {"space": work.space_id, "ids": named})
    return tuple(sorted(FactId(plain(one)) for (one,) in rows))


async def _unquote(work: Transaction, going: _Going) -> int:
    """Take quotes of forgotten messages out of session states; one that cannot be read goes."""
    messages = texts(going.messages)
    quoting = await work.rows(_QUOTING, (work.space_id, messages))
    unreadable: list[str] = []
    for session, state in quoting:
        try:
            left = without_quotes(state, going.keys)
        except FormatError:
            unreadable.append(plain(session))
            continue
        await work.send(
            _UNQUOTE,
            {"state": left, "space": work.space_id, "session": session, "messages": messages},
        )
    if unreadable:
        await work.send(_DROP_SESSIONS, (work.space_id, texts(unreadable)))
        await work.send(_DROP_PATHS, (work.space_id, texts(unreadable)))
    return len(quoting)
