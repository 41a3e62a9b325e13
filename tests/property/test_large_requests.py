"""Large windows, really filled: every format over its limit at 128k tokens; in full up to 1M.

The generated conversations rarely reach such sizes; here a coding session of 2,000 messages is
as large as the window and a third more, and must come out valid, within the limit, and stable.
"""

import asyncio
import json
import random
from typing import Any

import pytest
from tests.harness.faithful import unfaithful
from tests.sizes import at_size

from recollect.core.engine import Engine, Session
from recollect.core.values.model import FormatName
from recollect.system.config import build
from recollect.testing.provider_rules import violations

WORDS = [
    *("crane", "winch", "harbour", "cargo", "anchor", "manifest", "pilot", "tug", "berth", "quay"),
    *("def", "return", "import", "config", "error", "retry", "src/app/models.py", "0x7f3a"),
    *("timeout", "deploy", "rollback"),
]
TURNS = 500
CHARS_A_TOKEN = 5.0


def text(rng: random.Random, chars: int) -> str:
    line = " ".join(rng.choices(WORDS, k=40))
    return (line * (chars // len(line) + 1))[:chars]


def turn(format_name: FormatName, n: int, rng: random.Random, chars: int) -> list[dict[str, Any]]:
    """A user asks, a tool is called, its result is most of the turn, the assistant answers."""
    ask, answer = text(rng, chars // 8), text(rng, chars // 8)
    result, path, call = text(rng, chars // 2), {"path": text(rng, chars // 4)}, f"call_{n}"
    if format_name == "anthropic":
        return [
            {"role": "user", "content": ask},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": call, "name": "read", "input": path}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": call, "content": result}],
            },
            {"role": "assistant", "content": answer},
        ]
    if format_name == "openai-chat":
        function = {"name": "read", "arguments": json.dumps(path)}
        return [
            {"role": "user", "content": ask},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call, "content": result},
            {"role": "assistant", "content": answer},
        ]
    if format_name == "openai-responses":
        return [
            {"role": "user", "content": ask},
            {"type": "reasoning", "id": f"rs_{n}", "summary": []},
            {
                "type": "function_call",
                "call_id": call,
                "name": "read",
                "arguments": json.dumps(path),
            },
            {"type": "function_call_output", "call_id": call, "output": result},
            {"role": "assistant", "content": answer},
        ]
    tool_call = {"type": "toolCall", "id": call, "name": "read", "arguments": path}
    return [
        {"role": "user", "content": ask, "timestamp": n},
        {"role": "assistant", "content": [tool_call], "stopReason": "toolUse", "timestamp": n},
        {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": "read",
            "content": [{"type": "text", "text": result}],
            "isError": False,
            "timestamp": n,
        },
        {
            "role": "assistant",
            "content": [{"type": "text", "text": answer}],
            "stopReason": "stop",
            "timestamp": n,
        },
    ]


@pytest.mark.parametrize("window", at_size(ci=[128_000], full=[128_000, 400_000, 1_000_000]))
@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat", "openai-responses", "pi"])
def test_a_filled_window(format_name: FormatName, window: int) -> None:
    rng = random.Random(window)
    chars = int(window * 4 / 3 * CHARS_A_TOKEN / TURNS)
    held = [item for n in range(TURNS) for item in turn(format_name, n, rng, chars)]
    held.append(turn(format_name, TURNS, rng, 400)[0])
    field = "input" if format_name == "openai-responses" else "messages"
    engine, session = Engine(build({"window_tokens": window, "pruning.mode": "off"})), Session("s")
    body = {field: held}
    first = asyncio.run(engine.prepare(session, json.dumps(body).encode(), format=format_name))
    assert first.report.tokens_before > first.report.limit_tokens
    assert first.report.moment is not None
    assert first.report.tokens_after <= first.report.limit_tokens
    assert first.report.failures == ()
    out = json.loads(first.request)
    assert violations(format_name, out) == []
    assert unfaithful(format_name, body, out) == []
    grown = [*held, turn(format_name, 0, rng, 400)[-1], turn(format_name, TURNS + 1, rng, 400)[0]]
    second = asyncio.run(
        engine.prepare(session, json.dumps({field: grown}).encode(), format=format_name)
    )
    assert second.report.moment is None
    before, after = json.loads(first.request)[field], json.loads(second.request)[field]
    assert after[: len(before)] == before, "between batch moments the view only grows"
