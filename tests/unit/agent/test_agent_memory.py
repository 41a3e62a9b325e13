"""`/memory`: the user sees what is known, adds to it, and takes from it; no model is told."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.fact_reader import reader_server, reader_variables
from tests.unit.agent.agent_harness import QUIET, AgentHarness, collected, ended, of

from recollect.agent.commands import (
    MOST_SHOWN,
    Command,
    NoCommand,
    facts_text,
    one_line,
    read_command,
    recordable,
)
from recollect.agent.events import AgentEvent, Told
from recollect.agent.loop import Agent
from recollect.agent.opening import open_agent
from recollect.cli import main
from recollect.core.values.fact import Fact, FactId
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
    """What `/facts` answers when the jobs have found something."""
    for waited in range(1, 200):
        found = told(await collected(agent, f"/facts {word}"))
        if word in found:
            return found
        await asyncio.sleep(0.05)
        if waited % 20 == 0:
            await collected(agent, "Are you there?")
    raise AssertionError("nothing was extracted")


def fact(number: int, *, pinned: bool = False) -> Fact:
    return Fact(
        id=FactId(f"{number:024x}"),
        type="config",
        content=f"statement {number}",
        at=float(number),
        trust="high",
        pinned=pinned,
    )


def test_what_is_added_is_shown_found_explained_and_forgotten(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    assert "Nothing is known yet" in told(harness.say("/memory show"))
    added = told(harness.say(f"/memory add {PORT}"))
    assert PORT in added
    other = told(harness.say("/memory add I prefer tabs over spaces"))
    shown = told(harness.say("/memory"))
    assert PORT in shown
    assert "tabs" in shown
    assert "said by you, 2026-03-11" in shown
    found = told(harness.say("/memory search staging port"))
    assert PORT in found
    assert "tabs" not in found
    assert "No fact holds" in told(harness.say("/memory search submarine"))
    assert "rests on no message" in told(harness.say(f"/memory why {id_in(found)}"))
    assert "Forgotten for good: 1 fact." in told(harness.say(f"/memory forget {id_in(added)}"))
    assert "8443" not in told(harness.say("/memory show"))
    assert id_in(told(harness.say("/memory show"))) == id_in(other)[:8]
    assert "was forgotten" in told(harness.say(f"/memory why {id_in(added)}"))
    assert not harness.model.requests  # type: ignore[attr-defined]


def test_another_value_replaces_and_the_same_is_known(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    first = id_in(told(harness.say(f"/memory add {PORT}")))
    assert "known already" in told(harness.say(f"/memory add {PORT}."))
    harness.clock.at += 60
    changed = told(harness.say("/memory add The staging API listens on port 9443"))
    assert f"before: {PORT}" in changed
    shown = told(harness.say("/memory show"))
    assert "9443" in shown
    assert "8443" not in shown
    forgotten = told(harness.say(f"/memory forget {id_in(changed)}"))
    assert first in forgotten, "the version before stays, and is named"


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
        ("/memory frobnicate", "nothing /memory does"),
        ("/memory add", "is missing"),
        ("/memory forget   ", "is missing"),
        ("/memory forget 00", "no fact's id begins with"),
        ("/memory why zz", "no fact's id begins with"),
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
            assert "- user, " in why
            assert "this session" in why
            return told(await collected(agent, f"/memory forget {id_in(found)}"))

    with reader_server() as server:
        for name, value in reader_variables(server).items():
            monkeypatch.setenv(name, value)
        answer = asyncio.run(work())
    assert "1 message stays" in answer
    (command,) = re.findall(r"recollect (memory forget .*)", answer)
    assert "port 8443" in "".join(one.read_text() for one in tmp_path.rglob("*.jsonl"))
    done = CliRunner().invoke(main, [*shlex.split(command), "--yes"])
    assert done.exit_code == 0, done.output
    assert "port 8443" not in "".join(one.read_text() for one in tmp_path.rglob("*.jsonl"))


def test_a_path_is_no_command() -> None:
    assert isinstance(read_command("/memory/notes.md is empty"), NoCommand)
    assert read_command("/memory add x y") == Command(name="memory", argument="add x y")
    assert recordable(Command(name="memory")) == "show"


def test_many_facts_are_cut_to_pinned_ones_and_the_newest() -> None:
    facts = [fact(900, pinned=True), *map(fact, range(MOST_SHOWN + 10))]
    text = facts_text(facts, facts, searched=False, elsewhere="recollect facts list")
    lines = text.splitlines()
    assert len(lines) == MOST_SHOWN + 1
    assert lines[0].startswith("* ")
    assert f"statement {MOST_SHOWN + 9} " in lines[-2]
    assert "11 older ones" in lines[-1]
    shown = [line[2:].split("  ")[0] for line in lines[:-1]]
    assert all(sum(one.id.startswith(id_) for one in facts) == 1 for id_ in shown)


@given(st.text())
def test_what_a_fact_says_is_one_line_that_moves_nothing(text: str) -> None:
    assert one_line(text + "\x1b[2J\n\u202e").isprintable()


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
    assert "MEMORY.md: 1 sections" in shown
