"""The limits of a tenant: its share of a node's turns and bodies, and its budgets, which the
database counts for all nodes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from recollect.core.values.tenant import PERIOD_SECONDS, BudgetName, QuotaName, Tenant
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.system.telemetry import measure_action

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.tenants import TenantRecords

TOKENS_SECONDS: Final = 2.0
"""Time for which a node caches the count of a tenant's tokens per day."""
BYTES_SECONDS: Final = 10.0
"""Time for which a node caches a tenant's stored bytes."""
MOST_TENANTS: Final = 100_000
"""Maximum number of tenants whose counts a node caches."""
READING_PART: Final = 4
"""A tenant's part of the requests that a node receives at the same time: 4 means a fourth."""
BODY_BYTES: Final = 256_000_000
"""Maximum size of all bodies in a node's RAM, of which one tenant may use half."""


QUEUE_SECONDS: Final = 1.0
"""Retry-After for a tenant with too many waiting requests."""
ACTIVE_SECONDS: Final = 2.0
"""A tenant counts as active for this long after a request."""
SHARED_PART: Final = 4
"""Active tenants together are guaranteed this part of the turns (4 means a fourth). A node has one
processor, and a tenant with many running requests would slow down the others."""
WAIT_PART: Final = 0.5
"""A request waits at most this share of its time limit for a turn, to have time for its work."""


class FairQueue:
    """The turns of a node: the tenant with the fewest running requests gets the next turn. A single
    active tenant gets half of the turns. Active tenants share a guaranteed part of the turns, at
    least one each. The requests of a tenant start in order."""

    def __init__(self, turns: int, *, tenant_waiting: int) -> None:
        self._turns = self._free = turns
        self._tenant_waiting = tenant_waiting
        self._running: Counter[UUID] = Counter()
        self._waiting: OrderedDict[UUID, deque[asyncio.Future[None]]] = OrderedDict()
        self._active: OrderedDict[UUID, float] = OrderedDict()
        """Time of each tenant's last request, the least recently active tenant first."""

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, tenant: UUID, seconds: float | None = None) -> AsyncIterator[None]:
        """Wait for a turn. Raise a Problem if too many requests of the tenant wait, or if no turn
        is free in time. `seconds` is the time left until the deadline."""
        self._note_active(tenant)
        if self._free and not self._waiting.get(tenant) and self._has_share(tenant):
            self._begin(tenant)
        else:
            with measure_action("queue", "turn"):
                await self._wait(tenant, seconds)
        try:
            yield
        finally:
            self._end(tenant)

    async def _wait(self, tenant: UUID, seconds: float | None) -> None:
        queue = self._waiting.setdefault(tenant, deque())
        if len(queue) >= self._tenant_waiting:
            raise _too_many(f"{len(queue)} requests of this tenant are already waiting")
        place = asyncio.get_running_loop().create_future()
        queue.append(place)
        try:
            async with asyncio.timeout(None if seconds is None else WAIT_PART * seconds):
                await place
        except (TimeoutError, asyncio.CancelledError) as error:
            if (
                place.done() and not place.cancelled()
            ):  # this request got its turn at the same moment
                self._end(tenant)
            elif place in queue:
                queue.remove(place)
            if not queue and self._waiting.get(tenant) is queue:
                del self._waiting[tenant]
            if isinstance(error, TimeoutError):
                raise _node_busy() from None
            raise

    def _has_share(self, tenant: UUID) -> bool:
        other_count = len(self._active) - (tenant in self._active)
        share = self._turns // (SHARED_PART * (other_count + 1) if other_count else 2)
        return self._running[tenant] < max(1, share)

    def _note_active(self, tenant: UUID) -> None:
        now = asyncio.get_running_loop().time()
        self._active[tenant] = now
        self._active.move_to_end(tenant)
        while now - next(iter(self._active.values())) > ACTIVE_SECONDS:
            self._active.popitem(last=False)

    def _begin(self, tenant: UUID) -> None:
        self._free -= 1
        self._running[tenant] += 1

    def _end(self, tenant: UUID) -> None:
        self._note_active(tenant)
        self._free += 1
        self._running[tenant] -= 1
        self._running = +self._running
        while self._free and (
            waiting := [
                waiting_tenant
                for waiting_tenant in self._waiting
                if self._has_share(waiting_tenant)
            ]
        ):
            first = min(waiting, key=lambda waiting_tenant: self._running[waiting_tenant])
            place = self._waiting[first].popleft()
            self._waiting.move_to_end(first)
            if not self._waiting[first]:
                del self._waiting[first]
            if not place.done():
                self._begin(first)
                place.set_result(None)


