"""Some hundred ways of one tenant to get at another's memory: no row crosses.

The attacked tenant has marks in everything it keeps. An attempt fails the test if an answer holds
one of them, or if afterwards a row of the attacked tenant is not as it was."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx2
import psycopg
import pytest
from tests.integration.service.nodes import Node, add_key, add_tenant, chat, reply

from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.core.values.tenant import tenant_space
from recollect.hosts.service import keys
from recollect.hosts.service.api import ROUTES
from recollect.hosts.service.app import MountMcp
from recollect.hosts.service.mcp import mcp_for_tenants
from recollect_bench.postgres_server import TestDatabase

MARK = "zebrafish"
"""Stands in all that the attacked tenant keeps, and in nothing that an attacker sends."""
SQL = (
    "' OR '1'='1",
    "'; DROP TABLE recollect.segments; --",
    "x' UNION SELECT body FROM recollect.segments --",
    "\"; SET app.tenant_id = ''; --",
    "$$; SELECT set_config('app.space_id', '', true); $$",
    "%s %(space)s $1 \\'; RESET ROLE; --",
    "\x00' OR 1=1 --",
)


class Attack:
    """Somebody with a good key of another tenant, and what they learned about the attacked one."""

    def __init__(self, database: TestDatabase, node: Node) -> None:
        self.victim, self.victim_key = add_tenant(database, "victim")
        self.attacker, self.key = add_tenant(database, "attacker")
        self.database = database
        self.http = httpx2.Client(base_url=node.url, timeout=30, trust_env=False)
        self.attempts: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()

    def owner(self, method: str, path: str, **given: Any) -> Any:
        answer = self.http.request(
            method,
            path,
            headers={"authorization": f"Bearer {self.victim_key}", **given.pop("headers", {})},
            **given,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def attempt(self, kind: str, method: str, path: str, **given: Any) -> Any:
        """One request with the attacker's key; its answer must give nothing away."""
        headers = {"authorization": f"Bearer {self.key}", **given.pop("headers", {})}
        answer = self.http.request(method, path, headers=headers, **given)
        self.attempts[kind] += 1
        self.statuses[answer.status_code] += 1
        assert MARK not in answer.text.lower(), (kind, method, path, answer.text[:500])
        assert answer.status_code < 500, (kind, method, path, answer.text)
        assert "idempotency-replayed" not in answer.headers, (kind, path)
        return answer

    def rows(self) -> list[tuple[str, str]]:
        """Every row of the attacked tenant, as its database has it."""
        found = []
        with psycopg.connect(self.database.admin_url) as owner:
            tables = owner.execute(
                "SELECT c.relname, a.attname FROM pg_class c"
                " JOIN pg_attribute a ON a.attrelid = c.oid"
                " WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'"
                " AND a.attname IN ('space_id', 'tenant_id') ORDER BY 1"
            ).fetchall()
            spaces = [space_uuid(tenant_space(self.victim, name)) for name in ("shared", "vault")]
            for table, column in tables:
                whose = spaces if column == "space_id" else [self.victim]
                found += [
                    (table, row[0])
                    for row in owner.execute(
                        f"SELECT t::text FROM recollect.{table} AS t WHERE {column} = ANY(%s)"
                        " ORDER BY 1".encode(),
                        (whose,),
                    )
                ]
        return found


@pytest.fixture(scope="module")
def attack(database: TestDatabase) -> Iterator[Attack]:
    mount: MountMcp = mcp_for_tenants
    with Node(database, mcp=mount) as node:
        made = Attack(database, node)
        yield made
        made.http.close()


def paths(space: str, session: str = "s", fact: str = "f") -> Iterator[tuple[str, str, Any]]:
    """Every route with these names, and a body for it."""
    bodies: dict[str, Any] = {
        "prepare": {"request": chat("What do you know?")},
        "observe": {"reply": reply("Nothing."), "turn": 1},
        "ingest": {"messages": [{"role": "user", "content": "Hello."}]},
        "compact": {"request": chat("What do you know?")},
        "search": {"query": "secret mark password vault"},
        "facts": {"content": "Something harmless."},
        "forget": {"sessions": [session]},
    }
    for route in ROUTES:
        if route.scope == "operator":  # they name no space, and need another key
            continue
        path = "/v1" + route.path.format(
            space=quote(space, safe=""), session=quote(session, safe=""), number=1,
            fact=quote(fact, safe=""),
        )  # fmt: skip
        body = bodies[route.path.rsplit("/", 1)[1]] if route.body else None
        yield route.method, path, body


