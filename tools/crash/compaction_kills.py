"""Agents killed with SIGKILL, most of them within a compaction.

Whatever was acknowledged must be where it was said to be when the agent is dead, once, and again
at the end; the transcript opens, the standing cut has its record, and the next agent goes on with
valid requests in which every message is shown or summarized.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from tools.crash.children import KILLED, Child, Nursery
from tools.crash.compaction_verify import Durable, Left, verify_session
from tools.crash.desk import SESSION_TURNS, WHOLE, Desk, open_desk, session_of_turn
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place
from tools.crash.talker_kills import DRAIN_TRIES, waiting_in_spool

MODULE = "tools.crash.assistant"
IMPORTED = (
    MODULE,
    "recollect.core.engine.background",
    "recollect.adapters.providers.overflow",
    "recollect.adapters.wiring.models",
    "recollect.adapters.wiring.models",
    "recollect.adapters.wiring.memory",
    "recollect.adapters.wiring.models",
)
"""What an engine imports when it is opened, and should find there already."""
FIRST_TURNS = 14
"""Left alone in the beginning: the window fills, and it is seen how long compactions take."""
LAST_TURNS = 3
EARLY_SHARE, EARLY_WITHIN_SECONDS = 0.06, 0.08
"""Killed while it opens store and transcript, or prepares its first request."""
TURN_SHARE, TURN_WITHIN_SECONDS = 0.06, 0.06
"""Killed in a turn, whether or not it compacts."""
STEPS = {"begun": 0.35, "summarized": 0.5, "committed": 0.15}
"""The others wait for this step of a compaction, and for a random part of the time from there to
its end: behind a summary come receipt and commit, behind the commit comes the transcript."""
UNHARMED = (0, 0, 0, 0, 1)
"""So many compactions are let pass before, so that the session goes on."""
TIMES_KEPT = 40
UNKNOWN_SECONDS = 0.1
CHECK_EVERY = 10
MOST_RATIO = 3
"""Kills that miss a compaction come on top, but only so many."""
FRESH_EVERY = 50
"""Every so many children one is a whole `python -m`, not a fork."""
PATIENCE_SECONDS = 60.0
ENOUGH_PROBLEMS = 5


@dataclass(slots=True, kw_only=True)
class Heard:
    """What agents said, over all their lives."""

    begun: int = 0
    """Turns."""
    durable: Durable = field(default_factory=Durable)
    problems: list[str] = field(default_factory=list)
    step: str = ""
    """The last word of a compaction."""
    made: int = 0
    """Compactions that were seen to their end."""
    seconds: dict[str, deque[float]] = field(
        default_factory=lambda: {step: deque(maxlen=TIMES_KEPT) for step in STEPS}
    )
    """How long it took lately from each step to the end."""
    _times: dict[str, float] = field(default_factory=dict)

    def read(self, lines: list[str]) -> None:
        """Take in what an agent printed."""
        for line in lines:
            mark, _, said = line.partition(" ")
            if mark == ">":
                self.begun = int(said) + 1
            elif mark == "+":
                place, _, marker = said.partition(" ")
                getattr(self.durable, place).add(marker)
            elif mark == "!":
                self.problems.append(said)
            elif mark == "c":
                self._compacts(said)

    def _compacts(self, step: str) -> None:
        now = time.monotonic()
        if step == "begun":
            self._times.clear()
        self._times.setdefault(step, now)
        self.step = step
        if step == "recorded":
            self.made += 1
            for begun in self._times.keys() & STEPS.keys():
                self.seconds[begun].append(now - self._times[begun])

    def seconds_from(self, step: str) -> float:
        """How long it usually takes from there to the end."""
        return median(self.seconds[step] or [UNKNOWN_SECONDS])

    @property
    def inside(self) -> bool:
        """A compaction has begun, and is not over."""
        return self.step in STEPS


def kill_assistants(
    place: Place,
    home: Path,
    *,
    kills: int,
    seed: int = 1,
    tell: Tell = silent,
    desk: str = WHOLE,
) -> Outcome:
    """Kill agents until so many kills fell into compactions; look at what each of them left."""
    began = time.monotonic()
    outcome = Outcome(scenario="compaction kills", store=place.name)
    heard = Heard()
    left = Left()
    order = _Order(place=place, home=home, desk=desk)
    with Nursery([*IMPORTED, *place.modules, desk.partition(":")[0]]) as nursery:
        _run_to_the_end(nursery, order, heard, outcome, more=FIRST_TURNS)
        left.add(asyncio.run(_verify(order, [session_of_turn(0)], heard.durable, check=True)))
        _kill_often(nursery, order, heard, outcome, left, kills=kills, seed=seed, tell=tell)
        waiting, tries = 1, 0
        while waiting and tries < DRAIN_TRIES:
            _run_to_the_end(nursery, order, heard, outcome, more=LAST_TURNS)
            waiting = waiting_in_spool(place, home)
            tries += 1
    if waiting:
        outcome.problems.append(f"{waiting} batches still wait in the spool")
    every = [session_of_turn(turn) for turn in range(0, heard.begun, SESSION_TURNS)]
    last = asyncio.run(_verify(order, every, heard.durable.drained(), check=True))
    outcome.figures |= {"compactions": last.compactions, "not_in_transcript": last.unrecorded}
    left.add(last)
    outcome.acknowledged = len(heard.durable.transcript)
    outcome.lost, outcome.duplicated = len(left.lost), len(left.twice)
    outcome.problems += dict.fromkeys([*heard.problems, *left.problems])
    outcome.seconds = time.monotonic() - began
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    place: Place
    home: Path
    desk: str

    def arguments(self, first: int, until: int | None = None) -> list[str]:
        where = ["--location", self.place.location, "--space", self.place.space]
        turns = ["--first", str(first), *(["--until", str(until)] if until is not None else [])]
        return ["--desk", self.desk, "--home", str(self.home), *where, *turns]

    def opened(self) -> Desk:
        """The desk as it should be: it is only read."""
        return open_desk(
            WHOLE, home=self.home, location=self.place.location, space=self.place.space
        )


def _kill_often(
    nursery: Nursery,
    order: _Order,
    heard: Heard,
    outcome: Outcome,
    left: Left,
    *,
    kills: int,
    seed: int,
    tell: Tell,
) -> None:
    random = Random(seed)
    inside = committed = 0
    while inside < kills and outcome.kills < MOST_RATIO * kills:
        if len(heard.problems) + left.wrong >= ENOUGH_PROBLEMS:
            break
        first, heard.step = heard.begun, ""
        start = nursery.start if outcome.kills % FRESH_EVERY == 1 else nursery.fork
        child = start(MODULE, order.arguments(first))
        _kill_at_random(child, heard, random)
        if child.status != KILLED:
            outcome.problems.append(f"a child ended by itself with status {child.status}")
            return
        outcome.kills += 1
        inside += heard.inside
        committed += heard.step == "committed"
        check = outcome.kills % CHECK_EVERY == 0
        turns = range(max(0, first - 1), heard.begun)
        sessions = list(dict.fromkeys(session_of_turn(turn) for turn in turns))
        found = asyncio.run(_verify(order, sessions, heard.durable, check=check))
        left.add(found)
        if check:
            told = f"{outcome.kills} kills, {inside} of them in compactions, {left.wrong} wrong"
            tell(f"{outcome.store}: {told}")
    outcome.figures |= {"inside": inside, "committed_not_recorded": committed, "torn": left.torn}


def _run_to_the_end(
    nursery: Nursery, order: _Order, heard: Heard, outcome: Outcome, *, more: int
) -> None:
    """An agent that is left alone for some turns and must end well."""
    until = heard.begun + more
    child = nursery.fork(MODULE, order.arguments(heard.begun, until))
    while not child.ended:
        heard.read(child.read(PATIENCE_SECONDS))
    if child.wait() != 0 or heard.begun != until:
        outcome.problems.append("an agent that was left alone could not finish")


def _kill_at_random(child: Child, heard: Heard, random: Random) -> None:
    """Let an agent work for a while, then kill it; `heard` has all it acknowledged."""
    chosen = random.random()
    if chosen < EARLY_SHARE:
        until = child.started + random.uniform(0, EARLY_WITHIN_SECONDS)
    elif chosen < EARLY_SHARE + TURN_SHARE:
        before = heard.begun
        _listen_until(child, heard, lambda: heard.begun > before)
        until = time.monotonic() + random.uniform(0, TURN_WITHIN_SECONDS)
    else:
        (step,) = random.choices(list(STEPS), list(STEPS.values()))
        enough = heard.made + random.choice(UNHARMED)
        _listen_until(child, heard, lambda: heard.made >= enough and heard.step == step)
        until = time.monotonic() + random.uniform(0, heard.seconds_from(step))
    while (wait := until - time.monotonic()) > 0 and not child.ended:
        heard.read(child.read(wait))
    if child.ended:
        child.wait()
    else:
        child.kill()
    heard.read(child.rest())


def _listen_until(child: Child, heard: Heard, reached: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE_SECONDS
    while not reached() and not child.ended and (left := patience - time.monotonic()) > 0:
        heard.read(child.read(left))


async def _verify(order: _Order, sessions: list[str], durable: Durable, *, check: bool) -> Left:
    desk = order.opened()
    left = Left()
    store = await order.place.open()
    try:
        for session in sessions:
            left.add(await verify_session(desk, store, session, durable.of_session(session)))
        if check:
            left.problems += (await store.check()).problems
    finally:
        await store.close()
    return left
