"""Limits of a node by themselves: what one tenant, or one caller, can take from the others."""

import asyncio
from collections import Counter
from uuid import UUID, uuid4

import pytest

from recollect.core.values.tenant import BudgetName, Tenant
from recollect.hosts.service.limits import TOKENS_SECONDS, Budgets, FairQueue, Intake
from recollect.hosts.service.problems import Problem, ProblemKind


class Counted:
    """Spending as a database counts it."""

    def __init__(self) -> None:
        self.spent_so_far: Counter[tuple[UUID, BudgetName, int]] = Counter()
        self.asked = 0

    async def spend(self, tenant: UUID, budget: BudgetName, period: int, amount: int) -> int:
        self.asked += 1
        self.spent_so_far[tenant, budget, period] += amount
        return self.spent_so_far[tenant, budget, period]

    async def total_spent(self, tenant: UUID, budget: BudgetName, period: int) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        return self.spent_so_far[tenant, budget, period]


def limited_tenant(*, requests: int | None = None, tokens: int | None = None) -> Tenant:
    return Tenant(
        id=uuid4(), name="x", created_at=0.0, requests_per_minute=requests, tokens_per_day=tokens
    )


async def test_a_fair_queue_serves_tenants_in_turn() -> None:
    queue = FairQueue(16, tenant_waiting=10)
    flood, other = uuid4(), uuid4()
    order: list[str] = []
    gate = asyncio.Event()

    async def ask(tenant: UUID, name: str) -> None:
        async with queue.turn(tenant):
            order.append(name)
            await gate.wait()

    flooding = [asyncio.create_task(ask(flood, f"flood {at}")) for at in range(18)]
    await asyncio.sleep(0)
    assert order == [f"flood {at}" for at in range(8)]  # alone: half of the turns
    with pytest.raises(Problem):
        await ask(flood, "too many")
    few = [asyncio.create_task(ask(other, f"other {at}")) for at in range(3)]
    await asyncio.sleep(0)
    assert order[8:] == ["other 0", "other 1"]  # at once, next to the flood
    few[2].cancel()
    flooding[12].cancel()
    gate.set()
    await asyncio.gather(*flooding, *few, return_exceptions=True)
    assert len(order) == 17 + 2
    assert (queue.running, queue.waiting, queue._free) == (0, 0, 16)


async def test_a_request_cancelled_as_its_turn_begins_strands_no_later_one() -> None:
    queue, tenant = FairQueue(2, tenant_waiting=10), uuid4()

    async def ask() -> None:
        async with queue.turn(tenant):
            await asyncio.sleep(0)

    async with queue.turn(tenant):
        first = asyncio.create_task(ask())
        await asyncio.sleep(0)
        later = [asyncio.create_task(ask()) for _ in range(2)]
    first.cancel()  # its turn has begun, and it has not run since
    await asyncio.wait_for(asyncio.gather(*later), 1.0)
    assert first.cancelled()
    assert (queue.running, queue.waiting, queue._free) == (0, 0, 2)


async def test_a_request_that_gets_no_turn_in_half_its_time_is_refused() -> None:
    queue, tenant = FairQueue(2, tenant_waiting=10), uuid4()
    async with queue.turn(tenant):
        with pytest.raises(Problem) as refused:
            async with queue.turn(tenant, 0.1):
                pass
    assert refused.value.kind is ProblemKind.BUSY
    assert refused.value.retry_after is not None
    assert (queue.running, queue.waiting, queue._free) == (0, 0, 2)


def test_a_tenant_has_a_share_of_what_is_read_and_held() -> None:
    intake = Intake(8, max_body_bytes=100_000_000)
    one, other = uuid4(), uuid4()
    with intake.request(one) as first, intake.request(one) as second:
        with pytest.raises(Problem) as refused, intake.request(one):
            pass
        assert refused.value.kind is ProblemKind.TENANT_BUSY
        second.read()  # one whose body is there leaves its place
        with intake.request(one):
            pass
        first.hold(150_000_000)
        with pytest.raises(Problem) as refused:
            second.hold(60_000_000)
        assert refused.value.kind is ProblemKind.TENANT_BUSY
        with intake.request(other) as others:
            others.hold(100_000_000)
            with intake.request(uuid4()) as third, pytest.raises(Problem) as refused:
                third.hold(100_000_000)
            assert refused.value.kind is ProblemKind.BUSY
    assert (intake.under_way, intake.all_bytes_held) == (0, 0)
    assert not intake.reading
    assert not intake.bytes_held


@pytest.mark.parametrize("nodes", [2, 40])
async def test_a_fleet_serves_all_of_a_budget_and_no_more(nodes: int) -> None:
    tenant, records, now = limited_tenant(requests=600), Counted(), 0.0
    budgets = [Budgets(now=lambda: now) for _ in range(nodes)]
    served = 0
    for number in range(700):
        now = number / 20
        # some nodes get most of it
        at = number % nodes if number % 3 else number % 2
        try:
            await budgets[at].take_request(tenant, records)
            served += 1
        except Problem:
            assert served == 600
    assert served == 600
    assert records.asked <= 600 + nodes  # a node that knows it is spent asks no more


async def test_tokens_that_another_node_spent_are_heard_of() -> None:
    tenant, records, now = limited_tenant(tokens=100), Counted(), 0.0
    here, there = Budgets(now=lambda: now), Budgets(now=lambda: now)
    await here.check_tokens(tenant, records)
    await there.charge_tokens(tenant, records, 10_000)
    asked = records.asked
    await here.check_tokens(tenant, records)
    assert records.asked == asked  # what was heard a moment ago
    now += TOKENS_SECONDS + 0.1
    checks = (here.check_tokens(tenant, records) for _ in range(20))
    told = await asyncio.gather(*checks, return_exceptions=True)
    assert records.asked == asked + 1  # once for all
    assert isinstance(told[0], Problem)
    with pytest.raises(Problem):
        await here.check_tokens(tenant, records)
