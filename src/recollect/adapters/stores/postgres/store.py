"""Opens spaces in a PostgreSQL database, and reads and writes one space.

`PostgresFleet` owns the pool of connections for all spaces of a database. The fleet's only query
over several spaces asks which spaces have due jobs. `PostgresStore` (`recollect.core.ports.Store`)
runs each operation as one transaction of its space."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary, WeakValueDictionary

from recollect.adapters.stores.postgres import admin, ledger, read, space
from recollect.adapters.stores.postgres import candidates as search
from recollect.adapters.stores.postgres import facts as fact_table
from recollect.adapters.stores.postgres import forget as removal
from recollect.adapters.stores.postgres import jobs as job_queue
from recollect.adapters.stores.postgres import write as writing
from recollect.adapters.stores.postgres.driver import driver_errors
from recollect.adapters.stores.postgres.link import can_prepare, connect
from recollect.adapters.stores.postgres.pool import CONNECT_SECONDS, Pool, Transaction
from recollect.adapters.stores.postgres.schema import (
    APP_ROLE,
    Server,
    inspect_server,
    require_bound,
)
from recollect.adapters.stores.postgres.tenants import TenantRecords
from recollect.core.values.batch import Batch, Lease, WriteResult
from recollect.core.values.history import SpaceId
from recollect.core.values.segment import PassageText
from recollect.core.values.upkeep import CheckResult, ScrubResult, Stats
from recollect.errors import StoreError

POOL_SIZE: Final = 8
"""Not measured; bounds the server's connections (setting `store.pool_size`)."""
P = ParamSpec("P")
T = TypeVar("T")
Operation: TypeAlias = Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, T]]
Work: TypeAlias = Callable[Concatenate[Transaction, P], Awaitable[T]]

_DUE: Final = """
    SELECT name, jobs_due_at FROM recollect.spaces
    WHERE jobs_due_at <= %s ORDER BY jobs_due_at LIMIT %s
"""
_HAS_SPACE: Final = "SELECT name FROM recollect.spaces WHERE space_id = %s"
_MESSAGE_BYTES: Final = """
    SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM recollect.segments WHERE space_id = %s
"""
_RECORDS: Final = "SELECT number, record FROM recollect.secrets ORDER BY number"
_DROP_RECORDS: Final = "DELETE FROM recollect.secrets WHERE record = ANY(%s::bytea[])"
_ADD_RECORD: Final = """
    INSERT INTO recollect.secrets (number, record) VALUES (%s, %s) ON CONFLICT DO NOTHING
"""
_NAMES: Final = "SELECT name FROM recollect.spaces"


def space_uuid(name: str) -> UUID:
    """Hash a space's name to its key, which saves a query."""
    name_bytes = name.encode("utf-8", "surrogatepass")
    return UUID(bytes=blake2b(name_bytes, digest_size=16, person=b"recollect-space").digest())


class PostgresFleet:
    """The spaces of one database. Call `open` once per process."""

    def __init__(self, pool: Pool, server: Server, *, admin_url: str | None = None) -> None:
        self.pool = pool
        self._tenants = TenantRecords(pool)
        self._due_by_node = admin.DueByNode()
        self.server = server
        self.admin_url = admin_url
        self.made: dict[SpaceId, object] = {}
        """Spaces that this process created, each with a mark of its creation. A caller that has
        listed a space removes its entry."""
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def open(cls, url: str, *, pool_size: int = POOL_SIZE, app_role: str = APP_ROLE) -> Self:
        """Connect as the application's role. If row-level security does not apply to the URL's
        role, every transaction acts as `app_role`, to which it must apply. Row-level security also
        applies to the tables' owner, so the URL may name that role."""
        with driver_errors():
            async with await connect(url, seconds=CONNECT_SECONDS) as connection:
                server = await inspect_server(connection)
                if server.bypasses:
                    await require_bound(connection, app_role)
                prepares = await can_prepare(connection)
        pool = Pool(url, size=pool_size)
        pool.prepares = prepares
        pool.vector_oid = server.vector_oid
        if server.bypasses:
            pool.act_as(app_role)
        pool.reads_at_once = not server.bypasses and server.citus is None
        return cls(pool, server, admin_url=url if server.bypasses or server.owns else None)

    async def space(self, name: str) -> PostgresStore:
        """Return the store of a space. Closing this store leaves the fleet open."""
        return PostgresStore(self, name)

    async def spaces_with_due_jobs(
        self, now: float, limit: int = 100, *, every: bool = False
    ) -> admin.DueSpaces:
        """List spaces with jobs that may run, longest waiting first. On Citus, each call asks only
        the next node, unless `every` is true."""
        async with self.pool.workers_view() as view:
            if self.server.citus is not None:
                return await self._due_by_node.ask(view, now, limit, all_nodes=every)
            rows = await view.rows(_DUE, (now, limit))
        oldest = rows[0][1] if rows else None
        return admin.DueSpaces(names=tuple(name for name, _ in rows), oldest_due_at=oldest)

    async def has_space(self, name: str) -> bool:
        key = space_uuid(name)
        async with self.pool.transaction(key, read=True) as work:
            return await work.row(_HAS_SPACE, (key,)) is not None

    async def spaces(self) -> tuple[str, ...]:
        async with self.pool.workers_view() as view:
            return tuple(sorted(name for (name,) in await view.rows(_NAMES)))

    async def secret_records(self) -> dict[int, bytes]:
        """Return the data secret, wrapped once per secret that may open it, by number."""
        async with self.pool.tenant_transaction(None, read=True) as work:
            return dict(await work.rows(_RECORDS))

    async def add_secret_record(self, number: int, record: bytes) -> None:
        """Add a record, unless another process has added one with this number."""
        async with self.pool.tenant_transaction(None) as work:
            await work.send(_ADD_RECORD, (number, record))

    async def drop_secret_records(self, records: Sequence[bytes]) -> None:
        async with self.pool.tenant_transaction(None) as work:
            await work.send(_DROP_RECORDS, ([*records],))

    async def message_bytes(self, name: str) -> int:
        """Return the size of all message texts of a space."""
        key = space_uuid(name)
        async with self.pool.transaction(key, read=True) as work:
            ((size,),) = await work.rows(_MESSAGE_BYTES, (key,))
        return int(size)

    def tenants(self) -> TenantRecords:
        return self._tenants

    @asynccontextmanager
    async def turn(self, space_id: UUID) -> AsyncIterator[Transaction]:
        """Open a write transaction, after this process's other writers have ended theirs."""
        turns = self._turns.setdefault(space_id, asyncio.Lock())
        async with turns, self.pool.transaction(space_id) as work:
            yield work
        if work.made_space:
            self.made[work.space] = object()

    async def close(self) -> None:
        await self.pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@dataclass(slots=True)
