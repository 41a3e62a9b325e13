"""What holds for the queue: one holder, one effect, nothing dropped without a reason."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.store_contract.examples import SOON, START, fact, ids, segments
from tests.store_contract.harness import Spaces, claim_all, for_every

from recollect.core.ports import Store
from recollect.core.values.batch import Batch, Lease, NewJob
from recollect.core.values.model import ModelUse

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


async def _enqueue(store: Store, *jobs: NewJob, at: float = START) -> None:
    await store.write(Batch(at=at, jobs=jobs))


async def _claim(
    store: Store, *, now: float = SOON, kinds: tuple[str, ...] = ("work",), **more: Any
) -> tuple[Lease, ...]:
    return await claim_all(store, now=now, kinds=kinds, **more)


async def waiting_job_is_not_enqueued_twice(spaces: Spaces) -> None:
    """Two jobs of one kind and key are one while it waits; a leased one does not count."""
    store = await spaces.open()
    job, other = NewJob(kind="work", key="same"), NewJob(kind="rest", key="same")
    await _enqueue(store, job, job, other)
    await _enqueue(store, job)
    assert (await store.queue()).waiting == 2
    (lease,) = await _claim(store)
    await _enqueue(store, job)
    state = await store.queue()
    assert (state.waiting, state.leased) == (2, 1)
    (second,) = await _claim(store)
    assert second.id != lease.id
    assert await store.complete(lease, Batch(at=SOON))
    assert await store.complete(second, Batch(at=SOON))
    assert [record.kind for record in await store.jobs()] == ["rest"]


async def jobs_of_a_known_batch_are_left_out(spaces: Spaces) -> None:
    """A batch whose segments were all known brings its jobs once: they may be done already."""
    store = await spaces.open()
    new = segments(3)
    batch = Batch(at=START, segments=new[:2], jobs=(NewJob(kind="work", key="k"),))
    await store.write(batch)
    (lease,) = await _claim(store)
    assert await store.complete(lease, Batch(at=START))
    assert (await store.write(batch)).known == ids(new[:2])
    assert await store.jobs() == ()
    await store.write(replace(batch, segments=new))
    assert [record.key for record in await store.jobs()] == ["k"]
    await store.write(Batch(at=START, jobs=(NewJob(kind="work", key="alone"),)))
    assert len(await store.jobs()) == 2


async def job_given_back_joins_its_twin(spaces: Spaces) -> None:
    """A job that waits again beside another of its kind and key is one job with it."""
    store = await spaces.open()
    job = NewJob(kind="work", key="same")
    await _enqueue(store, job)
    (lease,) = await _claim(store)
    await _enqueue(store, job)
    assert await store.fail(lease, reason="again", retry_at=SOON + 1)
    assert (await store.queue()).waiting == 1
    (lease,) = await _claim(store, now=SOON + 2)
    await _enqueue(store, job)
    assert await store.fail(lease, reason="no use", retry_at=None)
    await store.revive(at=SOON + 3)
    state = await store.queue()
    assert (state.waiting, state.leased, state.dead) == (1, 0, 0)
    (lease,) = await _claim(store, now=SOON + 4)
    await _enqueue(store, job)
    leases = await _claim(store, now=SOON + 1_000)  # its lease expired, and a twin waits
    assert leases
    assert len({lease.token for lease in leases}) == len(leases)


async def oldest_due_job_comes_first(spaces: Spaces) -> None:
    """Jobs come by the time they run at, then as they were written; none before its time."""
    store = await spaces.open()
    for place, (key, run_at) in enumerate(
        (("b", 20.0), ("d", 40.0), ("a", 10.0), ("z", 30.0), ("c", 30.0), ("now", 0.0))
    ):
        await _enqueue(store, NewJob(kind="work", key=key, run_at=run_at), at=START + place)
    await _enqueue(store, NewJob(kind="other", key="x", run_at=1.0))
    assert (await store.queue()).due_at == 0.0
    order = [record.key for record in await store.jobs()]
    assert order == ["now", "x", "a", "b", *order[4:6], "d"]
    assert [lease.key for lease in await _claim(store, now=5.0)] == ["now"]
    assert (await _claim(store, now=5.0)) == ()
    assert [lease.key for lease in await _claim(store, now=25.0, limit=1)] == ["a"]
    assert [lease.key for lease in await _claim(store, now=35.0, limit=3)] == ["b", "z", "c"]
    assert (await store.queue()).due_at == 1.0
    left = await _claim(store, now=45.0, kinds=("work", "other"))
    assert [lease.key for lease in left] == ["x", "d"]
    assert (await store.queue()).due_at is None


async def job_has_one_holder(spaces: Spaces) -> None:
    """However many workers ask at once, each job is handed to one of them."""
    stores = [await spaces.open() for _ in range(4)]
    await _enqueue(stores[0], *(NewJob(kind="work", key=f"k{number}") for number in range(40)))
    claims = await asyncio.gather(*(_claim(store, limit=3) for store in stores for _ in range(6)))
    taken = [lease.id for leases in claims for lease in leases]
    assert len(taken) == len(set(taken))
    taken += [lease.id for lease in await _claim(stores[0])]
    assert len(taken) == len(set(taken)) == 40
    assert await _claim(stores[1]) == ()
    assert (await stores[2].queue()).leased == 40


async def expired_lease_is_handed_on(spaces: Spaces) -> None:
    """A lease that expired is handed on under a new token; its first holder has lost it."""
    store = await spaces.open()
    new = segments(2)
    await _enqueue(store, NewJob(kind="work", key="k"))
    (first,) = await _claim(store)
    assert await _claim(store, now=SOON + 59) == ()
    (second,) = await _claim(store, now=SOON + 61)
    assert (second.id, second.attempt) == (first.id, 2)
    assert second.token != first.token
    assert not await store.heartbeat(first, expires_at=SOON + 500)
    assert not await store.complete(first, Batch(at=SOON, segments=new, facts=(fact("f"),)))
    assert not await store.fail(first, reason="late", retry_at=None)
    assert await store.page() == ()
    assert await store.facts() == ()
    (record,) = await store.jobs()
    assert (record.state, record.attempts) == ("leased", 2)
    assert await store.complete(second, Batch(at=SOON, segments=new))
    assert len(await store.page()) == 2
    assert not await store.complete(second, Batch(at=SOON, facts=(fact("f"),)))
    assert await store.facts() == ()


async def heartbeat_keeps_a_lease(spaces: Spaces) -> None:
    """A lease that is kept is not handed on before its new end."""
    store = await spaces.open()
    await _enqueue(store, NewJob(kind="work", key="k"))
    (lease,) = await _claim(store)
    assert await store.heartbeat(lease, expires_at=SOON + 300)
    assert await _claim(store, now=SOON + 200) == ()
    assert await store.complete(lease, Batch(at=SOON))
    assert not await store.heartbeat(lease, expires_at=SOON + 900)
    assert await store.jobs() == ()


async def effect_and_completion_are_one(spaces: Spaces) -> None:
    """Completing writes the effect and removes the job; a failed effect leaves the job held."""
    store = await spaces.open()
    new = segments(3)
    await _enqueue(store, NewJob(kind="work", key="k"))
    (lease,) = await _claim(store)
    bad = Batch(at=SOON, segments=new, facts=(fact("bad", content="lone \ud800"),))
    (outcome,) = await asyncio.gather(store.complete(lease, bad), return_exceptions=True)
    if isinstance(outcome, BaseException):
        assert await store.page() == ()
        assert (await store.queue()).leased == 1
        follow_up = NewJob(kind="work", key="k")
        assert await store.complete(lease, Batch(at=SOON, segments=new, jobs=(follow_up,)))
        assert [record.state for record in await store.jobs()] == ["waiting"]
    else:
        assert await store.jobs() == ()
    assert tuple(row.segment.id for row in await store.page()) == ids(new)


async def one_of_many_completions_counts(spaces: Spaces) -> None:
    """Of completions of one lease that run at once, one has its effect."""
    stores = [await spaces.open() for _ in range(3)]
    await _enqueue(stores[0], NewJob(kind="work", key="k"))
    (lease,) = await _claim(stores[0])
    outcomes = await asyncio.gather(
        *(
            store.complete(lease, Batch(at=SOON, facts=(fact(f"by-{place}"),)))
            for place, store in enumerate(stores * 2)
        )
    )
    assert sum(outcomes) == 1
    assert [fact.id for fact in await stores[0].facts()] == [f"by-{outcomes.index(True)}"]


async def dead_jobs_say_why(spaces: Spaces) -> None:
    """A job that failed for good, or was taken too often, is dead with a reason, and kept."""
    store = await spaces.open()
    await _enqueue(store, NewJob(kind="work", key="failed"))
    (lease,) = await _claim(store)
    assert await store.fail(lease, reason="cannot be done", retry_at=None)
    await _enqueue(store, NewJob(kind="work", key="killer"))
    now = SOON
    for attempt in (1, 2, 3):
        (lease,) = await _claim(store, now=now, max_attempts=3)
        assert (lease.key, lease.attempt) == ("killer", attempt)
        now += 100
    assert await _claim(store, now=now, max_attempts=3) == ()
    records = {record.key: record for record in await store.jobs()}
    assert {record.state for record in records.values()} == {"dead"}
    assert records["failed"].reason == "cannot be done"
    assert records["killer"].reason
    assert not await store.heartbeat(lease, expires_at=now + 100)
    assert not await store.complete(lease, Batch(at=now, facts=(fact("f"),)))
    assert await store.facts() == ()
    state = await store.queue()
    assert (state.waiting, state.leased, state.dead) == (0, 0, 2)
    assert (await store.stats()).jobs_dead == 2


async def dead_jobs_can_be_revived(spaces: Spaces) -> None:
    """Revived jobs wait again with no attempt counted."""
    store = await spaces.open()
    await _enqueue(store, *(NewJob(kind="work", key=key) for key in "abc"))
    for lease in await _claim(store):
        assert await store.fail(lease, reason="no", retry_at=None)
    assert await _claim(store, now=SOON + 1_000) == ()
    assert await store.revive(at=SOON) == 3
    back = await _claim(store, now=SOON + 1)
    assert {(lease.key, lease.attempt) for lease in back} == {("a", 1), ("b", 1), ("c", 1)}
    assert await store.revive(at=SOON) == 0


async def paused_kinds_are_not_handed_out(spaces: Spaces) -> None:
    """What is paused waits, by kind or all of it, also after reopening, until it is resumed."""
    store = await spaces.open()
    await _enqueue(store, NewJob(kind="work", key="w"), NewJob(kind="rest", key="r"))
    await store.pause("work")
    await store.pause("work")
    store = await spaces.reopen(store)
    assert (await store.queue()).paused == ("work",)
    (lease,) = await _claim(store, kinds=("work", "rest"))
    assert lease.kind == "rest"
    await _enqueue(store, NewJob(kind="work", key="w2"))
    assert (await store.queue()).waiting == 2
    assert await store.complete(lease, Batch(at=SOON)), "what runs may end"
    await store.resume("work")
    assert (await store.queue()).paused == ()
    assert len(await _claim(store, limit=1)) == 1
    await store.pause()
    assert (await store.queue()).paused == ("*",)
    assert await _claim(store, kinds=("work", "rest")) == ()
    await store.resume()
    assert len(await _claim(store)) == 1


# What holds for the budget of a day: never exceeded, and nobody waits for it without need.


async def model_use_adds_up_by_day_and_purpose(spaces: Spaces) -> None:
    """What was asked of models is counted exactly, also by many at once, and by its own space."""
    store, other = await spaces.open(), await spaces.open("other")
    model_use = ModelUse(purpose="extraction", calls=1, input_tokens=700, output_tokens=30)
    await store.add_model_use(model_use, day="2026-01-01")
    await asyncio.gather(*(store.add_model_use(model_use, day="2026-01-02") for _ in range(8)))
    await store.add_model_use(replace(model_use, purpose="summary"), day="2026-01-02")
    store = await spaces.reopen(store)
    assert await store.model_use(since="2026-01-02") == (
        replace(model_use, calls=8, input_tokens=5600, output_tokens=240),
        replace(model_use, purpose="summary"),
    )
    assert sum(use.calls for use in await store.model_use()) == 10
    assert await store.model_use(since="2026-01-03") == ()
    assert await other.model_use() == ()


async def budget_is_reserved_when_a_job_is_handed_out(spaces: Spaces) -> None:
    """A job that would exceed the day's budget stays, and is handed out the day after."""
    store = await spaces.open()
    jobs = tuple(NewJob(kind="work", key=f"k{number}", cost_tokens=40) for number in range(4))
    await store.write(Batch(at=START, jobs=jobs))
    first = await _claim(store, day="mon", day_tokens=100)
    assert len(first) == 2
    assert (await store.queue(day="mon")).spent_tokens_today == 80
    assert (await store.queue(day="tue")).spent_tokens_today == 0
    for lease in first:
        await store.complete(lease, Batch(at=SOON))
    store = await spaces.reopen(store)
    assert not await _claim(store, day="mon", day_tokens=100)
    assert (await store.queue()).waiting == 2
    assert len(await _claim(store, limit=1, day="tue", day_tokens=100)) == 1
    assert len(await _claim(store, day="mon")) == 1


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
        stored_leases: dict[str, Lease] = {}
        for limit, fate, later in turns:
            leases = await _claim(
                store, now=now, lease_seconds=10, limit=limit, day="d", day_tokens=budget,
                max_attempts=99,
            )  # fmt: skip
            assert len(leases) <= limit
            for lease in leases:
                before = stored_leases.get(lease.id)
                assert before is None or before.expires_at <= now, "two hold one job"
                stored_leases[lease.id] = lease
                spent += lease.cost_tokens
            assert (await store.queue(day="d")).spent_tokens_today == spent <= budget
            for lease in leases[:fate]:
                assert await store.fail(lease, reason="no", retry_at=now)
                stored_leases[lease.id] = replace(lease, expires_at=now)
            now += later
        left = [record.cost_tokens for record in await store.jobs(limit=1_000)]
        assert sorted(left) == sorted(costs), "a job was lost"
        await spaces.finish(store)

    await for_every(_claims, hold)
