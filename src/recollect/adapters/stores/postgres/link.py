"""One connection to PostgreSQL, which sends statements together in libpq's pipeline mode.

A link prepares each statement with parameters once, because PostgreSQL needs longer to plan a
statement than to run it. If a pooler does not support prepared statements, links prepare none
(`can_prepare`). A closed or interrupted link is never used again."""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from psycopg import generators
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import wait_async

from recollect.adapters.stores.postgres.driver import (
    adapters,
    conninfo_to_dict,
    driver_errors,
    libpq_url,
    make_conninfo,
    psycopg,
    reason_of,
    sql_errors,
    unescape_rows,
)
from recollect.errors import StoreError, StoreUnavailable

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
Shape: TypeAlias = tuple[bytes, tuple[int, ...]]
"""A statement's text and the types of its parameters."""
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
SECONDS: Final = 60.0
"""Time limit for the server's answer: long, because it must only detect a server that hangs."""
HOST_SECONDS: Final = 2
"""Time limit for connecting to each server if a URL lists several."""
_CANCEL_SECONDS: Final = 2.0
"""Not measured; bounds the wait for a server that must cancel a statement but may be gone."""
_WAKE_SECONDS: Final = 1.0
"""Not measured; interval at which psycopg checks a socket that is not ready."""
_KEEPALIVE: Final = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Settings that detect a server that no longer responds. A URL may override these settings."""
_MAX_PREPARED: Final = 150
"""Maximum number of prepared statements per link. PgBouncer keeps 200 per connection by default."""
FORGOTTEN: Final = (sql_errors.InvalidSqlStatementName, sql_errors.DuplicatePreparedStatement)
"""Errors that appear if a pooler gave the server's connection to another client."""
_UNUSABLE: Final = (*FORGOTTEN, sql_errors.FeatureNotSupported)
"""Errors, such as one about a changed table, after which a link prepares its statements again."""
_GOOD: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%s")


@lru_cache(maxsize=512)
def _number_parameters(query: str) -> tuple[bytes, tuple[str, ...]]:
    names: dict[str, int] = {}
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        name = match.group(1)
        if name is None:
            count += 1
            return f"${count}"
        return f"${names.setdefault(name, len(names) + 1)}"

    return _PLACEHOLDER.sub(number, query).encode(), tuple(names)


@lru_cache(maxsize=512)
def _statement_name(shape: Shape) -> bytes:
    """Name a prepared statement by its content, so that a name means the same on every connection
    of the server, even if a pooler gives it to another client."""
    return b"recollect_" + blake2b(repr(shape).encode(), digest_size=16).hexdigest().encode()


class Statement:
    """A queued statement. Reading its rows sends all queued statements of its transaction."""

    __slots__ = (
        "_connection",
        "_flush",
        "_formats",
        "_query",
        "_result",
        "_types",
        "_values",
        "shape",
    )

    def __init__(
        self,
        connection: Connection,
        query: str,
        parameters: Parameters = (),
        flush: Callable[[Statement], Awaitable[None]] | None = None,
        *,
        planned_each_time: bool = False,
    ) -> None:
        """Store the statement; `flush` sends it, after those queued before it."""
        self._query, names = _number_parameters(query)
        if isinstance(parameters, Mapping):
            parameters = [parameters[name] for name in names]
        transformer = Transformer(connection)
        formats = [PyFormat.AUTO] * len(parameters)
        self._values = transformer.dump_sequence(parameters, formats) if parameters else []
        self._types = transformer.types or ()
        self._formats = transformer.formats or ()
        self._connection = connection
        self._flush = flush
        self._result: PGresult | None = None
        may_prepare = bool(self._values) and not planned_each_time
        self.shape: Shape | None = (self._query, tuple(self._types)) if may_prepare else None
        """The text and types to prepare; None if the server makes a new plan for each call."""

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
        transformer = Transformer(self._connection)
        transformer.set_pgresult(self._result, format=Format.BINARY)
        return unescape_rows(self._result, transformer.load_rows(0, self._result.ntuples, tuple))

    async def fetchall(self) -> list[tuple[Any, ...]]:
        if self._flush is not None:
            await self._flush(self)
        return self.rows()

    async def fetchone(self) -> tuple[Any, ...] | None:
        rows = await self.fetchall()
        return rows[0] if rows else None

    async def records(self) -> list[dict[str, Any]]:
        rows = await self.fetchall()
        assert self._result is not None
        names = [
            (self._result.fname(index) or b"").decode() for index in range(self._result.nfields)
        ]
        return [dict(zip(names, row, strict=True)) for row in rows]


