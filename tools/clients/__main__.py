"""`python -m tools.clients`: real agents through the gateway, a line for each, a status.

The lines or, with `--json`, one object go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tools.clients.for_ever import (
    BARE_BELOW_TOKENS,
    SDK_WINDOWS,
    WINDOWS,
    LongTalk,
    Talking,
    as_line,
    by_claude_code,
    by_sdk,
    long_talk,
)
from tools.clients.lab import Lab, LabError
from tools.clients.scenarios import SCENARIOS
from tools.clients.sdks import (
    SDKS,
    TALKING_SDKS,
    python_to_talk,
    python_with_sdks,
    sdk_faults,
)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.clients", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the agents are, or are installed")
    parser.add_argument("--only", action="append", choices=tuple(SCENARIOS), help="this scenario")
    parser.add_argument(
        "--for-ever",
        action="store_true",
        help="Claude Code talks 300,000 tokens at windows of 16k, 32k and 200k",
    )
    parser.add_argument(
        "--sdk",
        action="append",
        nargs="?",
        choices=TALKING_SDKS,
        help="with --for-ever: a loop on this SDK, or on each, at 16k and 200k talks instead",
    )
    parser.add_argument(
        "--sdks", action="store_true", help="programs on official SDKs, direct and through it"
    )
    parser.add_argument("--tokens", type=int, default=300_000, help="with --for-ever")
    parser.add_argument(
        "--window", type=int, action="append", help="with --for-ever; may be given again"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run, print, and answer 1 where a fault was found."""
    options = options_of(arguments)
    lab = Lab(folder=options.folder or Path(tempfile.gettempdir()) / "recollect-agents")
    chosen = options.only or list(SCENARIOS)
    needed = [SCENARIOS[name][0] for name in chosen]
    try:
        if options.sdks:
            return _sdks(python_with_sdks(lab.folder), options)
        if options.for_ever and options.sdk:
            return _for_ever(_sdk_talks(python_to_talk(lab.folder), options), options)
        lab.install(["claude"] if options.for_ever else dict.fromkeys(needed))
    except LabError as missing:
        sys.stderr.write(f"{missing}\n")
        return 2
    if options.for_ever:
        return _for_ever(_claude_talks(lab, options), options)
    return _scenarios(lab, chosen, options)


def _claude_talks(lab: Lab, options: argparse.Namespace) -> Iterator[tuple[str, int, Talking]]:
    """Claude Code at each window: its name, the window, and how it is started."""
    for window in options.window or WINDOWS:
        yield "claude", window, by_claude_code(lab, bare=window < BARE_BELOW_TOKENS)


def _sdk_talks(python: Path, options: argparse.Namespace) -> Iterator[tuple[str, int, Talking]]:
    """The same for SDKs."""
    named = [sdk for sdk in options.sdk if sdk is not None]
    for sdk in named or TALKING_SDKS:
        for window in options.window or SDK_WINDOWS:
            yield sdk, window, by_sdk(python, sdk)


def _for_ever(clients: Iterator[tuple[str, int, Talking]], options: argparse.Namespace) -> int:
    """Long conversations, without summaries and with those of a weak model."""
    talks: list[LongTalk] = []
    for client, window, talking in clients:
        for summaries in (False, True):
            with tempfile.TemporaryDirectory(prefix="recollect-clients-") as folder:
                talk = long_talk(
                    talking,
                    Path(folder),
                    client=client,
                    window_tokens=window,
                    summaries=summaries,
                    tokens=options.tokens,
                )
            talks.append(talk)
            if not options.json:
                print(as_line(talk), flush=True)
                for fault in talk.faults:
                    print(f"    {fault}", flush=True)
    if options.json:
        print(json.dumps([talk.to_dict() for talk in talks], indent=2))
    return 1 if any(fault for talk in talks for fault in talk.faults) else 0


def _scenarios(lab: Lab, chosen: Sequence[str], options: argparse.Namespace) -> int:
    """What each agent is put through."""
    return _told({name: partial(SCENARIOS[name][1], lab) for name in chosen}, options)


def _sdks(python: Path, options: argparse.Namespace) -> int:
    """What programs on each SDK are answered."""
    return _told({sdk: partial(sdk_faults, python, sdk) for sdk in SDKS}, options)


def _told(runs: Mapping[str, Callable[[Path], Iterator[str]]], options: argparse.Namespace) -> int:
    """Run each in a folder of its own and tell its faults."""
    faults: dict[str, list[str]] = {}
    for name, run in runs.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="recollect-clients-") as folder:
            faults[name] = list(run(Path(folder)))
        seconds = time.monotonic() - began
        if not options.json:
            told = "fine" if not faults[name] else f"{len(faults[name])} faults"
            print(f"{name:20} {told:10} {seconds:6.1f} s", flush=True)
            for fault in faults[name]:
                print(f"    {fault}", flush=True)
    if options.json:
        print(json.dumps(faults, indent=2))
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
