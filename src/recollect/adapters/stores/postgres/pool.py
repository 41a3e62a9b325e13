"""Connections to one PostgreSQL server: a few links, transactions bound to a space, quick errors
while the server is down.

A transaction queues its statements and sends them together when rows are asked for, in libpq's
pipeline mode (docs/decisions/0045). Every transaction first names its space with SET LOCAL, so
nothing stays on a connection that PgBouncer passes to another client. A link prepares each
statement with parameters once, because planning takes PostgreSQL longer than running it; behind a
pooler that does not know prepared statements it prepares none (`find_preparing`). A closed or
interrupted link is never reused. While PostgreSQL is down, callers get an error at once, and one
caller at a time tries to connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, LiteralString, TypeAlias
from uuid import UUID

from psycopg import generators
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import wait_async

from recollect.adapters.stores.postgres.driver import (
    RowInsert,
    adapters,
    conninfo_to_dict,
    driver_errors,
    libpq_url,
    make_conninfo,
    plain_rows,
    psycopg,
    reason_of,
    sql_errors,
)
from recollect.errors import StoreError, StoreUnavailable
from recollect.system.telemetry import measured

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
Shape: TypeAlias = tuple[bytes, tuple[int, ...]]
"""A statement's text and the types of its parameters."""
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
SECONDS: Final = 60.0
"""Time limit for the server's answer. It is generous, and only catches a server that hangs."""
CONNECT_SECONDS: Final = 5.0
"""Time limit for connecting, after which PostgreSQL is treated as down."""
BUSY_SECONDS: Final = 30.0
"""How long to wait while all connections are in use."""
IDLE_SECONDS: Final = 60.0
"""How long an unused connection stays open."""
PROBE_SECONDS: Final = 0.5
"""After a failure, no caller tries to connect for this long."""
FULL_SECONDS: Final = 15.0
"""The disk counts as full for this long after a statement failed for lack of space."""
_SPILL: Final = "SELECT count(*) FROM generate_series(1, 20000)"
"""Writes half a megabyte to a temporary file."""
HOST_SECONDS: Final = 2
"""Time limit per server if a URL lists several."""
_CANCEL_SECONDS: Final = 2.0
_WAKE_SECONDS: Final = 1.0
_KEEPALIVE: Final = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Settings that detect a server that has vanished. A URL may override them."""
_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN: Final = "BEGIN"
_MODES: Final = {True: "read", False: "write"}
_MOST_PREPARED: Final = 150
"""Prepared statements per link. PgBouncer keeps 200 per connection by default."""
_FORGETS: Final = (
    sql_errors.InvalidSqlStatementName,
    sql_errors.DuplicatePreparedStatement,
    sql_errors.FeatureNotSupported,
)
"""Errors after which a link's prepared statements cannot be used: a pooler passed the link to
another client, or a table has changed."""
_GOOD: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%s")


@lru_cache(maxsize=512)
def _number_parameters(query: str) -> tuple[bytes, tuple[str, ...]]:
    names: dict[str, int] = {}
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        named = match.group(1)
        if named is None:
            count += 1
            return f"${count}"
        return f"${names.setdefault(named, len(names) + 1)}"

    return _PLACEHOLDER.sub(number, query).encode(), tuple(names)


class Statement:
    """A queued statement. Asking for its rows sends all queued statements of its transaction."""

    __slots__ = (
        "_connection",
        "_formats",
        "_query",
        "_result",
        "_types",
        "_values",
        "_work",
        "shape",
    )

    def __init__(
        self,
        connection: Connection,
        query: str,
        parameters: Parameters = (),
        work: Transaction | None = None,
        *,
        planned_anew: bool = False,
    ) -> None:
        self._query, names = _number_parameters(query)
        if isinstance(parameters, Mapping):
            parameters = [parameters[name] for name in names]
        adapting = Transformer(connection)
        formats = [PyFormat.AUTO] * len(parameters)
        self._values = adapting.dump_sequence(parameters, formats) if parameters else []
        self._types = adapting.types or ()
        self._formats = adapting.formats or ()
        self._connection = connection
        self._work = work
        self._result: PGresult | None = None
        prepared = bool(self._values) and not planned_anew
        self.shape: Shape | None = (self._query, tuple(self._types)) if prepared else None
        """What the server prepares; None if it plans the statement for these values."""

    def send(self, pgconn: PGconn) -> None:
        pgconn.send_query_params(
            self._query,
            self._values,
            param_types=self._types,
            param_formats=self._formats,
            result_format=Format.BINARY,
        )

    def send_prepared(self, pgconn: PGconn, name: bytes) -> None:
        pgconn.send_query_prepared(
            name, self._values, param_formats=self._formats, result_format=Format.BINARY
        )

    def take(self, result: PGresult) -> None:
        if result.status not in _GOOD:
            raise _error(result)
        self._result = result

    @property
    def done(self) -> bool:
        return self._result is not None

    def rows(self) -> list[tuple[Any, ...]]:
        assert self._result is not None
        loading = Transformer(self._connection)
        loading.set_pgresult(self._result, format=Format.BINARY)
        return plain_rows(self._result, loading.load_rows(0, self._result.ntuples, tuple))

    async def fetchall(self) -> list[tuple[Any, ...]]:
        if self._work is not None:
            await self._work.flush(self)
        return self.rows()

    async def fetchone(self) -> tuple[Any, ...] | None:
        rows = await self.fetchall()
        return rows[0] if rows else None

    async def records(self) -> list[dict[str, Any]]:
        rows = await self.fetchall()
        assert self._result is not None
        names = [(self._result.fname(at) or b"").decode() for at in range(self._result.nfields)]
        return [dict(zip(names, row, strict=True)) for row in rows]


class _Preparing:
    """The answer to a statement's preparation. Its name is known once the server has it."""

    __slots__ = ("_name", "_names", "_shape")

    def __init__(self, names: dict[Shape, bytes], shape: Shape, name: bytes) -> None:
        self._names, self._shape, self._name = names, shape, name

    def take(self, result: PGresult) -> None:
        if result.status not in _GOOD:
            raise _error(result)
        self._names[self._shape] = self._name


