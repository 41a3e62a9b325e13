"""Moves passages between warm and cold, and indexes segments anew.

A passage that comes back, or is indexed anew, gets a new number: it is in the tail again, and
its old number is dead in whatever run held it. Never touches what the archive says of a segment
but whether it is cold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.postgres import signs
from recollect.adapters.stores.postgres.driver import floats_of, int8s, texts
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.postings import mark_dead
from recollect.adapters.stores.postgres.space import SpaceCounters, advance, lock_space
from recollect.adapters.stores.postgres.write import insert_passages
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import NewPassage, NewSegment, Segment, SegmentId

_OLD: Final = """
    SELECT sequence FROM recollect.segments
    WHERE space_id = %s AND NOT cold AND noise IS NULL AND said_at < %s
"""
_OVER: Final = """
    SELECT sequence FROM recollect.segments
    WHERE space_id = %s AND NOT cold AND noise IS NULL
    ORDER BY said_at DESC, sequence DESC OFFSET %s
"""
_COOL_SEGMENTS: Final = """
    UPDATE recollect.segments SET cold = true WHERE space_id = %s AND sequence = ANY(%s::bigint[])
"""
_COOL_PASSAGES: Final = """
    UPDATE recollect.passages SET cold = true WHERE space_id = %s AND sequence = ANY(%s::bigint[])
    RETURNING passage_no
"""
_COOL_TERMS: Final = """
    UPDATE recollect.passage_terms SET cold = true
    WHERE space_id = %s AND passage_no = ANY(%s::bigint[]) RETURNING length
"""
_COOL_VECTORS: Final = """
    UPDATE recollect.vectors SET cold = true
    WHERE space_id = %s AND passage_no = ANY(%s::bigint[])
        AND embedder_no IN (SELECT embedder_no FROM recollect.embedders WHERE space_id = %s)
"""
_COLD: Final = """
    SELECT sequence FROM recollect.segments
    WHERE space_id = %s AND cold AND id = ANY(%s::text[])
"""
_WARM_SEGMENTS: Final = """
    UPDATE recollect.segments SET cold = false WHERE space_id = %s AND sequence = ANY(%s::bigint[])
"""
_COLD_PASSAGES: Final = """
    SELECT passage_no FROM recollect.passages
    WHERE space_id = %s AND sequence = ANY(%s::bigint[]) ORDER BY passage_no
"""
_RENUMBER_PASSAGES: Final = """
    UPDATE recollect.passages AS p SET passage_no = u.new_no, cold = false
    FROM unnest(%s::bigint[], %s::bigint[]) AS u (old_no, new_no)
    WHERE p.space_id = %s AND p.passage_no = u.old_no
"""
_RENUMBER_TERMS: Final = """
    UPDATE recollect.passage_terms AS t SET passage_no = u.new_no, cold = false
    FROM unnest(%s::bigint[], %s::bigint[]) AS u (old_no, new_no)
    WHERE t.space_id = %s AND t.passage_no = u.old_no RETURNING t.length
"""
_RENUMBER_VECTORS: Final = """
    UPDATE recollect.vectors AS v SET passage_no = u.new_no, cold = %s
    FROM unnest(%s::bigint[], %s::bigint[]) AS u (old_no, new_no)
    WHERE v.space_id = %s AND v.passage_no = u.old_no
        AND v.embedder_no IN (SELECT embedder_no FROM recollect.embedders WHERE space_id = %s)
"""
_WARM_VECTORS: Final = """
    SELECT v.embedder_no, e.dimensions, v.passage_no, coalesce(v.half::vector, v.v)
    FROM recollect.vectors AS v
    JOIN recollect.embedders AS e
        ON e.space_id = %(space)s AND e.embedder_no = v.embedder_no AND e.signed
    WHERE v.space_id = %(space)s AND NOT v.cold AND v.passage_no = ANY(%(numbers)s::bigint[])
    ORDER BY v.embedder_no
