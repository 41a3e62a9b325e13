"""Settings of compaction change what they say: a test per key."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import Asked, ModelServer
from tests.integration.long_talk import (
    SESSION,
    WINDOW,
    Talk,
    notes,
    opened,
    reply,
    scribe,
)
from tests.unit.agent.agent_harness import AgentHarness, filling

from recollect import open_memory
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.model import Prompt
from recollect.errors import SettingsError
from recollect.testing.scripted_model import Says, ScriptedModel

ACTS: dict[str, Callable[[Path], None]] = {}
DECISION = "We decided that the ferry waits because the tide is late."


def acts(key: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(test: Callable[[Path], None]) -> Callable[[Path], None]:
        assert key not in ACTS
        ACTS[key] = test
        return test

    return register


def compact(
    tmp: Path, settings: dict[str, Any], model: Any = None, *, exchanges: int = 9
) -> tuple[CompactionResult, list[Prompt]]:
    """One compaction that is asked for, of a session within its window."""
    model = model or scribe()
    place = tmp / f"{len(list(tmp.iterdir()))}.db"

    async def run() -> CompactionResult:
        talk = Talk().ask(DECISION).answer("So it does.")
        async with opened(place, model, **settings) as memory:
            return await memory.compact(SESSION, talk.exchange(exchanges).body("so?"))

    return asyncio.run(run()), getattr(model, "prompts", [])


def prepared(
    tmp: Path, settings: dict[str, Any], model: Any, *, exchanges: int, turns: int = 1
) -> list[Any]:
    """The turns of a session that grows by so many exchanges in each."""
    place = tmp / f"{len(list(tmp.iterdir()))}.db"

    async def run() -> list[Any]:
        talk, made = Talk(), []
        async with opened(place, model, **settings) as memory:
            for _ in range(turns):
                made.append(await memory.prepare(SESSION, talk.exchange(exchanges).body("so?")))
                clock = settings.get("clock")
                if clock is not None:
                    clock.seconds += 60
        return made

    return asyncio.run(run())


@acts("compaction.enabled")
def _(tmp: Path) -> None:
    (on,) = prepared(tmp, {}, scribe(), exchanges=14)
    assert on.compaction is not None
    model = scribe()
    (off,) = prepared(tmp, {"compaction__enabled": False}, model, exchanges=14)
    assert off.compaction is None
    assert model.prompts == []
    assert not off.report.over_limit, "it is trimmed instead"


@acts("compaction.at_ratio")
def _(tmp: Path) -> None:
    (late,) = prepared(tmp, {}, scribe(), exchanges=8)
    assert late.compaction is None
    (early,) = prepared(tmp, {"compaction__at_ratio": 0.4}, scribe(), exchanges=8)
    assert early.compaction is not None
    assert early.compaction.compacted


@acts("compaction.background")
def _(tmp: Path) -> None:
    async def begun(*, on: bool) -> bool:
        talk = Talk()
        settings = {"compaction__background": on}
        place = tmp / f"{on}.db"
        async with opened(place, scribe(), background=True, **settings) as memory:
            await memory.prepare(SESSION, talk.exchange(9).body("so?"))
            seen = await memory.observe(SESSION, reply("yes", used_tokens=WINDOW))
            assert seen.due == "compaction"
            running = memory.session(SESSION).compacting
            return running is not None and (await running).compacted

    assert asyncio.run(begun(on=True))
    assert not asyncio.run(begun(on=False))


@acts("compaction.audit")
def _(tmp: Path) -> None:
    def asked_again(*, on: bool) -> bool:
        model = scribe(lambda prompt: f"Few words about page {len(prompt.text)}.")
        done, prompts = compact(tmp, {"compaction__audit": on}, model)
        assert done.compacted
        return any("A first version of the notes lacked" in one.text for one in prompts)

    assert asked_again(on=True)
    assert not asked_again(on=False)


@acts("compaction.pin_ratio")
def _(tmp: Path) -> None:
    pinned, _ = compact(tmp, {"recall__enabled": False})
    assert DECISION in pinned.summary
    none, _ = compact(tmp, {"recall__enabled": False, "compaction__pin_ratio": 0.0})
    assert DECISION not in none.summary
    assert none.receipt is not None
    assert none.receipt.count("lost") > 0, "and it is told"


@acts("compaction.deadline_seconds")
def _(tmp: Path) -> None:
    begun = time.monotonic()
    late, _ = compact(tmp, {"compaction__deadline_seconds": 0.1}, scribe(delay_seconds=30))
    assert time.monotonic() - begun < 10
    assert late.convergence == "failed"
    assert "compaction.deadline_seconds" in str(late.reason)
    patient, _ = compact(tmp, {"compaction__deadline_seconds": 30.0}, scribe(delay_seconds=0.15))
    assert patient.compacted


def _dues(tmp: Path, settings: dict[str, Any]) -> dict[str, int]:
    """From how many tokens on what is due."""
    place = tmp / f"{len(list(tmp.iterdir()))}.db"

    async def run() -> dict[str, int]:
        begins: dict[str, int] = {}
        async with opened(place, scribe(), **settings) as memory:
            await memory.prepare(SESSION, Talk().exchange(2).body("so?"))
            for used in range(1_000, WINDOW, 100):
                seen = await memory.observe(SESSION, reply("yes", used_tokens=used - 10))
                begins.setdefault(seen.due, used)
        return begins

    return asyncio.run(run())


@acts("compaction.flush.enabled")
def _(tmp: Path) -> None:
    assert "flush" in _dues(tmp, {})
    assert "flush" not in _dues(tmp, {"compaction__flush__enabled": False})


@acts("compaction.flush.soft_threshold_tokens")
def _(tmp: Path) -> None:
    assert _dues(tmp, {})["flush"] == 6_000 - WINDOW // 20
    nearer = _dues(tmp, {"compaction__flush__soft_threshold_tokens": 200})
    assert nearer["flush"] == 6_000 - 200


def _flush_request(tmp: Path, settings: dict[str, Any]) -> str:
    model = ScriptedModel([filling("nearly full", 5_700), "NO_REPLY"])
    folder = tmp / str(len(list(tmp.iterdir())))
    folder.mkdir()
    AgentHarness(folder, model, settings={"window_tokens": WINDOW, **settings}).say("hello")
    model.check()
    return str(model.requests[1])


@acts("compaction.flush.prompt")
def _(tmp: Path) -> None:
    own = _flush_request(tmp, {"compaction.flush.prompt": "Write to memory/YYYY-MM-DD.md, mate."})
    assert "Write to memory/2026-03-11.md, mate." in own
    assert "mate." not in _flush_request(tmp, {})


def _by_settings(tmp: Path, models: dict[str, Any], step: Any = None) -> tuple[Any, list[Asked]]:
    """A compaction by the model that the settings name, on a server of this machine."""
    place = tmp / f"{len(list(tmp.iterdir()))}.db"

    def say(asked: Asked) -> Says:
        return Says(text=notes(Prompt(text=asked.content.decode())))

    async def run(url: str) -> Any:
        settings = {"recall.embedder": "none", "jobs.in_process": False, "models.base_url": url}
        settings |= {f"models.{name}": value for name, value in models.items()}
        given = {name: value for name, value in settings.items() if value is not None}
        async with open_memory(store=place, window_tokens=WINDOW, settings=given) as memory:
            return await memory.compact(SESSION, Talk().exchange(9).body("so?"))

    with ModelServer(step or say) as server:
        return asyncio.run(run(server.url)), server.asked


@acts("models.key_variable")
def _(tmp: Path) -> None:
    settings = {"provider": "openai-chat", "main": "m"}
    os.environ["TEST_MODEL_KEY"] = "sk-of-the-test"
    try:
        _, asked = _by_settings(tmp, {**settings, "key_variable": "TEST_MODEL_KEY"})
        assert {one.headers["authorization"] for one in asked} == {"Bearer sk-of-the-test"}
    finally:
        del os.environ["TEST_MODEL_KEY"]
    _, asked = _by_settings(tmp, settings)
    assert not [one for one in asked if "authorization" in one.headers]
    with pytest.raises(SettingsError, match="TEST_MODEL_KEY"):
        _by_settings(tmp, {**settings, "key_variable": "TEST_MODEL_KEY"})


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path.parent / f"{tmp_path.name}-home"))
    ACTS[key](tmp_path)
