"""How often a long session breaks the provider's prompt cache: at batch moments, and rarely."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

from recollect import Engine
from recollect.system.config import build

WORDS = ("service", "port", "config", "deploy", "handler", "index", "cache", "query", "ledger")
TURNS = 200


def test_a_full_view_does_not_break_the_cache_turn_after_turn() -> None:
    """A tool agent without a model to summarise: pruning results, then trimming messages.

    When pruning only just came below the limit, the next turn was over it again: 10 breaks in 10
    turns.
    """
    rng = random.Random(7)

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words))

    async def run() -> list[int]:
        engine = Engine(build({"window_tokens": 16_000}))
        history: list[dict[str, Any]] = []
        before: list[Any] = []
        broken: list[int] = []
        for turn in range(TURNS):
            call = {"type": "tool_use", "id": f"t{turn}", "name": "read", "input": {"n": turn}}
            result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": text(90)}
            history += [
                {"role": "user", "content": f"turn {turn}: {text(40)}"},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
            request = {"model": "claude-x", "max_tokens": 100, "messages": list(history)}
            context = await engine.prepare("s", request)
            shown = context.request["messages"]
            if shown[: len(before)] != before:
                broken.append(turn)
                assert context.report.moment is not None, "only at a batch moment"
            before = shown
            history.append({"role": "assistant", "content": text(30)})
        return broken

    broken = asyncio.run(run())
    assert 1 < len(broken) <= TURNS // 8, broken
    assert min(after - at for at, after in pairwise(broken)) > 3, broken
