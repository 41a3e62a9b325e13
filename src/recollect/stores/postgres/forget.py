"""Removes segments and all that quotes them, in one transaction, and leaves tombstones.

Withdrawing is the lesser thing: segments go with index and vectors, what quotes them stays, and
nothing keeps them from coming back.

By content an identity goes wherever it was said; by place single segments go, and what quotes
their words stays while these are said elsewhere. What always holds when it commits: no row of
the space holds a text that is said nowhere any more, a word of it in the index, its vector, or a
quote of it; it cannot be written again. The bytes stay in the data files until they are
scrubbed, and `cannot` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from recollect.formats.held_text import HeldText
from recollect.stores.marks import marks_of
from recollect.stores.postgres import compactions
from recollect.stores.postgres.driver import Raw
from recollect.stores.postgres.facts import segments_changed
from recollect.stores.postgres.forget_quotes import TOMBSTONES, Removed, remove_quotes
from recollect.stores.postgres.ground import Ground
from recollect.stores.postgres.jobs import settle
from recollect.stores.postgres.lexical import Ints
from recollect.stores.postgres.moves import NEW_EPOCH, drop_index, drop_vectors
from recollect.stores.postgres.packing import erase, mark_dead, purge_dead
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import int8s, plain, texts
from recollect.stores.postgres.write import GONE, advance, lock_space
from recollect.values.message import MessageId
from recollect.values.segment import SegmentId
from recollect.values.upkeep import ForgetOrder, Forgotten

UNTIL_SCRUBBED: Final = "data files and indexes of PostgreSQL, until `recollect memory scrub`"
OUT_OF_REACH: Final = (
    "write-ahead log of PostgreSQL that is not yet overwritten, and its archives",
    "replicas, backups and snapshots of the database",
)

_BY_CONTENT: Final = """
    SELECT t.sequence, t.id, t.message_id FROM recollect.segments AS t
    WHERE t.space_id = %(space)s AND t.message_id IN (
        SELECT s.message_id FROM recollect.segments AS s
        WHERE s.space_id = %(space)s AND (
            s.id = ANY(%(ids)s::text[]) OR s.message_id = ANY(%(messages)s::text[])
        )
    ) ORDER BY t.sequence
"""
_BY_PLACE: Final = """
    SELECT sequence, id, message_id, session FROM recollect.segments
    WHERE space_id = %(space)s
        AND (%(anywhere)s OR session = ANY(%(sessions)s::text[]))
        AND (%(before)s::float8 IS NULL OR said_at < %(before)s)
        AND (%(after)s::float8 IS NULL OR said_at >= %(after)s)
    ORDER BY sequence
"""
_BY_ID: Final = """
    SELECT sequence FROM recollect.segments
    WHERE space_id = %s AND id = ANY(%s::text[]) ORDER BY sequence
"""
_PASSAGES: Final = """
    SELECT passage_no FROM recollect.passages
    WHERE space_id = %s AND sequence = ANY(%s::bigint[]) ORDER BY passage_no
"""
_DROP_SEGMENTS: Final = """
    DELETE FROM recollect.segments WHERE space_id = %s AND sequence = ANY(%s::bigint[])
"""
_TWINS: Final = """
    SELECT DISTINCT ON (message_id) message_id, id FROM recollect.segments
    WHERE space_id = %s AND message_id = ANY(%s::text[]) ORDER BY message_id, sequence
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meant:
    """What an order means here."""

    identities: tuple[MessageId, ...]
    """By content: wherever it was said."""
    rows: tuple[tuple[int, SegmentId, MessageId], ...]
    """Sequence, id and identity of every segment that goes."""
    places: tuple[tuple[int, SegmentId, MessageId], ...]
    """Those of them that go by place alone."""
    sessions: tuple[str, ...]
    """The session of each of the `places`."""


async def forget(work: Transaction, name: str, order: ForgetOrder) -> Forgotten:
    """Carry out an order."""
    ground = await lock_space(work, name)
    meant = await _meant(work, order)
    passages, vectors = await _remove_segments(work, meant, ground)
    marks = [*meant.identities, *(id_ for _, id_, _ in meant.places)]
    await work.send(TOMBSTONES, (work.space_id, order.at, texts(dict.fromkeys(marks))))
    removed = await _remove_what_rests(work, order, meant)
    await advance(work, ground)
    await work.send(NEW_EPOCH, (work.space_id,))
    await settle(work)
    return Forgotten(
        segments=tuple(id_ for _, id_, _ in meant.rows),
        message_ids=meant.identities,
        passages=passages,
        vectors=vectors,
        facts=removed.facts,
        pieces=removed.pieces,
        jobs=removed.jobs,
        session_states=removed.states,
        compactions=removed.compactions,
        cannot=(UNTIL_SCRUBBED, *OUT_OF_REACH) if meant.rows or removed.anything else (),
    )


