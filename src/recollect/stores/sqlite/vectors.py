"""Vectors in blocks: many in one row, so that loading them is one copy a block.

Owns `embedder`, `vector_block` and `vector_at`. A block is never changed: what takes a vector
out, or joins small blocks, writes a new one under a new number, so a number names its content
and caches need no more than the numbers. Always holds: `vector_at` names exactly the passages
that stand in the blocks of an embedder; no warm passage up to its `complete_to` waits for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from recollect.errors import StoreError
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.packing import json_list
from recollect.values.fact import FactVectorSet
from recollect.values.segment import Vector, VectorSet

Numbers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

# A block this large loads at the speed of memory; joining writes each vector twice in its life.
_BLOCK_BYTES: Final = 512 << 10
_SMALL_SHARE: Final = 16
_JOIN_FROM: Final = 16
FLOAT_BYTES: Final = 4
_NOBODY: Final = -1
# What float32 makes of a vector of length one; others are scaled when they are compared.
_UNIT_MARGIN: Final = 2e-6

_EMBEDDER: Final = "SELECT number, dimensions FROM embedder WHERE name = ?"
_ADD_EMBEDDER: Final = "INSERT INTO embedder (name, dimensions) VALUES (?, ?)"
_PASSAGES: Final = """
SELECT g.id, p.ordinal, p.id, p.start, p.stop
FROM segment AS g JOIN passage AS p ON p.segment = g.sequence
WHERE g.id IN (SELECT value FROM json_each(?))
"""
_HELD: Final = """
SELECT passage FROM vector_at
WHERE embedder = ? AND passage IN (SELECT value FROM json_each(?))
"""
_PUT_AT: Final = "INSERT INTO vector_at (embedder, passage) VALUES (?, ?)"
_DROP_AT: Final = """
DELETE FROM vector_at WHERE embedder = ? AND passage IN (SELECT value FROM json_each(?))
"""
_NEXT_BLOCK: Final = """
UPDATE embedder SET next_block = next_block + 1, change = change + 1 WHERE number = ?
RETURNING next_block - 1
"""
_PUT_BLOCK: Final = """
INSERT INTO vector_block (embedder, number, count, unit, passages, numbers)
VALUES (?, ?, ?, ?, ?, ?)
"""
_DROP_BLOCK: Final = "DELETE FROM vector_block WHERE embedder = ? AND number = ?"
_CHANGED: Final = "UPDATE embedder SET change = change + 1 WHERE number = ?"
_SIZES: Final = "SELECT number, count FROM vector_block WHERE embedder = ? ORDER BY number"
_MEMBERS: Final = "SELECT number, passages FROM vector_block WHERE embedder = ?"
_BLOCK: Final = """
SELECT unit, passages, numbers FROM vector_block WHERE embedder = ? AND number = ?
"""


WAITING: Final = """
SELECT p.id, p.segment, p.ordinal, p.start, p.stop
FROM passage AS p CROSS JOIN segment AS g ON g.sequence = p.segment
WHERE p.id > ?1 AND p.embedded AND NOT g.cold AND NOT EXISTS (
  SELECT 1 FROM vector_at AS v WHERE v.embedder = ?2 AND v.passage = p.id
)
ORDER BY p.id LIMIT ?3
"""
"""Warm passages beyond a number that are to have a vector of an embedder and have none."""


def write_vectors(db: Database, vectors: VectorSet) -> None:
    """Keep the vectors of passages that are stored and have none of this embedder yet."""
    if not vectors.vectors:
        return
    embedder = embedder_number(db, vectors)
    new = _new_vectors(db, embedder, vectors.vectors)
    if not new:
        return
    size = FLOAT_BYTES * vectors.dimensions
    if any(len(values) != size for values in new.values()):
        raise StoreError(f"a vector of {vectors.embedder} has not {vectors.dimensions} dimensions")
    passages = np.fromiter(sorted(new), dtype="<i8", count=len(new))
    joined = b"".join([new[passage] for passage in passages.tolist()])
    numbers = np.frombuffer(joined, dtype="<f4").reshape(-1, vectors.dimensions)
    _put_blocks(db, embedder, passages, numbers)
    db.run_many(_PUT_AT, [(embedder, passage) for passage in passages.tolist()])
    _join_small(db, embedder, vectors.dimensions)
    _advance(db, embedder)


def _advance(db: Database, embedder: int) -> None:
    """Note up to which passage none waits for its vector, so that nobody looks there again."""
    complete = db.value("SELECT complete_to FROM embedder WHERE number = ?", (embedder,))
    first = db.value(WAITING, (complete, embedder, 1))
    last = first if first is not None else db.value("SELECT max(id) + 1 FROM passage")
    if last - 1 > complete:
        db.run("UPDATE embedder SET complete_to = ? WHERE number = ?", (last - 1, embedder))


def look_again(db: Database, passages: Iterable[int]) -> None:
    """Passages came back to the warm index: those without a vector wait for it again."""
    first = min(passages, default=None)
    if first is not None:
        db.run("UPDATE embedder SET complete_to = min(complete_to, ?)", (first - 1,))


def embedder_number(db: Database, vectors: VectorSet | FactVectorSet) -> int:
    """The number of a set's embedder, which is noted where it is new."""
    found = db.rows(_EMBEDDER, (vectors.embedder,))
    if not found:
        db.run(_ADD_EMBEDDER, (vectors.embedder, vectors.dimensions))
        return db.last_number()
    number, dimensions = found[0]
    if dimensions != vectors.dimensions:
        raise StoreError(
            f"{vectors.embedder} has {dimensions} dimensions here, not {vectors.dimensions}: "
            "give the other model another name"
        )
    return int(number)