def _exchange(pgconn: PGconn, statements: Sequence[Statement | _Preparing]) -> PQGen[None]:
    yield from generators.send(pgconn)
    waiting = iter(statements)
    failed: psycopg.Error | None = None
    while True:
        results = yield from generators.fetch_many(pgconn)
        if not results:
            if pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError("the connection was lost")
        elif results[-1].status == ExecStatus.PIPELINE_SYNC:
            break
        elif (taker := next(waiting, None)) is not None:
            try:
                taker.take(results[-1])
            except psycopg.Error as error:
                failed = failed or error
    if failed is not None:
        raise failed


def _error(result: PGresult) -> psycopg.Error:
    if result.status == ExecStatus.PIPELINE_ABORTED:
        return sql_errors.PipelineAborted("not run: a statement before it failed")
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    message = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
    try:
        kind: type[psycopg.Error] = sql_errors.lookup(state)
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(message)


@dataclass(slots=True)
class Traffic:
    """Counts of a pool's traffic so far. The cost of a turn is the difference of two counts."""

    transactions: int = 0
    statements: int = 0
    """Number of statements, including those that begin, name the space and commit."""
    round_trips: int = 0
    waits: int = 0
    """Number of waits because all links were in use."""
    waited_seconds: float = 0.0

    def since(self, before: Traffic) -> Traffic:
        return Traffic(
            *(getattr(self, one.name) - getattr(before, one.name) for one in fields(self))
        )


