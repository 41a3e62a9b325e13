"""Every active setting of facts changes what it says: real store, real jobs, a test a key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fact_reader import fact_reader

from recollect import open_memory
from recollect.adapters.wiring import open_store
from recollect.core.engine.background import runner_of
from recollect.core.values.fact import Fact
from recollect.system.config import active_keys, build
from recollect.testing.scripted_model import ScriptedModel

FACTS_GROUPS = ("facts.",)
ACTS: dict[str, Callable[[Path], None]] = {}
NOW = 1_800_000_000.0
PORT = "Remember that the staging API listens on port 8443."


def acts(key: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(test: Callable[[Path], None]) -> Callable[[Path], None]:
        assert key not in ACTS
        ACTS[key] = test
        return test

    return register


class Clock:
    def __init__(self) -> None:
        self.seconds = NOW

    def now(self) -> float:
        return self.seconds


def read_after(
    tmp: Path,
    settings: dict[str, Any],
    *texts: str,
    seconds: float = 601.0,
    model: ScriptedModel | None = None,
) -> tuple[Fact, ...]:
    """The facts of a session that said this, and was silent for so long."""
    file = tmp / f"{len(list(tmp.iterdir()))}.db"
    clock = Clock()
    chosen = build({"jobs.in_process": False, "recall.embedder": "none", **settings})

    async def run() -> tuple[Fact, ...]:
        reader = model or fact_reader()
        opened = open_memory(store=file, settings=chosen, clock=clock, extraction_model=reader)
        async with opened as memory:
            for text in texts:
                messages = [{"role": "user", "content": text}]
                await memory.prepare("s", {"model": "m", "messages": messages})
            await memory.settle()
        store = await open_store(str(file), space="default")
        try:
            clock.seconds += seconds
            await runner_of(store, chosen, clock, model=reader).run_due()
            return await store.facts()
        finally:
            await store.close()

    return asyncio.run(run())


@acts("facts.idle_seconds")
def _(tmp: Path) -> None:
    assert len(read_after(tmp, {"facts.idle_seconds": 30.0}, PORT, seconds=31)) == 1
    assert read_after(tmp, {"facts.idle_seconds": 90.0}, PORT, seconds=31) == ()


@acts("facts.window_tokens")
def _(tmp: Path) -> None:
    def calls(window_tokens: int) -> int:
        model = ScriptedModel(lambda _: json.dumps({"facts": []}))
        tale = "the harbour was quiet and grey that day. " * 20
        texts = [f"Story {n}: {tale}" for n in range(8)]
        read_after(tmp, {"facts.window_tokens": window_tokens}, *texts, model=model)
        return len(model.prompts)

    assert calls(6000) == 1
    assert calls(500) > 2


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(key: str, tmp_path: Path) -> None:
    ACTS[key](tmp_path)


def test_no_active_key_of_facts_is_without_a_test() -> None:
    assert set(ACTS) == {key for key in active_keys() if key.startswith(FACTS_GROUPS)}
