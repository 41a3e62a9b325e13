"""Vectors of facts: a row each, and in memory as the vectors of passages are.

Owns `fact_vector`. There are thousands of facts where there are hundreds of thousands of passages,
so they need no blocks. The number of a fact names its content for good, so what was loaded stays
right. Always holds: only current facts have vectors, one of an embedder at most.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from recollect.errors import StoreError
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.matrix import Matrix, number_list
from recollect.stores.sqlite.packing import json_list, text_of
from recollect.stores.sqlite.rows import readable
from recollect.stores.sqlite.vectors import FLOAT_BYTES, Numbers, embedder_number
from recollect.values.fact import FactId, FactText, FactVectorSet

_CURRENT: Final = """
SELECT id, number FROM fact WHERE current AND id IN (SELECT value FROM json_each(?))
"""
_PUT: Final = "INSERT OR IGNORE INTO fact_vector (embedder, fact, numbers) VALUES (?, ?, ?)"
_EMBEDDER: Final = "SELECT number, dimensions FROM embedder WHERE name = ?"
_MEMBERS: Final = "SELECT group_concat(fact) FROM fact_vector WHERE embedder = ?"
_LOAD: Final = """
SELECT fact, numbers FROM fact_vector
WHERE embedder = ? AND fact IN (SELECT value FROM json_each(?)) ORDER BY fact
"""
_WAITING: Final = """
SELECT id, CAST(content AS BLOB) FROM fact AS f
WHERE current AND id > ?1 AND NOT EXISTS (
  SELECT 1 FROM fact_vector AS v JOIN embedder AS e ON e.number = v.embedder
  WHERE e.name = ?2 AND v.fact = f.number
)
ORDER BY id LIMIT ?3
"""


def write_fact_vectors(db: Database, vectors: FactVectorSet) -> None:
    """Keep the vectors of current facts that have none of this embedder yet."""
    if not vectors.vectors:
        return
    embedder = embedder_number(db, vectors)
    size = FLOAT_BYTES * vectors.dimensions
    numbers: dict[str, int] = dict(
        db.rows(_CURRENT, (json_list(one.fact for one in vectors.vectors),))
    )
    new = [one for one in vectors.vectors if one.fact in numbers]
    if any(len(one.values) != size for one in new):
        raise StoreError(f"a vector of {vectors.embedder} has not {vectors.dimensions} dimensions")
    db.run_many(_PUT, [(embedder, numbers[one.fact], one.values) for one in new])


def unembedded_facts(db: Database, embedder: str, limit: int) -> tuple[FactText, ...]:
    """Current facts that have no vector of this embedder, by id."""
    found: list[FactText] = []
    last = ""
    while len(found) < limit:  # what cannot be read must not stand in the way of the rest
        wanted = limit - len(found)
        rows = db.rows(_WAITING, (last, embedder, wanted))
        found += readable(rows, lambda row: FactText(fact=FactId(row[0]), text=text_of(row[1])))
        if len(rows) < wanted:
            break
        last = rows[-1][0]
    return tuple(found)


class FactMatrices:
    """The vectors of a space's facts in memory, by embedder; used by one thread only."""

    def __init__(self) -> None:
        self._held: dict[str, Matrix] = {}

    def fresh(self, db: Database, embedder: str) -> Matrix | None:
        """The vectors of an embedder as this snapshot has them; None when it knows none."""
        found = db.rows(_EMBEDDER, (embedder,))
        if not found:
            return None
        number, dimensions = found[0]
        held = self._held.get(embedder)
        if held is None or held.dimensions != dimensions:
            held = Matrix(number, dimensions)
        members = np.sort(number_list(db.value(_MEMBERS, (number,))))
        if not np.array_equal(members, held.passages):
            held = _loaded(db, held, members)
        self._held[embedder] = held
        return held


def _loaded(db: Database, old: Matrix, members: Numbers) -> Matrix:
    """What is to be known now: what is known already, and the rest from the file."""
    rows = old.find(members)
    missing = members[rows < 0]
    loaded: dict[int, bytes] = dict(db.rows(_LOAD, (old.embedder, json_list(missing.tolist()))))
    size = FLOAT_BYTES * old.dimensions
    values = np.zeros((len(members), old.dimensions), dtype="<f4")
    known = rows >= 0
    if old.rows:
        values[known] = old.values[rows[known]]
    for at in np.flatnonzero(~known).tolist():
        numbers = loaded[int(members[at])]
        if len(numbers) == size:  # a torn one is near nothing; `check` tells of it
            values[at] = np.frombuffer(numbers, dtype="<f4")
    fresh = Matrix(old.embedder, old.dimensions)
    fresh.make_room(len(members))
    if len(members):
        fresh.append(0, unit=False, passages=members.tobytes(), numbers=values.tobytes())
    return fresh
