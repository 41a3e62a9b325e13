"""Every active setting of compaction and its models changes what it says: a test a key."""

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
    Clock,
    Talk,
    notes,
    opened,
    reply,
    scribe,
    shown,
)
from tests.unit.agent.agent_harness import AgentHarness, filling

from recollect import open_memory
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.model import Prompt
from recollect.errors import ModelUnavailable, SettingsError
from recollect.system.config import active_keys
from recollect.testing.scripted_model import Says, ScriptedModel

COMPACTION_GROUPS = ("compaction.", "models.")
IN_TEST_SETTINGS_ACT = {
    *("compaction.reserve_tokens", "compaction.reserve_tokens_floor", "models.prices"),
}
"""Asked of every request: they are in test_settings_act.py."""
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


@acts("compaction.mode")
def _(tmp: Path) -> None:
    staged, in_stages = compact(tmp, {"compaction__audit": False})
    whole, at_once = compact(tmp, {"compaction__audit": False, "compaction__mode": "default"})
    assert staged.compacted
    assert whole.compacted
    history = [one for one in at_once if "first part of a turn" not in one.text]
    assert len(history) == 1
    assert len(in_stages) > len(at_once)


@acts("compaction.keep_recent_tokens")
def _(tmp: Path) -> None:
    much, _ = compact(tmp, {"compaction__keep_recent_tokens": 2_400})
    little, _ = compact(tmp, {"compaction__keep_recent_tokens": 600})
    assert little.compacted_messages > much.compacted_messages > 0
    assert little.tokens_after < much.tokens_after


@acts("compaction.max_history_share")
def _(tmp: Path) -> None:
    def reads_a_summary(share: float) -> bool:
        done, prompts = compact(tmp, {"compaction__max_history_share": share})
        assert done.compacted
        return any("<previous-summary>" in one.text for one in prompts)

    assert not reads_a_summary(0.9)
    assert reads_a_summary(0.1), "the oldest chunks were summarised apart"


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


def _tries(tmp: Path, settings: dict[str, Any]) -> list[bool]:
    """In which turns a compaction was tried, with a model that is away."""
    model = scribe(lambda _: ModelUnavailable("away"))
    settings = {"clock": Clock(), "trim__low_water_ratio": 1.0, **settings}
    made = prepared(tmp, settings, model, exchanges=12, turns=6)
    return [one.compaction is not None for one in made]


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


@acts("compaction.flush.at_ratio")
def _(tmp: Path) -> None:
    assert _dues(tmp, {"compaction__flush__at_ratio": 0.5})["flush"] == WINDOW // 2


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


@acts("compaction.flush.system_prompt")
def _(tmp: Path) -> None:
    own = _flush_request(tmp, {"compaction.flush.system_prompt": "Nobody hears you on YYYY-MM-DD."})
    assert "Nobody hears you on 2026-03-11." in own
    assert "Nobody hears" not in _flush_request(tmp, {})


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


@acts("models.provider")
def _(tmp: Path) -> None:
    for wire in ("anthropic", "openai-chat", "openai-responses"):
        done, asked = _by_settings(tmp, {"provider": wire, "main": "m"})
        assert done.compacted, done.reason
        assert {one.wire for one in asked} == {wire}
    done, asked = _by_settings(tmp, {})
    assert not done.compacted
    assert asked == []
    with pytest.raises(SettingsError, match=r"models\.provider"):
        open_memory(store=tmp / "x.db", settings={"models.summary": "m"})


@acts("models.base_url")
def _(tmp: Path) -> None:
    done, asked = _by_settings(tmp, {"provider": "openai-chat", "main": "m"})
    assert done.compacted, done.reason
    assert asked, "there, and nowhere else: no test reaches the network"
    settings = {"provider": "openai-chat", "main": "m", "base_url": "http://127.0.0.1:9"}
    done, asked = _by_settings(tmp, {**settings, "deadline_seconds": 0.3})
    assert not done.compacted
    assert asked == []


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


@acts("models.main")
def _(tmp: Path) -> None:
    _, asked = _by_settings(tmp, {"provider": "openai-chat", "main": "the-main-one"})
    assert {one.body["model"] for one in asked} == {"the-main-one"}
    with pytest.raises(SettingsError, match=r"models\.main"):
        _by_settings(tmp, {"provider": "openai-chat"})


@acts("models.summary")
def _(tmp: Path) -> None:
    settings = {"provider": "anthropic", "main": "the-main-one", "summary": "the-small-one"}
    _, asked = _by_settings(tmp, settings)
    assert {one.body["model"] for one in asked} == {"the-small-one"}


@acts("models.extraction")
def _(tmp: Path) -> None:
    def asked_by(models: dict[str, Any]) -> set[str]:
        """Which models are asked once messages left the view; the jobs run beside the engine."""
        place = tmp / f"{len(list(tmp.iterdir()))}.db"

        def say(asked: Asked) -> Says:
            return Says(text=notes(Prompt(text=asked.content.decode())))

        async def run(server: ModelServer) -> None:
            settings: dict[str, Any] = {"recall.embedder": "none", "models.base_url": server.url}
            settings |= {"models.provider": "openai-chat", "models.main": "the-main-one", **models}
            settings |= {"facts.window_tokens": 500}  # what left fills a window: it is read at once
            async with open_memory(store=place, window_tokens=WINDOW, settings=settings) as memory:
                await memory.compact(SESSION, Talk().ask(DECISION).exchange(9).body("so?"))
                summaries = len(server.asked)
                for _ in range(100 if "models.extraction" in models else 10):
                    if len(server.asked) > summaries:
                        break
                    await asyncio.sleep(0.05)

        with ModelServer(say) as server:
            asyncio.run(run(server))
            return {one.body["model"] for one in server.asked if "model" in one.body}

    assert asked_by({}) == {"the-main-one"}, "for the summary alone: rules read for facts"
    assert asked_by({"models.extraction": "the-reader"}) == {"the-main-one", "the-reader"}


@acts("models.deadline_seconds")
def _(tmp: Path) -> None:
    settings = {"provider": "openai-chat", "main": "m"}
    slow = Says(text="Late notes of the harbour.", delay_seconds=0.6)
    begun = time.monotonic()
    done, asked = _by_settings(tmp, {**settings, "deadline_seconds": 0.2}, lambda _: slow)
    assert time.monotonic() - begun < 10
    assert not done.compacted
    assert len(asked) == 2, "asked once more, as a model that is away is"


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path.parent / f"{tmp_path.name}-home"))
    ACTS[key](tmp_path)


def test_no_active_key_of_compaction_is_without_a_test() -> None:
    wanted = {key for key in active_keys() if key.startswith(COMPACTION_GROUPS)}
    assert set(ACTS) == wanted - IN_TEST_SETTINGS_ACT - {"models.max_output_tokens"}


def test_what_is_shown_is_what_was_made(tmp_path: Path) -> None:
    """The harness tells a compaction from none."""
    first, second = prepared(tmp_path, {}, scribe(), exchanges=9, turns=2)
    assert "page" not in shown(first)
    assert "page" in shown(second)
