"""An agent on a server of one's own knows its window before the first turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import ModelServer
from tests.unit.agent.agent_harness import QUIET, of

from recollect.adapters.providers.openai import OpenAIChatModel
from recollect.agent.events import Ended, Prepared
from recollect.agent.opening import open_agent
from recollect.core.ports import ChatModel
from recollect.core.values.report import Report
from recollect.testing.scripted_model import Says

STATED = {"/v1/models": {"data": [{"id": "llama", "max_model_len": 16_384}]}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    workspace.mkdir()
    return workspace


def first_report(
    workspace: Path, settings: dict[str, Any], model: ChatModel | None = None
) -> Report:
    async def said() -> list[Any]:
        async with open_agent(workspace, model=model, settings=settings) as agent:
            return [event async for event in agent.run("Hi")]

    events = asyncio.run(said())
    assert isinstance(events[-1], Ended)
    report: Report = of(events, Prepared)[0].report
    return report


@pytest.mark.parametrize("summary", [None, "gpt-4.1"])
def test_a_server_is_asked_for_its_window_before_the_first_turn(
    home: Path, summary: str | None
) -> None:
    with ModelServer(lambda _: Says(text="hello"), pages=STATED) as server:
        settings = {
            **QUIET,
            "models.provider": "openai-chat",
            "models.base_url": server.url,
            "models.main": "llama",
            **({"models.summary": summary} if summary else {}),
        }
        report = first_report(home, settings)
    assert report.window_tokens == 16_384


def test_a_window_that_is_set_is_not_asked_for(home: Path) -> None:
    with ModelServer(lambda _: Says(text="hello"), pages=STATED) as server:
        model = OpenAIChatModel(model="llama", base_url=server.url)
        report = first_report(home, {**QUIET, "window_tokens": 8_000}, model)
        assert [one.path for one in server.asked] == ["/v1/chat/completions"]
    assert report.window_tokens == 8_000
