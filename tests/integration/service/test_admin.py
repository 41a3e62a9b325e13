"""Tenants, limits and keys by the admin API, and quotas on what a tenant stores."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.harness.waiting import wait_until
from tests.integration.service.nodes import Caller, Node, add_key, add_tenant, chat, node_settings

from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.adapters.stores.postgres.tenants import TenantRecords
from recollect.core.upkeep import forget
from recollect.core.values.tenant import Tenant, tenant_space
from recollect.core.values.upkeep import ForgetOrder
from recollect.hosts.service import keys, limits
from recollect.hosts.service.memories import TenantMemories
from recollect_bench.postgres_server import TestDatabase

TEXT = "The harbour gate is opened by the keeper at six in the morning. "


@pytest.fixture(scope="module")
def operator(database: TestDatabase, node: Node) -> Iterator[Caller]:
    """Somebody with an operator's key."""
    _, key = add_tenant(database, "operators", scopes=("operator",))
    caller = Caller(node.url, key)
    yield caller
    caller.http.close()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node caches is old at once."""
    monkeypatch.setattr(keys, "KEY_SECONDS", 0.0)
    monkeypatch.setattr(limits, "BYTES_SECONDS", 0.0)


def made(operator: Caller, node: Node, name: str, **limit: int) -> tuple[str, Caller]:
    """A new tenant's id, and somebody with a key of it."""
    tenant = operator.post("/v1/admin/tenants", {"name": name, **limit})["id"]
    scopes = {"scopes": ["read", "write", "forget"]}
    key = operator.post(f"/v1/admin/tenants/{tenant}/keys", scopes)["key"]
    return tenant, Caller(node.url, key)


def ingest(caller: Caller, space: str, text: str = TEXT, **given: Any) -> Any:
    body = {"messages": [{"role": "user", "content": text}], "batch": str(time.time_ns())}
    return caller.post(f"/v1/spaces/{space}/sessions/s/ingest", body, **given)


def test_a_tenant_lives_and_ends_by_the_api(operator: Caller, node: Node) -> None:
    tenant, caller = made(operator, node, "by the api", requests_per_minute=500)
    path = f"/v1/admin/tenants/{tenant}"
    again = operator.post("/v1/admin/tenants", {"name": "by the api"}, expect=422)
    assert "already exists" in again["detail"]
    assert operator.get(path)["requests_per_minute"] == 500
    changed = operator.post(f"{path}/limits", {"tokens_per_day": 9_000})
    assert (changed["requests_per_minute"], changed["tokens_per_day"]) == (500, 9_000)
    assert operator.post(f"{path}/limits", {"tokens_per_day": None})["tokens_per_day"] is None
    names = [one["name"] for one in operator.get("/v1/admin/tenants")["tenants"]]
    assert {"by the api", "operators"} <= set(names)
    for name in ("one", "two"):
        ingest(caller, name)
    (first,) = operator.get(f"{path}/keys")["keys"]
    second = operator.post(f"{path}/keys/{first['id']}/rotate", {"grace_seconds": 0})
    caller("GET", "/v1/tenant", expect=401)
    other = Caller(node.url, second["key"])
    assert other.get("/v1/tenant")["key"] == second["record"]["id"]
    gone = operator("DELETE", f"{path}/keys/{second['record']['id']}").json()
    assert gone["revoked_at"] is not None
    operator("DELETE", f"{path}/keys/{second['record']['id']}")  # an answer may get lost
    other("GET", "/v1/tenant", expect=401)
    operator("DELETE", f"{path}/keys/unknown", expect=404)
    deleted = operator("DELETE", path).json()
    assert deleted["done"]
    assert len(deleted["certificates"]) == 2
    operator("GET", path, expect=404)
    acts = [one["act"] for one in operator.get("/v1/admin/audit")["acts"]]
    assert {"tenant created", "limits set", "key rotated", "tenant deleted"} <= set(acts)


