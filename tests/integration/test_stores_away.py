"""Stores that are slow, locked, full or away: what a session knows, how long a turn waits, how
large its request is, and that nothing runs on after `close`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Context, Engine, open_memory
from recollect.config.sources import read_arguments
from recollect.errors import SettingsError
from recollect.wiring import open_store

WINDOW = 6_000
NOTE = "cargo and winch over the quay, with ropes and tide tables of the day "
QUIET = {"jobs.in_process": False, "window_tokens": WINDOW}


class Talk:
    """A conversation as a client holds it, one exchange after the other."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []

    def body(self, words: str) -> dict[str, Any]:
        asked = {"role": "user", "content": words}
        return {"model": "claude-x", "max_tokens": 10, "messages": [*self.messages, asked]}

    async def exchange(self, memory: Engine, words: str = NOTE * 20) -> Context:
        words = f"number {len(self.messages)}: {words}"
        context = await memory.prepare("s", self.body(words))
        answer = f"answer {len(self.messages)}"
        reply = {"role": "assistant", "content": [{"type": "text", "text": answer}]}
        await memory.observe("s", reply)
        self.messages += [
            {"role": "user", "content": words},
            {"role": "assistant", "content": answer},
        ]
        return context


def lines_of(context: Context, stage: str) -> list[tuple[str, str]]:
    return [(line.outcome, line.said) for line in context.report.lines if line.stage == stage]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Somebody else writes to the file all the time."""
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def stored(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    held = [one.segment.text for one in await store.page(limit=10_000)]
    assert (await store.check()).problems == ()
    await store.close()
    return held


def test_memory_is_searched_while_batches_wait_and_says_what_it_lacks(tmp_path: Path) -> None:
    async def run() -> None:
        talk, file = Talk(), tmp_path / "m.db"
        async with open_memory(store=file, settings=QUIET, embedders=[]) as memory:
            await talk.exchange(memory, "the heron of Quillhaven is called Balthazar")
            for _ in range(30):
                await talk.exchange(memory)
            assert await memory.settle() == 0
            with locked(file):
                await talk.exchange(memory)
                assert await memory.settle(0) > 0
                context = await memory.prepare("s", talk.body("what is the heron of Quillhaven?"))
            ((outcome, said),) = lines_of(context, "recall")
            assert outcome == "done"
            assert "waits in the spool, and was not searched" in said
            assert "Balthazar" in str(context.request["messages"])
            assert await memory.settle() == 0

    asyncio.run(run())


def test_what_an_earlier_process_spooled_is_known_before_the_store_takes_it(tmp_path: Path) -> None:
    """Its edits stand, byte for byte, though the store still has an older state."""

    async def run() -> None:
        talk, file = Talk(), tmp_path / "m.db"
        settings = {**QUIET, "store.write_seconds": 0.1, "recall.enabled": False}
        async with open_memory(store=file, settings=settings) as memory:
            for _ in range(4):
                await talk.exchange(memory)
        with locked(file):
            async with open_memory(store=file, settings=settings) as memory:
                for _ in range(20):
                    await talk.exchange(memory)
                before = await memory.prepare("s", talk.body("so?"))
                assert before.edits, "messages left the view while the store was locked"
            async with open_memory(store=file, settings=settings) as memory:
                again = await memory.prepare("s", talk.body("so?"))
                assert lines_of(again, "load")[0][0] == "done"
                assert again.request == before.request
                assert again.state.turn == before.state.turn + 1
        async with open_memory(store=file, settings=settings) as memory:
            assert (await memory.prepare("s", talk.body("so?"))).request == before.request
            assert await memory.settle() == 0
        found = await stored(file)
        assert len(found) == len(set(found)) == len(talk.messages) + 1

    asyncio.run(run())


def test_a_locked_file_delays_no_turn_after_the_first(tmp_path: Path) -> None:
    async def run() -> None:
        talk, file = Talk(), tmp_path / "m.db"
        async with open_memory(store=file, settings=QUIET) as memory:
            for _ in range(12):
                await talk.exchange(memory)
            with locked(file):
                times = []
                for _ in range(8):
                    begun = time.monotonic()
                    context = await talk.exchange(memory)
                    times.append(time.monotonic() - begun)
                    assert not context.report.over_limit
                    assert [line for line in lines_of(context, "recall") if line[0] != "done"] == []
                assert max(times[1:]) < 0.6, times
            assert await memory.settle(10) == 0
            await talk.exchange(memory)
            assert await memory.settle(0) == 0, "the store takes batches again"
        assert len(await stored(file)) == len(talk.messages)

    asyncio.run(run())


def test_the_old_deadline_is_refused_with_the_new_names() -> None:
    with pytest.raises(SettingsError, match=r"store.open_seconds, store.read_seconds, store.write"):
        read_arguments({"store.deadline_seconds": 0.2})
