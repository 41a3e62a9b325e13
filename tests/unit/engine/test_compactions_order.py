"""What runs beside the turns keeps its order: one compaction at a time, flushes apart from them,
a lost race is nobody's failure, and nothing that a host says is lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.long_talk import (
    SESSION,
    WINDOW,
    Held,
    Talk,
    grown,
    honest,
    opened,
    reply,
    scribe,
    shown,
    soon,
    sound,
)

from recollect import Engine
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.values.model import Answer, Prompt

OPENING = PI_OPENING.split("\n", 1)[0]
NEAR = 5_700
"""So many tokens that notes are due, and no compaction yet."""


class Counted(Held):
    """Says how many were asked at once."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.most_at_once = 0

    async def ask(self, prompt: Prompt) -> Answer:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            answer = await super().ask(prompt)
            await asyncio.sleep(0.01)
            return answer
        finally:
            self.at_once -= 1


class Noting:
    """A host that is told to write its notes, and takes as long as it likes."""

    def __init__(self, memory: Engine) -> None:
        self.told: list[int] = []
        self.begun, self.written = asyncio.Event(), asyncio.Event()
        memory.on("flush_due", self.write)

    async def write(self, event: Any, context: Any) -> None:
        self.told.append(event["compactionCount"])
        self.begun.set()
        await self.written.wait()


async def flushing(memory: Engine, talk: Talk) -> Noting:
    """Until notes are being written in the background."""
    noting = Noting(memory)
    used = (await grown(memory, talk, 9)).report.tokens_after
    near = reply("yes", used_tokens=used, written_tokens=NEAR - used)
    assert (await memory.observe(SESSION, near)).due == "flush"
    await soon(noting.begun.wait())
    return noting


def test_a_full_turn_compacts_while_notes_are_written(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        async with opened(tmp_path / "m.db", scribe(), background=True) as memory:
            noting = await flushing(memory, talk)
            context = sound(await soon(memory.prepare(SESSION, talk.exchange(6).body("and now?"))))
            assert context.compaction is not None
            assert context.compaction.compacted, context.compaction.reason
            assert OPENING in shown(context)
            noting.written.set()

    asyncio.run(run())


def test_compactions_that_were_asked_for_run_one_after_the_other(tmp_path: Path) -> None:
    wishes = ["mind the tide", "mind the crane", "mind the quay"]

    async def run() -> None:
        talk, model = Talk(), Counted()
        async with opened(tmp_path / "m.db", model) as memory:
            await grown(memory, talk, 6)
            wanted = [
                asyncio.create_task(memory.compact(SESSION, instructions=wish)) for wish in wishes
            ]
            await soon(model.asked.wait())
            await asyncio.sleep(0.05)
            assert len(model.prompts) == 1
            model.answer.set()
            results = [await soon(one) for one in wanted]
            assert model.most_at_once == 1
            for done in results:
                honest(done)
                assert done.convergence != "failed", done.reason
            numbers = [done.number for done in results if done.compacted]
            assert numbers == list(range(1, len(numbers) + 1)), "in their order"
            asked = [wish for prompt in model.prompts for wish in wishes if wish in prompt.text]
            assert asked == sorted(asked, key=wishes.index)
            assert memory.session(SESSION).state.compactions == len(numbers)

    asyncio.run(run())


@pytest.mark.parametrize("when", ["in a model", "in a queue", "in a flush", "at once"])
def test_closing_while_compactions_run_ends_them_quietly(tmp_path: Path, when: str) -> None:
    async def run() -> None:
        talk, model, trouble = Talk(), Held(), unheard()
        memory = opened(tmp_path / "m.db", model, background=True)
        waiting: list[Awaitable[Any]] = []
        if when == "in a flush":
            await flushing(memory, talk)
            await memory.observe(SESSION, reply("yes", used_tokens=WINDOW))
        else:
            await grown(memory, talk, 9)
            many = 3 if when == "in a queue" else 1
            waiting = [asyncio.create_task(memory.compact(SESSION)) for _ in range(many)]
            if when != "at once":
                await soon(model.asked.wait())
        edits = memory.session(SESSION).state.edits
        await asyncio.sleep(0)
        await soon(memory.close())
        for one in waiting:
            done = await soon(one)
            honest(done)
            assert "closed" in str(done.reason)
        assert memory.session(SESSION).state.edits == edits
        assert trouble() == []

    asyncio.run(run())


def unheard() -> Callable[[], list[str]]:
    """What the loop had to complain about, in tasks that nobody asks any more."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: told.append(context["message"])
    )

    def so_far() -> list[str]:
        gc.collect()
        return told

    return so_far
