"""The spool of a space, a small SQLite file: batches that wait until the store works again.

A record is durable when `append` returns. The records of one process are drained in order.
`rewrite` also changes records of other running processes. If the file is damaged, its readable
records are moved to a new file, and the damaged file is renamed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw

from recollect.adapters.stores.sqlite import connection
from recollect.adapters.stores.sqlite.database import Database, Lane, checkpoint
from recollect.core.values.upkeep import SpoolState
from recollect.errors import StoreCorrupt, StoreReplaced, StoreUnavailable
from recollect.system import durable
from recollect.system.durable import STEP_SECONDS, LifeLock

if TYPE_CHECKING:
    from recollect.adapters.stores.sqlite.connection import EncryptionKey

T = TypeVar("T")
LOG = logging.getLogger("recollect.spool")
_OWNER: Final = ".owner"
_DAMAGED: Final = ".damaged"
_SPARE_PAGES: Final = 256
"""A drained file is shrunk if it has more unused pages than this."""
_PAGE: Final = 64
"""Number of records read at once, which is the most that an append waits for."""
_NOTHING: Final[list[tuple[int, bytes]]] = []
# see `_CHECKPOINT_WAIT_SECONDS`
_CHECKPOINT_TRIES: Final = 50
_CHECKPOINT_WAIT_SECONDS: Final = 0.05
"""Not measured; the tries take 2.5 s, which bounds the wait for processes that read the spool."""
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS spooled (
  number INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, refused TEXT, record BLOB NOT NULL
)
"""
_ADD: Final = "INSERT INTO spooled (owner, refused, record) VALUES (?, ?, ?)"
_NEXT: Final = """
SELECT number, record FROM spooled WHERE owner = ? AND refused IS NULL AND number > ?
ORDER BY number LIMIT ?
"""
_WAITING: Final = "SELECT count(*) FROM spooled WHERE owner = ? AND refused IS NULL"
_COUNTS: Final = "SELECT count(*), count(refused) FROM spooled"
_SAME: Final = """
SELECT 1 FROM spooled WHERE refused IS NOT NULL AND length(record) = ? AND record = ?
"""
_PUT_BACK: Final = """
INSERT INTO spooled (owner, record)
SELECT ?, record FROM spooled WHERE refused IS NOT NULL ORDER BY number
"""
_OWNERS: Final = "SELECT DISTINCT owner FROM spooled WHERE refused IS NULL"
_BY_OWNER: Final = "SELECT owner, count(*) FROM spooled WHERE refused IS NULL GROUP BY owner"
_TAKE_OVER: Final = "UPDATE spooled SET owner = ? WHERE owner = ?"
_DELETE_OF_OWNER: Final = "DELETE FROM spooled WHERE owner = ? AND refused IS NULL"
_DELETE: Final = "DELETE FROM spooled WHERE number = ?"