class Link:
    """A connection in pipeline mode. After `run` all results are read, and the first error is
    raised."""

    __slots__ = (
        "_broken", "_names", "_owing", "_pgconn", "_traffic", "connection", "prepares", "used_at",
    )  # fmt: skip

    def __init__(self, connection: Connection, traffic: Traffic, *, prepares: bool = False) -> None:
        self.connection: Connection = connection
        self.prepares: bool = prepares
        self._names: dict[Shape, bytes] = {}
        self._traffic = traffic
        self._pgconn = connection.pgconn
        self._pgconn.enter_pipeline_mode()
        self._owing = False
        self._broken = False
        self.used_at: float = 0.0
        """Time of the last release, by the monotonic clock."""

    async def run(self, statements: Sequence[Statement], *, seconds: float = SECONDS) -> None:
        answering = self._send(statements)
        self._traffic.round_trips += 1
        try:
            await self._receive(answering, seconds)
        except TimeoutError:
            # The server may be gone, or may never finish: ask it to stop.
            self._broken = True
            with contextlib.suppress(psycopg.Error):
                await self.connection.cancel_safe(timeout=_CANCEL_SECONDS)
            raise

    def leave(self, statements: Sequence[Statement]) -> None:
        """Send statements without waiting. Their results are read before the next use."""
        self._send(statements)
        self._pgconn.flush()
        self._owing = True

    def _send(self, statements: Sequence[Statement]) -> list[Statement | _Preparing]:
        """Send statements. Return what the server's answers go to, in order."""
        answering: list[Statement | _Preparing] = []
        new: dict[Shape, bytes] = {}
        for statement in statements:
            shape = statement.shape if self.prepares else None
            name = None if shape is None else self._names.get(shape) or new.get(shape)
            if shape is not None and name is None and len(self._names) < _MOST_PREPARED:
                name = new[shape] = f"r{len(self._names) + len(new)}".encode()
                self._pgconn.send_prepare(name, *shape)
                answering.append(_Preparing(self._names, shape, name))
            if name is None:
                statement.send(self._pgconn)
            else:
                statement.send_prepared(self._pgconn, name)
            answering.append(statement)
        self._pgconn.pipeline_sync()
        self._traffic.statements += len(statements)
        return answering

    async def _receive(
        self, statements: Sequence[Statement | _Preparing], seconds: float = SECONDS
    ) -> None:
        # Not `connection.wait`: if cancelled, it would wait until the server has stopped.
        exchange = _exchange(self._pgconn, statements)
        async with asyncio.timeout(seconds):
            await wait_async(exchange, self._pgconn.socket, interval=_WAKE_SECONDS)

    async def usable(self) -> bool:
        """True if the link can be used again. Needs no round trip."""
        if self._pgconn.status != ConnStatus.OK:
            return False
        if self._owing:
            self._owing = False
            try:
                await self._receive(())
            except (psycopg.Error, TimeoutError):
                return False
        watched = select.poll()
        watched.register(self._pgconn.socket, select.POLLIN)
        # If an idle connection has something to read, it was closed or is about to be.
        idle = self._pgconn.transaction_status == TransactionStatus.IDLE
        return idle and not watched.poll(0)

    async def undo(self, error: Exception | None = None) -> bool:
        """Roll back an open transaction. Return True if the link can be used again."""
        if self._broken or isinstance(error, _FORGETS):
            return False
        try:
            if self._pgconn.status == ConnStatus.OK:
                await self.run((Statement(self.connection, "ROLLBACK"),))
        except (psycopg.Error, TimeoutError):
            return False
        return self._pgconn.status == ConnStatus.OK and self.idle

    @property
    def idle(self) -> bool:
        return self._owing or self._pgconn.transaction_status == TransactionStatus.IDLE

    async def close(self) -> None:
        await self.connection.close()

    def drop(self) -> None:
        """Close the connection without waiting."""
        self._pgconn.finish()