async def withdraw(work: Transaction, name: str, ids: Sequence[SegmentId]) -> int:
    """Remove segments with their passages, words and vectors, and leave no mark; how many went."""
    ground = await lock_space(work, name)
    found = await work.rows(_BY_ID, (work.space_id, texts(ids)))
    if not found:
        return 0
    sequences = int8s([sequence for (sequence,) in found])
    numbers = await passages_of(work, sequences)
    await drop_index(work, numbers, ground)
    await drop_vectors(work, numbers)
    # Nobody asked for these words to be gone for good: the next merge takes them out of the runs.
    await mark_dead(work, numbers[numbers <= ground.packed_to])
    await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
    await segments_changed(work)
    await advance(work, ground)
    await work.send(NEW_EPOCH, (work.space_id,))
    return len(found)


async def passages_of(work: Transaction, sequences: Raw) -> Ints:
    """The numbers of the passages of these segments."""
    found = await work.rows(_PASSAGES, (work.space_id, sequences))
    return np.array([number for (number,) in found], np.int64)


async def _meant(work: Transaction, order: ForgetOrder) -> _Meant:
    """Which segments go, and which identities get a tombstone."""
    by_content = _named(
        await work.rows(
            _BY_CONTENT,
            {
                "space": work.space_id,
                "ids": texts(order.segments),
                "messages": texts(order.message_ids),
            },
        )
    )
    found: list[tuple[Any, ...]] = []
    if order.sessions or order.by_time:
        given = {
            "space": work.space_id,
            "anywhere": not order.sessions,
            "sessions": texts(order.sessions),
            "before": order.said_before,
            "after": order.said_after,
        }
        known = {sequence for sequence, _, _ in by_content}
        found = [row for row in await work.rows(_BY_PLACE, given) if row[0] not in known]
    by_place = _named([row[:3] for row in found])
    identities = dict.fromkeys([*order.message_ids, *(identity for _, _, identity in by_content)])
    return _Meant(
        identities=tuple(sorted(identities)),
        rows=tuple(sorted([*by_content, *by_place])),
        places=tuple(by_place),
        sessions=tuple(plain(row[3]) for row in found),
    )


def _named(rows: list[tuple[Any, ...]]) -> list[tuple[int, SegmentId, MessageId]]:
    return [
        (sequence, SegmentId(plain(id_)), MessageId(plain(identity)))
        for sequence, id_, identity in rows
    ]


async def _remove_segments(work: Transaction, meant: _Meant, ground: Ground) -> tuple[int, int]:
    """Remove the segments, their passages, words and vectors; how many passages and vectors."""
    if not meant.rows:
        return 0, 0
    sequences = int8s([sequence for sequence, _, _ in meant.rows])
    numbers = await passages_of(work, sequences)
    terms = await drop_index(work, numbers, ground)
    vectors = await drop_vectors(work, numbers)
    await erase(work, numbers[numbers <= ground.packed_to], terms)
    # Under numbers they had before they were cold, or indexed otherwise, they may stand there too.
    await purge_dead(work)
    await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
    await work.send(
        GONE,
        (work.space_id, texts(id_ for _, id_, _ in meant.rows),
         texts(identity for _, _, identity in meant.rows)),
    )  # fmt: skip
    return len(numbers), vectors


async def _remove_what_rests(work: Transaction, order: ForgetOrder, meant: _Meant) -> Removed:
    """Remove what rests on segments that are gone; quotes only of what is said nowhere else."""
    said = {identity for _, _, identity in meant.places}
    twins = {
        plain(identity): SegmentId(plain(twin))
        for identity, twin in await work.rows(_TWINS, (work.space_id, texts(said)))
    }
    gone: dict[str, str | None] = {id_: twins.get(identity) for _, id_, identity in meant.rows}
    unsaid: set[str] = {*meant.identities, *(said - set(twins))}
    removed = await remove_quotes(
        work, order, unsaid=unsaid, gone=gone, places=dict.fromkeys(meant.sessions)
    )
    return replace(removed, compactions=await _remove_compactions(work, order, meant, unsaid))


async def _remove_compactions(
    work: Transaction, order: ForgetOrder, meant: _Meant, unsaid: set[str]
) -> int:
    """Remove what stands for forgotten messages, or for places of its session that went."""
    went = zip(meant.sessions, (identity for _, _, identity in meant.places), strict=True)
    whole = () if order.by_time else order.sessions
    gone = await compactions.forget(work, unsaid=unsaid, places=list(went), whole=whole)
    if order.matching:
        gone += await compactions.forget_text(work, HeldText(order.matching))
    if marks := marks_of(gone, but_about=set(meant.identities)):
        await work.send(TOMBSTONES, (work.space_id, order.at, texts(marks)))
    return len(gone)