@dataclass(slots=True, eq=False)
class Taking:
    """A request while a node receives its body."""

    intake: Intake
    tenant: UUID
    bytes_held: int = 0
    is_read: bool = False

    def hold(self, size: int) -> None:
        """Count more bytes of the body. Raise a Problem if the node holds too many bytes."""
        self.bytes_held += size
        self.intake.bytes_held[self.tenant] += size
        self.intake.all_bytes_held += size
        if self.intake.bytes_held[self.tenant] > self.intake.most_bytes // 2:
            raise _too_many("the request bodies of this tenant are too large in total")
        if self.intake.all_bytes_held > self.intake.most_bytes:
            raise _node_busy()

    def read(self) -> None:
        """Record that the body is complete."""
        if not self.is_read:
            self.is_read = True
            self.intake.reading[self.tenant] -= 1


class Intake:
    """The open requests of a node, and their bodies."""

    def __init__(self, most_requests: int, *, max_body_bytes: int) -> None:
        self.most_requests = most_requests
        self.most_reading: int = max(1, most_requests // READING_PART)
        self.most_bytes: int = max(BODY_BYTES, 4 * max_body_bytes)
        self.under_way: int = 0
        self.all_bytes_held: int = 0
        self.reading: Counter[UUID] = Counter()
        self.bytes_held: Counter[UUID] = Counter()

    @contextmanager
    def request(self, tenant: UUID) -> Iterator[Taking]:
        """Accept a request. Raise a Problem if the node has too many requests."""
        if self.under_way >= self.most_requests:
            raise _node_busy()
        if self.reading[tenant] >= self.most_reading:
            raise _too_many(
                f"{self.reading[tenant]} requests of this tenant are still being received"
            )
        self.under_way += 1
        self.reading[tenant] += 1
        taking = Taking(self, tenant)
        try:
            yield taking
        finally:
            taking.read()
            self.under_way -= 1
            self.all_bytes_held -= taking.bytes_held
            self.bytes_held[tenant] -= taking.bytes_held
            for counts in (self.reading, self.bytes_held):
                if not counts[tenant]:
                    counts.pop(tenant, None)


def _node_busy() -> Problem:
    return Problem(
        ProblemKind.BUSY,
        "this node holds too many requests: try again, or use another node",
        retry_after=1.0,
    )


def _too_many(reason: str) -> Problem:
    return Problem(
        ProblemKind.TENANT_BUSY, f"{reason}: send fewer at once", retry_after=QUEUE_SECONDS
    )


def quota_reached(quota: QuotaName, tenant: Tenant) -> Problem:
    limit = tenant.quota(quota)
    return Problem(
        ProblemKind.QUOTA,
        f"the tenant may have {limit:,} {quota}: delete what is not needed, or ask the operator of "
        "the service for more",
        budget=quota,
    )


class CountsSpending(Protocol):
    """Counts the spending of a tenant on all nodes."""

    async def spend(self, tenant: UUID, budget: BudgetName, period: int, amount: int) -> int:
        """Count an amount, and return the total of the period."""

    async def total_spent(self, tenant: UUID, budget: BudgetName, period: int) -> int:
        """Return the total of the period."""


@dataclass(slots=True)
class _Share:
    period: int
    spent: int = 0
    """Amount spent on all nodes when this node last asked the database."""
    heard_at: float | None = None
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Budgets:
    """The budgets of tenants."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._shares: OrderedDict[tuple[UUID, BudgetName], _Share] = OrderedDict()
        self._bytes: OrderedDict[UUID, tuple[float, int]] = OrderedDict()
        """Stored bytes of tenants with a quota, each with the time when they were read."""

    async def take_request(self, tenant: Tenant, records: CountsSpending) -> None:
        """Count one request. Raise a Problem if this minute's budget is used up."""
        limit = tenant.requests_per_minute
        if limit is None:
            return
        share = self._share(tenant.id, "requests per minute")
        # Count one at a time, because parallel counts would each use a connection.
        async with share.asking:
            if share.spent < limit:
                share.spent = await records.spend(tenant.id, "requests per minute", share.period, 1)
                if share.spent <= limit:
                    return
        raise self._budget_problem("requests per minute", limit)

    async def check_tokens(self, tenant: Tenant, records: CountsSpending) -> None:
        """Raise a Problem if the tenant has used up today's tokens."""
        limit = tenant.tokens_per_day
        if limit is None:
            return
        share = self._share(tenant.id, "tokens per day")
        if share.heard_at is None or (self._is_old(share) and not share.asking.locked()):
            async with share.asking:
                if self._is_old(
                    share
                ):  # this count is still old: no other request has counted meanwhile
                    now = self._now()
                    total = await records.total_spent(tenant.id, "tokens per day", share.period)
                    # The total only grows, and another charge may have read a newer one.
                    share.spent, share.heard_at = max(total, share.spent), now
        if share.spent >= limit:
            raise self._budget_problem("tokens per day", limit)

    async def charge_tokens(self, tenant: Tenant, records: CountsSpending, tokens: int) -> None:
        """Count the tokens of a request, if the tenant has a limit."""
        if tenant.tokens_per_day is not None and tokens > 0:
            share = self._share(tenant.id, "tokens per day")
            now = self._now()
            total = await records.spend(tenant.id, "tokens per day", share.period, tokens)
            share.spent, share.heard_at = max(total, share.spent), now

    async def check_bytes(
        self, tenant: Tenant, records: TenantRecords, measure: Callable[[], Awaitable[None]]
    ) -> None:
        """Raise a Problem if the tenant's stored messages have reached their quota. Call `measure`
        first: a command may have removed messages from the request's space."""
        if tenant.most_bytes is None:
            return
        heard_at, used = self._bytes.get(tenant.id, (0.0, 0))
        is_old = self._now() - heard_at > BYTES_SECONDS
        if is_old or used >= tenant.most_bytes:
            used = (await records.used(tenant.id))["bytes"]
            if is_old and used >= tenant.most_bytes:
                await measure()
                used = (await records.used(tenant.id))["bytes"]
            self._bytes[tenant.id] = (self._now() if is_old else heard_at, used)
            self._bytes.move_to_end(tenant.id)
            while len(self._bytes) > MOST_TENANTS:
                self._bytes.popitem(last=False)
        if used >= tenant.most_bytes:
            raise quota_reached("bytes", tenant)

    def _is_old(self, share: _Share) -> bool:
        return share.heard_at is None or self._now() - share.heard_at > TOKENS_SECONDS

    def period(self, budget: BudgetName) -> int:
        return int(self._now() // PERIOD_SECONDS[budget])

    def renews_in(self, budget: BudgetName) -> float:
        seconds = PERIOD_SECONDS[budget]
        return seconds - self._now() % seconds

    def _share(self, tenant: UUID, budget: BudgetName) -> _Share:
        period, key = self.period(budget), (tenant, budget)
        share = self._shares.get(key)
        if share is None or share.period != period:
            share = self._shares[key] = _Share(period)
        self._shares.move_to_end(key)
        while len(self._shares) > MOST_TENANTS:
            self._shares.popitem(last=False)
        return share

    def _budget_problem(self, budget: BudgetName, limit: int) -> Problem:
        renews_in = self.renews_in(budget)
        return Problem(
            ProblemKind.BUDGET,
            f"{limit:,} {budget} are used up: they renew in {ceil(renews_in):,} s",
            retry_after=renews_in,
            budget=budget,
        )