class Transaction:
    """A transaction of one space on one connection. A statement waits until rows are asked for.
    Concurrent coroutines may share the transaction; their queries are sent together in one round
    trip."""

    __slots__ = (
        "_link", "_queue", "_seconds", "_sending", "made_space", "space", "space_id", "vector_oid",
    )  # fmt: skip

    def __init__(
        self, link: Link, space_id: UUID, vector_oid: int, *, seconds: float = SECONDS
    ) -> None:
        self._link = link
        self._seconds = seconds
        self._queue: list[Statement] = []
        self._sending: asyncio.Future[None] | None = None
        self.space_id: UUID = space_id
        self.space: str = ""
        """The space's name, set by a store that writes. The first write of a space stores it."""
        self.made_space: bool = False
        """True if this transaction created the space."""
        self.vector_oid: int = vector_oid
        """The oid of pgvector's type in this database, for binary arrays."""

    def _add(
        self, query: str, parameters: Parameters = (), *, planned_anew: bool = False
    ) -> Statement:
        connection = self._link.connection
        statement = Statement(connection, query, parameters, self, planned_anew=planned_anew)
        self._queue.append(statement)
        return statement

    async def send(self, query: LiteralString, parameters: Parameters = ()) -> Statement:
        return self._add(query, parameters)

    async def send_planned(self, query: LiteralString, parameters: Parameters = ()) -> Statement:
        """Queue a statement that the server plans for these values each time, because a plan for
        any space may read all of them."""
        return self._add(query, parameters, planned_anew=True)

    async def rows(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        return await self._add(query, parameters).fetchall()

    async def row(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> tuple[Any, ...] | None:
        return await self._add(query, parameters).fetchone()

    async def records(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> list[dict[str, Any]]:
        return await self._add(query, parameters).records()

    async def insert(self, into: RowInsert, rows: Collection[Sequence[Any]]) -> None:
        if rows:
            self._add(into.sql, (self.space_id, *into.arrays(rows)))

    async def flush(self, wanted: Statement | None = None) -> None:
        """Run the queued statements, unless the wanted one has run already."""
        while self._sending is not None and (wanted is None or not wanted.done):
            # Another coroutine is sending, and may include this statement.
            await asyncio.shield(self._sending)
        if wanted is not None and wanted.done:
            return
        self._sending = asyncio.get_running_loop().create_future()
        try:
            await asyncio.sleep(0)  # let parallel coroutines queue their statements first
            queued, self._queue = self._queue, []
            await self._link.run(queued, seconds=self._seconds)
        except Exception as error:  # the transaction fails for all that share it
            self._sending.set_exception(error)
            self._sending.exception()  # read it, because no caller may be waiting for it
            raise
        except BaseException:
            self._sending.cancel()
            raise
        self._sending.set_result(None)
        self._sending = None

    def begin(self, *statements: str) -> None:
        for statement in statements:
            self._add(statement)

    async def end(self, *, wait: bool) -> None:
        """Commit. Do not wait for the result if nothing was written."""
        self._add("COMMIT")
        if wait:
            await self.flush()
        else:
            self._link.leave(self._queue)


class Pool:
    """Links of one role, at most `size` of them."""

    def __init__(self, url: str, *, size: int) -> None:
        self._url = libpq_url(url)
        self._role: tuple[str, ...] = ()
        self._idle: list[Link] = []
        self._refused_until = 0.0
        self._refused_for = ""
        self._full_until = 0.0
        self._closed = False
        # waiting here means busy; waiting for a connection means down
        self._turns = asyncio.Semaphore(size)
        self.size = size
        self.in_use: int = 0
        self._closing_idle: asyncio.TimerHandle | None = None
        self.vector_oid = 0
        self.prepares: bool = False
        """True if links prepare statements on the server."""
        self.traffic: Traffic = Traffic()

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def is_away(self) -> bool:
        return self._refused_until > 0.0

    @property
    def disk_is_full(self) -> bool:
        """True if a statement failed for lack of disk space within the last seconds."""
        return time.monotonic() < self._full_until

    async def check_disk(self) -> None:
        """Write a temporary file on the server, which fails if its disk is full."""
        async with self.workers_view() as work:
            await work.send("SET LOCAL work_mem = '64kB'")
            await work.rows(_SPILL)

    def act_as(self, role: str) -> None:
        """Run every transaction as this role, because the URL's own role would bypass row-level
        security."""
        quoted = role.replace('"', '""')
        self._role = (f'SET LOCAL ROLE "{quoted}"',)

    async def close(self) -> None:
        """Close the links. Those in use are closed when they are released."""
        self._closed = True
        if self._closing_idle is not None:
            self._closing_idle.cancel()
        while self._idle:
            await self._idle.pop().close()

    def transaction(
        self, space_id: UUID, *, read: bool = False, seconds: float = SECONDS
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction of one space. It is committed at the end. With `read` it sees one
        snapshot. `seconds` limits one exchange with the server."""
        return self._begun(f"app.space_id = '{space_id}'", space_id, read=read, seconds=seconds)

    def workers_view(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a read transaction without a space. It may see the names of spaces with due jobs."""
        return self._begun("app.worker = 'on'", read=True)

    def tenant_transaction(
        self, tenant_id: UUID | None, *, read: bool = False
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction over one tenant's records. With None it may read what operators may
        read."""
        whose = f"app.tenant_id = '{tenant_id}'" if tenant_id else "app.operator = 'on'"
        return self._begun(whose, read=read)

    @asynccontextmanager
    async def _begun(
        self,
        setting: str,
        space_id: UUID = UUID(int=0),  # noqa: B008 - immutable
        *,
        read: bool,
        seconds: float = SECONDS,
    ) -> AsyncIterator[Transaction]:
        with measured("transaction", _MODES[read]), driver_errors(writing=not read):
            try:
                async with self._link() as link:
                    self.traffic.transactions += 1
                    work = Transaction(link, space_id, self.vector_oid, seconds=seconds)
                    work.begin(_BEGIN_READ if read else _BEGIN, *self._role, f"SET LOCAL {setting}")
                    yield work
                    await work.end(wait=not read)
            except sql_errors.DiskFull:
                self._full_until = time.monotonic() + FULL_SECONDS
                raise

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[Link]:
        await self._take_turn()
        try:
            link = await self._reach()
            try:
                yield link
            except BaseException as error:
                # A cancelled caller left results unread. Closing the link also rolls back the
                # transaction.
                if isinstance(error, _FORGETS[:2]):
                    self.prepares = False
                if isinstance(error, Exception) and await link.undo(error):
                    self._give_back(link)
                else:
                    await link.close()
                raise
            if self._closed or not link.idle:
                await link.close()
            else:
                self._give_back(link)
        finally:
            self.in_use -= 1
            self._turns.release()

    async def _take_turn(self) -> None:
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

    def _give_back(self, link: Link) -> None:
        link.used_at = time.monotonic()
        self._idle.append(link)
        if self._closing_idle is None:
            loop = asyncio.get_running_loop()
            self._closing_idle = loop.call_later(IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        self._closing_idle = None
        now = time.monotonic()
        kept = [link for link in self._idle if now - link.used_at < IDLE_SECONDS]
        for link in self._idle:
            if link not in kept:
                link.drop()
        self._idle = kept
        if kept:
            loop = asyncio.get_running_loop()
            wait = IDLE_SECONDS - (now - min(link.used_at for link in kept))
            self._closing_idle = loop.call_later(wait, self._close_idle)

    async def _reach(self) -> Link:
        if self._closed:
            raise StoreUnavailable("the connections to PostgreSQL are closed")
        while self._idle:
            link = self._idle.pop()
            try:
                usable = await link.usable()
            except BaseException:
                # Cancelled while it waited: no other code has a reference to this link.
                await link.close()
                raise
            if usable:
                return link
            await link.close()
        now = time.monotonic()
        if now < self._refused_until:
            raise StoreUnavailable(f"{self._refused_for}; tried a moment ago")
        # The server was down: other callers get an error while this one tries.
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


async def find_preparing(connection: Connection) -> bool:
    """Return whether what a connection prepares stays usable. PgBouncer with
    `max_prepared_statements` gives each statement a name of its own. A pooler that leaves the name
    as it is does not know which of its connections has the statement."""
    with driver_errors():
        async with connection.transaction():
            (pid,) = await (await connection.execute("SELECT pg_backend_pid()")).fetchone() or (0,)
            if pid == connection.pgconn.backend_pid:  # no pooler
                return True
            try:
                connection.prepare_threshold = 0
                found = await connection.execute("SELECT name, 1 FROM pg_prepared_statements")
                names = {name for name, _ in await found.fetchall()}
            finally:
                connection.prepare_threshold = None
            ours = {name for name in names if name.startswith("_pg3_")}
            for name in ours:
                await connection.execute(f'DEALLOCATE "{name}"')
            return bool(names) and not ours


async def connect(url: str, *, seconds: float = 10.0) -> Connection:
    """Open a connection in autocommit mode that can encode Recollect's parameters. psycopg itself
    prepares no statements on it."""
    taken = libpq_url(url)
    try:
        named = conninfo_to_dict(taken)
    except psycopg.ProgrammingError:  # the error's text may quote the URL with its password
        raise StoreError("the URL of PostgreSQL is not valid: check its spelling") from None
    hosts = max(len(str(named.get(name) or "").split(",")) for name in ("host", "hostaddr"))
    limits: dict[str, Any] = {} if hosts == 1 else {"connect_timeout": HOST_SECONDS}
    seconds = max(seconds, 1.0 + HOST_SECONDS * hosts) if hosts > 1 else seconds
    try:
        async with asyncio.timeout(seconds):
            made: Connection = await psycopg.AsyncConnection.connect(
                make_conninfo(taken, **{**_KEEPALIVE, **limits, **named}),
                autocommit=True,
                context=adapters(),
                prepare_threshold=None,
            )
    except TimeoutError:
        raise StoreUnavailable(
            f"PostgreSQL cannot be reached: no answer within {seconds:g} seconds"
        ) from None
    except psycopg.OperationalError as error:
        text = f"PostgreSQL cannot be reached: {reason_of(error, taken)}"
        raise StoreUnavailable(text) from None
    return made
