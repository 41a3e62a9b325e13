"""Finds the passages that may answer a query, and what stands around them in their session.

Chooses the best by words and by each vector, in one snapshot; `search` scores them. The same store
and query give the same candidates; ties go by segment id and ordinal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import repeat
from typing import Any, Final

import numpy as np

from recollect.adapters.stores.scoring import Numbers, Scores, best_of
from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.adapters.stores.sqlite.lexical import (
    Postings,
    Recent,
    counts_in,
    distinct,
    scores_of,
)
from recollect.adapters.stores.sqlite.rows import (
    json_list,
    pack_text,
    readable,
    text_of,
    unpack_text,
)
from recollect.adapters.stores.sqlite.vectors import (
    Matrices,
    VectorSearch,
    asked_vectors,
    number_list,
)
from recollect.core.values.recall import (
    Candidate,
    CandidateQuery,
    Candidates,
    Neighbour,
    Surroundings,
)
from recollect.core.values.segment import SegmentId

COLUMNS: Final = """
p.id, g.id, p.ordinal, g.key, CAST(s.name AS BLOB), g.sequence, g.role, g.said_at, g.trust,
p.start, p.stop, p.length, CAST(g.tool AS BLOB), g.cold
"""
"""Of passage `p`, segment `g` and session `s`."""

# In the order of the fields. A frozen value sets its fields one by one, by name; for the hundreds
# of a recall that took a tenth of it. Columns set through the slots take a third of that.
_SLOTS: Final = tuple(getattr(Candidate, field.name).__set__ for field in fields(Candidate))


def described(
    rows: Sequence[Row], postings: Sequence[Postings], asked: Sequence[VectorSearch | None]
) -> tuple[Candidate, ...]:
    """What is to be said of these passages, rows of `COLUMNS`, in their order."""
    try:
        return _described(rows, postings, asked)
    except (ValueError, TypeError):
        legible = readable(rows, lambda row: (row, text_of(row[4]), unpack_text(row[12])))
        return _described([row for row, _, _ in legible], postings, asked)


def _described(
    rows: Sequence[Row], postings: Sequence[Postings], asked: Sequence[VectorSearch | None]
) -> tuple[Candidate, ...]:
    if not rows:
        return ()
    (
        numbers, segment, ordinal, key, session, sequence, role, said_at, trust, start, end,
        length, tool, cold,
    ) = zip(*rows, strict=True)  # fmt: skip
    passages = np.array(numbers, dtype=np.int64)
    sessions = {packed: text_of(packed) for packed in set(session)}
    tools = {packed: unpack_text(packed) for packed in set(tool)}
    columns: tuple[Iterable[Any], ...] = (
        segment,
        ordinal,
        key,
        [sessions[packed] for packed in session],
        sequence,
        role,
        said_at,
        trust,
        start,
        end,
        length,
        counts_in(postings, passages),
        _similarities(asked, passages),
        [tools[packed] for packed in tool],
        map(bool, cold),
    )
    made = [object.__new__(Candidate) for _ in rows]
    for put, column in zip(_SLOTS, columns, strict=True):
        deque(map(put, made, column), maxlen=0)
    return tuple(made)


def _similarities(
    asked: Sequence[VectorSearch | None], passages: Numbers
) -> Iterable[tuple[float | None, ...]]:
    if not asked:
        return repeat((), len(passages))
    nowhere = [None] * len(passages)
    return zip(
        *(nowhere if search is None else search.cosines(passages) for search in asked), strict=True
    )


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
    for search in asked:
        if search is None or query.vector_limit <= 0:
            continue
        warm = None
        if cold_documents and not query.cold:
            warm = matrices.warm(db, search.matrix, cold_change)
        near = search.near(query.vector_limit, allowed=allowed, left_out=left_out, warm=warm)
        chosen.append(_best(db, *near, query.vector_limit))
    rows = db.rows(_ROWS, (json_list(distinct(np.concatenate(chosen)).tolist()),))
    searched = 0
    if cold:
        searched = cold_documents if allowed is None else _count_cold(db, allowed)
    return Candidates(
        passages=described(rows, postings, asked),
        documents=documents,
        average_length=average,
        document_frequencies={other.word: other.document_frequency for other in postings},
        cold_searched=searched,
    )


def _allowed(db: Database, recent: Recent, query: CandidateQuery) -> Numbers | None:
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
    best = best_of(passages, scores, limit)
    if best.settled:
        return np.concatenate([best.sure, best.tied])
    rows = sorted(db.rows(_PLACES, (json_list(best.tied.tolist()),)), key=lambda row: row[1:])
    taken = np.array([row[0] for row in rows[: best.wanted]], dtype=np.int64)
    return np.concatenate([best.sure, taken])


_WALK: Final = """
(SELECT group_concat(sequence) FROM (
  SELECT g.sequence FROM segment AS g INDEXED BY segment_place
  WHERE g.session = a.session AND g.sequence {beyond} a.sequence
    AND NOT g.cold AND g.noise IS NULL
    AND g.sequence NOT IN (SELECT value FROM json_each(?2))
    AND EXISTS (SELECT 1 FROM passage AS p WHERE p.segment = g.sequence)
  ORDER BY g.sequence {order} LIMIT ?3
))
"""
_NEAR: Final = f"""
SELECT a.id, a.sequence, {_WALK.format(beyond="<", order="DESC")},
  {_WALK.format(beyond=">", order="ASC")}
