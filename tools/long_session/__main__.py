"""`python -m tools.long_session`: sessions of 3,000 turns at 16k and at 64k.

Each window runs in a process of its own, through `open_memory`, with real SQLite and the default
settings, and its past is replaced by summaries that say nothing. A plain chat of 300 messages
without an embedder comes first. Prints each figure with its bound, and ends with 1 if one of them
is missed. `--json FILE` writes the figures and their series. `--write` writes them to
docs/contributing/figures, from which `python -m tools.reference` draws the chart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tools import figures
from tools.long_session.measure import run_session

_NOTHING_LOST: Final = {"over_limit": 0, "undurable": 0, "lost": 0}
AT_MOST: Final[dict[str, dict[str, float]]] = {
    "agent": {
        **_NOTHING_LOST,
        "folder_to_text": 8.0,
        "cpu_p95_ratio": 1.5,
        "rss_to_rss_at_a_third": 1.25,
    },
    "chat": {**_NOTHING_LOST, "cpu_p50_ms": 10.0},
}
"""What no figure may exceed: the data folder by the archived text, the CPU of the last turns by
that of turn 300, the memory of the process at the end by that after a third of the session."""
AT_LEAST: Final[dict[str, float]] = {"compactions": 1}
"""A session without summaries is an easier one."""
CHAT_MESSAGES: Final = 300
CHAT_WINDOW: Final = 16_000


def main() -> int:
    """Run what was asked for; the exit code."""
    options = _options()
    if options.session:
        print(json.dumps(_session(options)))
        return 0
    results: dict[str, Any] = {}
    failed = False
    for kind, window in [("chat", CHAT_WINDOW), *(("agent", window) for window in options.window)]:
        turns = CHAT_MESSAGES // 2 if kind == "chat" else options.turns
        arguments = ["--session", kind, "--turns", str(turns), "--window", str(window)]
        name = "chat" if kind == "chat" else str(window)
        results[name] = _in_process(arguments)
        for line, held in checked(kind, results[name]["figures"]):
            failed = failed or not held
            print(f"{name}: {line}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.write:
        origin = figures.origin("python -m tools.long_session --write")
        text = json.dumps({**results, **origin}, indent=1)
        (figures.FIGURES / "long_sessions.json").write_text(f"{text}\n", encoding="utf-8")
    return int(failed)


def checked(kind: str, figures: Mapping[str, float]) -> Iterator[tuple[str, bool]]:
    """A line for each figure that has a bound, and whether it keeps to it."""
    bounds = [(name, bound, "at most") for name, bound in AT_MOST[kind].items()]
    bounds += [(name, bound, "at least") for name, bound in AT_LEAST.items()]
    for name, bound, which in bounds:
        value = figures[name]
        held = value <= bound if which == "at most" else value >= bound
        yield f"{name} {value} ({which} {bound:g}){'' if held else ' MISSED'}", held


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3_000)
    parser.add_argument("--window", type=int, action="append", help="tokens; 16000 and 64000")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help="write the figures of the docs")
    parser.add_argument("--session", choices=("agent", "chat"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.window = options.window or [16_000, 64_000]
    return options


def _in_process(arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.long_session", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _session(options: argparse.Namespace) -> dict[str, Any]:
    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    chat = options.session == "chat"
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(
            run_session(
                Path(folder),
                turns=options.turns,
                window_tokens=options.window[0],
                kind=options.session,
                settings={"recall.embedder": "none"} if chat else None,
                progress=tell,
            )
        )
    return measured.to_dict()


if __name__ == "__main__":
    sys.exit(main())
