"""Settings into models: what a model of ours knows of itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import ModelServer
from tests.unit.agent.agent_harness import QUIET, of

from recollect import open_blocking_memory, open_memory
from recollect.adapters.providers.openai import OpenAIChatModel
from recollect.adapters.wiring import models
from recollect.adapters.wiring.models import choose_model
from recollect.agent.events import Ended, Prepared
from recollect.agent.opening import open_agent
from recollect.core.ports import ChatModel
from recollect.core.values.report import Report
from recollect.errors import MissingExtra, SettingsError
from recollect.system.config import load_settings
from recollect.testing.scripted_model import Says


@pytest.mark.parametrize(
    ("name", "window"), [("claude-sonnet-4-5", 200_000), ("somebody-s-own", None)]
)
def test_how_much_of_a_window_is_used_is_not_how_large_it_is(
    name: str, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A good reply to a request over the set window is no overflow."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    given = {"models.provider": "anthropic", "models.main": name, "window_tokens": 20_000}
    model = choose_model(load_settings(arguments=given).settings, "main")
    assert model is not None
    assert model.window_tokens == window


WRONG: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({"models.provider": "anthropic"}, ("models.provider", "models.main", "models.summary")),
    (
        {"models.provider": "anthropic", "models.main": "m"},
        ("models.provider", "ANTHROPIC_API_KEY", "models.key_variable", "models.base_url"),
    ),
    ({"models.provider": "openai-chat", "models.summary": "m"}, ("OPENAI_API_KEY",)),
    ({"models.provider": "openai-responses", "models.extraction": "m"}, ("OPENAI_API_KEY",)),
    (
        {"models.provider": "openai-chat", "models.main": "m", "models.key_variable": "MY_KEY"},
        ("models.key_variable", "MY_KEY"),
    ),
    ({"models.provider": "mistral", "models.main": "m"}, ("models.provider", "openai-chat")),
    ({"models.main": "m"}, ("models.provider", "openai-chat")),
]


@pytest.mark.parametrize(("given", "named"), WRONG)
def test_a_model_that_could_never_be_asked_is_told_at_opening(
    given: dict[str, str], named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "MY_KEY"):
        monkeypatch.delenv(variable, raising=False)
    for opening in (open_memory, open_blocking_memory):
        with pytest.raises(SettingsError) as told:
            opening(settings=given)
        assert [name for name in named if name not in str(told.value)] == []


@pytest.mark.parametrize("named", ["main", "summary"])
def test_the_setting_that_names_a_model_of_nobody_is_the_one_told(named: str) -> None:
    with pytest.raises(SettingsError, match=f"models.{named} names a model, but models.provider"):
        open_memory(settings={f"models.{named}": "claude-sonnet-4-5"})


def test_a_model_over_http_without_its_extra_is_told_at_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="remote"):
        open_memory(settings={"models.provider": "anthropic", "models.main": "m"})


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    url = "http://127.0.0.1:1/v1"
    given = {"models.provider": "openai-chat", "models.main": "m", "models.base_url": url}
    assert open_memory(settings=given) is not None


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
def test_server_is_asked_for_its_window_before_first_turn(home: Path, summary: str | None) -> None:
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
