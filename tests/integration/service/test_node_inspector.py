"""The inspector of a node has the limits of its other requests, and delays no stop."""

import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from typing import Any

import httpx2
import psycopg
import pytest
from tests.harness.inspector import FOREIGN, every_route
from tests.harness.waiting import PATIENCE_SECONDS, wait_until
from tests.integration.service.nodes import Caller, Node, add_tenant, chat, wait_for_lock

from recollect.hosts.service import app, keys, limits
from recollect_bench.postgres_server import TestDatabase

LIVE = "/inspector/live?space=s&session=s&turns=0"
LOCK = "LOCK TABLE recollect.tenant_spaces IN ACCESS EXCLUSIVE MODE"


def browser(node: Node, key: str) -> httpx2.Client:
    """Somebody who sends a key as the password of HTTP's basic authentication."""
    return httpx2.Client(
        base_url=node.url, auth=("me", key), timeout=PATIENCE_SECONDS, trust_env=False
    )


def test_live_streams_have_a_limit_per_tenant_and_end_with_the_node(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MOST_STREAMS", 8)
    node = Node(database)
    with ExitStack() as opened:
        running = opened.enter_context(ExitStack())
        running.enter_context(node)
        browsers = []
        for name in ("one", "other"):
            _, key = add_tenant(database, f"watching {name}")
            caller = Caller(node.url, key)
            caller.post("/v1/spaces/s/sessions/s/prepare", {"request": chat("The crane.")})
            caller.http.close()
            browsers.append(opened.enter_context(browser(node, key)))

        def stream(which: int) -> Any:
            return opened.enter_context(browsers[which].stream("GET", LIVE))

        assert [stream(0).status_code for _ in range(3)] == [200, 200, 429]
        streams = [stream(1)]
        assert streams[0].status_code == 200
        assert browsers[0].get("/inspector/").status_code == 200  # a stream takes no turn
        lines = streams[0].iter_lines()
        assert "event: turns" in lines
        began = time.monotonic()
        node.service.drain()
        assert "data: 1" in list(lines)  # it has ended
        running.close()
        assert time.monotonic() - began < 5.0


def test_a_node_refuses_other_hosts_and_sites_at_every_route(database: TestDatabase) -> None:
    _, key = add_tenant(database, "browsing")
    with (
        Node(database, public_hosts=("Memory.example.com:443",)) as node,
        browser(node, key) as visits,
    ):
        Caller(node.url, key).post("/v1/spaces/s/sessions/s/prepare", {"request": chat("Crane.")})
        given = "?space=s&session=s&turn=1&look=1&pattern=x&matching=x"

        def status(route: str, headers: Mapping[str, str]) -> int:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return visits.get(f"/inspector{route}{given}", headers=sent).status_code

        for route, (expected, headers) in product((*every_route(), "/unknown"), FOREIGN):
            assert status(route, headers) == expected, (route, headers)
        proxied = {"origin": "https://memory.example.com", "sec_fetch_site": "same-origin"}
        for headers in (
            {"host": "memory.example.com"} | proxied,
            {"host": "10.0.0.5:8789"} | proxied,
            {"host": "[fd00::5]", "sec_fetch_site": "none"},
        ):
            assert status("/session", headers) == 200, headers


def test_an_unknown_space_has_no_live_stream(database: TestDatabase) -> None:
    _, key = add_tenant(database, "watching nothing")
    with Node(database) as node, browser(node, key) as visits:
        assert visits.get("/inspector/live?space=unknown&session=s").status_code == 404


def test_a_page_waits_for_its_turn_and_has_a_deadline(database: TestDatabase) -> None:
    _, key = add_tenant(database, "looking")
    with Node(database, concurrency=2) as node, browser(node, key) as visits:
        caller = Caller(node.url, key)
        caller.post("/v1/spaces/s/sessions/s/prepare", {"request": chat("The crane.")})
        caller.http.close()
        path = "/inspector/session?space=s&session=s"

        def ask(seconds: str) -> int:
            return visits.get(path, headers={"x-request-timeout": seconds}).status_code

        assert ask("30") == 200
        assert httpx2.get(node.url + path, trust_env=False).status_code == 401
        with ThreadPoolExecutor(1) as pool, psycopg.connect(database.admin_url) as owner:
            owner.execute(LOCK)
            holding = pool.submit(ask, "30")
            wait_for_lock(database)
            assert ask("1") == 503  # a tenant alone has one of two turns
            owner.rollback()
            assert holding.result() == 200
            owner.execute(LOCK)
            assert ask("0.5") == 504
            owner.rollback()
        wait_until(lambda: ask("30") == 200)


def test_a_tenant_at_its_bytes_stores_elsewhere_after_a_page_has_forgotten(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BYTES_SECONDS", 0.0)
    monkeypatch.setattr(keys, "KEY_SECONDS", 0.0)
    tenant, key = add_tenant(database, "forgets by page")
    with Node(database) as node, browser(node, key) as visits:
        caller = Caller(node.url, key)

        def ingest(space: str, **given: Any) -> Any:
            text = "The yellow crane lifts. " * 40
            body = {"messages": [{"role": "user", "content": text}], "batch": space}
            return caller.post(f"/v1/spaces/{space}/sessions/s/ingest", body, **given)

        ingest("one")
        set_limit = "UPDATE recollect.tenants SET most_bytes = 900 WHERE tenant_id = %s"
        measured = "UPDATE recollect.tenant_spaces SET bytes = 960 WHERE tenant_id = %s"
        with psycopg.connect(database.admin_url) as owner:
            for change in (set_limit, measured):
                owner.execute(change, (tenant,))
        ingest("two", expect=403)
        preview = visits.get("/inspector/forget?space=one&matching=yellow").text
        token, expected = (
            re.search(f'name="{name}" value="([^"]+)"', preview)
            for name in ("form_token", "expected")
        )
        assert token
        assert expected
        form = {"space": "one", "matching": "yellow", "expected": expected[1]}
        done = visits.post("/inspector/forget", data={**form, "form_token": token[1]})
        assert "checksum" in done.text

        def used() -> int:
            return int(caller.get("/v1/tenant")["quotas"][1]["used"])

        wait_until(lambda: used() == 0)
        ingest("two")
        caller.http.close()
