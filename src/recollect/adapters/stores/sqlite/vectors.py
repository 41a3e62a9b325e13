"""Vectors: stored in blocks in the file, held as one matrix in RAM, and compared with a query's
vector.

A block is one row with many vectors, and never changes. Removing a vector or joining small blocks
writes a new block with a new number. A passage's cosine does not depend on other rows. Only one
thread uses this module's objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from recollect.adapters.stores.invariants import NO_NUMBERS, Numbers, cosines, direction_of
from recollect.adapters.stores.sqlite.columns import json_list
from recollect.adapters.stores.sqlite.database import Database
from recollect.core.values.fact import FactVectorSet
from recollect.core.values.recall import AskedVector
from recollect.core.values.segment import Vector, VectorSet
from recollect.errors import StoreError

Floats: TypeAlias = npt.NDArray[np.float32]

# Blocks of this size load as fast as memory allows. Joining writes each vector twice in total.
_BLOCK_BYTES: Final = 512 << 10
_SMALL_SHARE: Final = 16
_JOIN_FROM: Final = 16
FLOAT_BYTES: Final = 4
HALF_BYTES: Final = 2
_NO_PASSAGE: Final = -1
# Within these bounds, a vector in float32 has length one. Others are scaled when compared.
_UNIT_MARGIN: Final = 2e-6

_EMBEDDER: Final = "SELECT number, dimensions FROM embedder WHERE name = ?"
_CHANGE: Final = "SELECT change FROM embedder WHERE number = ?"
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
_BLOCK: Final = "SELECT passages, numbers FROM vector_block WHERE embedder = ? AND number = ?"

WAITING: Final = """
SELECT p.id, p.segment, p.ordinal, p.start, p.stop
FROM passage AS p
WHERE p.id > ?1 AND p.embedded AND NOT EXISTS (
  SELECT 1 FROM vector_at AS v WHERE v.embedder = ?2 AND v.passage = p.id
)
ORDER BY p.id LIMIT ?3
"""
"""Query for passages after a given number that lack a vector of an embedder."""


def write_vectors(db: Database, vectors: VectorSet) -> None:
    if not vectors.vectors:
        return
    embedder = embedder_number(db, vectors)
    new_values = _find_new_vectors(db, embedder, vectors.vectors)
    if not new_values:
        return
    size = FLOAT_BYTES * vectors.dimensions
    if any(len(values) != size for values in new_values.values()):
        raise StoreError(
            f"a vector of {vectors.embedder} does not have {vectors.dimensions} dimensions"
        )
    passages = np.fromiter(sorted(new_values), dtype="<i8", count=len(new_values))
    joined_values = b"".join([new_values[passage] for passage in passages.tolist()])
    numbers = np.frombuffer(joined_values, dtype="<f4").reshape(-1, vectors.dimensions)
    _put_blocks(db, embedder, passages, numbers)
    db.run_many(_PUT_AT, [(embedder, passage) for passage in passages.tolist()])
    _join_small(db, embedder, vectors.dimensions)
    _advance(db, embedder)


def _advance(db: Database, embedder: int) -> None:
    complete = db.value("SELECT complete_to FROM embedder WHERE number = ?", (embedder,))
    first = db.value(WAITING, (complete, embedder, 1))
    last = first if first is not None else db.value("SELECT max(id) + 1 FROM passage")
    if last - 1 > complete:
        db.run("UPDATE embedder SET complete_to = ? WHERE number = ?", (last - 1, embedder))


def embedder_number(db: Database, vectors: VectorSet | FactVectorSet) -> int:
    rows = db.rows(_EMBEDDER, (vectors.embedder,))
    if not rows:
        db.run(_ADD_EMBEDDER, (vectors.embedder, vectors.dimensions))
        return db.last_number()
    number, dimensions = rows[0]
    if dimensions != vectors.dimensions:
        raise StoreError(
            f"{vectors.embedder} has {dimensions} dimensions in this store, not "
            f"{vectors.dimensions}: give the other model another name"
        )
    return int(number)


def _find_new_vectors(db: Database, embedder: int, vectors: Sequence[Vector]) -> dict[int, bytes]:
    segments = json_list({vector.segment for vector in vectors})
    passage_rows = {row[:2]: row[2:] for row in db.rows(_PASSAGES, (segments,))}
    new_values: dict[int, bytes] = {}
    for vector in vectors:
        stored_row = passage_rows.get((vector.segment, vector.ordinal))
        if stored_row is not None and vector.span in (None, stored_row[1:]):
            new_values.setdefault(stored_row[0], vector.values)
    for (passage,) in db.rows(_HELD, (embedder, json_list(new_values))):
        del new_values[passage]
    return new_values


def _vectors_per_block(dimensions: int) -> int:
    return max(1, _BLOCK_BYTES // (FLOAT_BYTES * dimensions))


def _put_blocks(db: Database, embedder: int, passages: Numbers, numbers: Floats) -> None:
    block_size = _vectors_per_block(numbers.shape[1])
    for start in range(0, len(passages), block_size):
        members, values = passages[start : start + block_size], numbers[start : start + block_size]
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
        unit = bool(np.all(np.abs(lengths - 1.0) < _UNIT_MARGIN))
        block = db.value(_NEXT_BLOCK, (embedder,))
        row = (embedder, block, len(members), unit, members.tobytes(), _pack(values))
        db.run(_PUT_BLOCK, row)


def _join_small(db: Database, embedder: int, dimensions: int) -> None:
    full = _vectors_per_block(dimensions)
    for min_count, max_count in ((1, full // _SMALL_SHARE), (full // _SMALL_SHARE, full)):
        sizes = db.rows(_SIZES, (embedder,))
        small = [block for block, count in sizes if min_count <= count < max_count]
        if len(small) < _JOIN_FROM:
            continue
        blocks = [_read_block(db, embedder, block, dimensions) for block in small]
        for block in small:
            db.run(_DROP_BLOCK, (embedder, block))
        _put_blocks(db, embedder, *map(np.concatenate, zip(*blocks, strict=True)))


def _read_block(db: Database, embedder: int, block: int, dimensions: int) -> tuple[Numbers, Floats]:
    packed_passages, numbers = db.row(_BLOCK, (embedder, block))
    passages = np.frombuffer(packed_passages, dtype="<i8")
    return passages, _unpack(numbers, len(passages), dimensions)


def _pack(values: Floats) -> bytes:
    """Encode vectors in 16 bits per number if that is exact (for rounded vectors), else in 32."""
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    return halves.tobytes() if np.array_equal(halves.astype("<f4"), values) else values.tobytes()


def _unpack(numbers: bytes, count: int, dimensions: int) -> Floats:
    kind = "<f2" if len(numbers) == HALF_BYTES * count * dimensions else "<f4"
    return np.frombuffer(numbers, dtype=kind).reshape(count, dimensions).astype("<f4", copy=False)


def remove_vectors(db: Database, passages: Iterable[int]) -> int:
    return renumber_vectors(db, dict.fromkeys(passages))


def renumber_vectors(db: Database, numbers: Mapping[int, int | None]) -> int:
    """Assign passages' vectors to other passages, or drop them. Return the number dropped."""
    if not numbers:
        return 0
    old_numbers = np.fromiter(sorted(numbers), dtype="<i8", count=len(numbers))
    new_numbers = np.array(
        [numbers[row] or _NO_PASSAGE for row in old_numbers.tolist()], dtype="<i8"
    )
    removed = 0
    for embedder, dimensions in db.rows("SELECT number, dimensions FROM embedder"):
        changed = False
        for block, stored_row in db.rows(_MEMBERS, (embedder,)):
            members = np.frombuffer(stored_row, dtype="<i8")
            indexes = np.minimum(np.searchsorted(old_numbers, members), len(old_numbers) - 1)
            is_touched = old_numbers[indexes] == members
            if not is_touched.any():
                continue
            members = np.where(is_touched, new_numbers[indexes], members)
            remain = members != _NO_PASSAGE
            _, values = _read_block(db, embedder, block, dimensions)
            db.run(_DROP_BLOCK, (embedder, block))
            _put_blocks(db, embedder, members[remain], values[remain])
            db.run_many(_PUT_AT, [(embedder, row) for row in members[is_touched & remain].tolist()])
            removed += int(len(members) - remain.sum())
            changed = True
        if changed:
            db.run(_DROP_AT, (embedder, json_list(old_numbers.tolist())))
            db.run(_CHANGED, (embedder,))
    return removed


