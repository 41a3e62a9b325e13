"""A connection as the other modules use it: rows as lists, never a half-read cursor.

apsw runs statements lazily, as their rows are asked for; here every statement has ended when
its call returns, so none holds a snapshot open by accident. A row with a text that cannot be
decoded is left out of what is read, counted, and hides no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import apsw

from recollect.errors import BatchRefused
from recollect.stores.sqlite.trouble import UNSTORABLE

Row: TypeAlias = tuple[Any, ...]


class Database:
    """A connection that belongs to one thread."""

    __slots__ = ("connection", "unreadable_rows")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.unreadable_rows = 0

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run a statement to its end, whatever it returns."""
        self._begun(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        try:
            self.connection.executemany(statement, rows).fetchall()
        except UNSTORABLE as error:
            raise _refused(error) from None

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        """All rows."""
        cursor = self._begun(query, values)
        try:
            found: list[Row] = cursor.fetchall()
        except UnicodeDecodeError:
            if not cursor.is_readonly:
                raise
            return self._readable_rows(query, values)
        return found

    def _begun(self, statement: str, values: Sequence[Any]) -> apsw.Cursor:
        try:
            return self.connection.execute(statement, values)
        except UNSTORABLE as error:
            raise _refused(error) from None

    def _readable_rows(self, query: str, values: Sequence[Any]) -> list[Row]:
        found: list[Row] = []
        cursor = self.connection.execute(query, values)
        while True:
            try:
                found.append(next(cursor))
            except UnicodeDecodeError:
                self.unreadable_rows += 1
            except StopIteration:
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


def _refused(error: Exception) -> BatchRefused:
    # Without the error itself, which may carry the value.
    return BatchRefused(f"a value of what was to be written is none ({type(error).__name__})")