def test_only_an_operators_key_may_and_none_makes_another(
    database: TestDatabase, operator: Caller, node: Node
) -> None:
    tenant, caller = made(operator, node, "no operator")
    for method, path in (
        ("GET", "/v1/admin/tenants"),
        ("GET", f"/v1/admin/tenants/{tenant}"),
        ("DELETE", f"/v1/admin/tenants/{tenant}"),
        ("GET", "/v1/admin/audit"),
    ):
        assert caller(method, path, expect=403).json()["type"].endswith(":forbidden")
    path = f"/v1/admin/tenants/{tenant}/keys"
    operator.post(path, {"scopes": ["operator"]}, expect=422)
    operator("GET", "/v1/admin/tenants/no-id", expect=404)
    operator("GET", "/v1/spaces", expect=403)  # it reads no tenant's memory
    secret = operator.post(path, {}, headers={"idempotency-key": "k1"})["key"].rsplit("_", 1)[1]
    with psycopg.connect(database.admin_url) as owner:
        for table in ("api_keys", "idempotency_keys", "audit_log"):
            rows = owner.execute(f"SELECT t::text FROM recollect.{table} AS t".encode()).fetchall()
            assert secret not in str(rows)


def test_a_tenant_gets_no_more_spaces_than_its_quota(operator: Caller, node: Node) -> None:
    tenant, caller = made(operator, node, "few spaces", most_spaces=2)
    for name in ("one", "two", "one"):
        ingest(caller, name)
    for _ in range(2):
        refused = ingest(caller, "three", expect=403)
        assert refused["type"].endswith(":quota-reached")
        assert refused["budget"] == "spaces"
    caller("GET", "/v1/spaces/three/sessions", expect=404)
    fact = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "memory_store", "arguments": {"text": "A new note."}}}  # fmt: skip
    answer = caller.post("/v1/spaces/four/mcp", fact, headers=MCP_HEADERS)
    assert "the tenant may have 2 spaces" in str(answer["result"])
    assert [one["name"] for one in caller.get("/v1/spaces")["spaces"]] == ["one", "two"]
    caller("DELETE", "/v1/spaces/two")
    ingest(caller, "three")
    operator.post(f"/v1/admin/tenants/{tenant}/limits", {"most_spaces": None})
    ingest(caller, "four")
    used = {one["quota"]: one["used"] for one in caller.get("/v1/tenant")["quotas"]}
    assert used["spaces"] == 3


MCP_HEADERS = {"accept": "application/json, text/event-stream"}


def test_a_tenant_over_its_bytes_may_read_and_forget_but_store_nothing(
    operator: Caller, node: Node
) -> None:
    tenant, caller = made(operator, node, "few bytes")
    ingest(caller, "s", 40 * TEXT)

    def used() -> int:
        quotas = {one["quota"]: one for one in caller.get("/v1/tenant")["quotas"]}
        return int(quotas["bytes"]["used"])

    operator.post(f"/v1/admin/tenants/{tenant}/limits", {"most_bytes": 2_000})
    assert used() == len((40 * TEXT).encode())  # measured when the quota was set
    refused = ingest(caller, "s", expect=403)
    assert refused["budget"] == "bytes"
    asked = {"request": chat("Who opens the harbour gate?")}
    caller.post("/v1/spaces/s/sessions/s/prepare", asked, expect=403)
    assert caller.post("/v1/spaces/s/search", {"query": "harbour gate"})["passages"]
    caller.post("/v1/spaces/s/forget", {"sessions": ["s"]})
    wait_until(lambda: used() == 0)
    ingest(caller, "s")
    wait_until(lambda: used() == len(TEXT.encode()))


def test_key_of_tenant_cannot_reach_admin_api_by_asking(database: TestDatabase, node: Node) -> None:
    tenant, _ = add_tenant(database, "asks")
    key = add_key(database, tenant, scopes=("read", "write", "forget", "admin"))
    caller = Caller(node.url, key)
    caller("POST", "/v1/admin/tenants", json={"name": "x"}, expect=403)
    caller("GET", "/v1/audit")


def listed(caller: Caller) -> list[str]:
    return [one["name"] for one in caller.get("/v1/spaces")["spaces"]]


@contextmanager
def broken(database: TestDatabase, right: str) -> Iterator[None]:
    """The database refuses this right on the tenants' spaces while the block runs."""
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute(f"REVOKE {right} ON recollect.tenant_spaces FROM recollect_app".encode())
        try:
            yield
        finally:
            owner.execute(f"GRANT {right} ON recollect.tenant_spaces TO recollect_app".encode())


def stored(database: TestDatabase, tenant: str) -> int:
    with psycopg.connect(database.admin_url) as owner:
        found = owner.execute(
            "SELECT count(*) FROM recollect.spaces WHERE name LIKE %s", (f"{tenant}/%",)
        ).fetchone()
    assert found is not None
    return int(found[0])