_LOAD: Final = """
SELECT number, count, unit, passages, numbers FROM vector_block
WHERE embedder = ? AND number >= ? ORDER BY number
"""
_SPARE_SHARE: Final = 0.25
"""Share of spare rows in a matrix, so that adding a turn's few vectors does not copy all others."""


@dataclass(slots=True, eq=False)
class Matrix:
    """Vectors, one per row, with the passage of each."""

    embedder: int
    dimensions: int
    change: Any = None
    """The version of the stored vectors in this matrix; None before the first load."""
    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First row and number of rows of each block."""
    rows: int = 0
    _values: Floats = field(default_factory=lambda: np.empty((0, 0), dtype="<f4"))
    _passages: Numbers = field(default_factory=lambda: np.empty(0, dtype="<i8"))
    _scales: Floats = field(default_factory=lambda: np.empty(0, dtype="<f4"))
    scaled: bool = False
    """True if a vector's length is not one, so that `scales` must multiply similarities."""
    _sorted_passages: tuple[Numbers, npt.NDArray[np.intp]] | None = None

    @property
    def values(self) -> Floats:
        return self._values[: self.rows]

    @property
    def passages(self) -> Numbers:
        return self._passages[: self.rows]

    @property
    def scales(self) -> Floats:
        return self._scales[: self.rows]

    def find(self, passages: Numbers) -> npt.NDArray[np.intp]:
        """Return the rows of these passages; -1 for a passage without a vector."""
        if not self.rows:
            return np.full(len(passages), -1, dtype=np.intp)
        if self._sorted_passages is None:
            order = np.argsort(self.passages, kind="stable")
            self._sorted_passages = self.passages[order], order
        numbers, order = self._sorted_passages
        indexes = np.minimum(np.searchsorted(numbers, passages), self.rows - 1)
        return np.where(numbers[indexes] == passages, order[indexes], -1)

    def reserve_rows(self, rows: int) -> None:
        if rows <= len(self._passages):
            return
        spare = 0 if not self.rows else int(rows * _SPARE_SHARE)
        values = np.empty((rows + spare, self.dimensions), dtype="<f4")
        passages = np.empty(rows + spare, dtype="<i8")
        scales = np.empty(rows + spare, dtype="<f4")
        if self.rows:
            values[: self.rows], passages[: self.rows] = self.values, self.passages
            scales[: self.rows] = self.scales
        self._values, self._passages, self._scales = values, passages, scales

    def append(self, block: int, *, unit: bool, passages: bytes, numbers: bytes) -> None:
        members = np.frombuffer(passages, dtype="<i8")
        start, stop = self.rows, self.rows + len(members)
        values = _unpack(numbers, len(members), self.dimensions)
        self._values[start:stop] = values
        self._passages[start:stop] = members
        self._scales[start:stop] = 1.0 if unit else _scales_of(values)
        self.scaled = self.scaled or not unit
        self.blocks[block] = start, len(members)
        self.rows = stop
        self._sorted_passages = None

    def keep(self, blocks: set[int]) -> None:
        spans = [span for block, span in self.blocks.items() if block in blocks]
        rows = [row for start, count in spans for row in range(start, start + count)]
        for column in (self._values, self._passages, self._scales):
            column[: len(rows)] = column[rows]
        starts = accumulate((count for _, count in spans), initial=0)
        remaining = (block for block in self.blocks if block in blocks)
        self.blocks = {
            block: (start, count)
            for block, start, (_, count) in zip(remaining, starts, spans, strict=False)
        }
        self.rows = len(rows)
        self._sorted_passages = None