FROM json_each(?1) AS j CROSS JOIN segment AS a ON a.id = j.value
"""  # noqa: S608
# A neighbour without the passages that were asked for has a row of its own.
_NEIGHBOUR_ROWS: Final = f"""
SELECT {COLUMNS} FROM json_each(?1) AS j CROSS JOIN segment AS g ON g.sequence = j.value
JOIN session AS s ON s.number = g.session
LEFT JOIN passage AS p ON p.segment = g.sequence AND p.ordinal < ?2
"""  # noqa: S608

Walk = tuple[str, list[int], list[int]]
"""A segment, the places before it, and those behind it; the nearest first."""


def find_around(
    db: Database,
    matrices: Matrices,
    recent: Recent,
    ids: Sequence[SegmentId],
    query: CandidateQuery,
    reach: int,
    passages_each: int,
) -> Surroundings:
    """The neighbours of these segments, with their first passages described for the query."""
    recent.look(db)
    asked = asked_vectors(db, matrices, query.vectors)
    if not ids or reach <= 0:
        return Surroundings()
    left_out = recent.left_out(db, query.leave_out).sequences.tolist()
    named, walks = _walked(db, ids, left_out, reach)
    places = {near for _, before, behind in walks for near in (*before, *behind)}
    rows = db.rows(_NEIGHBOUR_ROWS, (json_list(sorted(places - named.keys())), passages_each))
    named.update((row[5], row[1]) for row in rows)
    passages = [row for row in rows if row[0] is not None]
    newest = max((row[0] for row in passages), default=0)
    postings = recent.counted(db, query.words, newest=newest) if passages else []
    return Surroundings(
        neighbours=_neighbours(walks, named), passages=described(passages, postings, asked)
    )


def _walked(
    db: Database, ids: Sequence[str], left_out: list[int], reach: int
) -> tuple[dict[int, str], list[Walk]]:
    """The segments that are stored, by their sequence, and how to walk from each.

    Few meet what is left out, and telling SQLite of it takes longer than all else: so only
    those that do walk again.
    """
    rows = db.rows(_NEAR, (json_list(dict.fromkeys(ids)), "[]", reach))
    walks = {row[0]: _walk(row) for row in rows}
    avoided = frozenset(left_out)
    meeting = [
        of for of, before, behind in walks.values() if not avoided.isdisjoint((*before, *behind))
    ]
    if meeting:
        again = db.rows(_NEAR, (json_list(meeting), json_list(left_out), reach))
        walks.update((row[0], _walk(row)) for row in again)
    return {row[1]: row[0] for row in rows}, list(walks.values())


def _walk(row: Row) -> Walk:
    return row[0], _numbers(row[2])[::-1], _numbers(row[3])


def _numbers(joined: str | None) -> list[int]:
    return [] if joined is None else sorted(map(int, joined.split(",")))


def _neighbours(walks: list[Walk], named: dict[int, str]) -> tuple[Neighbour, ...]:
    neighbours: list[Neighbour] = []
    for of, before, behind in walks:
        for step, places in ((-1, before), (1, behind)):
            distance = 0
            for near in places:
                distance += step
                if near in named:
                    neighbours.append(
                        Neighbour(
                            segment=SegmentId(named[near]), of=SegmentId(of), distance=distance
                        )
                    )
    return tuple(neighbours)
