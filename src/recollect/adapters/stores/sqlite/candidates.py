"""Finds the passages that may answer a query, and their neighbors in the session.

This module chooses the best passages by words and by each vector, in one snapshot; `core/search`
scores them. BM25 is computed with numpy from fts5vocab, because FTS5's own rank takes several times
as long. Equal scores are ordered by segment id and ordinal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from recollect.adapters.stores.invariants import NO_NUMBERS, Numbers, Scores, best_of
from recollect.adapters.stores.sqlite.archive import LENGTH_MAX
from recollect.adapters.stores.sqlite.columns import (
    form_of,
    json_list,
    pack_text,
    read_rows,
    text_of,
    unpack_text,
)
from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.adapters.stores.sqlite.facts import MEMBERS, load_fact_vectors
from recollect.adapters.stores.sqlite.vectors import (
    Matrices,
    VectorSearch,
    asked_vectors,
    number_list,
)
from recollect.core.search.bm25 import inverse_document_frequency, length_damping, saturated
from recollect.core.values.recall import (
    FILE_SESSIONS,
    Candidate,
    CandidateQuery,
    Candidates,
    Neighbour,
    Surroundings,
)
from recollect.core.values.segment import SegmentId, Vector

_OCCURRENCES: Final = """
SELECT (SELECT group_concat(doc) FROM words_at WHERE term = j.value) FROM json_each(?) AS j
ORDER BY j.key
"""
_LENGTHS: Final = "SELECT id, length FROM passage WHERE id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """The passages that contain one word, in ascending order, and how often each contains it."""

    word: str
    passages: Numbers
    counts: Numbers


def postings_of(db: Database, words: Sequence[str]) -> list[Postings]:
    distinct_words = list(dict.fromkeys(words))
    rows = db.rows(_OCCURRENCES, (json_list(map(form_of, distinct_words)),))
    postings = []
    for word, (joined,) in zip(distinct_words, rows, strict=True):
        passages, counts = _counted(number_list(joined))
        postings.append(Postings(word=word, passages=passages, counts=counts))
    return postings


def scores_of(
    db: Database,
    postings: Sequence[Postings],
    *,
    documents: int,
    average_length: float,
    allowed: Numbers | None,
    left_out: Numbers,
) -> tuple[Numbers, Scores]:
    """Score the passages that contain any of the words, in ascending order. Each passage must be in
    `allowed` (None for all) and not in `left_out`, which are both in ascending order."""
    stored_postings = [other for other in postings if len(other.passages)]
    if not stored_postings:
        return NO_NUMBERS, np.empty(0)
    every = np.concatenate([postings.passages for postings in stored_postings])
    counts = np.concatenate([postings.counts for postings in stored_postings]).astype(np.float64)
    worths = [
        inverse_document_frequency(document_frequency=len(postings.passages), documents=documents)
        for postings in stored_postings
    ]
    lengths = _lengths(db, every).astype(np.float64)
    damping = length_damping(lengths, average_length)
    gains = np.repeat(worths, [len(postings.passages) for postings in stored_postings]) * saturated(
        counts, damping
    )
    passages, at = _places(every)
    # Add the scores in the order of the words.
    scores: Scores = np.bincount(at, weights=gains).astype(np.float64, copy=False)
    if allowed is not None:
        among = _positions(passages, allowed)[0]
        passages, scores = passages[among], scores[among]
    if len(left_out):
        allowed_here = np.ones(len(passages), dtype=np.bool_)
        allowed_here[_positions(passages, left_out)[0]] = False
        passages, scores = passages[allowed_here], scores[allowed_here]
    return passages, scores


def _places(numbers: Numbers) -> tuple[Numbers, npt.NDArray[np.intp]]:
    """Return the different numbers in ascending order, and the index of each given number among
    them. The numbers consist of a few ascending runs, which a stable sort merges in half the time
    of a search for each number."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    new = np.concatenate(([True], ascending[1:] != ascending[:-1]))
    at = np.empty(len(numbers), dtype=np.intp)
    at[order] = np.cumsum(new) - 1
    return ascending[new], at


