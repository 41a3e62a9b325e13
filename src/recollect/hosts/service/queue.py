"""A fair queue in front of the engine: who of those that ask a node is worked on next.

Fairness is by tenant, not by request: whoever has least under way goes next, none has more than
its share, and who floods the node waits behind itself and behind the others.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from recollect.core.boundary import GIVE_WAY
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.system.telemetry import measured

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
OWN_DEADLINE_PART: Final = 0.8
"""The node learns from requests that have this part of its own deadline: a shorter one was chosen
by a caller, who would else say how much the others get."""
USUAL_OF: Final = 20
"""What is usual is the mean of about so many of the last."""
MOST_USUAL: Final = 10_000
TYPICAL_STEP: Final = 1.05
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


@dataclass(slots=True)
class _Usual:
    """How long requests lately took."""

    seconds: float
    count: int = 0

    def add(self, seconds: float) -> None:
        self.count = min(USUAL_OF, self.count + 1)
        self.seconds += (seconds - self.seconds) / self.count


class FairQueue:
    """Slots of a node, given to tenants in turn.

    A tenant alone has its whole share, and more of it the longer the others were quiet. While they
    are there, one that took much more than they did gets a slot only when none of theirs is at
    work, one at a time, with a rest in between, and at the latest `HEAVY_SECONDS` after its last
    one; and it gives way between its stages to what comes meanwhile: others then find the node
    nearly as if it were not there.
    """

    def __init__(
        self,
        slots: int,
        *,
        tenant_slots: int | None = None,
        tenant_waiting: int,
        deadline_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`deadline_seconds` is the node's own deadline: what happens to requests with a shorter
        one says nothing about the node."""
        self._slots = slots
        self._learns_from_seconds = OWN_DEADLINE_PART * deadline_seconds
        self._tenant_slots = tenant_slots or max(1, slots // 2)
        self._tenant_waiting = tenant_waiting
        self._clock = clock
        self._running: Counter[UUID] = Counter()
        self._waiting: OrderedDict[UUID, deque[tuple[float, asyncio.Future[None]]]] = OrderedDict()
        self._uses: OrderedDict[UUID, _Use] = OrderedDict()
        """By when they last had something: who was here last stands last."""
        self._all_use = _Use()
        """The sum of all of these."""
        self._under_way = 0
        self._waiting_count = 0
        self._usual_seconds = 0.02
        self._typical_seconds = 0.02
        """Half of the requests take longer: what one tenant does slowly hardly moves it."""
        self._usual_of: OrderedDict[UUID, _Usual] = OrderedDict()
        self._ended = asyncio.Event()
        """Set when a request ends, and another one from then on."""
        self._open = float(slots)
        """How many of the slots are given out, as requests are done in time or not."""

    @property
    def running(self) -> int:
        """Requests that are worked on."""
        return self._under_way

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return self._waiting_count

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
            usual = self._usual_for(tenant)
            if seconds is not None and seconds - waited < usual:
                self._end(tenant, None)  # it would be cut off
                raise _too_late(usual)
        begun = self._clock()
        done = False
        giving = GIVE_WAY.set(self.giving_way(tenant))
        try:
            yield
            done = True
        finally:
            GIVE_WAY.reset(giving)
            if seconds is not None and seconds >= self._learns_from_seconds:
                left = seconds - (begun - waits_since)
                self._learn(self._clock() - begun, left, done=done)
            self._end(tenant, begun)

    def _may_begin(self, tenant: UUID) -> bool:
        return not self._waiting.get(tenant) and self._may_run(tenant, self._clock())

    def _begin(self, tenant: UUID) -> None:
        self._running[tenant] += 1
        self._under_way += 1
        self._count_use(tenant, self._usual_seconds)  # mended at its end

    def _end(self, tenant: UUID, begun: float | None) -> None:
        self._running[tenant] -= 1
        self._under_way -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        taken = 0.0 if begun is None else self._clock() - begun
        self._count_use(tenant, taken - self._usual_seconds)
        if begun is not None:
            self._count_usual(tenant, taken)
        self._ended.set()  # of those who wait for it each looks again
        self._ended = asyncio.Event()
        self._hand_on()
        if self._waiting:  # who has to rest is looked at again
            loop = asyncio.get_running_loop()
            loop.call_later(self._usual_seconds, self._hand_on)
            loop.call_later(HEAVY_SECONDS, self._hand_on)

    def _count_use(self, tenant: UUID, seconds: float) -> None:
        now = self._clock()
        self._uses.setdefault(tenant, _Use(at=now)).add(seconds, now)
        self._uses.move_to_end(tenant)
        self._all_use.add(seconds, now)

    def _forget_absent(self, now: float) -> None:
        while self._uses and now - next(iter(self._uses.values())).at > PRESENT_SECONDS:
            _, use = self._uses.popitem(last=False)
            self._all_use.add(-use.now(now), now)
        if not self._uses:
            self._all_use = _Use()  # without what was lost in rounding

    def _count_usual(self, tenant: UUID, taken: float) -> None:
        self._usual_seconds += (taken - self._usual_seconds) / USUAL_OF
        slower = taken > self._typical_seconds
        self._typical_seconds *= TYPICAL_STEP if slower else 1 / TYPICAL_STEP
        self._typical_seconds = max(0.001, self._typical_seconds)
        self._usual_of.setdefault(tenant, _Usual(taken)).add(taken)
        self._usual_of.move_to_end(tenant)
        while len(self._usual_of) > MOST_USUAL:
            self._usual_of.popitem(last=False)

    def _usual_for(self, tenant: UUID) -> float:
        """How long a request of this tenant takes: others may do what takes longer by nature."""
        usual = self._usual_of.get(tenant)
        return self._typical_seconds if usual is None else usual.seconds

    def _may_run(self, tenant: UUID, waits_since: float) -> bool:
        if self._under_way >= int(self._open) or self._running[tenant] >= self._tenant_slots:
            return False
        now = self._clock()
        if not self._is_heavy(tenant, now):
            return True
        use = self._uses[tenant]
        if (quiet := self._others_quiet_for(tenant, now)) > HEAVY_SECONDS:
            slots = int(self._open)
            reserved = max(1, slots // RESERVED_PART)
            return self._under_way < min(slots - reserved, 1 + int(quiet / HEAVY_SECONDS))
        if self._running[tenant]:
            return False
        # Not since the request came: of a flood, there is always one that waits for long.
        rests = now - max(use.at, waits_since)
        rested = now - use.at >= self._usual_seconds
        return (self._under_way == 0 and rested) or rests >= HEAVY_SECONDS

    def _is_heavy(self, tenant: UUID, now: float) -> bool:
        """Whether a tenant lately took much more than the others that are there."""
        self._forget_absent(now)
        use = self._uses.get(tenant)
        others = len(self._uses) - 1
        if use is None or not others:
            return False
        used = use.now(now)
        fair = (self._all_use.now(now) - used) / others
        return used > max(HEAVY_RATIO * fair + self._usual_seconds, HEAVY_USE_SECONDS)

    def _others_at_work(self, tenant: UUID, now: float) -> bool:
        """Whether something of another tenant is at work that is not heavy itself."""
        if self._under_way == self._running[tenant]:
            return False
        return any(one != tenant and not self._is_heavy(one, now) for one in self._running)

    def giving_way(self, tenant: UUID) -> Callable[[], Awaitable[float]]:
        """What a request of a tenant waits for between its stages: where the tenant is heavy, that
        nothing of others is at work, in all at most `HEAVY_SECONDS`. So one of the others that
        comes while it is worked on waits for a stage of it, not for all of it."""
        left = HEAVY_SECONDS

        async def wait() -> float:
            nonlocal left
            begun = self._clock()
            until = begun + left
            while self._is_heavy(tenant, begun) and self._others_at_work(tenant, begun):
                try:
                    async with asyncio.timeout(until - self._clock()):
                        await self._ended.wait()
                except TimeoutError:
                    break
            waited = self._clock() - begun
            left = max(0.0, left - waited)
            return waited

        return wait

    def _others_quiet_for(self, tenant: UUID, now: float) -> float:
        """Seconds since another tenant was here; 0 where something of theirs is at work or waits.

        The longer, the more a heavy tenant gets: one of the others that comes back after a short
        rest finds few of its requests under way.
        """
        others_wait = len(self._waiting) > (tenant in self._waiting)
        if self._under_way > self._running[tenant] or others_wait:
            return 0.0
        last = next(one for one in reversed(self._uses) if one != tenant)
        return now - self._uses[last].at

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
        usual, time_left = self._usual_for(tenant), IN_TIME_PART * seconds
        behind_itself = own * usual / min(self._tenant_slots, self._open)

        def wait(ahead: int) -> float:
            return max((ahead + 1) * self._typical_seconds / self._open, behind_itself)

        if wait(min(self._waiting_count, own * len(self._waiting))) + usual <= time_left:
            return  # not even so many can be ahead
        ahead = sum(min(len(queue), own) for queue in self._waiting.values())
        if wait(ahead) + usual > time_left:
            raise _too_late(wait(ahead))

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
        self._waiting_count += 1
        looking = loop.call_later(HEAVY_SECONDS, self._hand_on)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place[1].done() and not place[1].cancelled():  # the slot came with it
                self._end(tenant, None)
            elif place in queue:
                queue.remove(place)
                self._waiting_count -= 1
                self._drop_empty(tenant)
            raise
        finally:
            looking.cancel()

    def _hand_on(self) -> None:
        """Give free slots to those who wait: first to who has least under way, in turn."""
        while (tenant := self._next()) is not None:
            _, turn = self._waiting[tenant].popleft()
            self._waiting_count -= 1
            self._waiting.move_to_end(tenant)
            self._drop_empty(tenant)
            if not turn.done():
                self._begin(tenant)
                turn.set_result(None)

    def _next(self) -> UUID | None:
        """Who of those that wait gets the next slot: the first of those with least under way."""
        if self._under_way >= int(self._open):
            return None
        chosen: UUID | None = None
        for tenant, queue in self._waiting.items():
            running = self._running[tenant]
            if chosen is not None and running >= self._running[chosen]:
                continue
            if self._may_run(tenant, queue[0][0]):
                if not running:
                    return tenant
                chosen = tenant
        return chosen

    def _drop_empty(self, tenant: UUID) -> None:
        if tenant in self._waiting and not self._waiting[tenant]:
            del self._waiting[tenant]


def _too_late(wait: float) -> Problem:
    return Problem(
        ProblemKind.BUSY,
        "others are served before it for longer than it has: come again, or ask another node",
        retry_after=max(QUEUE_SECONDS, wait),
    )