def forget_behind(database: TestDatabase, tenant: str, space: str) -> None:
    """Delete a space as another node does."""

    async def delete() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        service = keys.Administration(fleet, "test")
        owner = await fleet.tenants().tenant(UUID(tenant))
        assert owner is not None
        async for _ in service.delete_space(owner, space):
            pass
        await fleet.close()

    asyncio.run(delete())


def test_a_space_that_is_created_again_is_listed_although_the_quota_is_reached(
    database: TestDatabase, operator: Caller, node: Node
) -> None:
    tenant, caller = made(operator, node, "again", most_spaces=1)
    ingest(caller, "one")
    forget_behind(database, tenant, "one")
    with Node(database) as other:
        ingest(Caller(other.url, caller.key), "two")
    ingest(caller, "one")  # this node knows it as listed, so no quota is asked
    assert stored(database, tenant) == 2
    assert listed(caller) == ["one", "two"]
    ingest(caller, "three", expect=403)
    caller("DELETE", "/v1/spaces/one")
    assert stored(database, tenant) == 1


def test_a_space_whose_listing_failed_is_listed_by_the_next_write(
    database: TestDatabase, operator: Caller, node: Node
) -> None:
    tenant, caller = made(operator, node, "failed listing", most_spaces=1)
    ingest(caller, "one")
    forget_behind(database, tenant, "one")
    with broken(database, "INSERT"):
        ingest(caller, "one", expect=503)
    assert stored(database, tenant) == 1
    ingest(caller, "one")
    assert listed(caller) == ["one"]


def test_a_read_leaves_the_listing_to_the_write(database: TestDatabase) -> None:
    id_, _ = add_tenant(database, "reads")
    asyncio.run(_read_while_writing(database, id_))


async def _read_while_writing(database: TestDatabase, id_: UUID) -> None:
    memories = TenantMemories(node_settings(database), database.app_url)
    fleet = await memories.fleet()
    owner = await fleet.tenants().tenant(id_)
    assert owner is not None
    async with memories.use(owner, "s", "write") as memory:
        await memory.engine.ingest("s", [{"role": "user", "content": TEXT}], batch="1")
        await fleet.tenants().remove_space(owner, "s", actor="test", at=0.0)
        await fleet.tenants().add_space(owner, "s", at=0.0)
        async with memories.use(owner, "s", "read"):
            await fleet.tenants().remove_space(owner, "s", actor="test", at=0.0)
    assert await fleet.tenants().has_space(id_, "s")
    await memories.close()