"""
_SPANS: Final = """
    SELECT s.id, s.sequence, s.said_at, s.cold, p.passage_no, p.ordinal, p.start_char, p.end_char
    FROM recollect.segments AS s
    LEFT JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    WHERE s.space_id = %(space)s AND s.id = ANY(%(ids)s::text[])
"""
DROP_PASSAGES: Final = """
    DELETE FROM recollect.passages WHERE space_id = %s AND passage_no = ANY(%s::bigint[])
"""
DROP_TERMS: Final = """
    DELETE FROM recollect.passage_terms WHERE space_id = %s AND passage_no = ANY(%s::bigint[])
    RETURNING length, cold, terms
"""
DROP_VECTORS: Final = """
    DELETE FROM recollect.vectors
    WHERE space_id = %s AND passage_no = ANY(%s::bigint[])
        AND embedder_no IN (SELECT embedder_no FROM recollect.embedders WHERE space_id = %s)
    RETURNING embedder_no
"""
COUNT_LESS: Final = """
    UPDATE recollect.embedders SET vectors = vectors - %s WHERE space_id = %s AND embedder_no = %s
"""
NEW_EPOCH: Final = """
    UPDATE recollect.counters SET index_epoch = index_epoch + 1 WHERE space_id = %s
"""


async def evict(
    work: Transaction, name: str, *, max_segments: int | None, said_before: float | None
) -> int:
    """Move the oldest segments to cold; how many went."""
    counters = await lock_space(work, name)
    going: set[int] = set()
    if said_before is not None:
        going.update(row[0] for row in await work.rows(_OLD, (work.space_id, said_before)))
    if max_segments is not None:
        over = await work.rows(_OVER, (work.space_id, max(0, max_segments)))
        going.update(row[0] for row in over)
    if not going:
        return 0
    sequences = int8s(sorted(going))
    await work.send(_COOL_SEGMENTS, (work.space_id, sequences))
    moved = await work.rows(_COOL_PASSAGES, (work.space_id, sequences))
    numbers = np.array([number for (number,) in moved], np.int64)
    packed = int8s(numbers)
    lengths = await work.rows(_COOL_TERMS, (work.space_id, packed))
    await work.send(_COOL_VECTORS, (work.space_id, packed, work.space_id))
    await signs.clear(work, numbers)
    await mark_dead(work, numbers[numbers <= counters.packed_to])
    counters.documents -= len(lengths)
    counters.total_length -= sum(length for (length,) in lengths)
    await _finish(work, counters)
    return len(going)


async def warm(work: Transaction, name: str, ids: Sequence[SegmentId]) -> int:
    """Take cold segments back; how many came."""
    counters = await lock_space(work, name)
    coming = [row[0] for row in await work.rows(_COLD, (work.space_id, texts(ids)))]
    if not coming:
        return 0
    sequences = int8s(coming)
    await work.send(_WARM_SEGMENTS, (work.space_id, sequences))
    rows = await work.rows(_COLD_PASSAGES, (work.space_id, sequences))
    old = [number for (number,) in rows]
    if old:
        new = list(range(counters.next_passage, counters.next_passage + len(old)))
        counters.next_passage += len(old)
        pair = (int8s(old), int8s(new))
        await work.send(_RENUMBER_PASSAGES, (*pair, work.space_id))
        lengths = await work.rows(_RENUMBER_TERMS, (*pair, work.space_id))
        await work.send(_RENUMBER_VECTORS, (False, *pair, work.space_id, work.space_id))
        await _sign_again(work, new)
        counters.documents += len(lengths)
        counters.total_length += sum(length for (length,) in lengths)
    await _finish(work, counters)
    return len(coming)


async def replace_passages(
    work: Transaction, name: str, given: Mapping[SegmentId, tuple[NewPassage, ...]]
) -> None:
    """Index segments anew; vectors stay where a passage's span is what it was."""
    counters = await lock_space(work, name)
    rows = await work.rows(_SPANS, {"space": work.space_id, "ids": texts(given)})
    spans = {(row[0], row[5], row[6], row[7]): row[4] for row in rows if row[4] is not None}
    if not rows:
        return
    old = np.array(sorted(spans.values()), np.int64)
    await drop_index(work, old, counters)
    await mark_dead(work, old[old <= counters.packed_to])
    segments = {row[0]: (row[1], row[2], row[3]) for row in rows}
    await insert_passages(
        work,
        [
            (sequence, _stand_in(SegmentId(id_), said_at, given[SegmentId(id_)]), cold)
            for id_, (sequence, said_at, cold) in segments.items()
        ],
        counters,
    )
    moved: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for (id_, ordinal), (number, start, end) in counters.places.items():
        if (was := spans.pop((id_, ordinal, start, end), None)) is not None:
            moved[segments[id_][2]].append((was, number))
    await _move_vectors(work, moved)
    await drop_vectors(work, np.array(sorted(spans.values()), np.int64))
    await _finish(work, counters)


