"""The vectors of a batch: float32 for comparing and export, signs for finding.

Vectors of passages that are not stored, or have another span than the vector was made of, are
left out. Several embedders stand side by side, each with a number and dimensions of its own.
Always holds: the first vector of a passage stays, whatever is written later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from recollect.errors import BatchRefused
from recollect.stores.postgres import signs
from recollect.stores.postgres.driver import bools, escaped, int8s, plain, texts, vectors
from recollect.stores.postgres.pool import Statement, Transaction
from recollect.stores.postgres.space import SpaceState
from recollect.values.fact import FactVectorSet
from recollect.values.segment import VectorSet

_EMBEDDER: Final = """
    SELECT embedder_no, dimensions FROM recollect.embedders WHERE space_id = %s AND name = %s
"""
# Look-ups by key for each segment, as in `candidates`: no plan turns them into scans.
_PLACES: Final = """
    SELECT u.id, p.ordinal, p.passage_no, p.start_char, p.end_char, p.cold, v.there IS NOT NULL
    FROM unnest(%(ids)s::text[]) AS u (id)
    CROSS JOIN LATERAL (
        SELECT sequence FROM recollect.segments
        WHERE space_id = %(space)s AND id = u.id OFFSET 0
    ) AS s
    CROSS JOIN LATERAL (
        SELECT ordinal, passage_no, start_char, end_char, cold FROM recollect.passages
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
    ON CONFLICT DO NOTHING
"""
_COUNTED: Final = """
    UPDATE recollect.embedders SET vectors = vectors + %s WHERE space_id = %s AND embedder_no = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLookup:
    """Questions that were sent ahead: the embedder, and where the passages stand."""

    embedder: Statement
    places: Statement


async def look_up_vectors(work: Transaction, given: VectorSet) -> VectorLookup:
    """Queue the questions about one set."""
    name = escaped(given.embedder)
    segments = {one.segment for one in given.vectors}
    return VectorLookup(
        embedder=await look_up_embedder(work, given.embedder),
        places=await work.send(
            _PLACES, {"space": work.space_id, "name": name, "ids": texts(segments)}
        ),
    )


async def write_vectors(
    work: Transaction, given: VectorSet, meeting: VectorLookup, ground: SpaceState
) -> None:
    """Write one set of vectors."""
    known = known_embedder(given, await meeting.embedder.fetchone(), ground)
    chosen = _chosen(given, await meeting.places.fetchall(), ground)
    if not chosen:
        return
    number = await new_embedder(work, given, ground) if known is None else known
    new = {
        place: values
        for place, values in chosen.items()
        if (number, place[0]) not in ground.vectored
    }
    if new:
        ground.vectored.update((number, passage) for passage, _ in new)
        await _insert(work, number, given.dimensions, new)
        await work.send(_COUNTED, (len(new), work.space_id, number))


async def look_up_embedder(work: Transaction, name: str) -> Statement:
    """Queue the question what an embedder is known as."""
    return await work.send(_EMBEDDER, (work.space_id, escaped(name)))


def known_embedder(
    given: VectorSet | FactVectorSet, stored: tuple[Any, ...] | None, ground: SpaceState
) -> int | None:
    """The number of a set's embedder, given as it is stored; None where it is new."""
    known = ground.embedders.get(given.embedder) if stored is None else (stored[0], stored[1])
    if known is None:
        return None
    if known[1] != given.dimensions:
        raise BatchRefused(
            f"embedder {given.embedder!r} has {known[1]} dimensions here, not {given.dimensions}"
        )
    return known[0]


async def new_embedder(
    work: Transaction, given: VectorSet | FactVectorSet, ground: SpaceState
) -> int:
    """Note a new embedder; its number."""
    number = ground.next_embedder
    ground.next_embedder += 1
    ground.embedders[given.embedder] = (number, given.dimensions)
    await work.send(
        _NEW_EMBEDDER, (work.space_id, number, escaped(given.embedder), given.dimensions)
    )
    return number


def _chosen(
    given: VectorSet, rows: Sequence[tuple[Any, ...]], ground: SpaceState
) -> dict[tuple[int, bool], bytes]:
    """Vectors of passages that have none, by the passage's number and whether it is cold."""
    places: dict[tuple[str, int], tuple[int, tuple[int, int], bool]] = {
        (plain(segment), ordinal): (number, (start, end), cold)
        for segment, ordinal, number, start, end, cold, there in rows
        if not there
    }
    places.update(
        (place, (number, (start, end), False))
        for place, (number, start, end) in ground.places.items()
    )
    chosen: dict[tuple[int, bool], bytes] = {}
    for one in given.vectors:
        if len(one.values) != 4 * given.dimensions:
            raise BatchRefused(f"a vector does not have {given.dimensions} dimensions")
        place = places.get((one.segment, one.ordinal))
        if place is not None and one.span in (None, place[1]):
            chosen.setdefault((place[0], place[2]), one.values)
    return chosen


async def _insert(
    work: Transaction, embedder: int, dimensions: int, new: dict[tuple[int, bool], bytes]
) -> None:
    rows = np.frombuffer(b"".join(new.values()), "<f4").reshape(len(new), dimensions)
    cold = np.array([is_cold for _, is_cold in new])
    numbers = np.array([number for number, _ in new], np.int64)
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
