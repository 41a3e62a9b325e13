"""`/memory`: the user sees what is known, adds to it, and takes from it; no model is told."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.harness.fact_reader import reader_server, reader_variables
from tests.unit.agent.agent_harness import QUIET, AgentHarness, collected, ended, of

from recollect.agent.events import AgentEvent, Told
from recollect.agent.loop import Agent
from recollect.agent.opening import open_agent
from recollect.cli import main
from recollect.testing.scripted_model import Says, ScriptedModel

PORT = "The staging API listens on port 8443"
REMEMBER = f"Remember that {PORT[0].lower()}{PORT[1:]}."
LOOKING: dict[str, Any] = {"recall.enabled": True, "recall.embedder": "none"}


def told(events: list[AgentEvent]) -> str:
    assert ended(events) == "command"
    return "\n".join(event.text for event in of(events, Told))


def silent(folder: Path, **settings: Any) -> AgentHarness:
    """An agent whose model must not be asked anything."""
    return AgentHarness(folder, ScriptedModel([]), settings=settings)


def id_in(text: str) -> str:
    found = re.search(r"\b[0-9a-f]{8,}\b", text)
    assert found, text
    return found[0]


def says_the_same() -> ScriptedModel:
    """A model that says the same to everything."""
    return ScriptedModel(lambda _: Says(text="Noted."))


async def once_known(agent: Agent, word: str) -> str:
    """What `/memory show` answers when the jobs have found something."""
    for waited in range(1, 200):
        found = told(await collected(agent, "/memory show"))
        if word in found:
            return found
        await asyncio.sleep(0.05)
        if waited % 20 == 0:
            await collected(agent, "Are you there?")
    raise AssertionError("nothing was extracted")


def test_what_is_added_is_shown_found_explained_and_forgotten(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    assert "No fact is known" in told(harness.say("/memory show"))
    added = told(harness.say(f"/memory add {PORT}"))
    assert PORT in added
    other = told(harness.say("/memory add I prefer tabs over spaces"))
    shown = told(harness.say("/memory"))
    assert PORT in shown
    assert "tabs" in shown
    assert "2026-03-11" in shown
    found = told(harness.say("/memory search staging port"))
    assert PORT in found
    assert "tabs" not in found
    assert "Nothing in memory" in told(harness.say("/memory search submarine"))
    assert "No message is stored" in told(harness.say(f"/memory why {id_in(found)}"))
    assert "Forgotten permanently: 1 facts." in told(harness.say(f"/memory forget {id_in(added)}"))
    assert "8443" not in told(harness.say("/memory show"))
    assert id_in(told(harness.say("/memory show"))) == id_in(other)
    assert "no such message or fact" in told(harness.say(f"/memory why {id_in(added)}"))
    assert not harness.model.requests  # type: ignore[attr-defined]


def test_what_is_added_is_known_in_the_next_session_too(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    harness.say(f"/memory add {PORT}", "/new")
    assert PORT in told(harness.say("/memory show"))


def test_the_transcript_keeps_what_was_done_but_no_words_of_a_fact(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    id_ = id_in(told(harness.say(f"/memory add {PORT}")))
    harness.say("/memory search 8443", "/memory frobnicate 8443", f"/memory forget {id_}")
    kept = [entry["data"] for entry in harness.entries() if entry["type"] == "custom"]
    assert [one["command"] for one in kept] == ["memory"] * 4
    assert [one.get("argument") for one in kept] == ["add", "search", None, f"forget {id_}"]
    assert "port 8443" not in (tmp_path / "session-1.jsonl").read_text()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("/memory frobnicate", "Use /memory show"),
        ("/memory add", "Use /memory show"),
        ("/memory forget   ", "Use /memory show"),
        ("/memory forget 00", "no fact's id begins with"),
        ("/memory why zz", "no such message or fact"),
        (f"/memory add {'long ' * 500}", "at most 2,000 characters"),
    ],
)
def test_what_cannot_be_done_is_answered(tmp_path: Path, said: str, answer: str) -> None:
    assert answer in told(silent(tmp_path).say(said))


def test_a_memory_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    harness = silent(tmp_path, **{"ingest.enabled": False})
    assert "set ingest.enabled" in told(harness.say("/memory show"))


def test_what_was_forgotten_leaves_the_blocks_of_this_session(tmp_path: Path) -> None:
    model = ScriptedModel(["It is the one you noted.", "Fine."], name="gpt-4.1")
    harness = AgentHarness(tmp_path, model, settings=LOOKING)

    async def work(agent: Agent) -> None:
        id_ = id_in(told(await collected(agent, f"/memory add {PORT}")))
        await collected(agent, "Which port does the staging API listen on?")
        assert PORT in str(model.requests[-1]), "it was recalled"
        told(await collected(agent, f"/memory forget {id_}"))
        await collected(agent, "Thanks, that is all.")
        assert "Which port does" in str(model.requests[-1])
        assert "8443" not in str(model.requests[-1])

    harness.run(work)


def test_what_was_said_is_forgotten_by_the_command_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extracted in the background; the running agent holds its transcript, a command later may."""
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    workspace.mkdir()
    settings = {**QUIET, "facts.idle_seconds": 0.05}

    async def work() -> str:
        async with open_agent(workspace, model=says_the_same(), settings=settings) as agent:
            await collected(agent, REMEMBER)
            found = await once_known(agent, "8443")
            why = told(await collected(agent, f"/memory why {id_in(found)}"))
            assert "It rests on:" in why
            assert REMEMBER in why
            return told(await collected(agent, f"/memory forget {id_in(found)}"))

    with reader_server() as server:
        for name, value in reader_variables(server).items():
            monkeypatch.setenv(name, value)
        answer = asyncio.run(work())
    assert "The messages that it came from stay" in answer
    (command,) = re.findall(r"recollect (memory forget .*)", answer)
    assert "port 8443" in "".join(one.read_text() for one in tmp_path.rglob("*.jsonl"))
    done = CliRunner().invoke(main, [*shlex.split(command), "--yes"])
    assert done.exit_code == 0, done.output
    assert "port 8443" not in "".join(one.read_text() for one in tmp_path.rglob("*.jsonl"))


def test_memory_files_are_shown_and_found_before_the_first_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "MEMORY.md").write_text("# Orchard\nThe quince trees are pruned in February.\n")

    async def work() -> tuple[str, str]:
        settings = {"recall.embedder": "none"}
        async with open_agent(workspace, model=ScriptedModel([]), settings=settings) as agent:
            found = told(await collected(agent, "/memory search quince trees"))
        async with open_agent(workspace, model=ScriptedModel([]), settings=settings) as agent:
            return found, told(await collected(agent, "/memory show"))

    found, shown = asyncio.run(work())
    assert "pruned in February" in found
    assert "1 memory files" in shown
