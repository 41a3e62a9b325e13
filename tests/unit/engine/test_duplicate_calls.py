"""A call whose id came twice, its twin trimmed: found by `just soak`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from recollect.core.engine import Engine
from recollect.system.config import build
from recollect.testing.provider_rules import unfaithful


def reasoning(n: int) -> dict[str, Any]:
    said = [{"type": "summary_text", "text": f"signal {n} " * 4}]
    return {"type": "reasoning", "summary": said, "encrypted_content": f"g{n}", "id": f"re_{n}"}


def call(n: int, call_id: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": "read",
        "arguments": json.dumps({"path": f"src/signal {n}.py", "limit": 40}),
        "id": f"fu_{n}",
    }


def test_a_call_hidden_behind_its_twin_leaves_with_its_reasoning() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "lantern 0"},
        {"role": "user", "content": "374 lantern level error " * 400},
    ]
    for n in (2, 3):  # the second hides behind the first: the provider takes an id once
        items += [reasoning(n), call(n, "call_000")]
    for n in range(4, 10):
        items += [
            reasoning(n),
            call(n, f"call_{n}"),
            {"type": "function_call_output", "call_id": f"call_{n}", "output": f"mirror {n} " * 60},
        ]
    body = {"model": "gpt-5", "input": items}
    for window in range(3_000, 9_000, 250):
        engine = Engine(build({"window_tokens": window}))
        raw = json.dumps(body).encode()
        context = asyncio.run(engine.prepare("s", raw, format="openai-responses"))
        assert unfaithful("openai-responses", body, json.loads(context.request)) == []
