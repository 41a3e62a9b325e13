"""Every active setting of our own agent changes what it says: a test a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from recollect.agent.opening import open_agent
from recollect.system.config import active_keys
from recollect.testing.scripted_model import ScriptedModel

AGENT_GROUPS = ("workspace.", "session.", "models.max_output_tokens")
ACTS: dict[str, Callable[[Path], None]] = {}
HOUR = 3600.0
NOON = 1_773_230_400.0  # 2026-03-11 12:00 UTC


def acts(key: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(test: Callable[[Path], None]) -> Callable[[Path], None]:
        ACTS[key] = test
        return test

    return register


class Clock:
    def __init__(self) -> None:
        self.at = NOON

    def now(self) -> float:
        return self.at


def second_request(workspace: Path, settings: dict[str, Any], later_seconds: float = 0.0) -> str:
    """What goes out with a second question, asked so much later."""
    model = ScriptedModel(["The first answer.", "The second answer."], name="gpt-4.1")
    clock = Clock()

    async def run() -> None:
        key = f"{later_seconds} {settings}"  # a session of its own
        given: Any = {"settings": settings, "model": model, "clock": clock, "tz": UTC, "key": key}
        async with open_agent(workspace, **given) as agent:
            for text in ("The first question.", "The second question."):
                async for _ in agent.run(text):
                    pass
                clock.at += later_seconds

    asyncio.run(run())
    model.check()
    return str(model.requests[-1])


@acts("workspace.max_chars")
def _(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("rule " * 200 + "the middle " + "rule " * 200)
    assert "the middle" in second_request(workspace, {})
    assert "the middle" not in second_request(workspace, {"workspace.max_chars": 400})


@acts("workspace.skip_bootstrap")
def _(workspace: Path) -> None:
    second_request(workspace, {})
    assert not (workspace / "AGENTS.md").exists()
    second_request(workspace, {"workspace.skip_bootstrap": False})
    assert (workspace / "AGENTS.md").exists()


@acts("models.max_output_tokens")
def _(workspace: Path) -> None:
    assert "'max_tokens': 777" not in second_request(workspace, {})
    assert "'max_tokens': 777" in second_request(workspace, {"models.max_output_tokens": 777})


@acts("session.reset.mode")
def _(workspace: Path) -> None:
    assert "The first answer." in second_request(workspace, {}, 30 * HOUR)
    daily = {"session.reset.mode": "daily"}
    assert "The first answer." not in second_request(workspace, daily, 30 * HOUR)


@acts("session.reset.at_hour")
def _(workspace: Path) -> None:
    afternoon = {"session.reset.mode": "daily", "session.reset.at_hour": 14}
    assert "The first answer." not in second_request(workspace, afternoon, 3 * HOUR)
    night = {"session.reset.mode": "daily", "session.reset.at_hour": 4}
    assert "The first answer." in second_request(workspace, night, 3 * HOUR)


@acts("session.reset.idle_minutes")
def _(workspace: Path) -> None:
    idle = {"session.reset.mode": "idle", "session.reset.idle_minutes": 60}
    assert "The first answer." not in second_request(workspace, idle, 2 * HOUR)
    idle["session.reset.idle_minutes"] = 180
    assert "The first answer." in second_request(workspace, idle, 2 * HOUR)


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    workspace.mkdir()
    ACTS[key](workspace)


def test_no_active_key_of_the_agent_is_without_a_test() -> None:
    assert set(ACTS) == {key for key in active_keys() if key.startswith(AGENT_GROUPS)}
