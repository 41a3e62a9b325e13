"""A model of the caller's own: anything that can be asked summarises, anything else is refused."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.long_talk import SESSION, Talk, grown, notes, opened, scribe, sound

from recollect.core.values.model import Answer, Prompt


class OnlyAsks:
    async def ask(self, prompt: Prompt) -> Answer:
        return Answer(text=notes(prompt))


class IsCalled:
    async def __call__(self, prompt: Prompt) -> str:
        return notes(prompt)


async def asked(prompt: Prompt) -> Answer:
    return Answer(text=notes(prompt))


async def asked_with(said: str, prompt: Prompt) -> str:
    return notes(prompt) + said


@pytest.mark.parametrize(
    "model",
    [OnlyAsks(), IsCalled(), asked, partial(asked_with, "\n- by the quay"), scribe()],
    ids=lambda model: type(model).__name__,
)
def test_whatever_can_be_asked_summarises(tmp_path: Path, model: Any) -> None:
    async def run() -> None:
        talk = Talk()
        async with opened(tmp_path / "m.db", model) as memory:
            context = sound(await grown(memory, talk, 12))
            assert memory.session(SESSION).state.compactions == 1
            assert "berth-17" in str(context.request)

    asyncio.run(run())
