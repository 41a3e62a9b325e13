"""Row-level security: as the application's role no query reaches another space."""

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.conftest import own_store
from tests.store_contract import examples
from tests.store_contract.harness import claim_all

from recollect.adapters.stores.postgres import vectors
from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.fact import ExtractedTo
from recollect.core.values.model import ModelUse
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import StoreError
from recollect_bench.postgres_server import TestDatabase


async def fill(url: str) -> None:
    """Two spaces with a row in every table."""
    fleet = await PostgresFleet.open(url)
    for name in ("mine", "theirs"):
        store = await fleet.space(name)
        for number in range(3):
            await store.write(examples.full_batch(number, session=f"s{number}"))
        new = examples.full_batch(3, session="s3").segments
        quoting = examples.session_write(
            new, turn=1, session="s3", about=(new[0].segment.message_id,)
        )
        known = examples.fact("known")
        await store.write(
            Batch(
                at=examples.START,
                session=quoting,
                facts=(known,),
                fact_vectors=(examples.fact_vectors((known,)),),
                extracted=(ExtractedTo(session="s3", sequence=1),),
            )
        )
        await store.pack(least=1)
        first = examples.full_batch(0, session="s0").segments[0].segment
        await store.forget(ForgetOrder(at=examples.START, segments=(first.id,)))
        await store.claim(now=1e12, lease_seconds=1, kinds=["embed"], day="d", day_tokens=9)
        await store.pause("other")
        await store.add_model_use(ModelUse(purpose="summary", calls=1), day="d")
    await fleet.close()


@pytest.fixture
def filled(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> TestDatabase:
    monkeypatch.setattr(vectors, "EXACT_NUMBERS", 0)  # a few vectors have signs, too
    asyncio.run(fill(database.app_url))
    return database


def tables(connection: psycopg.Connection[Any]) -> list[str]:
    return [
        row[0]
        for row in connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'"
            " AND a.attname = 'space_id' ORDER BY 1"
        )
    ]


def test_a_query_without_its_filter_finds_nothing_of_others(filled: TestDatabase) -> None:
    mine, theirs = space_uuid("mine"), space_uuid("theirs")
    with psycopg.connect(filled.admin_url) as owner:
        for table in tables(owner):
            held = owner.execute(
                f"SELECT count(*) FROM recollect.{table} WHERE space_id = %s".encode(), (theirs,)
            ).fetchone()
            assert held is not None
            assert held[0] > 0, f"{table} has no row to protect"
    with psycopg.connect(filled.app_url, autocommit=True) as application:
        for table in tables(application):
            everything = f"SELECT DISTINCT space_id FROM recollect.{table}".encode()
            with application.transaction():
                application.execute(f"SET LOCAL app.space_id = '{mine}'".encode())
                assert application.execute(everything).fetchall() == [(mine,)], table
            assert application.execute(everything).fetchall() == [], table


def test_rows_of_others_cannot_be_changed_or_made(filled: TestDatabase) -> None:
    mine, theirs = space_uuid("mine"), space_uuid("theirs")
    with psycopg.connect(filled.app_url, autocommit=True) as application:
        for table in tables(application):
            with application.transaction(force_rollback=True):
                application.execute(f"SET LOCAL app.space_id = '{mine}'".encode())
                removed = application.execute(
                    f"DELETE FROM recollect.{table} WHERE space_id = %s".encode(), (theirs,)
                )
                assert removed.rowcount == 0, table
            with pytest.raises(psycopg.errors.InsufficientPrivilege), application.transaction():
                application.execute(f"SET LOCAL app.space_id = '{mine}'".encode())
                application.execute(
                    f"UPDATE recollect.{table} SET space_id = %s".encode(), (theirs,)
                )
        with pytest.raises(psycopg.errors.InsufficientPrivilege), application.transaction():
            application.execute(f"SET LOCAL app.space_id = '{mine}'".encode())
            application.execute(
                "INSERT INTO recollect.job_pauses (space_id, kind) VALUES (%s, 'x')", (theirs,)
            )


async def test_a_role_above_row_security_acts_as_the_application(filled: TestDatabase) -> None:
    store = await own_store(filled.admin_url, space="mine")
    async with store.fleet.pool.transaction(space_uuid("mine")) as work:
        (row,) = await work.rows("SELECT current_user::text")
        assert row == ("recollect_app",)
        spaces = await work.rows("SELECT DISTINCT space_id FROM recollect.segments")
        assert spaces == [(space_uuid("mine"),)]
    assert (await store.check()).problems == ()
    await store.close()


async def test_word_statistics_are_a_spaces_own(database: TestDatabase) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    small, large = await fleet.space("small"), await fleet.space("large")
    batch = examples.full_batch(0)
    await small.write(batch)
    words = batch.segments[0].passages[0].words
    before = await small.candidates(CandidateQuery(words=words))
    await large.write(examples.full_batch(0, count=200))
    await large.pack(least=1)
    assert await small.candidates(CandidateQuery(words=words)) == before
    await fleet.close()


async def test_worker_sees_which_spaces_have_work_and_nothing_else(database: TestDatabase) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    for number, name in enumerate(("late", "early", "none")):
        store = await fleet.space(name)
        jobs = (NewJob(kind="embed", key="k", run_at=100.0 - number),) if number < 2 else ()
        await store.write(replace(examples.full_batch(number), jobs=jobs))
    assert (await fleet.spaces_with_due_jobs(99.5)).names == ("early",)
    assert (await fleet.spaces_with_due_jobs(1e9)).names == ("early", "late")
    assert (await fleet.spaces_with_due_jobs(1e9, 1)).names == ("early",)
    early = await fleet.space("early")
    (lease,) = await claim_all(early, now=200.0, lease_seconds=50, kinds=("embed",))
    assert (await fleet.spaces_with_due_jobs(210.0)).names == ("late",)
    assert (await fleet.spaces_with_due_jobs(251.0)).names == ("late", "early")  # its lease ran out
    assert await early.complete(lease, Batch(at=1.0))
    late = await fleet.space("late")
    await late.pause()
    assert (await fleet.spaces_with_due_jobs(1e9)).names == ()
    await late.resume()
    assert (await fleet.spaces_with_due_jobs(1e9)).names == ("late",)
    async with fleet.pool.workers_view() as view:
        assert await view.rows("SELECT 1 FROM recollect.segments") == []
    await fleet.close()


async def test_a_store_closes_only_what_it_owns(database: TestDatabase) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    one, two = await fleet.space("one"), await fleet.space("two")
    await one.close()
    await two.write(examples.full_batch(0))
    with pytest.raises(StoreError):
        await one.stats()
    await fleet.close()