class _Preparing:
    """Receives the result of a PREPARE. The server then knows the statement's name."""

    __slots__ = ("_prepared", "_shape")

    def __init__(self, prepared: set[Shape], shape: Shape) -> None:
        self._prepared, self._shape = prepared, shape

    def take(self, result: PGresult) -> None:
        if result.status not in _GOOD:
            raise _error(result)
        self._prepared.add(self._shape)


def _exchange(pgconn: PGconn, statements: Sequence[Statement | _Preparing]) -> PQGen[None]:
    yield from generators.send(pgconn)
    takers = iter(statements)
    first_error: psycopg.Error | None = None
    while True:
        results = yield from generators.fetch_many(pgconn)
        if not results:
            if pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError("the connection was lost")
        elif results[-1].status == ExecStatus.PIPELINE_SYNC:
            break
        elif (taker := next(takers, None)) is not None:
            try:
                taker.take(results[-1])
            except psycopg.Error as error:
                first_error = first_error or error
    if first_error is not None:
        raise first_error


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
    """Counts of a pool's traffic since its start. A turn's cost is the difference of two counts."""

    transactions: int = 0
    statements: int = 0
    """Number of statements, including those that begin, set the space and commit."""
    round_trips: int = 0
    waits: int = 0
    """Number of times that a caller waited because all links were in use."""
    waited_seconds: float = 0.0

    def since(self, before: Traffic) -> Traffic:
        return Traffic(
            *(getattr(self, field.name) - getattr(before, field.name) for field in fields(self))
        )


class Link:
    """A connection in pipeline mode. `run` reads all results, and raises the first error."""

    __slots__ = (
        "_owed", "_pgconn", "_prepared", "_traffic", "broken", "connection", "prepares", "used_at",
    )  # fmt: skip

    def __init__(self, connection: Connection, traffic: Traffic, *, prepares: bool = False) -> None:
        self.connection: Connection = connection
        self.prepares: bool = prepares
        self._prepared: set[Shape] = set()
        self._traffic = traffic
        self._pgconn = connection.pgconn
        self._pgconn.enter_pipeline_mode()
        self._owed: list[Statement | _Preparing] = []
        self.broken: bool = False
        """True if results may be left unread, so that the link must be closed."""
        self.used_at: float = 0.0
        """Time of the last release, by the monotonic clock."""

    async def run(self, statements: Sequence[Statement], *, seconds: float = SECONDS) -> None:
        receivers = self._send(statements)
        self._traffic.round_trips += 1
        try:
            await self._receive(receivers, seconds)
        except TimeoutError:
            # The server may be gone, or may never finish: ask it to stop.
            self.broken = True
            with contextlib.suppress(psycopg.Error):
                await self.connection.cancel_safe(timeout=_CANCEL_SECONDS)
            raise

    def leave(self, statements: Sequence[Statement]) -> None:
        """Send statements without waiting. The link's next use reads the results first."""
        self._owed = self._send(statements)
        self._pgconn.flush()

    def _send(self, statements: Sequence[Statement]) -> list[Statement | _Preparing]:
        """Send statements. Return, in order, the objects that receive the results."""
        receivers: list[Statement | _Preparing] = []
        sent_shapes = set(self._prepared)
        for statement in statements:
            shape = statement.shape if self.prepares else None
            if shape is not None and shape not in sent_shapes and len(sent_shapes) < _MAX_PREPARED:
                self._pgconn.send_prepare(_statement_name(shape), *shape)
                receivers.append(_Preparing(self._prepared, shape))
                sent_shapes.add(shape)
            if shape in sent_shapes:
                statement.send_prepared(self._pgconn, _statement_name(shape))
            else:
                statement.send(self._pgconn)
            receivers.append(statement)
        self._pgconn.pipeline_sync()
        self._traffic.statements += len(statements)
        return receivers

    async def _receive(
        self, statements: Sequence[Statement | _Preparing], seconds: float = SECONDS
    ) -> None:
        # Do not use `connection.wait`: if cancelled, it would wait until the server has stopped.
        exchange = _exchange(self._pgconn, statements)
        async with asyncio.timeout(seconds):
            await wait_async(exchange, self._pgconn.socket, interval=_WAKE_SECONDS)

    async def is_usable(self) -> bool:
        """True if the link can be used again, as far as can be seen without a round trip."""
        if self._pgconn.status != ConnStatus.OK:
            return False
        if self._owed:
            owed, self._owed = self._owed, []
            try:
                await self._receive(owed)
            except (psycopg.Error, TimeoutError):
                return False
        poller = select.poll()
        poller.register(self._pgconn.socket, select.POLLIN)
        # An idle connection has something to read only if it was closed or is about to be.
        idle = self._pgconn.transaction_status == TransactionStatus.IDLE
        return idle and not poller.poll(0)

    async def undo(self, error: Exception | None = None) -> bool:
        """Roll back an open transaction. Return True if the link can be used again."""
        if self.broken or isinstance(error, _UNUSABLE):
            return False
        try:
            if self._pgconn.status == ConnStatus.OK:
                await self.run((Statement(self.connection, "ROLLBACK"),))
        except (psycopg.Error, TimeoutError):
            return False
        return self._pgconn.status == ConnStatus.OK and self.idle

    @property
    def idle(self) -> bool:
        return bool(self._owed) or self._pgconn.transaction_status == TransactionStatus.IDLE

    async def close(self) -> None:
        await self.connection.close()

    def drop(self) -> None:
        """Close the connection without waiting."""
        self._pgconn.finish()


