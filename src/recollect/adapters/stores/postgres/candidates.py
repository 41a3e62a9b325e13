"""Answers a search of memory: the best passages by words and by each vector, and their neighbors.

A search needs two round trips: one queries words and vectors, one reads the found passages. An
excluded passage takes no place in the result and changes no statistic. The result describes a
passage in the same way, however the passage was found."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any, Final

import numpy as np

from recollect.adapters.stores.invariants import direction_of
from recollect.adapters.stores.postgres import words
from recollect.adapters.stores.postgres.driver import big_endian, int8s, look_up, texts, vector
from recollect.adapters.stores.postgres.link import Statement
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.vectors import (
    EMBEDDER,
    LEFT_OUT,
    compare_all,
    nearest,
    require_dimensions,
)
from recollect.core.values.recall import (
    Candidate,
    CandidateQuery,
    Candidates,
    Neighbour,
    Surroundings,
)
from recollect.core.values.segment import SegmentId

DECIMALS: Final = 6
"""Number of decimals to which similarities are rounded: the server adds in single precision, so
equal values may differ by about 5e-8."""

_FIELDS: Final = {
    "segment": "s.id", "ordinal": "p.ordinal", "key": "s.key", "session": "s.session",
    "sequence": "s.sequence", "role": "s.role", "said_at": "s.said_at", "trust": "s.trust",
    "start": "p.start_char", "end": "p.end_char", "tool": "s.tool", "length": "t.length",
}  # fmt: skip
"""SQL for each field of a candidate, from segment `s`, passage `p` and its terms `t`."""
_COLUMNS: Final = ", ".join(f'{column} AS "{name}"' for name, column in _FIELDS.items())
_TERMS: Final = """
    JOIN LATERAL (
        SELECT length, terms, counts FROM recollect.passage_terms
        WHERE space_id = %(space)s AND passage_no = p.passage_no OFFSET 0
    ) AS t ON true
"""
_SIMILARITY: Final = """
    LEFT JOIN LATERAL (
        SELECT 1 - (coalesce(half::vector, v) <=> %(asked_{place})s::vector) AS similarity
        FROM recollect.vectors
        WHERE space_id = %(space)s AND passage_no = p.passage_no AND embedder_no = (
            SELECT embedder_no FROM recollect.embedders
            WHERE space_id = %(space)s AND name = %(embedder_{place})s
                AND dimensions = %(dimensions_{place})s
        ) OFFSET 0
    ) AS v_{place} ON true
"""
# Each LATERAL … OFFSET 0 forces a look-up by key. The planner knows tables but not spaces, and
# might otherwise scan the table if the space is a large part of it.
_PASSAGE: Final = "passage_no, sequence, ordinal, start_char, end_char"
_SEGMENT: Final = "id, key, session, sequence, role, said_at, trust, tool"
_BY_NUMBER: Final = f"""
    FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL ({look_up("passages", _PASSAGE, "passage_no", "n.passage_no")}) AS p
    CROSS JOIN LATERAL ({look_up("segments", _SEGMENT, "sequence", "p.sequence")}) AS s
