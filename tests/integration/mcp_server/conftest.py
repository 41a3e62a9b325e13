"""A memory that was compacted, and a data folder for the servers."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.integration.mcp_server.lab import (
    FOREIGN,
    SESSION,
    SETTINGS,
    SPACE,
    SUMMARY,
    Memory,
    history,
)

from recollect import open_memory
from recollect.testing.scripted_model import ScriptedModel
from recollect.tools import memory_tools

pytest.importorskip("mcp")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    folder = tmp_path_factory.mktemp("mcp")
    store = folder / "own.db"

    async def make() -> Memory:
        model = ScriptedModel([SUMMARY])
        async with open_memory(space=SPACE, store=store, settings=SETTINGS, model=model) as own:
            request = {"model": "m-1", "max_tokens": 100, "messages": history()}
            await own.prepare(SESSION, request)
            done = await own.compact(SESSION)
            assert done.convergence == "reduced", done.reason
            said = {"role": "user", "content": "and now the crane"}
            reply = {"role": "assistant", "content": "Done."}
            await own.prepare(SESSION, {**request, "messages": [*history(), reply, said]})
            await own.settle(10)
        async with open_memory(
            space="neighbour", store=folder / "other.db", settings=SETTINGS
        ) as other:
            told = {"role": "user", "content": FOREIGN}
            await other.prepare("s", {"model": "m", "max_tokens": 9, "messages": [told]})
            await other.settle(10)
            (one,) = await other.parts.store.page()
            kept = await memory_tools(other).call("memory_store", {"text": FOREIGN})
            fact = re.findall(r"\[([0-9a-f]{24})\]", kept.text)[0]
            return Memory(store, one.segment.id, fact)

    return asyncio.run(make())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of every server here."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_RECALL__EMBEDDER", "none")
