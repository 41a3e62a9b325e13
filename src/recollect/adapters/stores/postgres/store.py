"""A fleet of spaces on one PostgreSQL behind one pool, and the memory of one space.

`PostgresFleet` owns the pool and never reads what a space holds: across spaces it knows only which
of them have work that is due. `PostgresStore` is `recollect.core.ports.Store`, each method one
transaction; what it does stands in the module of its name. Always holds: every transaction of a
store names its space and no other, and errors of the driver come out as ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID
from weakref import WeakKeyDictionary, WeakValueDictionary

from recollect.adapters.stores.postgres import (
    candidates,
    check,
    fact_candidates,
    facts,
    forget,
    jobs,
    ledger,
    moves,
    postings,
    read,
    rewrite,
    scrub,
    space,
    write,
)
from recollect.adapters.stores.postgres.citus import DueSpaces, due_by_shard
from recollect.adapters.stores.postgres.driver import driver_errors
from recollect.adapters.stores.postgres.pool import (
    CONNECT_SECONDS,
    SECONDS,
    Pool,
    Traffic,
    Transaction,
    connect,
)
from recollect.adapters.stores.postgres.roles import APP_ROLE, require_bound
from recollect.adapters.stores.postgres.schema import Server, inspect_server, migrate
from recollect.adapters.stores.postgres.tenants import TenantRecords
from recollect.core.values.batch import Batch, StoredSession, WriteResult
from recollect.core.values.history import SessionId, SpaceId
from recollect.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from recollect.core.values.batch import (
        JobRecord,
        Lease,
        LedgerPiece,
        PieceHash,
        QueueState,
        RebuiltTurn,
    )
    from recollect.core.values.compaction import CompactionRecord
    from recollect.core.values.fact import Fact, FactId, FactText
    from recollect.core.values.message import MessageId
    from recollect.core.values.model import ModelUse
    from recollect.core.values.recall import (
        CandidateQuery,
        Candidates,
        FactCandidates,
        FactQuery,
        Surroundings,
    )
    from recollect.core.values.segment import (
        NewPassage,
        PassageText,
        SegmentId,
        StoredSegment,
        Vector,
    )
    from recollect.core.values.upkeep import (
        BodyKind,
        CheckResult,
        ForgetOrder,
        Forgotten,
        RewriteOrder,
        Rewritten,
        ScrubResult,
        SessionSummary,
        Stats,
        StoredBody,
    )

POOL_SIZE: Final = 8

_DUE: Final = """
    SELECT name, jobs_due_at FROM recollect.spaces
    WHERE jobs_due_at <= %s ORDER BY jobs_due_at LIMIT %s
"""
_HAS_SPACE: Final = "SELECT name FROM recollect.spaces WHERE space_id = %s"
_NAMES: Final = """
    SELECT name FROM recollect.spaces WHERE space_id > %s ORDER BY space_id LIMIT %s
