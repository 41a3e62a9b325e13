"""What holds for the queue: one holder, one effect, nothing dropped without a reason."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from recollect.ports import Store
from recollect.testing.store_contract.examples import START, fact, ids, segments
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch, Lease, NewJob

NOW = START + 1_000


async def _enqueue(store: Store, *jobs: NewJob, at: float = START) -> None:
    await store.write(Batch(at=at, jobs=jobs))


async def _claim(
    store: Store, *, now: float = NOW, kinds: tuple[str, ...] = ("work",), **more: Any
) -> tuple[Lease, ...]:
    more.setdefault("limit", 100)
    return await store.claim(now=now, lease_seconds=60, kinds=kinds, **more)


async def job_is_handed_out_as_written(spaces: Spaces) -> None:
    """A job comes to its worker with its payload, for as long as the lease was asked for."""
    store = await spaces.open()
    payload = '{"text": "Größe 世界 \' \\" 🙂"}'.encode()
    await _enqueue(store, NewJob(kind="work", key="k'1", payload=payload, cost_tokens=7))
    (lease,) = await _claim(store)
    assert (lease.kind, lease.key, lease.payload) == ("work", "k'1", payload)
    assert (lease.cost_tokens, lease.attempt, lease.expires_at) == (7, 1, NOW + 60)
    (record,) = await store.jobs()
    assert (record.id, record.state, record.attempts) == (lease.id, "leased", 1)
    assert (record.kind, record.key, record.cost_tokens) == ("work", "k'1", 7)


async def waiting_job_is_not_enqueued_twice(spaces: Spaces) -> None:
    """Two jobs of one kind and key are one while it waits; a leased one does not count."""
    store = await spaces.open()
    one, other = NewJob(kind="work", key="same"), NewJob(kind="rest", key="same")
    await _enqueue(store, one, one, other)
    await _enqueue(store, one)
    assert (await store.queue()).waiting == 2
    (lease,) = await _claim(store)
    await _enqueue(store, one)
    state = await store.queue()
    assert (state.waiting, state.leased) == (2, 1)
    (second,) = await _claim(store)
    assert second.id != lease.id
    assert await store.complete(lease, Batch(at=NOW))
    assert await store.complete(second, Batch(at=NOW))
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
    assert await store.fail(lease, reason="again", retry_at=NOW + 1)
    assert (await store.queue()).waiting == 1
    (lease,) = await _claim(store, now=NOW + 2)
    await _enqueue(store, job)
    assert await store.fail(lease, reason="no use", retry_at=None)
    await store.revive(at=NOW + 3)
    state = await store.queue()
    assert (state.waiting, state.leased, state.dead) == (1, 0, 0)
    (lease,) = await _claim(store, now=NOW + 4)
    await _enqueue(store, job)
    leases = await _claim(store, now=NOW + 1_000)  # its lease expired, and a twin waits
    assert leases
    assert len({one.token for one in leases}) == len(leases)


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
    assert await _claim(store, now=NOW + 59) == ()
    (second,) = await _claim(store, now=NOW + 61)
    assert (second.id, second.attempt) == (first.id, 2)
    assert second.token != first.token
    assert not await store.heartbeat(first, expires_at=NOW + 500)
    assert not await store.complete(first, Batch(at=NOW, segments=new, facts=(fact("f"),)))
    assert not await store.fail(first, reason="late", retry_at=None)
    assert await store.page() == ()
    assert await store.facts() == ()
    (record,) = await store.jobs()
    assert (record.state, record.attempts) == ("leased", 2)
    assert await store.complete(second, Batch(at=NOW, segments=new))
    assert len(await store.page()) == 2
    assert not await store.complete(second, Batch(at=NOW, facts=(fact("f"),)))
    assert await store.facts() == ()


async def heartbeat_keeps_a_lease(spaces: Spaces) -> None:
    """A lease that is kept is not handed on before its new end."""
    store = await spaces.open()
    await _enqueue(store, NewJob(kind="work", key="k"))
    (lease,) = await _claim(store)
    assert await store.heartbeat(lease, expires_at=NOW + 300)
    assert await _claim(store, now=NOW + 200) == ()
    assert await store.complete(lease, Batch(at=NOW))
    assert not await store.heartbeat(lease, expires_at=NOW + 900)
    assert await store.jobs() == ()


async def effect_and_completion_are_one(spaces: Spaces) -> None:
    """Completing writes the effect and removes the job; a failed effect leaves the job held."""
    store = await spaces.open()
    new = segments(3)
    await _enqueue(store, NewJob(kind="work", key="k"))
    (lease,) = await _claim(store)
    bad = Batch(at=NOW, segments=new, facts=(fact("bad", content="lone \ud800"),))
    (outcome,) = await asyncio.gather(store.complete(lease, bad), return_exceptions=True)
    if isinstance(outcome, BaseException):
        assert await store.page() == ()
        assert (await store.queue()).leased == 1
        follow_up = NewJob(kind="work", key="k")
        assert await store.complete(lease, Batch(at=NOW, segments=new, jobs=(follow_up,)))
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
            store.complete(lease, Batch(at=NOW, facts=(fact(f"by-{place}"),)))
            for place, store in enumerate(stores * 2)
        )
    )
    assert sum(outcomes) == 1
    assert [one.id for one in await stores[0].facts()] == [f"by-{outcomes.index(True)}"]


async def failed_job_waits_for_its_retry(spaces: Spaces) -> None:
    """A job that failed waits until its retry, with the reason and its attempts."""
    store = await spaces.open()
    await _enqueue(store, NewJob(kind="work", key="k"))
    (lease,) = await _claim(store)
    assert await store.fail(lease, reason="rate limited", retry_at=NOW + 30)
    (record,) = await store.jobs()
    assert (record.state, record.reason, record.run_at) == ("waiting", "rate limited", NOW + 30)
    assert (await store.queue()).due_at == NOW + 30
    assert not await store.complete(lease, Batch(at=NOW))
    assert await _claim(store, now=NOW + 29) == ()
    (again,) = await _claim(store, now=NOW + 31)
    assert (again.id, again.attempt) == (lease.id, 2)


async def dead_jobs_say_why(spaces: Spaces) -> None:
    """A job that failed for good, or was taken too often, is dead with a reason, and kept."""
    store = await spaces.open()
    await _enqueue(store, NewJob(kind="work", key="failed"))
    (lease,) = await _claim(store)
    assert await store.fail(lease, reason="cannot be done", retry_at=None)
    await _enqueue(store, NewJob(kind="work", key="killer"))
    now = NOW
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
    """Revived jobs wait again with no attempt counted: those named, or all."""
    store = await spaces.open()
    await _enqueue(store, *(NewJob(kind="work", key=key) for key in "abc"))
    leases = await _claim(store)
    for lease in leases:
        assert await store.fail(lease, reason="no", retry_at=None)
    assert await _claim(store, now=NOW + 1_000) == ()
    assert await store.revive([leases[1].id], at=NOW) == 1
    (back,) = await _claim(store, now=NOW + 1)
    assert (back.key, back.attempt) == ("b", 1)
    assert await store.revive(at=NOW) == 2
    assert {lease.key for lease in await _claim(store, now=NOW + 2)} == {"a", "c"}
    assert await store.revive(at=NOW) == 0


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
    assert await store.complete(lease, Batch(at=NOW)), "what runs may end"
    await store.resume("work")
    assert (await store.queue()).paused == ()
    assert len(await _claim(store, limit=1)) == 1
    await store.pause()
    assert (await store.queue()).paused == ("*",)
    assert await _claim(store, kinds=("work", "rest")) == ()
    await store.resume()
    assert len(await _claim(store)) == 1
