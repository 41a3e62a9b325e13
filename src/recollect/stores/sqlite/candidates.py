"""Finds the passages that may answer a query: the best by words and the best by each vector.

All ways look through everything, in one snapshot and one thread. Must never score for the
caller: it chooses, and hands over what `search` needs. Always holds: the same store and query
give the same candidates; ties go by segment id and ordinal.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.describe import COLUMNS, described
from recollect.stores.sqlite.lexical import Scores, distinct, scores_of
from recollect.stores.sqlite.matrix import Matrices, number_list
from recollect.stores.sqlite.nearest import asked_vectors
from recollect.stores.sqlite.packing import json_list, pack_text
from recollect.stores.sqlite.recent import Recent
from recollect.stores.sqlite.vectors import Numbers
from recollect.values.lookup import CandidateQuery, Candidates

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
_ROWS: Final = f"""
SELECT {COLUMNS} FROM json_each(?) AS j CROSS JOIN passage AS p ON p.id = j.value
JOIN segment AS g ON g.sequence = p.segment JOIN session AS s ON s.number = g.session
"""  # noqa: S608

_NO_NUMBERS: Final = np.empty(0, dtype=np.int64)


def find_candidates(
    db: Database, matrices: Matrices, recent: Recent, query: CandidateQuery
) -> Candidates:
    """What may answer the query, with what scoring it needs."""
    recent.look(db)
    documents, words, cold_documents, cold_change = db.row(_TOTALS)
    average = words / documents if documents else 0.0
    cold = query.cold and cold_documents > 0
    allowed = _allowed(db, recent, query)
    left_out = recent.left_out(db, query.leave_out).passages
    postings = recent.postings(db, query.words, cold=cold)
    by_words, scores = scores_of(
        db,
        postings,
        documents=documents,
        average_length=average,
        allowed=allowed,
        left_out=left_out,
    )
    chosen = [_best(db, by_words, scores, query.lexical_limit)]
    asked = asked_vectors(db, matrices, query.vectors)
    for one in asked:
        if one is None or query.vector_limit <= 0:
            continue
        warm = None
        if cold_documents and not query.cold:
            warm = matrices.warm(db, one.matrix, cold_change)
        near = one.near(query.vector_limit, allowed=allowed, left_out=left_out, warm=warm)
        chosen.append(_best(db, *near, query.vector_limit))
    rows = db.rows(_ROWS, (json_list(distinct(np.concatenate(chosen)).tolist()),))
    searched = 0
    if cold:
        searched = cold_documents if allowed is None else _count_cold(db, allowed)
    return Candidates(
        passages=described(rows, postings, asked),
        documents=documents,
        average_length=average,
        document_frequencies={one.word: one.document_frequency for one in postings},
        cold_searched=searched,
    )


def _allowed(db: Database, recent: Recent, query: CandidateQuery) -> Numbers | None:
    """The passages that the filters let through, ascending; None when there are no filters."""
    times = query.said_after, query.said_before
    if query.session is None:
        if times == (None, None):
            return None
        return np.sort(number_list(db.value(_ALLOWED, times)))
    own = number_list(db.value(_ALLOWED_IN_SESSION, (*times, pack_text(query.session))))
    if not query.with_files:
        return np.sort(own)
    in_files = recent.in_files(db, said_after=query.said_after, said_before=query.said_before)
    return distinct(np.concatenate([own, in_files]))  # the session may be a file's itself


def _count_cold(db: Database, allowed: Numbers) -> int:
    count: int = db.value(_COLD_ALLOWED, (json_list(allowed.tolist()),))
    return count


def _best(db: Database, passages: Numbers, scores: Scores, limit: int) -> Numbers:
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
