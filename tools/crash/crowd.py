"""Eight processes on one store for a while: writes, queries, sessions and jobs.

Nobody is killed; nobody may meet an error, and everything written is there in the end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tools.crash.children import Child, Nursery
from tools.crash.effects import count_effects
from tools.crash.kill_loop import Progress
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place
from tools.crash.plan import JOB_KIND, job_key
from tools.crash.verify import ALL, verify

MODULE = "tools.crash.crowd_member"
MEMBERS = 8
TELL_SECONDS = 10.0


def crowd(
    place: Place, *, seconds: float, rounds: int = 0, members: int = MEMBERS, tell: Tell = silent
) -> Outcome:
    """Let `members` processes work on one store, each for so many rounds at least; then compare."""
    began = time.monotonic()
    outcome = Outcome(scenario="crowd", store=place.name)
    progress = {f"member-{number}": Progress() for number in range(members)}
    done: Counter[str] = Counter()
    queries = 0
    with Nursery([MODULE, *place.modules]) as nursery:
        until = ["--others", str(members), "--until-time", str(time.time() + seconds)]
        until += ["--rounds", str(rounds)]
        children = {
            name: nursery.fork(MODULE, [*place.arguments(), "--writer", name, *until])
            for name in progress
        }
        told_at = began
        while any(not child.ended for child in children.values()):
            for name, child in children.items():
                queries += _take(child, progress[name], done)
            if time.monotonic() - told_at > TELL_SECONDS:
                told_at = time.monotonic()
                tell(
                    f"{place.name}: {sum(came.acknowledged for came in progress.values())} batches"
                )
        for name, child in children.items():
            if child.wait() != 0:
                outcome.problems.append(f"{name} met an error, see its traceback")
    asyncio.run(_judge(place, progress, done, outcome))
    writes = sum(came.acknowledged for came in progress.values())
    outcome.figures = {"writes": writes, "queries": queries, "jobs": done.total()}
    outcome.seconds = time.monotonic() - began
    return outcome


def _take(child: Child, progress: Progress, done: Counter[str]) -> int:
    """Read what one child said; how many queries it made, once it says so."""
    queries = 0
    for line in child.read(0.002):
        mark, value, *_ = line.split()
        if mark == "+":
            done[value] += 1
        elif mark == "=":
            queries += int(value)
        else:
            progress.read([line])
    return queries


async def _judge(
    place: Place, progress: dict[str, Progress], done: Counter[str], outcome: Outcome
) -> None:
    """Everything that was written is there, and each job waits or was done once."""
    store = await place.open()
    try:
        came = {name: seen.came for name, seen in progress.items()}
        outcome.take(await verify(store, came, jobs_stay=False))
        effects = await count_effects(store)
        waiting = {job.key for job in await store.jobs(limit=ALL) if job.kind == JOB_KIND}
    finally:
        await store.close()
    keys = [
        job_key(name, number)
        for name, seen in progress.items()
        for number in range(seen.acknowledged)
    ]
    outcome.duplicated += sum(max(0, effects[key] - 1) for key in keys)
    outcome.lost += sum(not effects[key] and key not in waiting for key in keys)
    outcome.lost += sum(not effects[key] for key in done)
    outcome.duplicated += sum(key in waiting for key in effects)
