"""Tenants, limits and keys by the admin API, and quotas on what a tenant stores."""

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.harness.waiting import wait_until
from tests.integration.service.nodes import Caller, Node, add_key, add_tenant, chat

from recollect.hosts.service import keys, limits
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
