"""The open memories of a node, one per space of a tenant, over one connection pool. Each request
loads its session, and stores the session at the end, so any node can serve the next request. A
memory is found by tenant and name, and only the key decides the tenant."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from recollect.adapters.wiring import data_secret, open_fleet, open_memory
from recollect.adapters.wiring.models import choose_embedders
from recollect.core.boundary import Failure, attempted
from recollect.core.engine import Engine
from recollect.core.ports import Embedder, Store
from recollect.core.upkeep.forget import delete_space
from recollect.core.upkeep.searching_thread import pause_share
from recollect.core.values.tenant import KeyScope, Tenant, tenant_space
from recollect.errors import SchemaMismatch, SchemaState, StoreUnavailable, WrongSecret
from recollect.hosts.memories import MemoryPool, OpenMemory
from recollect.hosts.service.limits import Budgets, quota_reached
from recollect.hosts.service.models import NotReady
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.system.config import Settings
from recollect.system.telemetry import without_telemetry

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.pool import Pool
    from recollect.adapters.stores.postgres.store import PostgresFleet, PostgresStore
    from recollect.adapters.stores.postgres.tenants import TenantRecords

T = TypeVar("T")

LOG: Final = logging.getLogger("recollect")
CLOSE_SECONDS: Final = 5.0  # not measured; bounds how long a stop may take
SPARE_CONNECTIONS: Final = 4
"""Number of connections for keys, budgets and idempotency keys; requests have their own."""
MOST_SECONDS: Final = 120.0
"""Maximum value of X-Request-Timeout."""
OPEN_SPACES: Final = 512
"""Maximum number of memories that a node has open. The node closes the least recently used."""
LISTED_SPACES: Final = 100_000
"""Maximum number of spaces that a node remembers as listed under their tenant."""
PAUSE_SHARE: Final = 2.0
"""Searching all stored data takes a third of a processor. Without pauses, the p99 of other tenants
grew by two thirds, because of Python's lock; with them by a third (two busy cores)."""
PROBE_SECONDS: Final = 1.0
"""Time for which a node caches the result of its check of the database."""
DISK_SECONDS: Final = 5.0
"""Interval at which readiness checks try to write to the server's disk."""
_FIRST_WORDS: Final = "Which key opens the harbour gate, and who has it?"
OPEN_AGAIN_SECONDS: Final = 1.0  # not measured; spares a database that is down
NO_SPACE: Final = "the tenant has no space with this name"
MEASURE_SECONDS: Final = 60.0
"""Interval at which a node measures a space that clients write to."""
_MISMATCHES: Final[dict[SchemaState, NotReady]] = {
    "missing": "schema-missing",
    "old": "schema-old",
    "new": "schema-new",
}


@dataclass(slots=True, eq=False)
class TenantMemory(OpenMemory):
    """The open memory of a tenant's space."""

    measured_at: float = 0.0
    """Time of the last measurement of the space's size, by the monotonic clock."""
    turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    @asynccontextmanager
    async def session(self, session: str) -> AsyncIterator[None]:
        """Run a session's requests on this node one by one, and release the session after each."""
        async with self.turns.setdefault(session, asyncio.Lock()):
            try:
                yield
            finally:
                self.engine.parts.sessions.abandon(session)


