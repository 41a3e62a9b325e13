"""A child that works off jobs with the job runner: `python -m ...crash.worker`.

It prints `* KEY TOKENS DAY` when a handler has spent its tokens and `+ KEY 1` when the job was
completed, `+ KEY 0` when its lease was lost. Its clock runs so fast that a day takes a third of
a second: the budgets of many days are tried in a minute. Always holds: tokens are told before
the effect.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from random import Random

from recollect.core.ports import Store
from recollect.core.upkeep.jobs import JobRunner, day_of
from recollect.core.values.batch import Batch, Lease
from tools.crash.effects import effect_of
from tools.crash.places import open_place
from tools.crash.plan import STARTED_AT
from tools.crash.writer import say

KIND = "count"
DAY_SECONDS = 86_400.0
IDLE_SECONDS = 0.01
WORK_SECONDS = 0.01
"""How long a handler takes at most."""
MAX_ATTEMPTS = 1000
"""No job is to die of the kills: each of them costs a job an attempt."""


class FastClock:
    """A clock whose days are short; all processes of a run share where it began."""

    def __init__(self, *, began: float, day_seconds: float) -> None:
        self._began = began
        self.speed = DAY_SECONDS / day_seconds

    def now(self) -> float:
        """Seconds since the epoch, as this clock has them."""
        return STARTED_AT + (time.time() - self._began) * self.speed


class Worker:
    """One worker of the run."""

    def __init__(self, store: Store, clock: FastClock, options: argparse.Namespace) -> None:
        self.store = store
        self.clock = clock
        self.lease_seconds = options.lease_seconds * clock.speed
        self.until_empty = options.until_empty
        self.random = Random()
        self.key = ""
        self.runner = JobRunner(
            store,
            {KIND: self.handle},
            clock,
            lease_seconds=self.lease_seconds,
            max_attempts=MAX_ATTEMPTS,
            day_tokens=options.day_tokens,
        )

    async def handle(self, lease: Lease) -> Batch:
        """Spend the tokens, take a while, and leave an effect."""
        taken_at = lease.expires_at - self.lease_seconds
        self.key = lease.key
        say(f"* {lease.key} {lease.cost_tokens} {day_of(taken_at)}")
        await asyncio.sleep(self.random.uniform(0, WORK_SECONDS))
        return effect_of(lease, at=self.clock.now())

    async def work(self) -> None:
        """Take jobs and do them, until killed or, when asked to, until none is left."""
        while True:
            result = await self.runner.run_once()
            if result is not None:
                say(f"+ {self.key} {int(result.outcome == 'done')}")
                continue
            if self.until_empty:
                queue = await self.store.queue()
                if not (queue.waiting or queue.leased):
                    return
            await asyncio.sleep(IDLE_SECONDS)


async def _run(options: argparse.Namespace) -> None:
    clock = FastClock(began=options.began, day_seconds=options.day_seconds)
    store = await open_place(options.opener, options.location, options.space)
    try:
        await Worker(store, clock, options).work()
    finally:
        await store.close()


def main(arguments: Sequence[str]) -> int:
    """Work until killed, or until nothing is left."""
    parser = argparse.ArgumentParser(prog="tools.crash.worker")
    parser.add_argument("--opener", required=True, help="module:function that opens the store")
    parser.add_argument("--location", required=True, help="file or URL")
    parser.add_argument("--space", required=True)
    parser.add_argument("--began", type=float, required=True, help="when the fast clock began")
    parser.add_argument("--day-seconds", type=float, default=0.3, help="how long a day takes")
    parser.add_argument("--lease-seconds", type=float, default=0.5, help="by the real clock")
    parser.add_argument("--day-tokens", type=int, required=True)
    parser.add_argument("--until-empty", action="store_true")
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
