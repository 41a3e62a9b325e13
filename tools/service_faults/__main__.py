"""`python -m tools.service_faults`: every fault at both paces, then the backup.

Ends with 1 where an acknowledged message was lost or stored twice, an answer was late, or the
service did not come back by itself.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.service_faults.backup import WAYS, BackupOutcome, try_backup
from tools.service_faults.scenarios import (
    SCENARIOS,
    FaultOutcome,
    Held,
    Plan,
    try_scenario,
)

BACKUP_PACE = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run, print, and answer 1 where anything was lost, doubled, late or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.service_faults")
    parser.add_argument("--scenario", action="append", choices=(*SCENARIOS, *WAYS))
    parser.add_argument("--times", action="append", type=float, help="of the pace that is held")
    parser.add_argument("--pace", type=float, help="arrivals a second; else it is found out")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended then, too
    plan = Plan(
        before_seconds=options.seconds,
        overload_seconds=options.seconds,
        after_seconds=options.seconds,
    )
    asked = options.scenario or (*SCENARIOS, *WAYS)
    outcomes: list[FaultOutcome | BackupOutcome] = []
    with tempfile.TemporaryDirectory(prefix="recollect-faults-") as folder:
        for scenario in (one for one in SCENARIOS if one in asked):
            outcomes += try_scenario(
                scenario,
                Path(folder),
                times=options.times or (1.0, 2.0),
                plan=plan,
                held=None if options.pace is None else Held(pace=options.pace),
                tell=_tell,
            )
        for way in (one for one in WAYS if one in asked):
            pace = options.pace or BACKUP_PACE
            done = try_backup(way, Path(folder) / way, pace=pace, seconds=options.seconds)
            outcomes.append(done)
            _tell(done)
    if options.json:
        shown = json.dumps({"outcomes": [outcome.as_json() for outcome in outcomes]}, indent=1)
        sys.stdout.write(f"{shown}\n")
    return 0 if outcomes and all(outcome.clean for outcome in outcomes) else 1


def _tell(outcome: FaultOutcome | BackupOutcome) -> None:
    sys.stderr.write(f"{json.dumps(outcome.as_json())}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