def _new_vectors(db: Database, embedder: int, vectors: Sequence[Vector]) -> dict[int, bytes]:
    segments = json_list({vector.segment for vector in vectors})
    known = {row[:2]: row[2:] for row in db.rows(_PASSAGES, (segments,))}
    new: dict[int, bytes] = {}
    for vector in vectors:
        held = known.get((vector.segment, vector.ordinal))
        if held is not None and vector.span in (None, held[1:]):
            new.setdefault(held[0], vector.values)
    for (passage,) in db.rows(_HELD, (embedder, json_list(new))):
        del new[passage]
    return new


def _block_vectors(dimensions: int) -> int:
    return max(1, _BLOCK_BYTES // (FLOAT_BYTES * dimensions))


def _put_blocks(db: Database, embedder: int, passages: Numbers, numbers: Floats) -> None:
    most = _block_vectors(numbers.shape[1])
    for start in range(0, len(passages), most):
        some, values = passages[start : start + most], numbers[start : start + most]
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
        unit = bool(np.all(np.abs(lengths - 1.0) < _UNIT_MARGIN))
        block = db.value(_NEXT_BLOCK, (embedder,))
        row = (embedder, block, len(some), unit, some.tobytes(), values.tobytes())
        db.run(_PUT_BLOCK, row)


def _join_small(db: Database, embedder: int, dimensions: int) -> None:
    """Join blocks of a kind once there are many: small ones, then those of middle size."""
    full = _block_vectors(dimensions)
    for least, most in ((1, full // _SMALL_SHARE), (full // _SMALL_SHARE, full)):
        sizes = db.rows(_SIZES, (embedder,))
        small = [block for block, count in sizes if least <= count < most]
        if len(small) < _JOIN_FROM:
            continue
        held = [read_block(db, embedder, block, dimensions) for block in small]
        for block in small:
            db.run(_DROP_BLOCK, (embedder, block))
        passages = np.concatenate([passages for _, passages, _ in held])
        _put_blocks(db, embedder, passages, np.concatenate([values for _, _, values in held]))


def read_block(
    db: Database, embedder: int, block: int, dimensions: int
) -> tuple[bool, Numbers, Floats]:
    """Whether all of a block have length one, its passages, and its vectors."""
    unit, passages, numbers = db.row(_BLOCK, (embedder, block))
    held = np.frombuffer(passages, dtype="<i8")
    return bool(unit), held, np.frombuffer(numbers, dtype="<f4").reshape(len(held), dimensions)


def remove_vectors(db: Database, passages: Iterable[int]) -> int:
    """Take the vectors of these passages out, of every embedder; returns how many."""
    return renumber_vectors(db, dict.fromkeys(passages))


def renumber_vectors(db: Database, numbers: Mapping[int, int | None]) -> int:
    """Give the vectors of passages to other passages, or to none; returns how many went."""
    if not numbers:
        return 0
    old = np.fromiter(sorted(numbers), dtype="<i8", count=len(numbers))
    new = np.array([numbers[one] or _NOBODY for one in old.tolist()], dtype="<i8")
    removed = 0
    for embedder, dimensions in db.rows("SELECT number, dimensions FROM embedder"):
        changed = False
        for block, held in db.rows(_MEMBERS, (embedder,)):
            members = np.frombuffer(held, dtype="<i8")
            at = np.minimum(np.searchsorted(old, members), len(old) - 1)
            touched = old[at] == members
            if not touched.any():
                continue
            members = np.where(touched, new[at], members)
            stays = members != _NOBODY
            _, _, values = read_block(db, embedder, block, dimensions)
            db.run(_DROP_BLOCK, (embedder, block))
            _put_blocks(db, embedder, members[stays], values[stays])
            db.run_many(_PUT_AT, [(embedder, one) for one in members[touched & stays].tolist()])
            removed += int(len(members) - stays.sum())
            changed = True
        if changed:
            db.run(_DROP_AT, (embedder, json_list(old.tolist())))
            db.run(_CHANGED, (embedder,))
    return removed
