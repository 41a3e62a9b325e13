"""`recollect mcp` with the official client over both transports, and with hostile ones.

The server is a process of its own; what forgetting asks is looked at in this one. The memory under
it holds one session that was compacted, and another space's stands beside it."""

import asyncio
import contextlib
import http.client
import json
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mcp_server.lab import (
    DECIDED,
    INITIALIZE,
    SECONDS,
    SETTINGS,
    SPACE,
    TOOLS,
    Memory,
    environment,
    text_of,
)

from recollect import open_memory
from recollect.core.engine.rebuild import Rebuilt, rebuild_request
from recollect.core.values.recall import TOOL_OPENING
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import RecollectError
from recollect.hosts.mcp import MemoryOrder

pytest.importorskip("mcp")
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from recollect.hosts.mcp.server import access_token, open_client_memory, server_over

# The official client, both transports, both eras of the protocol


@dataclass(frozen=True, slots=True)
class HttpServer:
    url: str
    token: str
    home: Path
    port: int


@pytest.fixture(scope="module")
def http_server(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    home = tmp_path_factory.mktemp("home")
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", *memory.arguments, "--http", "--port", "0"],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None and process.stdout is not None
        url = process.stderr.readline().split()[-1]
        token = (home / "mcp" / "token").read_text()
        yield HttpServer(url, token, home, int(url.split(":")[2].split("/")[0]))
        process.terminate()
        assert process.wait(SECONDS) in (0, -signal.SIGTERM)
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@contextlib.asynccontextmanager
async def connected(
    transport: str, mode: Any, memory: Memory, server: HttpServer | None, home: Path
) -> AsyncIterator[Client]:
    if transport == "stdio":
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "recollect", *memory.arguments],
            env=environment(home),
        )
        async with Client(started, mode=mode, read_timeout_seconds=SECONDS) as client:
            yield client
        return
    assert server is not None
    headers = {"Authorization": f"Bearer {server.token}"}
    async with create_mcp_http_client(headers=headers) as calls:
        opened = streamable_http_client(server.url, http_client=calls)
        async with Client(opened, mode=mode, read_timeout_seconds=SECONDS) as client:
            yield client


async def every_tool(client: Client) -> None:
    tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.description and tool.annotations for tool in tools)
    hints = {tool.name: tool.annotations.destructive_hint for tool in tools if tool.annotations}
    assert [name for name, destroys in hints.items() if destroys] == ["memory_forget"]

    async def call(name: str, **arguments: Any) -> str:
        result = await client.call_tool(name, arguments)
        text = text_of(result)
        assert text.startswith(TOOL_OPENING)
        assert not result.is_error, text
        return text

    found = await call("memory_search", query="Which service prints invoices?")
    assert "Kestrel" in found
    (id_,) = re.findall(r"\[(\d+-[0-9a-f]{4})\][^\n]*\n[^\n]*Kestrel", found)[:1]
    assert "port 4711" in await call("memory_get", id=id_)
    stored = await call("memory_store", text="The quay master is Ada Lovelace.")
    assert "Ada Lovelace" in stored
    assert "Ada Lovelace" in await call("memory_recall", about="quay master")
    fact = re.findall(r"\[([0-9a-f]{24})\]", stored)[0]
    refused = await client.call_tool("memory_forget", {"ids": [fact]})
    assert refused.is_error and f"recollect facts forget {fact}" in text_of(refused)
    with pytest.raises(MCPError, match="there is no tool"):
        await client.call_tool("rm -rf", {})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_over_stdio(mode: str, memory: Memory, home: Path) -> None:
    async with connected("stdio", mode, memory, None, home) as client:
        await every_tool(client)
    assert not (home / "daemon").exists()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_over_http(
    mode: str, memory: Memory, http_server: HttpServer, tmp_path: Path
) -> None:
    async with connected("http", mode, memory, http_server, tmp_path) as client:
        await every_tool(client)


# What it answered comes back in a request that another process prepares


