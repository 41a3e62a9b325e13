"""Finds what stands around segments: the places before and behind them in their session.

A place is a segment that is warm and indexed, and not left out by the query. One round trip,
whatever the number of segments. Always holds: what is said of a neighbour's passage is what
`candidates` says of it (see `describe`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from recollect.stores.postgres.describe import (
    COLUMNS,
    TERMS,
    asked_parameters,
    described,
    similarity_columns,
    similarity_joins,
)
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.vectors import EMBEDDER, require_dimensions
from recollect.stores.postgres.wire import escaped, plain, texts
from recollect.values.lookup import CandidateQuery, Neighbour, Surroundings
from recollect.values.segment import SegmentId

_PAIR: Final = struct.Struct(">ii")

# A walk along the index of sessions, which ends when enough places are found; what it met of the
# next session is dropped after. Session and sequence are compared together, because no other
# index has that order. As a CASE the conditions count as likely: taken for rare, they have all
# that follows read and sorted. OFFSET 0 keeps it a look-up.
_WALK: Final = """
                SELECT g.session, g.sequence FROM recollect.segments AS g
                WHERE g.space_id = %(space)s
                    AND (g.session, g.sequence) {beyond} (a.session, a.sequence)
                    AND CASE
                        WHEN g.cold OR g.noise IS NOT NULL OR g.id = ANY(%(left_out)s::text[])
                        THEN false
                        ELSE EXISTS (
                            SELECT FROM recollect.passages
                            WHERE space_id = %(space)s AND sequence = g.sequence OFFSET 0
                        )
                    END
                ORDER BY g.session {order}, g.sequence {order} LIMIT %(reach)s
"""
_NEAR: Final = f"""
    WITH asked AS MATERIALIZED (
        SELECT u.place, s.session, s.sequence
        FROM unnest(%(ids)s::text[]) WITH ORDINALITY AS u (id, place)
        CROSS JOIN LATERAL (
            SELECT session, sequence FROM recollect.segments
            WHERE space_id = %(space)s AND id = u.id OFFSET 0
        ) AS s
    ), near AS (
        SELECT a.place, n.sequence, n.distance FROM asked AS a CROSS JOIN LATERAL (
            SELECT b.sequence, row_number() OVER (ORDER BY b.sequence) AS distance
            FROM ({_WALK.format(beyond=">", order="ASC")}) AS b
            WHERE b.session = a.session
            UNION ALL
            SELECT b.sequence, - row_number() OVER (ORDER BY b.sequence DESC)
            FROM ({_WALK.format(beyond="<", order="DESC")}) AS b
            WHERE b.session = a.session
        ) AS n
    ), met AS (
        SELECT sequence, string_agg(int4send(place::int4) || int4send(distance::int4), '') AS of
        FROM near GROUP BY sequence
    )
"""  # noqa: S608
# A neighbour that was itself asked for has a row of its own, without a passage.
_ROWS: Final = """
    FROM met AS m
    CROSS JOIN LATERAL (
        SELECT id, key, session, sequence, role, said_at, trust, tool FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = m.sequence OFFSET 0
    ) AS s
    LEFT JOIN LATERAL (
        SELECT passage_no, ordinal, start_char, end_char, cold FROM recollect.passages
        WHERE space_id = %(space)s AND sequence = m.sequence
            AND m.sequence NOT IN (SELECT sequence FROM asked)
        ORDER BY ordinal LIMIT %(each)s
    ) AS p ON true
    LEFT
"""


@lru_cache(maxsize=16)
def statement(vectors: int) -> str:
    """The statement for so many asked vectors."""
    return "".join(
        (_NEAR, "SELECT", COLUMNS, similarity_columns(vectors), ", m.of", _ROWS, TERMS,
         similarity_joins(vectors))
    )  # fmt: skip


async def around(
    work: Transaction,
    ids: Sequence[SegmentId],
    query: CandidateQuery,
    *,
    reach: int,
    passages_each: int,
) -> Surroundings:
    """The neighbours of these segments, with their first passages described for the query."""
    asked = list(dict.fromkeys(ids))
    if not asked or reach <= 0:
        return Surroundings()
    embedders = [
        await work.send(EMBEDDER, (work.space_id, escaped(one.embedder))) for one in query.vectors
    ]
    rows = await work.rows(
        statement(len(query.vectors)),
        {
            "space": work.space_id,
            "ids": texts(asked),
            "left_out": texts(query.leave_out),
            "reach": reach,
            "each": max(0, passages_each),
            **asked_parameters(query),
        },
    )
    for one, embedder in zip(query.vectors, embedders, strict=True):
        require_dimensions(one, await embedder.fetchone())
    # Without its words a passage is damaged: `check` tells of it.
    held = [row for row in rows if row[1] is not None and row[12] is not None]
    return Surroundings(neighbours=_neighbours(rows, asked), passages=described(work, query, held))


def _neighbours(
    rows: Sequence[tuple[Any, ...]], asked: Sequence[SegmentId]
) -> tuple[Neighbour, ...]:
    met: dict[str, bytes] = {row[0]: row[-1] for row in rows}
    return tuple(
        [
            Neighbour(segment=SegmentId(plain(near)), of=asked[place - 1], distance=distance)
            for near, of in met.items()
            for place, distance in _PAIR.iter_unpack(of)
        ]
    )
