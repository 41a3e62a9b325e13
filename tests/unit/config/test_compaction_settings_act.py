"""Settings of compaction change what they say: a test per key."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.long_talk import SESSION, WINDOW, Talk, opened, reply, scribe

from recollect.core.values.compaction import CompactionResult
from recollect.core.values.model import Prompt

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


@acts("compaction.at_ratio")
def _(tmp: Path) -> None:
    (late,) = prepared(tmp, {}, scribe(), exchanges=8)
    assert late.compaction is None
    (early,) = prepared(tmp, {"compaction__at_ratio": 0.4}, scribe(), exchanges=8)
    assert early.compaction is not None
    assert early.compaction.compacted


@acts("compaction.pin_ratio")
def _(tmp: Path) -> None:
    pinned, _ = compact(tmp, {"recall__enabled": False})
    assert DECISION in pinned.summary
    none, _ = compact(tmp, {"recall__enabled": False, "compaction__pin_ratio": 0.0})
    assert DECISION not in none.summary
    assert none.receipt is not None
    assert none.receipt.count("lost") > 0, "and it is told"


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


@acts("compaction.flush.soft_threshold_tokens")
def _(tmp: Path) -> None:
    assert _dues(tmp, {})["flush"] == 6_000 - WINDOW // 20
    nearer = _dues(tmp, {"compaction__flush__soft_threshold_tokens": 200})
    assert nearer["flush"] == 6_000 - 200


@acts("compaction.flush.at_ratio")
def _(tmp: Path) -> None:
    assert _dues(tmp, {"compaction__flush__at_ratio": 0.5})["flush"] == WINDOW // 2
    late = _dues(tmp, {"compaction__flush__at_ratio": 0.9})
    assert late["flush"] == 6_000 - WINDOW // 20, "never later than the other threshold"


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path.parent / f"{tmp_path.name}-home"))
    ACTS[key](tmp_path)
