"""Workers and writers of one space at the same time, from pools of their own, as processes are."""

import asyncio
from dataclasses import replace

import psycopg
import pytest
from tests.integration.postgres.conftest import own_store
from tests.store_contract import examples
from tests.store_contract.harness import claim_all

from recollect.adapters.stores.postgres.store import PostgresFleet, PostgresStore, space_uuid
from recollect.core.values.batch import Batch, NewJob, TurnRecord
from recollect.errors import BatchRefused, StoreUnavailable
from recollect_bench.postgres_server import TestDatabase

AT = examples.START


async def stores(url: str, count: int) -> list[PostgresStore]:
    return [await own_store(url, space="one", pool_size=2) for _ in range(count)]


async def test_failing_and_reviving_beside_enqueueing(database: TestDatabase) -> None:
    """The same job is asked for while it is given back: the two are one, and nobody is refused."""

    async def writer(store: PostgresStore) -> None:
        for number in range(40):
            job = NewJob(kind="work", key=f"k{number % 3}")
            await store.write(Batch(at=AT, jobs=(job,)))

    async def worker(store: PostgresStore) -> None:
        for number in range(40):
            for lease in await claim_all(
                store, now=AT + number, kinds=("work",), limit=2, max_attempts=99
            ):
                retry_at = None if number % 2 else AT
                assert await store.fail(lease, reason="no", retry_at=retry_at)
            await store.revive(at=AT)

    opened = await stores(database.app_url, 4)
    await asyncio.gather(*map(writer, opened[:2]), *map(worker, opened[2:]))
    state = await opened[0].queue()
    await opened[0].revive(at=AT)
    assert (await opened[0].queue()).waiting + state.leased <= 3
    assert (await opened[0].check()).problems == ()
    for store in opened:
        await store.close()


async def test_expiring_beside_recording(database: TestDatabase) -> None:
    """A turn that is recorded while the one it rests on expires can be rebuilt all the same."""
    piece = examples.piece("row")

    async def writer(store: PostgresStore) -> None:
        for number in range(1, 60):
            kept = 0 if number == 1 else number - 1
            turn = TurnRecord(session="s", number=number, at=AT + number, format="pi",
                              kept_rows=kept, rows=(piece.hash,))  # fmt: skip
            await store.write(Batch(at=AT, pieces=(piece,), turns=(turn,)))

    async def expirer(store: PostgresStore) -> None:
        for _ in range(60):
            newest = max(await store.turns("s"), default=0)
            await store.expire(before=AT + newest)

    opened = await stores(database.app_url, 2)
    await asyncio.gather(writer(opened[0]), expirer(opened[1]))
    assert (await opened[0].check()).problems == ()
    for number in await opened[0].turns("s"):
        rebuilt = await opened[0].turn("s", number)
        assert rebuilt is not None
        assert len(rebuilt.rows) == number
    for store in opened:
        await store.close()


async def test_a_turn_that_rests_on_nothing_is_told(database: TestDatabase) -> None:
    (store,) = await stores(database.app_url, 1)
    turn = TurnRecord(session="s", number=1, at=AT, format="pi",
                      rows=(examples.piece("a").hash,))  # fmt: skip
    later = replace(turn, number=2, kept_rows=1)
    await store.write(Batch(at=AT, turns=(turn, later)))
    assert (await store.check()).problems == ()
    with psycopg.connect(database.admin_url) as owner:
        owner.execute("DELETE FROM recollect.turns WHERE number = 1")
    assert await store.turn("s", 2) is None
    assert any("ledger" in one for one in (await store.check()).problems)
    await store.close()


async def test_space_whose_jobs_nobody_takes_does_not_stand_in_way(database: TestDatabase) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    for name, kind in (("stuck", "unheard of"), ("works", "work")):
        store = await fleet.space(name)
        await store.write(Batch(at=AT, jobs=(NewJob(kind=kind, key="k", run_at=AT),)))
    stuck = await fleet.space("stuck")
    now = AT + 1
    assert (await fleet.spaces_with_due_jobs(now, 1)).names == ("stuck",)
    assert await stuck.claim(now=now, lease_seconds=9, kinds=("work",)) is None
    assert (await fleet.spaces_with_due_jobs(now, 1)).names == ("works",)
    assert set((await fleet.spaces_with_due_jobs(now + 60)).names) == {"stuck", "works"}
    await stuck.write(Batch(at=now, jobs=(NewJob(kind="work", key="k", run_at=now),)))
    assert set((await fleet.spaces_with_due_jobs(now)).names) == {"stuck", "works"}
    await fleet.close()


async def test_what_no_index_can_hold_is_refused_and_not_retried(database: TestDatabase) -> None:
    (store,) = await stores(database.app_url, 1)
    wide = examples.segment("x", session="".join(chr(200 + n % 900) for n in range(90_000)))
    with pytest.raises(BatchRefused):
        await store.write(Batch(at=AT, segments=(wide,)))
    new = examples.segments(1)
    passage = replace(new[0].passages[0], end=2**40)
    with pytest.raises(BatchRefused):
        await store.write(Batch(at=AT, segments=(replace(new[0], passages=(passage,)),)))
    bad = examples.vectors(new)
    nan = b"\0\0\xc0\x7f" * bad.dimensions
    broken = replace(bad, vectors=(replace(bad.vectors[0], values=nan),))
    with pytest.raises(BatchRefused):
        await store.write(Batch(at=AT, segments=new, vectors=(broken,)))
    assert await store.page() == ()
    assert (await store.write(Batch(at=AT, segments=new, vectors=(bad,)))).stored
    await store.close()


async def test_two_sets_of_one_new_embedder_are_one(database: TestDatabase) -> None:
    (store,) = await stores(database.app_url, 1)
    new = examples.segments(6)
    first, rest = examples.vectors(new[:4]), examples.vectors(new[2:])
    other = replace(
        first, vectors=tuple(replace(one, values=one.values[::-1]) for one in first.vectors)
    )
    await store.write(Batch(at=AT, segments=new, vectors=(first, rest, other)))
    await store.write(Batch(at=AT, vectors=(other,)))
    held = {one.segment: one.values for one in await store.vectors(first.embedder)}
    assert held == {one.segment: one.values for one in (*first.vectors, *rest.vectors)}
    assert dict((await store.stats()).vectors) == {first.embedder: 6}
    assert (await store.check()).problems == ()
    await store.close()


async def test_a_server_that_does_not_answer_is_given_up(database: TestDatabase) -> None:
    """A lock that is never released stands for a server that hangs."""
    (store,) = await stores(database.app_url, 1)
    await store.write(examples.full_batch(0))
    with psycopg.connect(database.admin_url) as owner:
        owner.execute(
            "SELECT FROM recollect.counters WHERE space_id = %s FOR UPDATE", (space_uuid("one"),)
        )
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable):
                async with store.fleet.pool.transaction(space_uuid("one"), seconds=0.5) as work:
                    await work.rows(
                        "SELECT 1 FROM recollect.counters WHERE space_id = %s FOR UPDATE",
                        (space_uuid("one"),),
                    )
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
        )
        async with asyncio.timeout(5):  # it was asked to stop, and does so in a moment
            while owner.execute(waiting, (database.name,)).fetchone() != (0,):
                owner.execute("SELECT pg_stat_clear_snapshot()")
                await asyncio.sleep(0.05)
    assert (await store.write(examples.full_batch(1))).stored
    await store.close()
