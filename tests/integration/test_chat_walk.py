"""A walk through the chat in a real terminal: every command typed, every memory tool called.

In tmux where it is installed, as people who work over ssh run it; else in a terminal of its own."""

import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from tests.acceptance.recollect_cli import PROGRAM, environment
from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.terminal import Terminal

from recollect.agent.commands import COMMANDS
from recollect.testing.scripted_model import Says, ScriptedCall
from recollect.tools import ToolName

MODELS = {"/v1/models": {"data": [{"id": "scripted"}]}}
TOOLS: tuple[ToolName, ...] = (
    *("memory_store", "memory_search", "memory_get", "memory_recall", "memory_forget"),
)
COLUMNS, ROWS = 100, 40
NOTES = "The dough rests for an hour, then it is folded, and the stone is heated meanwhile. "


class Walk:
    """A chat in a terminal; `say` gives what was answered."""

    def __init__(self, terminal: Terminal, socket: str | None) -> None:
        self.terminal = terminal
        self._socket = socket
        self.typed: list[str] = []

    def say(self, text: str, *, key: str = "") -> str:
        """Type it, answer a question where one comes, and give what was answered."""
        self.typed.append(text)
        self.terminal.send(f"{text}\r")
        if key:
            self.terminal.wait_for("y / n")
            self.terminal.send(f"{key}\r")
        self.terminal.wait_for_that(lambda: len(self._prompts()) > len(self.typed))
        first, last = self._prompts()[-2:]
        return "\n".join(self.lines()[first + 1 : last])

    def _prompts(self) -> list[int]:
        return [at for at, line in enumerate(self.lines()) if line.startswith("›")]

    def lines(self) -> list[str]:
        """The scrollback and the screen, without empty rows at the end."""
        lines = self.terminal.all_lines() if self._socket is None else _captured(self._socket)
        while lines and not lines[-1].strip():
            lines.pop()
        return lines


def _captured(socket: str) -> list[str]:
    command = ["tmux", "-L", socket, "capture-pane", "-p", "-J", "-S", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line.rstrip() for line in done.stdout.split("\n")]


@contextmanager
def walking(home: Path, url: str) -> Iterator[Walk]:
    """A chat in tmux, which ends with the block."""
    workspace = home / "work"
    workspace.mkdir()
    (workspace / "AGENTS.md").write_text("# How to work here\n\nBake bread.\n")
    variables = environment(home)
    variables.pop("COLUMNS")
    options = ("--provider", url, "--window", "16k", "--no-download-model")
    command = [*PROGRAM, "chat", str(workspace), *options]
    socket = f"recollect-{uuid.uuid4().hex[:8]}" if shutil.which("tmux") else None
    if socket is not None:
        command = ["tmux", "-L", socket, "-f", "/dev/null", "new-session", *command]
    try:
        with Terminal(command, env=variables, columns=COLUMNS, rows=ROWS) as terminal:
            terminal.wait_for("›")
            yield Walk(terminal, socket)
    finally:
        if socket is not None:
            subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True)


def answer(asked: Asked) -> Step:
    """A model that calls the tool it is told to call, with the id that the last answer showed."""
    if not asked.body.get("stream"):
        return Says(text="## Goal\nBread.\n\n## Decisions\nThe oven is at 240 degrees.")
    messages = asked.body["messages"]
    last = messages[-1]
    words = str(last["content"])
    if last["role"] == "tool":
        return Says(text="That is what memory says.")
    call = re.match(r"call (\w+)", words)
    if call is None:
        return Says(text="Understood.")
    arguments: dict[str, dict[str, Any]] = {
        "memory_store": {
            "text": "The oven is at 240 degrees.",
            "kind": "fact",
            "type": "decision",
            "subject": "oven",
        },
        "memory_search": {"query": "how warm is the oven"},
        "memory_recall": {"about": "oven"},
        "memory_get": {"id": _newest_id(messages)},
        "memory_forget": {"ids": [_newest_id(messages)]},
    }
    given = arguments[call[1]]
    return Says(calls=(ScriptedCall(id=f"c{len(messages)}", name=call[1], input=given),))


def _newest_id(messages: list[dict[str, Any]]) -> str:
    for message in reversed(messages):
        if message["role"] == "tool":
            found = re.search(r"\[(\S+)\] ", str(message["content"]))
            if found:
                return found[1]
    return ""


def test_every_command_and_every_memory_tool(tmp_path: Path) -> None:
    with ModelServer(answer, pages=MODELS) as server, walking(tmp_path, server.url) as walk:

        def says(text: str, *expected: str, key: str = "") -> str:
            told = walk.say(text, key=key)
            for one in expected:
                assert re.search(one, told), f"{text}: no {one!r} in\n{told}"
            return told

        # What the model does with memory
        called: dict[ToolName, str] = {}
        for name in TOOLS:
            asks = "y" if name == "memory_forget" else ""
            says(f"call {name}", name, "That is what memory says", key=asks)
            called[name] = _newest_result(server)
        assert {*called} == {*get_args(ToolName)}, "every tool was called"
        assert "Stored:" in called["memory_store"]
        assert "240 degrees" in called["memory_search"]
        assert "240 degrees" in called["memory_get"]
        assert "decision (assistant" in called["memory_recall"]
        assert "Forgotten permanently: 1 facts" in called["memory_forget"]
        for number in range(13):
            says(f"note {number}: {NOTES * 28}", "Understood")

        # What the person asks
        says("/help", *(f"/{name}" for name in COMMANDS))
        sent = says(
            "/status",
            "last request: [0-9,]+ tokens, [0-9]+% of the window",
            *("tool schemas", "history: [0-9]+", "workspace files: [0-9]+"),
        )
        says("/context list", "tool schemas", "history")
        says("/why", "No failures")
        says("/why note 3", "kept: ")
        says("/memory add The stone is 3 cm thick.", "Stored")
        says("/memory show", "3 cm thick", "Stored: [0-9]+ messages")
        says("/memory search stone", "3 cm thick")
        says("/compact the oven", "Compacted: [0-9]+ messages")
        after = says("/status", "next request", "1 compactions in effect", "summary: [0-9]+ tokens")
        assert _counted(after) < _counted(sent)
        says("/receipt", "in the summary|in summary")
        says("/undo", "is undone")
        assert _counted(says("/status", "history")) > _counted(after)
        says("/model", "model scripted")
        says("/model other", "other answers from now on")
        says("who are you now?", "Understood")
        assert server.asked[-1].body["model"] == "other"
        says("/name Bread", "called Bread")
        says("/export talk.md", "must end in .jsonl")
        says("/export talk.jsonl", "Written:")  # a long path begins on the next line
        assert "who are you now?" in (tmp_path / "work" / "talk.jsonl").read_text()
        says("/new", "A new session has begun")
        says("and on", "Understood")
        assert "who are you now?" not in server.asked[-1].content.decode()
        says("/reset", "A new session has begun")
        says("/show 1", "text: The oven is at 240 degrees")
        walk.terminal.send("/exit\r")
        walk.terminal.wait_until_ended()

        commands = {text[1:].split()[0] for text in walk.typed if text.startswith("/")}
        assert commands - {"show"} == COMMANDS.keys(), "every command was typed"


def _counted(context: str) -> int:
    found = re.search(r"by the counter: ([\d,]+) tokens", context)
    assert found is not None, context
    return int(found[1].replace(",", ""))


def _newest_result(server: ModelServer) -> str:
    messages = [one for one in server.asked if one.wire][-1].body["messages"]
    return next(str(one["content"]) for one in reversed(messages) if one["role"] == "tool")