def test_a_key_that_a_node_still_caches_leaves_nothing_of_a_deleted_tenant(
    database: TestDatabase, operator: Caller, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, caller = made(operator, node, "ends")
    monkeypatch.setattr(keys, "KEY_SECONDS", 60.0)
    ingest(caller, "one")
    with Node(database) as other:
        elsewhere = Caller(other.url, caller.key)
        ingest(elsewhere, "two")
        assert operator("DELETE", f"/v1/admin/tenants/{tenant}").json()["done"]
        assert stored(database, tenant) == 0
        for name in ("two", "three"):
            ingest(elsewhere, name, expect=401)
    assert stored(database, tenant) == 0
    with psycopg.connect(database.admin_url) as owner:
        found = owner.execute(
            "SELECT count(*) FROM recollect.tenant_spaces WHERE tenant_id = %s", (tenant,)
        )
        assert found.fetchone() == (0,)


def test_a_space_that_is_listed_while_its_tenant_is_deleted_is_deleted_too(
    database: TestDatabase, operator: Caller, node: Node
) -> None:
    tenant, caller = made(operator, node, "late")
    ingest(caller, "one")
    real, late = TenantRecords.remove_tenant, ["two", "three"]

    async def remove(records: TenantRecords, owner: Tenant, **given: Any) -> bool:
        if late:
            assert await records.add_space(owner, late.pop(), at=1.0)
        return await real(records, owner, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TenantRecords, "remove_tenant", remove)
        deleted = operator("DELETE", f"/v1/admin/tenants/{tenant}").json()
    assert deleted["done"]
    assert len(deleted["certificates"]) == 3


def test_a_deletion_of_a_tenant_ends_before_its_deadline(
    operator: Caller, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, caller = made(operator, node, "slow")
    names = ["one", "three", "two"]
    for name in names:
        ingest(caller, name)
    real = forget.delete_space

    async def slow(*given: Any, **others: Any) -> Any:
        await asyncio.sleep(0.5)
        return await real(*given, **others)

    monkeypatch.setattr(keys, "delete_space", slow)
    certified, answers = [], 0
    while True:
        path = f"/v1/admin/tenants/{tenant}"
        done = operator("DELETE", path, headers={"x-request-timeout": "2.5"}).json()
        certified += [one["space"] for one in done["certificates"]]
        answers += 1
        if done["done"]:
            break
    assert sorted(set(certified)) == names
    assert answers > 1


def test_no_key_deletes_its_own_tenant(database: TestDatabase, node: Node) -> None:
    tenant, key = add_tenant(database, "own", scopes=("operator",))
    caller = Caller(node.url, key)
    refused = caller("DELETE", f"/v1/admin/tenants/{tenant}", expect=422).json()
    assert "another tenant's operator key" in refused["detail"]
    assert caller.get(f"/v1/admin/tenants/{tenant}")["name"] == "own"


def test_neither_an_expired_key_nor_an_operators_is_rotated(
    database: TestDatabase, operator: Caller, node: Node
) -> None:
    tenant, _ = add_tenant(database, "expired", expires_at=time.time() - 1)
    path = f"/v1/admin/tenants/{tenant}/keys"
    (expired,) = operator.get(path)["keys"]
    operator.post(f"{path}/{expired['id']}/rotate", {"grace_seconds": 0}, expect=404)
    owners, _ = add_tenant(database, "further operators", scopes=("operator",))
    path = f"/v1/admin/tenants/{owners}/keys"
    (one,) = operator.get(path)["keys"]
    operator.post(f"{path}/{one['id']}/rotate", {"grace_seconds": 0}, expect=403)
    assert operator.get(path)["keys"] == [one]


def test_limits_are_changed_one_by_one_and_a_failed_quota_is_measured_again(
    database: TestDatabase, operator: Caller, node: Node
) -> None:
    tenant, caller = made(operator, node, "half set")
    ingest(caller, "s", 40 * TEXT)
    path = f"/v1/admin/tenants/{tenant}"
    with broken(database, "UPDATE"):
        operator.post(f"{path}/limits", {"most_bytes": 2_000}, expect=503)
    assert operator.get(path)["most_bytes"] is None
    operator.post(f"{path}/limits", {"most_bytes": 2_000})
    quotas = {one["quota"]: one["used"] for one in caller.get("/v1/tenant")["quotas"]}
    assert quotas["bytes"] == len((40 * TEXT).encode())

    async def change() -> tuple[Tenant, Tenant]:
        fleet = await PostgresFleet.open(database.app_url)
        service = keys.Administration(fleet, "test")
        read_before = await fleet.tenants().tenant(UUID(tenant))
        assert read_before is not None
        await service.set_limits(read_before, {"tokens_per_day": 7})
        changed = await service.set_limits(read_before, {"requests_per_minute": 9_000})
        await fleet.close()
        return read_before, changed

    _, changed = asyncio.run(change())
    assert changed.limits["tokens_per_day"] == 7
    assert operator.get(path)["tokens_per_day"] == 7
    assert operator.get(path)["requests_per_minute"] == 9_000


def test_a_tenant_at_its_bytes_stores_again_after_a_command_or_mcp_has_forgotten(
    database: TestDatabase, operator: Caller, node: Node
) -> None:
    tenant, caller = made(operator, node, "forgets elsewhere")
    for name in ("command", "tool"):
        ingest(caller, name, 40 * TEXT)
    operator.post(f"/v1/admin/tenants/{tenant}/limits", {"most_bytes": 2_700})
    ingest(caller, "tool", expect=403)

    async def remove() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        store = await fleet.space(tenant_space(UUID(tenant), "command"))
        await store.forget(ForgetOrder(at=time.time(), sessions=("s",)))
        await fleet.close()

    asyncio.run(remove())
    ingest(caller, "command")
    (found,) = caller.post("/v1/spaces/tool/search", {"query": "harbour gate"})["passages"][:1]
    asked = {"name": "memory_forget", "arguments": {"ids": [found["segment"]]}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    answer = str(caller.post("/v1/spaces/tool/mcp", call, headers=MCP_HEADERS))
    assert "POST /v1/spaces/tool/forget" in answer
    assert "recollect memory forget" not in answer
