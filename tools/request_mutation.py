"""Requests that no client sends on purpose: shapes of real ones, changed at random from a seed.

Shapes are of our own making and, where the evaluation data is at hand, those that five agents sent
(`clients/slim` there), which are read and never copied.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PATHS: Final = ("/v1/messages", "/v1/chat/completions", "/v1/responses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A request that a client could have sent."""

    path: str
    body: Any = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutated:
    """A request as it is sent."""

    path: str
    content: bytes = field(repr=False)
    headers: dict[str, str]


_CALL: Final = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
_RESULT: Final = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a\nb"}
_TOOL: Final = {"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}
OWN_SHAPES: Final = (
    Shape(
        path="/v1/messages",
        headers={"x-claude-code-session-id": "abc", "user-agent": "claude-cli/2.1.325"},
        body={
            "model": "claude-opus-5-5",
            "max_tokens": 32_000,
            "stream": True,
            "system": [{"type": "text", "text": "You work.", "cache_control": {"type": "x"}}],
            "metadata": {"user_id": '{"session_id": "abc"}'},
            "tools": [_TOOL],
            "context_management": {"edits": []},
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "list the files"}]},
                {"role": "system", "content": []},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                        {"type": "text", "text": "Looking."},
                        _CALL,
                    ],
                },
                {"role": "user", "content": [_RESULT, {"type": "text", "text": "and now?"}]},
            ],
        },
    ),
    Shape(
        path="/v1/chat/completions",
        headers={"x-session-id": "ses_1", "user-agent": "opencode/1.18.33"},
        body={
            "model": "g",
            "stream": False,
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "messages": [
                {"role": "system", "content": "You work."},
                {"role": "user", "content": [{"type": "text", "text": "hello"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
                {"role": "user", "content": "What was it?"},
            ],
        },
    ),
    Shape(
        path="/v1/responses",
        headers={"thread-id": "t1", "user-agent": "codex_exec/0.166.0"},
        body={
            "model": "g",
            "instructions": "You work.",
            "store": False,
            "prompt_cache_key": "t1",
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}],
                },
                {"type": "reasoning", "summary": [], "encrypted_content": "x"},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "done"},
                {"role": "user", "content": "and now?"},
            ],
        },
    ),
)