class _SharedFleet:
    users: int = 0
    fleet: PostgresFleet | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


_SHARED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _SharedFleet]]] = (
    WeakKeyDictionary()
)
"""Shared fleets by event loop (because a connection belongs to one) and URL."""


def _reads(work: Work[P, T], *, once: bool = False) -> Operation[P, T]:
    """Declare an operation that reads, with one query if `once` is true."""

    async def call(store: PostgresStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with store._reading(once=once) as transaction:
            return await work(transaction, *args, **kwargs)

    return call


def _writes(work: Work[P, T], *, in_turn: bool = True) -> Operation[P, T]:
    """Declare an operation that writes, after this process's other writers if `in_turn` is true."""

    async def call(store: PostgresStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with store._turn() if in_turn else store._writing() as transaction:
            transaction.space = store.space
            return await work(transaction, *args, **kwargs)

    return call


class PostgresStore:
    """The memory of one space. `recollect.core.ports.Store` documents the methods."""

    def __init__(
        self,
        fleet: PostgresFleet,
        space: SpaceId,
        *,
        when_closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Open the store of a space. The store calls `when_closed` once when it closes."""
        self.space = space
        self._id = space_uuid(space)
        self.fleet: PostgresFleet = fleet
        self._when_closed = when_closed
        self._closed = False
        self._moment: Transaction | None = None

    @classmethod
    async def open_shared(cls, url: str, *, space: SpaceId, pool_size: int = POOL_SIZE) -> Self:
        """Open one space of the fleet that all stores of this process with this URL share, so that
        fifty engines need no more connections than one. The last store closes the fleet."""
        fleets = _SHARED.setdefault(asyncio.get_running_loop(), {})
        shared_fleet = fleets.setdefault(url, _SharedFleet())
        shared_fleet.users += 1

        async def leave() -> None:
            shared_fleet.users -= 1
            if not shared_fleet.users:
                fleets.pop(url, None)
                if shared_fleet.fleet is not None:
                    await shared_fleet.fleet.close()

        try:
            async with shared_fleet.opening:
                if shared_fleet.fleet is None:
                    shared_fleet.fleet = await PostgresFleet.open(url, pool_size=pool_size)
        except BaseException:
            await leave()
            raise
        return cls(shared_fleet.fleet, space, when_closed=leave)

    def _reading(self, *, once: bool = False) -> AbstractAsyncContextManager[Transaction]:
        if self._moment is not None:
            return contextlib.nullcontext(self._moment)
        return self._open_fleet().pool.transaction(self._id, read=True, once=once)

    def _writing(self) -> AbstractAsyncContextManager[Transaction]:
        return self._open_fleet().pool.transaction(self._id)

    def _turn(self) -> AbstractAsyncContextManager[Transaction]:
        return self._open_fleet().turn(self._id)

    def _open_fleet(self) -> PostgresFleet:
        if self._closed:
            raise StoreError("this store is closed: open it again")
        return self.fleet

    @asynccontextmanager
    async def moment(self) -> AsyncIterator[Self]:
        """Open a view of this store whose reads see one snapshot and are sent together. The view
        holds a connection, so use no model and no remote embedder in the block."""
        async with self._reading() as work:
            store = type(self)(self.fleet, self.space)
            store._moment = work
            yield store

    async def write(self, batch: Batch) -> WriteResult:
        turn = self._turn()
        if batch.empty and batch.facts_revision is None:
            return WriteResult()
        async with turn as work:
            work.space = self.space
            result, tail = await writing.write_batch(work, batch)
        if tail >= space.PACK_NOW:
            with contextlib.suppress(StoreError):  # the batch is written; packing can wait
                await self.pack()
        return result

    async def pack(self, *, least: int = space.PACK_AFTER) -> int:
        """Pack the newest passages into the inverted index and merge its runs. Return the number of
        steps taken. Jobs of kind "pack" call this method in parallel with other operations. If
        another process changes the index meanwhile, the pack is rolled back."""
        steps = 0
        with contextlib.suppress(space.IndexMoved):
            async with self._writing() as work:
                steps += await space.pack_tail(work, least=least)
            while True:
                async with self._writing() as work:
                    if not await space.merge_runs(work):
                        break
                steps += 1
        return steps

    async def unembedded(self, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
        async with self._reading() as work:
            passages, upto = await read.find_unembedded(work, embedder, limit=limit)
        if upto:
            async with self._writing() as work:
                await read.note_complete(work, embedder, upto)
        return passages

    session: Final = _reads(read.read_session, once=True)
    sessions: Final = _reads(read.list_sessions)
    candidates: Final = _reads(search.find_candidates)
    around: Final = _reads(search.find_surroundings)
    segments: Final = _reads(read.read_segments, once=True)
    known: Final = _reads(read.find_known, once=True)
    tombstoned: Final = _reads(read.find_tombstones, once=True)
    page: Final = _reads(read.read_page)
    passages: Final = _reads(read.read_passages)
    replace_passages: Final = _writes(writing.replace_passages)
    vectors: Final = _reads(read.read_vectors)
    withdraw: Final = _writes(removal.withdraw)
    facts: Final = _reads(fact_table.read_facts)
    fact_candidates: Final = _reads(fact_table.find_fact_candidates)
    facts_revision: Final = _reads(fact_table.read_revision)
    unembedded_facts: Final = _reads(fact_table.find_unembedded_facts)
    extracted_to: Final = _reads(fact_table.read_position)

    claim: Final = _writes(job_queue.claim)
    heartbeat: Final = _writes(job_queue.heartbeat, in_turn=False)
    fail: Final = _writes(job_queue.fail)
    jobs: Final = _reads(job_queue.list_jobs)
    queue: Final = _reads(job_queue.read_queue)
    add_model_use: Final = _writes(job_queue.add_model_use, in_turn=False)
    model_use: Final = _reads(job_queue.read_model_use)
    pause: Final = _writes(job_queue.pause, in_turn=False)
    resume: Final = _writes(job_queue.resume, in_turn=False)
    revive: Final = _writes(job_queue.revive)

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        try:
            async with self._turn() as work:
                work.space = self.space
                take_query = await job_queue.take_job(work, lease)
                await writing.write_batch(work, batch, only_if=take_query)
                await job_queue.store_due_at(work)
        except writing.NothingTaken:
            return False
        return True

    turns: Final = _reads(ledger.list_turns)
    turn: Final = _reads(ledger.rebuild_turn)
    records: Final = _reads(ledger.list_records)
    quoting: Final = _reads(ledger.find_rows_about)
    pieces: Final = _reads(ledger.read_pieces)
    compactions: Final = _reads(ledger.read_compactions)
    expire: Final = _writes(removal.expire)

    forget: Final = _writes(removal.forget)
    bodies: Final = _reads(removal.read_bodies)
    rewrite: Final = _writes(removal.rewrite)

    delete: Final = _writes(space.delete_space)

    async def scrub(self, admin_url: str | None = None) -> ScrubResult:
        """As the tables' owner, rewrite the data files that may contain what this space removed."""
        async with self._reading() as work:
            ((removed_at,),) = await work.rows(space.REMOVED_AT, (work.space_id,))
        return await admin.scrub(admin_url or self._open_fleet().admin_url, removed_at)

    async def check(self) -> CheckResult:
        fleet = self._open_fleet()
        async with fleet.pool.transaction(self._id, read=True, seconds=read.CHECK_SECONDS) as work:
            return await read.check(work)

    async def stats(self) -> Stats:
        async with self._reading() as work:
            return await read.read_stats(work, space=self.space, engine=self.fleet.server.engine)

    async def close(self) -> None:
        """Close the fleet if this store opened it; otherwise do nothing."""
        closing, self._closed = not self._closed, True
        if closing and self._when_closed is not None:
            await self._when_closed()
