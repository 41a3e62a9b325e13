"""Finds what stands around segments: the places before and behind them in their session.

A place is a segment that is warm and indexed, and not left out by the query. Always holds: what
is said of a neighbour's passage is what `candidates` says of it (see `describe.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from recollect.stores.sqlite.database import Database, Row
from recollect.stores.sqlite.describe import COLUMNS, described
from recollect.stores.sqlite.matrix import Matrices
from recollect.stores.sqlite.nearest import asked_vectors
from recollect.stores.sqlite.packing import json_list
from recollect.stores.sqlite.recent import Recent
from recollect.values.lookup import CandidateQuery, Neighbour, Surroundings
from recollect.values.segment import SegmentId

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
_ROWS: Final = f"""
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
    *,
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
    found = db.rows(_ROWS, (json_list(sorted(places - named.keys())), passages_each))
    named.update((row[5], row[1]) for row in found)
    passages = [row for row in found if row[0] is not None]
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
    """Numbers that `group_concat` joined, ascending."""
    return [] if joined is None else sorted(map(int, joined.split(",")))


def _neighbours(walks: list[Walk], named: dict[int, str]) -> tuple[Neighbour, ...]:
    found: list[Neighbour] = []
    for of, before, behind in walks:
        for step, places in ((-1, before), (1, behind)):
            distance = 0
            for near in places:
                distance += step
                if near in named:
                    found.append(
                        Neighbour(
                            segment=SegmentId(named[near]), of=SegmentId(of), distance=distance
                        )
                    )
    return tuple(found)