"""


def _select(more: str, tables: str, vectors: int) -> str:
    """Write SQL for candidates, with the columns in `more` and one similarity per vector."""
    similar = "".join(f", v_{place}.similarity AS similarity_{place}" for place in range(vectors))
    joins = "".join(_SIMILARITY.format(place=place) for place in range(vectors))
    return f"SELECT {_COLUMNS}, t.terms, t.counts{similar}{more} {tables} {_TERMS} {joins}"


@lru_cache(maxsize=16)
def by_number(vectors: int) -> str:
    return _select("", _BY_NUMBER, vectors)


def asked_parameters(query: CandidateQuery) -> dict[str, Any]:
    """Return the parameters of the joins. Omit vectors of length zero: they match nothing."""
    given: dict[str, Any] = {}
    for place, asked in enumerate(query.vectors):
        whole = direction_of(asked.values) is not None
        given[f"asked_{place}"] = vector(asked.values) if whole else None
        given[f"embedder_{place}"] = asked.embedder
        given[f"dimensions_{place}"] = len(asked.values) // 4
    return given


async def describe(
    work: Transaction, query: CandidateQuery, numbers: Sequence[int]
) -> tuple[Candidate, ...]:
    given = {"space": work.space_id, "numbers": int8s(numbers), **asked_parameters(query)}
    rows = await work.records(by_number(len(query.vectors)), given)
    return _read_candidates(work, query, rows)


def _read_candidates(
    work: Transaction, query: CandidateQuery, rows: Sequence[dict[str, Any]]
) -> tuple[Candidate, ...]:
    asked = {words.term_of(work.space_id, word): word for word in query.words}
    found = _counts(asked, [row["terms"] for row in rows], [row["counts"] for row in rows])
    names = [f"similarity_{place}" for place in range(len(query.vectors))]
    return tuple(
        Candidate(
            **{name: row[name] for name in _FIELDS},
            counts=counts,
            similarities=tuple(_similarity(row[name]) for name in names),
        )
        for row, counts in zip(rows, found, strict=True)
    )


def _similarity(found: float | None) -> float | None:
    if found is None:
        return None
    # A vector of length zero has no direction, so the server returns NaN as its similarity.
    return 0.0 if isnan(found) else round(found, DECIMALS)


def _counts(
    asked: Mapping[int, str], terms: Sequence[bytes], counts: Sequence[bytes]
) -> list[dict[str, int]]:
    """Return how often each passage contains the query's words. `asked` maps numbers to words."""
    made: list[dict[str, int]] = [{} for _ in terms]
    every = np.frombuffer(b"".join(terms), "<u4")
    found = np.flatnonzero(np.isin(every, np.fromiter(asked, np.uint32, len(asked))))
    ends = np.cumsum([len(raw) // 4 for raw in terms])
    owners = np.searchsorted(ends, found, side="right").tolist()
    times = np.frombuffer(b"".join(counts), "<u2")[found].tolist()
    for owner, term, count in zip(owners, every[found].tolist(), times, strict=True):
        made[owner][asked[term]] = count
    return made


_LEFT_OUT: Final = f"SELECT string_agg(int8send(passage_no), '') FROM ({LEFT_OUT}) AS p"  # noqa: S608


_ALLOWED: Final = """
    SELECT string_agg(int8send(p.passage_no), '')
    FROM recollect.segments AS s
    JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    WHERE s.space_id = %(space)s
        AND (%(session)s::text IS NULL OR s.session = %(session)s
            OR %(files)s AND s.session >= 'file:' AND s.session < 'file;')
        AND (%(after)s::float8 IS NULL OR p.said_at > %(after)s)
        AND (%(before)s::float8 IS NULL OR p.said_at < %(before)s)
"""


async def find(work: Transaction, query: CandidateQuery) -> Candidates:
    compared = [await compare_all(work, query, asked) for asked in query.vectors]
    asked_words = await words.look_up_words(work, query)
    allowed, left_out, embedders = await _scope(work, query)
    by_words, near = await _search(
        work, query, asked_words, (allowed, left_out), embedders, compared
    )
    numbers = sorted({*by_words.numbers, *near})
    frequencies = by_words.frequencies or {}
    return Candidates(
        passages=await describe(work, query, numbers) if numbers else (),
        documents=by_words.documents,
        average_length=by_words.total_length / by_words.documents if by_words.documents else 0.0,
        document_frequencies={
            word: frequencies.get(words.term_of(work.space_id, word), 0) for word in query.words
        },
    )


async def _scope(
    work: Transaction, query: CandidateQuery
) -> tuple[words.Ints | None, words.Ints, list[tuple[Any, ...] | None]]:
    """Return the passages to search (None for all), those to exclude, and the embedders."""
    leaving = allowing = None
    if query.leave_out:
        given = {"space": work.space_id, "ids": texts(query.leave_out)}
        leaving = await work.send(_LEFT_OUT, given)
    if (query.session, query.said_after, query.said_before) != (None, None, None):
        filters = {
            "space": work.space_id,
            "session": query.session,
            "files": query.with_files,
            "after": query.said_after,
            "before": query.said_before,
        }
        allowing = await work.send_planned(_ALLOWED, filters)
    asking = [await work.send(EMBEDDER, (work.space_id, one.embedder)) for one in query.vectors]
    return (
        None if allowing is None else await _numbers(allowing),
        words.NONE if leaving is None else await _numbers(leaving),
        [await one.fetchone() for one in asking],
    )


async def _numbers(statement: Statement) -> words.Ints:
    (packed,) = await statement.fetchone() or (None,)
    return big_endian(packed, "i8")


async def _search(
    work: Transaction,
    query: CandidateQuery,
    asked_words: words.WordLookup,
    scope: tuple[words.Ints | None, words.Ints],
    embedders: Sequence[tuple[Any, ...] | None],
    compared: Sequence[Statement | None],
) -> tuple[words.FoundByWords, set[int]]:
    begun = [
        asyncio.create_task(nearest(work, query, asked, embedder, *scope, sent))
        for asked, embedder, sent in zip(query.vectors, embedders, compared, strict=True)
    ]
    try:
        by_words = await words.find_by_words(work, query, asked_words, *scope)
        return by_words, {number for found in await asyncio.gather(*begun) for number in found}
    except BaseException:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        raise


_PAIR: Final = struct.Struct(">ii")

# This query follows the index of sessions until it has found enough places; rows of the next
# session are dropped afterwards. Session and sequence are compared together, because no other index
# has that order. The CASE makes the planner expect many rows; otherwise it would sort all rows that
# follow. OFFSET 0 keeps each look-up separate.
_WALK: Final = """
                SELECT g.session, g.sequence FROM recollect.segments AS g
                WHERE g.space_id = %(space)s
                    AND (g.session, g.sequence) {beyond} (a.session, a.sequence)
                    AND CASE
                        WHEN g.noise IS NOT NULL OR g.id = ANY(%(left_out)s::text[])
                        THEN false
                        ELSE EXISTS (
                            SELECT FROM recollect.passages
                            WHERE space_id = %(space)s AND sequence = g.sequence OFFSET 0
                        )
                    END
                ORDER BY g.session {order}, g.sequence {order} LIMIT %(reach)s
"""
_NEIGHBOURS: Final = f"""
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
# A requested passage that is also a neighbor has its own row; the neighbor's row has no passage.
_NEIGHBOUR_ROWS: Final = """
    FROM met AS m
    CROSS JOIN LATERAL (
        SELECT id, key, session, sequence, role, said_at, trust, tool FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = m.sequence OFFSET 0
    ) AS s
    LEFT JOIN LATERAL (
        SELECT passage_no, ordinal, start_char, end_char FROM recollect.passages
        WHERE space_id = %(space)s AND sequence = m.sequence
            AND m.sequence NOT IN (SELECT sequence FROM asked)
        ORDER BY ordinal LIMIT %(each)s
    ) AS p ON true
    LEFT
"""


@lru_cache(maxsize=16)
def around_statement(vectors: int) -> str:
    return _NEIGHBOURS + _select(", m.of", _NEIGHBOUR_ROWS, vectors)


async def around(
    work: Transaction,
    ids: Sequence[SegmentId],
    query: CandidateQuery,
    *,
    reach: int = 2,
    passages_each: int = 3,
) -> Surroundings:
    asked = list(dict.fromkeys(ids))
    if not asked or reach <= 0:
        return Surroundings()
    embedders = [
        await work.send(EMBEDDER, (work.space_id, vector.embedder)) for vector in query.vectors
    ]
    rows = await work.records(
        around_statement(len(query.vectors)),
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
    # A passage without stored words is damaged; `check` reports it.
    whole = [row for row in rows if row["ordinal"] is not None and row["length"] is not None]
    return Surroundings(
        neighbours=_neighbours(rows, asked), passages=_read_candidates(work, query, whole)
    )


def _neighbours(
    rows: Sequence[dict[str, Any]], asked: Sequence[SegmentId]
) -> tuple[Neighbour, ...]:
    met: dict[str, bytes] = {row["segment"]: row["of"] for row in rows}
    return tuple(
        [
            Neighbour(segment=SegmentId(near), of=asked[place - 1], distance=distance)
            for near, of in met.items()
            for place, distance in _PAIR.iter_unpack(of)
        ]
    )