async def _move_vectors(work: Transaction, moved: dict[bool, list[tuple[int, int]]]) -> None:
    for cold, pairs in moved.items():
        if pairs:
            old, new = [one for one, _ in pairs], [one for _, one in pairs]
            await work.send(
                _RENUMBER_VECTORS, (cold, int8s(old), int8s(new), work.space_id, work.space_id)
            )
            await _sign_again(work, new)


async def _sign_again(work: Transaction, numbers: Sequence[int]) -> None:
    """Write the signs of vectors that were moved to these numbers."""
    rows = await work.rows(_WARM_VECTORS, {"space": work.space_id, "numbers": int8s(numbers)})
    for (embedder, dimensions), some in groupby(rows, key=itemgetter(0, 1)):
        stored_rows = list(some)
        vectors = np.frombuffer(b"".join(floats_of(row[3]) for row in stored_rows), "<f4")
        await signs.put(
            work,
            embedder,
            dimensions,
            np.array([row[2] for row in stored_rows], np.int64),
            vectors.reshape(len(stored_rows), dimensions),
        )


async def drop_index(
    work: Transaction, numbers: NDArray[np.int64], counters: SpaceCounters
) -> NDArray[Any]:
    """Remove passages, their words and signs; the terms they had. Vectors and runs stay."""
    packed = int8s(numbers)
    await work.send(DROP_PASSAGES, (work.space_id, packed))
    await signs.clear(work, numbers)
    rows = await work.rows(DROP_TERMS, (work.space_id, packed))
    counters.documents -= sum(not cold for _, cold, _ in rows)
    counters.total_length -= sum(length for length, cold, _ in rows if not cold)
    return np.unique(np.frombuffer(b"".join(terms for _, _, terms in rows), "<u4"))


async def drop_vectors(work: Transaction, numbers: NDArray[np.int64]) -> int:
    """Remove the vectors of passages, whatever embedder they are of; how many went."""
    if not len(numbers):
        return 0
    given = (work.space_id, int8s(numbers), work.space_id)
    gone = [row[0] for row in await work.rows(DROP_VECTORS, given)]
    for embedder in sorted(set(gone)):
        await work.send(COUNT_LESS, (gone.count(embedder), work.space_id, embedder))
    return len(gone)


async def _finish(work: Transaction, counters: SpaceCounters) -> None:
    await advance(work, counters)
    await work.send(NEW_EPOCH, (work.space_id,))


def _stand_in(id_: SegmentId, said_at: float, passages: tuple[NewPassage, ...]) -> NewSegment:
    """A segment as far as indexing asks for one."""
    kept = Segment(
        id=id_, session="", key=EntryKey(""), message_id=MessageId(""), role="user", text="",
        tokens=0, said_at=said_at, source="request", trust="low",
    )  # fmt: skip
    return NewSegment(segment=kept, passages=passages)
