"""Calls that cannot be meant: each is an error that says what to do instead."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from recollect import Engine, open_memory

REQUEST: dict[str, Any] = {"model": "claude-x", "messages": [{"role": "user", "content": "hello"}]}
REPLY = {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}


async def run(work: Awaitable[Any]) -> Any:
    return await work


CALLS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "prepare": lambda memory: memory.prepare("s", REQUEST),
    "observe": lambda memory: memory.observe("s", REPLY),
    "compact": lambda memory: memory.compact("s"),
    "undo": lambda memory: memory.undo("s"),
    "flushed": lambda memory: memory.flushed("s"),
    "facts": lambda memory: memory.facts(),
    "settle": lambda memory: memory.settle(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_closed_memory_says_so(name: str, tmp_path: Any) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        await memory.prepare("s", REQUEST)
    with pytest.raises(RuntimeError, match="closed: call `open_memory` again"):
        await CALLS[name](memory)
    await memory.close()


async def test_a_memory_file_is_no_session(tmp_path: Any) -> None:
    """Every session of a space may read memory files: nothing that is said gets in there."""
    async with open_memory(store=tmp_path / "m.db") as memory:
        said = [json.dumps(message).encode() for message in REQUEST["messages"]]
        for call in (
            lambda: memory.ingest("file:MEMORY.md", said),
            lambda: memory.prepare("file:MEMORY.md", REQUEST),
        ):
            with pytest.raises(ValueError, match="reserved for memory files"):
                await call()


def test_with_names_async_with_and_the_blocking_memory() -> None:
    with pytest.raises(TypeError, match=r"`async with open_memory.*open_blocking_memory"), Engine():
        pass


async def test_a_session_has_a_name() -> None:
    with pytest.raises(ValueError, match="give each session its own"):
        await run(Engine().prepare("", REQUEST))


async def streaming() -> AsyncIterator[dict[str, Any]]:
    yield REPLY


def generating() -> Iterator[dict[str, Any]]:
    yield REPLY


class AsyncStream:
    """As the clients' own: an iterator that is a context manager too."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return streaming()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class Stream:
    def __iter__(self) -> Iterator[Any]:
        return generating()

    def __next__(self) -> Any:
        raise StopIteration


STREAMS: dict[str, Callable[[], Any]] = {
    "async generator": streaming,
    "generator": generating,
    "async stream": AsyncStream,
    "stream": Stream,
    "async manager": asynccontextmanager(streaming),
    "manager": contextmanager(generating),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_is_no_reply_and_the_way_to_watch_it_is_told(name: str) -> None:
    with pytest.raises(TypeError, match=r"stream.*memory.watch.*list of its events"):
        await run(Engine().observe("s", STREAMS[name]()))


NO_REPLIES = ["a string", 42, object(), {}, {"foo": 1}, [], b"oops", b"[1]", bytearray(b"{}")]


@pytest.mark.parametrize("reply", NO_REPLIES, ids=range(len(NO_REPLIES)))
async def test_what_is_no_reply_is_refused_or_told(reply: Any) -> None:
    """A number is a slip of the program; what a proxy answers must not end the turn."""

    async def used() -> None:
        engine = Engine()
        await engine.prepare("s", REQUEST)
        if isinstance(reply, int | float):
            with pytest.raises(TypeError, match=r"is not a reply: pass the client's reply"):
                await engine.observe("s", reply)
            return
        (line,) = (await engine.observe("s", reply)).failures
        assert "neither a provider's reply nor an error" in line.said

    await run(used())


async def test_a_reply_for_a_session_nobody_prepared_is_told_as_lost(tmp_path: Any) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        await memory.prepare("session", REQUEST)
        (line,) = (await memory.observe("typo-session", REPLY)).failures
        assert "call `prepare` with its request first, or check the session's name" in line.said
    async with open_memory(store=tmp_path / "m.db") as memory:
        assert (await memory.observe("session", REPLY)).failures == (), "the store knows it"


async def test_a_context_is_neither_a_request_nor_a_reply() -> None:
    engine = Engine()
    context = await run(engine.prepare("s", REQUEST))
    with pytest.raises(TypeError, match=r"`context.request`"):
        await run(engine.prepare("s", context))
    with pytest.raises(TypeError, match=r"`context.request`"):
        await run(engine.compact("s", context))
    with pytest.raises(TypeError, match=r"a Context is not a reply"):
        await run(engine.observe("s", context))
    with pytest.raises(TypeError, match="a request must be a mapping"):
        await run(engine.compact("s", 5))  # type: ignore[arg-type]