def test_no_row_crosses(attack: Attack) -> None:
    known = _filled(attack)
    before = attack.rows()
    assert sum(MARK in text for _, text in before) > 10
    for kind in (_foreign_names, _headers, _odd_paths, _bodies, _sql, _cursors, _keys_of_retries,
                 _wrong_keys, _mcp):  # fmt: skip
        kind(attack, known)
    asyncio.run(_queries_without_a_filter(attack))
    assert attack.attempts.total() >= 300, attack.attempts
    assert len(attack.attempts) >= 9
    assert attack.rows() == before
    # and the attempts were real requests: many were carried out, on the attacker's own memory
    assert attack.statuses[200] > 50, attack.statuses


def _filled(attack: Attack) -> dict[str, Any]:
    """What the attacked tenant has, and all that an attacker could have overheard of it."""
    known: dict[str, Any] = {"idempotent": []}
    for space in ("shared", "vault"):
        base = f"/v1/spaces/{space}"
        attack.owner(
            "POST", f"{base}/sessions/s/prepare", json={"request": chat(f"Mark {MARK} {space}.")}
        )
        attack.owner("POST", f"{base}/sessions/s/observe", json={"reply": reply(f"{MARK} ok")})
        for number in range(3):
            body = {"messages": [{"role": "user", "content": f"{MARK} number {number}"}],
                    "batch": f"b{number}"}  # fmt: skip
            key = f"{space}-{number}"
            headers = {"idempotency-key": key}
            attack.owner("POST", f"{base}/sessions/t{number}/ingest", json=body, headers=headers)
            known["idempotent"].append((f"{base}/sessions/t{number}/ingest", body, key))
        fact = attack.owner("POST", f"{base}/facts", json={"content": f"{MARK} lives in {space}."})
        known[space] = {
            "fact": fact["id"],
            "segments": [one["id"] for one in attack.owner("GET", f"{base}/export")["segments"]],
        }
        known["cursors"] = {
            path: attack.owner("GET", f"{path}?limit=1")["next"]
            for path in (f"{base}/export", f"{base}/sessions", "/v1/audit", "/v1/spaces")
        }
    known["keys without read"] = [
        add_key(attack.database, attack.victim, scopes=scopes)
        for scopes in (["write"], ["forget"], ["write", "forget", "admin"])
    ]
    # the attacker has a space of the same name, so that nothing ends at a 404
    attack.attempt("own", "POST", "/v1/spaces/shared/facts", json={"content": "Mine is empty."})
    return known


def _foreign_names(attack: Attack, known: dict[str, Any]) -> None:
    victim, mine = str(attack.victim), str(attack.attacker)
    fact = known["shared"]["fact"]
    for space in (
        "vault", f"{victim}/vault", f"../{victim}/vault", f"{mine}/../{victim}/vault",
        str(space_uuid(tenant_space(attack.victim, "vault"))), f"{victim}%2fvault",
    ):  # fmt: skip
        for method, path, body in paths(space, fact=fact):
            if method == "DELETE" and path.endswith(quote(space, safe="")):
                continue  # it would delete what the rest looks into
            attack.attempt("foreign names", method, path, json=body)
    attack.attempt("foreign names", "DELETE", "/v1/spaces/vault")
    for segment in known["shared"]["segments"] + known["vault"]["segments"]:
        body = {"segments": [segment]}
        attack.attempt("foreign ids", "POST", "/v1/spaces/shared/forget", json=body)
    for space in ("shared", "vault"):
        attack.attempt("foreign ids", "DELETE", f"/v1/spaces/shared/facts/{known[space]['fact']}")
    for number in range(1, 4):
        attack.attempt("foreign ids", "GET", f"/v1/spaces/shared/sessions/s/turns/{number}")


def _headers(attack: Attack, known: dict[str, Any]) -> None:
    victim = str(attack.victim)
    names = (
        "x-tenant", "x-tenant-id", "tenant", "x-recollect-tenant", "recollect-tenant", "x-space",
        "x-recollect-space", "x-forwarded-user", "x-remote-user", "x-original-url",
        "x-rewrite-url", "x-forwarded-prefix", "x-forwarded-host", "forwarded", "cookie",
        "x-http-method-override", "x-api-key", "proxy-authorization", "host",
    )  # fmt: skip
    for name in names:
        for value in (victim, f"/v1/spaces/{victim}%2Fvault/export"):
            for path in ("/v1/spaces", "/v1/spaces/shared/export"):
                attack.attempt("headers", "GET", path, headers={name: value})
    shown = attack.victim_key.rsplit("_", 1)[0]
    for header in (f"Bearer {attack.key}, Bearer {shown}", f"Bearer {shown}_", f"Basic {shown}"):
        answer = attack.attempt("headers", "GET", "/v1/spaces", headers={"authorization": header})
        assert answer.status_code == 401
    both = [("authorization", f"Bearer {attack.key}"), ("authorization", f"Bearer {shown}_x")]
    twice = attack.http.request("GET", "/v1/spaces", headers=both)
    assert twice.status_code == 400