def counts_in(postings: Sequence[Postings], passages: Numbers) -> list[dict[str, int]]:
    counts: list[dict[str, int]] = [{} for _ in range(len(passages))]
    for one in postings:
        at, hits = _positions(one.passages, passages)
        for hit, count in zip(hits.tolist(), one.counts[at].tolist(), strict=True):
            counts[hit][one.word] = count
    return counts


def _positions(held: Numbers, wanted: Numbers) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    if not len(held):
        nowhere = np.empty(0, dtype=np.intp)
        return nowhere, nowhere
    at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    hits = np.flatnonzero(held[at] == wanted)
    return at[hits], hits


def distinct(numbers: Numbers) -> Numbers:
    """Return the different numbers in ascending order, six times as fast as np.unique does here."""
    if not len(numbers):
        return numbers
    numbers = np.sort(numbers)
    return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))]


def _counted(occurrences: Numbers) -> tuple[Numbers, Numbers]:
    if not len(occurrences):
        return occurrences, occurrences
    starts = np.flatnonzero(np.concatenate(([True], occurrences[1:] != occurrences[:-1])))
    counts = np.diff(np.append(starts, len(occurrences)))
    return occurrences[starts], counts.astype(np.int64)


def _lengths(db: Database, passages: Numbers) -> Numbers:
    lengths = passages & LENGTH_MAX
    long = np.flatnonzero(lengths == LENGTH_MAX)
    if len(long):
        exact: dict[int, int] = dict(db.rows(_LENGTHS, (json_list(passages[long].tolist()),)))
        lengths[long] = [exact.get(passage, LENGTH_MAX) for passage in passages[long].tolist()]
    return lengths


_STATE: Final = "SELECT next_sequence, next_passage, removals FROM totals"
_LEFT_OUT: Final = """
SELECT group_concat(DISTINCT g.sequence), group_concat(p.id)
FROM json_each(?) AS o CROSS JOIN segment AS g ON g.id = o.value
LEFT JOIN passage AS p ON p.segment = g.sequence
"""
# Selects the sessions of memory files, as in `CandidateQuery.with_files`. A name that UTF-8 cannot
# encode is stored as bytes, which SQLite sorts after every text, so the names have two ranges.
_AFTER_FILES: Final = FILE_SESSIONS[:-1] + chr(ord(FILE_SESSIONS[-1]) + 1)
_FILE_NAMES: Final = (
    *(FILE_SESSIONS, _AFTER_FILES),
    *(FILE_SESSIONS.encode(), _AFTER_FILES.encode()),
)
_OF_FILE: Final = "(s.name >= ?1 AND s.name < ?2 OR s.name >= ?3 AND s.name < ?4)"
_IN_FILES: Final = f"""
SELECT group_concat(p.id) FROM session AS s CROSS JOIN segment AS g ON g.session = s.number
CROSS JOIN passage AS p ON p.segment = g.sequence
WHERE {_OF_FILE} AND (?5 IS NULL OR g.said_at > ?5) AND (?6 IS NULL OR g.said_at < ?6)
"""  # noqa: S608
# Number of cached queries: several turns of a space may run at once. In a large space (16 bytes per
# entry), only the last query is cached.
_KEPT: Final = 4
_KEPT_ENTRIES: Final = 1_000_000


class LeftOut(NamedTuple):
    """The stored segments that a query excludes, and their passages, both in ascending order."""

    sequences: Numbers
    passages: Numbers


