"""Commands that look at a session or change how it goes on; none of them is said to a model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import QUIET, AgentHarness, collected, ended, of

from recollect.agent.answers import help_text
from recollect.agent.commands import COMMANDS, Command, NoCommand, read_command
from recollect.agent.events import Told
from recollect.agent.loop import Agent
from recollect.agent.opening import open_agent
from recollect.core.formats.json_text import encode
from recollect.testing.scripted_model import ScriptedModel

TALK = tuple(f"{number}. tell me more of harbour {number} " * 30 for number in range(5))
SETTINGS: dict[str, Any] = {
    "window_tokens": 8_000,
    "compaction.keep_recent_tokens": 300,
    "compaction.flush.enabled": False,
    "compaction.audit": True,
}
PORT = "The API listens on port 8443, see /etc/api.toml"


def talking(folder: Path, replies: int = 12, **settings: Any) -> AgentHarness:
    model = ScriptedModel(["fine"] * replies)
    return AgentHarness(folder, model, settings={**SETTINGS, **settings})


def told(harness: AgentHarness, *lines: str) -> str:
    return str(of(harness.say(*lines), Told)[-1].text)


def test_help_names_every_command_and_every_one_is_read() -> None:
    for name, (usage, _) in COMMANDS.items():
        assert usage.startswith(f"/{name}")
        assert isinstance(read_command(f"/{name}"), Command)
        assert usage in help_text()
    assert all(f"/{name}" in help_text() for name in ("show", "exit", "quit"))
    assert isinstance(read_command("/frobnicate"), NoCommand)


def test_an_unknown_word_with_a_slash_is_said_to_the_model(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    assert ended(harness.say("/frobnicate the harbour")) == "done"
    assert "/frobnicate" in str(harness.model.requests[-1])  # type: ignore[attr-defined]
    before = len(harness.entries())
    assert "Did you mean /status?" in told(harness, "/stauts")
    assert len(harness.entries()) == before, "neither sent nor recorded"


def test_why_tells_what_became_of_a_message(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    assert "sent unchanged" in told(harness, *TALK, "/why")
    assert "kept, " in told(harness, "again", "/why 1")
    answer = told(harness, "/compact", "/why harbour 0")
    assert "summarised" in answer
    assert "compaction 1" in answer
    assert "messages shown as a summary" in told(harness, "/why")
    assert "there is no message 99" in told(harness, "/why 99")
    assert "holds these words" in told(harness, "/why submarine")
    words = (tmp_path / "session-1.jsonl").read_text()
    assert "submarine" not in words, "what is looked for is not kept"


def test_receipt_and_replay_show_what_was_kept_of_the_session(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    assert "No compaction" in told(harness, "/receipt")
    harness.say(PORT, *TALK, "/compact")
    receipt = told(harness, "/receipt")
    assert "Compaction 1 of 1  session-1" in receipt
    assert "there is no compaction 7" in told(harness, "/receipt 7")
    assert "named by its number" in told(harness, "/receipt last")
    listed = told(harness, "/replay")
    assert PORT in listed
    shown = told(harness, "/replay 1")
    assert ": exact" in shown
    sent = harness.model.requests[0]  # type: ignore[attr-defined]
    assert f"{len(encode(dict(sent))):,} bytes" in shown
    assert f"1 user: {PORT}" in shown
    assert "cannot be shown" in told(harness, "/replay 99")


def test_memory_sees_facts_files_and_the_archive(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    harness.say(PORT)
    shown = told(harness, "/memory add I prefer tabs", "/memory show")
    assert "I prefer tabs" in shown
    assert "2 messages of 1 session" in shown
    found = told(harness, "/memory search port")
    assert PORT in found
    (segment,) = {word.strip("()") for word in found.split() if len(word.strip("()")) == 32}
    forget = told(harness, f"/memory forget {segment}")
    assert f"recollect memory forget --segment {segment}" in forget
    assert "tabs" in told(harness, "/facts")
    assert "tabs" not in told(harness, "/facts submarine")


def test_a_session_is_named_listed_and_branched(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    assert "called Harbour talk" in told(harness, "one", "two", "/name Harbour\x07 talk")
    assert "Harbour talk" in told(harness, "/sessions")
    assert "(Harbour talk)" in told(harness, "/status")
    assert "2 two" in told(harness, "/branch")
    assert "goes on before message 2" in told(harness, "/branch 2")
    harness.say("three")
    request = str(harness.model.requests[-1])  # type: ignore[attr-defined]
    assert "three" in request
    assert "two" not in request
    assert "two" in (tmp_path / "session-1.jsonl").read_text(), "it stays on its own branch"
    assert "from 1 to 2" in told(harness, "/branch 9")


def test_a_branch_before_a_compaction_shows_what_it_had_replaced(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    harness.say(*TALK, "/compact", "/branch 2", "other way")
    request = str(harness.model.requests[-1])  # type: ignore[attr-defined]
    assert "harbour 0" in request
    assert "harbour 1" not in request
    assert "other way" in request


def test_another_session_is_resumed_under_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    model = ScriptedModel(["a"] * 5)

    async def talk(*lines: str) -> list[str]:
        answers: list[str] = []
        async with open_agent(tmp_path, model=model, settings=QUIET) as agent:
            for line in lines:
                answers += [one.text for one in of(await collected(agent, line), Told)]
            answers.append(agent.conversation.session_id)
        return answers

    *_, first = asyncio.run(talk("the blue door"))
    *_, second = asyncio.run(talk("/new", "the red door"))
    assert second != first
    *_, third = asyncio.run(talk(f"/resume {first[:8]}", "which door?"))
    assert third == first
    assert "blue" in str(model.requests[-1])
    assert "red door" not in str(model.requests[-1])
    *_, fourth = asyncio.run(talk("/resume nobody"))
    assert fourth == first, "the key goes on with it in the next process, too"


def test_a_model_is_shown_and_changed_for_the_next_turns(tmp_path: Path) -> None:
    first, second = ScriptedModel(["a"], name="small"), ScriptedModel(["b"], name="large")
    harness = AgentHarness(tmp_path, first, choose_model=lambda _name: second)

    async def work(agent: Agent) -> list[str]:
        lines = ("/model", "hi", "/model large", "on", "/status")
        events = [event for line in lines for event in await collected(agent, line)]
        return [one.text for one in of(events, Told)]

    shown, changed, status = harness.run(work)
    assert "model small" in shown
    assert "large answers from now on" in changed
    assert "model large" in status
    assert second.requests[-1]["model"] == "large"
    kept = [entry for entry in harness.entries() if entry["type"] == "model_change"]
    assert kept[0]["modelId"] == "large"
    assert "has chosen the model" in told(talking(tmp_path), "/model other")


def test_a_session_goes_on_with_the_model_that_was_chosen_in_it(tmp_path: Path) -> None:
    models = {name: ScriptedModel(["a"] * 9, name=name) for name in ("small", "large")}
    harness = AgentHarness(tmp_path, models["small"], choose_model=lambda name: models[name])

    def answering(*lines: str) -> str:
        async def work(agent: Agent) -> str:
            for line in lines:
                await collected(agent, line)
            return agent.model_name

        return str(harness.run(work))

    assert answering("hi", "/model large") == "large"
    assert answering("again") == "large", "after a restart"
    assert models["large"].requests[-1]["model"] == "large"
    assert answering("/new") == "large", "a new session begins with the one that answers"
    assert answering("/model small") == "small"
    assert answering() == "small"
    assert answering("one", "/model large", "/branch 1") == "large"
    assert answering() == "large", "a branch does not change who answers"


def test_a_model_of_another_wire_is_refused(tmp_path: Path) -> None:
    other = ScriptedModel([], name="other", format="openai-chat")
    harness = AgentHarness(tmp_path, ScriptedModel(["a"]), choose_model=lambda _name: other)
    assert "another way" in told(harness, "/model other")