class Matrices:
    """The matrices of a space, by embedder. `change` is a query for the version of an embedder's
    stored vectors; `load` updates a matrix to that version."""

    def __init__(
        self, change: str = _CHANGE, load: Callable[[Database, Matrix], None] | None = None
    ) -> None:
        self._change = change
        self._load = load or _load_blocks
        self._matrices: dict[str, Matrix] = {}

    def load_matrix(self, db: Database, embedder: str) -> Matrix | None:
        rows = db.rows(_EMBEDDER, (embedder,))
        if not rows:
            return None
        number, dimensions = rows[0]
        matrix = self._matrices.get(embedder)
        if matrix is None or matrix.dimensions != dimensions:
            matrix = self._matrices[embedder] = Matrix(number, dimensions)
        change = db.value(self._change, (number,))
        if matrix.change is None or matrix.change != change:
            matrix.change = None  # if loading fails midway, the next call loads again
            self._load(db, matrix)
            matrix.change = change
        return matrix


def parse_numbers(number_text: str | int | None) -> Numbers:
    if number_text is None:
        return NO_NUMBERS
    return np.fromstring(str(number_text), dtype=np.int64, sep=",")


def _load_blocks(db: Database, matrix: Matrix) -> None:
    sizes: dict[int, int] = dict(db.rows(_SIZES, (matrix.embedder,)))
    if not matrix.blocks.keys() <= sizes.keys():
        matrix.keep(set(sizes))
    missing = [block for block in sizes if block not in matrix.blocks]
    if not missing:
        return
    matrix.reserve_rows(matrix.rows + sum(sizes[block] for block in missing))
    for block, _, unit, passages, numbers in db.rows(_LOAD, (matrix.embedder, missing[0])):
        if block not in matrix.blocks:
            matrix.append(block, unit=bool(unit), passages=passages, numbers=numbers)


