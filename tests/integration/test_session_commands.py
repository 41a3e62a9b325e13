"""The chat's commands on a session, from a shell: they answer as the chat does."""

import asyncio
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.acceptance.recollect_cli import PROGRAM
from tests.harness.model_server import Asked, ModelServer
from tests.harness.terminal import Terminal
from tests.unit.agent.agent_harness import notes

from recollect.adapters.session.files import transcript_file
from recollect.adapters.session.transcript import open_transcript
from recollect.agent.chat.opening import ChatOrder, choose_settings
from recollect.agent.chat.plain import lines_from, talk_json
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
        settings = choose_settings(provider=self.server.url, model=None, window_tokens=16_000)
        out = io.StringIO()
        chat = ChatOrder(workspace=self.path, settings=settings, **order)
        asyncio.run(talk_json(chat, lines_from(lines), out))
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def ask(self, command: str) -> dict[str, Any]:
        """What a command of the chat answers, asked from a shell."""
        model = ["--provider", self.server.url, "--window", "16k"]
        done = CliRunner().invoke(main, ["chat", str(self.path), "-m", command, "--json", *model])
        assert done.exit_code == 0, done.output
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return next(event["data"] for event in events if event["type"] == "told")

    def json(self, *arguments: str) -> dict[str, Any]:
        done = CliRunner().invoke(main, [*arguments, "--space", str(self.path), "--json"])
        assert done.exit_code == 0, done.output
        told: dict[str, Any] = json.loads(done.stdout)
        return told


@pytest.fixture
def folder(tmp_path: Path, server: ModelServer) -> Folder:
    path = tmp_path / "work"
    path.mkdir()
    return Folder(path, server)


def test_a_shell_asks_the_chats_commands(folder: Folder) -> None:
    folder.chat(*TALK[:2])
    told = next(event["data"] for event in folder.chat("/status") if event["type"] == "told")
    status = folder.ask("/status")
    assert status["request"] == told["request"], "the next request, to a token"
    assert (status["messages"], status["model"]) == (4, "scripted")
    done = CliRunner().invoke(
        main, ["chat", str(folder.path), "-m", "/why bread", "--provider", folder.server.url]
    )
    assert "Question 1" in done.output and "kept" in done.output


def test_a_compaction_of_a_chat_is_shown_and_undone_by_key_and_id(folder: Folder) -> None:
    folder.chat(*TALK, "/compact look after numbers")
    assert folder.ask("/status")["compactions"] == 1
    assert folder.json("receipt")["number"] == 1, "the main session's"
    (line,) = sessions_of(str(folder.path))
    assert folder.json("replay", line.session_id[:8], "--list")["session"] == line.session_id
    assert '"type":"compaction"' in transcript_file(str(folder.path), line.session_id).read_text()
    done = CliRunner().invoke(main, ["undo", "--space", str(folder.path)])
    assert done.exit_code == 0, done.output
    refused = CliRunner().invoke(main, ["undo", "--space", str(folder.path)])
    assert refused.exit_code == 1
    assert "has no compaction to undo" in refused.output


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_at_a_terminal_undo_and_redact_ask_unless_told_yes(
    folder: Folder, options: tuple[str, ...]
) -> None:
    folder.chat(*TALK, "/compact look after numbers")
    space = ("--space", str(folder.path), *options)

    def run(*command: str, answer: str) -> tuple[int, str]:
        with Terminal([*PROGRAM, *command, *space], env=os.environ) as terminal:
            if not options:
                terminal.wait_for("[y/N]")
                terminal.send(f"{answer}\r")
            code = terminal.wait_until_ended()
            return code, "\n".join(terminal.all_lines())

    if not options:
        assert run("undo", answer="n")[0] == 1
        assert folder.ask("/status")["compactions"] == 1
        assert run("redact", "--apply", answer="n")[0] == 1
    code, shown = run("undo", answer="y")
    assert code == 0, shown
    assert folder.ask("/status")["compactions"] == 0
    assert run("redact", "--apply", answer="y")[0] == 0


def test_sessions_are_listed_named_and_resumed(folder: Folder) -> None:
    folder.chat("the blue door", "the red door", "/name Harbour talk")
    folder.chat("the green door", starts_new=True)
    first, second = folder.json("memory", "sessions")["sessions"]
    assert (first["name"], first["keys"]) == ("Harbour talk", [])
    assert (second["name"], second["keys"]) == ("the green door", ["main"]), "its first prompt"
    assert first["segments"] > second["segments"] >= 2
    folder.chat("the white door", resume="Harbour talk")
    sent = [asked.body["messages"] for asked in folder.server.asked if asked.wire][-1]
    said = [one["content"] for one in sent if one["role"] == "user"]
    assert [text for text in said if not text.startswith("<recalled-context")] == [
        *("the blue door", "the red door", "the white door")
    ]


def test_a_session_that_a_chat_has_open_is_refused(folder: Folder) -> None:
    folder.chat("hello")
    (line,) = sessions_of(str(folder.path))
    path = transcript_file(str(folder.path), line.session_id)
    with open_transcript(path, session_id=path.stem, redaction=Redaction()):
        model = ["--provider", folder.server.url]
        done = CliRunner().invoke(main, ["chat", str(folder.path), "-m", "/status", *model])
        assert done.exit_code == 2
        assert "open in another chat" in done.output
        assert folder.json("memory", "sessions")["sessions"]
