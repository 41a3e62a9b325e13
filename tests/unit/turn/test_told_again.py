"""Calls that come twice, near their results and near their reasoning: what is sent stays valid."""

import asyncio
import json
from typing import Any

import pytest
from tests.harness.faithful import unfaithful

from recollect.core.engine import Engine, Session
from recollect.core.values.model import FormatName
from recollect.system.config import build
from recollect.testing.provider_rules import violations

HI = {"role": "user", "content": "hi"}
WORDS = {"type": "text", "text": "so"}
TOOLS = {"server_tool_use": "web_search_tool_result", "mcp_tool_use": "mcp_tool_result"}


def prepared(format_name: FormatName, messages: list[Any]) -> list[Any]:
    """What goes out for these messages, after asserting that a provider takes it."""
    field = "input" if format_name == "openai-responses" else "messages"
    body = {"model": "m", "max_tokens": 9, field: messages}
    engine = Engine(build({"window_tokens": 100_000}))
    given = json.dumps(body).encode()
    context = asyncio.run(engine.prepare(Session("s"), given, format=format_name))
    out = json.loads(context.request)
    assert violations(format_name, out) == []
    assert unfaithful(format_name, body, out) == []
    held: list[Any] = out[field]
    return held


def blocks_of(order: str, kind: str) -> list[dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {
        "A": {"type": kind, "id": "a", "name": "x", "input": {}},
        "1": {"type": TOOLS[kind], "tool_use_id": "a", "content": []},
        "t": WORDS,
    }
    return [made[sign] for sign in order]


@pytest.mark.parametrize("kind", TOOLS)
@pytest.mark.parametrize(
    ("order", "sent"),
    [
        *(("A1tA", "A1t"), ("A1A", "A1"), ("AA1t", "A1t"), ("AtA1", "tA1"), ("A11t", "A1t")),
        *(("1At", "t"), ("1tA1", "tA1"), ("A1tA1t", "A1tA1t")),
    ],
)
def test_a_provider_call_told_again_leaves_its_pair_alone(kind: str, order: str, sent: str) -> None:
    answer = {"role": "assistant", "content": blocks_of(order, kind)}
    _, kept, _ = prepared("anthropic", [HI, answer, HI])
    assert kept["content"] == blocks_of(sent, kind)


CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"}
SAID = {"type": "message", "role": "assistant", "id": "msg_1", "content": "ok"}


@pytest.mark.parametrize(
    "items",
    [
        [CALL, REASONING, CALL, OUTPUT],
        [CALL, OUTPUT, REASONING, CALL],
        [CALL, HI, REASONING, CALL, OUTPUT],
        [SAID, REASONING, SAID],
        [SAID, HI, REASONING, SAID],
    ],
)
def test_an_item_goes_under_its_id_only_behind_its_reasoning(items: list[Any]) -> None:
    out = prepared("openai-responses", [HI, *items, HI])
    named = [item.get("id") for item in out]
    if "rs_1" in named:
        assert all(at > named.index("rs_1") for at, name in enumerate(named) if name in NAMED)
    else:
        assert NAMED.isdisjoint(named)
    assert sum(item.get("type") == "function_call" for item in out) == (CALL in items)


NAMED = {"fc_1", "msg_1"}
