"""`python -m tools.service_faults.soak`: mixed load on two nodes and a worker for a while.

Memory has to stay flat: what the processes hold in the last fifth of the load is compared with what
they held in its middle, when everything was opened. Then nothing is asked for a while, and an idle
node must not grow. What was acknowledged has to be there, once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, linear_regression, median
from typing import Final

from tools.service_faults.fleet import Fleet
from tools.service_faults.load import Load, stored_tokens

SAMPLE_SECONDS: Final = 2.0
MOST_GROWTH: Final = 1.05
MOST_IDLE_MB_AN_HOUR: Final = 1.0
IDLE_REST_SECONDS: Final = 60.0
"""What a node gives back after its last request is not counted as idling: links are closed then."""


class Sampled:
    """The resident memory of processes, taken again and again."""

    def __init__(self, fleet: Fleet) -> None:
        self._processes = (*fleet.nodes, fleet.worker)
        self.seconds: list[float] = []
        self.megabytes: dict[str, list[float]] = {each.name: [] for each in self._processes}

    async def run(self, seconds: float) -> None:
        """Sample for so long."""
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            self.seconds.append(now)
            for process in self._processes:
                self.megabytes[process.name].append(process.resident_mb)
            await asyncio.sleep(SAMPLE_SECONDS)

    def growth(self, name: str) -> float:
        """The last fifth against the fifth in the middle."""
        held = self.megabytes[name]
        part = max(1, len(held) // 5)
        return round(median(held[-part:]) / median(held[2 * part : 3 * part] or held), 3)

    def megabytes_an_hour(self, name: str) -> float:
        """The slope of a line through all samples."""
        slope = linear_regression(self.seconds, self.megabytes[name]).slope
        return round(slope * 3_600, 2)


async def soaked(
    fleet: Fleet, *, pace: float, seconds: float, idle_seconds: float
) -> dict[str, object]:
    """Load, then silence; what was measured, with what is wrong as `problems`."""
    load = Load(fleet.urls, fleet.keys, seed=5)
    load.pace, stop, sampled = pace, asyncio.Event(), Sampled(fleet)
    running = asyncio.create_task(load.run(stop))
    await sampled.run(seconds)
    stop.set()
    await running
    record = load.record
    found = await stored_tokens(fleet.urls, fleet.keys, sorted(record.spaces))
    lost = sum(1 for token in record.acknowledged if not found[token])
    twice = sum(1 for token in record.sent if found[token] > 1)
    idle = Sampled(fleet)
    if idle_seconds:
        await asyncio.sleep(IDLE_REST_SECONDS)
        await idle.run(idle_seconds)
    answered = [one for one in record.answers if one.status == 200]
    growth = {name: sampled.growth(name) for name in sampled.megabytes}
    grows = {node.name: idle.megabytes_an_hour(node.name) for node in fleet.nodes if idle.seconds}
    problems = [f"{name} grew {by} times" for name, by in growth.items() if by > MOST_GROWTH]
    problems += [f"{name} grows idle" for name, by in grows.items() if by > MOST_IDLE_MB_AN_HOUR]
    problems += [f"{lost} lost", f"{twice} twice"] if lost or twice else []
    problems += list(record.problems)
    return {
        "seconds": seconds,
        "pace": pace,
        "requests": len(record.answers),
        "answered": len(answered),
        "mean_ms": round(1_000 * fmean(one.seconds for one in answered), 1),
        "acknowledged": len(record.acknowledged),
        "lost": lost,
        "twice": twice,
        "resident_mb": {name: round(held[-1], 1) for name, held in sampled.megabytes.items()},
        "growth": growth,
        "idle_mb_an_hour": grows,
        "problems": problems,
    }


def main(arguments: Sequence[str]) -> int:
    """Run and print; 1 where something grew, was lost or stored twice."""
    parser = argparse.ArgumentParser(prog="python -m tools.service_faults.soak")
    parser.add_argument("--seconds", type=float, default=600.0, help="of load")
    parser.add_argument("--idle-seconds", type=float, default=600.0, help="without any")
    parser.add_argument("--pace", type=float, default=8.0, help="arrivals a second")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="recollect-soak-") as folder,
        Fleet.start(Path(folder)) as fleet,
    ):
        work = soaked(
            fleet, pace=options.pace, seconds=options.seconds, idle_seconds=options.idle_seconds
        )
        told = asyncio.run(work)
    sys.stdout.write(f"{json.dumps(told, indent=1)}\n")
    return 1 if told["problems"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
