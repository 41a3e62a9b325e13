"""One call opens the agent, and it goes on where it was left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recollect.agent.events import Ended, Said
from recollect.agent.opening import open_agent
from recollect.errors import SettingsError
from recollect.testing.scripted_model import ScriptedModel


async def said_in(workspace: Path, text: str, model: ScriptedModel, **given: Any) -> list[Any]:
    async with open_agent(workspace, model=model, **given) as agent:
        return [event async for event in agent.run(text)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    workspace.mkdir()
    return workspace


def test_it_talks_and_goes_on_where_it_was_left(home: Path) -> None:
    model = ScriptedModel(["The port is 8443.", "As I said: 8443."], name="gpt-4.1")
    first = asyncio.run(said_in(home, "Which port?", model))
    assert isinstance(first[-1], Ended)
    assert any(isinstance(event, Said) and "8443" in event.text for event in first)
    asyncio.run(said_in(home, "Again?", model))
    sent: Mapping[str, Any] = model.requests[-1]
    assert "Which port?" in str(sent)
    assert "The port is 8443." in str(sent)


def test_the_first_run_shows_the_files_it_made_and_only_the_first(home: Path) -> None:
    model = ScriptedModel(["Hello.", "Hello again."], name="gpt-4.1")
    asyncio.run(said_in(home, "Hi", model))
    assert (home / "AGENTS.md").is_file()
    assert "BOOTSTRAP.md" in str(model.requests[0])
    asyncio.run(said_in(home, "Hi", model))
    assert "BOOTSTRAP.md" not in str(model.requests[1])


def test_skip_bootstrap_makes_no_files(home: Path) -> None:
    model = ScriptedModel(["Hello."], name="gpt-4.1")
    asyncio.run(said_in(home, "Hi", model, settings={"workspace.skip_bootstrap": True}))
    assert list(home.iterdir()) == []


def test_without_a_model_it_says_what_to_set(home: Path) -> None:
    async def opened() -> None:
        async with open_agent(home):
            pass

    with pytest.raises(SettingsError, match=r"models\.provider"):
        asyncio.run(opened())
