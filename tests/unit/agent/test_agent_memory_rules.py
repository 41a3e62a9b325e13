"""Where things are written down: the rules of a new workspace, and what a flush turn may write."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, ended, filling, of
from tests.unit.agent.test_agent_window import FLUSHING, TALK, TODAY, WINDOW, note

from recollect.adapters.session.workspace import create_missing_files
from recollect.agent.conversation import Shape
from recollect.agent.events import Flushed, FlushResult
from recollect.agent.flush import FlushTurn
from recollect.core.formats.translate import Speaker
from recollect.system.config import build
from recollect.testing.scripted_model import Says, ScriptedModel

RULES = (
    ('Somebody says "remember this"', TODAY, "The gate code changes on Friday."),
    ("The user prefers something", "USER.md", "Prefers answers in German."),
    ("You learned how work goes better", "AGENTS.md", "Run the linter before a commit."),
    ("of a tool, a machine", "TOOLS.md", "The lathe needs five minutes to warm up."),
    ("A fact will stay true", "memory.md", "The archive is in cellar three."),
)


@pytest.mark.parametrize(("rule", "path", "text"), RULES)
def test_a_model_that_follows_the_rule_finds_it_again(
    tmp_path: Path, rule: str, path: str, text: str
) -> None:
    """The rule stands in the prompt, and what it has written stands in every later prompt."""
    model = ScriptedModel(["hello", Says(calls=[note(path, text)]), "Noted.", "later"])
    harness = AgentHarness(tmp_path, model)
    create_missing_files(harness.root)
    events = harness.say("hi", f"about this: {text}", "and now?")
    assert ended(events) == "done"
    asked, later = str(model.requests[0]["system"]), str(model.requests[-1]["system"])
    assert rule in asked
    assert Path(path).name.replace("2026-03-11", "YYYY-MM-DD") in asked
    assert text not in asked
    assert text in later


@pytest.mark.parametrize("path", [TODAY, "memory.md", "USER.md"])
def test_the_flush_turn_adds_to_what_lasts(tmp_path: Path, path: str) -> None:
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    (tmp_path / "workspace" / path).write_text("What stood there.\n")
    near = filling("near", int(WINDOW * 0.75) - 100)
    model = ScriptedModel(["fine", near, Says(calls=[note(path, "- It is blue.")]), "NO_REPLY"])
    harness = AgentHarness(tmp_path, model, settings=FLUSHING)
    (result,) = [one.result for one in of(harness.say(TALK[0], TALK[1]), Flushed)]
    assert result.outcome == "written"
    assert result.written == ((path, 15),)
    assert result.refused == ()
    assert (harness.root / path).read_text() == "What stood there.\n\n- It is blue.\n"
    asked = str(model.requests[-1]["messages"])
    assert f"- {path}: " in asked, "the model is told what it may add to"
    (entry,) = [one for one in harness.entries() if one.get("customType") == "recollect.flush"]
    assert entry["data"]["written"] == {path: 15}


@pytest.mark.parametrize(
    "path", ["AGENTS.md", "TOOLS.md", "SOUL.md", "notes/memory.md", "../memory.md", "/etc/USER.md"]
)
def test_what_the_flush_turn_may_not_write_is_refused_and_told(tmp_path: Path, path: str) -> None:
    (tmp_path / "AGENTS.md").write_text("rules")
    result = flushed(tmp_path, note(path, "- be evil"))
    assert result.outcome == "nothing"
    assert result.refused == (f"{path} (not a file for notes)",)
    assert "not a file for notes" in result.reason
    assert (tmp_path / "AGENTS.md").read_text() == "rules"
    assert [one.name for one in tmp_path.iterdir()] == ["AGENTS.md"]


def test_what_a_file_says_already_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "memory.md").write_text("# Facts\n- The archive is in cellar three.\n")
    known = flushed(tmp_path, note("memory.md", "- The archive is in cellar three."))
    assert known.outcome == "nothing"
    more = "- The archive is in cellar three.\n- The key hangs beside it."
    flushed(tmp_path, note("memory.md", more))
    lines = (tmp_path / "memory.md").read_text().split("\n")
    assert lines.count("- The archive is in cellar three.") == 1
    assert lines.count("- The key hangs beside it.") == 1


def test_the_long_term_notes_keep_the_name_they_have(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("- one\n")
    assert flushed(tmp_path, note("memory.md", "- two")).written[0][0] == "MEMORY.md"
    assert (tmp_path / "MEMORY.md").read_text() == "- one\n\n- two\n"


def test_a_link_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside.md", tmp_path / "inside"
    outside.write_text("theirs\n")
    inside.mkdir()
    (inside / "USER.md").symlink_to(outside)
    result = flushed(inside, note("USER.md", "- mine"))
    assert result.outcome != "written"
    assert outside.read_text() == "theirs\n"
    os.mkfifo(inside / "memory.md")
    assert flushed(inside, note("memory.md", "- mine")).outcome != "written"


def flushed(root: Path, call: Any) -> FlushResult:
    settings = build({})
    model = ScriptedModel([Says(calls=[call]), "NO_REPLY"])
    sent = {"model": "scripted", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    shape = Shape(speaker=Speaker(format="anthropic", model="scripted"), system="", tools=())
    reply = {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}
    turn = FlushTurn(last_request=sent, since=(reply,), shape=shape, root=root, now=1_773_230_400.0)
    return asyncio.run(turn.run(model, settings))
