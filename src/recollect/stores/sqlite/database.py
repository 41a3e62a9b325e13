"""A connection as the other modules use it: rows as lists, never a half-read cursor.

apsw runs statements lazily, as their rows are asked for; here every statement has ended when
its call returns, so none holds a snapshot open by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import apsw

Row: TypeAlias = tuple[Any, ...]


class Database:
    """A connection that belongs to one thread."""

    __slots__ = ("connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run a statement to its end, whatever it returns."""
        self.connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        self.connection.executemany(statement, rows).fetchall()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        """All rows."""
        found: list[Row] = self.connection.execute(query, values).fetchall()
        return found

    def row(self, query: str, values: Sequence[Any] = ()) -> Row:
        """The one row that must be there."""
        return self.rows(query, values)[0]

    def value(self, query: str, values: Sequence[Any] = ()) -> Any:
        """The first value of the first row; None without one."""
        found = self.rows(query, values)
        return found[0][0] if found else None

    def changed(self) -> int:
        """How many rows the last statement changed."""
        return self.connection.changes()

    def last_number(self) -> int:
        """The number of the row that was inserted last."""
        return self.connection.last_insert_rowid()
