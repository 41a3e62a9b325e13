"""Two workers on one queue, killed with SIGKILL at random points of their jobs.

Every job has exactly one effect in the end, and no day's handlers spent more than its budget,
by what they themselves told before they were killed. Owns the enqueued jobs and the times of
the kills.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from recollect.core.values.batch import Batch, NewJob
from tools.crash.children import KILLED, Child, Nursery
from tools.crash.effects import count_effects
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place
from tools.crash.worker import KIND

MODULE = "tools.crash.worker"
WORKERS = 2
JOBS_A_KILL = 12
DAY_TOKENS = 80
COSTS = (10, 20, 30)
"""Some four jobs a day, also on a busy machine: the budget holds workers up on most days."""
KILL_WITHIN_SECONDS = (0.012, 0.012, 0.08)
"""After a worker took a job: mostly while it is at it or writes its effect."""
PATIENCE_SECONDS = 2.0
TELL_EVERY = 10


@dataclass(slots=True, kw_only=True)
class Told:
    """What the workers said."""

    spent: Counter[str] = field(default_factory=Counter)
    """Tokens by day."""
    runs: int = 0
    completed: Counter[str] = field(default_factory=Counter)
    lease_lost: int = 0

    @property
    def cut_off(self) -> int:
        """Runs that a kill cut off before their end was told."""
        return self.runs - self.completed.total() - self.lease_lost

    def read(self, lines: list[str]) -> None:
        """Take in what a worker printed."""
        for line in lines:
            mark, key, *rest = line.split()
            if mark == "*":
                self.runs += 1
                self.spent[rest[1]] += int(rest[0])
            elif rest[0] == "1":
                self.completed[key] += 1
            else:
                self.lease_lost += 1


def kill_workers(place: Place, *, kills: int, seed: int = 1, tell: Tell = silent) -> Outcome:
    """Kill workers so many times; then count effects and tokens."""
    began = time.monotonic()
    random = Random(seed)
    outcome = Outcome(scenario="worker kills", store=place.name)
    keys = asyncio.run(_enqueue(place, kills * JOBS_A_KILL, random))
    told = Told()
    budget = ["--began", str(time.time()), "--day-tokens", str(DAY_TOKENS)]
    arguments = [*place.arguments(), *budget]
    with Nursery([MODULE, *place.modules]) as nursery:
        workers = [nursery.fork(MODULE, arguments) for _ in range(WORKERS)]
        while outcome.kills < kills and len(outcome.problems) < 5:
            turn = outcome.kills % WORKERS
            killed = _kill_at_random(workers[turn], workers, told, random)
            if killed.status != KILLED:
                outcome.problems.append(f"a worker ended by itself with status {killed.status}")
            outcome.kills += 1
            workers[turn] = nursery.fork(MODULE, arguments)
            if outcome.kills % TELL_EVERY == 0:
                tell(f"{place.name}: {outcome.kills} kills, {told.completed.total()} jobs done")
        for worker in workers:
            worker.kill()
            told.read(worker.rest())
        _finish(nursery, arguments, told, outcome)
    asyncio.run(_judge(place, keys, told, outcome))
    outcome.seconds = time.monotonic() - began
    return outcome


async def _enqueue(place: Place, count: int, random: Random) -> list[str]:
    keys = [f"job-{number}" for number in range(count)]
    store = await place.open()
    try:
        for first in range(0, count, 50):
            jobs = tuple(
                NewJob(kind=KIND, key=key, cost_tokens=random.choice(COSTS), run_at=1.0)
                for key in keys[first : first + 50]
            )
            await store.write(Batch(at=time.time(), jobs=jobs))
    finally:
        await store.close()
    return keys


def _kill_at_random(victim: Child, workers: list[Child], told: Told, random: Random) -> Child:
    """Kill one worker some time after it began a job; the others go on meanwhile."""
    until = time.monotonic() + PATIENCE_SECONDS
    at_work = False
    while not victim.ended and time.monotonic() < until:
        lines = victim.read(min(0.01, until - time.monotonic()))
        told.read(lines)
        if not at_work and lines and lines[-1].startswith("*"):
            at_work = True
            until = time.monotonic() + random.uniform(0, random.choice(KILL_WITHIN_SECONDS))
        for worker in workers:
            if worker is not victim:
                told.read(worker.read(0))
    if victim.ended:
        victim.wait()
    else:
        victim.kill()
    told.read(victim.rest())
    return victim


def _finish(nursery: Nursery, arguments: list[str], told: Told, outcome: Outcome) -> None:
    """Two workers do what is left."""
    workers = [nursery.fork(MODULE, [*arguments, "--until-empty"]) for _ in range(WORKERS)]
    for worker in workers:
        told.read(worker.rest())
        if worker.wait() != 0:
            outcome.problems.append("a worker could not finish")


async def _judge(place: Place, keys: list[str], told: Told, outcome: Outcome) -> None:
    store = await place.open()
    try:
        effects = await count_effects(store)
        left = await store.jobs(limit=len(keys) + 1)
        outcome.problems += (await store.check()).problems
    finally:
        await store.close()
    outcome.acknowledged = told.completed.total()
    outcome.lost = sum(not effects[key] for key in keys)
    outcome.duplicated = sum(max(0, effects[key] - 1) for key in keys)
    if left:
        states = Counter(job.state for job in left)
        outcome.problems.append(f"jobs are left: {dict(states)}")
    over = {day: spent for day, spent in told.spent.items() if spent > DAY_TOKENS}
    if over:
        outcome.problems.append(f"the budget of {len(over)} days was exceeded")
    full = sum(spent > DAY_TOKENS - max(COSTS) for spent in told.spent.values())
    outcome.figures = {
        "runs": told.runs,
        "days": len(told.spent),
        "days_at_budget": full,
        "cut_off": told.cut_off,
        "leases_lost": told.lease_lost,
    }
