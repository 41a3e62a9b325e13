"""A fleet: many spaces on one PostgreSQL, behind one pool.

Owns the pool; the stores it hands out own nothing. Never reads what a space holds: across
spaces it knows only which of them have work that is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID
from weakref import WeakValueDictionary

from recollect.stores.postgres.driver import driver_errors
from recollect.stores.postgres.in_files import FileMemo
from recollect.stores.postgres.link import SECONDS
from recollect.stores.postgres.pool import CONNECT_SECONDS, Pool, Transaction, connect
from recollect.stores.postgres.schema import (
    APP_ROLE,
    Server,
    inspect_server,
    migrate,
    require_bound,
)
from recollect.stores.postgres.vectors import EmbedderMemo
from recollect.stores.postgres.wire import plain

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from recollect.stores.postgres.store import PostgresStore

POOL_SIZE: Final = 8

_DUE: Final = """
    SELECT name FROM recollect.spaces WHERE jobs_due_at <= %s ORDER BY jobs_due_at LIMIT %s
"""


def space_uuid(name: str) -> UUID:
    """The key of a space: a hash of its name, so that no table of names is asked first."""
    named = name.encode("utf-8", "surrogatepass")
    return UUID(bytes=blake2b(named, digest_size=16, person=b"recollect-space").digest())


class PostgresFleet:
    """The spaces of one database; `open` it once a process."""

    def __init__(self, pool: Pool, server: Server, *, admin_url: str | None = None) -> None:
        self._pool = pool
        self.server = server
        self.admin_url = admin_url
        self.embedders = EmbedderMemo()
        self.files = FileMemo()
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        pool_size: int = POOL_SIZE,
        create: bool = False,
        app_role: str = APP_ROLE,
        admin_url: str | None = None,
    ) -> Self:
        """Connect as the application's role.

        `create` runs missing migrations first, as the URL's role. A role above row-level
        security is not used as such: every transaction then acts as `app_role`, which must be
        under it. The tables' owner is under it too, so it may be the URL's role.
        """
        if create:
            await migrate(admin_url or url, app_role=app_role)
        with driver_errors():
            async with await connect(url, seconds=CONNECT_SECONDS) as connection:
                server = await inspect_server(connection)
                if server.bypasses:
                    await require_bound(connection, app_role)
        pool = Pool(url, size=pool_size)
        pool.vector_oid = server.vector_oid
        if server.bypasses:
            pool.act_as(app_role)
        if server.bypasses or server.owns:
            admin_url = admin_url or url
        return cls(pool, server, admin_url=admin_url)

    async def space(self, name: str) -> PostgresStore:
        """The memory of a space; closing it leaves the fleet open."""
        from recollect.stores.postgres.store import PostgresStore

        return PostgresStore(self, name)

    async def spaces_with_due_jobs(self, now: float, limit: int = 100) -> tuple[str, ...]:
        """Names of spaces with jobs that may run, the longest waiting first."""
        async with self._pool.workers_view() as view:
            return tuple(plain(name) for (name,) in await view.rows(_DUE, (now, limit)))

    def transaction(
        self, space_id: UUID, *, read: bool = False, seconds: float = SECONDS
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction of one space."""
        return self._pool.transaction(space_id, read=read, seconds=seconds)

    @asynccontextmanager
    async def turn(self, space_id: UUID) -> AsyncIterator[Transaction]:
        """A writing transaction that waits for others of this process without a connection."""
        turns = self._turns.setdefault(space_id, asyncio.Lock())
        async with turns, self._pool.transaction(space_id) as work:
            yield work

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()
