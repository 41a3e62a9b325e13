"""Faults of a service: what is cut off is not done twice, what is acknowledged is there once.

A few of them here, without a load; all of them under load with RECOLLECT_FULL=1, or by
`just service-faults`."""

import asyncio
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.harness.waiting import wait_until
from tests.integration.service.nodes import Caller, Node, add_tenant, chat, reply, wait_for_lock
from tests.sizes import only_in_full
from tools.service_faults.backup import database_on, forget_something, sent_again
from tools.service_faults.fleet import either_url, kill_server, make_synchronous
from tools.service_faults.scenarios import SCENARIOS, try_scenario

from recollect.adapters.stores.postgres.link import connect
from recollect.adapters.stores.postgres.store import space_uuid
from recollect.client import MemoryClient
from recollect.core.values.tenant import tenant_space
from recollect.errors import ServiceError
from recollect_bench.postgres_server import PostgresServer, TestDatabase


class Pair:
    """Two nodes of one service, and a tenant."""

    def __init__(self, database: TestDatabase) -> None:
        self.database = database
        self.tenant, self.key = add_tenant(database, f"pair-{uuid4().hex[:8]}")
        self.nodes = (Node(database), Node(database))
        self.first, self.second = (Caller(node.url, self.key) for node in self.nodes)

    def stored(self, text: str) -> int:
        with psycopg.connect(self.database.admin_url) as owner:
            asked = "SELECT count(*) FROM recollect.segments WHERE body LIKE %s"
            row = owner.execute(asked, (f"%{text}%",)).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def pair(database: TestDatabase) -> Iterator[Pair]:
    made = Pair(database)
    with made.nodes[0], made.nodes[1]:
        yield made


def test_a_reply_that_comes_again_to_another_node_is_kept_once(pair: Pair) -> None:
    """Without an idempotency key, too: a client that heard nothing sends it again."""
    base = "/v1/spaces/one/sessions/twice"
    turn = pair.first.post(f"{base}/prepare", {"request": chat("Who keeps the heron?")})["turn"]
    body = {"reply": reply("The warden keeps it."), "turn": turn}
    for ask in (pair.first, pair.second, pair.first):
        assert ask.post(f"{base}/observe", body)["archived"] == "store"
    assert pair.stored("The warden keeps it.") == 1
    longer = chat("Who keeps the heron?", "The warden keeps it.", "Since when?")
    pair.second.post(f"{base}/prepare", {"request": longer})
    assert pair.stored("The warden keeps it.") == 1


def test_what_its_deadline_cuts_off_is_answered_in_time_and_left_to_next_try(pair: Pair) -> None:
    """The write of the first try cannot be done, nor its idempotency key be released: the answer
    comes all the same, and the session goes on at whatever node is asked."""
    base = "/v1/spaces/held/sessions/cut"
    pair.first.post(f"{base}/prepare", {"request": chat("First.")})
    request = {"request": chat("First.", "Well.", "A wren sat there.")}
    headers = {"idempotency-key": "cut-1", "x-request-timeout": "4"}

    def ask() -> Any:
        return pair.first("POST", f"{base}/prepare", expect=None, json=request, headers=headers)

    space = space_uuid(tenant_space(pair.tenant, "held"))
    with psycopg.connect(pair.database.admin_url) as owner, ThreadPoolExecutor(1) as client:
        held = "SELECT 1 FROM recollect.counters WHERE space_id = %s FOR UPDATE"
        owner.execute(held, (space,))
        asking = client.submit(ask)
        wait_for_lock(pair.database)
        owner.execute("LOCK TABLE recollect.idempotency_keys IN ACCESS EXCLUSIVE MODE")
        assert asking.result().status_code == 504  # while both are locked
    time.sleep(0.3)
    assert pair.stored("A wren sat there.") == 0  # nothing goes on behind the client's back

    def sent_again() -> Any:
        return pair.second("POST", f"{base}/prepare", expect=None, json=request, headers=headers)

    # the key is released when the database lets it
    again = wait_until(lambda: (tried := sent_again()).status_code != 409 and tried)
    assert again.status_code == 200
    body = {"reply": reply("Indeed."), "turn": again.json()["turn"]}
    assert pair.first.post(f"{base}/observe", body)["archived"] == "store"
    assert (pair.stored("A wren sat there."), pair.stored("Indeed.")) == (1, 1)


def test_a_defect_in_opening_a_memory_is_an_error_and_is_logged(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**given: Any) -> Any:
        raise TypeError("a defect")

    monkeypatch.setattr("recollect.hosts.service.memories.open_memory", broken)
    path, body = "/v1/spaces/one/sessions/s/prepare", {"request": chat("Who?")}
    answer = pair.first("POST", path, expect=None, json=body)
    assert (answer.status_code, "retry-after" in answer.headers) == (500, False)
    assert "ERROR" in [record.levelname for record in caplog.records]


def test_a_reply_to_an_older_turn_is_not_said_to_be_kept(pair: Pair) -> None:
    base = "/v1/spaces/one/sessions/older"
    for text in ("First.", "Second."):
        pair.first.post(f"{base}/prepare", {"request": chat(text)})
    seen = pair.second.post(f"{base}/observe", {"reply": reply("To the first."), "turn": 1})
    assert seen["archived"] is None
    assert pair.stored("To the first.") == 0


async def test_of_two_servers_in_a_url_one_that_says_nothing_is_passed_over(
    server: PostgresServer,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = (
            f"postgresql://postgres@/postgres?host=127.0.0.1,{server.folder}"
            f"&port={port},5432&target_session_attrs=read-write"
        )
        async with await connect(url, seconds=20.0) as connection:
            row = await (await connection.execute("SELECT 'reached'")).fetchone()
    assert row is not None
    assert str(row[0]) == "reached"


def test_what_was_forgotten_stays_away_in_a_restored_dump(
    server: PostgresServer, database: TestDatabase
) -> None:
    _, key = add_tenant(database, "restored")
    with Node(database) as node:
        forget_something(node.url, key)
    copied = server.new_database()
    path = server.folder / f"dump-{uuid4().hex}"
    server.dump(database.name, path)
    server.restore(path, copied.name)
    with Node(database_on(server, copied.name)) as node:
        assert sent_again(node.url, key) == []


def test_a_promoted_standby_has_every_acknowledged_write() -> None:
    """A node finds the server that takes writes by itself: its URL names both."""
    with PostgresServer(18) as primary:
        database = asyncio.run(primary.migrated_database())
        _, key = add_tenant(database, "promoted")
        with PostgresServer(18, copy_of=primary, as_standby=True) as standby:
            make_synchronous(primary)
            reached = replace(database, app_url=either_url(database, primary, standby))
            with Node(reached) as node, MemoryClient(node.url, key, patience_seconds=60) as client:
                kept = [_ingested(client, number) for number in range(5)]
                kill_server(primary)
                hasty = MemoryClient(node.url, key, patience_seconds=0)
                with hasty, pytest.raises(ServiceError):
                    hasty.search("one", "number")
                standby.promote()
                kept += [_ingested(client, number) for number in range(5, 10)]
                texts = [getattr(one, "text", "") for one in client.export("one")]
    assert sorted(texts) == sorted(kept)


def _ingested(client: MemoryClient, number: int) -> str:
    text = f"This is number {number}."
    client.ingest("one", "talk", [{"role": "user", "content": text}], batch=text)
    return text


@only_in_full
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_fault_at_both_paces(scenario: str, tmp_path: Path) -> None:
    if scenario == "pooler" and shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("no pgbouncer here")
    for outcome in try_scenario(scenario, tmp_path):
        assert outcome.clean, outcome.as_json()