class FileSpool:
    """The waiting records of one space (see `recollect.core.ports.Spool`)."""

    def __init__(
        self, folder: Path, *, space: str, key: bytes | None = None, maker: str = ""
    ) -> None:
        """`maker` names the secret with which this process makes ids. It stores no record of a
        process with another one, because the ids in that record are of no use."""
        self._prefix = blake2b(space.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        self._folder = folder
        self._path = folder / f"{self._prefix}{'.spool' if key is None else ''}.db"
        # a different name, so that this file is not mistaken for the space's memory
        self._file = connection.SpaceFile(
            path=self._path, space=f"spool:{space}", key=key, busy_seconds=STEP_SECONDS
        )
        self._lane = Lane(self._file, name="spool")
        self._maker = maker
        self._owner = f"{maker}-{secrets.token_hex(12)}"
        self._life: LifeLock | None = None
        self._is_created = False
        self._has_warned = False
        self._closed = False
        self._draining = asyncio.Lock()

    @classmethod
    async def open(
        cls, folder: Path, *, space: str, key: EncryptionKey | None = None, maker: str = ""
    ) -> FileSpool:
        """Open the spool of a space, whose file the first record creates. The readable records of a
        damaged file are moved to a new one. Raises WrongKey if the file has another key."""
        # deriving a key from a passphrase takes a moment
        raw = None if key is None else await asyncio.to_thread(key.raw, space)
        spool = cls(folder, space=space, key=raw, maker=maker)
        try:
            await asyncio.to_thread(replace_damaged, spool._file, _TABLE, spool._damaged_path)
        except BaseException:
            await spool.close()
            raise
        return spool

    def unreadable_files(self) -> tuple[str, ...]:
        """List the files with unreadable records, so that a person can examine them."""
        return tuple(sorted(path.name for path in self._folder.glob(f"{self._prefix}*{_DAMAGED}")))

    async def append(self, record: bytes) -> None:
        await self._insert(record, None)

    async def set_aside(self, record: bytes, *, reason: str) -> None:
        """Store durably a record that the store refused, and that is never drained again."""
        LOG.warning(
            "spool: the store refused some messages; run `recollect memory check --retry` to "
            "try again: %s",
            reason,
        )
        # after a crash, this record may be set aside a second time: insert it only once
        if not await self._ask(partial(_has_record, record=record), False):
            await self._insert(record, reason)

    async def scan(self, pick: Callable[[bytes], T | None]) -> list[T]:
        """Call `pick` on each waiting record, in order. Return the results that are not None."""
        results: list[T] = []
        last = -1
        while page := await self._ask(partial(self._read_page, after=last), _NOTHING):
            last = page[-1][0]
            picks = await asyncio.to_thread(lambda rows: [pick(row[1]) for row in rows], page)
            results += [value for value in picks if value is not None]
        return results

    async def drain(self, take: Callable[[bytes], Awaitable[object]]) -> int:
        """Pass the waiting records to `take` in order, as `ports.Spool` describes."""
        drained = 0
        async with self._draining:
            while page := await self._ask(partial(self._read_page, limit=1), _NOTHING):
                lane, (number, record) = self._lane, page[0]
                await take(record)
                self._require_open()
                if lane is self._lane:  # in another file, this number belongs to a different record
                    with contextlib.suppress(StoreReplaced):
                        await lane.write(partial(Database.run, statement=_DELETE, values=(number,)))
                drained += 1
            if drained:
                await self._ask(_shrink, None, outside_transaction=True)
        return drained

    async def rewrite(self, change: Callable[[bytes], bytes | None]) -> int:
        """Replace each record, also of other processes, by the result of `change`."""
        changed_count = await self._ask(partial(_rewrite_records, change=change), 0)
        if changed_count:
            await self._leave_no_log()
        return changed_count

    async def waiting(self) -> int:
        return await self._ask(self._count_waiting, 0)

    async def retry_refused(self) -> int:
        """Queue the refused records again, after all other records. Return how many."""
        return await self._ask(self._put_back, 0)

    async def discard_foreign(self) -> int:
        """Delete the waiting records with ids of another secret. Return how many."""
        count = await self._ask(self._delete_foreign, 0)
        if count:
            await self._leave_no_log()
        return count

    async def state(self) -> SpoolState:
        """Count the records in this space's spool, those of other processes included."""
        nothing = SpoolState(folder=str(self._folder), damaged_files=self.unreadable_files())
        return await self._ask(self._read_state, nothing)

    async def close(self) -> None:
        self._closed = True
        await self._lane.close()
        self._end_life()

    async def _insert(self, record: bytes, reason: str | None) -> None:
        values = self._owner, reason, record
        await self._ask(partial(Database.run, statement=_ADD, values=values), None, create=True)

    async def _create_file(self) -> None:
        def create() -> None:
            with connection.store_errors(self._path):
                durable.make_folder(self._folder)
            connection.require_file(self._file, create=True)

        self._require_open()
        if not self._is_created:
            await asyncio.to_thread(create)
            self._is_created = True

    async def _ask(
        self,
        work: Callable[[Database], T],
        nothing: T,
        *,
        create: bool = False,
        outside_transaction: bool = False,
        may_retry: bool = True,
    ) -> T:
        self._require_open()
        if create:
            await self._create_file()
        elif not await asyncio.to_thread(self._path.exists):
            return nothing
        lane = self._lane
        try:
            run = lane.run if outside_transaction else lane.write
            return await run(lambda database: self._with_table(database, work))
        except StoreReplaced:
            if not may_retry:
                raise
        if lane is self._lane:  # otherwise another task has drained the file
            lane.abandon()
            self._lane = Lane(self._file, name="spool")
            self._end_life()
            self._is_created = False
        return await self._ask(
            work, nothing, create=create, outside_transaction=outside_transaction, may_retry=False
        )

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the spool is closed")

    def _end_life(self) -> None:
        if self._life is not None:
            self._life.release(remove=True)
            self._life = None

    @property
    def _damaged_path(self) -> Path:
        return self._folder / f"{self._prefix}-{time.time_ns()}{_DAMAGED}"

    def _with_table(self, database: Database, work: Callable[[Database], T]) -> T:
        if self._life is None:  # lock before other processes can see a record of this one
            self._life = LifeLock.take(self._life_path(self._owner))
        database.run(_TABLE)
        return work(database)

    def _count_waiting(self, database: Database) -> int:
        self._adopt(database)
        return int(database.value(_WAITING, (self._owner,)))

    def _read_page(
        self, database: Database, after: int = -1, limit: int = _PAGE
    ) -> list[tuple[int, bytes]]:
        self._adopt(database)
        rows = database.rows(_NEXT, (self._owner, after, limit))
        return [(number, bytes(record)) for number, record in rows]

    def _put_back(self, database: Database) -> int:
        self._adopt(database)
        database.run(_PUT_BACK, (self._owner,))
        moved_count = database.count_changes()
        database.run("DELETE FROM spooled WHERE refused IS NOT NULL")
        return moved_count

    def _delete_foreign(self, database: Database) -> int:
        count = 0
        for (owner,) in database.rows(_OWNERS):
            if self._is_foreign(owner):
                database.run(_DELETE_OF_OWNER, (owner,))
                count += database.count_changes()
        return count

    def _read_state(self, database: Database) -> SpoolState:
        all_count, refused_count = database.row(_COUNTS)
        owners = database.rows(_BY_OWNER)
        return SpoolState(
            folder=str(self._folder),
            waiting=all_count - refused_count,
            foreign=sum(count for owner, count in owners if self._is_foreign(owner)),
            refused=refused_count,
            refused_files=(self._path.name,) if refused_count else (),
            damaged_files=self.unreadable_files(),
        )

    def _adopt(self, database: Database) -> None:
        for (owner,) in database.rows(_OWNERS):
            if self._is_foreign(owner):
                self._warn_of_foreign()
            if owner == self._owner or self._is_foreign(owner):
                continue
            life = LifeLock.take(self._life_path(owner))
            if life is not None:
                database.run(_TAKE_OVER, (self._owner, owner))
                life.release(remove=True)

    def _is_foreign(self, owner: str) -> bool:
        maker, marked, _ = owner.rpartition("-")  # earlier versions wrote no maker
        return bool(marked) and maker != self._maker

    def _warn_of_foreign(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            LOG.warning(
                "spool: some messages wait whose ids were made with another secret, for example "
                "while the database was down, so this process cannot store them: run `recollect "
                "doctor` to count them. Messages are stored if the client sends them again"
            )

    def _life_path(self, owner: str) -> Path:
        return self._folder / f"{self._prefix}-{owner}{_OWNER}"

    async def _leave_no_log(self) -> None:
        for _ in range(_CHECKPOINT_TRIES):
            if await self._ask(
                lambda database: checkpoint(database, "TRUNCATE"), True, outside_transaction=True
            ):
                return
            await asyncio.sleep(_CHECKPOINT_WAIT_SECONDS)
        raise StoreUnavailable("another process is still using the spool: try again later")


def _has_record(database: Database, record: bytes) -> bool:
    return bool(database.rows(_SAME, (len(record), record)))


def _rewrite_records(database: Database, change: Callable[[bytes], bytes | None]) -> int:
    changed_count = 0
    for (number,) in database.rows("SELECT number FROM spooled ORDER BY number"):
        record = bytes(database.value("SELECT record FROM spooled WHERE number = ?", (number,)))
        new_record = change(record)
        if new_record == record:
            continue
        changed_count += 1
        if new_record is None:
            database.run(_DELETE, (number,))
        else:
            database.run("UPDATE spooled SET record = ? WHERE number = ?", (new_record, number))
    return changed_count


def _shrink(database: Database) -> None:
    if database.value("PRAGMA freelist_count") > _SPARE_PAGES:
        # Another process is shrinking the file; otherwise the next drain does.
        with contextlib.suppress(*connection.BUSY):
            database.run("VACUUM")
    checkpoint(database, "TRUNCATE")


# A damaged file is replaced by one process at a time. Records keep their number and their owner.

_UNREADABLE: Final = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, UnicodeDecodeError)
_LAST: Final = (
    "SELECT seq FROM sqlite_sequence WHERE name = 'spooled'",
    "SELECT max(number) FROM spooled",
)
"""Queries for the highest record number, of which one may fail on a damaged file."""
_NEXT_READABLE: Final = """
SELECT number, owner, refused, record FROM spooled WHERE number >= ? ORDER BY number LIMIT 1
"""
_COPY: Final = "INSERT INTO spooled (number, owner, refused, record) VALUES (?, ?, ?, ?)"


def replace_damaged(file: connection.SpaceFile, table: str, damaged_path: Path) -> None:
    """Replace a damaged file and log how much was unreadable. An intact file is not changed."""
    path = file.path
    with connection.store_errors(path):
        if _is_sound(file):
            return
        with connection.lock_folder(file), contextlib.ExitStack() as exit_stack:
            if _is_sound(file):
                return  # another process replaced it meanwhile
            damaged_handle = _open_damaged(file, exit_stack)
            temporary = exit_stack.enter_context(connection.temporary_file(file))
            lost_count = _copy_records(damaged_handle, temporary, table)
            connection.empty_log(temporary)
            path.rename(damaged_path)
            log = Path(f"{path}-wal")
            if log.exists() and log.stat().st_size:
                log.rename(damaged_path.with_name(f"{damaged_path.stem}-wal{damaged_path.suffix}"))
            connection.put_in_place(temporary.path, path)
    LOG.warning(
        "spool: %s records could not be read; the damaged file is %s", lost_count, damaged_path.name
    )


def _is_sound(file: connection.SpaceFile) -> bool:
    if not file.path.exists():
        return True
    try:
        with connection.store_errors(file.path), contextlib.closing(_connect(file)) as handle:
            return bool(handle.pragma("quick_check", 1) == "ok")
    except StoreCorrupt:
        return False


def _connect(file: connection.SpaceFile, *, damaged: bool = False) -> apsw.Connection:
    return connection.connect(file, connection.BusyWait(file.busy_seconds), damaged=damaged)


def _open_damaged(
    file: connection.SpaceFile, exit_stack: contextlib.ExitStack
) -> apsw.Connection | None:
    try:
        holder, reader = (_connect(file, damaged=True) for _ in range(2))
    except StoreCorrupt:
        return None
    for handle in (holder, reader):
        exit_stack.callback(handle.close, True)
        # SQLite would remove its log by name, and that is now the new file's name
        handle.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    with contextlib.suppress(*_UNREADABLE):
        holder.execute("BEGIN IMMEDIATE")
    # use another connection: in a transaction, the cipher fails on all pages after a damaged one
    return reader


def _copy_records(
    damaged_handle: apsw.Connection | None, temporary: connection.SpaceFile, table: str
) -> int | str:
    last = (
        max((_read_last_number(damaged_handle, query) for query in _LAST), default=0)
        if damaged_handle
        else 0
    )
    if damaged_handle is None or not last:
        return "all"
    lost_count, number = 0, 1
    with contextlib.closing(_connect(temporary)) as new_handle, new_handle:
        new_handle.execute(table)
        while number <= last:
            try:
                row: Any = damaged_handle.execute(_NEXT_READABLE, (number,)).fetchone()
            except _UNREADABLE:
                row = ()
            if row is None:
                break
            if row and number <= row[0] <= last and isinstance(row[3], bytes):
                new_handle.execute(_COPY, row)
                number = row[0] + 1
            else:
                lost_count, number = lost_count + 1, number + 1
    return lost_count


def _read_last_number(damaged_handle: apsw.Connection, query: str) -> int:
    try:
        return int(damaged_handle.execute(query).get or 0)
    except (*_UNREADABLE, apsw.SQLError):
        return 0
