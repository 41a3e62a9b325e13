"""`recollect chat` in a terminal for many turns, with a real model behind it.

Every turn is typed, then `/status`; a relay between the chat and llama.cpp
keeps what was really sent. What the two commands print is read off the screen and compared with
that request: counted anew by an engine that never saw the conversation, and with what the model's
server itself counted.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.acceptance.recollect_cli import PROGRAM, environment
from tests.harness.terminal import Terminal

from recollect.core.engine.engine import Engine
from recollect.core.formats.json_text import encode
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.rules.tokens import MESSAGE_TOKENS, count_text
from recollect.core.values.recall import BLOCK_OPENING
from recollect.system.config import Settings
from recollect_bench.llama_server import LlamaServer
from tools.clients.hop import HttpExchange, RecordingHop
from tools.real_model.script import plan_conversation

PROMPT: Final = "› "
TURN_SECONDS: Final = 900.0
_FAILED: Final = ("The model did not answer", "The provider refused", "still does not fit")
_NUMBER: Final = r"([\d,]+)"
_SIZES: Final = re.compile(rf"by the counter: {_NUMBER} tokens in {_NUMBER} messages?")
WALK: Final[Mapping[str, str]] = {
    "/help": "/compact",
    "/why": "No failures|failed",
    "/memory add The kiln is at 900 degrees.": "Stored|Noted",
    "/memory show": "900 degrees",
    "/memory search kiln": "900 degrees",
    "/receipt": "[Cc]ompaction",
    "/undo": "undo|undone",
    "/model": "window 4,096",
    "/name Kiln": "called Kiln",
    "/export talk.md": "talk.md",
    "/new": "A new session has begun",
}
"""Every command that asks nothing of the model, typed at the end, and what it answers."""
COMPACTED_EVERY: Final = 10
"""Turns; in each of them the user once asks for a compaction."""
NEXT_SLACK_TOKENS: Final = 24
"""What a request may differ from what was told of it before anything was said: a summary is a part
of the user's message then, and the words of a message that carries it count a little otherwise."""
_COMPONENT: Final = re.compile(
    rf"^  (system prompt|tool schemas|workspace files|summary|recalled blocks|history): "
    rf"{_NUMBER} tokens",
    re.MULTILINE,
)


@dataclass(slots=True, kw_only=True)
class TerminalTalk:
    """What a conversation in a terminal came to."""

    window_tokens: int
    turns: int = 0
    commands: int = 0
    """Typed at the end, each answered as it should be, or it is among the failures."""
    compactions: int = 0
    """As `/status` tells it at the end."""
    flushes: int = 0
    largest_tokens: int = 0
    """Of a request with its reply, as the server counts them."""
    agreed_sent: int = 0
    """Turns after which both commands agree with the request that was sent."""
    agreed_next: int = 0
    """Turns behind which something was compacted: both tell of the next request, and it came so."""
    failures: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """What the run did not show, one sentence each."""
        said = [
            (bool(self.failures), f"turns failed: {self.failures[:3]}"),
            (bool(self.differences), f"told otherwise than sent: {self.differences[:3]}"),
            (self.agreed_sent + self.agreed_next < self.turns, "not every turn was compared"),
            (self.largest_tokens > self.window_tokens, "a request was over the window"),
        ]
        return [one for is_so, one in said if is_so]

    def as_json(self) -> dict[str, Any]:
        """The figures and the faults."""
        return {"run": "real-model-chat", "figures": asdict(self), "faults": self.faults}


