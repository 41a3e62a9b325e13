"""One conversation without a pause, its process restarted, on a machine that others keep busy.

The parent starts the busy processes and one talking child after the other; `python -m` of this
module is that child. Owns what counts as wrong at the shipped deadlines: a recall that was refused,
a turn that was shaped without what is known of its session, a request over its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from recollect.adapters.wiring import open_memory
from recollect.core.engine import Context
from tools.crash.children import Nursery
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import HOME, Place
from tools.crash.spoken import marker, text_of_turn
from tools.crash.writer import say

MODULE = "tools.crash.restarts"
TALKER = "talker"
WINDOW_TOKENS = 16_000
ASKS_EVERY = 5
"""So many turns apart the user asks for something that was said long ago."""
CHILD_SECONDS = 900.0
BAD = ("failed", "late")


def restarts(
    place: Place,
    home: Path,
    *,
    turns: int = 400,
    times: int = 3,
    load: int = 8,
    tell: Tell = silent,
) -> Outcome:
    """Hold the conversation in `times + 1` processes beside `load` busy ones; then judge it."""
    began = time.monotonic()
    outcome = Outcome(scenario=f"restarts at load {load}", store=place.name, kills=times)
    told: list[dict[str, Any]] = []
    bounds = [turns * part // (times + 1) for part in range(times + 2)]
    with Nursery([]) as nursery, busy(load):
        for first, until in pairwise(bounds):
            where = ["--home", str(home), "--location", place.location, "--space", place.space]
            span = ["--first", str(first), "--until", str(until)]
            child = nursery.start(MODULE, [*where, *span])
            told += [json.loads(line) for line in child.rest(within_seconds=CHILD_SECONDS)]
            if child.wait():
                outcome.problems.append(f"the process of turns {first} to {until} failed")
            tell(f"{place.name}: {len(told)} turns")
    judge(outcome, told, turns)
    outcome.seconds = time.monotonic() - began
    return outcome


def judge(outcome: Outcome, told: Sequence[dict[str, Any]], turns: int) -> None:
    """What went wrong, a problem each, and the times of `prepare`."""
    outcome.acknowledged = len(told)
    if len(told) != turns:
        outcome.problems.append(f"{turns - len(told)} turns are missing")
    for turn in told:
        outcome.problems += [f"turn {turn['turn']}: {line}" for line in turn["wrong"]]
    ordered = sorted(turn["seconds"] for turn in told if not turn["first"]) or [0.0]
    outcome.figures = {
        "prepare_p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "prepare_p99_ms": round(ordered[int(0.99 * (len(ordered) - 1))] * 1000, 1),
        "prepare_worst_ms": round(ordered[-1] * 1000, 1),
        "first_worst_ms": round(
            max([turn["seconds"] for turn in told if turn["first"]], default=0.0) * 1000, 1
        ),
        "asked": sum(turn["asks"] for turn in told),
        "answered": sum(turn["asks"] and turn["answered"] for turn in told),
        "spooled": sum(turn["archived"] != "store" for turn in told),
    }


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but take the processor."""
    spin = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(spin) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def wrong_with(context: Context) -> list[str]:
    """What must not happen on a store that is there, however busy the machine is."""
    report = context.report
    wrong = [
        f"{line.stage} {line.outcome}: {line.said}"
        for line in report.lines
        if line.stage in ("load", "recall") and line.outcome in BAD
    ]
    if report.over_limit:
        wrong.append(f"{report.tokens_after:,} tokens, over the limit")
    return wrong


def _asked_turn(turn: int) -> int | None:
    """The earlier turn that this one asks for."""
    return turn // 3 if turn > 2 * ASKS_EVERY and turn % ASKS_EVERY == 0 else None


def _said(turn: int) -> str:
    told = " ".join([text_of_turn(TALKER, turn, "user")] * 6)
    asked = _asked_turn(turn)
    if asked is None:
        return told
    return f"What did I say in {marker(TALKER, asked, 'user')} about it?"


def _request(turn: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for earlier in range(turn):
        answer = text_of_turn(TALKER, earlier, "assistant")
        messages.append({"role": "user", "content": _said(earlier)})
        messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "user", "content": _said(turn)})
    return {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": messages}


async def _talk(options: argparse.Namespace) -> None:
    os.environ[HOME] = options.home
    async with open_memory(
        store=options.location, space=options.space, window_tokens=WINDOW_TOKENS
    ) as memory:
        for turn in range(options.first, options.until):
            body = _request(turn)
            began = time.monotonic()
            context = await memory.prepare("conversation", body)
            seconds = time.monotonic() - began
            answer = [{"type": "text", "text": text_of_turn(TALKER, turn, "assistant")}]
            seen = await memory.observe("conversation", {"role": "assistant", "content": answer})
            asked = _asked_turn(turn)
            shown = json.dumps(context.request["messages"][:-1])
            told = {
                "turn": turn,
                "first": turn == options.first,
                "seconds": seconds,
                "wrong": wrong_with(context),
                "archived": seen.archived,
                "asks": asked is not None,
                "answered": asked is not None and text_of_turn(TALKER, asked, "user") in shown,
            }
            say(json.dumps(told))


def main(arguments: Sequence[str]) -> int:
    """The child: talk from one turn to another."""
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("--home", required=True, help="data folder, with the spool")
    parser.add_argument("--location", required=True, help="file or URL")
    parser.add_argument("--space", required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--until", type=int, required=True)
    asyncio.run(_talk(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
