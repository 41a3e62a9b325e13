"""Compares a query's vectors with those of the passages: who is near, and how near.

Looks through all vectors of an embedder in float32, and decides in float64 wherever that could
change who is chosen. Must never order for the caller. Always holds: a passage's cosine is the
same whatever passages stand beside it, and by whatever way it was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from recollect.errors import StoreError
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.matrix import Matrix
from recollect.stores.sqlite.vectors import Numbers
from recollect.values.lookup import AskedVector

# float32 sums of some thousand products are right within this; what is that near the last
# place is compared again in float64.
_NEAR: Final = 1e-5
_DECIMALS: Final = 9

Similarities = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query's vector beside the vectors it is compared with."""

    matrix: Matrix
    direction: Similarities
    """Of length one."""

    def exact(self, rows: Rows) -> Similarities:
        """The cosine of some rows."""
        values = self.matrix.values[rows].astype(np.float64)
        lengths = np.sqrt(np.vecdot(values, values))
        products = np.vecdot(values, self.direction)
        usable = np.isfinite(lengths) & (lengths > 0)
        cosines: Similarities = np.zeros(len(rows))
        np.divide(products, lengths, out=cosines, where=usable)
        return cosines.round(_DECIMALS)

    def cosines(self, passages: Numbers) -> list[float | None]:
        """The cosine of each of these passages; None where it has no vector."""
        at = self.matrix.find(passages)
        held = np.flatnonzero(at >= 0)
        if len(held) == len(at):
            found: list[float | None] = self.exact(at).tolist()
            return found
        found = [None] * len(at)
        for which, cosine in zip(held.tolist(), self.exact(at[held]).tolist(), strict=True):
            found[which] = cosine
        return found

    def near(
        self, limit: int, *, allowed: Numbers | None, left_out: Numbers, warm: Flags | None
    ) -> tuple[Numbers, Similarities]:
        """The passages that may be among the nearest so many, and the cosine of each."""
        matrix = self.matrix
        # Not `@`: that starts BLAS's threads, which wait for each other on a busy machine (15 ms
        # instead of 0.2 for 2,000 rows), and rounds a row by where it stands.
        similarities = np.vecdot(matrix.values, self.direction.astype(np.float32))
        if matrix.scaled:
            similarities = np.where(matrix.scales > 0, similarities * matrix.scales, np.float32(0))
        rows = _eligible(matrix, allowed, left_out, warm)
        if rows is None:
            rows = np.arange(matrix.rows)
        else:
            similarities = similarities[rows]
        if len(rows) > limit:
            last = np.partition(similarities, len(rows) - limit)[len(rows) - limit]
            rows = rows[similarities >= last - _NEAR]
        return matrix.passages[rows], self.exact(rows)


def _eligible(
    matrix: Matrix, allowed: Numbers | None, left_out: Numbers, warm: Flags | None
) -> Rows | None:
    """The rows that may be chosen, ascending; None for all."""
    if allowed is None and warm is None and not len(left_out):
        return None
    if allowed is None:
        eligible = np.ones(matrix.rows, dtype=np.bool_) if warm is None else warm.copy()
    else:
        eligible = np.zeros(matrix.rows, dtype=np.bool_)
        eligible[_held(matrix, allowed)] = True
        if warm is not None:
            eligible &= warm
    if len(left_out):
        eligible[_held(matrix, left_out)] = False
    return np.flatnonzero(eligible)


def _held(matrix: Matrix, passages: Numbers) -> Rows:
    rows = matrix.find(passages)
    return rows[rows >= 0]


class HeldVectors(Protocol):
    """The vectors in memory, by embedder: of passages or of facts."""

    def fresh(self, db: Database, embedder: str) -> Matrix | None:
        """The vectors of an embedder as this snapshot has them; None when it has none."""
        ...


def asked_vectors(
    db: Database, matrices: HeldVectors, vectors: Sequence[AskedVector]
) -> list[Asked | None]:
    """Each vector beside what it is compared with; None where there is nothing to compare."""
    return [_asked(db, matrices, vector) for vector in vectors]


def _asked(db: Database, matrices: HeldVectors, vector: AskedVector) -> Asked | None:
    matrix = matrices.fresh(db, vector.embedder)
    if matrix is None or not matrix.rows:
        return None
    direction = np.frombuffer(vector.values, dtype="<f4").astype(np.float64)
    if len(direction) != matrix.dimensions:
        raise StoreError(
            f"{vector.embedder} has {matrix.dimensions} dimensions here, not {len(direction)}: "
            "ask with the model that wrote its vectors, or give the other one another name"
        )
    length = float(np.sqrt(np.einsum("i,i->", direction, direction)))
    if not np.isfinite(length) or length == 0.0:
        return None
    return Asked(matrix=matrix, direction=direction / length)
