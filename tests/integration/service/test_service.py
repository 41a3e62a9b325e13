"""The API over HTTP, on a real PostgreSQL: every route, limits, retries, several nodes."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from tests.harness.waiting import PATIENCE_SECONDS, wait_until
from tests.integration.service.nodes import (
    Caller,
    Node,
    add_key,
    add_tenant,
    chat,
    late_body,
    node_settings,
    reply,
    served_at,
)
from tests.sizes import at_size

from recollect.cli import main
from recollect.client import MemoryClient
from recollect.errors import ServiceError
from recollect.hosts.service.api import ROUTES
from recollect.hosts.service.keys import make_key, read_key
from recollect_bench.postgres_server import PostgresServer, TestDatabase

NOON = 1_800_000_010.0
ONE = "/v1/spaces/team%2Fnorth/sessions/one"


def space() -> str:
    return f"/v1/spaces/{uuid4().hex}"


def rows(database: TestDatabase, text: str) -> int:
    """How many messages with this text are in the archive."""
    with psycopg.connect(database.admin_url) as owner:
        found = owner.execute(
            "SELECT count(*) FROM recollect.segments WHERE body LIKE %s", (f"%{text}%",)
        ).fetchone()
    assert found is not None
    return int(found[0])


def test_a_turn_is_prepared_kept_and_replayed(caller: Caller) -> None:
    request = chat("The launch word is heron.")
    made = caller.post(f"{ONE}/prepare", {"request": request})
    assert made["request"] == request
    assert (made["archived"], made["turn"]) == ("store", 1)
    seen = caller.post(f"{ONE}/observe", {"reply": reply("Noted."), "turn": made["turn"]})
    assert seen["archived"] == "store"
    found = caller.post("/v1/spaces/team%2Fnorth/search", {"query": "What is the launch word?"})
    best = found["passages"][0]
    assert best["text"] == "The launch word is heron."
    assert best["session"] == "one"
    assert abs(best["said_at"] - time.time()) < 60
    again = caller.get(f"{ONE}/turns/1")
    assert again["exact"]
    assert again["request"] == request
    assert caller.get(f"{ONE}/turns")["turns"] == [1]
    assert caller.get(f"{ONE}/receipts") == {"receipts": [], "next": None}
    caller("GET", f"{ONE}/receipts/1", expect=404)
    caller("GET", f"{ONE}/turns/9", expect=404)
    ended = caller.post(f"{ONE}/compact", {"request": request})
    assert (ended["convergence"], ended["cause"]) == ("failed", "no_model")
    assert "ask its operator" in ended["reason"]
    far = caller.post(f"{ONE}/observe", {"reply": reply("Noted."), "turn": 7}, expect=422)
    assert "turn 7" in far["detail"]
    assert not caller("POST", f"{ONE}/undo").json()["undone"]


def test_another_session_of_a_space_hears_what_was_said_in_one(caller: Caller) -> None:
    said = [{"role": "user", "content": "The staging database listens on port 6432."}]
    caller.post("/v1/spaces/across/sessions/one/ingest", {"messages": said})
    asked = {"role": "user", "content": "Which port does the staging database listen on?"}
    request = {"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": [asked]}
    other = caller.post("/v1/spaces/across/sessions/two/prepare", {"request": request})
    assert "6432" in json.dumps(other["request"])
    apart = caller.post("/v1/spaces/elsewhere/sessions/two/prepare", {"request": request})
    assert "6432" not in json.dumps(apart["request"])


def test_what_cannot_be_read_goes_on_and_is_not_called_kept(caller: Caller) -> None:
    told = caller.post("/v1/spaces/odd/sessions/s/prepare", {"request": {"prompt": "hello"}})
    assert told["request"] == {"prompt": "hello"}
    assert told["archived"] is None
    assert told["turn"] is None
    assert told["report"]["failed"] == ["read"]
    seen = caller.post("/v1/spaces/odd/sessions/s/observe", {"reply": reply("Hello.")})
    assert seen["archived"] is None
    assert seen["failures"]


def test_what_answers_nothing_makes_no_space_and_is_not_called_kept(caller: Caller) -> None:
    base = space()
    caller("POST", f"{base}/sessions/s/observe", json={"reply": reply("Hello.")}, expect=404)
    caller("POST", f"{base}/sessions/s/undo", expect=404)
    caller("GET", f"{base}/sessions", expect=404)
    caller.post(f"{base}/sessions/s/prepare", {"request": chat("We moved to Lisbon.")})
    for session, answer in (("s", {"foo": 1}), ("another", reply("Hello."))):
        seen = caller.post(f"{base}/sessions/{session}/observe", {"reply": answer})
        assert seen["archived"] is None, seen
        assert seen["failures"]
    assert caller.get(f"{base}/sessions")["sessions"][0]["messages"] == 1


def test_messages_are_ingested_once(caller: Caller) -> None:
    base = space()
    history = [{"role": "user", "content": "We moved to Lisbon."}]
    first = caller.post(f"{base}/sessions/s/ingest", {"messages": history})
    assert (first["stored"], first["known"]) == (1, 0)
    longer = [*history, {"role": "assistant", "content": "Good to know."}]
    again = caller.post(f"{base}/sessions/s/ingest", {"messages": longer})
    assert (again["stored"], again["known"]) == (1, 1)
    # the same history in a request is the same messages
    caller.post(f"{base}/sessions/s/prepare", {"request": chat("We moved to Lisbon.")})
    assert caller.get(f"{base}/sessions")["sessions"][0]["messages"] == 2
    bad = {"messages": [*history, {"role": "bogus"}]}
    assert "messages[1]" in caller.post(f"{base}/sessions/s/ingest", bad, expect=422)["detail"]
    piece = {"messages": history, "batch": "mail-7"}
    assert caller.post(f"{base}/sessions/s/ingest", piece)["stored"] == 1
    assert caller.post(f"{base}/sessions/s/ingest", piece)["known"] == 1


def test_a_cursor_is_good_for_its_list_alone(caller: Caller) -> None:
    base = f"{space()}/sessions/s"
    for text in ("First.", "Second."):
        caller.post(f"{base}/prepare", {"request": chat(text)})
    page = caller.get(f"{base}/turns", params={"limit": 1})
    behind = {"limit": 1, "cursor": page["next"]}
    assert page["turns"] + caller.get(f"{base}/turns", params=behind)["turns"] == [1, 2]
    caller("GET", f"{base}/receipts", params=behind, expect=400)


def test_facts_are_added_listed_and_forgotten(caller: Caller) -> None:
    base = space()
    ids = [
        caller.post(f"{base}/facts", {"content": text})["id"]
        for text in ("The office is in Lisbon.", "Invoices go out on Mondays.", "Tea at four.")
    ]
    assert caller.post(f"{base}/facts", {"content": "Tea at four."})["id"] == ids[2]
    listed, cursor = [], None
    while True:
        given = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = caller.get(f"{base}/facts", params=given)
        listed += page["facts"]
        if (cursor := page["next"]) is None:
            break
    assert sorted(one["id"] for one in listed) == sorted(ids)
    gone = caller("DELETE", f"{base}/facts/{ids[0]}").json()["certificate"]
    assert gone["counts"]["facts"] == 1
    caller("DELETE", f"{base}/facts/{ids[0]}", expect=404)
    assert len(caller.get(f"{base}/facts")["facts"]) == 2


def test_forgetting_and_deleting_certify_and_stand_in_the_log(caller: Caller) -> None:
    name = uuid4().hex
    base = f"/v1/spaces/{name}"
    caller.post(f"{base}/sessions/s/prepare", {"request": chat("The vault opens with walrus.")})
    would = caller.post(f"{base}/forget", {"matching": "walrus", "dry_run": True})
    assert would["certificate"] is None
    assert would["preview"]["segments"] == len(would["preview"]["segment_ids"]) == 1
    assert len(caller.post(f"{base}/search", {"query": "vault walrus"})["passages"]) == 1
    done = caller.post(f"{base}/forget", {"matching": "walrus"})["certificate"]
    for said_twice in ("backups", "replicas"):
        assert sum(said_twice in line for line in done["cannot"]) == 1
    assert done["space"] == name
    assert done["counts"]["segments"] == 1
    assert caller.post(f"{base}/search", {"query": "vault walrus"})["passages"] == []
    caller("POST", f"{base}/forget", json={}, expect=422)
    gone = caller("DELETE", base).json()["certificate"]
    assert gone["asked"]["whole_space"]
    caller("GET", f"{base}/sessions", expect=404)
    caller("DELETE", base, expect=404)
    acts = [(act["act"], act["subject"]) for act in caller.get("/v1/audit")["acts"]]
    assert ("space deleted", name) in acts
    assert ("messages forgotten", name) in acts


def test_all_of_a_space_is_exported_page_by_page(caller: Caller) -> None:
    base = space()
    said = [{"role": "user", "content": f"Message {number}."} for number in range(7)]
    caller.post(f"{base}/sessions/s/ingest", {"messages": said})
    caller.post(f"{base}/facts", {"content": "There were seven."})
    texts, facts, cursor = [], [], None
    while True:
        given = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = caller.get(f"{base}/export", params=given)
        texts += [one["text"] for one in page["segments"]]
        facts += page["facts"]
        if (cursor := page["next"]) is None:
            break
    assert texts == [one["content"] for one in said]
    assert [one["content"] for one in facts] == ["There were seven."]


def test_a_session_goes_on_at_another_node(
    database: TestDatabase, node: Node, caller: Caller
) -> None:
    """Every request of a session at another node: turns count on, what was said is there once."""
    base = space()
    with Node(database) as second:
        callers = [caller, Caller(second.url, caller.key)]
        texts: list[str] = []
        for number in range(4):
            texts.append(f"Question {number} of the roaming talk?")
            made = callers[number % 2].post(f"{base}/sessions/s/prepare", {"request": chat(*texts)})
            assert made["turn"] == number + 1
            texts.append(f"Answer {number} of the roaming talk.")
            seen = callers[(number + 1) % 2].post(
                f"{base}/sessions/s/observe", {"reply": reply(texts[-1]), "turn": made["turn"]}
            )
            assert seen["archived"] == "store"
    found = caller.get(f"{base}/export")["segments"]
    assert [one["text"] for one in found] == texts


def test_an_idempotency_key_is_of_one_request(
    database: TestDatabase, caller: Caller, node: Node
) -> None:
    base = space()
    path = f"{base}/sessions/s/ingest"
    body = {"messages": [{"role": "user", "content": "Once only."}]}
    headers = {"idempotency-key": uuid4().hex}
    first = caller("POST", path, json=body, headers=headers)
    again = caller("POST", path, json=body, headers=headers)
    assert again.content == first.content
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (
        None,
        "true",
    )
    other = {"messages": [{"role": "user", "content": "Another."}]}
    assert (
        "idempotency-key-reused"
        in caller("POST", path, json=other, headers=headers, expect=422).text
    )
    caller("POST", f"{base}/sessions/t/ingest", json=body, headers=headers, expect=422)
    # what holds content is carried out again, never kept
    request = {"request": chat("Once only, I said.")}
    headers = {"idempotency-key": uuid4().hex}
    made = [caller("POST", f"{base}/sessions/s/prepare", json=request, headers=headers).json()
            for _ in range(2)]  # fmt: skip
    assert made[0]["request"] == made[1]["request"]
    assert rows(database, "Once only, I said.") == 1
    with psycopg.connect(database.admin_url) as owner:
        kept = owner.execute("SELECT i::text FROM recollect.idempotency_keys AS i").fetchall()
    assert b"Once only".hex() not in str(kept)
    # at once: one is carried out, the others are told to come again or get its answer
    stranger = Caller(node.url, add_tenant(database, f"other-{uuid4().hex}")[1])
    stranger("POST", path, json=other, headers=headers)  # another tenant's key is its own
    headers = {"idempotency-key": uuid4().hex}
    statuses: list[int] = []

    def send() -> None:
        statuses.append(
            caller(
                "POST", path, json={**body, "batch": "b"}, headers=headers, expect=None
            ).status_code
        )

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 409}
    assert 200 in statuses


@pytest.mark.parametrize(
    ("method", "path", "given", "status"),
    [
        ("POST", "/v1/spaces/x/search", {"content": b"{", "headers": {}}, 400),
        ("POST", "/v1/spaces/x/search", {"content": b"\xff\xfe"}, 400),
        ("POST", f"{ONE}/prepare", {"content": b'{"request":' + b"[" * 100_000}, 400),
        ("POST", "/v1/spaces/x/search", {"json": {"query": "a", "other": 1}}, 422),
        ("POST", "/v1/spaces/x/search", {"json": {"query": ""}}, 422),
        ("POST", "/v1/spaces/x/search", {"json": {"query": "a"}, "params": {"a": "b"}}, 422),
        ("POST", "/v1/spaces/x/search",
         {"content": b"query=a", "headers": {"content-type": "text/plain"}}, 415),
        ("GET", "/v1/spaces?limit=0", {}, 422),
        ("GET", "/v1/spaces?limit=1&limit=2", {}, 400),
        ("GET", "/v1/spaces?cursor=abc", {}, 400),
        ("GET", "/v1/spaces/none/sessions", {}, 404),
        ("GET", "/v1/spaces/%ff/sessions", {}, 400),
        ("GET", "/v1/spaces//sessions", {}, 404),
        ("GET", "/v2/spaces", {}, 404),
        ("PUT", "/v1/spaces", {}, 405),
        ("POST", f"{ONE}/prepare", {"json": {"request": 5}}, 422),
        ("POST", f"{ONE}/observe", {"json": {"reply": "text"}}, 422),
        ("POST", f"{ONE}/ingest", {"json": {"messages": []}}, 422),
        ("GET", "/v1/tenant", {"headers": {"x-request-timeout": "soon"}}, 400),
        ("POST", f"{ONE}/undo", {"headers": {"idempotency-key": "a b"}}, 400),
        ("GET", "/v1/tenant", {"content": b"{}"}, 400),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_as_a_problem(
    caller: Caller, method: str, path: str, given: dict[str, Any], status: int
) -> None:
    answer = caller(method, path, expect=status, **given)
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["type"].startswith("urn:recollect:problem:")
    assert told["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/none", 401), ("PUT", "/v1/spaces", 401), ("GET", "/v2/spaces", 404)],
)
def test_without_a_key_the_api_does_not_name_its_paths(
    caller: Caller, method: str, path: str, status: int
) -> None:
    answer = caller(method, path, expect=status, headers={"authorization": ""})
    assert "allow" not in answer.headers


def test_a_node_says_why_it_is_not_ready(server: PostgresServer, database: TestDatabase) -> None:
    bare = server.new_database()
    key = make_key(uuid4(), name="", scopes=["read"], now=0.0).text
    with Node(bare) as unmigrated:
        here = Caller(unmigrated.url, key)
        for _ in range(2):  # the second is answered from what the first found
            told = here("GET", "/readyz", expect=503).json()
            assert (told["status"], told["reason"]) == ("unavailable", "schema-missing")
        assert "recollect db migrate" in here("GET", "/v1/spaces", expect=503).json()["detail"]
    nobody = replace(database, app_url="postgresql://nobody:hidden@127.0.0.1:9/nowhere")
    with Node(nobody) as alone:
        told = Caller(alone.url, key)("GET", "/readyz", expect=503)
        assert told.json()["reason"] == "unreachable"
        assert not any(word in told.text for word in ("hidden", "127.0.0.1", "nowhere"))


def test_a_key_opens_what_its_scopes_name(database: TestDatabase, node: Node) -> None:
    tenant, key = add_tenant(database, "scoped", scopes=["read"])
    reads = Caller(node.url, key)
    assert reads.get("/v1/tenant")["scopes"] == ["read"]
    body = {"json": {"content": "x"}}
    for route in ROUTES:
        names = {"space": "s", "session": "t", "number": 1, "fact": "f", "tenant": "u", "key": "k"}
        path = "/v1" + route.path.format(**names)
        answer = reads(route.method, path, expect=None, **(body if route.body else {}))
        assert (answer.status_code == 403) == (route.scope != "read"), route.path
    writes = Caller(node.url, add_key(database, tenant, scopes=["write"]))
    writes.post("/v1/spaces/s/facts", {"content": "Keys have scopes."})
    writes("GET", "/v1/spaces/s/facts", expect=403)


def test_budgets_hold_over_all_nodes_and_say_which(database: TestDatabase) -> None:
    _, key = add_tenant(database, "limited", requests=40)
    _, spends = add_tenant(database, "spending", tokens=30)
    with Node(database) as first, Node(database) as second:
        callers = [Caller(one.url, key) for one in (first, second)]
        for node in (first, second):  # of which no new minute begins in between
            node.service.memories.budgets._now = lambda: NOON
        callers[0].get("/v1/spaces")
        assert callers[0].get("/v1/tenant")["budgets"][0]["spent"] == 1
        answers = [callers[number % 2]("GET", "/v1/spaces", expect=None) for number in range(60)]
        assert sum(one.status_code == 200 for one in answers) == 39
        told = callers[1].get("/v1/tenant")["budgets"][0]  # not counted: it says what is left
        assert (told["limit"], told["spent"]) == (40, 40)
        refused = answers[-1]
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["budget"] == "requests per minute"
        assert re.search(r"renew in \d+ s", refused.json()["detail"])
        with (
            MemoryClient(first.url, key) as client,
            pytest.raises(ServiceError, match="renew in") as budget,
        ):
            list(client.spaces())
        assert budget.value.budget == "requests per minute"
        assert 1 <= (budget.value.retry_after or 0) <= 60
        spender = Caller(first.url, spends)
        said = {"messages": [{"role": "user", "content": "word " * 60}]}
        spender.post("/v1/spaces/s/sessions/s/ingest", said)
        told = spender("GET", "/v1/spaces", expect=429).json()
        assert told["budget"] == "tokens per day"


def test_work_that_is_done_is_answered_although_it_cannot_be_counted(
    database: TestDatabase, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.hosts.service.app.PURGE_SECONDS", -1.0)
    here = Caller(node.url, add_tenant(database, "uncounted", tokens=1_000)[1])
    user = urlsplit(database.app_url).username
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        for rights in ("INSERT, UPDATE", "DELETE"):  # what counting needs, what purging needs
            of_it = f"{rights} ON recollect.tenant_usage"
            owner.execute(f'REVOKE {of_it} FROM "{user}"'.encode())
            try:
                here.post("/v1/spaces/s/facts", {"content": f"Without {rights}."})
            finally:
                owner.execute(f'GRANT {of_it} TO "{user}"'.encode())


def test_limits_of_a_node(
    database: TestDatabase, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.hosts.service.app.MOST_BODY_BYTES", 2_000)
    with Node(database) as small:
        here = Caller(small.url, caller.key)
        here("POST", f"{ONE}/prepare", json={"request": chat("x" * 3_000)}, expect=413)

        def chunks() -> Iterator[bytes]:
            yield from (b" " * 500 for _ in range(6))

        here("POST", f"{ONE}/prepare", content=chunks(), expect=413)
        late = here(
            "POST", f"{ONE}/prepare", content=late_body("Too late."),
            headers={"x-request-timeout": "0.001"}, expect=504,
        )  # fmt: skip
        assert "deadline" in late.json()["type"]
        assert "longer than 0.001 s" in late.json()["detail"]
        assert "Idempotency-Key" not in late.json()["detail"]
        # a body that never ends is not waited for
        at = urlsplit(small.url)
        with socket.create_connection((at.hostname or "", at.port or 0)) as slow:
            slow.sendall(
                f"POST {ONE}/prepare HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {caller.key}\r\n"
                "content-type: application/json\r\ncontent-length: 100\r\n"
                "x-request-timeout: 0.2\r\n\r\n{".encode()
            )
            assert b" 504 " in slow.recv(100)
    monkeypatch.setattr("recollect.hosts.service.app.MOST_REQUESTS", 1)
    with Node(database) as single:
        at = urlsplit(single.url)
        with socket.create_connection((at.hostname or "", at.port or 0)) as slow:
            slow.sendall(
                f"POST {ONE}/prepare HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {caller.key}\r\n"
                "content-type: application/json\r\ncontent-length: 100\r\n\r\n{".encode()
            )
            here = Caller(single.url, caller.key)
            wait_until(lambda: single.service._intake.under_way)
            busy = here("GET", "/v1/tenant", expect=503)
            assert busy.headers["retry-after"] == "1"


def test_a_revoked_key_is_refused_when_the_node_looks_again(
    database: TestDatabase, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.hosts.service.keys.KEY_SECONDS", 0.2)
    _, key = add_tenant(database, "revoked")
    with Node(database) as quick:
        here = Caller(quick.url, key)
        here.get("/v1/tenant")
        arguments = ["key", "revoke", "revoked", key.split("_")[2], "--store", database.app_url]
        assert CliRunner().invoke(main, arguments).exit_code == 0
        wait_until(lambda: here("GET", "/v1/tenant", expect=None).status_code != 200)
    Caller(node.url, add_tenant(database, "ended", expires_at=time.time() - 1)[1])(
        "GET", "/v1/tenant", expect=401
    )


def test_invented_keys_push_out_no_good_one(
    database: TestDatabase, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are remembered apart, and few are looked up at once, within their deadline."""
    monkeypatch.setattr("recollect.hosts.service.keys.MOST_KEYS", 2)
    monkeypatch.setattr("recollect.hosts.service.keys.MOST_REFUSED_KEYS", 3)
    tenant = read_key(caller.key)
    assert tenant is not None
    monkeypatch.setattr("recollect.hosts.service.keys.KEY_SECONDS", 600.0)
    with Node(database) as fresh:
        good = Caller(fresh.url, caller.key)
        good.get("/v1/tenant")
        invented = [make_key(uuid4(), name="", scopes=["read"], now=0.0).text for _ in range(5)]
        for key in invented:
            Caller(fresh.url, key)("GET", "/v1/tenant", expect=401)
        assert [*fresh.service._principals._keys] == [tenant.hash]
        assert len(fresh.service._principals._refused_keys) == 3
        # as if the database answered nobody
        fresh.service._principals._lookups = asyncio.Semaphore(0)
        waits = {"x-request-timeout": "0.2"}
        Caller(fresh.url, invented[0])("GET", "/v1/tenant", headers=waits, expect=504)
        good.get("/v1/tenant", headers=waits)
        Caller(fresh.url, invented[-1])("GET", "/v1/tenant", headers=waits, expect=401)


