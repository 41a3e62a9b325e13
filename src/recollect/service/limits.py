"""How much a tenant gets: a fair queue in front of the engine, and budgets over all nodes.

Fairness is by tenant, not by request: whoever has least under way goes next, none has more than
its share, and who floods the node waits behind itself and behind the others. Budgets are counted
in the database, in pieces: a node reserves some requests at once and asks again when they are
spent, so the sum of all nodes never exceeds a budget, and most requests cost no round trip for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Final, Protocol
from uuid import UUID

from recollect.service.problems import Problem, ProblemKind
from recollect.telemetry import measured
from recollect.values.tenant import PERIOD_SECONDS, BudgetName, Tenant

PIECES: Final = 20
"""A node reserves this part of a minute's requests at a time."""
HALF_LIFE_SECONDS: Final = 2.0
"""So soon half of what a tenant took is forgotten."""
PRESENT_SECONDS: Final = 3.0
"""A tenant that asked for something so lately is there."""
HEAVY_RATIO: Final = 2.0
"""Who took so many times what the others did is heavy."""
HEAVY_USE_SECONDS: Final = 0.25
"""Who lately had slots for less than this is not heavy, whatever the others did."""
HEAVY_SECONDS: Final = 0.5
"""The longest that a heavy tenant waits for a node where others are always at work."""
RESERVED_PART: Final = 8
"""One slot of so many stays free of a heavy tenant while the others are quiet."""
IN_TIME_PART: Final = 0.75
"""A request that waits is expected to be done in this part of what is left of its deadline, or is
refused: the rest is for being wrong about it."""
LEAST_SLOTS: Final = 2.0
CUT_OFF_RATIO: Final = 0.8
"""So many of the slots are left when a request was cut off by its deadline."""
SLOW_RATIO: Final = 0.95
"""And when one took more than half of its time."""
CUT_OFF_SECONDS: Final = 0.05
QUEUE_SECONDS: Final = 1.0
"""When to come again after being refused for too many that wait."""


@dataclass(slots=True)
class _Use:
    """How long a tenant lately had slots, in seconds that fade."""

    seconds: float = 0.0
    at: float = 0.0

    def now(self, at: float) -> float:
        return float(self.seconds * 0.5 ** ((at - self.at) / HALF_LIFE_SECONDS))

    def add(self, seconds: float, at: float) -> None:
        self.seconds, self.at = self.now(at) + seconds, at


