"""Conversations through the whole engine, killed with SIGKILL at random points.

What the engine said is durable must be in the store once the spool has drained: once, and in
the order it was said.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

from recollect.adapters.wiring import open_spool
from tools.crash.children import Nursery
from tools.crash.kill_loop import Kill, Progress, kill_often, run_to_the_end
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place, engine_home
from tools.crash.spoken import compare_spoken, markers
from tools.crash.verify import Verdict, read_segments

MODULE = "tools.crash.talker"
TALKER = "talker"
LAST_TURNS = 3
DRAIN_TRIES = 10


def kill_talkers(
    place: Place, home: Path, *, kills: int, seed: int = 1, tell: Tell = silent
) -> Outcome:
    """Kill an engine so many times in mid-conversation; then compare."""
    began = time.monotonic()
    outcome = Outcome(scenario="engine kills", store=place.name)
    progress = Progress()
    where = ["--home", str(home), "--location", place.location, "--space", place.space]
    order = Kill(
        module=MODULE,
        arguments=[*where, "--talker", TALKER],
        kills=kills,
        random=Random(seed),
        check=lambda _: outcome.problems.extend(asyncio.run(_check(place))),
        tell=tell,
    )
    with Nursery([MODULE, *place.modules]) as nursery:
        kill_often(nursery, order, progress, outcome)
        waiting, tries = 1, 0
        while waiting and tries < DRAIN_TRIES:
            run_to_the_end(nursery, order, progress, outcome, more=LAST_TURNS)
            waiting = waiting_in_spool(place, home)
            tries += 1
    if waiting:
        outcome.problems.append(f"{waiting} batches still wait in the spool")
    outcome.take(asyncio.run(verify_spoken(place, range(progress.acknowledged))))
    outcome.seconds = time.monotonic() - began
    return outcome


def waiting_in_spool(place: Place, home: Path) -> int:
    """What waits in the spool of engines that are no more."""

    async def waiting() -> int:
        spool = await open_spool(place.location, space=place.space)
        try:
            return await spool.waiting()
        finally:
            await spool.close()

    with engine_home(home):
        return asyncio.run(waiting())


async def verify_spoken(place: Place, turns: range) -> Verdict:
    """Compare the archive with all turns of a talker."""
    store = await place.open()
    try:
        verdict = compare_spoken(await read_segments(store), markers(TALKER, turns))
        verdict.problems += (await store.check()).problems
        return verdict
    finally:
        await store.close()


async def _check(place: Place) -> tuple[str, ...]:
    store = await place.open()
    try:
        return (await store.check()).problems
    finally:
        await store.close()
