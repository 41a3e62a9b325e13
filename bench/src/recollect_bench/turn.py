"""What shaping a request costs, beside the unavoidable: `json.loads` + `json.dumps`.

A coding agent's request of 2,000 messages and about 200,000 tokens, generated from a seed:
tool calls and results, prose, code. Three turns are measured, all with recall off:

- cold: a session that was never seen;
- warm: all but the last four messages were seen before, and nothing has to change;
- warm under edits: the same within a window it does not fit, so that the standing edits of an
  earlier batch moment (hundreds of messages left out or shortened) are applied again.

`shape_ratio_warm` is the worse of the two warm ones. The baseline runs in the same process
between them, and every figure is the best of several rounds, which is how much it must cost.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from recollect.core.engine import Context, Engine, Session
from recollect.errors import RecollectError
from recollect.system.config import build
from recollect_bench.result import BenchResult

WARM = ("warm_untouched", "warm_under_edits")
KINDS = ("cold", *WARM)
MESSAGES = 2_000
LARGE_MESSAGES = 20_000
TAIL = 4
ROUNDS = 9
LARGE_ROUNDS = 7
WIDE_WINDOW_TOKENS = 4_000_000
TIGHT_WINDOW_TOKENS = 160_000
WORDS = (
    *("the request window session engine returns value path error test because update", "config"),
    *("def class import async await token 404 0x7f result list map deployment staging", "retry"),
    *("rollback migration index user account invoice webhook", "src/app/models.py", "parser"),
)
"""Stretches of words; drawing stretches keeps the making of a body out of the figures."""


def run(
    progress: Callable[[str], None] = lambda _: None, *, recall: bool = False, **options: Any
) -> BenchResult:
    """Measure, and set every figure in relation to the baseline of the same run.

    With `recall`, only what recalling costs, which takes minutes (`turn_recall.py`); its `options`
    are for that.
    """
    if recall:
        from recollect_bench import turn_recall

        return turn_recall.run(progress, **options)
    if options:
        raise RecollectError("--store and --quick of `recollect bench turn` go with --recall")
    progress("shaping 2,000 messages")
    small = _measure(MESSAGES, ROUNDS)
    progress("shaping 20,000 messages")
    large = _measure(LARGE_MESSAGES, LARGE_ROUNDS)
    per_message = LARGE_MESSAGES / MESSAGES
    growth = {kind: large[kind] / small[kind] / per_message for kind in (*KINDS, "json")}
    figures = {
        "shape_ratio_warm": max(small[kind] for kind in WARM) / small["json"],
        **{f"shape_ratio_{kind}": small[kind] / small["json"] for kind in KINDS},
        "growth_ratio": max(growth[kind] for kind in KINDS),
        **{f"growth_ratio_{kind}": growth[kind] for kind in KINDS},
        "body_bytes": small["bytes"],
        "body_tokens": small["tokens"],
        "standing_edits": small["edits"],
    }
    baselines = {
        "json_loads_dumps_ms": small["json"] * 1000,
        "json_growth_ratio": growth["json"],
    }
    notes = (
        "ratios are against json.loads + json.dumps of the same body in the same run",
        "growth is time per message at 20,000 messages over time per message at 2,000",
        f"best of {ROUNDS} rounds at 2,000 messages, of {LARGE_ROUNDS} at 20,000",
    )
    return BenchResult(bench="turn", figures=figures, baselines=baselines, notes=notes)


def conversation(messages: int, seed: int = 7) -> list[dict[str, Any]]:
    """A coding agent's history in Anthropic's format, about 100 tokens a message."""
    rng = random.Random(seed)
    held: list[dict[str, Any]] = []
    while len(held) < messages:
        call = f"toolu_{len(held):08d}"
        path = f"src/module_{rng.randrange(40)}/{rng.randrange(999)}.py"
        held += [
            {"role": "user", "content": _prose(rng, 12)},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": _prose(rng, 8)},
                    {"type": "tool_use", "id": call, "name": "read", "input": {"path": path}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": call, "content": _prose(rng, 22)}
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": _prose(rng, 12)}]},
        ]
    return [*held, {"role": "user", "content": "and now the next step, please"}]


def _prose(rng: random.Random, stretches: int) -> str:
    return " ".join(rng.choices(WORDS, k=stretches))


def _body(held: list[dict[str, Any]]) -> bytes:
    tools = [{"name": "read", "description": "Read a file", "input_schema": {"type": "object"}}]
    return json.dumps(
        {"model": "claude-sonnet", "system": "You write code.", "tools": tools, "messages": held}
    ).encode()


def _measure(messages: int, rounds: int) -> dict[str, float]:
    held = conversation(messages)
    body, before = _body(held), _body(held[:-TAIL])
    scale = messages / MESSAGES
    wide = Engine(build({"window_tokens": int(WIDE_WINDOW_TOKENS * scale)}))
    tight = Engine(build({"window_tokens": int(TIGHT_WINDOW_TOKENS * scale)}))
    times: dict[str, list[float]] = {}
    context: Context | None = None
    loop = asyncio.new_event_loop()
    try:
        for _ in range(rounds):
            gc.collect()
            _timed(times, "json", lambda: json.dumps(json.loads(body)))
            session = Session("cold")
            _awaited(loop, times, "cold", wide.prepare(session, body))
            for kind, engine in (("warm_untouched", wide), ("warm_under_edits", tight)):
                session = Session(kind)
                loop.run_until_complete(engine.prepare(session, before))
                context = _awaited(loop, times, kind, engine.prepare(session, body))
    finally:
        loop.close()
    assert context is not None
    best = {kind: min(taken) for kind, taken in times.items()}
    return {
        **best,
        "bytes": float(len(body)),
        "tokens": float(context.report.tokens_before),
        "edits": float(len(context.edits)),
    }


def _timed(times: dict[str, list[float]], kind: str, work: Callable[[], object]) -> None:
    started = time.perf_counter()
    work()
    times.setdefault(kind, []).append(time.perf_counter() - started)


def _awaited(
    loop: asyncio.AbstractEventLoop,
    times: dict[str, list[float]],
    kind: str,
    work: Coroutine[Any, Any, Context],
) -> Context:
    started = time.perf_counter()
    context = loop.run_until_complete(work)
    times.setdefault(kind, []).append(time.perf_counter() - started)
    return context
