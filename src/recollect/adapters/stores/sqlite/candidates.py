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
    parse_numbers,
    prepare_searches,
)
from recollect.core.search.bm25 import inverse_document_frequency, length_damping, saturate
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
    for word, (number_text,) in zip(distinct_words, rows, strict=True):
        passages, counts = _count_occurrences(parse_numbers(number_text))
        postings.append(Postings(word=word, passages=passages, counts=counts))
    return postings


def scores_of(
    db: Database,
    postings: Sequence[Postings],
    *,
    documents: int,
    average_length: float,
    allowed_numbers: Numbers | None,
    left_out: Numbers,
) -> tuple[Numbers, Scores]:
    """Score the passages that contain any of the words, in ascending order. Each passage must be in
    `allowed_numbers` (None for all) and not in `left_out`, which are both in ascending order."""
    stored_postings = [posting for posting in postings if len(posting.passages)]
    if not stored_postings:
        return NO_NUMBERS, np.empty(0)
    all_passages = np.concatenate([posting.passages for posting in stored_postings])
    counts = np.concatenate([posting.counts for posting in stored_postings]).astype(np.float64)
    weights = [
        inverse_document_frequency(document_frequency=len(posting.passages), documents=documents)
        for posting in stored_postings
    ]
    damping = length_damping(_read_lengths(db, all_passages).astype(np.float64), average_length)
    gains = np.repeat(weights, [len(posting.passages) for posting in stored_postings]) * saturate(
        counts, damping
    )
    passages, indexes = _distinct_with_indexes(all_passages)
    # Add the scores in the order of the words.
    scores: Scores = np.bincount(indexes, weights=gains).astype(np.float64, copy=False)
    if allowed_numbers is not None:
        allowed_indexes = _find_positions(passages, allowed_numbers)[0]
        passages, scores = passages[allowed_indexes], scores[allowed_indexes]
    if len(left_out):
        is_eligible = np.ones(len(passages), dtype=np.bool_)
        is_eligible[_find_positions(passages, left_out)[0]] = False
        passages, scores = passages[is_eligible], scores[is_eligible]
    return passages, scores


