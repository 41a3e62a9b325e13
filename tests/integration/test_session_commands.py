"""The chat's commands on a session, from a shell: they answer as the chat does."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.harness.model_server import Asked, ModelServer
from tests.unit.agent.agent_harness import notes

from recollect.adapters.session import open_transcript, transcript_file
from recollect.agent.chat.opening import ChatOrder, chosen_settings
from recollect.agent.chat.plain import given, talk_json
from recollect.cli import main
from recollect.core.values.model import Prompt, Usage
from recollect.hosts.inspect.sessions import sessions_of
from recollect.system.config.settings import Redaction
from recollect.testing.scripted_model import Says

USED = Usage(input_tokens=9_000, output_tokens=40)
TALK = [f"Question {number} " + "about bread and ovens " * 60 for number in range(1, 5)]


def answer(asked: Asked) -> Says:
    if asked.body.get("stream"):
        return Says(text="A reply about ovens. " * 40, usage=USED)
    prompt = Prompt(text=str(asked.body["messages"][-1]["content"]))
    return Says(text=notes(prompt), usage=Usage(input_tokens=700, output_tokens=50))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(answer, pages={"/v1/models": {"data": [{"id": "scripted"}]}}) as server:
        yield server


class Folder:
    """A workspace that somebody chatted in."""

    def __init__(self, path: Path, server: ModelServer) -> None:
        self.path = path
        self.server = server

    def chat(self, *lines: str, **order: Any) -> list[dict[str, Any]]:
        settings = chosen_settings(None, provider=self.server.url, model=None, window_tokens=16_000)
        out = io.StringIO()
        chat = ChatOrder(workspace=self.path, settings=settings, **order)
        asyncio.run(talk_json(chat, given(lines), out))
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def run(self, command: str, *arguments: str) -> Result:
        asks = command in ("status", "why", "compact")
        model = ["--provider", self.server.url, "--window", "16k"] if asks else []
        place = ["--space" if command == "export" else "--workspace", str(self.path)]
        return CliRunner().invoke(main, [command, *arguments, *place, *model])

    def json(self, command: str, *arguments: str) -> dict[str, Any]:
        done = self.run(command, *arguments, "--json")
        assert done.exit_code == 0, done.output
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def transcript(self) -> Path:
        line = next(line for line in sessions_of(str(self.path)) if line.key == "main")
        return transcript_file(str(self.path), line.session_id)


@pytest.fixture
def folder(tmp_path: Path, server: ModelServer) -> Folder:
    path = tmp_path / "work"
    path.mkdir()
    return Folder(path, server)


def test_looking_answers_as_the_chat_does_and_leaves_nothing_behind(folder: Folder) -> None:
    folder.chat(*TALK[:2])
    before = folder.transcript().read_bytes()
    status = folder.json("status")
    context = folder.json("status", "--detail")
    why = folder.run("why", "bread")
    assert folder.transcript().read_bytes() == before
    told = next(event["data"] for event in folder.chat("/status") if event["type"] == "told")
    for found in (status, context):
        assert found["request"] == told["request"], "the next request, to a token"
        assert found["spending"] == told["spending"]
        assert (found["messages"], found["model"]) == (4, "scripted")
    assert "16,000 tokens" in folder.run("status").output
    assert "tool schemas: raw" in folder.run("status", "--detail").output
    assert "Question 1" in why.output
    assert "kept" in why.output


def test_a_session_is_compacted_from_the_shell(folder: Folder) -> None:
    folder.chat(*TALK)
    done = folder.run("compact", "look", "after", "numbers")
    assert done.exit_code == 0, done.output
    assert "recollect undo" in done.output
    status = folder.json("status")
    assert status["compactions"] == 1
    assert status["spending"]["side_requests"] == 1
    assert '"type":"compaction"' in folder.transcript().read_text()
    assert folder.json("receipt")["number"] == 1, "the main session's, by the folder"
    id_ = folder.transcript().stem
    assert folder.json("replay", id_[:8], "--list")["session"] == id_
    folder.chat("/branch 2")
    refused = folder.run("undo")
    assert refused.exit_code == 1
    assert "has no compaction to undo" in refused.output, "it stands on the branch that was left"


def test_a_session_of_two_keys_answers_to_both(folder: Folder) -> None:
    folder.chat("the blue door", key="other", name="Doors")
    folder.chat("the red door", resume="Doors")
    (line,) = folder.json("sessions")["sessions"]
    assert line["keys"] == ["main", "other"]
    assert line["current"]
    assert (
        folder.json("status")["messages"] == folder.json("status", "--session", "other")["messages"]
    )


def test_sessions_are_listed_named_branched_and_exported(folder: Folder, tmp_path: Path) -> None:
    assert "no chat session" in folder.run("sessions").output
    folder.chat("the blue door", "the red door")
    folder.chat("the green door", new=True)
    first, second = folder.json("sessions")["sessions"]
    assert (first["key"], first["messages"]) == ("main", 2)
    assert (second["key"], second["messages"]) == ("", 4)
    old = second["session_id"]
    refused = folder.run("status", "--session", old)
    assert refused.exit_code == 2
    assert f"recollect chat --resume {old}" in refused.output
    folder.chat("/name Harbour talk", "/branch 2", resume=old[:8])
    assert "Harbour talk" in folder.run("sessions").output
    file = tmp_path / "talk.md"
    assert folder.json("export", str(file), "--session", old)["format"] == "markdown"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().startswith("# Harbour talk\n")
    assert "blue" in file.read_text()
    assert "red" not in file.read_text(), "it is on the branch that was left"
    assert folder.run("export", str(file), "--session", old).exit_code == 2, "it is there"
    assert folder.run("export", str(file), "--session", old, "--force").exit_code == 0
    whole = tmp_path / "talk.jsonl"
    folder.run("export", str(whole), "--session", old)
    assert whole.read_bytes() == transcript_file(str(folder.path), old).read_bytes()
    assert "the blue door" in folder.run("export", "-", "--session", old).output
    folder.chat("the white door", resume="Harbour talk")
    sent = [asked.body["messages"] for asked in folder.server.asked if asked.wire][-1]
    said = [one["content"] for one in sent if one["role"] == "user"]
    assert [text for text in said if not text.startswith("<recalled-context")] == [
        *("the blue door", "the white door")
    ]


def test_a_session_that_a_chat_has_open_is_asked_there(folder: Folder) -> None:
    folder.chat("hello")
    path = folder.transcript()
    with open_transcript(path, session_id=path.stem, redaction=Redaction()):
        for command in (["status"], ["why"]):
            done = folder.run(*command)
            assert done.exit_code == 2
            assert "a chat has session" in done.output
        assert folder.run("sessions").exit_code == 0
        assert "hello" in folder.run("export", "-", "--session", "main").output
