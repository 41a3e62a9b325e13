"""Connections to one PostgreSQL: a few links, transactions bound to a space, quick refusal.

Owns the links and nothing in the database; it has no task of its own that could outlive the
event loop. What always holds: every transaction names its space with SET LOCAL before anything
else, so nothing is left on a connection that PgBouncer hands to somebody else next; no statement
is prepared on the server; a link the server has closed is not handed out; while PostgreSQL is
away callers are refused at once, and one at a time tries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString
from uuid import UUID

from recollect.errors import StoreError, StoreUnavailable
from recollect.stores.postgres.driver import (
    adapters,
    conninfo_to_dict,
    driver_errors,
    make_conninfo,
    psycopg,
    reason_of,
)
from recollect.stores.postgres.link import SECONDS, Connection, Link, Parameters, Statement

CONNECT_SECONDS: Final = 5.0
"""How long it may take to connect before a caller hears that PostgreSQL is away."""
BUSY_SECONDS: Final = 30.0
"""How long a caller waits while all connections are in use."""
PROBE_SECONDS: Final = 0.5
"""After a failure, how long nobody tries to connect."""
_KEEPALIVE: Final = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A server that is gone without a word is noticed; a URL may name others of these."""
_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN: Final = "BEGIN"


class Cursor:
    """The rows of a statement of a transaction; asking for them sends what is queued."""

    __slots__ = ("_statement", "_work")

    def __init__(self, work: Transaction, statement: Statement) -> None:
        self._work = work
        self._statement = statement

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        await self._work.flush(self._statement)
        return self._statement.rows()

    async def fetchone(self) -> tuple[Any, ...] | None:
        """The first row."""
        rows = await self.fetchall()
        return rows[0] if rows else None