"""


def space_uuid(name: str) -> UUID:
    """The key of a space: a hash of its name, so that no table of names is asked first."""
    named = name.encode("utf-8", "surrogatepass")
    return UUID(bytes=blake2b(named, digest_size=16, person=b"recollect-space").digest())


class PostgresFleet:
    """The spaces of one database; `open` it once a process."""

    def __init__(self, pool: Pool, server: Server, *, admin_url: str | None = None) -> None:
        self._pool = pool
        self._tenants = TenantRecords(pool)
        self.server = server
        self.admin_url = admin_url
        self.memos = candidates.SearchMemos()
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

        return PostgresStore(self, name)

    async def spaces_with_due_jobs(self, now: float, limit: int = 100) -> DueSpaces:
        """Spaces with jobs that may run, the longest waiting first.

        Where a node of Citus is away the others are asked one by one, and it is named.
        """
        try:
            async with self._pool.workers_view() as view:
                rows = await view.rows(_DUE, (now, limit))
            oldest = rows[0][1] if rows else None
            return DueSpaces(names=tuple(name for name, _ in rows), oldest_due_at=oldest)
        except StoreUnavailable:
            if self.server.citus is None:
                raise
            try:
                async with self._pool.workers_view() as view:
                    due = await due_by_shard(view, now, limit)
            except StoreError:
                due = None
            if due is None or not due.unreached:  # it is not a node that is away
                raise
            return due

    async def has_space(self, name: str) -> bool:
        """Whether something was ever written to a space of this name."""
        key = space_uuid(name)
        async with self._pool.transaction(key, read=True) as work:
            return await work.row(_HAS_SPACE, (key,)) is not None

    async def spaces(self) -> tuple[str, ...]:
        """Names of all spaces."""
        return tuple(sorted(await self.next_spaces()))

    async def next_spaces(
        self, after: str | None = None, *, limit: int | None = None
    ) -> tuple[str, ...]:
        """Names of spaces beyond one, in the order of their keys: to walk through many."""
        last = UUID(int=0) if after is None else space_uuid(after)
        async with self._pool.workers_view() as view:
            return tuple(name for (name,) in await view.rows(_NAMES, (last, limit)))

    def transaction(
        self, space_id: UUID, *, read: bool = False, seconds: float = SECONDS
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction of one space."""
        return self._pool.transaction(space_id, read=read, seconds=seconds)

    def tenants(self) -> TenantRecords:
        """Who may ask for which space, for a service."""
        return self._tenants

    @asynccontextmanager
    async def turn(self, space_id: UUID) -> AsyncIterator[Transaction]:
        """A writing transaction that waits for others of this process without a connection."""
        turns = self._turns.setdefault(space_id, asyncio.Lock())
        async with turns, self._pool.transaction(space_id) as work:
            yield work

    @property
    def pool(self) -> Pool:
        """The connections, for who measures them."""
        return self._pool

    @property
    def traffic(self) -> Traffic:
        """What was sent to the server so far."""
        return self._pool.traffic

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()


@dataclass(slots=True)
class _SharedFleet:
    """A fleet with who uses it; None until the first has opened it."""

    users: int = 0
    fleet: PostgresFleet | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


_SHARED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _SharedFleet]]] = (
    WeakKeyDictionary()
)
"""By event loop, to which connections belong, and URL."""


