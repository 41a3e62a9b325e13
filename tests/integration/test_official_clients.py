"""Replies that the official clients stream, watched and observed as they come.

The clients are real, and so is the HTTP between them and a scripted server on this machine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import ModelServer

from recollect import open_blocking_memory, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.values.model import Usage
from recollect.testing.scripted_model import Says, ScriptedCall

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")

CALL = ScriptedCall(id="toolu_1", name="read_file", input={"path": "harbour/crane.py", "n": 3})
SAYS = Says(
    text="The crane stands at quay seven.",
    thinking="They ask about the quay.",
    calls=(CALL,),
    usage=Usage(input_tokens=40, output_tokens=12),
)
QUESTION = "where does the crane stand?"


REQUESTS: dict[str, dict[str, Any]] = {
    "messages": {
        "model": "claude-x",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": QUESTION}],
    },
    "chat": {
        "model": "gpt-x",
        "messages": [{"role": "user", "content": QUESTION}],
        "stream_options": {"include_usage": True},
    },
    "responses": {
        "model": "gpt-x",
        "input": [{"type": "message", "role": "user", "content": QUESTION}],
    },
}
FORMATS = {"messages": "anthropic", "chat": "openai-chat", "responses": "openai-responses"}


def _resources(claude: Any, gpt: Any) -> dict[str, Any]:
    """Their `create` and `stream`, by wire."""
    return {"messages": claude.messages, "chat": gpt.chat.completions, "responses": gpt.responses}


@asynccontextmanager
async def clients(url: str) -> AsyncIterator[dict[str, Any]]:
    async with (
        anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as claude,
        openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as gpt,
    ):
        yield _resources(claude, gpt)


@contextmanager
def blocking_clients(url: str) -> Iterator[dict[str, Any]]:
    with (
        anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as claude,
        openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as gpt,
    ):
        yield _resources(claude, gpt)


async def kept(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    held = [one.segment.text for one in await store.page(limit=100)]
    await store.close()
    return held


def check_whole(texts: list[str], observation: Any) -> None:
    assert observation is not None
    assert [line for line in observation.failures if line.stage == "read"] == []
    assert not observation.broken_off
    assert observation.usage is not None
    assert (observation.usage.input_tokens, observation.usage.output_tokens) == (40, 12)
    assert observation.archived in ("store", "spool")
    assert texts[0] == QUESTION
    said = "\n".join(texts[1:])
    assert SAYS.text in said
    assert "read_file" in said
    assert "harbour/crane.py" in said
    assert "[broken off]" not in said


SETTINGS = {"recall.embedder": "none"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(lambda _: SAYS) as running:
        yield running


@pytest.mark.parametrize("wire", REQUESTS)
def test_a_created_stream_is_watched(wire: str, server: ModelServer, tmp_path: Path) -> None:
    async def run() -> Any:
        memory = open_memory(store=tmp_path / "m.db", settings=SETTINGS)
        async with clients(server.url) as found, memory:
            client = found[wire]
            context = await memory.prepare("s", REQUESTS[wire], format=FORMATS[wire])  # type: ignore[arg-type]
            stream = await client.create(**context.request, stream=True)
            seen = [event async for event in memory.watch("s", stream)]
            assert len(seen) > 5
            return memory.session("s").observation

    observation = asyncio.run(run())
    check_whole(asyncio.run(kept(tmp_path / "m.db")), observation)


@pytest.mark.parametrize("wire", REQUESTS)
def test_the_clients_own_helper_is_watched(wire: str, server: ModelServer, tmp_path: Path) -> None:
    """`client.messages.stream(...)` and its like: managers of streams with methods of their own."""
    final = {"messages": "get_final_message", "chat": "get_final_completion"}

    async def run() -> Any:
        memory = open_memory(store=tmp_path / "m.db", settings=SETTINGS)
        async with clients(server.url) as found, memory:
            client = found[wire]
            context = await memory.prepare("s", REQUESTS[wire], format=FORMATS[wire])  # type: ignore[arg-type]
            async with memory.watch("s", client.stream(**context.request)) as stream:
                first = await anext(stream)
                assert first.type
                whole = await getattr(stream, final.get(wire, "get_final_response"))()
            assert SAYS.text in str(whole)
            return memory.session("s").observation

    observation = asyncio.run(run())
    check_whole(asyncio.run(kept(tmp_path / "m.db")), observation)


@pytest.mark.parametrize("helper", [False, True])
@pytest.mark.parametrize("wire", REQUESTS)
def test_code_without_a_loop_watches_too(
    wire: str, helper: bool, server: ModelServer, tmp_path: Path
) -> None:
    memory = open_blocking_memory(store=tmp_path / "m.db", settings=SETTINGS)
    with blocking_clients(server.url) as found, memory:
        client = found[wire]
        context = memory.prepare("s", REQUESTS[wire], format=FORMATS[wire])  # type: ignore[arg-type]
        if helper:
            with memory.watch("s", client.stream(**context.request)) as stream:
                events = list(stream)
        else:
            events = list(memory.watch("s", client.create(**context.request, stream=True)))
        assert len(events) > 5
        observation = memory.session("s").observation
    check_whole(asyncio.run(kept(tmp_path / "m.db")), observation)


@pytest.mark.parametrize("way", ["break", "close", "cut", "hang"])
@pytest.mark.parametrize("wire", REQUESTS)
def test_a_stream_that_ends_early_is_kept_as_far_as_it_came(
    wire: str, way: str, tmp_path: Path
) -> None:
    says = Says(text="The crane stands at quay seven, and " * 20, stretch_chars=30)
    if way in ("cut", "hang"):
        events = {f"{way}_after_events": 9}
        says = Says(text=says.text, stretch_chars=30, **events)  # type: ignore[arg-type]

    async def read(memory: Any, stream: Any) -> None:
        watched = memory.watch("s", stream)
        count = 0
        async for _ in watched:
            count += 1
            if count == 9 and way == "close":
                await watched.close()
                return
            if count == 9 and way == "break":
                break

    async def run(url: str) -> Any:
        memory = open_memory(store=tmp_path / "m.db", settings=SETTINGS)
        async with clients(url) as found, memory:
            client = found[wire]
            context = await memory.prepare("s", REQUESTS[wire], format=FORMATS[wire])  # type: ignore[arg-type]
            stream = await client.create(**context.request, stream=True)
            reading = asyncio.create_task(read(memory, stream))
            if way == "hang":
                await asyncio.sleep(1.0)
                reading.cancel()
            await asyncio.wait({reading})
            if way == "cut":
                reading.exception()  # the client's own, or none where it takes this for an end
            else:
                assert reading.cancelled() == (way == "hang")
            again = [{"role": "user", "content": "go on"}]
            field = "input" if wire == "responses" else "messages"
            request = {**REQUESTS[wire], field: [*REQUESTS[wire][field], *again]}
            await memory.prepare("s", request, format=FORMATS[wire])  # type: ignore[arg-type]
            return memory.session("s").observation

    with ModelServer([says]) as server:
        observation = asyncio.run(run(server.url))
    assert observation.broken_off
    texts = asyncio.run(kept(tmp_path / "m.db"))
    (partial,) = [text for text in texts if text.startswith("The crane stands")]
    assert partial.endswith("[broken off]")
    said = partial.removesuffix("[broken off]").rstrip("\n")
    assert says.text.startswith(said)
    assert 30 < len(said) < len(says.text)
    assert texts[-1] == "go on", "and the reply stands behind what it answered"
