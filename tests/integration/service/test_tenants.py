"""Tenants and their keys, by the command line and in the database."""

import asyncio
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner
from tests.harness.waiting import wait_until
from tests.store_contract import examples

from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.cli import main
from recollect.core.values.tenant import tenant_space
from recollect.hosts.service.keys import make_key, opens, read_key
from recollect_bench.postgres_server import APP_PASSWORD, PostgresServer, TestDatabase

TABLES = ("tenants", "api_keys", "tenant_spaces", "idempotency_keys", "tenant_usage", "audit_log")


def cli(database: TestDatabase, *arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(main, [*arguments, "--store", database.app_url, "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if done.stdout.strip() else None


async def add_space(fleet: PostgresFleet, tenant: UUID, name: str) -> None:
    owner = await fleet.tenants().tenant(tenant)
    assert owner is not None
    assert await fleet.tenants().add_space(owner, name, at=1.0)


def text_of(database: TestDatabase, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, [*arguments, "--store", database.app_url])
    assert done.exit_code == code, done.output
    return done.output


def test_a_key_is_shown_once_and_kept_as_a_hash(database: TestDatabase) -> None:
    made = cli(database, "tenant", "create", "hashed")
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
    cli(database, "tenant", "limits", "same", "--requests-per-minute", "9")
    for change in ((), ("--tokens-per-day", "0")):
        shown = cli(database, "tenant", "limits", "same", *change)
        assert shown["requests_per_minute"] == 9  # what is not named stays
        assert shown["tokens_per_day"] == (None if change else 5)
    found = {one["name"]: one for one in cli(database, "tenant", "list")["tenants"]}
    assert found["same"]["requests_per_minute"] == 9
    assert "9, tokens per day: no limit" in text_of(database, "tenant", "limits", "same")


def test_commands_tell_what_comes_next_and_no_password(database: TestDatabase) -> None:
    made = text_of(database, "tenant", "create", "north & south")
    assert "recollect key create 'north & south'" in made
    assert APP_PASSWORD not in made
    key = cli(database, "key", "create", "north & south", "--expires", "90s")
    left = datetime.fromisoformat(key["expires_at"]).timestamp() - time.time()
    assert 60 < left <= 90
    cli(database, "key", "create", "north & south", "--expires", "soon", code=2)
    cli(database, "key", "create", "north & south", "--expires", "0s")
    assert f"Revoked {key['id']}" in text_of(database, "key", "revoke", "north & south", key["id"])
    listed = text_of(database, "key", "list", "north & south")
    assert "revoked " in listed
    assert "expired " in listed


def test_an_operator_deletes_a_tenants_space_by_its_name(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    owner = UUID(cli(database, "tenant", "create", "owner")["id"])

    async def fill() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        await add_space(fleet, owner, "user-17")
        await (await fleet.space(tenant_space(owner, "user-17"))).write(examples.full_batch(1))
        await fleet.close()

    asyncio.run(fill())
    delete = ("space", "delete", "--yes")
    assert "`recollect space list`" in text_of(database, *delete, "user-18", code=2)
    assert "--tenant" in text_of(database, *delete, "user-17", code=2)
    assert "--tenant owner" in text_of(database, *delete, tenant_space(owner, "user-17"), code=2)
    cli(database, *delete, "user-18", "--tenant", "owner", code=2)
    done = cli(database, *delete, "user-17", "--tenant", "owner")
    assert (done["space"], done["asked"]["whole_space"]) == ("user-17", True)
    assert done["counts"]["segments"] > 0
    cli(database, *delete, "user-17", "--tenant", "owner", code=2)
    acts = cli(database, "tenant", "audit", "owner")["acts"]
    assert ("space deleted", "user-17") in [(act["act"], act["subject"]) for act in acts]


def test_the_password_may_come_from_the_environment_or_a_file(
    server: PostgresServer, database: TestDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def listing() -> int:
        url = database.app_url.replace(f":{APP_PASSWORD}@", "@")
        assert APP_PASSWORD not in url
        return CliRunner().invoke(main, ["tenant", "list", "--store", url]).exit_code

    def allow(text: str) -> None:
        rules.write_text(text)
        with psycopg.connect(database.admin_url) as owner:
            owner.execute("SELECT pg_reload_conf()")

    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    user = urlsplit(database.app_url).username
    asks = f"{{}} {database.name} {user} {{}} scram-sha-256\n"
    try:
        allow(asks.format("local", "") + asks.format("host", "all") + before)
        wait_until(lambda: listing() == 2)
        monkeypatch.setenv("PGPASSWORD", APP_PASSWORD)
        assert listing() == 0
        monkeypatch.delenv("PGPASSWORD")
        kept = tmp_path / "pgpass"
        kept.write_text(f"*:*:*:{user}:{APP_PASSWORD}\n")
        kept.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(kept))
        assert listing() == 0
    finally:
        allow(before)


def test_what_was_deleted_is_certified_although_its_name_could_not_be_removed(
    database: TestDatabase,
) -> None:
    tenant = UUID(cli(database, "tenant", "create", "half")["id"])

    async def fill() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        await add_space(fleet, tenant, "talks")
        await (await fleet.space(tenant_space(tenant, "talks"))).write(
            examples.full_batch(1, session="s")
        )
        await fleet.close()

    asyncio.run(fill())
    delete = (*("tenant", "delete", "half", "--yes", "--json"), "--store", database.app_url)
    refuse = "REVOKE DELETE ON recollect.tenant_spaces FROM recollect_app"
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute(refuse)
        try:
            failed = CliRunner().invoke(main, delete)
        finally:
            owner.execute(refuse.replace("REVOKE", "GRANT").replace("FROM", "TO"))
    assert failed.exit_code
    assert json.loads(failed.stdout)["counts"]["segments"] > 0
    assert CliRunner().invoke(main, delete).exit_code == 0


def test_deleted_tenant_leaves_nothing_but_the_log(database: TestDatabase, tmp_path: Path) -> None:
    gone = UUID(cli(database, "tenant", "create", "gone")["id"])
    stays = UUID(cli(database, "tenant", "create", "stays")["id"])
    cli(database, "key", "create", "gone")

    async def fill() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        for tenant in (gone, stays):
            await add_space(fleet, tenant, "talks")
            store = await fleet.space(tenant_space(tenant, "talks"))
            await store.write(examples.full_batch(1, session="s"))
            await fleet.tenants().spend(tenant, "tokens per day", 1, 5)
        await fleet.close()

    asyncio.run(fill())
    assert "pass --yes" in text_of(database, "tenant", "delete", "gone", code=2)
    told = text_of(database, "tenant", "delete", "gone", "--yes", "--json")
    certificate, deleted = [json.loads(line) for line in told.splitlines() if line[0] == "{"]
    assert deleted == {"deleted": "gone", "id": str(gone)}
    for which in ("gone", str(gone)):
        acts = [act["act"] for act in cli(database, "tenant", "audit", which)["acts"]]
        assert acts[0] == "tenant deleted"
        assert "space deleted" in acts
    cli(database, "tenant", "audit", "never was", code=2)
    assert certificate["asked"]["whole_space"]
    assert certificate["space"] == "talks"
    assert certificate["counts"]["segments"] > 0
    with psycopg.connect(database.admin_url) as owner:
        tables = owner.execute(
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'"
            " AND a.attname IN ('space_id', 'tenant_id')"
        ).fetchall()
        assert len(tables) > 25
        from recollect.adapters.stores.postgres.store import space_uuid

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
            await add_space(fleet, tenant, "talks")
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
                remove = f"DELETE FROM recollect.{table} WHERE tenant_id = %s".encode()
                if table == "audit_log":  # of which nothing is removed at all
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        application.execute(remove, (mine,))
                else:
                    assert application.execute(remove, (theirs,)).rowcount == 0, table
            with pytest.raises(psycopg.errors.InsufficientPrivilege), application.transaction():
                application.execute(f"SET LOCAL app.tenant_id = '{mine}'".encode())
                application.execute(
                    f"UPDATE recollect.{table} SET tenant_id = %s".encode(), (theirs,)
                )


async def test_an_idempotency_key_is_carried_out_once_and_taken_over_from_the_dead(
    database: TestDatabase,
) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    records, tenant = fleet.tenants(), uuid4()

    async def claim(request: bytes, now: float) -> Any:
        return await records.claim(
            tenant, b"key", request, now=now, lease_seconds=10, keep_seconds=100
        )

    first = await claim(b"a", 0.0)
    assert first.lease_token
    assert (await claim(b"a", 5.0)).running_until == pytest.approx(10.0)
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
