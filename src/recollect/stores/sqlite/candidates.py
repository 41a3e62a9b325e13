"""Finds the passages that may answer a query: the best by words and the best by vector.

Both halves look through everything, in one snapshot and one thread. Must never score for the
caller: it chooses, and hands over what `search` needs. Always holds: the same store and query
give the same candidates; ties go by segment id and ordinal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recollect.errors import StoreError
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.lexical import Postings, counts_in, distinct, postings_of, scores_of
from recollect.stores.sqlite.matrix import Matrices, Matrix, number_list
from recollect.stores.sqlite.packing import json_list, pack_text, text_of, unpack_text
from recollect.stores.sqlite.rows import readable
from recollect.stores.sqlite.vectors import Numbers
from recollect.values.lookup import AskedVector, Candidate, CandidateQuery, Candidates
from recollect.values.message import EntryKey
from recollect.values.segment import SegmentId

_TOTALS: Final = "SELECT documents, words, cold_documents, cold_change FROM totals"
_ALLOWED: Final = """
SELECT group_concat(p.id) FROM segment AS g JOIN passage AS p ON p.segment = g.sequence
WHERE (?1 IS NULL OR g.said_at > ?1) AND (?2 IS NULL OR g.said_at < ?2)
"""
_ALLOWED_IN_SESSION: Final = (
    _ALLOWED + "AND g.session = (SELECT number FROM session WHERE name = ?3)"  # noqa: S608
)
_COLD_ALLOWED: Final = """
SELECT count(*) FROM segment AS g INDEXED BY segment_cold
JOIN passage AS p ON p.segment = g.sequence
WHERE g.cold AND p.id IN (SELECT value FROM json_each(?))
"""
_PLACES: Final = """
SELECT p.id, g.id, p.ordinal FROM passage AS p JOIN segment AS g ON g.sequence = p.segment
WHERE p.id IN (SELECT value FROM json_each(?))
"""
_ROWS: Final = """
SELECT p.id, g.id, p.ordinal, g.key, CAST(s.name AS BLOB), g.sequence, g.role, g.said_at,
  g.trust, p.start, p.stop, p.length, CAST(g.tool AS BLOB), g.cold
FROM passage AS p JOIN segment AS g ON g.sequence = p.segment
JOIN session AS s ON s.number = g.session
WHERE p.id IN (SELECT value FROM json_each(?))
"""

# float32 sums of some thousand products are right within this; what is that near the last
# place is compared again in float64.
_NEAR: Final = 1e-5
_DECIMALS: Final = 9

Similarities = npt.NDArray[np.float64]
_NO_NUMBERS: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A query's vector beside the vectors it is compared with."""

    matrix: Matrix
    direction: Similarities
    """Of length one."""

    def exact(self, rows: npt.NDArray[np.intp]) -> Similarities:
        """The cosine of some rows, the same whatever rows stand beside them."""
        values = self.matrix.values[rows].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        products = np.einsum("ij,j->i", values, self.direction)
        usable = np.isfinite(lengths) & (lengths > 0)
        cosines: Similarities = np.zeros(len(rows))
        np.divide(products, lengths, out=cosines, where=usable)
        return cosines.round(_DECIMALS)


def find_candidates(db: Database, matrices: Matrices, query: CandidateQuery) -> Candidates:
    """What may answer the query, with what scoring it needs."""
    documents, words, cold_documents, cold_change = db.row(_TOTALS)
    average = words / documents if documents else 0.0
    cold = query.cold and cold_documents > 0
    allowed = _allowed(db, query)
    postings = postings_of(db, query.words, cold=cold)
    by_words, scores = scores_of(
        db, postings, documents=documents, average_length=average, allowed=allowed
    )
    chosen = _best(db, by_words, scores, query.lexical_limit)
    asked = _asked(db, matrices, query.vector)
    if asked is not None:
        warm = None
        if cold_documents and not query.cold:
            warm = matrices.warm(db, asked.matrix, cold_change)
        nearest = _nearest(db, asked, allowed, warm, query.vector_limit)
        chosen = distinct(np.concatenate([chosen, nearest]))
    searched = 0
    if cold:
        searched = cold_documents if allowed is None else _count_cold(db, allowed)
    return Candidates(
        passages=_described(db, postings, asked, chosen),
        documents=documents,
        average_length=average,
        document_frequencies={one.word: one.document_frequency for one in postings},
        cold_searched=searched,
    )


