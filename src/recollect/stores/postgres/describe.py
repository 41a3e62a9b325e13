"""Describes passages for a query: what `search` needs to score them, by whatever way they came.

Owns the columns of a description and the joins that fill them; a statement is built for the
number of asked vectors. Never chooses. Always holds: of the same passage and query the same is
said, whether it was found by words, by vector or as a neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any, Final

import numpy as np

from recollect.stores.postgres.lexical import term_of
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.vectors import usable
from recollect.stores.postgres.wire import escaped, int8s, maybe_plain, plain, vector
from recollect.values.lookup import Candidate, CandidateQuery
from recollect.values.message import EntryKey
from recollect.values.segment import SegmentId

DECIMALS: Final = 6
"""The server sums in single precision: about 5e-8 off, so what is alike differs beyond this."""

COLUMNS: Final = """
    s.id, p.ordinal, s.key, s.session, s.sequence, s.role, s.said_at, s.trust,
    p.start_char, p.end_char, s.tool, p.cold, t.length, t.terms, t.counts"""
"""Of segment `s`, passage `p` and its terms `t`; one similarity a vector follows."""
TERMS: Final = """
    JOIN LATERAL (
        SELECT length, terms, counts FROM recollect.passage_terms
        WHERE space_id = %(space)s AND passage_no = p.passage_no OFFSET 0
    ) AS t ON true
"""
_SIMILARITY: Final = """
    LEFT JOIN LATERAL (
        SELECT 1 - (v <=> %(asked_{place})s::vector) AS similarity FROM recollect.vectors
        WHERE space_id = %(space)s AND passage_no = p.passage_no AND embedder_no = (
            SELECT embedder_no FROM recollect.embedders
            WHERE space_id = %(space)s AND name = %(embedder_{place})s
                AND dimensions = %(dimensions_{place})s
        ) OFFSET 0
    ) AS v_{place} ON true
"""
# Each LATERAL … OFFSET 0 is a look-up by key that no plan turns into a scan, whatever share of a
# table the space is: the planner knows tables, not spaces.
_BY_NUMBER: Final = """
    FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL (
        SELECT passage_no, sequence, ordinal, start_char, end_char, cold FROM recollect.passages
        WHERE space_id = %(space)s AND passage_no = n.passage_no OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT id, key, session, sequence, role, said_at, trust, tool FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = p.sequence OFFSET 0
    ) AS s
"""


def similarity_columns(vectors: int) -> str:
    """The columns behind `COLUMNS`."""
    return "".join(f", v_{place}.similarity" for place in range(vectors))


def similarity_joins(vectors: int) -> str:
    """The joins that fill them."""
    return "".join(_SIMILARITY.format(place=place) for place in range(vectors))


def asked_parameters(query: CandidateQuery) -> dict[str, Any]:
    """The parameters of the joins; a vector without a direction is like none."""
    given: dict[str, Any] = {}
    for place, asked in enumerate(query.vectors):
        given[f"asked_{place}"] = vector(asked.values) if usable(asked) else None
        given[f"embedder_{place}"] = escaped(asked.embedder)
        given[f"dimensions_{place}"] = len(asked.values) // 4
    return given


@lru_cache(maxsize=16)
def by_number(vectors: int) -> str:
    """The statement that describes passages by their numbers."""
    return "".join(
        ("SELECT", COLUMNS, similarity_columns(vectors), _BY_NUMBER, TERMS,
         similarity_joins(vectors))
    )  # fmt: skip


async def describe(
    work: Transaction, query: CandidateQuery, numbers: Sequence[int]
) -> tuple[Candidate, ...]:
    """These passages, as far as they are still there."""
    given = {"space": work.space_id, "numbers": int8s(numbers), **asked_parameters(query)}
    return described(work, query, await work.rows(by_number(len(query.vectors)), given))


def described(
    work: Transaction, query: CandidateQuery, rows: Sequence[tuple[Any, ...]]
) -> tuple[Candidate, ...]:
    """What is said of passages, given as rows of `COLUMNS` and similarities."""
    named = {word: term_of(work.space_id, word) for word in query.words}
    counts = _counts(named, [row[13] for row in rows], [row[14] for row in rows])
    alike = _similarities(rows, len(query.vectors))
    return tuple(
        [
            Candidate(
                segment=SegmentId(plain(row[0])),
                ordinal=row[1],
                key=EntryKey(plain(row[2])),
                session=plain(row[3]),
                sequence=row[4],
                role=row[5],
                said_at=row[6],
                trust=row[7],
                start=row[8],
                end=row[9],
                length=row[12],
                counts=held,
                similarities=similarities,
                tool=maybe_plain(row[10]),
                cold=row[11],
            )
            for row, held, similarities in zip(rows, counts, alike, strict=True)
        ]
    )


def _similarities(
    rows: Sequence[tuple[Any, ...]], vectors: int
) -> Iterator[tuple[float | None, ...]]:
    for row in rows:
        yield tuple(
            [
                # A vector of length zero has no direction: the server's answer is NaN.
                None if one is None else 0.0 if isnan(one) else round(one, DECIMALS)
                for one in row[15 : 15 + vectors]
            ]
        )


def _counts(
    words: Mapping[str, int], terms: Sequence[bytes], counts: Sequence[bytes]
) -> list[dict[str, int]]:
    """How often each of these passages holds each asked word, given with its number."""
    made: list[dict[str, int]] = [{} for _ in terms]
    if not words or not terms:
        return made
    asked = {term: word for word, term in words.items()}
    alike = [
        word for word, term in words.items() if asked[term] != word
    ]  # two words with one number
    held = np.frombuffer(b"".join(terms), "<u4")
    found = np.flatnonzero(np.isin(held, np.fromiter(asked, np.uint32, len(asked))))
    ends = np.cumsum([len(raw) // 4 for raw in terms])
    owners = np.searchsorted(ends, found, side="right").tolist()
    times = np.frombuffer(b"".join(counts), "<u2")[found].tolist()
    for owner, term, count in zip(owners, held[found].tolist(), times, strict=True):
        made[owner][asked[term]] = count
    for word in alike:
        for one in made:
            if (shared := asked[words[word]]) in one:
                one[word] = one[shared]
    return made