def _odd_paths(attack: Attack, known: dict[str, Any]) -> None:
    victim = str(attack.victim)
    for path in (
        "/v1/spaces/shared/../vault/export", "/v1/spaces/shared/..%2fvault/export",
        "/v1/spaces/shared%2f..%2fvault/export", "/v1/spaces/%2e%2e/vault/export",
        f"/v1/spaces/{victim}/vault/export", f"/v1/spaces//{victim}%2Fvault/export",
        f"/v1/tenants/{victim}/spaces/vault/export", f"/v1/{victim}/spaces/vault/export",
        f"//v1/spaces/{victim}%252Fvault/export", f"/v1/spaces/shared;tenant={victim}/export",
        f"/v1/spaces/shared/export;/../../{victim}%2Fvault", "/V1/spaces/vault/export",
        f"/v1/spaces/shared/export?tenant={victim}", "/v1/spaces/shared/export?space=vault",
        f"/v1/spaces?tenant_id={victim}", f"/v1/audit?tenant={victim}",
        "/v1/spaces/vault%00/export",
        "/v1/spaces/%00/export", "/v1/spaces/vault%20/export", "/v1/spaces/*/export",
        "/v1/spaces/%25/export", "/v1/spaces/_/export", "/v1/spaces/shared/sessions/%2A/turns",
        "/v1/spaces/shared%0d%0aX-Tenant:%20x/export", "/openapi.json/../v1/spaces/vault/export",
    ):  # fmt: skip
        attack.attempt("paths", "GET", path)


def _bodies(attack: Attack, known: dict[str, Any]) -> None:
    victim = str(attack.victim)
    for field in ("tenant", "tenant_id", "space", "space_id", "key", "scope", "__proto__"):
        for method, path, body in paths("shared"):
            if body is not None:
                attack.attempt("bodies", method, path, json={**body, field: victim})
    twice = b'{"query": "mark", "query": "vault", "session": "s", "session": "s"}'
    attack.attempt("bodies", "POST", "/v1/spaces/shared/search", content=twice)
    for session in ("s", "t0", "%", "file:", f"{victim}/vault"):
        body = {"query": "mark", "session": session}
        attack.attempt("bodies", "POST", "/v1/spaces/shared/search", json=body)
    request = {**chat("hello"), "metadata": {"user_id": victim}, "tenant": victim, "space": "vault"}
    attack.attempt(
        "bodies", "POST", "/v1/spaces/shared/sessions/s/prepare", json={"request": request}
    )


def _sql(attack: Attack, known: dict[str, Any]) -> None:
    base = "/v1/spaces/shared"
    for text in SQL:
        bodies: tuple[tuple[str, Any], ...] = (
            (f"{base}/search", {"query": text}),
            (f"{base}/search", {"query": "mark", "session": text}),
            (f"{base}/facts", {"content": text}),
            (f"{base}/facts", {"content": "x", "subject": text}),
            (f"{base}/facts", {"content": "x", "session": text}),
            (f"{base}/forget", {"matching": text}),
            (f"{base}/forget", {"segments": [text]}),
            (f"{base}/forget", {"sessions": [text]}),
            (f"{base}/sessions/s/ingest", {"messages": [{"role": "user", "content": text}]}),
            (f"{base}/sessions/s/ingest", {"messages": [{"role": text, "content": "x"}],
                                           "batch": text}),
            (f"{base}/sessions/s/prepare", {"request": chat(text)}),
            (f"{base}/sessions/s/observe", {"reply": reply(text)}),
            (f"{base}/sessions/s/compact", {"request": chat("x"), "instructions": text}),
        )  # fmt: skip
        for path, body in bodies:
            attack.attempt("sql", "POST", path, json=body)
        named = quote(text, safe="")
        for path in (f"/v1/spaces/{named}/export", f"{base}/sessions/{named}/turns",
                     f"/v1/spaces?cursor={named}", f"{base}/facts?session={named}"):  # fmt: skip
            attack.attempt("sql", "GET", path)
        attack.attempt("sql", "DELETE", f"{base}/facts/{named}")
    attack.attempt(
        "sql", "POST", f"{base}/sessions/s/undo", headers={"idempotency-key": "'OR'1'='1"}
    )
    attack.attempt("sql", "GET", "/v1/spaces", headers={"authorization": "Bearer ' OR 1=1 --"})


