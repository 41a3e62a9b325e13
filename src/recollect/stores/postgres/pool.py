"""Connections to one PostgreSQL: a pool, transactions bound to a space, quick refusal when away.

Owns the pool and nothing in the database. What always holds: every transaction names its space
with SET LOCAL before anything else, so nothing is left on a connection that PgBouncer hands to
somebody else next; no statement is prepared on the server unless the URL says `prepare=1`; a
connection the server has closed is never handed out while another can be had.
"""

from __future__ import annotations

import asyncio
import logging
import select
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

from recollect.errors import StoreUnavailable
from recollect.stores.postgres.driver import adapters, driver_errors, psycopg, psycopg_pool

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Cursor = psycopg.AsyncCursor[tuple[Any, ...]]
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

CONNECT_SECONDS: Final = 3
WAIT_SECONDS: Final = 2.0
"""How long it may take to connect before a caller hears that PostgreSQL is away."""
BUSY_SECONDS: Final = 30.0
"""How long a caller waits while all connections are in use."""
PROBE_SECONDS: Final = 0.5
"""While PostgreSQL is away, callers are refused at once and one at a time may try."""
_BEGIN_READ: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN: Final = b"BEGIN"

# The pool logs a warning for every connection it could not make; callers are told by an error.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


class Transaction:
    """A transaction of one space on one connection, in pipeline mode: sending does not wait."""

    __slots__ = ("_connection", "_pipeline", "space_id", "vector_oid")

    def __init__(
        self,
        connection: Connection,
        pipeline: psycopg.AsyncPipeline,
        space_id: UUID,
        vector_oid: int,
    ) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self.space_id = space_id
        self.vector_oid = vector_oid
        """The number of pgvector's type in this database; binary arrays name it."""

    async def send(self, query: LiteralString, parameters: Parameters = ()) -> Cursor:
        """Queue a statement; its rows are read from the cursor when they are needed."""
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(query, parameters)
        return cursor

    async def rows(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return await (await self.send(query, parameters)).fetchall()

    async def row(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> tuple[Any, ...] | None:
        """The first row of a statement."""
        return await (await self.send(query, parameters)).fetchone()

    async def count(self, query: LiteralString, parameters: Parameters = ()) -> int:
        """How many rows a statement changed."""
        cursor = await self.send(query, parameters)
        await self._pipeline.sync()
        return cursor.rowcount


class Pool:
    """A pool of connections of one role."""

    def __init__(self, url: str, *, size: int) -> None:
        address, prepares = split_url(url)
        self._act_as: bytes | None = None
        self.vector_oid = 0
        self._refused_until = 0.0
        # Waiting for a turn here is being busy; waiting for a connection is being cut off.
        self._turns = asyncio.Semaphore(size)
        options = {"options": "-c plan_cache_mode=force_custom_plan"} if prepares else {}
        self._pool: psycopg_pool.AsyncConnectionPool[Connection] = psycopg_pool.AsyncConnectionPool(
            address,
            kwargs={
                "autocommit": True,
                "context": adapters(),
                "prepare_threshold": 5 if prepares else None,
                "connect_timeout": CONNECT_SECONDS,
                **options,
            },
            min_size=0,
            max_size=size,
            open=False,
            check=_still_there,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
        )

    async def open(self) -> None:
        """Start the pool; connections are made when they are needed."""
        await self._pool.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close(timeout=2.0)

    def act_as(self, role: str) -> None:
        """Run every transaction as this role: the URL's own would bypass row-level security."""
        self._act_as = f'SET LOCAL ROLE "{role}"'.encode()

    @asynccontextmanager
    async def transaction(
        self, space_id: UUID, *, read: bool = False
    ) -> AsyncIterator[Transaction]:
        """A transaction of one space, committed at the end; reading sees one moment."""
        named = b"SET LOCAL app.space_id = '%s'" % str(space_id).encode()
        async with self._begun(_BEGIN_READ if read else _BEGIN, named) as (connection, pipeline):
            yield Transaction(connection, pipeline, space_id, self.vector_oid)

    @asynccontextmanager
    async def workers_view(self) -> AsyncIterator[Transaction]:
        """A reading transaction of no space, which may see the names of those with work."""
        async with self._begun(_BEGIN_READ, b"SET LOCAL app.worker = 'on'") as (conn, pipeline):
            yield Transaction(conn, pipeline, UUID(int=0), self.vector_oid)

    @asynccontextmanager
    async def _begun(
        self, begin: bytes, named: bytes
    ) -> AsyncIterator[tuple[Connection, psycopg.AsyncPipeline]]:
        with driver_errors():
            async with self.connection() as connection, connection.pipeline() as pipeline:
                await connection.execute(begin)
                if self._act_as is not None:
                    await connection.execute(self._act_as)
                await connection.execute(named)
                yield connection, pipeline
                await connection.execute(b"COMMIT")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool, or StoreUnavailable soon when PostgreSQL is away."""
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._turns.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL is too busy: no connection was free") from error
        try:
            held = await self._reach()
            try:
                async with held:
                    yield held
            finally:
                await self._pool.putconn(held)
        finally:
            self._turns.release()

    async def _reach(self) -> Connection:
        if time.monotonic() < self._refused_until and not self._idle:
            raise StoreUnavailable("PostgreSQL cannot be reached; tried a moment ago")
        # Others are refused while this one finds out; once it has a connection they may too.
        known_away = self._refused_until > 0.0
        if known_away:
            self._refused_until = time.monotonic() + WAIT_SECONDS
        try:
            held = await self._pool.getconn()
        except psycopg_pool.PoolTimeout:
            self._refused_until = time.monotonic() + PROBE_SECONDS
            raise
        self._refused_until = 0.0
        return held

    @property
    def _idle(self) -> int:
        return int(self._pool.get_stats().get("pool_available", 0))


async def _still_there(connection: Connection) -> None:
    """Refuse a connection that the server has closed; costs no round trip."""
    watched = select.poll()
    watched.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    if watched.poll(0):
        connection.pgconn.consume_input()
        if connection.pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the server closed the connection")


def split_url(url: str) -> tuple[str, bool]:
    """The URL as libpq takes it, and whether statements may be prepared (`prepare=1`)."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    prepares = ("prepare", "1") in given
    kept = urlencode([(name, value) for name, value in given if name != "prepare"])
    scheme = "postgresql" if parts.scheme in ("postgres", "postgresql") else parts.scheme
    return urlunsplit((scheme, parts.netloc, parts.path, kept, "")), prepares
