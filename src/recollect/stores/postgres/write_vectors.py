"""The vectors of a batch: float32 for comparing and export, signs for finding.

Vectors of passages that are not stored are left out. Several embedders stand side by side, each
with a number and dimensions of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from recollect.errors import StoreError
from recollect.stores.postgres import signs
from recollect.stores.postgres.pool import Cursor, Transaction
from recollect.stores.postgres.wire import bools, escaped, int8s, plain, texts, vectors
from recollect.values.segment import VectorSet

if TYPE_CHECKING:
    from recollect.stores.postgres.write import Ground

_EMBEDDER: Final = """
    SELECT embedder_no, dimensions FROM recollect.embedders WHERE space_id = %s AND name = %s
"""
# Look-ups by key for each segment, as in `candidates`: no plan turns them into scans.
_PLACES: Final = """
    SELECT u.id, p.ordinal, p.passage_no, p.cold, v.there IS NOT NULL
    FROM unnest(%(ids)s::text[]) AS u (id)
    CROSS JOIN LATERAL (
        SELECT sequence FROM recollect.segments
        WHERE space_id = %(space)s AND id = u.id OFFSET 0
    ) AS s
    CROSS JOIN LATERAL (
        SELECT ordinal, passage_no, cold FROM recollect.passages
        WHERE space_id = %(space)s AND sequence = s.sequence OFFSET 0
    ) AS p
    LEFT JOIN LATERAL (
        SELECT true AS there FROM recollect.vectors
        WHERE space_id = %(space)s AND passage_no = p.passage_no AND embedder_no = (
            SELECT embedder_no FROM recollect.embedders
            WHERE space_id = %(space)s AND name = %(name)s
        ) OFFSET 0
    ) AS v ON true
"""
_NEW_EMBEDDER: Final = """
    INSERT INTO recollect.embedders (space_id, embedder_no, name, dimensions)
    VALUES (%s, %s, %s, %s)
"""
_VECTORS: Final = """
    INSERT INTO recollect.vectors (space_id, embedder_no, passage_no, cold, v)
    SELECT %s, %s, * FROM unnest(%s::bigint[], %s::boolean[], %s::vector[])
    ON CONFLICT (space_id, embedder_no, passage_no) DO UPDATE SET v = excluded.v
"""
_COUNTED: Final = """
    UPDATE recollect.embedders SET vectors = vectors + %s WHERE space_id = %s AND embedder_no = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Questions that were sent ahead: the embedder, and where the passages stand."""

    embedder: Cursor
    places: Cursor


async def look(work: Transaction, given: VectorSet) -> Meeting:
    """Queue the questions about one set."""
    name = escaped(given.embedder)
    segments = {one.segment for one in given.vectors}
    return Meeting(
        embedder=await work.send(_EMBEDDER, (work.space_id, name)),
        places=await work.send(
            _PLACES, {"space": work.space_id, "name": name, "ids": texts(segments)}
        ),
    )


async def write(work: Transaction, given: VectorSet, meeting: Meeting, ground: Ground) -> None:
    """Write one set of vectors."""
    known = await meeting.embedder.fetchone()
    if known is not None and known[1] != given.dimensions:
        raise StoreError(
            f"embedder {given.embedder!r} has {known[1]} dimensions here, not {given.dimensions}"
        )
    places: dict[tuple[str, int], tuple[int, bool, bool]] = {
        (plain(segment), ordinal): (number, cold, there)
        for segment, ordinal, number, cold, there in await meeting.places.fetchall()
    }
    places.update({place: (number, False, False) for place, number in ground.places.items()})
    chosen = {
        places[one.segment, one.ordinal]: one.values
        for one in given.vectors
        if (one.segment, one.ordinal) in places
    }
    if not chosen:
        return
    if known is None:
        number = ground.next_embedder
        ground.next_embedder += 1
        await work.send(
            _NEW_EMBEDDER, (work.space_id, number, escaped(given.embedder), given.dimensions)
        )
    else:
        number = known[0]
    await _insert(work, number, given.dimensions, chosen)
    added = sum(not there for _, _, there in chosen)
    await work.send(_COUNTED, (added, work.space_id, number))


async def _insert(
    work: Transaction,
    embedder: int,
    dimensions: int,
    chosen: dict[tuple[int, bool, bool], bytes],
) -> None:
    if any(len(values) != 4 * dimensions for values in chosen.values()):
        raise StoreError(f"a vector does not have {dimensions} dimensions")
    rows = np.frombuffer(b"".join(chosen.values()), "<f4").reshape(len(chosen), dimensions)
    cold = np.array([is_cold for _, is_cold, _ in chosen])
    numbers = np.array([number for number, _, _ in chosen], np.int64)
    await work.send(
        _VECTORS,
        (
            work.space_id,
            embedder,
            int8s(numbers),
            bools(cold.tolist()),
            vectors(rows, work.vector_oid),
        ),
    )
    await signs.put(work, embedder, dimensions, numbers[~cold], rows[~cold])