def _cursors(attack: Attack, known: dict[str, Any]) -> None:
    for path, cursor in known["cursors"].items():
        assert cursor
        for other in {path, "/v1/spaces/shared/export", "/v1/audit", "/v1/spaces"}:
            answer = attack.attempt("cursors", "GET", other, params={"cursor": cursor})
            assert answer.status_code in {400, 404}, other


def _keys_of_retries(attack: Attack, known: dict[str, Any]) -> None:
    for path, body, key in known["idempotent"]:
        # with the attacked tenant's own body it would hold the mark: it is the attacker's then
        clean = json.loads(json.dumps(body).replace(MARK, "other"))
        for sent in (clean, {**clean, "batch": "x"}):
            answer = attack.attempt(
                "idempotency", "POST", path, json=sent, headers={"idempotency-key": key}
            )
            assert answer.status_code in {200, 422}


def _wrong_keys(attack: Attack, known: dict[str, Any]) -> None:
    shown = keys.read_key(attack.victim_key)
    mine = keys.read_key(attack.key)
    assert shown is not None
    assert mine is not None
    tenant, key_id, _ = attack.victim_key.removeprefix("rk_").split("_", 2)
    own_tenant, own_id, own_secret = attack.key.removeprefix("rk_").split("_", 2)
    secret = own_secret[:-6]

    def forged(whose: str, which: str, what: str) -> str:
        body = f"rk_{whose}_{which}_{what}"
        return body + keys._check(body)

    wrong = [
        forged(tenant, key_id, secret),
        forged(tenant, own_id, secret),
        forged(own_tenant, key_id, secret),
        forged(tenant, key_id, "A" * 43),
        forged(tenant, "0" * 12, "A" * 43),
        attack.victim_key[:-1] + ("a" if attack.victim_key[-1] != "a" else "b"),
        attack.victim_key.upper(),
        attack.victim_key + "a",
        attack.victim_key[:40],
        shown.hash.hex(),
        add_key(attack.database, attack.attacker, scopes=["read"], expires_at=time.time() - 1),
        "",
    ]
    for text in wrong:
        for path in ("/v1/spaces", "/v1/spaces/vault/export"):
            headers = {"authorization": f"Bearer {text}".strip()}
            answer = attack.attempt("keys", "GET", path, headers=headers)
            assert answer.status_code == 401, text


def _mcp(attack: Attack, known: dict[str, Any]) -> None:
    """Over the Model Context Protocol: of another tenant, and of the own one without `read`."""

    def asked(key: str, space: str, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {
            "authorization": f"Bearer {key}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-06-18",
        }
        return attack.http.post(f"/v1/spaces/{space}/mcp", json=message, headers=headers)

    questions: tuple[tuple[str, dict[str, Any]], ...] = (
        ("tools/call", {"name": "memory_search", "arguments": {"query": "number"}}),
        ("tools/call", {"name": "memory_get", "arguments": {"id": "1.0000"}}),
    )
    for method, params in questions:
        for space in ("shared", "vault"):
            answer = asked(attack.key, space, method, **params)
            attack.attempts["mcp"] += 1
            assert answer.status_code < 500
            assert MARK not in answer.text, (method, answer.text)
    for key in known["keys without read"]:
        for method, params in questions:
            answer = asked(key, "vault", method, **params)
            attack.attempts["scopes over mcp"] += 1
            assert "needs a key with the scope read" in answer.text, (method, answer.text)
            assert MARK not in answer.text


async def _queries_without_a_filter(attack: Attack) -> None:
    """Statements that forgot their filter: row-level security holds, by space and by tenant."""
    fleet = await PostgresFleet.open(attack.database.app_url)
    with psycopg.connect(attack.database.admin_url) as owner:
        tables = owner.execute(
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'"
            " AND a.attname IN ('space_id', 'tenant_id')"
        ).fetchall()
    assert len(tables) > 30
    mine = space_uuid(tenant_space(attack.attacker, "shared"))
    opened: dict[str, Callable[[], Any]] = {
        "space_id": lambda: fleet.pool.transaction(mine),
        "tenant_id": lambda: fleet.pool.tenant_transaction(attack.attacker),
    }
    for table, column in tables:
        own = mine if column == "space_id" else attack.attacker
        async with opened[column]() as work:
            found = await work.rows(f"SELECT {column}, t::text FROM recollect.{table} AS t")
            attack.attempts["broken queries"] += 1
            assert {UUID(str(row[0])) for row in found} <= {own}, table
            assert MARK not in str(found), table
        other = "tenant_id" if column == "space_id" else "space_id"
        async with opened[other]() as work:  # bound to something else altogether
            assert await work.rows(f"SELECT {column} FROM recollect.{table} AS t") == [], table
            attack.attempts["broken queries"] += 1
    await fleet.close()
