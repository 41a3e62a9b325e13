"""`recollect chat` killed by SIGKILL at points spread over a whole talk, and begun again.

The talk has everything that writes: replies, tools, notes before a compaction, a compaction, its
undoing. Whatever the point, the next start resumes the session: every message that a request was
made for is in the transcript and in memory, once; the request behind it is valid.
"""

import asyncio
import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.recollect_cli import PROGRAM, environment
from tests.harness.model_server import Asked, ModelServer, Step
from tests.sizes import at_size

from recollect.adapters.session.transcript import read_session_file
from recollect.adapters.wiring import open_store
from recollect.core.values.model import Usage
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall

POINTS = at_size(ci=2, full=50)
MODELS = {"/v1/models": {"data": [{"id": "scripted"}]}}
TALK = (
    "first: the oven is at 240 degrees " + "and the stone is warm " * 30,
    "second: write it down",
    "third: run it",
    "fourth: the window is nearly full " + "of flour and of water " * 30,
    "/compact the oven",
    "sixth: and after that?",
    "/undo",
    "eighth: and now?",
)


def answer(asked: Asked) -> Step:
    """A model that writes, runs and takes notes as it is asked to."""
    if not asked.body.get("stream"):
        return Says(text="## Goal\nBread at 240 degrees.")
    last = asked.body["messages"][-1]
    words = str(last["content"])
    number = len(asked.body["messages"])
    if last["role"] == "user" and "NO_REPLY" in words:
        note = {"path": "memory.md", "content": "The oven is at 240 degrees.\n"}
        return Says(calls=(ScriptedCall(id=f"n{number}", name="write", input=note),))
    if last["role"] == "user" and "second:" in words:
        written = {"path": "oven.txt", "content": "240\n"}
        return Says(calls=(ScriptedCall(id=f"w{number}", name="write", input=written),))
    if last["role"] == "user" and "third:" in words:
        run = {"command": "echo warm; sleep 0.05"}
        return Says(calls=(ScriptedCall(id=f"b{number}", name="bash", input=run),))
    usage = Usage(input_tokens=6_200 if "fourth:" in words else 3_000, output_tokens=40)
    return Says(text=f"Answer {number}. " + "It rises slowly. " * 12, usage=usage, piece_bytes=60)


class JsonChat:
    """`recollect chat --json` of one home, killed when the block ends."""

    def __init__(self, home: Path, url: str) -> None:
        workspace = home / "work"
        workspace.mkdir(exist_ok=True)
        options = ["--json", "--bash", "allow", "--window", "8k", "--provider", url]
        self._process = subprocess.Popen(
            [*PROGRAM, "chat", str(workspace), *options, "--store", str(home / "memory.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(home),
            text=True,
        )
        self._end = threading.Timer(120, self._process.kill)
        self._end.start()

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"message": text}) + "\n")
        self._process.stdin.flush()

    def events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def kill(self) -> None:
        self._end.cancel()
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def talk_until(home: Path, url: str, most_events: int, pause: float) -> tuple[list[str], list[str]]:
    """Talk, and kill behind so many events; what a request was made for, and which came."""
    chat = JsonChat(home, url)
    waiting = list(TALK)
    said: list[str] = []
    prepared: list[str] = []
    kinds: list[str] = []
    try:
        for event in chat.events():
            kinds.append(event["type"])
            if event["type"] == "prepared" and said[-1] not in prepared:
                prepared.append(said[-1])
            if len(kinds) >= most_events or (event["type"] == "ended" and not waiting):
                break
            if event["type"] in ("opened", "ended"):
                said.append(waiting.pop(0))
                chat.say(said[-1])
        time.sleep(pause)
    finally:
        chat.kill()
    return prepared, kinds


def resumed(home: Path, server: ModelServer, prepared: list[str]) -> None:
    """The session goes on, and nothing is missing or twice."""
    chat = JsonChat(home, server.url)
    chat.say("at last: go on")
    try:
        events: list[dict[str, Any]] = []
        for event in chat.events():
            events.append(event)
            if event["type"] == "ended":
                break
    finally:
        chat.kill()
    assert events[-1]["reason"] == "done", events[-3:]
    requests = [one.body for one in server.asked if one.wire and one.body.get("stream")]
    request = next(
        one for one in reversed(requests) if "at last:" in str(one["messages"][-1]["content"])
    )
    assert violations("openai-chat", request) == []
    transcripts = list((home / "home").rglob(f"{events[0]['session']}.jsonl"))
    assert len(transcripts) == 1, "one session, resumed"
    entries = read_session_file(transcripts[0]).entries
    users = [_text(one.message) for one in entries if one.role == "user" and one.message]
    for text in (*prepared, "at last: go on"):
        assert users.count(text) == 1, f"{text[:20]} stands {users.count(text)} times"
    kept = [one.text for one in asyncio.run(_stored(home))]
    for text in prepared:
        assert sum(text in one for one in kept) == 1, f"{text[:20]} in memory"


def _text(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(one.get("text", "") for one in content)


async def _stored(home: Path) -> Any:
    store = await open_store(str(home / "memory.db"), space=str(home / "work"))
    try:
        return [one.segment for one in await store.page(limit=10_000)]
    finally:
        await store.close()


@pytest.fixture(scope="module")
def events_of_a_talk(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many events a whole talk has."""
    home = tmp_path_factory.mktemp("whole")
    with ModelServer(answer, pages=MODELS) as server:
        prepared, kinds = talk_until(home, server.url, 10_000, 0)
        resumed(home, server, prepared)
    spoken = [text for text in TALK if not text.startswith("/")]
    assert prepared == spoken
    assert {"call_ended", "flushed", "compacted"} <= set(kinds)
    return len(kinds)


@pytest.mark.timeout(3600)
def test_a_chat_killed_anywhere_resumes_whole(tmp_path: Path, events_of_a_talk: int) -> None:
    rng = random.Random(5)
    for point in range(POINTS):
        home = tmp_path / str(point)
        home.mkdir()
        after = 1 + point * events_of_a_talk // POINTS
        with ModelServer(answer, pages=MODELS) as server:
            prepared, _ = talk_until(home, server.url, after, rng.choice((0, 0.002, 0.02, 0.1)))
            resumed(home, server, prepared)