class TenantMemories:
    """The database of a service, and the node's open memories."""

    def __init__(self, settings: Settings, url: str) -> None:
        # A batch is in the database when its request is answered. Stopping earlier and writing it
        # again from a spool would double the work of an overloaded node.
        patience = max(settings.store.write_seconds, MOST_SECONDS)
        store = replace(settings.store, write_seconds=patience)
        # Jobs may take seconds of CPU time, and in this process would delay every request.
        jobs = replace(settings.jobs, in_process=settings.jobs.in_process and settings.serve.jobs)
        self._settings = replace(settings.across_sessions(), store=store, jobs=jobs)
        self._url = url
        self._fleet: PostgresFleet | None = None
        self._opening = asyncio.Lock()
        self._failed_at = -OPEN_AGAIN_SECONDS
        self._mismatch: SchemaMismatch | WrongSecret | None = None
        self._memories: MemoryPool[tuple[UUID, str], TenantMemory] = MemoryPool(
            self._open, most_open=OPEN_SPACES, idle_seconds=0.0
        )
        self._probe: asyncio.Task[NotReady | Failure | None] | None = None
        self._probed_at = 0.0
        self._disk_checked_at = 0.0
        self._listed_spaces: OrderedDict[tuple[UUID, str], None] = OrderedDict()
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self.budgets: Budgets = Budgets()
        self._embedders: Sequence[Embedder] | None = None
        """The chosen embedders, once they are loaded, so that opening a memory stays fast."""

    async def fleet(self) -> PostgresFleet:
        """Return the spaces of the database. Raise StoreError if the database is down."""
        if self._fleet is not None:
            return self._fleet
        loop = asyncio.get_running_loop()
        async with self._opening:
            if self._fleet is None:
                if loop.time() - self._failed_at < OPEN_AGAIN_SECONDS:
                    raise self._mismatch or StoreUnavailable("the database was down a moment ago")
                size = self._settings.serve.concurrency + SPARE_CONNECTIONS
                self._failed_at, self._mismatch = loop.time(), None
                try:
                    self._fleet = await open_fleet(self._url, pool_size=size, makes_ids=True)
                except (SchemaMismatch, WrongSecret) as mismatch:
                    self._mismatch = mismatch
                    raise
                self._failed_at = -OPEN_AGAIN_SECONDS
        return self._fleet

    @property
    def pool(self) -> Pool | None:
        return None if self._fleet is None else self._fleet.pool

    @property
    def secret(self) -> bytes:
        """The database's data secret, which is the same on all nodes, also during a rotation."""
        return b"" if self._fleet is None else data_secret(self._url)

    @property
    def open_memories(self) -> int:
        return len(self._memories.keys)

    async def records(self) -> TenantRecords:
        return (await self.fleet()).tenants()

    async def store(self, tenant: UUID, space: str) -> PostgresStore:
        pause_share.set(PAUSE_SHARE)  # for this request, which may search all of the store
        return await (await self.fleet()).space(tenant_space(tenant, space))

    async def warm_up(self) -> None:
        """Load the models and modules that the first request needs, without using the network."""
        choice = await asyncio.to_thread(choose_embedders, self._settings)
        self._embedders = None if choice.lacking else choice.used
        local = [embedder for embedder in choice.used if embedder.kind != "remote"]
        for embedder in local:
            await embedder.embed((_FIRST_WORDS,))
        engine = Engine(self._settings)
        request = {"messages": [{"role": "user", "content": _FIRST_WORDS}]}
        with without_telemetry():
            await engine.prepare("warm-up", request)
            await engine.close()

    def memory(self, tenant: UUID, space: str) -> AbstractAsyncContextManager[TenantMemory]:
        """Return the memory of a tenant's space, which stays open while the block runs."""
        return self._memories.use((tenant, space))

    def _open(self, key: tuple[UUID, str]) -> TenantMemory:
        return TenantMemory(
            open_memory(
                space=tenant_space(*key),
                store=self._url,
                settings=self._settings,
                off_the_loop=True,
                embedders=self._embedders,
                open_space=self._space_of_fleet,
            )
        )

    async def _space_of_fleet(self, space: str) -> Store:
        return await (await self.fleet()).space(space)

    @asynccontextmanager
    async def use(
        self, tenant: Tenant, space: str, scope: KeyScope, *, creates: bool = True
    ) -> AsyncIterator[TenantMemory]:
        """Return the memory of a tenant's space for work of this scope, while the block runs. A
        "write" obeys the quotas and, with `creates`, creates a missing space. If the space was
        deleted meanwhile, a write lists the space again, because it may have stored data."""
        key, fleet = (tenant.id, space), await self.fleet()
        if scope == "write":
            measure = partial(self._write_size, *key)
            await self.budgets.check_bytes(tenant, fleet.tenants(), measure)
        if scope != "write" or (not creates and key not in self._listed_spaces):
            await self.require(tenant.id, space)
        async with self.memory(*key) as memory:
            if scope == "write" and key not in self._listed_spaces:
                await self._list(tenant, space)
            if scope == "read":
                yield memory
                return
            listing: asyncio.Task[None] | None = None
            ended = False
            try:
                yield memory
                ended = True
            finally:
                if not ended or tenant_space(*key) in fleet.made:
                    listing = self.start_background(self._list_again(tenant, space))
                self._measure(tenant, space, memory, now=scope == "forget")
            if listing is not None:
                await asyncio.shield(listing)

    async def require(self, tenant: UUID, space: str) -> None:
        """Raise a Problem if the tenant has no such space."""
        if not await (await self.records()).has_space(tenant, space):
            raise Problem(ProblemKind.NOT_FOUND, NO_SPACE)

    async def _list(self, tenant: Tenant, space: str) -> None:
        """List a space under its tenant. Raise a Problem if a quota forbids a new space."""
        records = await self.records()
        is_listed = await records.has_space(tenant.id, space)  # reading is cheaper than adding
        if not is_listed and not await records.add_space(tenant, space, at=time.time()):
            if not await (await self.fleet()).has_space(tenant_space(tenant.id, space)):
                raise quota_reached("spaces", tenant) if tenant.most_spaces else _tenant_deleted()
            await self._list_again(tenant, space)
        self._note_listed(tenant.id, space)

    async def _list_again(self, tenant: Tenant, space: str) -> None:
        """List a space with data, whatever the quota; delete the data of a deleted tenant."""
        fleet, space_name = await self.fleet(), tenant_space(tenant.id, space)
        self._listed_spaces.pop((tenant.id, space), None)
        mark = fleet.made.get(space_name)
        has_data = mark is not None or await fleet.has_space(space_name)
        is_listed = await fleet.tenants().add_space(
            tenant, space, at=time.time(), limited=not has_data
        )
        if has_data and not is_listed:
            await delete_space(await fleet.space(space_name), name=space, now=time.time())
        if fleet.made.get(space_name) is mark:
            fleet.made.pop(space_name, None)
        if not is_listed:
            raise _tenant_deleted()
        self._note_listed(tenant.id, space)

    def _note_listed(self, tenant: UUID, space: str) -> None:
        self._listed_spaces[tenant, space] = None
        if len(self._listed_spaces) > LISTED_SPACES:
            self._listed_spaces.popitem(last=False)

    def _measure(self, tenant: Tenant, space: str, memory: TenantMemory, *, now: bool) -> None:
        """Count the bytes of a space if the tenant has a quota: at once, or once per minute."""
        measured_at = time.monotonic()
        is_old = not memory.measured_at or measured_at - memory.measured_at >= MEASURE_SECONDS
        if tenant.most_bytes is not None and (now or is_old):
            if not now:  # after a removal, the next write is measured too
                memory.measured_at = measured_at
            self.start_background(self._write_size(tenant.id, space))

    async def _write_size(self, tenant: UUID, space: str) -> None:
        fleet = await self.fleet()
        size = await fleet.message_bytes(tenant_space(tenant, space))
        await fleet.tenants().set_bytes(tenant, space, size)

    async def drop(self, tenant: UUID, space: str) -> None:
        """Close the memory of a deleted space, and wait until it stores nothing more."""
        self._listed_spaces.pop((tenant, space), None)
        if closing := self._memories.drop((tenant, space)):
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)

    def start_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work for which no request waits. `close` waits for the work for a limited time."""
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._background_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.debug("background work of a request failed: %s", type(error).__name__)

    async def not_ready(self) -> NotReady | None:
        """Return why the database cannot be used, or None, with at most one query per second."""
        now = asyncio.get_running_loop().time()
        probe = self._probe
        if probe is None or (probe.done() and now - self._probed_at > PROBE_SECONDS):
            work = asyncio.wait_for(self._find_obstacle(), CLOSE_SECONDS)
            probe = self._probe = asyncio.create_task(attempted(work))
            probe.add_done_callback(self._note_probed)
        result = await asyncio.shield(probe)  # other callers wait even if the first one disconnects
        return "unreachable" if isinstance(result, Failure) else result

    def _note_probed(self, probe: asyncio.Task[NotReady | Failure | None]) -> None:
        self._probed_at = probe.get_loop().time()

    async def _find_obstacle(self) -> NotReady | None:
        try:
            fleet = await self.fleet()
            await fleet.tenants().tenant(UUID(int=0))
        except SchemaMismatch as mismatch:
            return _MISMATCHES[mismatch.state]
        except WrongSecret:
            return "secret-wrong"
        now = time.monotonic()
        if now - self._disk_checked_at > DISK_SECONDS:
            self._disk_checked_at = now
            with suppress(StoreUnavailable):
                await fleet.pool.check_disk()
        return "disk-full" if fleet.pool.disk_is_full else None

    async def close(self) -> None:
        """Finish pending writes, and close the memories and the database."""
        if self._background_tasks:
            await asyncio.wait(self._background_tasks, timeout=CLOSE_SECONDS)
        await self._memories.close()
        if self._fleet is not None:
            await self._fleet.close()


def _tenant_deleted() -> Problem:
    return Problem(ProblemKind.UNAUTHORIZED, "the tenant of this key was deleted")