def _distinct_with_indexes(numbers: Numbers) -> tuple[Numbers, npt.NDArray[np.intp]]:
    """Return the different numbers in ascending order, and the index of each given number among
    them. The numbers consist of a few ascending runs, which a stable sort merges in half the time
    of a search for each number."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    is_first = np.concatenate(([True], ascending[1:] != ascending[:-1]))
    indexes = np.empty(len(numbers), dtype=np.intp)
    indexes[order] = np.cumsum(is_first) - 1
    return ascending[is_first], indexes


def counts_in(postings: Sequence[Postings], passages: Numbers) -> list[dict[str, int]]:
    counts: list[dict[str, int]] = [{} for _ in range(len(passages))]
    for posting in postings:
        indexes, passage_indexes = _find_positions(posting.passages, passages)
        for index, count in zip(
            passage_indexes.tolist(), posting.counts[indexes].tolist(), strict=True
        ):
            counts[index][posting.word] = count
    return counts


def _find_positions(
    sorted_numbers: Numbers, searched_numbers: Numbers
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    if not len(sorted_numbers):
        no_indexes = np.empty(0, dtype=np.intp)
        return no_indexes, no_indexes
    indexes = np.minimum(np.searchsorted(sorted_numbers, searched_numbers), len(sorted_numbers) - 1)
    matches = np.flatnonzero(sorted_numbers[indexes] == searched_numbers)
    return indexes[matches], matches


def distinct(numbers: Numbers) -> Numbers:
    """Return the different numbers in ascending order, six times as fast as np.unique does here."""
    if not len(numbers):
        return numbers
    numbers = np.sort(numbers)
    return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))]


def _count_occurrences(occurrences: Numbers) -> tuple[Numbers, Numbers]:
    if not len(occurrences):
        return occurrences, occurrences
    starts = np.flatnonzero(np.concatenate(([True], occurrences[1:] != occurrences[:-1])))
    return occurrences[starts], np.diff(np.append(starts, len(occurrences))).astype(np.int64)


def _read_lengths(db: Database, passages: Numbers) -> Numbers:
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
_MAX_CACHED: Final = 4
_MAX_CACHED_ENTRIES: Final = 1_000_000


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

    def find_postings(self, db: Database, words: tuple[str, ...]) -> list[Postings]:
        postings = self._postings.pop(words, None)
        if postings is None:
            postings = postings_of(db, words)
        self._postings[words] = postings
        while len(self._postings) > 1 and self._is_full():
            del self._postings[next(iter(self._postings))]
        return postings

    def _is_full(self) -> bool:
        entries = sum(
            len(posting.passages) for postings in self._postings.values() for posting in postings
        )
        return len(self._postings) > _MAX_CACHED or entries > _MAX_CACHED_ENTRIES

    def find_left_out(self, db: Database, ids: frozenset[SegmentId]) -> LeftOut:
        if not ids:
            return LeftOut(NO_NUMBERS, NO_NUMBERS)
        left_out = self._left_out.pop(ids, None)
        if left_out is None:
            lists = db.row(_LEFT_OUT, (json_list(ids),))
            left_out = LeftOut(*(np.sort(parse_numbers(number_text)) for number_text in lists))
        self._left_out[ids] = left_out
        if len(self._left_out) > _MAX_CACHED:
            del self._left_out[next(iter(self._left_out))]
        return left_out


COLUMNS: Final = """
p.id, g.id, p.ordinal, g.key, CAST(s.name AS BLOB), g.sequence, g.role, g.said_at, g.trust,
p.start, p.stop, p.length, CAST(g.tool AS BLOB)
"""
"""Columns of passage `p`, segment `g` and session `s`."""

# The fields are set in order through the slots, which takes a third of the time of setting them by
# name: a tenth of a recall.
_SLOTS: Final = tuple(getattr(Candidate, field.name).__set__ for field in fields(Candidate))


def build_candidates(
    rows: Sequence[Row], postings: Sequence[Postings], searches: Sequence[VectorSearch | None]
) -> tuple[Candidate, ...]:
    """Build the candidates of these passages from rows of `COLUMNS`, in their order."""
    try:
        return _build_candidates(rows, postings, searches)
    except (ValueError, TypeError):
        legible = read_rows(rows, lambda row: (row, text_of(row[4]), unpack_text(row[12])))
        return _build_candidates([row for row, _, _ in legible], postings, searches)


def _build_candidates(
    rows: Sequence[Row], postings: Sequence[Postings], searches: Sequence[VectorSearch | None]
) -> tuple[Candidate, ...]:
    if not rows:
        return ()
    (
        numbers, segment, ordinal, key, session, sequence, role, said_at, trust, start, end,
        length, tool,
    ) = zip(*rows, strict=True)  # fmt: skip
    passages = np.array(numbers, dtype=np.int64)
    sessions = {blob: text_of(blob) for blob in set(session)}
    tools = {blob: unpack_text(blob) for blob in set(tool)}
    columns: tuple[Iterable[Any], ...] = (
        segment,
        ordinal,
        key,
        [sessions[blob] for blob in session],
        sequence,
        role,
        said_at,
        trust,
        start,
        end,
        length,
        counts_in(postings, passages),
        _compare_vectors(searches, passages),
        [tools[blob] for blob in tool],
    )
    candidates = [object.__new__(Candidate) for _ in rows]
    for set_field, column in zip(_SLOTS, columns, strict=True):
        deque(map(set_field, candidates, column), maxlen=0)
    return tuple(candidates)


def _compare_vectors(
    searches: Sequence[VectorSearch | None], passages: Numbers
) -> Iterable[tuple[float | None, ...]]:
    if not searches:
        return repeat((), len(passages))
    no_cosines = [None] * len(passages)
    return zip(
        *(no_cosines if search is None else search.cosines(passages) for search in searches),
        strict=True,
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
    allowed_numbers = _find_allowed(db, query)
    left_out = caches.find_left_out(db, query.leave_out).passages
    postings = caches.find_postings(db, query.words)
    word_matches, scores = scores_of(
        db,
        postings,
        documents=documents,
        average_length=average,
        allowed_numbers=allowed_numbers,
        left_out=left_out,
    )
    chosen_numbers = [_choose_best(db, word_matches, scores, query.lexical_limit)]
    searches = prepare_searches(db, caches.passages, query.vectors)
    for search in searches:
        if search is not None and query.vector_limit > 0:
            nearest = search.find_nearest(
                query.vector_limit, allowed_numbers=allowed_numbers, left_out=left_out
            )
            chosen_numbers.append(_choose_best(db, *nearest, query.vector_limit))
    rows = db.rows(_ROWS, (json_list(distinct(np.concatenate(chosen_numbers)).tolist()),))
    return Candidates(
        passages=build_candidates(rows, postings, searches),
        documents=documents,
        average_length=average,
        document_frequencies={posting.word: len(posting.passages) for posting in postings},
    )


def _find_allowed(db: Database, query: CandidateQuery) -> Numbers | None:
    times = query.said_after, query.said_before
    if query.session is None:
        if times == (None, None):
            return None
        return np.sort(parse_numbers(db.value(_ALLOWED, times)))
    own_ids = parse_numbers(db.value(_ALLOWED_IN_SESSION, (*times, pack_text(query.session))))
    if not query.with_files:
        return np.sort(own_ids)
    in_files = parse_numbers(db.value(_IN_FILES, (*_FILE_NAMES, *times)))
    return distinct(np.concatenate([own_ids, in_files]))  # the session may itself be a memory file


def _choose_best(db: Database, passages: Numbers, scores: Scores, limit: int) -> Numbers:
    chosen_numbers, tied_numbers, missing_count = best_of(passages, scores, limit)
    rows = db.rows(_PLACES, (json_list(tied_numbers.tolist()),)) if missing_count else []
    first = sorted(rows, key=lambda row: row[1:])[:missing_count]
    return np.array([*chosen_numbers.tolist(), *(row[0] for row in first)], dtype=np.int64)


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


def find_surroundings(
    db: Database,
    caches: Caches,
    ids: Sequence[SegmentId],
    query: CandidateQuery,
    *,
    reach: int = 2,
    passages_each: int = 3,
) -> Surroundings:
    caches.refresh(db)
    searches = prepare_searches(db, caches.passages, query.vectors)
    if not ids or reach <= 0:
        return Surroundings()
    left_out = caches.find_left_out(db, query.leave_out).sequences.tolist()
    id_by_sequence, walks = _find_walks(db, ids, left_out, reach)
    sequences = {sequence for _, before, after in walks for sequence in (*before, *after)}
    rows = db.rows(
        _NEIGHBOUR_ROWS, (json_list(sorted(sequences - id_by_sequence.keys())), passages_each)
    )
    id_by_sequence.update((row[5], row[1]) for row in rows)
    passages = [row for row in rows if row[0] is not None]
    postings = caches.find_postings(db, query.words) if passages else []
    return Surroundings(
        neighbours=_list_neighbours(walks, id_by_sequence),
        passages=build_candidates(passages, postings, searches),
    )


def _find_walks(
    db: Database, ids: Sequence[str], left_out: list[int], reach: int
) -> tuple[dict[int, str], list[Walk]]:
    """Return the stored segments by sequence, and the neighbors of each. Passing exclusions to
    SQLite is slow, so only the few segments with an excluded one near them are searched again."""
    rows = db.rows(_NEAR, (json_list(dict.fromkeys(ids)), "[]", reach))
    walks = {row[0]: _walk_from_row(row) for row in rows}
    left_out_set = frozenset(left_out)
    blocked_ids = [
        segment_id
        for segment_id, before, after in walks.values()
        if not left_out_set.isdisjoint((*before, *after))
    ]
    if blocked_ids:
        new_rows = db.rows(_NEAR, (json_list(blocked_ids), json_list(left_out), reach))
        walks.update((row[0], _walk_from_row(row)) for row in new_rows)
    return {row[1]: row[0] for row in rows}, list(walks.values())


def _walk_from_row(row: Row) -> Walk:
    return row[0], _parse_numbers(row[2])[::-1], _parse_numbers(row[3])


def _parse_numbers(number_text: str | None) -> list[int]:
    return [] if number_text is None else sorted(map(int, number_text.split(",")))


def _list_neighbours(walks: list[Walk], id_by_sequence: dict[int, str]) -> tuple[Neighbour, ...]:
    neighbours: list[Neighbour] = []
    for segment_id, before, after in walks:
        for step, sequences in ((-1, before), (1, after)):
            distance = 0
            for sequence in sequences:
                distance += step
                if sequence in id_by_sequence:
                    neighbours.append(
                        Neighbour(
                            segment=SegmentId(id_by_sequence[sequence]),
                            of=SegmentId(segment_id),
                            distance=distance,
                        )
                    )
    return tuple(neighbours)


_VECTORS: Final = """
SELECT p.id, g.id, p.ordinal FROM vector_at AS v JOIN passage AS p ON p.id = v.passage
JOIN segment AS g ON g.sequence = p.segment WHERE v.embedder = ? ORDER BY g.id, p.ordinal
"""


def read_vectors(db: Database, caches: Caches, embedder: str) -> tuple[Vector, ...]:
    matrix = caches.passages.load_matrix(db, embedder)
    if matrix is None:
        return ()
    passage_rows = db.rows(_VECTORS, (matrix.embedder,))
    matrix_rows = matrix.find(np.array([row[0] for row in passage_rows], dtype=np.int64))
    return tuple(
        Vector(segment=SegmentId(id_), ordinal=ordinal, values=matrix.values[matrix_row].tobytes())
        for (_, id_, ordinal), matrix_row in zip(passage_rows, matrix_rows.tolist(), strict=True)
        if matrix_row >= 0
    )
