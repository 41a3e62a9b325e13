"""Starts a child, lets it run for a random while, kills it, and starts it again where it was.

Most kills come shortly after a child's first acknowledgement, so that they fall into writes;
some come while it opens the store. Owns the times of the kills and what children printed;
knows nothing of what they write.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tools.crash.children import KILLED, Child, Nursery
from tools.crash.outcome import Outcome, Tell
from tools.crash.verify import Acknowledged

KILL_WITHIN_SECONDS = 0.06
"""After the first acknowledgement: a few writes on either store."""
EARLY_SHARE = 0.2
EARLY_WITHIN_SECONDS = 0.05
"""After the start: while the store is opened, or in the batch that is sent again."""
FRESH_EVERY = 25
"""Every so many children one is a whole `python -m`, not a fork."""
CHECK_EVERY = 10
PATIENCE_SECONDS = 60.0
ENOUGH_PROBLEMS = 5


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a child came, by what it printed."""

    acknowledged: int = 0
    begun: int = 0
    resent_known: int = 0
    """Batches that turned out to be there already when they were sent again."""
    torn: int = 0
    """Batches of which a part was there."""
    away: int = 0
    """Writes refused because the store was away."""

    def read(self, lines: list[str]) -> None:
        """Take in what a child printed."""
        for line in lines:
            mark, number, *counts = line.split()
            if mark == ">":
                self.begun = max(self.begun, int(number) + 1)
            elif mark == "?":
                self.away += 1
            elif mark == "<":
                self.acknowledged = int(number) + 1
                stored, known = (int(count) for count in counts)
                self.resent_known += known > 0
                self.torn += stored > 0 and known > 0

    @property
    def inside(self) -> bool:
        """A write was begun and is not acknowledged."""
        return self.begun > self.acknowledged

    @property
    def came(self) -> Acknowledged:
        """What the store must hold."""
        return Acknowledged(batches=self.acknowledged, on_the_way=int(self.inside))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What is killed, how often, and what is looked at now and then."""

    module: str
    arguments: list[str]
    kills: int
    random: Random
    check: Callable[[Progress], None]
    """Called after every tenth kill, while no child runs."""
    tell: Tell


def kill_often(nursery: Nursery, order: Kill, progress: Progress, outcome: Outcome) -> None:
    """Kill a child so many times, or until something is plainly wrong."""
    inside = 0
    while outcome.kills < order.kills and len(outcome.problems) < ENOUGH_PROBLEMS:
        start = nursery.start if outcome.kills % FRESH_EVERY == 1 else nursery.fork
        child = start(order.module, [*order.arguments, "--first", str(progress.acknowledged)])
        _kill_at_random(child, progress, order.random)
        if child.status != KILLED:
            outcome.problems.append(f"a child ended by itself with status {child.status}")
        outcome.kills += 1
        inside += progress.inside
        if outcome.kills % CHECK_EVERY == 0:
            order.check(progress)
            order.tell(f"{outcome.store}: {outcome.kills} kills, {progress.acknowledged} writes")
    outcome.figures["inside_writes"] = inside


def run_to_the_end(
    nursery: Nursery, order: Kill, progress: Progress, outcome: Outcome, *, more: int
) -> None:
    """One more child that is left alone for `more` writes and must end well."""
    first = progress.acknowledged
    numbers = ["--first", str(first), "--until", str(first + more)]
    child = nursery.fork(order.module, [*order.arguments, *numbers])
    progress.read(child.rest())
    if child.wait() != 0 or progress.acknowledged != first + more:
        outcome.problems.append("the last child could not finish")


def _kill_at_random(child: Child, progress: Progress, random: Random) -> None:
    """Let a child run for a while, then kill it; `progress` has all it acknowledged."""
    patience = time.monotonic() + PATIENCE_SECONDS
    if random.random() < EARLY_SHARE:
        until = child.started + random.uniform(0, EARLY_WITHIN_SECONDS)
    else:
        before = progress.acknowledged
        while progress.acknowledged == before and not child.ended:
            progress.read(child.read(patience - time.monotonic()))
            if time.monotonic() > patience:
                break
        until = time.monotonic() + random.uniform(0, KILL_WITHIN_SECONDS)
    while (left := until - time.monotonic()) > 0 and not child.ended:
        progress.read(child.read(left))
    if child.ended:
        child.wait()
    else:
        child.kill()
    progress.read(child.rest())