def converse_in_terminal(
    server: LlamaServer,
    folder: Path,
    *,
    turns: int,
    turn_tokens: int,
    reply_tokens: int | None = None,
    compacting: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> TerminalTalk:
    """So many turns of about so many tokens; what went wrong is in what it came to. With
    `compacting` the user asks for a compaction now and then, which takes a small model long."""
    begun = time.monotonic()
    talk = TerminalTalk(window_tokens=server.window_tokens)
    workspace = folder / "work"
    workspace.mkdir()
    variables = environment(folder)
    variables.pop("COLUMNS", None)
    if reply_tokens is not None:
        variables["RECOLLECT_MODELS__MAX_OUTPUT_TOKENS"] = str(reply_tokens)
    said = plan_conversation(turns * turn_tokens, server.count_tokens, turn_tokens=(turn_tokens,))
    with RecordingHop(server.address) as hop:
        command = [*PROGRAM, "chat", str(workspace), "--provider", f"{hop.url}/v1"]
        command.append("--no-download-model")
        with Terminal(command, env=variables, columns=160, rows=50) as terminal:
            screen = _Talker(terminal)
            expected: dict[str, int] = {}
            status = ""
            for number in range(turns):
                text = said[number % len(said)].text
                shown = screen.say(" ".join(text.split()))
                talk.turns += 1
                if any(words in shown for words in _FAILED):
                    talk.failures.append(f"turn {talk.turns}: {shown[-300:]}")
                if compacting and talk.turns % COMPACTED_EVERY == COMPACTED_EVERY - 2:
                    screen.say("/compact")
                status = screen.say("/status")
                expected = _compare(talk, hop, status, expected)
                tell(f"turn {talk.turns}/{turns}: {_first(status)}")
            for typed, expected_words in WALK.items():
                shown = screen.say(typed)
                talk.commands += 1
                if not re.search(expected_words, shown):
                    talk.failures.append(f"{typed}: {shown[-300:]}")
            talk.compactions = int(_found(r"(\d+) compactions in effect", status) or 0)
            talk.flushes = sum("· notes" in line or " notes " in line for line in screen.lines())
        for exchange in hop.exchanges():
            counted = _usage(exchange)
            talk.largest_tokens = max(talk.largest_tokens, counted.get("total_tokens", 0))
    talk.seconds = round(time.monotonic() - begun, 1)
    return talk


class _Talker:
    """Types, and reads what came until the next prompt."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._prompts = 1
        terminal.wait_for(PROMPT.strip())

    def lines(self) -> list[str]:
        """All that was ever shown."""
        return self._terminal.all_lines()

    def say(self, text: str) -> str:
        """What stands between this and the next prompt."""
        self._terminal.send(f"{text}\r")
        self._prompts += 1
        self._terminal.wait_for("\n›", TURN_SECONDS, times=self._prompts)
        lines = self.lines()
        at = [number for number, line in enumerate(lines) if line.startswith("›")]
        return "\n".join(lines[at[-2] : at[-1]])


def _compare(
    talk: TerminalTalk, hop: RecordingHop, status: str, expected: dict[str, int]
) -> dict[str, int]:
    """Note where the screen and the request differ; what the next request has to hold, if told."""
    exchange = _newest_turn(hop)
    request = json.loads(exchange.body)
    told = {name: _int(size) for name, size in _COMPONENT.findall(status)}
    wrong: list[str] = []
    texts = [str(one.get("content") or "") for one in request["messages"]]
    number = _int(_found(r"(\d+) compactions in effect", status))
    if expected.pop("compaction", number) != number:
        expected = {}  # compacted once more since: another request than what was told of
    for name, size in expected.items():  # told before this turn, of the request that came then
        found = _measured(request, texts)[name]
        if abs(found - size) > NEXT_SLACK_TOKENS:
            wrong.append(f"{name} was to be {size}, and is {found}")
    sizes = _SIZES.search(status)
    counted, messages = (-1, -1) if sizes is None else map(_int, sizes.groups())
    differences = {"sum of the components": (sum(told.values()), counted)}
    if "last request: " in status:
        differences |= {
            "counted": (counted, _counted(request)),
            "tools": (told["tool schemas"], count_text(encode(request["tools"]).decode())),
            "messages": (messages, sum(one["role"] != "system" for one in request["messages"])),
            "window": (_int(_found(rf"window {_NUMBER} tokens", status)), talk.window_tokens),
            "summary": ("summary" in told, any(PI_OPENING in text for text in texts)),
            "by the provider": (
                _int(_found(rf"as the provider counted it: {_NUMBER}", status)),
                _usage(exchange).get("prompt_tokens", 0),
            ),
        }
        talk.agreed_sent += all(a == b for a, b in differences.values()) and not wrong
        expected = {}
    elif "next request" in status:
        talk.agreed_next += all(a == b for a, b in differences.values()) and not wrong
        expected = {"tool schemas": told["tool schemas"], "summary": told.get("summary", 0)}
        expected["compaction"] = number
        # a block of memory's is for its turn: the next one may have another
        expected["without what is said"] = counted - told.get("recalled blocks", 0)
    else:
        wrong.append(f"/status is not understood: {status[:200]}")
    wrong += [f"{name}: {a} and {b}" for name, (a, b) in differences.items() if a != b]
    talk.differences += [f"turn {talk.turns}: {one}" for one in wrong]
    return expected


def _measured(request: Mapping[str, Any], texts: list[str]) -> dict[str, int]:
    said = count_text(texts[-1]) + MESSAGE_TOKENS  # the turn's own words, and a block before them
    recalled = [text for text in texts if text.startswith(BLOCK_OPENING)]
    return {
        "tool schemas": count_text(encode(request["tools"]).decode()),
        "summary": sum(count_text(text) + MESSAGE_TOKENS for text in texts if PI_OPENING in text),
        "without what is said": _counted(request)
        - said
        - sum(count_text(text) + MESSAGE_TOKENS for text in recalled),
    }


def _newest_turn(hop: RecordingHop) -> HttpExchange:
    """The newest request of the conversation: those of summaries and notes are others."""
    for exchange in reversed(hop.exchanges()):
        if exchange.method != "POST" or b'"stream":true' not in exchange.body:
            continue
        last = json.loads(exchange.body)["messages"][-1]
        if last["role"] == "user" and "NO_REPLY" in str(last["content"]):
            continue  # a flush turn
        return exchange
    raise AssertionError("nothing was sent")


def _counted(request: Mapping[str, Any]) -> int:
    """A request's tokens, by an engine that sees it for the first time."""
    fresh = Engine(Settings(window_tokens=10_000_000))
    return asyncio.run(fresh.preview("count", dict(request))).report.tokens_before


def _usage(exchange: HttpExchange) -> dict[str, int]:
    for line in reversed(exchange.reply.decode(errors="replace").splitlines()):
        if '"usage"' in line:
            found = json.loads(line.removeprefix("data: ")).get("usage")
            if isinstance(found, dict):
                return {name: size for name, size in found.items() if isinstance(size, int)}
    return {}


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return None if match is None else match.group(1)


def _int(text: str | None) -> int:
    return -1 if text is None else int(text.replace(",", ""))


def _first(status: str) -> str:
    return next((line for line in status.split("\n") if "request" in line), "")


def table(talk: TerminalTalk) -> str:
    """The figures to read."""
    rows = [f"{name:<26} {json.dumps(value)}" for name, value in asdict(talk).items()]
    return "\n".join([*rows, *(f"FAULT: {one}" for one in talk.faults)])