class FairQueue:
    """Slots of a node, given to tenants in turn.

    A tenant alone has its whole share, and more of it the longer the others were quiet. While they
    are there, one that took much more than they did gets a slot only when none of theirs is at
    work, one at a time, with a rest in between, and at the latest `HEAVY_SECONDS` after its last
    one: others then find the node nearly as if it were not there.
    """

    def __init__(
        self,
        slots: int,
        *,
        tenant_slots: int | None = None,
        tenant_waiting: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._tenant_slots = tenant_slots or max(1, slots // 2)
        self._tenant_waiting = tenant_waiting
        self._clock = clock
        self._running: Counter[UUID] = Counter()
        self._waiting: OrderedDict[UUID, deque[tuple[float, asyncio.Future[None]]]] = OrderedDict()
        self._uses: OrderedDict[UUID, _Use] = OrderedDict()
        self._usual_seconds = 0.02
        self._open = float(slots)
        """How many of the slots are given out, as requests are done in time or not."""

    @property
    def running(self) -> int:
        """Requests that are worked on."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return sum(map(len, tuple(self._waiting.values())))

    @asynccontextmanager
    async def turn(self, tenant: UUID, seconds: float | None = None) -> AsyncIterator[None]:
        """Wait for a slot; Problem where too many of the tenant wait already, or where the
        `seconds` that are left would not be enough: work that is cut off helps nobody, and what
        is refused at once may go to another node."""
        waits_since = self._clock()
        if self._may_begin(tenant):
            self._begin(tenant)
        else:
            self.refuse_late(tenant, seconds)
            with measured("queue", "turn"):
                await self._wait(tenant)
            waited = self._clock() - waits_since
            if seconds is not None and seconds - waited < self._usual_seconds:
                self._end(tenant, None)  # it would be cut off
                raise _too_late(self._usual_seconds)
        begun = self._clock()
        done = False
        try:
            yield
            done = True
        finally:
            if seconds is not None:
                left = seconds - (begun - waits_since)
                self._learn(self._clock() - begun, left, done=done)
            self._end(tenant, begun)

    def _may_begin(self, tenant: UUID) -> bool:
        return not self._waiting.get(tenant) and self._may_run(tenant, self._clock())

    def _begin(self, tenant: UUID) -> None:
        self._running[tenant] += 1
        self._use_of(tenant).add(self._usual_seconds, self._clock())  # mended at its end

    def _end(self, tenant: UUID, begun: float | None) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        now = self._clock()
        taken = 0.0 if begun is None else now - begun
        self._use_of(tenant).add(taken - self._usual_seconds, now)
        if begun is not None:
            self._usual_seconds += 0.05 * (taken - self._usual_seconds)
        self._hand_on()
        if self._waiting:  # who has to rest is looked at again
            loop = asyncio.get_running_loop()
            loop.call_later(self._usual_seconds, self._hand_on)
            loop.call_later(HEAVY_SECONDS, self._hand_on)

    def _use_of(self, tenant: UUID) -> _Use:
        use = self._uses.setdefault(tenant, _Use(at=self._clock()))
        self._uses.move_to_end(tenant)
        return use

    def _may_run(self, tenant: UUID, waits_since: float) -> bool:
        if self.running >= int(self._open) or self._running[tenant] >= self._tenant_slots:
            return False
        now = self._clock()
        while self._uses and now - next(iter(self._uses.values())).at > PRESENT_SECONDS:
            self._uses.popitem(last=False)
        others = [use.now(now) for one, use in self._uses.items() if one != tenant]
        if not others or tenant not in self._uses:
            return True
        fair = sum(others) / len(others)
        fair = max(HEAVY_RATIO * fair + self._usual_seconds, HEAVY_USE_SECONDS)
        if self._uses[tenant].now(now) <= fair:
            return True
        if (quiet := self._others_quiet_for(tenant, now)) > HEAVY_SECONDS:
            slots = int(self._open)
            reserved = max(1, slots // RESERVED_PART)
            return self.running < min(slots - reserved, 1 + int(quiet / HEAVY_SECONDS))
        if self._running[tenant]:
            return False
        # Not since the request came: of a flood, there is always one that waits for long.
        rests = now - max(self._uses[tenant].at, waits_since)
        rested = now - self._uses[tenant].at >= self._usual_seconds
        return (self.running == 0 and rested) or rests >= HEAVY_SECONDS

    def _others_quiet_for(self, tenant: UUID, now: float) -> float:
        """Seconds since another tenant was here; 0 where something of theirs is at work or waits.

        The longer, the more a heavy tenant gets: one of the others that comes back after a short
        rest finds few of its requests under way.
        """
        if self.running > self._running[tenant] or self._waiting.keys() - {tenant}:
            return 0.0
        return now - max(use.at for one, use in self._uses.items() if one != tenant)

    def _learn(self, taken: float, left: float, *, done: bool) -> None:
        """Work on fewer at once where requests are not done in time, and on more where they are:
        each takes longer the more there are, and what is cut off was worked on in vain."""
        if not done and taken >= left - CUT_OFF_SECONDS:
            self._open = max(LEAST_SLOTS, CUT_OFF_RATIO * self._open)
        elif taken > left / 2:
            self._open = max(LEAST_SLOTS, SLOW_RATIO * self._open)
        else:
            self._open = min(float(self._slots), self._open + 1 / self._open)

    def refuse_late(self, tenant: UUID, seconds: float | None) -> None:
        """Problem where a turn would come, as far as one can tell, too late to be of use."""
        if seconds is None or self._may_begin(tenant):
            return
        own = len(self._waiting.get(tenant, ())) + 1
        ahead = sum(min(len(queue), own) for queue in self._waiting.values())
        wait = (ahead + 1) * self._usual_seconds / self._open
        if wait + self._usual_seconds > IN_TIME_PART * seconds:
            raise _too_late(wait)

    async def _wait(self, tenant: UUID) -> None:
        queue = self._waiting.setdefault(tenant, deque())
        if len(queue) >= self._tenant_waiting:
            raise Problem(
                ProblemKind.TENANT_BUSY,
                f"{len(queue)} requests of this tenant wait already: send fewer at once",
                retry_after=QUEUE_SECONDS,
            )
        loop = asyncio.get_running_loop()
        place = (self._clock(), loop.create_future())
        queue.append(place)
        looking = loop.call_later(HEAVY_SECONDS, self._hand_on)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place[1].done() and not place[1].cancelled():  # the slot came with it
                self._end(tenant, None)
            elif place in queue:
                queue.remove(place)
                self._drop_empty(tenant)
            raise
        finally:
            looking.cancel()

    def _hand_on(self) -> None:
        """Give free slots to those who wait: first to who has least under way, in turn."""
        while True:
            ready = [one for one, queue in self._waiting.items() if self._may_run(one, queue[0][0])]
            if not ready:
                return
            tenant = min(ready, key=lambda one: self._running[one])  # the first of equals
            _, turn = self._waiting[tenant].popleft()
            self._waiting.move_to_end(tenant)
            self._drop_empty(tenant)
            if not turn.done():
                self._begin(tenant)
                turn.set_result(None)

    def _drop_empty(self, tenant: UUID) -> None:
        if tenant in self._waiting and not self._waiting[tenant]:
            del self._waiting[tenant]


def _too_late(wait: float) -> Problem:
    return Problem(
        ProblemKind.BUSY,
        "others are served before it for longer than it has: come again, or ask another node",
        retry_after=max(QUEUE_SECONDS, wait),
    )


class CountsSpending(Protocol):
    """Where budgets of all nodes are counted."""

    async def spend(self, tenant: UUID, budget: BudgetName, period: int, amount: int) -> int:
        """Count an amount; what is spent in the period by now."""

    async def spent(self, tenant: UUID, budget: BudgetName, period: int) -> int:
        """What is spent in the period by now."""


@dataclass(slots=True)
class _Share:
    """What a node has of a tenant's budget in one period."""

    period: int
    left: int = 0
    """Reserved and not spent yet."""
    spent: int = 0
    """By all nodes, as it was last heard."""
    known: bool = False
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Budgets:
    """What tenants may still spend."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._shares: OrderedDict[tuple[UUID, BudgetName], _Share] = OrderedDict()

    async def take_request(self, tenant: Tenant, records: CountsSpending) -> None:
        """Count one request; Problem where the minute's are spent."""
        limit = tenant.requests_per_minute
        if limit is None:
            return
        share = self._share(tenant.id, "requests per minute")
        while not share.left:
            if share.spent >= limit:
                raise self._spent("requests per minute", limit)
            async with share.asking:
                await self._reserve(share, tenant, limit, records)
        share.left -= 1

    async def _reserve(
        self, share: _Share, tenant: Tenant, limit: int, records: CountsSpending
    ) -> None:
        """Some more requests for this node, unless others did so while this one waited."""
        if share.left or share.spent >= limit:
            return
        piece = max(1, limit // PIECES)
        share.spent = await records.spend(tenant.id, "requests per minute", share.period, piece)
        share.left = min(piece, max(0, limit - (share.spent - piece)))

    async def check_tokens(self, tenant: Tenant, records: CountsSpending) -> None:
        """Problem where the day's tokens are spent."""
        limit = tenant.tokens_per_day
        if limit is None:
            return
        share = self._share(tenant.id, "tokens per day")
        if not share.known:
            share.spent = await records.spent(tenant.id, "tokens per day", share.period)
            share.known = True
        if share.spent >= limit:
            raise self._spent("tokens per day", limit)

    async def charge_tokens(self, tenant: Tenant, records: CountsSpending, tokens: int) -> None:
        """Count the tokens that a request took in; without a limit nobody counts."""
        if tenant.tokens_per_day is not None and tokens > 0:
            share = self._share(tenant.id, "tokens per day")
            share.spent = await records.spend(tenant.id, "tokens per day", share.period, tokens)

    def period(self, budget: BudgetName) -> int:
        """The number of the period that it is now."""
        return int(self._now() // PERIOD_SECONDS[budget])

    def renews_in(self, budget: BudgetName) -> float:
        """Seconds until the next period."""
        seconds = PERIOD_SECONDS[budget]
        return seconds - self._now() % seconds

    def _share(self, tenant: UUID, budget: BudgetName) -> _Share:
        period, key = self.period(budget), (tenant, budget)
        share = self._shares.get(key)
        if share is None or share.period != period:
            share = self._shares[key] = _Share(period)
        self._shares.move_to_end(key)
        while len(self._shares) > 100_000:
            self._shares.popitem(last=False)
        return share

    def used(self, tenant: Tenant, budget: BudgetName, spent: int) -> int:
        """Of what is counted as spent, what was used as far as this node knows: without what it
        has reserved for itself and not used yet. What other nodes reserved counts as used."""
        share = self._shares.get((tenant.id, budget))
        if share is not None and share.period == self.period(budget):
            spent -= share.left
        limit = tenant.limit(budget)
        if budget == "requests per minute" and limit is not None:  # the last piece may be cut
            spent = min(spent, limit)
        return max(0, spent)

    def _spent(self, budget: BudgetName, limit: int) -> Problem:
        renews_in = self.renews_in(budget)
        return Problem(
            ProblemKind.BUDGET,
            f"{limit:,} {budget} are spent: they renew in {ceil(renews_in):,} s",
            retry_after=renews_in,
            budget=budget,
        )
