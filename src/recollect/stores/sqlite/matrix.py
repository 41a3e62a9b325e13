"""The vectors of an embedder in memory: loaded at the first question, kept fresh after.

Owns the cache. Blocks never change (see `vectors.py`), so being fresh means to hold the blocks
that the file holds: blocks of other processes are added, the rest is not read again. Used by
one thread only. Always holds: a `Matrix` is what one snapshot of the file says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.vectors import Floats, Numbers

_EMBEDDER: Final = "SELECT number, dimensions, change FROM embedder WHERE name = ?"
_SIZES: Final = "SELECT number, count FROM vector_block WHERE embedder = ? ORDER BY number"
_LOAD: Final = """
SELECT number, count, unit, passages, numbers FROM vector_block
WHERE embedder = ? AND number >= ? ORDER BY number
"""
_COLD: Final = """
SELECT group_concat(p.id) FROM segment AS g INDEXED BY segment_cold
JOIN passage AS p ON p.segment = g.sequence WHERE g.cold
"""
_SPARE_SHARE: Final = 0.25
"""Room for what comes, so that a turn's few vectors do not copy all others."""


@dataclass(slots=True, eq=False)
class Matrix:
    """Vectors, a row each, with the passages they belong to."""

    embedder: int
    dimensions: int
    change: int = -1
    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Where each block stands: from which row on, and how many."""
    rows: int = 0
    _values: Floats = field(default_factory=lambda: np.empty((0, 0), dtype="<f4"))
    _passages: Numbers = field(default_factory=lambda: np.empty(0, dtype="<i8"))
    _scales: Floats = field(default_factory=lambda: np.empty(0, dtype="<f4"))
    scaled: bool = False
    """Some vector has not length one: similarities are to be multiplied by `scales`."""
    _sorted: tuple[Numbers, npt.NDArray[np.intp]] | None = None
    warm_rows: tuple[int, int, npt.NDArray[np.bool_]] | None = None

    @property
    def values(self) -> Floats:
        """The vectors as they were stored."""
        return self._values[: self.rows]

    @property
    def passages(self) -> Numbers:
        """Whose they are."""
        return self._passages[: self.rows]

    @property
    def scales(self) -> Floats:
        """What makes each of them one of length one."""
        return self._scales[: self.rows]

    def find(self, passages: Numbers) -> npt.NDArray[np.intp]:
        """The rows of these passages; -1 where there is no vector."""
        if not self.rows:
            return np.full(len(passages), -1, dtype=np.intp)
        if self._sorted is None:
            order = np.argsort(self.passages, kind="stable")
            self._sorted = self.passages[order], order
        numbers, order = self._sorted
        at = np.minimum(np.searchsorted(numbers, passages), self.rows - 1)
        return np.where(numbers[at] == passages, order[at], -1)

    def make_room(self, rows: int) -> None:
        """See to it that so many rows fit; those that are there stay."""
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
        """Add a block; there must be room for it."""
        held = np.frombuffer(passages, dtype="<i8")
        start, stop = self.rows, self.rows + len(held)
        values = np.frombuffer(numbers, dtype="<f4").reshape(len(held), self.dimensions)
        self._values[start:stop] = values
        self._passages[start:stop] = held
        self._scales[start:stop] = 1.0 if unit else _scales_of(values)
        self.scaled = self.scaled or not unit
        self.blocks[block] = start, len(held)
        self.rows = stop
        self._sorted = self.warm_rows = None

    def keep(self, blocks: set[int]) -> None:
        """Close the gaps of blocks that are no more."""
        start = 0
        kept: dict[int, tuple[int, int]] = {}
        for block, (at, count) in self.blocks.items():
            if block not in blocks:
                continue
            if at != start:  # rows only move up, so a copy never meets what is still to come
                for held in (self._values, self._passages, self._scales):
                    held[start : start + count] = held[at : at + count].copy()
            kept[block] = start, count
            start += count
        self.blocks, self.rows = kept, start
        self._sorted = self.warm_rows = None


class Matrices:
    """The matrices of a space, by embedder."""

    def __init__(self) -> None:
        self._held: dict[str, Matrix] = {}

    def fresh(self, db: Database, embedder: str) -> Matrix | None:
        """The vectors of an embedder as this snapshot has them; None when it has none."""
        found = db.rows(_EMBEDDER, (embedder,))
        if not found:
            return None
        number, dimensions, change = found[0]
        matrix = self._held.get(embedder)
        if matrix is None or matrix.dimensions != dimensions:
            matrix = self._held[embedder] = Matrix(number, dimensions)
        if matrix.change != change:
            matrix.change = -1  # should loading fail half-way, the next one looks again
            _refresh(db, matrix)
            matrix.change = change
        return matrix

    def warm(self, db: Database, matrix: Matrix, change: int) -> npt.NDArray[np.bool_]:
        """Which rows of a matrix are of warm passages; `change` counts moves to cold and back."""
        held = matrix.warm_rows
        if held is None or held[:2] != (change, matrix.rows):
            cold = number_list(db.value(_COLD))
            held = matrix.warm_rows = change, matrix.rows, ~np.isin(matrix.passages, cold)
        return held[2]


def number_list(joined: str | int | None) -> Numbers:
    """Numbers that `group_concat` joined."""
    if joined is None:
        return np.empty(0, dtype=np.int64)
    return np.fromstring(str(joined), dtype=np.int64, sep=",")


def _refresh(db: Database, matrix: Matrix) -> None:
    sizes: dict[int, int] = dict(db.rows(_SIZES, (matrix.embedder,)))
    if not matrix.blocks.keys() <= sizes.keys():
        matrix.keep(set(sizes))
    missing = [block for block in sizes if block not in matrix.blocks]
    if not missing:
        return
    matrix.make_room(matrix.rows + sum(sizes[block] for block in missing))
    for block, _, unit, passages, numbers in db.rows(_LOAD, (matrix.embedder, missing[0])):
        if block not in matrix.blocks:
            matrix.append(block, unit=bool(unit), passages=passages, numbers=numbers)


def _scales_of(values: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
    usable = np.isfinite(lengths) & (lengths > np.finfo(np.float32).tiny)
    scales: Floats = np.zeros(len(values), dtype="<f4")
    np.divide(1.0, lengths, out=scales, where=usable, casting="same_kind")
    return scales