class PostgresStore:
    """The memory of one space; see `recollect.core.ports.Store` for what each method promises."""

    def __init__(
        self,
        fleet: PostgresFleet,
        space: SpaceId,
        *,
        closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`closed` is told once when it closes: the fleet may be its own."""
        self.space = space
        self._id = space_uuid(space)
        self._fleet = fleet
        self._when_closed = closed
        self._closed = False
        self._moment: Transaction | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        space: SpaceId,
        pool_size: int = POOL_SIZE,
        create: bool = False,
        admin_url: str | None = None,
    ) -> Self:
        """One space with a fleet of its own; `close` closes both."""
        fleet = await PostgresFleet.open(
            url, pool_size=pool_size, create=create, admin_url=admin_url
        )
        return cls(fleet, space, closed=fleet.close)

    @classmethod
    async def open_shared(cls, url: str, *, space: SpaceId, pool_size: int = POOL_SIZE) -> Self:
        """One space of the fleet that all of this process and URL share, opened with the first
        of them and closed with the last: fifty engines need no more connections than one."""
        fleets = _SHARED.setdefault(asyncio.get_running_loop(), {})
        shared = fleets.setdefault(url, _SharedFleet())
        shared.users += 1

        async def leave() -> None:
            shared.users -= 1
            if not shared.users:
                fleets.pop(url, None)
                if shared.fleet is not None:
                    await shared.fleet.close()

        try:
            async with shared.opening:
                if shared.fleet is None:
                    shared.fleet = await PostgresFleet.open(url, pool_size=pool_size)
        except BaseException:
            await leave()
            raise
        return cls(shared.fleet, space, closed=leave)

    def _reading(self) -> AbstractAsyncContextManager[Transaction]:
        if self._moment is not None:
            return contextlib.nullcontext(self._moment)
        return self._open_fleet().transaction(self._id, read=True)

    @asynccontextmanager
    async def moment(self) -> AsyncIterator[Self]:
        """This store, all reads of which see one moment, in one transaction.

        What is asked beside each other is sent at once. A connection is in use until the end:
        nobody else is asked meanwhile, no model and no embedder.
        """
        async with self._reading() as work:
            store = type(self)(self._fleet, self.space)
            store._moment = work
            yield store

    def _writing(self) -> AbstractAsyncContextManager[Transaction]:
        return self._open_fleet().transaction(self._id)

    def _turn(self) -> AbstractAsyncContextManager[Transaction]:
        return self._open_fleet().turn(self._id)

    def _open_fleet(self) -> PostgresFleet:
        if self._closed:
            raise StoreError("this store is closed: open it again")
        return self._fleet

    # Archive

    async def write(self, batch: Batch) -> WriteResult:
        """Write a batch, all of it or nothing."""
        turn = self._turn()
        if batch.empty and batch.facts_revision is None:
            return WriteResult()
        async with turn as work:
            written, tail = await write.write_batch(work, batch, self.space)
        if tail >= postings.PACK_NOW:
            with contextlib.suppress(StoreError):  # it is written; packing can wait
                await self.pack()
        return written

    async def pack(self, *, least: int = postings.PACK_AFTER) -> int:
        """Pack the newest passages into the inverted index and merge its runs; steps taken.

        The effect of a job of kind "pack". May run beside anything: what loses a race is undone.
        """
        steps = 0
        with contextlib.suppress(postings.IndexMoved):
            async with self._writing() as work:
                steps += await postings.pack_tail(work, least=least)
            while True:
                async with self._writing() as work:
                    if not await postings.merge_runs(work):
                        break
                steps += 1
        return steps

    async def session(self, session: SessionId) -> StoredSession | None:
        """What is remembered of a session."""
        async with self._reading() as work:
            return await read.session(work, session)

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """The sessions that have segments, oldest first."""
        async with self._reading() as work:
            return await read.sessions(work)

    async def candidates(self, query: CandidateQuery) -> Candidates:
        """What may answer the query, with what scoring it needs."""
        async with self._reading() as work:
            return await candidates.find(work, self._fleet.memos, query)

    async def around(
        self,
        ids: Sequence[SegmentId],
        query: CandidateQuery,
        *,
        reach: int = 2,
        passages_each: int = 3,
    ) -> Surroundings:
        """The segments up to `reach` places before and behind each of these in its session."""
        async with self._reading() as work:
            return await candidates.around(
                work, ids, query, reach=reach, passages_each=passages_each
            )

    async def segments(self, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
        """These segments, in this order."""
        async with self._reading() as work:
            return await read.segments(work, ids)

    async def known(self, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
        """Which of these are stored."""
        async with self._reading() as work:
            return await read.known(work, ids)

    async def tombstoned(self, ids: Iterable[MessageId]) -> frozenset[MessageId]:
        """Which of these identities were forgotten."""
        async with self._reading() as work:
            return await read.tombstoned(work, ids)

    async def page(
        self,
        *,
        after: int = 0,
        limit: int = 500,
        session: SessionId | None = None,
        descending: bool = False,
    ) -> tuple[StoredSegment, ...]:
        """Segments in the order of arrival."""
        async with self._reading() as work:
            return await read.page(
                work, after=after, limit=limit, session=session, descending=descending
            )

    async def passages(self, id: SegmentId) -> tuple[NewPassage, ...]:  # noqa: A002
        """The spans of a segment that are indexed."""
        async with self._reading() as work:
            return await read.passages(work, id)

    async def replace_passages(
        self,
        passages: Mapping[SegmentId, tuple[NewPassage, ...]],
        *,
        at: float,  # noqa: ARG002 - nothing here keeps a time
    ) -> None:
        """Index these segments anew."""
        async with self._turn() as work:
            await moves.replace_passages(work, self.space, passages)

    async def unembedded(self, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
        """Warm passages that are to have a vector of this embedder and have none."""
        async with self._reading() as work:
            passages, upto = await read.unembedded(work, embedder, limit=limit)
        if upto:
            async with self._writing() as work:
                await read.note_complete(work, embedder, upto)
        return passages

    async def vectors(
        self, embedder: str, *, after: tuple[SegmentId, int] | None = None, limit: int = 1000
    ) -> tuple[Vector, ...]:
        """The vectors of an embedder, ordered by segment and ordinal."""
        async with self._reading() as work:
            return await read.vectors(work, embedder, after=after, limit=limit)

    async def withdraw(
        self,
        ids: Sequence[SegmentId],
        *,
        at: float,  # noqa: ARG002 - nothing here keeps a time
        up_to: int | None = None,
    ) -> int:
        """Remove segments whose source no longer says so; they may come back."""
        async with self._turn() as work:
            gone = await forget.withdraw(work, self.space, ids, up_to)
            if gone:
                await forget.note_removed(work)
            return gone

    async def facts(
        self,
        ids: Sequence[FactId] | None = None,
        *,
        superseded: bool = False,
        subjects: Collection[str] | None = None,
    ) -> tuple[Fact, ...]:
        """Facts by id in this order, or all by time and id."""
        async with self._reading() as work:
            return await facts.read_facts(work, ids, superseded=superseded, subjects=subjects)

    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        """The current facts that may answer."""
        async with self._reading() as work:
            return await fact_candidates.find(work, query)

    async def facts_revision(self) -> int:
        """How often the facts of the space have changed."""
        async with self._reading() as work:
            return await facts.facts_revision(work)

    async def unembedded_facts(self, embedder: str, *, limit: int) -> tuple[FactText, ...]:
        """Current facts that have no vector of this embedder."""
        async with self._reading() as work:
            return await facts.unembedded_facts(work, embedder, limit=limit)

    async def extracted_to(self, session: SessionId) -> int:
        """How far a session was read for facts."""
        async with self._reading() as work:
            return await facts.extracted_to(work, session)

    async def evict(self, *, max_segments: int | None, said_before: float | None) -> int:
        """Move the oldest segments to cold."""
        async with self._turn() as work:
            return await moves.evict(
                work, self.space, max_segments=max_segments, said_before=said_before
            )

    async def warm(self, ids: Sequence[SegmentId]) -> int:
        """Take cold segments back into the index."""
        async with self._turn() as work:
            return await moves.warm(work, self.space, ids)

    # JobQueue

    async def claim(
        self,
        *,
        now: float,
        lease_seconds: float,
        kinds: Sequence[str],
        limit: int = 1,
        day: str = "",
        day_tokens: int | None = None,
        max_attempts: int = 5,
    ) -> tuple[Lease, ...]:
        """Due jobs of these kinds, oldest first."""
        async with self._turn() as work:
            return await jobs.claim(
                work,
                now=now,
                lease_seconds=lease_seconds,
                kinds=kinds,
                limit=limit,
                day=day,
                day_tokens=day_tokens,
                max_attempts=max_attempts,
            )

    async def heartbeat(self, lease: Lease, *, expires_at: float) -> bool:
        """Keep a lease."""
        async with self._writing() as work:
            return await jobs.heartbeat(work, lease, expires_at=expires_at)

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        """Write the effect and remove the job in one write."""
        try:
            async with self._turn() as work:
                taken = await jobs.take(work, lease)
                await write.write_batch(work, batch, self.space, only_if=taken)
                await jobs.settle(work)
        except write.NothingTaken:
            return False
        return True

    async def fail(self, lease: Lease, *, reason: str, retry_at: float | None) -> bool:
        """Give a job back to be retried, or to the dead ones."""
        async with self._turn() as work:
            if not await space.take_turn(work):
                return False
            return await jobs.fail(work, lease, reason=reason, retry_at=retry_at)

    async def jobs(self, *, limit: int = 100) -> tuple[JobRecord, ...]:
        """Jobs that wait, run or are dead."""
        async with self._reading() as work:
            return await jobs.listed(work, limit=limit)

    async def queue(self, *, day: str = "") -> QueueState:
        """The queue at a glance."""
        async with self._reading() as work:
            return await jobs.queue(work, day=day)

    async def add_model_use(self, use: ModelUse, *, day: str) -> None:
        """Count what was asked of a model on this day."""
        async with self._writing() as work:
            await jobs.add_model_use(work, use, day=day)

    async def model_use(self, *, since: str = "") -> tuple[ModelUse, ...]:
        """What was asked of models from this day on, by purpose."""
        async with self._reading() as work:
            return await jobs.model_use(work, since=since)

    async def pause(self, kind: str = "*") -> None:
        """Hand out no more jobs of this kind."""
        async with self._writing() as work:
            await jobs.pause(work, kind)

    async def resume(self, kind: str = "*") -> None:
        """Undo `pause`."""
        async with self._writing() as work:
            await jobs.resume(work, kind)

    async def revive(self, ids: Sequence[str] | None = None, *, at: float) -> int:
        """Dead jobs wait again."""
        async with self._turn() as work:
            if not await space.take_turn(work):
                return 0
            return await jobs.revive(work, ids, at=at)

    # Ledger

    async def turns(self, session: SessionId) -> tuple[int, ...]:
        """The numbers of the recorded turns of a session."""
        async with self._reading() as work:
            return await ledger.turns(work, session)

    async def turn(self, session: SessionId, number: int) -> RebuiltTurn | None:
        """One turn with all its rows named."""
        async with self._reading() as work:
            return await ledger.turn(work, session, number)

    async def pieces(self, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
        """These pieces, as far as they are kept."""
        async with self._reading() as work:
            return await ledger.pieces(work, hashes)

    async def compactions(self, session: SessionId) -> tuple[CompactionRecord, ...]:
        """The compactions of a session by number."""
        async with self._reading() as work:
            return await ledger.read_compactions(work, session)

    async def expire(self, *, before: float) -> int:
        """Remove turns recorded before then."""
        async with self._turn() as work:
            if not await space.take_turn(work):
                return 0
            gone = await ledger.expire(work, before=before)
            if gone:
                await forget.note_removed(work)
            return gone

    # Upkeep

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remove segments and all that quotes them."""
        async with self._turn() as work:
            return await forget.forget(work, self.space, order)

    async def delete(self) -> Mapping[str, int]:
        """Remove all that the space holds, and the space; how many rows, by table."""
        async with self._turn() as work:
            await forget.note_removed(work)  # that stays, so that a scrub knows
            return await space.delete_space(work)

    async def held(
        self, kind: BodyKind, *, after: str | None = None, limit: int = 100
    ) -> tuple[StoredBody, ...]:
        """The bodies of a kind, beyond an id."""
        async with self._reading() as work:
            return await rewrite.held(work, kind, after=after, limit=limit)

    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        """Replace stored texts in one write."""
        async with self._turn() as work:
            return await rewrite.rewrite(work, self.space, order)

    async def scrub(self, admin_url: str | None = None, *, everything: bool = False) -> ScrubResult:
        """See to it that removed bytes are in no data file; needs the tables' owner.

        Rewrites the tables that this space removed something from, or all of them.
        """
        fleet = self._open_fleet()
        tables: tuple[str, ...] | None = None
        if not everything:
            async with self._reading() as work:
                tables = await scrub.tables_to_scrub(work)
        return await scrub.scrub(admin_url or fleet.admin_url, tables)

    async def check(self) -> CheckResult:
        """Whether everything is as it should be."""
        async with self._open_fleet().transaction(
            self._id, read=True, seconds=check.SECONDS
        ) as work:
            return await check.check(work)

    async def stats(self) -> Stats:
        """What the space holds."""
        async with self._reading() as work:
            return await check.stats(work, space=self.space, engine=self._fleet.server.engine)

    async def close(self) -> None:
        """Close the fleet if this store opened it; otherwise nothing."""
        closing, self._closed = not self._closed, True
        if closing and self._when_closed is not None:
            await self._when_closed()