@pytest.mark.parametrize("log_format", at_size(ci=["json"], full=[None, "json"]))
def test_a_node_drains_before_it_ends(
    database: TestDatabase, caller: Caller, log_format: str | None
) -> None:
    """SIGTERM: readiness says no while requests are served; then it ends by itself."""
    settings = node_settings(database)
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "RECOLLECT_STORE__URL": settings.store.url or "",
            "RECOLLECT_RECALL__EMBEDDER": "none",
            "RECOLLECT_SERVE__DRAIN_SECONDS": "5",
            "RECOLLECT_TELEMETRY__LOG_FORMAT": log_format or "none",
            "RECOLLECT_SECRET": "",
        },
    )
    assert process.stderr is not None
    before = list[str]()
    url = served_at(process, before)
    here = Caller(url, caller.key)
    assert here("GET", "/readyz").json()["status"] == "ok"
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: here("GET", "/readyz", expect=None).status_code != 200)
    drains = here("GET", "/readyz", expect=503).json()
    assert (drains["status"], drains["reason"]) == ("draining", "draining")
    assert here.get("/v1/tenant")["name"] == "main"
    with process:
        assert process.wait(PATIENCE_SECONDS) == 0
        told = "".join([*before, process.stderr.read()])
    assert told.count("RECOLLECT_SECRET is not set") == 1
    if log_format is None:
        assert "/readyz fails, requests are served for 5 s" in told
        assert told.endswith("Ended\n")
    else:
        events = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        node = [one["event"] for one in events if one["logger"] == "recollect.serve"]
        assert node == ["draining", "ended"]


def test_a_second_signal_lets_open_requests_finish(database: TestDatabase, caller: Caller) -> None:
    settings = node_settings(database)
    own = {"STORE__URL": settings.store.url or "", "RECALL__EMBEDDER": "none"}
    env = {f"RECOLLECT_{name}": value for name, value in own.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env, "RECOLLECT_SERVE__DRAIN_SECONDS": "1"},
    )

    def body() -> Iterator[bytes]:
        yield b'{"request": '
        for _ in range(2):
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
        time.sleep(1.5)  # longer than the drain
        yield json.dumps(chat("Hello.")).encode() + b"}"

    here = Caller(served_at(process), caller.key)
    with process:
        answer = here("POST", "/v1/spaces/one/sessions/s/prepare", content=body())
        assert answer.json()["request"]
        assert process.wait(PATIENCE_SECONDS) == 0
