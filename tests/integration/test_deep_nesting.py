"""JSON that nests too deeply for recursive functions is passed on, and costs no other message."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from recollect import open_memory
from recollect.core.formats.codec import CODECS
from recollect.core.values.message import Other, ToolResult
from recollect.core.values.model import FormatName

QUIET = {"jobs.in_process": False, "recall.enabled": False, "window_tokens": 100_000}
DEEP = '"@"'
"""Is replaced by nested JSON."""
FIRST, SECOND = ({"role": "user", "content": f"{nth} question"} for nth in ("first", "second"))
TEXT = [{"type": "text", "text": "some text"}]
NESTED_PART = {"type": "search_result", "source": {"entries": ["@"]}}


def nested(levels: int) -> str:
    return '{"a":[' * (levels // 2) + '"the innermost text"' + "]}" * (levels // 2)


def anthropic(arguments: Any, content: Any) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": arguments}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def chat(arguments: Any, content: Any) -> list[dict[str, Any]]:
    function = {"name": "look", "arguments": json.dumps(arguments)}
    call = {"id": "t1", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": "t1", "content": content}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


def responses(arguments: Any, content: Any) -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": "t1", "name": "look"}
    output = {"type": "function_call_output", "call_id": "t1", "output": content}
    return [{**call, "arguments": json.dumps(arguments)}, output]


def pi(arguments: Any, content: Any) -> list[dict[str, Any]]:
    call = {"type": "toolCall", "id": "t1", "name": "look", "arguments": {"x": arguments}}
    result = {"role": "toolResult", "toolCallId": "t1", "toolName": "look", "content": content}
    return [{"role": "assistant", "content": [call]}, result]


WIRES: dict[FormatName, Any] = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "pi": pi,
}


@pytest.mark.parametrize("levels", [90, 500, 900, 5_000])
@pytest.mark.parametrize("place", ["result", "arguments"])
@pytest.mark.parametrize("wire", WIRES)
async def test_every_message_is_stored_and_the_request_is_unchanged(
    tmp_path: Path, wire: FormatName, place: str, levels: int
) -> None:
    text = TEXT if wire == "pi" else "some text"
    answer = {"role": "assistant", "content": text}
    made = WIRES[wire]("@", text) if place == "arguments" else WIRES[wire](1, [NESTED_PART])
    field = "input" if wire == "openai-responses" else "messages"
    messages, deep = [FIRST, *made, answer, SECOND], nested(levels)

    def request() -> bytes:
        body = json.dumps({"model": "a-model", field: messages})
        return body.replace(DEEP, deep).replace(r"\"@\"", json.dumps(deep)[1:-1]).encode()

    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        for number in range(3):
            context = await memory.prepare("s", request(), format=wire)
            assert not [line for line in context.report.lines if line.outcome == "failed"]
            assert context.request == request(), "unchanged"
            messages += [answer, {"role": "user", "content": f"question {number}"}]
        assert await memory.close() == 0
    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        stored = await memory.messages("s")
    texts = [message.text for message in stored]
    assert len(stored) == len(messages) - 2, "all that was sent"
    assert {"first question", "second question", "question 1"} <= {*texts}


@pytest.mark.parametrize("levels", [90, 5_000])
@pytest.mark.parametrize("wire", WIRES)
def test_a_nested_part_keeps_its_type_and_its_json(wire: FormatName, levels: int) -> None:
    raw = json.dumps(WIRES[wire](1, [NESTED_PART])[-1]).replace(DEEP, nested(levels))
    message = CODECS[wire].read(raw.encode())
    (result,) = [part for part in message.parts if isinstance(part, ToolResult)]
    (part,) = result.content
    assert isinstance(part, Other)
    assert part.kind == "search_result"
    assert nested(levels) in part.payload


def test_a_request_of_a_hundred_thousand_levels_is_read() -> None:
    raw = b'{"role":"user","content":[{"type":"document","x":%s}]}' % nested(100_000).encode()
    message = CODECS["anthropic"].read(raw)
    assert [type(part) for part in message.parts] == [Other]


def test_nesting_that_never_ends_is_refused(tmp_path: Path) -> None:
    async def prepare() -> bool:
        body = b'{"messages":[{"role":"user","content":%s}]}' % (b"[" * 5_000)
        async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
            context = await memory.prepare("s", body)
            return bool(context.request == body)

    assert asyncio.run(prepare())
