"""The pool of open memories that all hosts share."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.harness.waiting import eventually

from recollect.adapters.wiring import open_memory
from recollect.core.engine import Engine
from recollect.errors import SchemaMismatch
from recollect.hosts.memories import MemoryPool, OpenMemory
from recollect.system.config import Settings


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TypeError("a defect"), "unexpected error (TypeError)"),
        (SchemaMismatch("an older schema", state="old"), "an older schema"),
    ],
)
async def test_a_memory_that_cannot_be_opened_raises_the_error_of_opening_it(
    error: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(space: str) -> OpenMemory:
        raise error

    pool = MemoryPool(fail)
    for _ in range(2):
        with pytest.raises(type(error)):
            async with pool.use("harbour"):
                pass
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(told)


async def test_a_memory_whose_only_client_left_while_it_opened_is_closed(tmp_path: Path) -> None:
    opening, freed = threading.Event(), threading.Event()
    opened: list[OpenMemory] = []

    def open_slowly(space: str) -> OpenMemory:
        opening.set()
        freed.wait()
        engine = open_memory(space=space, store=str(tmp_path / "memory.db"), settings=Settings())
        opened.append(OpenMemory(engine))
        return opened[-1]

    pool = MemoryPool(open_slowly, most_open=0, idle_seconds=0.0)

    async def use() -> None:
        async with pool.use("harbour"):
            await asyncio.Event().wait()

    clients = [asyncio.create_task(use()) for _ in range(2)]
    await asyncio.to_thread(opening.wait)
    clients[0].cancel()
    await asyncio.wait(clients[:1])
    freed.set()
    await eventually(pool.open_memories)
    assert pool.open_memories() == tuple(opened)  # the other client has it
    clients[1].cancel()
    await eventually(lambda: not pool.open_memories())
    opening.clear()
    freed.clear()
    client = asyncio.create_task(use())
    await asyncio.to_thread(opening.wait)
    client.cancel()
    await asyncio.wait({client})
    freed.set()
    await eventually(lambda: len(opened) == 2)
    await eventually(lambda: not pool.open_memories() and not pool._opening)
    await pool.close()
    assert all(memory.engine.parts.sessions.are_closed for memory in opened)


async def test_a_memory_that_is_closing_is_opened_again_only_when_it_is_closed() -> None:
    """Otherwise the new engine would not know the messages that the old one still writes."""
    may_close, opened = asyncio.Event(), list[OpenMemory]()

    class SlowToClose(OpenMemory):
        async def close(self, patience_seconds: float | None = None) -> None:
            await may_close.wait()
            await super().close(patience_seconds)

    def open_quickly(space: str) -> OpenMemory:
        opened.append(SlowToClose(Engine(Settings())))
        return opened[-1]

    pool = MemoryPool(open_quickly)
    await pool.get("harbour")
    pool.drop("harbour")
    await pool.get("lighthouse")  # other memories do not wait
    again = asyncio.create_task(pool.get("harbour"))
    assert not (await asyncio.wait({again}, timeout=0.1))[0]
    may_close.set()
    assert await again is opened[-1]
    assert len(opened) == 3
    await pool.close()
