"""Claude Code with `recollect mcp` beside the gateway: every tool is called by the agent itself.

The server is started by the agent and answers; the answers come back in requests that the gateway
prepares, over the same memory. So they have to be known there as memory's own.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from recollect.core.values.recall import TOOL_OPENING
from tools.clients.agents import ClaudeCode, ClaudeTalk, until
from tools.clients.lab import Lab, Stage, staged

DECIDED: Final = "We decided that the Kestrel service listens on port 4711."
_SEARCHED: Final = "which port has Kestrel?"
_FACT: Final = "The quay master is Ada Lovelace."


def claude_with_mcp(lab: Lab, folder: Path) -> Iterator[str]:
    """Claude Code calls every tool of the server; what it was told is archived nowhere."""
    with staged(folder) as stage:
        home = ClaudeCode(lab=lab, folder=folder / "claude", url=stage.url)
        home.environment["ENABLE_TOOL_SEARCH"] = "false"
        home.extra = (
            "--mcp-config",
            json.dumps(_config(stage)),
            "--strict-mcp-config",
            "--allowedTools",
            "mcp__recollect",
        )
        with home.talk() as talk:
            talk.say(DECIDED)
            # a scripted model answers before the gateway has kept what was said
            until(lambda: _is_kept(stage.gateway.store), seconds=20)
            yield from _calls(talk)
            answers = _answers(talk)
        yield from _left_behind(stage)
        yield from (f"refused: {rule}" for rule in stage.provider.refused)
        yield from _archived(stage, answers)


def _is_kept(store: Path) -> bool:
    files = [store, store.with_name(f"{store.name}-wal")]
    return any(DECIDED.encode() in file.read_bytes() for file in files if file.exists())


def _config(stage: Stage) -> dict[str, Any]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return {
        "mcpServers": {
            "recollect": {
                "command": sys.executable,
                "args": [
                    *("-m", "recollect", "mcp", "--space", "default"),
                    *("--store", str(stage.gateway.store)),
                ],
                "env": {
                    "PYTHONPATH": paths,
                    "RECOLLECT_HOME": str(stage.gateway.home),
                    "RECOLLECT_RECALL__EMBEDDER": "none",
                    # the daemon that serves it ends soon behind it
                    "RECOLLECT_DAEMON__IDLE_SECONDS": "5",
                },
            }
        }
    }


def _calls(talk: ClaudeTalk) -> Iterator[str]:
    """Call each tool once; what is wrong with its answer."""
    for name, arguments, wanted in (
        ("memory_search", {"query": _SEARCHED}, "4711"),
        ("memory_store", {"text": _FACT}, "Stored"),
        ("memory_recall", {"about": "quay master"}, "Ada Lovelace"),
    ):
        yield from _called(talk, name, arguments, wanted)
    told = "\n".join(_answers(talk))
    message = re.search(r"\[(\d+-[0-9a-f]{4})\]", told)
    fact = re.search(r"\[([0-9a-f]{24})\]", told)
    if message is None or fact is None:
        yield "mcp: no answer holds the ids of a message and a fact"
        return
    yield from _called(talk, "memory_get", {"id": message[1]}, "Kestrel")
    yield from _called(talk, "memory_forget", {"ids": [fact[1]]}, "did not confirm")
    talk.confirms = True
    yield from _called(talk, "memory_forget", {"ids": [fact[1]]}, "Forgotten permanently")


def _called(talk: ClaudeTalk, name: str, arguments: dict[str, Any], wanted: str) -> Iterator[str]:
    before = len(_answers(talk))
    talk.say(f"MCP:mcp__recollect__{name} {json.dumps(arguments)}")
    answers = _answers(talk)[before:]
    if len(answers) != 1 or wanted not in answers[0]:
        yield f"mcp: {name} answered {answers!r}"


def _answers(talk: ClaudeTalk) -> list[str]:
    """What tools answered, as the agent tells it."""
    found: list[str] = []
    for event in talk.events:
        content = event.get("message", {}).get("content") if event.get("type") == "user" else ()
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                inner = block.get("content")
                texts = inner if isinstance(inner, list) else [{"text": inner}]
                found.append("\n".join(str(text.get("text")) for text in texts))
    return found


def _left_behind(stage: Stage) -> Iterator[str]:
    store = str(stage.gateway.store)

    def servers() -> list[psutil.Process]:
        return [
            one
            for one in psutil.process_iter(["cmdline"])
            if store in (one.info["cmdline"] or ()) and "mcp" in one.info["cmdline"]
        ]

    if not until(lambda: not servers(), seconds=20):
        yield "mcp: the server outlived the agent"


def _archived(stage: Stage, answers: list[str]) -> Iterator[str]:
    """What came back in requests is no new memory."""
    sent = b"".join(one.body for one in stage.behind.exchanges()).decode("utf-8", "replace")
    seals = [seal for answer in answers for seal in re.findall(r"seal [0-9a-f]+", answer)]
    if len(seals) != 6 or not all(seal in sent for seal in seals):
        yield f"mcp: {len(seals)} answers; they did not all come back in requests"
    for one in stage.stored():
        if TOOL_OPENING in one.segment.text or "seal " in one.segment.text:
            yield f"mcp: an answer was archived as {one.segment.role}"
