"""`python -m tools.crash`: every scenario, a table, and a status that CI reads.

The table or, with `--json`, one object goes to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.crash.compaction_kills import kill_assistants
from tools.crash.crowd import crowd
from tools.crash.outage import outage
from tools.crash.outcome import Outcome, table
from tools.crash.places import STORES, Site, site
from tools.crash.restarts import restarts
from tools.crash.server_stops import stop_server
from tools.crash.talker_kills import kill_talkers
from tools.crash.torn_spool import tear_spool
from tools.crash.worker_kills import kill_workers
from tools.crash.writer_kills import kill_writers

SCENARIOS = (
    "writers", "engine", "compactions", "workers", "stops", "outage", "restarts", "crowd", "torn"
)  # fmt: skip

OTHERS_SHARE = 1 / 6
"""The crowd is asked for on SQLite; elsewhere it stays for a shorter time."""
OTHERS_STEP = 8
"""The spool's file is the same whatever store it drains into; one is cut at every byte."""


def run(found: Site, options: argparse.Namespace) -> Iterator[Outcome]:
    """The scenarios that were asked for on one kind of store."""
    asked = options.scenario or SCENARIOS
    seed, tell = options.seed, _tell
    plain = found.name != "encrypted"  # its key and spool have tests of their own
    if "writers" in asked:
        yield kill_writers(found.place(), kills=options.kills, seed=seed, tell=tell)
    if "engine" in asked and plain:
        kills = options.engine_kills
        yield kill_talkers(found.place(), found.home(), kills=kills, seed=seed, tell=tell)
    if "compactions" in asked and plain:
        kills = options.compaction_kills
        yield kill_assistants(found.place(), found.home(), kills=kills, seed=seed, tell=tell)
    if "workers" in asked:
        yield kill_workers(found.place(), kills=options.worker_kills, seed=seed, tell=tell)
    if "stops" in asked and found.server is not None:
        stops = options.stops
        yield stop_server(found.place(), found.server, stops=stops, seed=seed, tell=tell)
    if "outage" in asked and found.server is not None:
        away = options.away_seconds
        for hangs in (False, True):
            place, home = found.place(), found.home()
            yield outage(place, home, found.server, away_seconds=away, hangs=hangs, tell=tell)
    if "restarts" in asked and plain:
        turns, load = options.turns, options.load
        yield restarts(found.place(), found.home(), turns=turns, load=load, tell=tell)
    if "crowd" in asked:
        seconds = options.seconds * (1.0 if found.name == "sqlite" else OTHERS_SHARE)
        yield crowd(found.place(), seconds=seconds, tell=tell)
    if "torn" in asked and plain:
        step = 1 if found.name == "sqlite" else OTHERS_STEP
        yield tear_spool(found.place(), found.home(), step=step, tell=tell)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for; the defaults are full sizes, tests run smaller ones."""
    parser = argparse.ArgumentParser(prog="python -m tools.crash", description=__doc__)
    parser.add_argument("--store", action="append", choices=[*STORES, "all"])
    parser.add_argument("--scenario", action="append", choices=SCENARIOS)
    parser.add_argument("--kills", type=int, default=500, help="of writers, on each store")
    parser.add_argument("--engine-kills", type=int, default=100, help="of conversations")
    parser.add_argument("--compaction-kills", type=int, default=500, help="of agents, within")
    parser.add_argument("--worker-kills", type=int, default=100)
    parser.add_argument("--stops", type=int, default=20, help="of PostgreSQL itself")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the crowd")
    parser.add_argument("--turns", type=int, default=400, help="of the restarted conversation")
    parser.add_argument("--load", type=int, default=8, help="busy processes beside it")
    parser.add_argument("--away-seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run, print, and answer 1 where anything was lost, doubled or wrong."""
    options = options_of(arguments)
    chosen = options.store or ["all"]
    names = STORES if "all" in chosen else tuple(dict.fromkeys(chosen))
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="recollect-crash-") as folder:
        for name in names:
            with site(name, Path(folder)) as found:
                for outcome in run(found, options):
                    outcomes.append(outcome)
                    _tell(table([outcome]))
    if options.json:
        shown = json.dumps({"outcomes": [outcome.as_json() for outcome in outcomes]}, indent=1)
    else:
        shown = table(outcomes)
    sys.stdout.write(f"{shown}\n")
    return 0 if outcomes and all(outcome.clean for outcome in outcomes) else 1


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