async def can_prepare(connection: Connection) -> bool:
    """Return True if the statements that a connection prepares stay usable. PgBouncer with
    `max_prepared_statements` renames each statement, and knows which connection has it. A pooler
    that keeps the names does not know which connection has a statement."""
    with driver_errors():
        async with connection.transaction():
            (pid,) = await (await connection.execute("SELECT pg_backend_pid()")).fetchone() or (0,)
            if pid == connection.pgconn.backend_pid:  # there is no pooler
                return True
            try:
                connection.prepare_threshold = 0
                cursor = await connection.execute("SELECT name, 1 FROM pg_prepared_statements")
                names = {name for name, _ in await cursor.fetchall()}
            finally:
                connection.prepare_threshold = None
            our_names = {name for name in names if name.startswith("_pg3_")}
            for name in our_names:
                await connection.execute(f'DEALLOCATE "{name}"')
            return bool(names) and not our_names


async def connect(url: str, *, seconds: float = 10.0) -> Connection:
    """Open a connection in autocommit mode that can encode Recollect's parameters. psycopg must
    prepare no statements on it."""
    server_url = libpq_url(url)
    try:
        options = conninfo_to_dict(server_url)
    except psycopg.ProgrammingError:  # the error's text may quote the URL with its password
        raise StoreError("the URL of PostgreSQL is not valid: check its spelling") from None
    hosts = max(len(str(options.get(name) or "").split(",")) for name in ("host", "hostaddr"))
    limits: dict[str, Any] = {} if hosts == 1 else {"connect_timeout": HOST_SECONDS}
    seconds = max(seconds, 1.0 + HOST_SECONDS * hosts) if hosts > 1 else seconds
    try:
        async with asyncio.timeout(seconds):
            connection: Connection = await psycopg.AsyncConnection.connect(
                make_conninfo(server_url, **{**_KEEPALIVE, **limits, **options}),
                autocommit=True,
                context=adapters(),
                prepare_threshold=None,
            )
    except TimeoutError:
        raise StoreUnavailable(
            f"PostgreSQL cannot be reached: no answer within {seconds:g} seconds"
        ) from None
    except psycopg.OperationalError as error:
        text = f"PostgreSQL cannot be reached: {reason_of(error, server_url)}"
        raise StoreUnavailable(text) from None
    return connection