def _scales_of(values: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
    usable = np.isfinite(lengths) & (lengths > np.finfo(np.float32).tiny)
    scales: Floats = np.zeros(len(values), dtype="<f4")
    np.divide(1.0, lengths, out=scales, where=usable, casting="same_kind")
    return scales


# Sums of a few thousand float32 products are exact within this. Values closer than this at the last
# place are compared again in float64.
_TIE_MARGIN: Final = 1e-5

Similarities = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSearch:
    """A query's vector, and the matrix to compare it with."""

    matrix: Matrix
    direction: Similarities
    """The query's vector, scaled to length one."""

    def exact_cosines(self, rows: Rows) -> Similarities:
        return cosines(self.matrix.values[rows], self.direction)

    def cosines(self, passages: Numbers) -> list[float | None]:
        rows = self.matrix.find(passages)
        present = np.flatnonzero(rows >= 0)
        if len(present) == len(rows):
            values: list[float | None] = self.exact_cosines(rows).tolist()
            return values
        values = [None] * len(rows)
        for index, cosine in zip(
            present.tolist(), self.exact_cosines(rows[present]).tolist(), strict=True
        ):
            values[index] = cosine
        return values

    def find_nearest(
        self, limit: int, *, allowed_numbers: Numbers | None, left_out: Numbers
    ) -> tuple[Numbers, Similarities]:
        """Return the passages that may be among the nearest `limit`, each with its cosine."""
        matrix = self.matrix
        # Do not use `@`: it starts BLAS's threads, which wait for each other on a busy machine (15
        # ms instead of 0.2 for 2,000 rows), and rounds a row depending on its position.
        similarities = np.vecdot(matrix.values, self.direction.astype(np.float32))
        if matrix.scaled:
            similarities = np.where(matrix.scales > 0, similarities * matrix.scales, np.float32(0))
        rows = _find_eligible(matrix, allowed_numbers, left_out)
        if rows is None:
            rows = np.arange(matrix.rows)
        else:
            similarities = similarities[rows]
        if len(rows) > limit:
            last = np.partition(similarities, len(rows) - limit)[len(rows) - limit]
            rows = rows[similarities >= last - _TIE_MARGIN]
        return matrix.passages[rows], self.exact_cosines(rows)


def _find_eligible(
    matrix: Matrix, allowed_numbers: Numbers | None, left_out: Numbers
) -> Rows | None:
    if allowed_numbers is None and not len(left_out):
        return None
    eligible = np.full(matrix.rows, allowed_numbers is None)
    if allowed_numbers is not None:
        eligible[_rows_of(matrix, allowed_numbers)] = True
    if len(left_out):
        eligible[_rows_of(matrix, left_out)] = False
    return np.flatnonzero(eligible)


def _rows_of(matrix: Matrix, passages: Numbers) -> Rows:
    rows = matrix.find(passages)
    return rows[rows >= 0]


def prepare_searches(
    db: Database, matrices: Matrices, vectors: Sequence[AskedVector]
) -> list[VectorSearch | None]:
    """Pair each vector with its matrix; None if the matrix has no vectors."""
    return [_search_of(db, matrices, vector) for vector in vectors]


def _search_of(db: Database, matrices: Matrices, vector: AskedVector) -> VectorSearch | None:
    matrix = matrices.load_matrix(db, vector.embedder)
    if matrix is None or not matrix.rows:
        return None
    if len(vector.values) != FLOAT_BYTES * matrix.dimensions:
        raise StoreError(
            f"{vector.embedder} has {matrix.dimensions} dimensions in this store, not "
            f"{len(vector.values) // FLOAT_BYTES}: use the model that wrote the vectors, or give "
            "the other model another name"
        )
    direction = direction_of(vector.values)
    return None if direction is None else VectorSearch(matrix=matrix, direction=direction)