class Caches:
    """Caches of one space: vectors, and the words and exclusions of the last few queries, because a
    recall runs the same query twice. Only one thread may use this object."""

    def __init__(self) -> None:
        self.passages: Matrices = Matrices()
        self.facts: Matrices = Matrices(MEMBERS, load_fact_vectors)
        self._state: Row = ()
        self._postings: dict[tuple[str, ...], list[Postings]] = {}
        self._left_out: dict[frozenset[SegmentId], LeftOut] = {}

    def refresh(self, db: Database) -> None:
        """Drop the cached queries if the archive has changed. Call this first in every snapshot."""
        state = db.row(_STATE)
        if state != self._state:
            self._state = state
            self._postings.clear()
            self._left_out.clear()

    def postings(self, db: Database, words: tuple[str, ...]) -> list[Postings]:
        found = self._postings.pop(words, None)
        if found is None:
            found = postings_of(db, words)
        self._postings[words] = found
        while len(self._postings) > 1 and self._too_much():
            del self._postings[next(iter(self._postings))]
        return found

    def _too_much(self) -> bool:
        entries = sum(len(one.passages) for found in self._postings.values() for one in found)
        return len(self._postings) > _KEPT or entries > _KEPT_ENTRIES

    def left_out(self, db: Database, ids: frozenset[SegmentId]) -> LeftOut:
        if not ids:
            return LeftOut(NO_NUMBERS, NO_NUMBERS)
        found = self._left_out.pop(ids, None)
        if found is None:
            lists = db.row(_LEFT_OUT, (json_list(ids),))
            found = LeftOut(*(np.sort(number_list(joined)) for joined in lists))
        self._left_out[ids] = found
        if len(self._left_out) > _KEPT:
            del self._left_out[next(iter(self._left_out))]
        return found


COLUMNS: Final = """
p.id, g.id, p.ordinal, g.key, CAST(s.name AS BLOB), g.sequence, g.role, g.said_at, g.trust,
p.start, p.stop, p.length, CAST(g.tool AS BLOB)
"""
"""Columns of passage `p`, segment `g` and session `s`."""

# The fields are set in order through the slots, which takes a third of the time of setting them by
# name: a tenth of a recall.
_SLOTS: Final = tuple(getattr(Candidate, field.name).__set__ for field in fields(Candidate))


def described(
    rows: Sequence[Row], postings: Sequence[Postings], asked: Sequence[VectorSearch | None]
) -> tuple[Candidate, ...]:
    """Build the candidates of these passages from rows of `COLUMNS`, in their order."""
    try:
        return _described(rows, postings, asked)
    except (ValueError, TypeError):
        legible = read_rows(rows, lambda row: (row, text_of(row[4]), unpack_text(row[12])))
        return _described([row for row, _, _ in legible], postings, asked)


