"""`python -m tests.harness.long_session`: sessions of 3,000 turns at 16k and at 64k.

Each window runs in a process of its own, through `open_memory`, with real SQLite and the default
settings; a plain chat of 300 messages without an embedder comes first. Ends with 1 if a request was
over its limit, a message was lost or not durable, or a figure is beyond its bound. `--json FILE`
writes the figures; `--before FILE` reads those of an earlier version, and `--svg FILE` draws both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.harness.long_session.measure import run_session
from tests.harness.long_session.picture import growth_picture

BOUNDS: Final = {
    "over_limit": 0,
    "undurable": 0,
    "lost": 0,
    "folder_to_text": 8.0,
    "cpu_p95_ratio": 1.5,
    "rss_growth_to_history": 16.0,
}
"""What no figure of a session may exceed. Memory holds the history that a client sends, read and
counted, and nothing else that grows."""
CHAT_MESSAGES: Final = 300


def main() -> int:
    """Run what was asked for; the exit code."""
    options = _options()
    if options.session:
        print(json.dumps(_session(options)))
        return 0
    results = {"chat": _in_process(["--session", "chat", "--turns", str(CHAT_MESSAGES // 2)])}
    print(f"chat: cpu_p50_ms {results['chat']['figures']['cpu_p50_ms']}", flush=True)
    failed = False
    for window in options.window:
        arguments = ["--session", "agent", "--turns", str(options.turns), "--window", str(window)]
        result = results[str(window)] = _in_process(arguments)
        for name, value in result["figures"].items():
            beyond = name in BOUNDS and value > BOUNDS[name]
            failed = failed or beyond
            print(f"{window}: {name} {value}{' BEYOND ITS BOUND' if beyond else ''}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        before = json.loads(options.before.read_text("utf-8")) if options.before else {}
        options.svg.write_text(growth_picture(before, results), encoding="utf-8")
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3_000)
    parser.add_argument("--window", type=int, action="append", help="tokens; 16000 and 64000")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--session", choices=("agent", "chat"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.window = options.window or [16_000, 64_000]
    return options


def _in_process(arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.harness.long_session", *arguments]
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
