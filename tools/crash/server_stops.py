"""PostgreSQL itself stopped as if the power had gone, under load, and started again.

Three writers go on through it with retries: what the server acknowledged before it went must
be there afterwards. Owns the times of the stops.
"""

from __future__ import annotations

import asyncio
import time
from random import Random

from recollect_bench.postgres_server import PostgresServer
from tools.crash.children import Child, Nursery
from tools.crash.kill_loop import Progress
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place
from tools.crash.verify import Verdict, verify

MODULE = "tools.crash.writer"
WRITERS = ("first", "second", "third")
LOAD_SECONDS = (0.15, 0.6)
"""How long the writers write between two stops."""
LAST_BATCHES = 3


def stop_server(
    place: Place, server: PostgresServer, *, stops: int, seed: int = 1, tell: Tell = silent
) -> Outcome:
    """Stop the server so many times under load; then compare."""
    began = time.monotonic()
    random = Random(seed)
    outcome = Outcome(scenario="server stops", store=place.name)
    progress = {name: Progress() for name in WRITERS}
    with Nursery([MODULE, *place.modules]) as nursery:
        writers = {
            name: nursery.fork(MODULE, [*place.arguments(), "--writer", name, "--retry"])
            for name in WRITERS
        }
        while outcome.kills < stops and not outcome.problems:
            before = {name: came.acknowledged for name, came in progress.items()}
            _listen(writers, progress, random.uniform(*LOAD_SECONDS), beyond=before)
            server.stop("immediate")
            outcome.kills += 1
            _listen(writers, progress, random.uniform(0, 0.2))
            server.start()
            outcome.problems += [f"writer {name} ended" for name in WRITERS if writers[name].ended]
            tell(f"{place.name}: {outcome.kills} stops, {_total(progress)} batches")
        _end(nursery, place, writers, progress, outcome)
    outcome.take(asyncio.run(_verify(place, progress)))
    outcome.figures = {
        "refused_meanwhile": sum(came.away for came in progress.values()),
        "found_when_resent": sum(came.resent_known for came in progress.values()),
    }
    torn = sum(came.torn for came in progress.values())
    if torn:
        outcome.problems.append(f"{torn} batches were there in part when sent again")
    outcome.seconds = time.monotonic() - began
    return outcome


def _listen(
    writers: dict[str, Child],
    progress: dict[str, Progress],
    seconds: float,
    *,
    beyond: dict[str, int] | None = None,
    within_seconds: float = 60.0,
) -> None:
    """Take in what the writers say for so long, and until each went `beyond` a batch."""
    now = time.monotonic()
    until, patience = now + seconds, now + within_seconds
    while (now := time.monotonic()) < patience:
        stuck = beyond and any(progress[name].acknowledged <= beyond[name] for name in writers)
        if now >= until and not stuck:
            return
        for name, child in writers.items():
            progress[name].read(child.read(0.005))
            if child.ended:
                return


def _end(
    nursery: Nursery,
    place: Place,
    writers: dict[str, Child],
    progress: dict[str, Progress],
    outcome: Outcome,
) -> None:
    """Kill the writers; each sends what it has not acknowledged once more."""
    for name, child in writers.items():
        child.kill()
        progress[name].read(child.rest())
    for name in WRITERS:
        first = progress[name].acknowledged
        numbers = ["--first", str(first), "--until", str(first + LAST_BATCHES), "--retry"]
        child = nursery.fork(MODULE, [*place.arguments(), "--writer", name, *numbers])
        progress[name].read(child.rest())
        if child.wait() != 0:
            outcome.problems.append(f"writer {name} could not finish")


def _total(progress: dict[str, Progress]) -> int:
    return sum(came.acknowledged for came in progress.values())


async def _verify(place: Place, progress: dict[str, Progress]) -> Verdict:
    store = await place.open()
    try:
        return await verify(store, {name: came.came for name, came in progress.items()})
    finally:
        await store.close()
