"""Tenants and their keys, by the command line and in the database."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner

from recollect.service.keys import make_key, opens, read_key
from recollect.stores.postgres import PostgresFleet
from recollect.surfaces.cli import main
from recollect.testing.store_contract import examples
from recollect.upkeep.certificates import is_intact, read_certificate
from recollect.values.tenant import tenant_space
from recollect_bench.postgres_server import TestDatabase

TABLES = ("tenants", "api_keys", "tenant_spaces", "idempotency_keys", "tenant_usage", "audit_log")


def cli(database: TestDatabase, *arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(main, [*arguments, "--store", database.app_url, "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if done.stdout.strip() else None


def test_a_key_is_shown_once_and_kept_as_a_hash(database: TestDatabase) -> None:
    made = cli(database, "tenant", "create", "hashed", "--requests-per-minute", "7")
    key = cli(database, "key", "create", "hashed", "--name", "ci", "--expires", "90d")
    given = read_key(key["key"])
    assert given is not None
    assert str(given.tenant) == made["id"]
    assert key["prefix"].removesuffix("…") == key["key"][: len(key["prefix"]) - 1]
    assert key["scopes"] == ["read", "write"]
    secret = key["key"].rsplit("_", 1)[1]
    with psycopg.connect(database.admin_url) as owner:
        for table in TABLES:
            rows = owner.execute(f"SELECT t::text FROM recollect.{table} AS t".encode()).fetchall()
            assert secret not in str(rows)
    (listed,) = cli(database, "key", "list", "hashed")["keys"]
    assert listed["id"] == key["id"]
    assert "key" not in listed


def test_a_key_opens_until_it_ends_is_revoked_or_was_rotated(database: TestDatabase) -> None:
    cli(database, "tenant", "create", "ending")
    first = cli(database, "key", "create", "ending", "--scope", "admin", "--scope", "read")
    second = cli(database, "key", "rotate", "ending", first["id"], "--grace", "1h")
    assert second["scopes"] == ["read", "admin"]

    async def opening(text: str, at: float) -> bool:
        given = read_key(text)
        assert given is not None
        fleet = await PostgresFleet.open(database.app_url)
        found = await fleet.tenants().key(given.tenant, given.id)
        await fleet.close()
        return found is not None and opens(given, found[0], now=at)

    now = time.time()
    assert asyncio.run(opening(first["key"], now))
    assert not asyncio.run(opening(first["key"], now + 3_700))
    assert asyncio.run(opening(second["key"], now + 3_700))
    cli(database, "key", "revoke", "ending", second["id"])
    assert not asyncio.run(opening(second["key"], time.time()))
    cli(database, "key", "revoke", "ending", second["id"], code=2)
    acts = [act["act"] for act in cli(database, "tenant", "audit", "ending")["acts"]]
    assert acts.count("key created") == 2
    assert {"tenant created", "key rotated", "key revoked"} <= set(acts)


@pytest.mark.parametrize("change", range(0, 89, 4))
def test_a_key_with_another_sign_is_none(change: int) -> None:
    text = make_key(uuid4(), name="", scopes=["read"], now=0.0).text
    other = "b" if text[change] != "b" else "c"
    assert read_key(text[:change] + other + text[change + 1 :]) is None
    assert read_key(text) is not None


def test_one_name_is_one_tenant(database: TestDatabase) -> None:
    cli(database, "tenant", "create", "same")
    cli(database, "tenant", "create", "same", code=2)
    cli(database, "tenant", "limits", "same", "--tokens-per-day", "5")
    found = {one["name"]: one for one in cli(database, "tenant", "list")["tenants"]}
    assert found["same"]["tokens_per_day"] == 5
    assert found["same"]["requests_per_minute"] is None


def test_a_deleted_tenant_leaves_nothing_but_the_log(database: TestDatabase) -> None:
    gone = UUID(cli(database, "tenant", "create", "gone")["id"])
    stays = UUID(cli(database, "tenant", "create", "stays")["id"])
    cli(database, "key", "create", "gone")

    async def fill() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        for tenant in (gone, stays):
            await fleet.tenants().add_space(tenant, "talks", at=1.0)
            store = await fleet.space(tenant_space(tenant, "talks"))
            await store.write(examples.full_batch(1, session="s"))
            await fleet.tenants().spend(tenant, "tokens per day", 1, 5)
        await fleet.close()

    asyncio.run(fill())
    (certificate,) = cli(database, "tenant", "delete", "gone", "--yes")["certificates"]
    sealed = read_certificate(certificate)
    assert is_intact(sealed)
    assert sealed.asked.whole_space
    assert sealed.space == "talks"
    assert sealed.counts["segments"] > 0
    with psycopg.connect(database.admin_url) as owner:
        tables = owner.execute(
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'"
            " AND a.attname IN ('space_id', 'tenant_id')"
        ).fetchall()
        assert len(tables) > 25
        from recollect.stores.postgres.store import space_uuid

        for table, column in tables:
            whose = {tenant: tenant for tenant in (gone, stays)}
            if column == "space_id":
                whose = {tenant: space_uuid(tenant_space(tenant, "talks")) for tenant in whose}
            left = owner.execute(
                f"SELECT count(*) FROM recollect.{table} WHERE {column} = %s".encode(),
                (whose[gone],),
            ).fetchone()
            assert left is not None
            assert (left[0] > 0) == (table in {"audit_log", "unscrubbed"}), table
        kept = owner.execute(
            "SELECT count(*) FROM recollect.segments WHERE space_id = %s",
            (space_uuid(tenant_space(stays, "talks")),),
        ).fetchone()
        assert kept is not None
        assert kept[0] > 0


def test_a_query_without_its_filter_finds_nothing_of_other_tenants(database: TestDatabase) -> None:
    async def fill() -> tuple[UUID, UUID]:
        fleet = await PostgresFleet.open(database.app_url)
        records = fleet.tenants()
        found = []
        for name in ("mine", "theirs"):
            tenant = UUID(cli_tenant[name]["id"])
            await records.add_space(tenant, "talks", at=1.0)
            await records.spend(tenant, "tokens per day", 1, 5)
            await records.claim(
                tenant, b"key", b"request", now=1.0, lease_seconds=1, keep_seconds=1
            )
            found.append(tenant)
        await fleet.close()
        return found[0], found[1]

    cli_tenant = {name: cli(database, "tenant", "create", name) for name in ("mine", "theirs")}
    for name in cli_tenant:
        cli(database, "key", "create", name)
    mine, theirs = asyncio.run(fill())
    with psycopg.connect(database.app_url, autocommit=True) as application:
        for table in TABLES:
            everything = f"SELECT DISTINCT tenant_id FROM recollect.{table}".encode()
            with application.transaction():
                application.execute(f"SET LOCAL app.tenant_id = '{mine}'".encode())
                assert application.execute(everything).fetchall() == [(mine,)], table
            assert application.execute(everything).fetchall() == [], table
            with application.transaction(force_rollback=True):
                application.execute(f"SET LOCAL app.tenant_id = '{mine}'".encode())
                removed = application.execute(
                    f"DELETE FROM recollect.{table} WHERE tenant_id = %s".encode(), (theirs,)
                )
                assert removed.rowcount == 0, table
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege),
                application.transaction(),
            ):
                application.execute(f"SET LOCAL app.tenant_id = '{mine}'".encode())
                application.execute(
                    f"UPDATE recollect.{table} SET tenant_id = %s".encode(), (theirs,)
                )


def test_an_idempotency_key_is_carried_out_once_and_taken_over_from_the_dead(
    database: TestDatabase,
) -> None:
    async def look() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        records, tenant = fleet.tenants(), uuid4()

        async def claim(request: bytes, now: float) -> Any:
            return await records.claim(
                tenant, b"key", request, now=now, lease_seconds=10, keep_seconds=100
            )

        first = await claim(b"a", 0.0)
        assert first.lease_token
        assert (await claim(b"a", 5.0)).running_until == 10.0
        assert not (await claim(b"b", 5.0)).same_request
        heir = await claim(b"a", 11.0)
        assert heir.lease_token
        assert not await records.keep_answer(
            tenant, b"key", first.lease_token, status=200, answer=b"late"
        )
        assert await records.keep_answer(tenant, b"key", heir.lease_token, status=201, answer=b"{}")
        again = await claim(b"a", 12.0)
        assert (again.status, again.answer) == (201, b"{}")
        assert (await claim(b"b", 200.0)).lease_token  # kept no longer
        both = await asyncio.gather(
            *(
                records.claim(tenant, b"race", b"a", now=0.0, lease_seconds=10, keep_seconds=100)
                for _ in range(8)
            )
        )
        assert sum(one.lease_token is not None for one in both) == 1
        await fleet.close()

    asyncio.run(look())
