"""Hostile patterns at every place of a node that takes one: no other tenant waits for them."""

import itertools
import os
import random
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import httpx2
import pytest
from tests.harness.hostile_patterns import PATTERNS, TEXTS
from tests.integration.service.nodes import Caller, add_key, add_tenant, chat, served_at
from tests.integration.service.test_admin import MCP_HEADERS
from tests.integration.service.test_service_large_requests import (
    MOST_STEP_SECONDS,
    WatchedNode,
    asking_meanwhile,
)
from tests.sizes import at_size, only_in_full

from recollect.hosts.service.mcp import mcp_for_tenants
from recollect_bench.postgres_server import TestDatabase

STORED_TEXTS = at_size(6, 60)
WORDS = ("crane", "harbour master", "which quay", "winch")
ROUNDS = 2
REQUESTS_PER_ROUND = 50
MAX_GROWTH = 1.3
Place = Callable[[httpx2.Client, str], httpx2.Response]


def redact_page(http: httpx2.Client, pattern: str) -> httpx2.Response:
    given = {"space": "s", "look": "1", "pattern": pattern}
    return http.get("/inspector/redact", params=given)


def forget_page(http: httpx2.Client, pattern: str) -> httpx2.Response:
    return http.get("/inspector/forget", params={"space": "s", "matching": pattern})


def search_page(http: httpx2.Client, pattern: str) -> httpx2.Response:
    return http.get("/inspector/memory", params={"space": "s", "q": pattern})


def preview(http: httpx2.Client, pattern: str) -> httpx2.Response:
    body = {"matching": pattern[:2_000], "dry_run": True}
    return http.post("/v1/spaces/s/forget", json=body)


def search(http: httpx2.Client, pattern: str) -> httpx2.Response:
    return http.post("/v1/spaces/s/search", json={"query": pattern[:2_000]})


def mcp_search(http: httpx2.Client, pattern: str) -> httpx2.Response:
    call = {"name": "memory_search", "arguments": {"query": pattern[:2_000]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return http.post("/v1/spaces/s/mcp", json=body, headers=MCP_HEADERS)


PLACES: tuple[Place, ...] = (redact_page, forget_page, search_page, preview, search, mcp_search)


def fill(caller: Caller) -> None:
    """Store texts that are slow to search: repeats, escapes, and secrets with equal beginnings."""
    rng = random.Random(7)
    letters = string.ascii_letters + string.digits
    secrets = "\n".join(
        f"API_KEY=sk-{'Zq7LmT2xVb9K'}{''.join(rng.choices(letters, k=24))}" for _ in range(120)
    )
    texts = [*TEXTS, secrets, "sk-Zq7LmT2xVb9K " * 1_000]
    for number in range(STORED_TEXTS):
        text = texts[number % len(texts)]
        body = {"messages": [{"role": "user", "content": text}], "batch": str(number)}
        caller.post(f"/v1/spaces/s/sessions/s{number % 5}/ingest", body)


@contextmanager
def attack(url: str, key: str, place: Place, patterns: Sequence[str]) -> Iterator[None]:
    """Send these patterns to a place, one request after the other."""
    over = threading.Event()

    def run() -> None:
        headers = {"authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=url, headers=headers, timeout=120, trust_env=False) as http:
            for pattern in itertools.cycle(patterns):
                place(http, pattern)
                if over.is_set():
                    return

    attacking = threading.Thread(target=run)
    attacking.start()
    try:
        yield
    finally:
        over.set()
        attacking.join()


def two_tenants(database: TestDatabase, test: str) -> tuple[dict[str, str], str, str]:
    """Keys of the attacking tenant by place, its own key, and the key of another tenant."""
    tenant, own = add_tenant(database, f"hostile, {test}")
    reader = add_key(database, tenant, scopes=("read",))
    keys = {place.__name__: reader for place in PLACES} | {"preview": own}
    return keys, own, add_tenant(database, f"other, {test}")[1]


def test_no_pattern_holds_up_the_event_loop_of_a_node(database: TestDatabase) -> None:
    keys, own, other = two_tenants(database, "steps")
    with WatchedNode(database, mcp=mcp_for_tenants) as node:
        fill(Caller(node.url, own))
        there = Caller(node.url, other)
        there.post("/v1/spaces/x/sessions/first/prepare", {"request": chat("Hello")})
        with httpx2.Client(base_url=node.url, timeout=120, trust_env=False) as http:
            for place in PLACES:  # the first request imports what it needs
                http.headers["authorization"] = f"Bearer {keys[place.__name__]}"
                assert place(http, "crane").status_code == 200, place.__name__
            with asking_meanwhile(there) as answers:
                slow = {}
                for place, pattern in itertools.product(PLACES, PATTERNS):
                    node.steps.clear()
                    http.headers["authorization"] = f"Bearer {keys[place.__name__]}"
                    status = place(http, pattern).status_code
                    assert status in (200, 400, 422, 504), (place.__name__, pattern[:40], status)
                    slow[place.__name__, pattern[:40]] = max(node.steps, default=0.0)
        assert answers and set(answers) == {200}
        assert {one: step for one, step in slow.items() if step > MOST_STEP_SECONDS} == {}


MAX_GROWTH_OVER_CALM = 2.0
"""Over no other request at all. On two cores, 1.44 was measured, and 1.37 with ordinary words."""


def p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


@only_in_full
@pytest.mark.timeout(1_800)
def test_hostile_patterns_slow_down_others_no_more_than_words_do(database: TestDatabase) -> None:
    """Any request takes processor time from others, so ordinary words are asked for as well."""
    keys, own, other = two_tenants(database, "times")
    command = [sys.executable, "-m", "recollect", "serve", "--port", "0"]
    own_settings = {"STORE__URL": database.app_url, "RECALL__EMBEDDER": "none"}
    env = os.environ | {f"RECOLLECT_{name}": value for name, value in own_settings.items()}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            url = served_at(process)
            fill(Caller(url, own))
            there, numbers = Caller(url, other), itertools.count()

            def ask(times: list[float]) -> None:
                for _ in range(REQUESTS_PER_ROUND):
                    path = f"/v1/spaces/x/sessions/s{next(numbers)}/prepare"
                    began = time.perf_counter()
                    there.post(path, {"request": chat("Where is the crane?")})
                    times.append(time.perf_counter() - began)
                    time.sleep(0.02)

            ask([])
            calm: list[float] = []
            times: dict[str, list[float]] = {"words": [], "hostile": []}
            for _, place in itertools.product(range(ROUNDS), PLACES):
                ask(calm)
                for kind, patterns in (("words", WORDS), ("hostile", PATTERNS)):
                    with attack(url, keys[place.__name__], place, patterns):
                        ask(times[kind])
            figures = {kind: round(1_000 * p99(some)) for kind, some in times.items()}
            print(f"p99 in ms: {figures}, without any other request {1_000 * p99(calm):.0f}")
            assert p99(times["hostile"]) <= MAX_GROWTH * p99(times["words"]), figures
            assert p99(times["hostile"]) <= MAX_GROWTH_OVER_CALM * p99(calm), figures
        finally:
            process.kill()
