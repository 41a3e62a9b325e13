"""Streams that are watched: nothing of them changes, and what came is observed however they end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.harness.model_wires import streamed_reply

from recollect import BlockingEngine, Engine, open_memory
from recollect.adapters.wiring import open_store
from recollect.testing.scripted_model import Says

SETTINGS = {"recall.embedder": "none"}
REQUEST = {"model": "claude-x", "messages": [{"role": "user", "content": "where is the crane?"}]}
TEXT = "The crane stands at quay seven."
EVENTS: list[Any] = [
    one for _, one in streamed_reply("anthropic", Says(text=TEXT), model="m", usage=True)
]


class Stream:
    """As a client's: it can be closed, has other attributes, and may fail."""

    def __init__(self, events: list[Any] = EVENTS, error: Exception | None = None) -> None:
        self.response = "the HTTP response"
        self.closed = False
        self.pulled = 0
        self._events = iter(events)
        self._error = error

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        self.pulled += 1
        for event in self._events:
            return event
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True


def plain(events: list[Any] = EVENTS) -> Iterator[Any]:
    yield from events


async def kept(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    held = [one.segment.text for one in await store.page(limit=100)]
    await store.close()
    return held


async def test_every_event_is_the_same_object_and_comes_at_once() -> None:
    engine = Engine()
    await engine.prepare("s", REQUEST)
    stream = Stream()
    watched = engine.watch("s", stream)
    seen = []
    async for event in watched:
        seen.append(event)
        assert stream.pulled == len(seen), "none is read ahead of who reads"
    assert all(one is other for one, other in zip(seen, EVENTS, strict=True))
    assert watched.response == "the HTTP response"
    observation = engine.session("s").observation
    assert observation is not None
    assert observation.usage is not None


def test_cancelling_is_not_delayed_and_loses_nothing(tmp_path: Path) -> None:
    class Hanging(Stream):
        async def __anext__(self) -> Any:
            for event in self._events:
                return event
            return await asyncio.sleep(60)

    async def run() -> None:
        memory = open_memory(store=tmp_path / "m.db", settings=SETTINGS)
        await memory.prepare("s", REQUEST)

        async def read() -> None:
            async for _ in memory.watch("s", Hanging(EVENTS[:5])):
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled()
        assert time.monotonic() - begun < 20.0, "not the 60 s that it would hang"
        await memory.close()

    asyncio.run(run())
    assert asyncio.run(kept(tmp_path / "m.db"))[1] == "The cran\n[broken off]"


async def test_memory_that_fails_raises_nothing_into_loop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    engine = Engine()
    await engine.prepare("s", REQUEST)
    watched = engine.watch("s", Stream())
    await anext(watched)
    await engine.close()
    assert len([event async for event in watched]) == len(EVENTS) - 1
    assert [record.name for record in caplog.records] == ["recollect.watched_stream"]


async def coming() -> Any:
    return Stream()


def test_what_is_no_stream_is_told() -> None:
    async def run() -> None:
        engine = Engine()
        for given in ({"role": "assistant"}, EVENTS, "text", b"text", 7, None):
            with pytest.raises(TypeError, match=r"not a stream: pass a reply to `observe`"):
                engine.watch("s", given)
        with pytest.raises(TypeError, match="`await` the client's call"):
            _ = engine.watch("s", coming())
        with pytest.raises(TypeError, match="must be a string"):
            engine.watch(5, Stream())  # type: ignore[arg-type]
        await engine.close()
        with pytest.raises(RuntimeError, match="closed"):
            engine.watch("s", Stream())

    asyncio.run(run())
    with pytest.raises(RuntimeError, match="open_blocking_memory"):
        Engine().watch("s", plain())
    with BlockingEngine(Engine()) as memory, pytest.raises(TypeError, match="async for"):
        memory.watch("s", Stream())


async def generated(events: list[Any] = EVENTS) -> AsyncIterator[Any]:
    for event in events:
        yield event


@pytest.mark.parametrize("make", [Stream, generated])
@pytest.mark.parametrize("way", ["whole", "with", "anext", "break", "break in with", "close"])
def test_however_it_ends_what_came_is_kept(make: Any, way: str, tmp_path: Path) -> None:
    async def run() -> Any:
        async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
            await memory.prepare("s", REQUEST)
            stream = memory.watch("s", make())
            if way in ("with", "break in with"):
                async with stream as entered:
                    async for event in entered:
                        if way == "break in with" and event is EVENTS[4]:
                            break
            elif way == "anext":
                assert await anext(stream) is EVENTS[0]
                with pytest.raises(StopAsyncIteration):
                    while True:
                        await anext(stream)
            else:
                async for event in stream:
                    if event is EVENTS[4] and way == "break":
                        break
                    if event is EVENTS[4] and way == "close":
                        await (stream.close if make is Stream else stream.aclose)()
                        break
            later = [*REQUEST["messages"], {"role": "user", "content": "so?"}]
            await memory.prepare("s", {**REQUEST, "messages": later})
            return memory.session("s").observation

    observation = asyncio.run(run())
    texts = asyncio.run(kept(tmp_path / "m.db"))
    cut = way in ("break", "break in with", "close")
    assert observation.broken_off == cut
    assert texts[0] == "where is the crane?"
    assert texts[-1] == "so?"
    assert texts[1] == ("The cran\n[broken off]" if cut else TEXT)
    assert len(texts) == 3
