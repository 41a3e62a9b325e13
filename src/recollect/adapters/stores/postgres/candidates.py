"""Answers a search of memory: the best passages by words and by each vector, and their neighbors.

A search usually needs two round trips: the first reads the space's statistics and the words' index,
the second compares vectors and reads the found passages. An excluded passage takes no place in the
result and changes no statistic."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any, Final, TypeAlias

import numpy as np

from recollect.adapters.stores.invariants import direction_of
from recollect.adapters.stores.postgres import words
from recollect.adapters.stores.postgres.driver import int8s, look_up, texts, vector
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.vectors import (
    Comparison,
    choose,
    compared,
    require_dimensions,
    to_compare,
)
from recollect.core.values.recall import (
    Candidate,
    CandidateQuery,
    Candidates,
    Neighbour,
    Surroundings,
)
from recollect.core.values.segment import Segment, SegmentId

DECIMALS: Final = 6
"""Number of decimals to which similarities are rounded: the server adds in single precision, so
equal values may differ by about 5e-8."""

PREPARED_PASSAGES: Final = 1_000
"""In larger spaces, the statement that compares vectors gets a plan of its own for each search. A
plan made for all spaces would read the vectors of all spaces if those of one are most of them."""
_TEXT_BYTES: Final = 4_000
"""Longer messages are not sent with their passages: a caller that needs one reads it."""
_FIELDS: Final = (
    "s.id", "s.message_id", "s.key", "s.session", "s.sequence", "s.role", "s.said_at", "s.trust",
    "s.tool", f"CASE WHEN octet_length(s.body) <= {_TEXT_BYTES} THEN s.body END",
    "s.tokens", "s.source", "s.noise", "s.origin", "s.foreign_line",
    "p.passage_no", "p.ordinal", "p.start_char", "p.end_char", "t.length", "t.terms", "t.counts",
)  # fmt: skip
"""The first columns of a row, from segment `s`, passage `p` and its terms `t`. The similarities
follow, and then columns of the query."""
_BODY, _NUMBER, _COUNTS, _MORE = 9, 15, 21, len(_FIELDS)
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
        WHERE space_id = %(space)s AND passage_no = p.passage_no
            AND embedder_no = %(embedder_{place})s OFFSET 0
    ) AS v_{place} ON true
"""
# Each LATERAL … OFFSET 0 forces a look-up by key. The planner knows tables but not spaces, and
# might otherwise scan the table if the space is a large part of it.
_SEGMENT: Final = (
    "id, message_id, key, session, sequence, role, said_at, trust, tool, body, tokens, source, "
    "noise, origin, foreign_line"
)
_PASSAGE: Final = "passage_no, sequence, ordinal, start_char, end_char"
_BY_NUMBER: Final = f"""
    FROM chosen AS n
    CROSS JOIN LATERAL ({look_up("passages", _PASSAGE, "passage_no", "n.passage_no")}) AS p
    CROSS JOIN LATERAL ({look_up("segments", _SEGMENT, "sequence", "p.sequence")}) AS s
"""
Row: TypeAlias = tuple[Any, ...]


def _select(more: str, tables: str, vectors: int) -> str:
    """Write SQL for candidates, with the columns in `more` and one similarity per vector."""
    similar = "".join(f", v_{place}.similarity" for place in range(vectors))
    joins = "".join(_SIMILARITY.format(place=place) for place in range(vectors))
    return f"SELECT {', '.join(_FIELDS)}{similar}{more} {tables} {_TERMS} {joins}"


@lru_cache(maxsize=32)
def found_statement(kinds: tuple[bool | None, ...]) -> str:
    """Write SQL for the passages in `numbers` and the nearest to each vector, with their distances.
    `kinds` says of each vector whether it is compared with all of the space's; None for none."""
    tables, columns, rows = list[str](), "", ["SELECT unnest(%(numbers)s::bigint[]), 0, 0"]
    for place, every in enumerate(kinds):
        if every is not None:
            tables.append(compared(place, every=every))
            columns += f", max(distance) FILTER (WHERE place = {place + 1}) AS distance_{place}"
            rows.append(f"SELECT passage_no, {place + 1}, distance FROM near_{place}")  # noqa: S608
    chosen = f"""chosen AS MATERIALIZED (
        SELECT passage_no{columns} FROM ({" UNION ALL ".join(rows)})
            AS every (passage_no, place, distance)
        GROUP BY passage_no ORDER BY passage_no
    )"""  # noqa: S608
    more = "".join(f", n.distance_{at}" for at, every in enumerate(kinds) if every is not None)
    return f"WITH {', '.join([*tables, chosen])} {_select(more, _BY_NUMBER, len(kinds))}"


def asked_parameters(query: CandidateQuery, space: words.Space) -> dict[str, Any]:
    """Return the parameters of the joins. Omit vectors of length zero: they match nothing."""
    given: dict[str, Any] = {}
    for place, asked in enumerate(query.vectors):
        known = space.embedders.get(asked.embedder)
        require_dimensions(asked, known)
        whole = direction_of(asked.values) is not None
        given[f"asked_{place}"] = vector(asked.values) if whole else None
        given[f"embedder_{place}"] = known and known[0]
    return given


