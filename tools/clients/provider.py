"""A scripted provider that plays by marks in the user's newest words.

    TOOL:<command>            one call of the client's shell tool
    TOOLS:<one> && <other>    two calls at once
    AGENT:<task>              a subagent (Claude Code)
    THINK                     a signed thought before the answer
    FAIL:<status>             that error once, then an answer
    BREAK, DROP               an error, or the end of the connection, in the midst of a stream, once
    HANG                      the stream stops and never ends
    USED:<tokens>             usage as reported

It refuses what the provider's rules refuse and what is over its window, in the provider's words.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.model_wires import error_body

from recollect.core.values.model import Usage
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Fails, Says, ScriptedCall, WireName

SUMMARY = "<summary>\nWhat was said before stands here in short. SUMMARY-MARK\n</summary>"
_SHELLS: Mapping[str, str] = {
    "Bash": "command",
    "bash": "command",
    "exec_command": "cmd",
    "exec": "command",
}
_AGENTS = ("Agent", "Task")
_SUMMARY_CHARS = 1_500
"""A request for a summary that offers tools is longer than what a user of these scripts says."""
_NOT_SAID = re.compile(
    rf"<system-reminder>.*?</system-reminder>|{BLOCK_OPENING}.*?{BLOCK_CLOSING}"
    r"|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*",
    re.DOTALL,
)
"""What the client and the gateway put in; marks in it are no commands."""
_ERRORS = {
    400: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class ScriptedProvider:
    """What a `ModelServer` asks for its steps; keeps what it refused."""

    allowed: frozenset[str] = frozenset()
    """Rules that it does not hold its client to."""

    def __init__(self, *, refuses: bool = True) -> None:
        self._refuses = refuses
        """Whether what breaks the provider's rules is refused."""
        self.refused: list[str] = []
        """Rules that requests broke."""
        self.summaries = 0
        """How many it wrote."""
        self._done: set[str] = set()
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Step:
        """The answer to one request."""
        with self._lock:
            return self._answer(asked)

    def _answer(self, asked: Asked) -> Step:
        wire = asked.wire
        assert wire is not None
        body = asked.body
        betas = asked.headers.get("anthropic-beta", "").replace(" ", "").split(",")
        found = violations(wire, body, betas=betas)
        broken = [one for one in found if one.rule not in self.allowed]
        if broken and self._refuses:
            self.refused += [f"{one.rule} at {one.where}" for one in broken]
            text = f"{broken[0].where}: {broken[0].sentence}"
            error = error_body(wire, code="invalid_request_error", message=text)
            return Fails(status=400, body=error)
        return self._scripted(wire, asked, body)

    def _scripted(self, wire: WireName, asked: Asked, body: Mapping[str, Any]) -> Step:
        words, after_tool = newest(body)
        self._count += 1
        number = str(self._count)
        failing = re.search(r"FAIL:(\d+)", words)
        if failing and not after_tool and self._once(words):
            status = int(failing[1])
            error = error_body(wire, code=_ERRORS[status], message="as the script says")
            return Fails(status=status, body=error, headers={"retry-after": "0"})
        used = re.search(r"USED:(\d+)", words)
        tokens = int(used[1]) if used else max(1, len(asked.content) // 4)
        calls = () if after_tool else tuple(self._calls(words, body, number))
        text = "Done after the tool." if after_tool else f"Answer {number}."
        side = len(words) > _SUMMARY_CHARS or not body.get("tools")
        if side and "summary" in words.lower():
            text = SUMMARY
            self.summaries += 1
        broken_off = not after_tool and bool(body.get("stream"))
        return Says(
            id=number,
            text=text,
            thinking="Let me think." if "THINK" in words else "",
            calls=calls,
            usage=Usage(input_tokens=tokens, output_tokens=12),
            fail_after_events=4 if broken_off and "BREAK" in words and self._once(words) else None,
            cut_after_events=4 if broken_off and "DROP" in words and self._once(words) else None,
            hang_after_events=4 if "HANG" in words else None,
        )

    def _calls(self, words: str, body: Mapping[str, Any], number: str) -> Iterator[ScriptedCall]:
        names = list(tool_names(body))
        shell = next((name for name in names if name in _SHELLS), None)
        one, several = re.search(r"TOOL:([^\n]+)", words), re.search(r"TOOLS:([^\n]+)", words)
        commands = [one[1]] if one else several[1].split("&&") if several else []
        for at, command in enumerate(commands if shell else []):
            assert shell is not None
            given = {_SHELLS[shell]: command.strip(), "description": "as the script says"}
            if shell == "exec_command":
                del given["description"]
            yield ScriptedCall(id=f"toolu_{number}_{at}", name=shell, input=given)
        asked = re.search(r"MCP:(\S+) (\{[^\n]*\})", words)
        if asked and asked[1] in names:
            yield ScriptedCall(id=f"toolu_{number}_m", name=asked[1], input=json.loads(asked[2]))
        agent = re.search(r"AGENT:([^\n]+)", words)
        tool = next((name for name in names if name in _AGENTS), None)
        if agent and tool and self._once(f"agent: {words}"):
            given = {
                "description": "a task",
                "prompt": agent[1],
                "subagent_type": "general-purpose",
            }
            yield ScriptedCall(id=f"toolu_{number}_a", name=tool, input=given)

    def _once(self, words: str) -> bool:
        """Whether these words have not had their fault yet."""
        fresh = words not in self._done
        self._done.add(words)
        return fresh


def newest(body: Mapping[str, Any]) -> tuple[str, bool]:
    """The user's newest words, and whether the request brings results of tools instead."""
    items = body.get("messages") or body.get("input") or []
    if isinstance(items, str):
        return items, False
    rows = [
        row
        for row in items
        if row.get("role") not in ("system", "developer")
        and not (row.get("role") == "user" and _is_put_in(row.get("content")))
    ]
    last = rows[-1] if rows else {}
    kinds = {str(block.get("type")) for block in _blocks(last.get("content"))}
    after_tool = (
        last.get("role") == "tool"
        or str(last.get("type", "")).endswith("_output")
        or "tool_result" in kinds
    )
    spoken = [
        words
        for row in rows
        if row.get("role") == "user" and (words := _words(row.get("content"))).strip()
    ]
    return (spoken[-1] if spoken else ""), after_tool


def tool_names(body: Mapping[str, Any]) -> Iterator[str]:
    """The tools that a request offers."""
    for tool in body.get("tools") or []:
        yield str(tool.get("name") or (tool.get("function") or {}).get("name") or "")


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )


def _words(content: Any) -> str:
    """What the user said, without results and what the client put in."""
    texts = [content] if isinstance(content, str) else []
    texts += [str(b["text"]) for b in _blocks(content) if b.get("type") in ("text", "input_text")]
    return _NOT_SAID.sub("", "\n".join(texts)).strip()


def _is_put_in(content: Any) -> bool:
    """Whether a user's message is nothing but what was put in."""
    kinds = {str(block.get("type")) for block in _blocks(content)} - {"text", "input_text"}
    return bool(content) and not kinds and not _words(content)


def scripted_server(provider: ScriptedProvider, **more: Any) -> ModelServer:
    """The provider as a server, with a list of models."""
    models = {"object": "list", "data": [{"id": "scripted", "object": "model", "type": "model"}]}
    return ModelServer(provider, pages={"/v1/models": models}, **more)


def as_json(content: bytes) -> Any:
    """A body's JSON; None where it is none."""
    try:
        return json.loads(content)
    except ValueError:
        return None
