"""An embedder that never answers, with the deadlines that users have: each host answers without
it, from the words."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from mcp import Client
from tests.harness.gateway import PATHS, ask, gateway, turn
from tests.harness.model_server import ModelServer
from tests.harness.waiting import eventually
from tests.unit.hooks.agent_transcripts import ClaudeTranscript

from recollect.adapters import wiring
from recollect.adapters.embedders.local import HashEmbedder
from recollect.hosts.hooks.memory import HookMemory
from recollect.hosts.mcp import MemoryOrder
from recollect.hosts.mcp.server import open_client_memory, server_over
from recollect.system.config import load_settings
from recollect.testing.scripted_model import Says

TOLD = "The staging database listens on port 5433. Never run migrations there on Fridays."
ASKED = "On which port does the staging database listen? May I run migrations there on Friday?"
Ask = Callable[[str], Awaitable[str]]
"""Tells or asks something in a session of its own. Returns what memory added."""


class Embedder(HashEmbedder):
    """Works, until it hangs."""

    hangs = False
    waiting = 0

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        if self.hangs:
            self.waiting += 1
            await asyncio.sleep(3_600)
        return await super().embed(texts)


@asynccontextmanager
async def library(folder: Path) -> AsyncIterator[Ask]:
    names = count()
    settings = {"recall.scope": "space"}
    async with wiring.open_memory(store=folder / "m.db", settings=settings) as memory:

        async def say(text: str) -> str:
            context = await memory.prepare(f"session {next(names)}", turn([text]))
            await memory.settle()
            assert context.recalled is not None
            return " ".join(one.text for one in context.recalled.passages)

        yield say


@asynccontextmanager
async def gateways(folder: Path) -> AsyncIterator[Ask]:
    names = count()
    settings = {"store.url": str(folder / "m.db"), "recall.scope": "space"}
    with ModelServer(lambda _: Says(text="Aye.")) as server, gateway(server, **settings) as running:

        async def say(text: str) -> str:
            named = {"x_recollect_session": f"session {next(names)}"}
            sent = partial(ask, running.url, PATHS["anthropic"], turn([text]), **named)
            assert (await asyncio.to_thread(sent)).status == 200
            return server.asked[-1].content.decode()

        yield say


@asynccontextmanager
async def hooks(folder: Path) -> AsyncIterator[Ask]:
    (folder / ".git").mkdir()
    given = {"store.url": str(folder / "m.db")}
    memory = HookMemory(load_settings(arguments=given, environment={}).settings)

    async def say(text: str) -> str:
        transcript = ClaudeTranscript(folder)
        named = {
            "session_id": transcript.session_id,
            "transcript_path": str(transcript.path),
            "cwd": str(folder),
        }
        prompt = {**named, "hook_event_name": "UserPromptSubmit", "prompt": text}
        answer = await memory.answer("claude-code", prompt)
        transcript.user(text)
        transcript.reply("Understood.")
        await memory.answer("claude-code", {**named, "hook_event_name": "Stop"})
        return json.dumps(answer)

    yield say
    await memory.close()


@asynccontextmanager
async def mcp(folder: Path) -> AsyncIterator[Ask]:
    order = MemoryOrder(space="s", store=str(folder / "m.db"))
    async with open_client_memory(order) as memory, Client(server_over(memory)) as client:

        async def say(text: str) -> str:
            name, field = ("store", "text") if text == TOLD else ("search", "query")
            done = await client.call_tool(f"memory_{name}", {field: text})
            assert not done.is_error, done
            return str(done.content)

        yield say


@pytest.mark.usefixtures("usual_deadlines")
@pytest.mark.parametrize("host", [library, gateways, hooks, mcp])
async def test_nobody_waits_for_an_embedder_that_hangs(
    host: Callable[[Path], AbstractAsyncContextManager[Ask]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedder = Embedder()
    opened = partial(wiring.open_memory, embedders=[embedder])
    monkeypatch.setattr("recollect.adapters.wiring.open_memory", opened)
    async with host(tmp_path) as say:

        async def is_known() -> bool:
            return "5433" in await say(ASKED)

        await say(TOLD)
        await eventually(is_known)
        began = time.monotonic()
        assert await is_known()
        usual = time.monotonic() - began
        embedder.hangs = True
        began = time.monotonic()
        assert "5433" in await say(f"Again: {ASKED}")
        taken = time.monotonic() - began
    assert embedder.waiting
    assert taken < 5 + 10 * usual, f"{taken:.1f} s instead of {usual:.1f} s"