class Transaction:
    """A transaction of one space on one connection; a statement waits until rows are asked for."""

    __slots__ = ("_link", "_queue", "_seconds", "space_id", "vector_oid")

    def __init__(
        self, link: Link, space_id: UUID, vector_oid: int, *, seconds: float = SECONDS
    ) -> None:
        self._link = link
        self._seconds = seconds
        self._queue: list[Statement] = []
        self.space_id = space_id
        self.vector_oid = vector_oid
        """The number of pgvector's type in this database; binary arrays name it."""

    async def send(self, query: LiteralString, parameters: Parameters = ()) -> Cursor:
        """Queue a statement."""
        return self._add(query, parameters)

    def _add(self, query: str, parameters: Parameters = ()) -> Cursor:
        statement = Statement(self._link.connection, query, parameters)
        self._queue.append(statement)
        return Cursor(self, statement)

    async def rows(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return await self._add(query, parameters).fetchall()

    async def row(
        self, query: LiteralString, parameters: Parameters = ()
    ) -> tuple[Any, ...] | None:
        """The first row of a statement."""
        return await self._add(query, parameters).fetchone()

    async def flush(self, wanted: Statement | None = None) -> None:
        """Run what is queued, unless the wanted statement has run already."""
        if wanted is not None and wanted.done:
            return
        queued, self._queue = self._queue, []
        await self._link.run(queued, seconds=self._seconds)

    def begin(self, *statements: str) -> None:
        """Queue how the transaction begins."""
        for statement in statements:
            self._add(statement)

    async def end(self, *, wait: bool) -> None:
        """Commit; without waiting where nothing was written."""
        self._add("COMMIT")
        if wait:
            await self.flush()
        else:
            queued, self._queue = self._queue, []
            self._link.leave(queued)


class Pool:
    """Links of one role, at most `size` of them."""

    def __init__(self, url: str, *, size: int) -> None:
        self._url = libpq_url(url)
        self._role: tuple[str, ...] = ()
        self._idle: list[Link] = []
        self._refused_until = 0.0
        self._refused_for = ""
        self._closed = False
        # Waiting for a turn here is being busy; waiting for a connection is being cut off.
        self._turns = asyncio.Semaphore(size)
        self.vector_oid = 0

    def act_as(self, role: str) -> None:
        """Run every transaction as this role: the URL's own would bypass row-level security."""
        quoted = role.replace('"', '""')
        self._role = (f'SET LOCAL ROLE "{quoted}"',)

    async def close(self) -> None:
        """Close the links; those in use are closed when they come back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def transaction(
        self, space_id: UUID, *, read: bool = False, seconds: float = SECONDS
    ) -> AsyncIterator[Transaction]:
        """A transaction of one space, committed at the end; reading sees one moment.

        `seconds` is how long the server may take over what it is asked at once.
        """
        with driver_errors(writing=not read):
            async with self._link() as link:
                work = Transaction(link, space_id, self.vector_oid, seconds=seconds)
                work.begin(
                    _BEGIN_READ if read else _BEGIN,
                    *self._role,
                    f"SET LOCAL app.space_id = '{space_id}'",
                )
                yield work
                await work.end(wait=not read)

    @asynccontextmanager
    async def workers_view(self) -> AsyncIterator[Transaction]:
        """A reading transaction of no space, which may see the names of those with work."""
        with driver_errors():
            async with self._link() as link:
                work = Transaction(link, UUID(int=0), self.vector_oid)
                work.begin(_BEGIN_READ, *self._role, "SET LOCAL app.worker = 'on'")
                yield work
                await work.end(wait=False)

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[Link]:
        """A link; what did not end in order is undone."""
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._turns.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL is too busy: no connection was free") from error
        try:
            link = await self._reach()
            try:
                yield link
            except BaseException as error:
                # A cancelled caller left results unread; closing undoes the transaction too.
                if isinstance(error, Exception) and await link.undo():
                    self._idle.append(link)
                else:
                    await link.close()
                raise
            if self._closed or not link.idle:
                await link.close()
            else:
                self._idle.append(link)
        finally:
            self._turns.release()

    async def _reach(self) -> Link:
        """An idle link that lives, or a new one."""
        if self._closed:
            raise StoreUnavailable("the fleet is closed")
        while self._idle:
            link = self._idle.pop()
            try:
                usable = await link.usable()
            except BaseException:  # cancelled while it waited: nobody else knows of this link
                await link.close()
                raise
            if usable:
                return link
            await link.close()
        now = time.monotonic()
        if now < self._refused_until:
            raise StoreUnavailable(f"{self._refused_for}; tried a moment ago")
        if self._refused_until:  # it was away: others are refused while this one finds out
            self._refused_until = now + CONNECT_SECONDS
        try:
            connection = await connect(self._url, seconds=CONNECT_SECONDS)
        except StoreUnavailable as error:
            self._refused_until = time.monotonic() + PROBE_SECONDS
            self._refused_for = str(error)
            raise
        self._refused_until = 0.0
        return Link(connection)


async def connect(url: str, *, seconds: float = 10.0) -> Connection:
    """A connection in autocommit that prepares nothing and knows our parameters."""
    taken = libpq_url(url)
    try:
        named = conninfo_to_dict(taken)
    except psycopg.ProgrammingError:  # its text may quote the URL, password and all
        raise StoreError("the URL of PostgreSQL cannot be read: check how it is written") from None
    try:
        async with asyncio.timeout(seconds):
            made: Connection = await psycopg.AsyncConnection.connect(
                make_conninfo(taken, **{**_KEEPALIVE, **named}),
                autocommit=True,
                context=adapters(),
                prepare_threshold=None,
            )
    except TimeoutError:
        raise StoreUnavailable(
            f"PostgreSQL cannot be reached: no answer within {seconds:g} seconds"
        ) from None
    except psycopg.OperationalError as error:
        told = f"PostgreSQL cannot be reached: {reason_of(error, taken)}"
        raise StoreUnavailable(told) from None
    return made


def libpq_url(url: str) -> str:
    """The URL as libpq takes it: it knows `postgres://` and `postgresql://` only."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql://{rest}" if separator and scheme.startswith("postgres") else url
