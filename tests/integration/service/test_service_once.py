"""What is done once: turns of two nodes, requests with a key, deletions beside writers, charges.

Locks of PostgreSQL hold a request where it is to be cut off or overtaken."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner
from tests.harness.model_server import ModelServer
from tests.harness.waiting import PATIENCE_SECONDS, wait_until
from tests.integration.long_talk import notes
from tests.integration.service.nodes import Caller, Node, add_tenant, chat, wait_for_lock

from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.cli import main
from recollect.client import MemoryClient
from recollect.core.values.model import Prompt
from recollect.core.values.tenant import tenant_space
from recollect.testing.scripted_model import Says
from recollect_bench.postgres_server import TestDatabase

SPACE = "SELECT 1 FROM recollect.counters WHERE space_id = %s FOR UPDATE"
NAME = "SELECT 1 FROM recollect.tenant_spaces WHERE tenant_id = %s AND name = %s FOR UPDATE"
ALL_TURNS = "LOCK TABLE recollect.turns IN EXCLUSIVE MODE"
ALL_KEYS = "LOCK TABLE recollect.idempotency_keys IN ACCESS EXCLUSIVE MODE"


@pytest.fixture(scope="module")
def nodes(database: TestDatabase) -> Iterator[tuple[Node, Node]]:
    with Node(database) as first, Node(database) as second:
        yield first, second


class Two:
    """A tenant at two nodes."""

    def __init__(self, database: TestDatabase, nodes: tuple[Node, Node]) -> None:
        self.database = database
        self.tenant, self.key = add_tenant(database, uuid4().hex)
        self.first, self.second = (Caller(node.url, self.key) for node in nodes)

    def rows(self, space: str) -> int:
        with psycopg.connect(self.database.admin_url) as owner:
            row = owner.execute(
                "SELECT count(*) FROM recollect.segments WHERE space_id = %s",
                (space_uuid(tenant_space(self.tenant, space)),),
            ).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def two(database: TestDatabase, nodes: tuple[Node, Node]) -> Two:
    return Two(database, nodes)


@contextmanager
def held(database: TestDatabase, lock: str, *given: Any) -> Iterator[None]:
    with psycopg.connect(database.admin_url) as owner:
        owner.execute(lock.encode(), given)
        yield


def test_of_two_turns_at_once_the_later_is_told_to_come_again(two: Two) -> None:
    base = "/v1/spaces/race/sessions/s"
    for caller in (two.first, two.second):
        caller.post(f"{base}/prepare", {"request": chat("Before.")})
    spoken = {"From the first.": two.first, "From the second.": two.second}

    def ask(text: str) -> Any:
        request = chat("Before.", "Yes.", text)
        return spoken[text]("POST", f"{base}/prepare", expect=None, json={"request": request})

    with ThreadPoolExecutor(2) as pool:
        with held(two.database, SPACE, space_uuid(tenant_space(two.tenant, "race"))):
            asked = [pool.submit(ask, text) for text in spoken]
            wait_for_lock(two.database, 2)
        answers = {text: one.result() for text, one in zip(spoken, asked, strict=True)}
    assert sorted(answer.status_code for answer in answers.values()) == [200, 409]
    late = next(text for text, answer in answers.items() if answer.status_code == 409)
    assert answers[late].json()["type"].endswith(":stale")
    assert answers[late].headers["retry-after"]
    again = ask(late).json()
    assert again["archived"] == "store"
    turns = two.first.get(f"{base}/turns")["turns"]
    kept = [two.first.get(f"{base}/turns/{turn}")["request"]["messages"][-1] for turn in turns[2:]]
    assert {one["content"] for one in kept} == set(spoken)
    assert two.rows("race") == 4  # each message once


def test_a_deletion_whose_answer_was_cut_off_gives_its_certificate_again(
    two: Two, nodes: tuple[Node, Node]
) -> None:
    """The space is gone when the deadline passes, and its answer is not kept yet."""
    base = "/v1/spaces/gone"
    two.first.post(f"{base}/sessions/s/prepare", {"request": chat("To be deleted.")})

    def delete() -> Any:
        with MemoryClient(nodes[0].url, two.key, seconds=1.5, patience_seconds=60) as client:
            return client.delete_space("gone").certificate

    with ThreadPoolExecutor(1) as pool, ExitStack() as keys:
        with held(two.database, SPACE, space_uuid(tenant_space(two.tenant, "gone"))):
            deleted = pool.submit(delete)
            wait_for_lock(two.database)
            keys.enter_context(held(two.database, ALL_KEYS))
        time.sleep(1.8)
        keys.close()
        assert deleted.result()["counts"]["segments"] == 1
    assert two.rows("gone") == 0


def test_a_deletion_whose_answer_was_lost_on_its_way_gives_its_certificate_again(
    two: Two, nodes: tuple[Node, Node]
) -> None:
    """The connection ends before the first answer has come: by its key the second try is known."""
    two.first.post("/v1/spaces/lost/sessions/s/prepare", {"request": chat("To be deleted.")})
    at = urlsplit(nodes[0].url)

    def serve(listening: socket.socket) -> None:
        for is_lost in (True, False):
            asking, _ = listening.accept()
            with asking, socket.create_connection((at.hostname or "", at.port or 0)) as node:
                node.sendall(asking.recv(65_536))
                answer = node.recv(65_536)
                while b"}" not in answer.partition(b"\r\n\r\n")[2][-1:]:
                    answer += node.recv(65_536)
                if not is_lost:
                    asking.sendall(answer)
                    asking.recv(1)  # until the client has gone

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve, listening)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with MemoryClient(url, two.key, seconds=20, patience_seconds=60) as client:
            certificate = client.delete_space("lost").certificate
        serving.result(PATIENCE_SECONDS)
    assert certificate["counts"]["segments"] == 1


def test_what_was_written_is_under_a_name_also_where_it_was_cut_off(two: Two) -> None:
    base = "/v1/spaces/listed"
    two.first.post(f"{base}/sessions/s/prepare", {"request": chat("First.")})
    two.second("DELETE", base)
    longer = chat(*(f"Line {number}." for number in range(251)))  # in two pieces
    with held(two.database, ALL_TURNS):  # the second is cut off
        given: Any = {"json": {"request": longer}, "headers": {"x-request-timeout": "3"}}
        two.first("POST", f"{base}/sessions/t/prepare", expect=504, **given)
    assert two.rows("listed") >= 200
    wait_until(lambda: two.second("GET", f"{base}/sessions", expect=None).status_code == 200)
    looked = two.second.get(f"{base}/sessions")
    assert [one["session"] for one in looked["sessions"]] == ["t"]


def test_what_is_written_while_its_space_is_deleted_is_deleted_or_found(two: Two) -> None:
    base = "/v1/spaces/between"
    for ask in (two.first, two.second):
        ask.post(f"{base}/sessions/s/prepare", {"request": chat("First.")})
    with ThreadPoolExecutor(1) as pool:
        with held(two.database, NAME, two.tenant, "between"):
            deleted = pool.submit(two.first, "DELETE", base)
            wait_for_lock(two.database)
            two.second.post(f"{base}/sessions/t/prepare", {"request": chat("Meanwhile.")})
            assert two.rows("between") == 1
        assert deleted.result().status_code == 200
    found = two.first("GET", f"{base}/sessions", expect=None).status_code
    assert (found, two.rows("between")) == (404, 0)


def test_a_page_begins_behind_the_last_fact_whatever_was_forgotten(two: Two) -> None:
    base = "/v1/spaces/paged"
    for number, city in enumerate(("Lisbon", "Oslo", "Paris", "Rome", "Cairo")):
        two.first.post(f"{base}/facts", {"content": f"Office number {number} is in {city}."})
    for path in ("facts", "export"):
        seen: list[str] = []
        cursor = None
        kept = {one["id"] for one in two.first.get(f"{base}/facts")["facts"]}
        while True:
            given = {"limit": 2, **({"cursor": cursor} if cursor else {})}
            page = two.first.get(f"{base}/{path}", params=given)
            seen += [one["id"] for one in page["facts"]]
            if len(seen) == 2:
                two.first("DELETE", f"{base}/facts/{seen[0]}")
            if (cursor := page["next"]) is None:
                break
        assert len(seen) == len(set(seen))
        assert set(seen) == kept


def test_a_worker_removes_what_has_expired_of_every_tenant(two: Two) -> None:
    week = 7 * 86_400
    today = int(time.time() // 86_400)
    key = {"idempotency-key": uuid4().hex}
    two.first("POST", "/v1/spaces/old/facts", json={"content": "It was so."}, headers=key)
    with psycopg.connect(two.database.admin_url) as owner:
        owner.execute(
            "UPDATE recollect.idempotency_keys SET expires_at = %s WHERE tenant_id = %s",
            (time.time() - week, two.tenant),
        )
        for period in (today - 8, today - 6):
            owner.execute(
                "INSERT INTO recollect.tenant_usage (tenant_id, budget, period, used) "
                "VALUES (%s, 'tokens per day', %s, 1)",
                (two.tenant, period),
            )
    done = CliRunner().invoke(main, ["worker", "--once", "--store", two.database.app_url])
    assert done.exit_code == 0, done.output
    with psycopg.connect(two.database.admin_url) as owner:
        keys = "SELECT count(*) FROM recollect.idempotency_keys WHERE tenant_id = %s"
        assert owner.execute(keys, (two.tenant,)).fetchone() == (0,)
        used = "SELECT period FROM recollect.tenant_usage WHERE tenant_id = %s"
        assert owner.execute(used, (two.tenant,)).fetchall() == [(today - 6,)]


def test_a_node_whose_clock_is_ahead_takes_over_nothing_that_is_under_way(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time

    async def claim(tenant: UUID) -> Any:
        fleet = await PostgresFleet.open(two.database.app_url)
        try:
            return await fleet.tenants().claim(
                tenant, b"key", b"request", now=time.time(), lease_seconds=10, keep_seconds=100
            )
        finally:
            await fleet.close()

    assert asyncio.run(claim(two.tenant)).lease_token
    monkeypatch.setattr(time, "time", lambda: real() + 60)
    told = asyncio.run(claim(two.tenant))
    assert told.lease_token is None
    assert 60 < told.running_until - real() < 71


def test_what_a_compaction_asked_is_charged_and_ends_with_its_request(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    _, key = add_tenant(database, "compacting", tokens=10_000_000)
    texts = [f"{n}: the crane of pier {n} lifts {n * 7} tons. " * 40 for n in range(12)]
    answering, asked = threading.Event(), []

    def say(request: Any) -> Says:
        asked.append(request)
        answering.wait(PATIENCE_SECONDS)
        return Says(text=notes(Prompt(text=request.content.decode())))

    with ModelServer(say) as model:
        given = {
            "models.provider": "anthropic",
            "models.summary": "scripted",
            "models.base_url": model.url,
        }
        with Node(database, given=given) as node:
            caller = Caller(node.url, key)

            def spent() -> int:
                budgets = caller.get("/v1/tenant")["budgets"]
                return int(
                    next(one["spent"] for one in budgets if one["budget"] == "tokens per day")
                )

            base = "/v1/spaces/compacting/sessions"
            body = {"request": chat(*texts, "so?"), "window_tokens": 8_000}
            caller.post(f"{base}/cut/prepare", {"request": chat("warm")})
            cut = {"x-request-timeout": "3"}
            caller("POST", f"{base}/cut/compact", json=body, headers=cut, expect=504)
            answering.set()
            assert len(asked) == 1
            wait_until(lambda: spent() > 1_000)  # it was asked, whoever hung up
            time.sleep(0.5)
            assert caller.get(f"{base}/cut/receipts")["receipts"] == []
            before = spent()
            body["window_tokens"] = 6_000
            made = caller.post(f"{base}/whole/prepare", body)
            assert made["compacted"]
            assert spent() - before > made["tokens_after"] + 1_000
