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
    choose_nearest,
    comparison_statement,
    prepare_comparison,
    require_dimensions,
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


def _select(extras: str, tables: str, vectors: int) -> str:
    """Write SQL for candidates, with the columns in `extras` and one similarity per vector."""
    similar = "".join(f", v_{place}.similarity" for place in range(vectors))
    joins = "".join(_SIMILARITY.format(place=place) for place in range(vectors))
    return f"SELECT {', '.join(_FIELDS)}{similar}{extras} {tables} {_TERMS} {joins}"


@lru_cache(maxsize=32)
def candidates_statement(kinds: tuple[bool | None, ...]) -> str:
    """Write SQL for the passages in `numbers` and the nearest to each vector, with their distances.
    `kinds` says of each vector whether it is compared with all of the space's; None for none."""
    tables, columns, rows = list[str](), "", ["SELECT unnest(%(numbers)s::bigint[]), 0, 0"]
    for place, compares_all in enumerate(kinds):
        if compares_all is not None:
            tables.append(comparison_statement(place, compares_all=compares_all))
            columns += f", max(distance) FILTER (WHERE place = {place + 1}) AS distance_{place}"
            rows.append(f"SELECT passage_no, {place + 1}, distance FROM near_{place}")  # noqa: S608
    selection = f"""chosen AS MATERIALIZED (
        SELECT passage_no{columns} FROM ({" UNION ALL ".join(rows)})
            AS every (passage_no, place, distance)
        GROUP BY passage_no ORDER BY passage_no
    )"""  # noqa: S608
    extras = "".join(
        f", n.distance_{position}"
        for position, compares_all in enumerate(kinds)
        if compares_all is not None
    )
    return f"WITH {', '.join([*tables, selection])} {_select(extras, _BY_NUMBER, len(kinds))}"


def vector_parameters(query: CandidateQuery, space: words.Space) -> dict[str, Any]:
    """Return the parameters of the joins. Omit vectors of length zero: they match nothing."""
    parameters: dict[str, Any] = {}
    for place, asked_vector in enumerate(query.vectors):
        embedder = space.embedders.get(asked_vector.embedder)
        require_dimensions(asked_vector, embedder)
        has_direction = direction_of(asked_vector.values) is not None
        parameters[f"asked_{place}"] = vector(asked_vector.values) if has_direction else None
        parameters[f"embedder_{place}"] = embedder and embedder[0]
    return parameters


def _read_candidates(
    work: Transaction, query: CandidateQuery, rows: Sequence[Row]
) -> tuple[Candidate, ...]:
    word_by_term = {words.term_of(work.space_id, word): word for word in query.words}
    row_counts = _count_words(word_by_term, [row[20] for row in rows], [row[21] for row in rows])
    last = _MORE + len(query.vectors)
    return tuple([
        Candidate(
            segment=row[0], key=row[2], session=row[3], sequence=row[4], role=row[5],
            said_at=row[6], trust=row[7], tool=row[8], ordinal=row[16], start=row[17], end=row[18],
            length=row[19], counts=counts, similarities=tuple(map(_round, row[_MORE:last])),
        )
        for row, counts in zip(rows, row_counts, strict=True)
    ])  # fmt: skip


def _round(similarity: float | None) -> float | None:
    if similarity is None:
        return None
    # A vector of length zero has no direction, so the server returns NaN as its similarity.
    return 0.0 if isnan(similarity) else round(similarity, DECIMALS)


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


def _count_words(
    word_by_term: Mapping[int, str], terms: Sequence[bytes], counts: Sequence[bytes]
) -> list[dict[str, int]]:
    """Return how often each passage contains the query's words. `word_by_term` maps numbers to
    words."""
    passage_counts: list[dict[str, int]] = [{} for _ in terms]
    all_terms = np.frombuffer(b"".join(terms), "<u4")
    matches = np.flatnonzero(
        np.isin(all_terms, np.fromiter(word_by_term, np.uint32, len(word_by_term)))
    )
    ends = np.cumsum([len(raw) // 4 for raw in terms])
    owners = np.searchsorted(ends, matches, side="right").tolist()
    times = np.frombuffer(b"".join(counts), "<u2")[matches].tolist()
    for owner, term, count in zip(owners, all_terms[matches].tolist(), times, strict=True):
        passage_counts[owner][word_by_term[term]] = count
    return passage_counts


async def find_candidates(work: Transaction, query: CandidateQuery) -> Candidates:
    space = await words.look_up_space(work, query)
    comparisons = await asyncio.gather(
        *[prepare_comparison(work, query, asked_vector, space) for asked_vector in query.vectors]
    )
    word_matches = await words.find_by_words(work, query, space)
    rows = await _read_found_rows(work, query, space, comparisons, word_matches)
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


async def _read_found_rows(
    work: Transaction,
    query: CandidateQuery,
    space: words.Space,
    comparisons: Sequence[Comparison | None],
    word_matches: Sequence[int],
) -> list[Row]:
    parameters = {
        "space": work.space_id, "numbers": int8s(word_matches), "left_out": int8s(space.left_out),
        "limit": query.vector_limit, **vector_parameters(query, space),
    }  # fmt: skip
    if not word_matches and not any(comparisons):
        return []
    for place, comparison in enumerate(comparisons):
        if comparison is not None:
            parameters.update(
                (f"{name}_{place}", part) for name, part in comparison.parameters.items()
            )
    kinds = [
        None if comparison is None else "among" not in comparison.parameters
        for comparison in comparisons
    ]
    send = work.send if space.documents <= PREPARED_PASSAGES else work.send_planned
    rows = await (await send(candidates_statement(tuple(kinds)), parameters)).fetchall()
    chosen_numbers = set(word_matches)
    column = _MORE + len(kinds)
    for comparison in filter(None, comparisons):
        distances = [(row[_NUMBER], row[column]) for row in rows if row[column] is not None]
        chosen_numbers.update(await choose_nearest(work, comparison, distances, query.vector_limit))
        column += 1
    return [row for row in rows if row[_NUMBER] in chosen_numbers]


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


async def find_surroundings(
    work: Transaction,
    ids: Sequence[SegmentId],
    query: CandidateQuery,
    *,
    reach: int = 2,
    passages_each: int = 3,
) -> Surroundings:
    asked_ids = list(dict.fromkeys(ids))
    if not asked_ids or reach <= 0:
        return Surroundings()
    parameters = {
        "space": work.space_id, "ids": texts(asked_ids), "left_out": texts(query.leave_out),
        "reach": reach, "each": max(0, passages_each),
    }  # fmt: skip
    if query.vectors:
        parameters |= vector_parameters(query, await words.look_up_space(work))
    rows = await work.rows(around_statement(len(query.vectors)), parameters)
    # A passage without stored words is damaged; `check` reports it.
    whole_rows = [row for row in rows if row[_NUMBER] is not None and row[_COUNTS] is not None]
    return Surroundings(
        neighbours=_list_neighbours(rows, asked_ids),
        passages=_read_candidates(work, query, whole_rows),
        segments=_Segments(rows),
    )


def _list_neighbours(rows: Sequence[Row], asked_ids: Sequence[SegmentId]) -> tuple[Neighbour, ...]:
    pairs_by_id: dict[str, bytes] = {row[0]: row[-1] for row in rows}
    return tuple(
        [
            Neighbour(segment=SegmentId(segment_id), of=asked_ids[place - 1], distance=distance)
            for segment_id, pairs in pairs_by_id.items()
            for place, distance in _PAIR.iter_unpack(pairs)
        ]
    )