async def test_answers_are_known_to_another_process(tmp_path: Path, plain: None) -> None:
    """As with a gateway: the client asks the server, and sends the answer to somebody else."""
    store = tmp_path / "memory.db"
    said: list[dict[str, Any]] = [{"role": "user", "content": DECIDED}]
    calls = {"memory_search": {"query": "Kestrel invoices"}, "memory_recall": {}}

    def request(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"model": "m", "max_tokens": 9, "messages": messages}

    async def answers() -> dict[str, str]:
        order = MemoryOrder(space=SPACE, store=str(store))
        async with open_client_memory(order) as memory, Client(server_over(memory)) as client:
            return {
                name: text_of(await client.call_tool(name, given)) for name, given in calls.items()
            }

    async with open_memory(space=SPACE, store=store, settings=SETTINGS) as gateway:
        await gateway.prepare("s", request(said))
        await gateway.settle(10)
        for number, (name, text) in enumerate((await answers()).items()):
            assert "Kestrel" in text or name == "memory_recall"
            call = {
                "type": "tool_use",
                "id": f"t{number}",
                "name": f"mcp__recollect__{name}",
                "input": {"query": "zebra"} if name == "memory_search" else {},
            }
            result = {
                "type": "tool_result",
                "tool_use_id": f"t{number}",
                "content": [{"type": "text", "text": text}],
            }
            said.append({"role": "assistant", "content": [call]})
            said.append({"role": "user", "content": [result]})
        await gateway.prepare("s", request(said))
        await gateway.settle(10)
        kept = await gateway.parts.store.page(limit=100)
        texts = [one.segment.text for one in kept]
        assert [text for text in texts if "Kestrel" in text] == [DECIDED]
        assert not any(TOOL_OPENING in text for text in texts)
        assert not (await gateway.search("zebra")).passages  # nor what was looked for
        sent = await gateway.parts.store.call(rebuild_request, "s", 2)
        assert isinstance(sent, Rebuilt) and b"printed by the Kestrel" in sent.body
        book = await gateway.facts()
        gone = [one.segment.id for one in kept if one.segment.text == DECIDED]
        await book.forget(ForgetOrder(at=time.time(), segments=tuple(gone)))
        sent = await gateway.parts.store.call(rebuild_request, "s", 2)
        assert isinstance(sent, Rebuilt) and b"printed by the Kestrel" not in sent.body
    async with open_memory(space=SPACE, store=store, settings=SETTINGS) as later:
        await later.prepare("s", request([*said, {"role": "user", "content": "go on"}]))
        await later.settle(10)
        sent = await later.parts.store.call(rebuild_request, "s", 3)
        assert isinstance(sent, Rebuilt) and b"printed by the Kestrel" not in sent.body


# Who may speak to it over HTTP


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic TOKEN"}, 401),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1.evil.example"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "[::1"}, 421),
    ],
)
def test_http_answers_this_machine_and_who_knows_the_token(
    headers: dict[str, str], status: int, http_server: HttpServer
) -> None:
    given = {"Authorization": "Bearer TOKEN", **headers}
    sent = {name: value.replace("TOKEN", http_server.token) for name, value in given.items()}
    calls = http.client.HTTPConnection("127.0.0.1", http_server.port, timeout=SECONDS)
    calls.request(
        "POST",
        "/mcp",
        body=json.dumps(INITIALIZE),
        headers={
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **sent,
        },
    )
    assert calls.getresponse().status == status
    calls.close()


def test_the_token_is_made_once_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    token, file = access_token()
    assert file is not None and len(token) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert access_token() == (token, file)
    assert [one.name for one in file.parent.iterdir()] == ["token"]
    file.chmod(0o644)
    with pytest.raises(RecollectError, match="other users can read"):
        access_token()
    monkeypatch.setenv("RECOLLECT_MCP_TOKEN", "my own")
    assert access_token() == ("my own", None)


# Forgetting asks the person at the client


async def _forget(
    folder: Path, mode: Any, says: Any, *, asked: list[str] | None = None
) -> tuple[str, bool, str]:
    """What a client is answered that has a fact forgotten; whether it is an error; what is left."""

    async def person(context: Any, params: types.ElicitRequestParams) -> Any:
        if asked is not None:
            asked.append(params.message)
        return says

    order = MemoryOrder(space=SPACE, store=str(folder / "forget.db"))
    async with open_client_memory(order) as memory:
        callback = None if says is None else person
        server = server_over(memory)
        async with Client(server, mode=mode, elicitation_callback=callback) as client:
            kept = await client.call_tool("memory_store", {"text": "The quay master is Ada."})
            ids = re.findall(r"\[([0-9a-f]{24})\]", text_of(kept))
            done = await client.call_tool("memory_forget", {"ids": ids})
            left = await client.call_tool("memory_recall", {})
            return text_of(done), bool(done.is_error), text_of(left)


YES = types.ElicitResult(action="accept", content={"forget": True})
NO = (
    types.ElicitResult(action="accept", content={"forget": False}),
    types.ElicitResult(action="accept", content={"forget": "yes"}),
    types.ElicitResult(action="accept"),
    types.ElicitResult(action="decline"),
    types.ElicitResult(action="cancel", content={"forget": True}),
)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_what_the_person_confirms_is_forgotten(mode: str, tmp_path: Path, plain: None) -> None:
    asked: list[str] = []
    told, is_error, left = asyncio.run(_forget(tmp_path, mode, YES, asked=asked))
    assert not is_error and "Forgotten permanently" in told
    assert "Ada" not in left
    assert len(asked) == 1 and "The quay master is Ada." in asked[0]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("says", NO)
def test_without_a_clear_yes_nothing_is_forgotten(
    says: Any, mode: str, tmp_path: Path, plain: None
) -> None:
    told, is_error, left = asyncio.run(_forget(tmp_path, mode, says))
    assert is_error and "did not confirm" in told
    assert "Ada" in left


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_client_that_cannot_ask_is_told_the_command(mode: str, tmp_path: Path, plain: None) -> None:
    told, is_error, left = asyncio.run(_forget(tmp_path, mode, None))
    assert is_error and "recollect facts forget" in told
    assert "Ada" in left