def _read_candidates(
    work: Transaction, query: CandidateQuery, rows: Sequence[Row]
) -> tuple[Candidate, ...]:
    asked = {words.term_of(work.space_id, word): word for word in query.words}
    counted = _counts(asked, [row[20] for row in rows], [row[21] for row in rows])
    last = _MORE + len(query.vectors)
    return tuple([
        Candidate(
            segment=row[0], key=row[2], session=row[3], sequence=row[4], role=row[5],
            said_at=row[6], trust=row[7], tool=row[8], ordinal=row[16], start=row[17], end=row[18],
            length=row[19], counts=counts, similarities=tuple(map(_similarity, row[_MORE:last])),
        )
        for row, counts in zip(rows, counted, strict=True)
    ])  # fmt: skip


def _similarity(found: float | None) -> float | None:
    if found is None:
        return None
    # A vector of length zero has no direction, so the server returns NaN as its similarity.
    return 0.0 if isnan(found) else round(found, DECIMALS)


class _Segments(Mapping[SegmentId, Segment]):
    """The messages of rows, except long ones, made when a caller reads them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[SegmentId, Row] = {row[0]: row for row in rows if row[_BODY] is not None}

    def __iter__(self) -> Iterator[SegmentId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: SegmentId) -> Segment:
        row = self._rows[key]
        return Segment(
            id=key, message_id=row[1], key=row[2], session=row[3], role=row[5], said_at=row[6],
            trust=row[7], tool=row[8], text=row[9], tokens=row[10], source=row[11], noise=row[12],
            origin=row[13], foreign=row[14],
        )  # fmt: skip


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


async def find(work: Transaction, query: CandidateQuery) -> Candidates:
    space = await words.look_up_space(work, query)
    asking = [to_compare(work, query, asked, space) for asked in query.vectors]
    comparing = await asyncio.gather(*asking)
    by_words = await words.find_by_words(work, query, space)
    rows = await _found(work, query, space, comparing, by_words)
    return Candidates(
        passages=_read_candidates(work, query, rows),
        documents=space.documents,
        average_length=space.total_length / space.documents if space.documents else 0.0,
        document_frequencies={
            word: space.frequencies.get(words.term_of(work.space_id, word), 0)
            for word in query.words
        },
        segments=_Segments(rows),
    )


async def _found(
    work: Transaction,
    query: CandidateQuery,
    space: words.Space,
    comparing: Sequence[Comparison | None],
    by_words: Sequence[int],
) -> list[Row]:
    given = {
        "space": work.space_id, "numbers": int8s(by_words), "left_out": int8s(space.left_out),
        "limit": query.vector_limit, **asked_parameters(query, space),
    }  # fmt: skip
    if not by_words and not any(comparing):
        return []
    for place, one in enumerate(comparing):
        if one is not None:
            given.update((f"{name}_{place}", part) for name, part in one.given.items())
    kinds = [None if one is None else "among" not in one.given for one in comparing]
    send = work.send if space.documents <= PREPARED_PASSAGES else work.send_planned
    rows = await (await send(found_statement(tuple(kinds)), given)).fetchall()
    chosen = set(by_words)
    at = _MORE + len(kinds)
    for one in filter(None, comparing):
        near = [(row[_NUMBER], row[at]) for row in rows if row[at] is not None]
        chosen.update(await choose(work, one, near, query.vector_limit))
        at += 1
    return [row for row in rows if row[_NUMBER] in chosen]


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
_NEIGHBOUR_ROWS: Final = f"""
    FROM met AS m
    CROSS JOIN LATERAL (
        SELECT {_SEGMENT} FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = m.sequence OFFSET 0
    ) AS s
    LEFT JOIN LATERAL (
        SELECT passage_no, ordinal, start_char, end_char FROM recollect.passages
        WHERE space_id = %(space)s AND sequence = m.sequence
            AND m.sequence NOT IN (SELECT sequence FROM asked)
        ORDER BY ordinal LIMIT %(each)s
    ) AS p ON true
    LEFT
"""  # noqa: S608


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
    given = {
        "space": work.space_id, "ids": texts(asked), "left_out": texts(query.leave_out),
        "reach": reach, "each": max(0, passages_each),
    }  # fmt: skip
    if query.vectors:
        given |= asked_parameters(query, await words.look_up_space(work))
    rows = await work.rows(around_statement(len(query.vectors)), given)
    # A passage without stored words is damaged; `check` reports it.
    whole = [row for row in rows if row[_NUMBER] is not None and row[_COUNTS] is not None]
    return Surroundings(
        neighbours=_neighbours(rows, asked),
        passages=_read_candidates(work, query, whole),
        segments=_Segments(rows),
    )


def _neighbours(rows: Sequence[Row], asked: Sequence[SegmentId]) -> tuple[Neighbour, ...]:
    met: dict[str, bytes] = {row[0]: row[-1] for row in rows}
    return tuple(
        [
            Neighbour(segment=SegmentId(near), of=asked[place - 1], distance=distance)
            for near, of in met.items()
            for place, distance in _PAIR.iter_unpack(of)
        ]
    )
