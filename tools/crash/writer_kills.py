"""Writers killed with SIGKILL at random points of their writes, on one store."""

from __future__ import annotations

import asyncio
import time
from random import Random

from tools.crash.children import Nursery
from tools.crash.kill_loop import Kill, Progress, kill_often, run_to_the_end
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place
from tools.crash.plan import planned_ids
from tools.crash.verify import Verdict, verify

MODULE = "tools.crash.writer"
WRITER = "writer"
RECENT_BATCHES = 60
LAST_BATCHES = 3


def kill_writers(place: Place, *, kills: int, seed: int = 1, tell: Tell = silent) -> Outcome:
    """Kill a writer so many times; then compare the store with what it acknowledged."""
    began = time.monotonic()
    outcome = Outcome(scenario="writer kills", store=place.name)
    progress = Progress()
    order = Kill(
        module=MODULE,
        arguments=[*place.arguments(), "--writer", WRITER],
        kills=kills,
        random=Random(seed),
        check=lambda came: outcome.take(asyncio.run(_check_recent(place, came))),
        tell=tell,
    )
    with Nursery([MODULE, *place.modules]) as nursery:
        kill_often(nursery, order, progress, outcome)
        run_to_the_end(nursery, order, progress, outcome, more=LAST_BATCHES)
    outcome.take(asyncio.run(_verify(place, progress)))
    outcome.figures["found_when_resent"] = progress.resent_known
    if progress.torn:
        outcome.problems.append(f"{progress.torn} batches were there in part when sent again")
    outcome.seconds = time.monotonic() - began
    return outcome


async def _check_recent(place: Place, progress: Progress) -> Verdict:
    """The store's own check, and whether the newest batches are there."""
    store = await place.open()
    verdict = Verdict()
    try:
        first = max(0, progress.acknowledged - RECENT_BATCHES)
        numbers = range(first, progress.acknowledged)
        ids = [id_ for number in numbers for id_ in planned_ids(WRITER, number)]
        if missing := len(ids) - len(await store.known(ids)):
            verdict.problems.append(f"{missing} of the newest messages are not there")
        verdict.problems += (await store.check()).problems
    finally:
        await store.close()
    return verdict


async def _verify(place: Place, progress: Progress) -> Verdict:
    store = await place.open()
    try:
        return await verify(store, {WRITER: progress.came})
    finally:
        await store.close()
