"""The client and MCP on the nodes of a service, and a node that is killed while it writes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from tests.harness.waiting import wait_until
from tests.integration.service.nodes import Node, add_key, add_tenant, chat, reply, served_at
from tests.sizes import at_size

from recollect.client import AsyncMemoryClient, MemoryClient
from recollect.errors import ServiceError
from recollect.hosts.service.mcp import mcp_for_tenants
from recollect_bench.postgres_server import TestDatabase


def test_a_key_is_taken_as_a_file_has_it(database: TestDatabase, node: Node) -> None:
    _, key = add_tenant(database, "from a file")
    with MemoryClient(node.url, f"{key}\n") as client:
        assert client.tenant().name == "from a file"
    for wrong in ("", " \n", "two\nlines", "schlüssel"):
        with pytest.raises(ServiceError, match="recollect key create"):
            MemoryClient(node.url, wrong)


def test_the_client_does_all_that_the_api_does(database: TestDatabase, node: Node) -> None:
    _, key = add_tenant(database, "client")
    with MemoryClient(node.url, key) as client:
        request = chat("The deploy key is under the mat.")
        prepared = client.prepare("a/b", "s 1", request, format="anthropic", betas=["x"])
        assert isinstance(prepared.request, bytes)
        assert json.loads(prepared.request.decode()) == request
        seen = client.observe("a/b", "s 1", reply("Noted."), turn=prepared.turn)
        assert seen.archived == "store"
        done = client.ingest("a/b", "s 1", [{"role": "user", "content": "Aside."}], batch="1")
        assert done.stored == 1
        assert client.search("a/b", "deploy key").passages[0].text.startswith("The deploy key")
        fact = client.add_fact("a/b", "Deploys are on Tuesdays.")
        assert [one.id for one in client.facts("a/b")] == [fact.id]
        assert [one.session for one in client.sessions("a/b")] == ["s 1"]
        assert list(client.turns("a/b", "s 1")) == [1]
        again = client.replay("a/b", "s 1", 1)
        assert again.exact
        assert json.loads(again.request) == request
        assert list(client.receipts("a/b", "s 1")) == []
        assert len(list(client.export("a/b"))) == 4
        assert not client.compact("a/b", "s 1", chat("x")).compacted
        assert not client.undo("a/b", "s 1").undone
        assert client.forget_fact("a/b", fact.id).certificate["counts"]["facts"] == 1
        assert client.preview_forget("a/b", matching="mat").segments == 1
        assert client.forget("a/b", matching="mat").certificate["counts"]["segments"] == 1
        assert [one.name for one in client.spaces()] == ["a/b"]
        assert client.tenant().name == "client"
        assert client.delete_space("a/b").certificate["asked"]["whole_space"]
        assert next(client.audit()).act == "space deleted"
        with pytest.raises(ServiceError, match="no space with this name") as refused:
            list(client.sessions("a/b"))
        assert (refused.value.status, refused.value.problem) == (404, "not-found")
    with (
        MemoryClient("http://127.0.0.1:9", key, patience_seconds=0) as nobody,
        pytest.raises(ServiceError, match="cannot be reached") as away,
    ):
        nobody.tenant()
    assert key not in repr(away.value.__dict__) + str(away.value)


def test_the_async_client_calls_at_once(database: TestDatabase, node: Node) -> None:
    _, key = add_tenant(database, "async client")

    async def call() -> None:
        async with AsyncMemoryClient(node.url, key) as client:
            said = [client.prepare("s", f"s{n}", chat(f"Crane {n} is red.")) for n in range(8)]
            assert {one.archived for one in await asyncio.gather(*said)} == {"store"}
            assert len([one async for one in client.sessions("s")]) == 8
            with pytest.raises(ServiceError, match="no space with this name"):
                await client.delete_space("t")

    asyncio.run(call())


def test_mcp_speaks_to_the_memory_of_the_keys_tenant(database: TestDatabase, node: Node) -> None:
    keys = {name: add_tenant(database, f"mcp {name}") for name in ("one", "two")}
    reads = add_key(database, keys["one"][0], scopes=["read"])

    async def tool(key: str, name: str, **arguments: Any) -> Any:
        http = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, trust_env=False)
        url = f"{node.url}/v1/spaces/shared/mcp"
        async with (
            http,
            streamable_http_client(url, http_client=http) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            assert any(one.name == name for one in (await session.list_tools()).tools)
            return await session.call_tool(name, arguments)

    async def look() -> None:
        unwritten = await tool(keys["one"][1], "memory_search", query="What is the mascot?")
        assert not unwritten.is_error, unwritten
        with MemoryClient(node.url, keys["one"][1]) as client:
            assert list(client.spaces()) == []  # looking made none
        stored = await tool(keys["one"][1], "memory_store", text="The mascot is an otter.")
        assert not stored.is_error, stored
        found = await tool(keys["one"][1], "memory_search", query="What is the mascot?")
        assert "otter" in found.content[0].text
        foreign = await tool(keys["two"][1], "memory_search", query="What is the mascot?")
        assert "otter" not in foreign.content[0].text
        refused = await tool(reads, "memory_store", text="x")
        assert refused.is_error
        assert "scope write" in refused.content[0].text
        found = await tool(reads, "memory_search", query="mascot")
        assert "otter" in found.content[0].text

    asyncio.run(look())
    bare = httpx2.post(f"{node.url}/v1/spaces/shared/mcp", json={}, trust_env=False)
    assert bare.status_code == 401


def test_limits_hold_for_mcp(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    _, key = add_tenant(database, "mcp limited", tokens=40)
    headers = {
        "authorization": f"Bearer {key}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }

    def call(node: Node, text: str, **more: str) -> Any:
        asked = {"name": "memory_store", "arguments": {"text": text}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
        url = f"{node.url}/v1/spaces/s/mcp"
        return httpx2.post(url, json=message, headers={**headers, **more}, trust_env=False)

    monkeypatch.setattr("recollect.hosts.service.app.MOST_REQUESTS", 1)
    monkeypatch.setattr("recollect.hosts.service.app.MOST_BODY_BYTES", 2_000)
    with Node(database, mcp=mcp_for_tenants) as node:
        assert call(node, "x" * 3_000).status_code == 413
        at = urlsplit(node.url)
        with socket.create_connection((at.hostname or "", at.port or 0)) as slow:
            sent = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            slow.sendall(
                f"POST /v1/spaces/s/mcp HTTP/1.1\r\nhost: x\r\n{sent}"
                "content-length: 100\r\nx-request-timeout: 5\r\n\r\n{".encode()
            )
            wait_until(lambda: node.service._intake.under_way)
            assert node.service._queue.running == 0  # a slow body takes nobody's turn
            assert call(node, "Meanwhile.").status_code == 503
            assert b" 504 " in slow.recv(100)
        done = call(node, "word " * 60)
        assert done.status_code == 200, done.text
        spent = call(node, "One more.")
        assert spent.status_code == 429
        assert spent.json()["budget"] == "tokens per day"


class KilledNode:
    """A node in a process of its own, on one port, that comes back when it is started again."""

    def __init__(self, database: TestDatabase, port: int = 0) -> None:
        self._database, self.port = database, port
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "serve", "--port", str(self.port)],
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RECOLLECT_STORE__URL": self._database.app_url,
                "RECOLLECT_RECALL__EMBEDDER": "none",
                "RECOLLECT_JOBS__IN_PROCESS": "false",
            },
        )
        self.url = served_at(self.process)
        self.port = int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def test_killed_node_loses_and_doubles_nothing_acknowledged(database: TestDatabase) -> None:
    """Writers go on while their node is killed with SIGKILL and started again; each retries with
    its idempotency key. What was acknowledged is in the archive, once."""
    _, key = add_tenant(database, "killed")
    node = KilledNode(database)
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(writer: int) -> None:
        number = 0
        with MemoryClient(node.url, key, seconds=5.0, patience_seconds=120.0) as client:
            while not stop.is_set():
                text = f"Written by {writer} as number {number}."
                if number % 2:
                    done = client.ingest(
                        "killed", f"w{writer}", [{"role": "user", "content": text}], batch=text
                    )
                    assert done.read == 1
                else:
                    made = client.prepare("killed", f"p{writer}-{number}", chat(text))
                    assert made.archived == "store"
                acknowledged.append(text)
                number += 1

    def wait_for_more(count: int) -> None:
        wanted = len(acknowledged) + count
        wait_until(lambda: len(acknowledged) >= wanted)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(at_size(ci=1, full=20)):
            wait_for_more(20)
            node.kill()
            node.start()
        wait_for_more(10)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        node.kill()
    assert len(acknowledged) >= 30
    with psycopg.connect(database.admin_url) as owner:
        kept = [
            row[0]
            for row in owner.execute(
                "SELECT body FROM recollect.segments WHERE body LIKE '%Written by%'"
            )
        ]
    written = [text for text in kept for _ in range(text.count("Written by"))]
    assert len(written) == len(set(written))
    for text in acknowledged:
        assert sum(text in one for one in kept) == 1, text
