"""Plain reads: segments, pages of them, sessions, passages, facts, vectors for export.

A record that cannot be read is left out (see `rows.py`). Must never change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from recollect.stores.sqlite.database import Database, Row
from recollect.stores.sqlite.fact_rows import SELECT_FACT, stored_fact
from recollect.stores.sqlite.matrix import Matrices
from recollect.stores.sqlite.packing import json_list, pack_text, text_of
from recollect.stores.sqlite.rows import SELECT_SEGMENT, readable, stored_segment
from recollect.stores.sqlite.vectors import WAITING
from recollect.values.fact import Fact
from recollect.values.segment import NewPassage, PassageText, SegmentId, StoredSegment, Vector
from recollect.values.upkeep import SessionSummary

_SEGMENTS: Final = SELECT_SEGMENT + "WHERE g.id IN (SELECT value FROM json_each(?))"  # noqa: S608
_PAGE: Final = SELECT_SEGMENT + "WHERE g.sequence > ? ORDER BY g.sequence LIMIT ?"
_PAGE_BACK: Final = SELECT_SEGMENT + "WHERE g.sequence < ? ORDER BY g.sequence DESC LIMIT ?"
_IN_SESSION: Final = "g.session = (SELECT number FROM session WHERE name = ?) AND g.sequence"
_SESSION_PAGE: Final = _PAGE.replace("g.sequence >", f"{_IN_SESSION} >")
_SESSION_PAGE_BACK: Final = _PAGE_BACK.replace("g.sequence <", f"{_IN_SESSION} <")
_SESSIONS: Final = """
SELECT CAST(s.name AS BLOB), count(*), min(g.said_at), max(g.said_at), min(g.sequence)
FROM segment AS g JOIN session AS s ON s.number = g.session
GROUP BY g.session ORDER BY 3, 5
"""
_PASSAGES: Final = """
SELECT p.start, p.stop, p.embedded FROM segment AS g JOIN passage AS p ON p.segment = g.sequence
WHERE g.id = ? ORDER BY p.ordinal
"""
_EMBEDDER: Final = "SELECT number, complete_to FROM embedder WHERE name = ?"
_TEXT: Final = "SELECT id, CAST(text AS BLOB) FROM segment WHERE sequence = ?"
_VECTORS: Final = """
SELECT p.id, g.id, p.ordinal
FROM segment AS g CROSS JOIN passage AS p ON p.segment = g.sequence
CROSS JOIN vector_at AS v ON v.embedder = ? AND v.passage = p.id
WHERE (g.id, p.ordinal) > (?, ?) ORDER BY g.id, p.ordinal LIMIT ?
"""
_FACTS: Final = SELECT_FACT + "WHERE ? OR current ORDER BY at, id"
_FACTS_ABOUT: Final = SELECT_FACT + "WHERE (? OR current) AND subject IN ({marks})"
_SOME_FACTS: Final = SELECT_FACT + "WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608

_SUBJECTS_AT_ONCE: Final = 500
_BEYOND_ALL: Final = (1 << 63) - 1


def segments_by_id(db: Database, ids: Sequence[str]) -> tuple[StoredSegment, ...]:
    """These segments, in this order."""
    rows = db.rows(_SEGMENTS, (json_list(ids),))
    found = {one.segment.id: one for one in readable(rows, stored_segment)}
    return tuple(found[SegmentId(id_)] for id_ in ids if id_ in found)


def page(
    db: Database, *, after: int, limit: int, session: str | None, descending: bool
) -> tuple[StoredSegment, ...]:
    """Segments in the order of arrival, or against it."""
    edge = (after or _BEYOND_ALL) if descending else after
    found: list[StoredSegment] = []
    while len(found) < limit:  # a row that cannot be read must not end the page early
        wanted = limit - len(found)
        if session is None:
            query = _PAGE_BACK if descending else _PAGE
            rows = db.rows(query, (edge, wanted))
        else:
            query = _SESSION_PAGE_BACK if descending else _SESSION_PAGE
            rows = db.rows(query, (pack_text(session), edge, wanted))
        found += readable(rows, stored_segment)
        if len(rows) < wanted:
            break
        edge = rows[-1][0]
    return tuple(found)


def sessions(db: Database) -> tuple[SessionSummary, ...]:
    """The sessions that have segments, oldest first."""
    return tuple(readable(db.rows(_SESSIONS), _summary))


def _summary(row: Row) -> SessionSummary:
    name, count, first, last, _ = row
    return SessionSummary(
        session=text_of(name), segments=count, first_said_at=first, last_said_at=last
    )


def passages_by_id(db: Database, id_: str) -> tuple[NewPassage, ...]:
    """The spans of a segment that are indexed, without their words."""
    return tuple(
        NewPassage(start=start, end=stop, words=(), embedded=bool(embedded))
        for start, stop, embedded in db.rows(_PASSAGES, (id_,))
    )


def unembedded(db: Database, embedder: str, limit: int) -> tuple[PassageText, ...]:
    """Warm passages that are to have a vector of this embedder and have none."""
    (number, complete), *_ = (*db.rows(_EMBEDDER, (embedder,)), (None, 0))
    found: list[PassageText] = []
    texts: dict[int, tuple[SegmentId, str] | None] = {}
    while len(found) < limit:  # what cannot be read must not stand in the way of the rest
        wanted = limit - len(found)
        rows = db.rows(WAITING, (complete, number, wanted))
        for _, segment, ordinal, start, stop in rows:
            if segment not in texts:
                texts = {segment: _text(db, segment)}
            held = texts[segment]
            if held is not None:
                id_, text = held
                found.append(
                    PassageText(
                        segment=id_, ordinal=ordinal, text=text[start:stop], start=start, end=stop
                    )
                )
        if len(rows) < wanted:
            break
        complete = rows[-1][0]
    return tuple(found)


def _text(db: Database, sequence: int) -> tuple[SegmentId, str] | None:
    """A segment's id and text; None when they cannot be read."""
    held = readable(db.rows(_TEXT, (sequence,)), lambda row: (SegmentId(row[0]), text_of(row[1])))
    return held[0] if held else None