def _described(
    rows: Sequence[Row], postings: Sequence[Postings], asked: Sequence[VectorSearch | None]
) -> tuple[Candidate, ...]:
    if not rows:
        return ()
    (
        numbers, segment, ordinal, key, session, sequence, role, said_at, trust, start, end,
        length, tool,
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


_TOTALS: Final = "SELECT documents, words FROM totals"
_ALLOWED: Final = """
SELECT group_concat(p.id) FROM segment AS g JOIN passage AS p ON p.segment = g.sequence
WHERE (?1 IS NULL OR g.said_at > ?1) AND (?2 IS NULL OR g.said_at < ?2)
"""
_ALLOWED_IN_SESSION: Final = (
    _ALLOWED + "AND g.session = (SELECT number FROM session WHERE name = ?3)"  # noqa: S608
)
_PLACES: Final = """
SELECT p.id, g.id, p.ordinal FROM passage AS p JOIN segment AS g ON g.sequence = p.segment
WHERE p.id IN (SELECT value FROM json_each(?))
"""
_ROWS: Final = f"""
SELECT {COLUMNS} FROM json_each(?) AS j CROSS JOIN passage AS p ON p.id = j.value
JOIN segment AS g ON g.sequence = p.segment JOIN session AS s ON s.number = g.session
"""  # noqa: S608


def find_candidates(db: Database, caches: Caches, query: CandidateQuery) -> Candidates:
    caches.refresh(db)
    documents, words = db.row(_TOTALS)
    average = words / documents if documents else 0.0
    allowed = _find_allowed(db, query)
    left_out = caches.left_out(db, query.leave_out).passages
    postings = caches.postings(db, query.words)
    by_words, scores = scores_of(
        db,
        postings,
        documents=documents,
        average_length=average,
        allowed=allowed,
        left_out=left_out,
    )
    chosen = [_best(db, by_words, scores, query.lexical_limit)]
    asked = asked_vectors(db, caches.passages, query.vectors)
    for search in asked:
        if search is not None and query.vector_limit > 0:
            near = search.near(query.vector_limit, allowed=allowed, left_out=left_out)
            chosen.append(_best(db, *near, query.vector_limit))
    rows = db.rows(_ROWS, (json_list(distinct(np.concatenate(chosen)).tolist()),))
    return Candidates(
        passages=described(rows, postings, asked),
        documents=documents,
        average_length=average,
        document_frequencies={other.word: len(other.passages) for other in postings},
    )


def _find_allowed(db: Database, query: CandidateQuery) -> Numbers | None:
    times = query.said_after, query.said_before
    if query.session is None:
        if times == (None, None):
            return None
        return np.sort(number_list(db.value(_ALLOWED, times)))
    own = number_list(db.value(_ALLOWED_IN_SESSION, (*times, pack_text(query.session))))
    if not query.with_files:
        return np.sort(own)
    in_files = number_list(db.value(_IN_FILES, (*_FILE_NAMES, *times)))
    return distinct(np.concatenate([own, in_files]))  # the session may itself be a memory file


def _best(db: Database, passages: Numbers, scores: Scores, limit: int) -> Numbers:
    chosen, tied, wanted = best_of(passages, scores, limit)
    rows = db.rows(_PLACES, (json_list(tied.tolist()),)) if wanted else []
    first = sorted(rows, key=lambda row: row[1:])[:wanted]
    return np.array([*chosen.tolist(), *(row[0] for row in first)], dtype=np.int64)


_WALK: Final = """
(SELECT group_concat(sequence) FROM (
  SELECT g.sequence FROM segment AS g INDEXED BY segment_place
  WHERE g.session = a.session AND g.sequence {beyond} a.sequence
    AND g.noise IS NULL
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
# A neighbor that belongs to no requested passage has its own row.
_NEIGHBOUR_ROWS: Final = f"""
SELECT {COLUMNS} FROM json_each(?1) AS j CROSS JOIN segment AS g ON g.sequence = j.value
JOIN session AS s ON s.number = g.session
LEFT JOIN passage AS p ON p.segment = g.sequence AND p.ordinal < ?2
"""  # noqa: S608

Walk = tuple[str, list[int], list[int]]
"""A segment, and the places before and after it, nearest first."""


def find_around(
    db: Database,
    caches: Caches,
    ids: Sequence[SegmentId],
    query: CandidateQuery,
    *,
    reach: int = 2,
    passages_each: int = 3,
) -> Surroundings:
    caches.refresh(db)
    asked = asked_vectors(db, caches.passages, query.vectors)
    if not ids or reach <= 0:
        return Surroundings()
    left_out = caches.left_out(db, query.leave_out).sequences.tolist()
    named, walks = _walks(db, ids, left_out, reach)
    places = {near for _, before, behind in walks for near in (*before, *behind)}
    rows = db.rows(_NEIGHBOUR_ROWS, (json_list(sorted(places - named.keys())), passages_each))
    named.update((row[5], row[1]) for row in rows)
    passages = [row for row in rows if row[0] is not None]
    postings = caches.postings(db, query.words) if passages else []
    return Surroundings(
        neighbours=_neighbours(walks, named), passages=described(passages, postings, asked)
    )


def _walks(
    db: Database, ids: Sequence[str], left_out: list[int], reach: int
) -> tuple[dict[int, str], list[Walk]]:
    """Return the stored segments by sequence, and the neighbors of each. Passing exclusions to
    SQLite is slow, so only the few segments with an excluded one near them are searched again."""
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


_VECTORS: Final = """
SELECT p.id, g.id, p.ordinal FROM vector_at AS v JOIN passage AS p ON p.id = v.passage
JOIN segment AS g ON g.sequence = p.segment WHERE v.embedder = ? ORDER BY g.id, p.ordinal
"""


def read_vectors(db: Database, caches: Caches, embedder: str) -> tuple[Vector, ...]:
    matrix = caches.passages.fresh(db, embedder)
    if matrix is None:
        return ()
    places = db.rows(_VECTORS, (matrix.embedder,))
    rows = matrix.find(np.array([place[0] for place in places], dtype=np.int64))
    return tuple(
        Vector(segment=SegmentId(id_), ordinal=ordinal, values=matrix.values[row].tobytes())
        for (_, id_, ordinal), row in zip(places, rows.tolist(), strict=True)
        if row >= 0
    )
