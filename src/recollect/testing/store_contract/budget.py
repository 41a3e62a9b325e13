"""What holds for the budget of a day: never exceeded, and nobody waits for it without need."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from recollect.testing.store_contract.cases import for_every
from recollect.testing.store_contract.examples import START
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch, Lease, NewJob
from recollect.values.model import ModelUse

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NOW = START + 1_000


async def model_use_adds_up_by_day_and_purpose(spaces: Spaces) -> None:
    """What was asked of models is counted exactly, also by many at once, and by its own space."""
    store, other = await spaces.open(), await spaces.open("other")
    one = ModelUse(purpose="extraction", calls=1, input_tokens=700, output_tokens=30)
    await store.add_model_use(one, day="2026-01-01")
    await asyncio.gather(*(store.add_model_use(one, day="2026-01-02") for _ in range(8)))
    await store.add_model_use(replace(one, purpose="summary"), day="2026-01-02")
    store = await spaces.reopen(store)
    assert await store.model_use(since="2026-01-02") == (
        replace(one, calls=8, input_tokens=5600, output_tokens=240),
        replace(one, purpose="summary"),
    )
    assert sum(use.calls for use in await store.model_use()) == 10
    assert await store.model_use(since="2026-01-03") == ()
    assert await other.model_use() == ()


async def budget_is_reserved_when_a_job_is_handed_out(spaces: Spaces) -> None:
    """A job that would exceed the day's budget stays, and is handed out the day after."""
    store = await spaces.open()
    jobs = tuple(NewJob(kind="work", key=f"k{number}", cost_tokens=40) for number in range(4))
    await store.write(Batch(at=START, jobs=jobs))
    first = await store.claim(
        now=NOW, lease_seconds=60, kinds=("work",), limit=9, day="mon", day_tokens=100
    )
    assert len(first) == 2
    assert (await store.queue(day="mon")).spent_tokens_today == 80
    assert (await store.queue(day="tue")).spent_tokens_today == 0
    for lease in first:
        await store.complete(lease, Batch(at=NOW))
    store = await spaces.reopen(store)
    assert not await store.claim(
        now=NOW, lease_seconds=60, kinds=("work",), limit=9, day="mon", day_tokens=100
    )
    assert (await store.queue()).waiting == 2
    second = await store.claim(
        now=NOW, lease_seconds=60, kinds=("work",), limit=1, day="tue", day_tokens=100
    )
    assert len(second) == 1
    unbounded = await store.claim(now=NOW, lease_seconds=60, kinds=("work",), limit=9, day="mon")
    assert len(unbounded) == 1


async def costly_job_does_not_hold_up_others(spaces: Spaces) -> None:
    """Jobs that fit go past one that does not, and a job without cost always goes."""
    for limit in (1, 9):
        store = await spaces.open(f"limit{limit}")
        costs = (("huge", 500), ("small", 60), ("large", 90), ("free", 0))
        for place, (key, cost) in enumerate(costs):
            job = NewJob(kind="work", key=key, cost_tokens=cost, run_at=float(place))
            await store.write(Batch(at=START + place, jobs=(job,)))
        taken: list[str] = []
        for _ in range(4):
            leases = await store.claim(
                now=NOW, lease_seconds=60, kinds=("work",), limit=limit, day="d", day_tokens=100
            )
            taken += [lease.key for lease in leases]
        assert taken == ["small", "free"]
        assert (await store.queue(day="d")).spent_tokens_today == 60


async def budget_is_never_exceeded(spaces: Spaces) -> None:
    """Whatever is claimed, fails, expires and is claimed again at once: within the budget."""
    stores = [await spaces.open() for _ in range(3)]
    chance = random.Random(7)  # noqa: S311
    jobs = tuple(
        NewJob(kind="work", key=f"k{number}", cost_tokens=chance.choice((0, 1, 5, 17, 60)))
        for number in range(400)
    )
    await stores[0].write(Batch(at=START, jobs=jobs))
    spent = {"mon": 0, "tue": 0}
    now = NOW
    for _ in range(8):
        day = chance.choice(("mon", "tue"))
        claims = await asyncio.gather(
            *(
                store.claim(now=now, lease_seconds=10, kinds=("work",), limit=limit, day=day,
                            day_tokens=300, max_attempts=50)
                for store in stores
                for limit in (1, 2, 4)
            )
        )  # fmt: skip
        leases = [lease for taken in claims for lease in taken]
        assert len({lease.id for lease in leases}) == len(leases)
        spent[day] += sum(lease.cost_tokens for lease in leases)
        assert (await stores[1].queue(day=day)).spent_tokens_today == spent[day] <= 300
        for lease in leases:
            fate = chance.randrange(3)
            if fate == 0:
                await chance.choice(stores).complete(lease, Batch(at=now))
            elif fate == 1:
                await chance.choice(stores).fail(lease, reason="no", retry_at=now + 1)
        now += chance.choice((2, 20))
    assert min(spent.values()) > 200, "the budget is used"


def _claims() -> SearchStrategy[tuple[list[int], int, list[tuple[int, int, float]]]]:
    from hypothesis import strategies as st

    turn = st.tuples(st.integers(1, 4), st.integers(0, 3), st.sampled_from((1.0, 15.0)))
    costs = st.lists(st.integers(0, 50), min_size=1, max_size=10)
    return st.tuples(costs, st.integers(0, 120), st.lists(turn, min_size=1, max_size=8))


async def any_claims_stay_within_the_budget(spaces: Spaces) -> None:
    """However jobs are claimed, fail and expire: each has one holder, the budget holds."""
    names = count()

    async def hold(case: tuple[list[int], int, list[tuple[int, int, float]]]) -> None:
        costs, budget, turns = case
        store = await spaces.open(f"case{next(names)}")
        jobs = tuple(
            NewJob(kind="work", key=f"{place}", cost_tokens=cost)
            for place, cost in enumerate(costs)
        )
        await store.write(Batch(at=START, jobs=jobs))
        now, spent = START, 0
        held: dict[str, Lease] = {}
        for limit, fate, later in turns:
            leases = await store.claim(
                now=now, lease_seconds=10, kinds=("work",), limit=limit, day="d",
                day_tokens=budget, max_attempts=99,
            )  # fmt: skip
            assert len(leases) <= limit
            for lease in leases:
                before = held.get(lease.id)
                assert before is None or before.expires_at <= now, "two hold one job"
                held[lease.id] = lease
                spent += lease.cost_tokens
            assert (await store.queue(day="d")).spent_tokens_today == spent <= budget
            for lease in leases[:fate]:
                assert await store.fail(lease, reason="no", retry_at=now)
                held[lease.id] = replace(lease, expires_at=now)
            now += later
        left = [record.cost_tokens for record in await store.jobs(limit=1_000)]
        assert sorted(left) == sorted(costs), "a job was lost"
        await spaces.finish(store)

    await for_every(_claims, hold)
