"""Connections to one PostgreSQL server: a few links, transactions of one space each, quick errors
while the server is down.

A transaction queues its statements, and sends them together in libpq's pipeline mode when rows are
needed (docs/decisions/0045). Every transaction first sets its space, only for itself: no setting
stays on a connection that PgBouncer gives to another client. While PostgreSQL is down, callers get
an error at once, and one caller at a time tries to connect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, LiteralString
from uuid import UUID

from recollect.adapters.stores.postgres.driver import (
    RowInsert,
    driver_errors,
    libpq_url,
    sql_errors,
)
from recollect.adapters.stores.postgres.link import (
    FORGOTTEN,
    SECONDS,
    Link,
    Parameters,
    Statement,
    Traffic,
    connect,
)
from recollect.errors import StoreError, StoreUnavailable
from recollect.system.forks import FORKED, OwnProcess
from recollect.system.telemetry import measure_action

CONNECT_SECONDS: Final = 5.0
"""Time limit for connecting, after which PostgreSQL is treated as down."""
BUSY_SECONDS: Final = 30.0
"""Time limit for waiting while all connections are in use."""
IDLE_SECONDS: Final = 60.0
"""Time after which an unused connection is closed."""
PROBE_SECONDS: Final = 0.5
"""After a failure, no caller tries to connect for this long."""
FULL_SECONDS: Final = 15.0
"""After a write or a check failed for lack of disk space, the disk counts as full for this long."""
_SPILL: Final = "SELECT count(*) FROM generate_series(1, 20000)"
"""Query that writes half a megabyte to a temporary file."""
_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN: Final = "BEGIN"
_SCOPE: Final = "SELECT set_config('app.space_id', %s, true)"
_MODES: Final = {True: "read", False: "write"}


class Transaction:
    """A transaction of one space on one connection. The transaction sends its statements when a
    caller reads rows. Coroutines may share a transaction, which sends their queries together."""

    __slots__ = (
        "_ended", "_link", "_once", "_queue", "_seconds", "_sender", "_sending", "lookup",
        "made_space", "space", "space_id", "vector_oid",
    )  # fmt: skip

    def __init__(
        self, link: Link, space_id: UUID, vector_oid: int, *, seconds: float, once: bool
    ) -> None:
        self._link = link
        self._once = once
        self._seconds = seconds
        self._queue: list[Statement] = []
        self._sending: asyncio.Future[None] | None = None
        self._sender: asyncio.Task[Any] | None = None
        self._ended = False
        self.lookup: Any = None
        """The queries with which this transaction's searches begin (`words.Lookup`)."""
        self.space_id: UUID = space_id
        self.space: str = ""
        """Name of the space, set by a store that writes, and stored by the first write."""
        self.made_space: bool = False
        """True if this transaction created the space."""
        self.vector_oid: int = vector_oid
        """The OID of pgvector's type in this database, for binary arrays."""

    def _enqueue(
        self, query: str, parameters: Parameters = (), *, planned_each_time: bool = False
    ) -> Statement:
        self._require_open()
        connection = self._link.connection
        statement = Statement(
            connection, query, parameters, self.flush, planned_each_time=planned_each_time
        )
        self._queue.append(statement)
        return statement

    async def send(self, query: LiteralString, parameters: Parameters = ()) -> Statement:
        return self._enqueue(query, parameters)

    async def send_planned(self, query: LiteralString, parameters: Parameters = ()) -> Statement:
        """Queue a statement that gets its own plan: one plan for all spaces might read all rows."""
        return self._enqueue(query, parameters, planned_each_time=True)

    async def rows(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        return await self._enqueue(query, parameters).fetchall()

    async def row(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> tuple[Any, ...] | None:
        return await self._enqueue(query, parameters).fetchone()

    async def records(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> list[dict[str, Any]]:
        return await self._enqueue(query, parameters).records()

    async def insert(self, into: RowInsert, rows: Collection[Sequence[Any]]) -> None:
        if rows:
            self._enqueue(into.sql, (self.space_id, *into.arrays(rows)))

    async def flush(self, statement: Statement | None = None) -> None:
        """Run the queued statements, unless `statement` has already run."""
        while self._sending is not None and (statement is None or not statement.done):
            # Another coroutine is sending, perhaps also this statement.
            await asyncio.shield(self._sending)
        if statement is not None and statement.done:
            return
        self._require_open()
        self._sender = asyncio.current_task()
        self._sending = asyncio.get_running_loop().create_future()
        try:
            for _ in range(2):  # let coroutines that read the last results queue theirs first
                await asyncio.sleep(0)
            self._require_open()
            statements, self._queue = self._queue, []
            await self._link.run(statements, seconds=self._seconds)
        except Exception as error:  # the transaction fails for all that share it
            self._sending.set_exception(error)
            self._sending.exception()  # mark the error as read, because perhaps no caller waits
            raise
        except BaseException:
            self._sending.cancel()
            raise
        self._sending.set_result(None)
        self._sending = None
        self._ended = self._once

    def begin(self, *statements: str) -> None:
        for statement in statements:
            self._enqueue(statement)

    async def end(self, *, wait: bool) -> None:
        """Commit, and wait for the result unless the transaction wrote nothing."""
        self._enqueue("COMMIT")
        if wait or self._sending is not None:
            await self.flush()
        else:
            self._link.leave(self._queue)

    def close(self) -> None:
        """Refuse further statements: the link may be in use for another space."""
        self._ended = True
        if self._sender is not None and self._sending is not None and not self._sending.done():
            self._link.broken = True
            self._sender.cancel()

    def _require_open(self) -> None:
        if self._ended:
            raise StoreError("this transaction has ended: a query outlived its block")


class Pool:
    """Links of one database role, at most `size` of them."""

    def __init__(self, url: str, *, size: int) -> None:
        self._url = libpq_url(url)
        self._role: tuple[str, ...] = ()
        self._idle: list[Link] = []
        self._refused_until = 0.0
        self._refused_for = ""
        self._full_until = 0.0
        self._closed = False
        self._process = OwnProcess()
        # waiting here means busy; waiting for a connection means down
        self._turns = asyncio.Semaphore(size)
        self.size = size
        self.in_use: int = 0
        self._closing_idle: asyncio.TimerHandle | None = None
        self.vector_oid = 0
        self.reads_at_once: bool = False
        """True if statements that are sent together are a transaction without BEGIN. On Citus,
        only BEGIN and SET LOCAL reach the workers."""
        self.prepares: bool = False
        """True if links may prepare statements on this server."""
        self.traffic: Traffic = Traffic()

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def is_down(self) -> bool:
        return self._refused_until > 0.0

    @property
    def disk_is_full(self) -> bool:
        """True if a write or a check failed for lack of disk space within the last seconds."""
        return time.monotonic() < self._full_until

    async def check_disk(self) -> None:
        """Write a temporary file on the server, which fails if the server's disk is full."""
        async with self._open("app.worker = 'on'", read=True, notes_full_disk=True) as work:
            await work.send("SET LOCAL work_mem = '64kB'")
            await work.rows(_SPILL)

    def act_as(self, role: str) -> None:
        """Run every transaction as this role: row-level security exempts the URL's own role."""
        quoted_role = role.replace('"', '""')
        self._role = (f'SET LOCAL ROLE "{quoted_role}"',)

    async def close(self) -> None:
        """Close the links. A link in use is closed when its caller releases it."""
        self._closed = True
        if self._closing_idle is not None:
            self._closing_idle.cancel()
        while self._idle:
            await self._idle.pop().close()

    def transaction(
        self, space_id: UUID, *, read: bool = False, once: bool = False, seconds: float = SECONDS
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction of one space, committed when the block ends. With `read`, all queries
        of the transaction see one snapshot. With `once`, the transaction has one query.
        `seconds` limits each exchange with the server."""
        setting, once = f"app.space_id = '{space_id}'", once and self.reads_at_once
        return self._open(setting, space_id, read=read, once=once, seconds=seconds)

    def workers_view(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a read transaction that only sees the names of spaces with due jobs."""
        return self._open("app.worker = 'on'", read=True)

    def tenant_transaction(
        self, tenant_id: UUID | None, *, read: bool = False
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction over the records of a tenant, or over those open to operators."""
        setting = f"app.tenant_id = '{tenant_id}'" if tenant_id else "app.operator = 'on'"
        return self._open(setting, read=read)

    @asynccontextmanager
    async def _open(
        self,
        setting: str,
        space_id: UUID = UUID(int=0),  # noqa: B008 - immutable
        *,
        read: bool,
        once: bool = False,
        seconds: float = SECONDS,
        notes_full_disk: bool = False,
    ) -> AsyncIterator[Transaction]:
        with measure_action("transaction", _MODES[read]), driver_errors(writing=not read):
            try:
                async with self._borrow_link() as link:
                    self.traffic.transactions += 1
                    work = Transaction(link, space_id, self.vector_oid, seconds=seconds, once=once)
                    try:
                        if once:
                            await work.send(_SCOPE, (str(space_id),))
                        else:
                            begin = _BEGIN_READ if read else _BEGIN
                            work.begin(begin, *self._role, f"SET LOCAL {setting}")
                        yield work
                        if not once:
                            await work.end(wait=not read)
                    finally:
                        work.close()
            except sql_errors.DiskFull:
                if notes_full_disk or not read:  # a large search may run out of temporary space
                    self._full_until = time.monotonic() + FULL_SECONDS
                raise

    @asynccontextmanager
    async def _borrow_link(self) -> AsyncIterator[Link]:
        await self._take_turn()
        try:
            link = await self._find_link()
            try:
                yield link
            except BaseException as error:
                # A cancelled caller left results unread. Closing the link also rolls back.
                if isinstance(error, FORGOTTEN):
                    self.prepares = False
                usable = isinstance(error, Exception) and await link.undo(error)
                await self._release(link, usable=usable)
                raise
            await self._release(link, usable=link.idle)
        finally:
            self.in_use -= 1
            self._turns.release()

    async def _take_turn(self) -> None:
        if self._process.is_other:
            raise StoreError(FORKED)
        if self._turns.locked():
            began = time.monotonic()
            self.traffic.waits += 1
            try:
                async with asyncio.timeout(BUSY_SECONDS):
                    await self._turns.acquire()
            except TimeoutError as error:
                raise StoreUnavailable("PostgreSQL is too busy: no connection was free") from error
            finally:
                self.traffic.waited_seconds += time.monotonic() - began
        else:
            await self._turns.acquire()  # returns at once, because no caller waits
        self.in_use += 1

    async def _release(self, link: Link, *, usable: bool) -> None:
        if self._closed or not usable:
            await link.close()
            return
        link.used_at = time.monotonic()
        self._idle.append(link)
        if self._closing_idle is None:
            loop = asyncio.get_running_loop()
            self._closing_idle = loop.call_later(IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        self._closing_idle = None
        now = time.monotonic()
        used_lately = [link for link in self._idle if now - link.used_at < IDLE_SECONDS]
        for link in self._idle:
            if link not in used_lately:
                link.drop()
        self._idle = used_lately
        if used_lately:
            loop = asyncio.get_running_loop()
            wait = IDLE_SECONDS - (now - min(link.used_at for link in used_lately))
            self._closing_idle = loop.call_later(wait, self._close_idle)

    async def _find_link(self) -> Link:
        if self._closed:
            raise StoreUnavailable("the connections to PostgreSQL are closed")
        while self._idle:
            link = self._idle.pop()
            try:
                # once one statement was forgotten, no prepared statement is safe
                usable = link.prepares <= self.prepares and await link.is_usable()
            except BaseException:
                # The caller was cancelled while it waited: no other code refers to this link.
                await link.close()
                raise
            if usable:
                return link
            await link.close()
        now = time.monotonic()
        if now < self._refused_until:
            raise StoreUnavailable(f"{self._refused_for}; tried a moment ago")
        # The server was down: other callers get an error while this one tries to connect.
        if self._refused_until:
            self._refused_until = now + CONNECT_SECONDS
        try:
            connection = await connect(self._url, seconds=CONNECT_SECONDS)
        except StoreUnavailable as error:
            self._refused_until = time.monotonic() + PROBE_SECONDS
            self._refused_for = str(error)
            raise
        self._refused_until = 0.0
        return Link(connection, self.traffic, prepares=self.prepares)