def _allowed(db: Database, query: CandidateQuery) -> Numbers | None:
    """The passages that the filters let through, ascending; None when there are no filters."""
    times = query.said_after, query.said_before
    if query.session is not None:
        joined = db.value(_ALLOWED_IN_SESSION, (*times, pack_text(query.session)))
    elif times != (None, None):
        joined = db.value(_ALLOWED, times)
    else:
        return None
    return np.sort(number_list(joined))


def _count_cold(db: Database, allowed: Numbers) -> int:
    count: int = db.value(_COLD_ALLOWED, (json_list(allowed.tolist()),))
    return count


def _best(db: Database, passages: Numbers, scores: Similarities, limit: int) -> Numbers:
    """The passages with the highest scores; ties by segment id and ordinal."""
    if limit <= 0:
        return _NO_NUMBERS
    if len(passages) <= limit:
        return passages
    last = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    sure = passages[scores > last]
    tied = passages[scores == last]
    wanted = limit - len(sure)
    if len(tied) > wanted:
        rows = db.rows(_PLACES, (json_list(tied.tolist()),))
        rows.sort(key=lambda row: row[1:])
        tied = np.array([row[0] for row in rows[:wanted]], dtype=np.int64)
    return np.concatenate([sure, tied])


def _asked(db: Database, matrices: Matrices, vector: AskedVector | None) -> _Asked | None:
    if vector is None:
        return None
    matrix = matrices.fresh(db, vector.embedder)
    if matrix is None or not matrix.rows:
        return None
    direction = np.frombuffer(vector.values, dtype="<f4").astype(np.float64)
    if len(direction) != matrix.dimensions:
        raise StoreError(
            f"{vector.embedder} has {matrix.dimensions} dimensions here, not {len(direction)}"
        )
    length = float(np.sqrt(np.einsum("i,i->", direction, direction)))
    if not np.isfinite(length) or length == 0.0:
        return None
    return _Asked(matrix=matrix, direction=direction / length)


def _nearest(
    db: Database,
    asked: _Asked,
    allowed: Numbers | None,
    warm: npt.NDArray[np.bool_] | None,
    limit: int,
) -> Numbers:
    """The passages whose vectors are nearest; ties by segment id and ordinal."""
    matrix = asked.matrix
    if limit <= 0:
        return _NO_NUMBERS
    # Not `@`: that starts BLAS's threads, which wait for each other on a busy machine (15 ms
    # instead of 0.2 for 2,000 rows), and rounds a row by where it stands.
    similarities = np.vecdot(matrix.values, asked.direction.astype(np.float32))
    if matrix.scaled:
        similarities = np.where(matrix.scales > 0, similarities * matrix.scales, np.float32(0))
    among = warm
    if allowed is not None:
        among = np.isin(matrix.passages, allowed)
        if warm is not None:
            among &= warm
    rows = np.arange(matrix.rows) if among is None else np.flatnonzero(among)
    if among is not None:
        similarities = similarities[rows]
    if len(rows) > limit:
        last = np.partition(similarities, len(rows) - limit)[len(rows) - limit]
        rows = rows[similarities >= last - _NEAR]
    return _best(db, matrix.passages[rows], asked.exact(rows), limit)


def _described(
    db: Database, postings: list[Postings], asked: _Asked | None, chosen: Numbers
) -> tuple[Candidate, ...]:
    rows = db.rows(_ROWS, (json_list(chosen.tolist()),))
    rows.sort()
    passages = np.array([row[0] for row in rows], dtype=np.int64)
    counts = counts_in(postings, passages)
    similarities: list[float | None] = [None] * len(rows)
    if asked is not None:
        at = asked.matrix.find(passages)
        held = np.flatnonzero(at >= 0)
        for which, cosine in zip(held.tolist(), asked.exact(at[held]).tolist(), strict=True):
            similarities[which] = cosine
    described = zip(rows, counts, similarities, strict=True)
    return tuple(readable(described, lambda one: _candidate(*one)))


def _candidate(row: tuple[Any, ...], counts: dict[str, int], similarity: float | None) -> Candidate:
    return Candidate(
        segment=SegmentId(row[1]),
        ordinal=row[2],
        key=EntryKey(row[3]),
        session=text_of(row[4]),
        sequence=row[5],
        role=row[6],
        said_at=row[7],
        trust=row[8],
        start=row[9],
        end=row[10],
        length=row[11],
        counts=counts,
        similarity=similarity,
        tool=unpack_text(row[12]),
        cold=bool(row[13]),
    )
