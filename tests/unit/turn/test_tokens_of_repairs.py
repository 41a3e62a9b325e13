"""A message that was rewritten for its provider counts as it is sent."""

import asyncio
import json
from typing import Any

import pytest

from recollect.core.engine import Engine, Session
from recollect.core.values.history import Slot
from recollect.core.values.model import FormatName
from recollect.system.config import build

ARGUMENTS = ["{broken", "[1, 2]", "plain words and more of them", "", "null", '{"a": 1']


def history(format_name: FormatName, arguments: str) -> dict[str, Any]:
    user = {"role": "user", "content": "read the file"}
    if format_name == "pi":
        block = {"type": "toolCall", "id": "c", "name": "read", "arguments": arguments}
        call = {"role": "assistant", "content": [block], "stopReason": "toolUse"}
        result = {"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": "fine"}
        return {"systemPrompt": "Be brief.", "messages": [user, call, result]}
    if format_name == "anthropic":
        block = {"type": "tool_use", "id": "c", "name": "read", "input": arguments}
        results = [{"type": "tool_result", "tool_use_id": "c", "content": "fine"}]
        call, answer = (
            {"role": "assistant", "content": [block]},
            {"role": "user", "content": results},
        )
        return {"max_tokens": 9, "messages": [user, call, answer]}
    function = {"name": "read", "arguments": arguments}
    made = [{"id": "c", "type": "function", "function": function}]
    reply = {"role": "assistant", "content": None, "tool_calls": made}
    tool = {"role": "tool", "tool_call_id": "c", "content": "fine"}
    return {"messages": [user, reply, tool]}


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat", "pi"])
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_rewritten_arguments_count_as_sent(format_name: FormatName, arguments: str) -> None:
    engine = Engine(build({}))
    raw = json.dumps(history(format_name, arguments)).encode()
    first = asyncio.run(engine.prepare(Session("s"), raw, format=format_name))
    again = asyncio.run(engine.prepare(Session("t"), first.request, format=format_name))
    assert first.report.tokens_after == again.report.tokens_before
    if arguments == "{broken" and format_name != "openai-chat":
        assert any(isinstance(row, Slot) for row in first.report.view.rows)