def captured_shapes(data: Path) -> list[Shape]:
    """What real agents sent; empty where the data is not at hand."""
    shapes: list[Shape] = []
    for file in sorted((data / "clients" / "slim").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            path = str(row.get("path") or "").partition("?")[0]
            if row.get("method") == "POST" and path in PATHS and isinstance(row["body"], dict):
                sent = {name.lower(): value for name, value in row["headers"]}
                kept = {
                    name: value.encode("ascii", "replace").decode()
                    for name, value in sent.items()
                    if name not in ("host", "content-length", "connection", "accept-encoding")
                    and name != "content-encoding"
                }
                shapes.append(Shape(path=path, body=row["body"], headers=kept))
    return shapes


class Mutator:
    """Changes requests at random, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._in_json: tuple[Callable[[Any], Any], ...] = (
            self._replace, self._replace, self._delete, self._double, self._swap, self._unknown,
            self._rename,
        )  # fmt: skip
        self._in_bytes: tuple[Callable[[bytes], bytes], ...] = (
            lambda raw: raw[: self._random.randrange(len(raw) + 1)],
            self._flip,
            lambda raw: raw + self._random.choice((b"}", b"\x00", b" ", b"{}", b"\xff")),
            lambda raw: b"\xef\xbb\xbf" + raw,
            lambda raw: raw.replace(b'"role"', b'"role": "user", "role"', 1),
            lambda raw: raw.replace(b":", b" :\t", 3),
            lambda raw: raw.replace(b"true", b"NaN", 1).replace(b"false", b"-Infinity", 1),
            lambda raw: b"[" * 3_000 + raw,
            lambda raw: raw.replace(b'"content"', b'"content": ' + b"[" * 2_000 + b', "x"', 1),
        )

    def mutated(self, shape: Shape) -> Mutated:
        """One request; one in ten goes out as it is."""
        body = copy.deepcopy(shape.body)
        for _ in range(self._random.choice((0, 1, 1, 2, 4))):
            body = self._random.choice(self._in_json)(body)
        spaces: tuple[str, str] = self._random.choice(((", ", ": "), (",", ":")))
        content = json.dumps(body, separators=spaces, ensure_ascii=self._random.random() < 0.5)
        raw = content.encode("utf-8", "surrogatepass")
        if self._random.random() < 0.25:
            raw = self._random.choice(self._in_bytes)(raw)
        headers = dict(shape.headers)
        if self._random.random() < 0.15:
            headers |= self._random.choice(_HEADERS)
        return Mutated(path=shape.path, content=raw, headers=headers)

    def _nodes(self, body: Any) -> list[tuple[Any, Any]]:
        """Every place in it: what holds it, and its key or index."""
        found: list[tuple[Any, Any]] = []
        waiting = [body] if isinstance(body, dict | list) else []
        while waiting:
            value = waiting.pop()
            keys = value if isinstance(value, dict) else range(len(value))
            for key in keys:
                found.append((value, key))
                if isinstance(value[key], dict | list):
                    waiting.append(value[key])
        return found

    def _replace(self, body: Any) -> Any:
        places = self._nodes(body) if isinstance(body, dict | list) else []
        if not places or self._random.random() < 0.02:
            return self._odd()
        holder, key = self._random.choice(places)
        holder[key] = self._odd()
        return body

    def _odd(self) -> Any:
        deep: Any = "x"
        for _ in range(60):
            deep = [deep]
        odd: tuple[Any, ...] = (
            None, True, 0, -1, 1e300, 10**40, "", " ", "\ud800", "é" * 300, [], {}, [None], [[]],
            {"type": "text"}, {"type": "tool_result"}, {"type": None}, {"role": "user"}, deep,
            "user", "tool", "nobody", [{"type": "text", "text": 7}], 0.5, "x" * 20_000, "\x00",
        )  # fmt: skip
        return copy.deepcopy(self._random.choice(odd))

    def _delete(self, body: Any) -> Any:
        places = self._nodes(body) if isinstance(body, dict | list) else []
        if places:
            holder, key = self._random.choice(places)
            del holder[key]
        return body

    def _lists(self, body: Any) -> list[list[Any]]:
        places = self._nodes(body) if isinstance(body, dict | list) else []
        return [holder[key] for holder, key in places if isinstance(holder[key], list)]

    def _double(self, body: Any) -> Any:
        lists = [found for found in self._lists(body) if found]
        if lists:
            chosen = self._random.choice(lists)
            at = self._random.randrange(len(chosen))
            chosen.insert(at, copy.deepcopy(chosen[at]))
        return body

    def _swap(self, body: Any) -> Any:
        lists = [found for found in self._lists(body) if len(found) > 1]
        if lists:
            self._random.shuffle(self._random.choice(lists))
        return body

    def _unknown(self, body: Any) -> Any:
        places = [holder for holder, _ in self._nodes(body) if isinstance(holder, dict)]
        if isinstance(body, dict | list) and places:
            name = self._random.choice(("x_new_field", "", "cache_control", "édition", "betas"))
            self._random.choice(places)[name] = self._odd()
        return body

    def _rename(self, body: Any) -> Any:
        places = [] if not isinstance(body, dict | list) else self._nodes(body)
        named = [(holder, key) for holder, key in places if isinstance(holder, dict)]
        if named:
            holder, key = self._random.choice(named)
            holder[f"{key}_"] = holder.pop(key)
        return body

    def _flip(self, raw: bytes) -> bytes:
        changed = bytearray(raw)
        for _ in range(self._random.randrange(1, 4)):
            if changed:
                changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed)


_HEADERS: Final[tuple[dict[str, str], ...]] = (
    {"x-recollect-session": "s" * 500},
    {"x-recollect-session": "../../etc/passwd"},
    {"x-recollect-session": "memory file:x"},
    {"x-recollect-space": "\xe9\xff odd"},
    {"x-recollect-space": " "},
    {"x-codex-turn-metadata": "{not json"},
    {"x-codex-turn-metadata": '{"workspaces": {"": 1}, "request_kind": 7}', "originator": "codex"},
    {"anthropic-beta": ",,,"},
    {"content-encoding": "gzip"},
    {"content-encoding": "br, zstd, nothing"},
    {"content-type": "text/plain"},
    {"x-claude-code-agent-id": "a/b"},
    {"user-agent": ""},
)
