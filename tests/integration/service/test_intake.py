"""What a node takes in, over HTTP: slow bodies, questions without a key, keys that many use."""

import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from tests.harness.waiting import PATIENCE_SECONDS, wait_until
from tests.integration.service.nodes import Caller, Node, add_tenant

from recollect_bench.postgres_server import TestDatabase


def test_slow_bodies_of_one_tenant_leave_room_for_the_others(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.hosts.service.app.BODY_SECONDS", 2.0)
    _, slow = add_tenant(database, "slow")
    _, quick = add_tenant(database, "quick")
    monkeypatch.setattr("recollect.hosts.service.app.MOST_REQUESTS", 8)
    with Node(database) as node, ExitStack() as opened:
        here, there = Caller(node.url, slow), Caller(node.url, quick)
        for one in (here, there):
            one.get("/v1/tenant")
        at = urlsplit(node.url)
        head = (
            f"POST /v1/spaces/s/sessions/s/prepare HTTP/1.1\r\nhost: x\r\n"
            f"authorization: Bearer {slow}\r\ncontent-type: application/json\r\n"
            "content-length: 1000\r\nx-request-timeout: 120\r\n\r\n{"
        )
        sockets = [
            opened.enter_context(socket.create_connection((at.hostname or "", at.port or 0)))
            for _ in range(8)
        ]
        for one_socket in sockets:
            one_socket.sendall(head.encode())
        wait_until(lambda: here("GET", "/v1/tenant", expect=None).status_code != 200)
        refused = here("GET", "/v1/tenant", expect=429).json()
        assert refused["type"].endswith("tenant-busy")
        there.get("/v1/tenant")
        told = []
        for one_socket in sockets:  # none is waited for longer than a body may take
            one_socket.settimeout(PATIENCE_SECONDS)
            told.append(one_socket.recv(100).split()[1])
        assert set(told) == {b"429", b"504"}
        here.get("/v1/tenant")


def test_whoever_asks_whether_node_is_ready_asks_the_database_once(database: TestDatabase) -> None:
    with Node(database) as node:
        here = Caller(node.url, "none")
        here("GET", "/readyz")
        pool = node.service.memories.pool
        assert pool is not None
        before, began = pool.traffic.transactions, time.monotonic()
        for _ in range(30):
            here("GET", "/readyz")
        asked = pool.traffic.transactions - before
        assert asked <= 1 + (time.monotonic() - began) / 1.0
