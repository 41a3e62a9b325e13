"""`python -m tests.harness.clients`: real agents through the gateway, a line for each, a status.

The lines or, with `--json`, one object go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.harness.clients.lab import Lab, LabError
from tests.harness.clients.scenarios import SCENARIOS


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.clients", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the agents are, or are installed")
    parser.add_argument("--only", action="append", choices=tuple(SCENARIOS), help="this scenario")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run, print, and answer 1 where a fault was found."""
    options = options_of(arguments)
    lab = Lab(folder=options.folder or Path(tempfile.gettempdir()) / "recollect-agents")
    chosen = options.only or list(SCENARIOS)
    try:
        lab.install(dict.fromkeys(SCENARIOS[name][0] for name in chosen))
    except LabError as missing:
        sys.stderr.write(f"{missing}\n")
        return 2
    faults: dict[str, list[str]] = {}
    for name in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="recollect-clients-") as folder:
            faults[name] = list(SCENARIOS[name][1](lab, Path(folder)))
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
