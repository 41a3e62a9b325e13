"""`/memory`: the user sees what is known, adds to it, and takes from it; no model is told."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, collected, ended, of

from recollect.agent.events import AgentEvent, Told
from recollect.agent.loop import Agent
from recollect.agent.opening import open_agent
from recollect.hosts.tools.handler import ForgetRequest
from recollect.testing.scripted_model import ScriptedModel

PORT = "The staging API listens on port 8443"
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


def test_what_is_added_is_shown_and_found(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    assert "No fact is known" in told(harness.say("/memory show"))
    added = told(harness.say(f"/memory add {PORT}"))
    assert PORT in added
    harness.say("/memory add I prefer tabs over spaces")
    shown = told(harness.say("/memory"))
    assert PORT in shown
    assert "tabs" in shown
    assert "2026-03-11" in shown
    found = told(harness.say("/memory search staging port"))
    assert PORT in found
    assert "tabs" not in found
    assert "Nothing in memory" in told(harness.say("/memory search submarine"))
    assert not harness.model.requests  # type: ignore[attr-defined]


def test_what_is_added_is_known_in_the_next_session_too(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    harness.say(f"/memory add {PORT}", "/new")
    assert PORT in told(harness.say("/memory show"))


def test_the_transcript_keeps_what_was_done_but_no_words_of_a_fact(tmp_path: Path) -> None:
    harness = silent(tmp_path)
    harness.say(f"/memory add {PORT}", "/memory search 8443", "/memory frobnicate 8443")
    kept = [entry["data"] for entry in harness.entries() if entry["type"] == "custom"]
    assert [one["command"] for one in kept] == ["memory"] * 3
    assert [one.get("argument") for one in kept] == ["add", "search", None]
    assert "port 8443" not in (tmp_path / "session-1.jsonl").read_text()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("/memory frobnicate", "Use /memory show"),
        ("/memory add", "Use /memory show"),
        ("/memory forget", "Use /memory show"),
        ("/memory forget 00", "no message or fact with the id '00'"),
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
        book = await agent._engine.facts()
        await book.forget(await book.order_to_forget([(await book.find(id_)).id]))
        await collected(agent, "Thanks, that is all.")
        assert "Which port does" in str(model.requests[-1])
        assert "8443" not in str(model.requests[-1])

    harness.run(work)


async def test_memory_files_are_shown_and_found_before_the_first_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "MEMORY.md").write_text("# Orchard\nThe quince trees are pruned in February.\n")
    settings = {"recall.embedder": "none"}
    async with open_agent(workspace, model=ScriptedModel([]), settings=settings) as agent:
        found = told(await collected(agent, "/memory search quince trees"))
    async with open_agent(workspace, model=ScriptedModel([]), settings=settings) as agent:
        shown = told(await collected(agent, "/memory show"))
    assert "pruned in February" in found
    assert "1 memory files. " in shown
    assert shown.endswith("\nMEMORY.md: 1 section")


async def test_a_line_that_was_just_added_to_a_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    (workspace / "memory").mkdir(parents=True)
    note = workspace / "memory" / "2026-03-11.md"
    settings = {"recall.embedder": "none"}
    async with open_agent(workspace, model=ScriptedModel([]), settings=settings) as agent:
        assert "Nothing in memory" in told(await collected(agent, "/memory search walrus"))
        for number in range(3):
            note.write_text(f"The walrus code is {number}-Q.\n")
            assert f"{number}-Q" in told(await collected(agent, "/memory search walrus code"))
            assert f"{note.name}: 1 section" in told(await collected(agent, "/memory show"))
        note.unlink()
        assert "Nothing in memory" in told(await collected(agent, "/memory search walrus"))


@pytest.mark.parametrize("allowed", [True, False, None])
def test_the_user_forgets_a_fact_and_a_message_by_their_ids(
    tmp_path: Path, allowed: bool | None
) -> None:
    asked: list[str] = []

    def confirm(wanted: ForgetRequest) -> bool:
        asked.append(str(wanted))
        return allowed is True

    model = ScriptedModel(["Noted."] * 3, name="gpt-4.1")
    given = {} if allowed is None else {"confirm_forget": confirm}
    harness = AgentHarness(tmp_path, model, settings=LOOKING, **given)

    async def work(agent: Agent) -> tuple[str, str]:
        fact = id_in(told(await collected(agent, f"/memory add {PORT}")))
        await collected(agent, "The walrus code is 4411-Q.")
        listed = told(await collected(agent, "/memory search walrus"))
        (message,) = re.findall(r"\[(\d+-\w+)\]", listed)
        answer = told(await collected(agent, f"/memory forget {fact} [{message}]"))
        return answer, told(await collected(agent, "/memory search walrus staging port"))

    answer, found = harness.run(work)
    assert [PORT in text and "4411-Q" in text for text in asked] == [True] * (allowed is not None)
    if allowed:
        assert "Forgotten permanently: 1 facts" in answer
        assert "recollect memory forget" in answer
        assert "Nothing in memory" in found
    else:
        assert "nothing was forgotten" in answer
        assert PORT in found
        assert "4411-Q" in found
    assert "4411-Q" not in str([one for one in harness.entries() if one["type"] == "custom"])
