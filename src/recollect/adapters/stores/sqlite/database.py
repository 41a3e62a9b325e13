"""A SQLite connection for the other modules, and the thread in which its blocking calls run.

apsw runs statements lazily. A call of this module ends its statement before it returns, so that no
statement keeps a snapshot open by accident. A store has one lane for writes and others for reads,
so a long read never delays a write. SQLite never runs on the event loop. Each operation is one
transaction, and completes even if its caller is cancelled. Rows with undecodable text are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw

from recollect.adapters.stores.sqlite.connection import (
    BUSY,
    UNSTORABLE,
    BusyWait,
    SpaceFile,
    connect,
    file_number,
    store_errors,
)
from recollect.errors import BatchRefused, StoreError, StoreReplaced
from recollect.system.forks import FORKED, OwnProcess, leave_to_parent

Row: TypeAlias = tuple[Any, ...]


class Database:
    """A connection that only one thread uses."""

    __slots__ = ("connection", "unreadable_rows")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection: apsw.Connection = connection
        self.unreadable_rows: int = 0

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self.connection.executemany(statement, rows).fetchall()
        except UNSTORABLE as error:
            raise _refusal(error) from None

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._execute(query, values)
        try:
            rows: list[Row] = cursor.fetchall()
        except UnicodeDecodeError:
            if not cursor.is_readonly:
                raise
            return self._decodable_rows(query, values)
        return rows

    def _execute(self, statement: str, values: Sequence[Any]) -> apsw.Cursor:
        try:
            return self.connection.execute(statement, values)
        except UNSTORABLE as error:
            raise _refusal(error) from None

    def _decodable_rows(self, query: str, values: Sequence[Any]) -> list[Row]:
        rows: list[Row] = []
        cursor = self.connection.execute(query, values)
        while True:
            try:
                rows.append(next(cursor))
            except UnicodeDecodeError:
                self.unreadable_rows += 1
            except StopIteration:
                return rows

    def row(self, query: str, values: Sequence[Any] = ()) -> Row:
        return self.rows(query, values)[0]

    def value(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Return the first value of the first row; None if there is no row."""
        rows = self.rows(query, values)
        return rows[0][0] if rows else None

    def count_changes(self) -> int:
        return self.connection.changes()

    def last_number(self) -> int:
        return self.connection.last_insert_rowid()


def _refusal(error: Exception) -> BatchRefused:
    # Leave out the original error, which may contain the value.
    return BatchRefused(
        f"the batch cannot be stored: a value has the wrong type ({type(error).__name__})"
    )


T = TypeVar("T")
Work = Callable[[Database], T]

# If the transactions of readers always overlap, SQLite cannot restart its log. Above this size of
# the log, the writer waits for the readers.
_LOG_MAX_BYTES = 64 << 20
_LOG_LOOK_EVERY = 64
_LOG_PATIENCE_SECONDS = 0.5
_CLOSED = "this store is closed: open it again"


class Lane:
    """A thread, and the connection that only this thread uses. The first operation starts the
    thread and opens the connection."""

    def __init__(self, file: SpaceFile, *, name: str) -> None:
        self._file = file
        self._patience = BusyWait(file.busy_seconds)
        self._database: Database | None = None
        self._opened_file = file.number
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"recollect-{name}")
        self._closed = False
        self._process = OwnProcess()
        self._writes = 0

    async def run(self, work: Work[T]) -> T:
        return await self._run_in_thread(self._run, work)

    async def read(self, work: Work[T]) -> T:
        return await self._run_in_thread(self._read, work)

    async def read_separately(self, work: Work[T]) -> T:
        """Run the work on a separate connection in one snapshot, for long reads."""
        if self._closed:
            raise StoreError(_CLOSED)
        separate_lane = Lane(self._file, name="apart")
        try:
            result = await separate_lane.read(work)
        except BaseException:
            separate_lane.abandon()
            raise
        await separate_lane.close()
        return result

    async def write(self, work: Work[T]) -> T:
        return await self._run_in_thread(self._write, work)

    async def run_after(self, work: Work[T], then: Callable[[Database, T], T]) -> T:
        def write_and_follow(_: Database) -> T:
            return then(self._connect(), self._write(work))

        return await self._run_in_thread(self._run, write_and_follow)

    async def close(self) -> None:
        """End thread and connection after operations that run, but wait for no locks."""
        if self._closed or self._process.is_other:
            return
        self._closed = True
        self._patience.end()
        self._executor.submit(self._disconnect)
        await asyncio.to_thread(self._executor.shutdown, wait=True)

    def abandon(self) -> None:
        self._closed = True
        self._patience.end()
        self._executor.submit(self._disconnect)
        self._executor.shutdown(wait=False)

    async def _run_in_thread(self, runner: Callable[[Work[T]], T], work: Work[T]) -> T:
        if self._process.is_other:
            leave_to_parent(self._database)
            raise StoreError(FORKED)
        if self._closed:
            raise StoreError(_CLOSED)
        return await asyncio.get_running_loop().run_in_executor(self._executor, runner, work)

    def _connect(self) -> Database:
        try:
            self._require_same_file()
        except StoreReplaced:
            self._disconnect()
            raise
        if self._database is None:
            # Read the number before connecting, because the file may be replaced meanwhile.
            number = file_number(self._file.path)
            self._database = Database(connect(self._file, self._patience))
            self._opened_file = number or file_number(self._file.path)
        self._patience.renew()
        return self._database

    def _require_same_file(self) -> None:
        if self._opened_file not in (None, file_number(self._file.path)):
            raise StoreReplaced(
                f"{self._file.path} was removed or replaced while it was open: everything written "
                "to the old file is lost"
            )

    def _disconnect(self) -> None:
        with store_errors(self._file.path):
            if self._database is not None:
                self._patience.renew()
                if file_number(self._file.path) != self._opened_file:
                    # SQLite would remove its log by name, but that log now belongs to the new file.
                    self._database.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                self._database.connection.close(True)
                self._database = None

    def _run(self, work: Work[T]) -> T:
        with store_errors(self._file.path):
            return work(self._connect())

    def _read(self, work: Work[T]) -> T:
        with store_errors(self._file.path):
            return self._transaction("BEGIN", work)

    def _write(self, work: Work[T]) -> T:
        with store_errors(self._file.path):
            result = self._transaction("BEGIN IMMEDIATE", work)
            self._keep_log_short()
            return result

    def _transaction(self, begin: str, work: Work[T]) -> T:
        database = self._connect()
        while True:
            try:
                database.run(begin)
                self._require_same_file()  # the file may be replaced during this wait for the lock
                result = work(database)
                database.run("COMMIT")
            except BaseException as error:
                if database.connection.in_transaction:
                    database.run("ROLLBACK")
                # SQLite does not call the busy handler if waiting could cause a deadlock.
                if isinstance(error, BUSY) and self._patience.wait():
                    continue
                raise
            return result

    def _keep_log_short(self) -> None:
        self._writes += 1
        if self._writes % _LOG_LOOK_EVERY:
            return
        log = Path(f"{self._file.path}-wal")
        if log.exists() and log.stat().st_size > _LOG_MAX_BYTES:
            database = self._connect()
            self._patience.renew(_LOG_PATIENCE_SECONDS)
            checkpoint(database, "RESTART")


def checkpoint(database: Database, mode: str) -> bool:
    try:
        busy: int = database.value(f"PRAGMA wal_checkpoint({mode})")
    except BUSY:
        return False
    return not busy
