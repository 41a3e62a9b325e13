"""What recall asks of SQLite and numpy, written down and run again bare.

Bare are: every SQL statement that a recall issues, transactions included, with the same values on
plain connections of the same pragmas, all rows fetched and thrown away; and every product of
vectors, of the same matrices or of arrays of the same shape. Not bare, so counted against us:
whatever is made of the rows (postings read out of joined numbers, word scores, the choice of the
best, candidates), the rows of a matrix copied and widened before they are compared exactly, the
ways between threads, and all of `search` and `turn/recall`. It must never run beside a recall
that is timed: writing down has its own round. Always holds: what runs bare is what was issued
in this run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.stores.sqlite.connection import BusyWait, connect, space_file

_SHARED_ROWS: Final = 1_500
"""A product of more rows is with a whole matrix, which is kept; of fewer, only the shape is."""

Numbers = NDArray[Any]


@dataclass(slots=True, kw_only=True)
class Issued:
    """What one recall issued, in the order it did."""

    statements: list[tuple[int, str, Any]] = field(default_factory=list, repr=False)
    """On which connection, what, and with which values."""
    products: list[tuple[Numbers, Numbers]] = field(default_factory=list, repr=False)


class Recorder:
    """Writes down what recalls issue; made before the store is opened."""

    def __init__(self) -> None:
        self._connections: list[apsw.Connection] = []
        self._alike: dict[tuple[tuple[int, ...], str], Numbers] = {}

    @contextmanager
    def watching_connections(self) -> Iterator[None]:
        """Notice the connections that are opened meanwhile: those of the store's lanes."""
        notice = self._connections.append
        apsw.connection_hooks.append(notice)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(notice)

    @contextmanager
    def writing_down(self, issued: Issued) -> Iterator[None]:
        """Write down what is issued meanwhile; nothing else may run."""
        product = np.vecdot

        def noted(one: Numbers, other: Numbers) -> Any:
            issued.products.append((self._kept(one), self._kept(other)))
            return product(one, other)

        for number, connection in enumerate(self._connections):
            connection.exec_trace = self._tracer(number, issued)
        np.vecdot = noted  # type: ignore[assignment]
        try:
            yield
        finally:
            np.vecdot = product
            for connection in self._connections:
                connection.exec_trace = None

    def _tracer(self, number: int, issued: Issued) -> Any:
        def trace(_: apsw.Cursor, statement: str, values: Any) -> bool:
            issued.statements.append((number, statement, values))
            return True

        return trace

    def _kept(self, array: Numbers) -> Numbers:
        """The array itself where it is a whole matrix, else one of its shape."""
        if array.ndim == 2 and len(array) > _SHARED_ROWS:
            return array
        key = array.shape, array.dtype.str
        if key not in self._alike:
            self._alike[key] = np.ones(array.shape, array.dtype)
        return self._alike[key]

    def __len__(self) -> int:
        return len(self._connections)


class Bare:
    """Runs again what was written down, on connections of its own."""

    def __init__(self, path: Path, *, space: str, connections: int) -> None:
        file = space_file(path, space=space, key=None, create=False, busy_seconds=5.0)
        self._connections = [connect(file, BusyWait(5.0)) for _ in range(connections)]

    def run(self, issued: Issued) -> None:
        """All statements and all products, with nothing made of what they give."""
        connections = self._connections
        for number, statement, values in issued.statements:
            connections[number].execute(statement, values).fetchall()
        for one, other in issued.products:
            np.vecdot(one, other)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()
