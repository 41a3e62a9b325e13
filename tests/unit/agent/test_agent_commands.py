"""Commands that look at a session or change how it goes on; none of them is said to a model."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, collected, of

from recollect.agent.events import Told
from recollect.agent.loop import Agent
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


@pytest.mark.parametrize(
    "line",
    [
        "/memroy add my PIN is 4711",
        "/facts",
        "/sessions",
        "/frobnicate my PIN is 4711",
        "/new 4711",
    ],
)
def test_an_unknown_command_is_neither_sent_nor_recorded(tmp_path: Path, line: str) -> None:
    harness = talking(tmp_path)
    harness.say("hello")
    before, requests = len(harness.entries()), len(harness.model.requests)  # type: ignore[attr-defined]
    assert "put a space before it" in told(harness, line)
    assert len(harness.entries()) == before
    assert len(harness.model.requests) == requests  # type: ignore[attr-defined]
    assert b"4711" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.*"))


def test_reset_begins_a_session_as_new_does(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    assert "A new session has begun" in told(harness, "hello", "/reset")
    assert harness.sessions == 2
    assert (tmp_path / "session-1.jsonl").exists()


def test_context_lists_what_each_file_takes_and_which_are_truncated(tmp_path: Path) -> None:
    harness = talking(tmp_path, **{"workspace.max_chars": 300})
    (harness.root / "AGENTS.md").write_text("# Rules\n" + "Be brief. " * 200)
    (harness.root / "USER.md").write_text("# You\nOtto")
    harness.say("hello")
    listed = told(harness, "/context list")
    assert "AGENTS.md        2,008 characters, 300 sent, truncated\n" in listed
    assert "USER.md          10 characters, 10 sent" in listed
    assert "tool schemas" in listed
    assert told(harness, "/context") == listed
    detail = told(harness, "/context detail")
    assert "300 sent, truncated, " in detail
    assert "list or /context detail" in told(harness, "/context everything")
    sizes = {
        line.split("  ")[1].strip(): int(found[1].replace(",", ""))
        for line in detail.splitlines()[1:]
        if (found := re.search(r"([\d,]+) tokens", line))
    }
    files = sizes["AGENTS.md"] + sizes["USER.md"]
    assert files == sizes["workspace files"]


def test_why_tells_what_became_of_a_message(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    assert "sent unchanged" in told(harness, *TALK, "/why")
    assert "kept: " in told(harness, "again", "/why 1")
    answer = told(harness, "/compact", "/why harbour 0")
    assert "summarized" in answer
    assert "compaction 1" in answer
    assert "messages shown as a summary" in told(harness, "/why")
    assert "there is no message 99" in told(harness, "/why 99")
    assert "contains these words" in told(harness, "/why submarine")
    words = (tmp_path / "session-1.jsonl").read_text()
    assert "submarine" not in words, "what is looked for is not kept"


def test_receipt_shows_what_was_kept_of_the_session(tmp_path: Path) -> None:
    harness = talking(tmp_path)
    assert "no stored compaction" in told(harness, "/receipt")
    harness.say(PORT, *TALK, "/compact")
    receipt = told(harness, "/receipt")
    assert "Compaction 1 of 1  session-1" in receipt
    assert "there is no compaction 7" in told(harness, "/receipt 7")
    assert "the number of a compaction" in told(harness, "/receipt last")


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
    assert "has chosen the model" in told(talking(tmp_path), "/model other")


def test_a_model_of_another_wire_is_refused(tmp_path: Path) -> None:
    other = ScriptedModel([], name="other", format="openai-chat")
    harness = AgentHarness(tmp_path, ScriptedModel(["a"]), choose_model=lambda _name: other)
    assert "another wire format" in told(harness, "/model other")