def vectors(
    db: Database,
    matrices: Matrices,
    embedder: str,
    *,
    after: tuple[SegmentId, int] | None,
    limit: int,
) -> tuple[Vector, ...]:
    """Vectors as they were written, by segment and ordinal."""
    matrix = matrices.fresh(db, embedder)
    if matrix is None:
        return ()
    places = db.rows(_VECTORS, (matrix.embedder, *(after or ("", -1)), limit))
    rows = matrix.find(np.array([place[0] for place in places], dtype=np.int64))
    return tuple(
        Vector(segment=SegmentId(id_), ordinal=ordinal, values=matrix.values[row].tobytes())
        for (_, id_, ordinal), row in zip(places, rows.tolist(), strict=True)
        if row >= 0
    )


def facts(
    db: Database,
    ids: Sequence[str] | None,
    *,
    superseded: bool,
    subjects: Collection[str] | None,
) -> tuple[Fact, ...]:
    """Facts by id in this order, or all by time and id."""
    if ids is not None:
        rows = db.rows(_SOME_FACTS, (json_list(ids),))
        found: dict[str, Fact] = {one.id: one for one in readable(rows, stored_fact)}
        wanted = (found[id_] for id_ in ids if id_ in found)
        return tuple(
            fact
            for fact in wanted
            if (superseded or fact.current) and (subjects is None or fact.subject in subjects)
        )
    if subjects is None:
        return tuple(readable(db.rows(_FACTS, (superseded,)), stored_fact))
    about = _facts_about(db, list(dict.fromkeys(subjects)), superseded=superseded)
    return tuple(sorted(about, key=lambda fact: (fact.at, fact.id)))


def _facts_about(db: Database, subjects: Sequence[str], *, superseded: bool) -> Iterator[Fact]:
    for first in range(0, len(subjects), _SUBJECTS_AT_ONCE):
        some = [pack_text(one) for one in subjects[first : first + _SUBJECTS_AT_ONCE]]
        query = _FACTS_ABOUT.format(marks=", ".join("?" * len(some)))
        yield from readable(db.rows(query, (superseded, *some)), stored_fact)
