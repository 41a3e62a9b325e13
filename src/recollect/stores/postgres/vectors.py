"""Finds passages by vector: every warm one exactly in a small space, by signs in a large one.

Never decides what a similarity is worth. Beyond `EXACT_NUMBERS` the signs of the vectors are
compared first (`signs`), and those that are the most alike are compared exactly; what that
misses is printed by `recollect bench store` as agreement.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError
from recollect.stores.postgres import signs
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import big_endian, escaped, int8s, vector
from recollect.values.lookup import AskedVector, CandidateQuery

EXACT_NUMBERS: Final = 4_000 * 384
"""Vectors times dimensions up to which all are compared exactly."""
_RERANK_LEAST, _RERANK_SHARE, _RERANK_MOST = 500, 0.005, 1_000
_MEMO_KEPT: Final = 10_000

_EMBEDDER: Final = """
    SELECT embedder_no, dimensions, vectors FROM recollect.embedders
    WHERE space_id = %s AND name = %s
"""
# The nearest with all that are as near as the last, then in the order of ids: ties fall alike
# whatever numbers the passages have.
_EXACT: Final = """
    SELECT n.passage_no FROM (
        SELECT passage_no, v <=> %(asked)s::vector AS distance FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s AND NOT cold
        ORDER BY distance FETCH FIRST (%(limit)s::bigint) ROWS WITH TIES
    ) AS n
    CROSS JOIN LATERAL (
        SELECT sequence, ordinal FROM recollect.passages
        WHERE space_id = %(space)s AND passage_no = n.passage_no OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT id FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = p.sequence OFFSET 0
    ) AS s
    ORDER BY n.distance, s.id, p.ordinal LIMIT %(limit)s
"""
_RERANK: Final = """
    SELECT n.passage_no FROM (
        SELECT passage_no, v <=> %(asked)s::vector AS distance FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s
            AND passage_no = ANY(%(numbers)s::bigint[])
        ORDER BY distance FETCH FIRST (%(limit)s::bigint) ROWS WITH TIES
    ) AS n
    CROSS JOIN LATERAL (
        SELECT sequence, ordinal FROM recollect.passages
        WHERE space_id = %(space)s AND passage_no = n.passage_no OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT id FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = p.sequence OFFSET 0
    ) AS s
    ORDER BY n.distance, s.id, p.ordinal LIMIT %(limit)s
"""
ALLOWED: Final = """
    SELECT string_agg(int8send(p.passage_no), ''),
           count(*) FILTER (WHERE p.cold)
    FROM recollect.segments AS s
    JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    WHERE s.space_id = %(space)s
        AND (%(session)s::text IS NULL OR s.session = %(session)s)
        AND (%(after)s::float8 IS NULL OR p.said_at > %(after)s)
        AND (%(before)s::float8 IS NULL OR p.said_at < %(before)s)
        AND (%(cold)s OR NOT p.cold)
"""
_EXACT_FILTERED: Final = """
    SELECT v.passage_no FROM recollect.vectors AS v
    JOIN recollect.passages AS p
        ON p.space_id = %(space)s AND p.passage_no = v.passage_no
    JOIN recollect.segments AS s
        ON s.space_id = %(space)s AND s.sequence = p.sequence
    WHERE v.space_id = %(space)s AND v.embedder_no = %(embedder)s
        AND (%(cold)s OR NOT v.cold)
        AND (%(session)s::text IS NULL OR s.session = %(session)s)
        AND (%(after)s::float8 IS NULL OR p.said_at > %(after)s)
        AND (%(before)s::float8 IS NULL OR p.said_at < %(before)s)
    ORDER BY v.v <=> %(asked)s::vector, s.id, p.ordinal LIMIT %(limit)s
"""


class EmbedderMemo:
    """What embedders were last seen as, so that a search need not wait to be told their number.

    Only a guess: what the database says in the same round trip decides.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[UUID, str], tuple[int, int, int]] = {}

    def guess(self, space_id: UUID, asked: AskedVector) -> int | None:
        """The number of an embedder whose vectors are few enough to compare them all."""
        number, dimensions, count = self._seen.get((space_id, asked.embedder), (0, 0, 0))
        fits = 4 * dimensions == len(asked.values) and count * dimensions <= EXACT_NUMBERS
        return number if number and fits else None

    def keep(self, space_id: UUID, embedder: str, seen: tuple[int, int, int]) -> None:
        """Remember what was seen; begins anew when it grows too large."""
        if len(self._seen) >= _MEMO_KEPT:
            self._seen.clear()
        self._seen[space_id, embedder] = seen


async def nearest(
    work: Transaction, query: CandidateQuery, asked: AskedVector, memo: EmbedderMemo
) -> tuple[int | None, list[int]]:
    """The embedder's number, None where it has no vectors here, and the nearest passages."""
    given: dict[str, Any] = {
        **filters(work, query),
        "asked": vector(asked.values),
        "limit": max(0, query.vector_limit),
    }
    narrowed = filtered(query) or query.cold
    statement = _EXACT_FILTERED if narrowed else _EXACT
    asking = await work.send(_EMBEDDER, (work.space_id, escaped(asked.embedder)))
    guessed = memo.guess(work.space_id, asked)
    early = None
    if guessed is not None:
        early = await work.send(statement, {**given, "embedder": guessed})
    known = await asking.fetchone()
    if known is None:
        return None, []
    embedder, dimensions, count = known
    if 4 * dimensions != len(asked.values):
        raise StoreError(
            f"embedder {asked.embedder!r} has {dimensions} dimensions here, "
            f"the asked vector {len(asked.values) // 4}"
        )
    memo.keep(work.space_id, asked.embedder, (embedder, dimensions, count))
    given["embedder"] = embedder
    if early is not None and guessed == embedder:
        rows = await early.fetchall()
    elif query.cold or count * dimensions <= EXACT_NUMBERS:
        rows = await work.rows(statement, given)
    else:
        numbers = await _by_signs(work, query, asked, embedder, dimensions, count)
        rows = await work.rows(_RERANK, {**given, "numbers": int8s(numbers)})
    return embedder, [number for (number,) in rows]


async def _by_signs(
    work: Transaction,
    query: CandidateQuery,
    asked: AskedVector,
    embedder: int,
    dimensions: int,
    count: int,
) -> NDArray[np.int64]:
    """Those to compare exactly: whose signs are the most alike."""
    rerank = max(_RERANK_LEAST, min(_RERANK_MOST, int(count * _RERANK_SHARE)))
    limit = max(rerank, 4 * query.vector_limit)
    allowed = None
    if filtered(query):
        packed, _ = await work.row(ALLOWED, filters(work, query)) or (None, 0)
        allowed = big_endian(packed, "i8")
        if len(allowed) <= limit:
            return allowed
    return signs.nearest(
        await work.rows(signs.ALL, (work.space_id, embedder)),
        dimensions,
        np.frombuffer(asked.values, "<f4"),
        limit=limit,
        allowed=allowed,
    )


def filters(work: Transaction, query: CandidateQuery) -> dict[str, Any]:
    """The parameters by which a query narrows the space."""
    return {
        "space": work.space_id,
        "session": None if query.session is None else escaped(query.session),
        "after": query.said_after,
        "before": query.said_before,
        "cold": query.cold,
    }


def filtered(query: CandidateQuery) -> bool:
    """Whether the query asks for a part of the space only."""
    return (query.session, query.said_after, query.said_before) != (None, None, None)
