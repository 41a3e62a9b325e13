"""PostgreSQL away in the middle of a conversation, and what each turn waited meanwhile.

A conversation at a steady pace through one engine: the server is stopped as if the power had
gone, or hangs, stays away, and comes back. Owns the measured times; judges them against the time
turns took before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from recollect.adapters.wiring import open_memory
from recollect.core.engine import Engine
from recollect_bench.postgres_server import PostgresServer
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place, engine_home
from tools.crash.spoken import reply_of, request_of, session_of_turn
from tools.crash.talker_kills import TALKER, verify_spoken, waiting_in_spool

PACE_SECONDS = 0.2
"""From the beginning of a turn to that of the next."""
BEFORE_SECONDS = 4.0
"""How long the conversation runs at least before the server goes."""
MODEL_SECONDS = 0.01
"""How long the model takes, for which the engine writes beside it."""
GRACE_SECONDS = 0.5
"""What an absent store may add to a turn, in every turn but those that have to find out."""
HANG_GRACE_SECONDS = 0.8
"""The same for one that hangs."""
FINDING_OUT_TURNS = (1, 3)
"""How many turns may: one as the store goes; as it comes back one that asks while the server
still recovers, one that opens its connections anew, and one beside the spool's way into it."""
MEANWHILE_SHARE = 0.75
"""The turns that must not wait for the store; the others may meet a machine that is busy."""
WARM_TURNS = 32
FINDING_OUT_SECONDS = 5.0
"""What a turn may take in which the store goes away under a question, or comes back: less than
the deadline of a turn, and twice what it takes on a machine that is not busy."""
SECOND_LOOK_SECONDS = 1.5
"""What it may take beyond the patience with a store that does not answer: it is asked twice."""
DRAIN_SECONDS = 60.0
"""How long the spool may take to drain once the server is back."""


@dataclass(slots=True, kw_only=True)
class Phase:
    """The turns of one part of the run."""

    prepared: list[float] = field(default_factory=list)
    """Seconds of each `prepare`."""
    observed: list[float] = field(default_factory=list)
    archived: list[str] = field(default_factory=list)
    """Where each turn was durable."""

    def quantile(self, share: float) -> float:
        """The time that this share of the `prepare` calls stayed within."""
        ordered = sorted(self.prepared)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Conversation:
    """One talker at a steady pace; `phase` is where turns are counted now."""

    def __init__(self, memory: Engine) -> None:
        self.memory = memory
        self.phase = Phase()
        self.turn = 0
        self.unkept = 0

    async def go_on(self, until: asyncio.Event) -> None:
        """Turn after turn, until told to stop."""
        while not until.is_set():
            began = time.monotonic()
            session = session_of_turn(TALKER, self.turn)
            await self.memory.prepare(session, request_of(TALKER, self.turn))
            self.phase.prepared.append(time.monotonic() - began)
            await asyncio.sleep(MODEL_SECONDS)
            asked = time.monotonic()
            seen = await self.memory.observe(session, reply_of(TALKER, self.turn))
            self.phase.observed.append(time.monotonic() - asked)
            self.phase.archived.append(str(seen.archived))
            self.unkept += seen.archived not in ("store", "spool")
            self.turn += 1
            await asyncio.sleep(max(0.0, began + PACE_SECONDS - time.monotonic()))


def outage(
    place: Place,
    home: Path,
    server: PostgresServer,
    *,
    away_seconds: float,
    hangs: bool = False,
    tell: Tell = silent,
) -> Outcome:
    """Take the server away for a while in mid-conversation, or let it hang; then compare."""
    began = time.monotonic()
    outcome = Outcome(scenario="hang" if hangs else "outage", store=place.name)
    with engine_home(home):
        turns = asyncio.run(_run(place, server, away_seconds, outcome, tell))
    waiting = waiting_in_spool(place, home)
    if waiting:
        outcome.problems.append(f"{waiting} batches still wait in the spool")
    outcome.take(asyncio.run(verify_spoken(place, range(turns))))
    outcome.seconds = time.monotonic() - began
    return outcome


async def _run(
    place: Place, server: PostgresServer, away_seconds: float, outcome: Outcome, tell: Tell
) -> int:
    stop = asyncio.Event()
    async with open_memory(store=place.location, space=place.space) as memory:
        talk = Conversation(memory)
        talking = asyncio.create_task(talk.go_on(stop))
        await asyncio.sleep(max(BEFORE_SECONDS, away_seconds / 2))
        for _ in range(100 if outcome.scenario == "hang" else 0):
            if talk.turn > WARM_TURNS or talking.done():  # how slow the first were counts no longer
                break
            await asyncio.sleep(PACE_SECONDS)
        before = talk.phase
        tell(f"{place.name}: {talk.turn} turns, the server goes")
        talk.phase = away = Phase()
        hangs = outcome.scenario == "hang"
        if hangs:
            signal_all(server, signal.SIGSTOP)
        else:
            await asyncio.to_thread(server.stop, "immediate")
        outcome.kills = 1
        await _found_out(away, talking, _patience(before))
        await asyncio.sleep(away_seconds)
        tell(f"{place.name}: {talk.turn} turns, the server comes back")
        talk.phase = after = Phase()
        if hangs:
            signal_all(server, signal.SIGCONT)
        else:
            await asyncio.to_thread(server.start)
        back = time.monotonic()
        while "store" not in after.archived[-1:] and time.monotonic() - back < DRAIN_SECONDS:
            if talking.done():
                break
            await asyncio.sleep(0.02)
        drained = time.monotonic() - back
        await asyncio.sleep(1.0)
        stop.set()
        await talking
    judge(outcome, before, away, after, drained)
    if talk.unkept:
        outcome.problems.append(f"{talk.unkept} turns were durable nowhere")
    return talk.turn


async def _found_out(away: Phase, talking: asyncio.Task[None], most_seconds: float) -> None:
    """Wait until a turn was kept without the server: on a busy machine its absence shows late."""
    until = time.monotonic() + most_seconds
    while time.monotonic() < until:
        if "spool" in away.archived or talking.done():
            return
        await asyncio.sleep(0.02)


def _patience(before: Phase) -> float:
    """How long a turn may take to find out that a server hangs, by the slowest one before it."""
    return before.quantile(1.0) + FINDING_OUT_SECONDS + SECOND_LOOK_SECONDS


def signal_all(server: PostgresServer, number: signal.Signals) -> None:
    """Stop every process of the server, its parent first, or let all of them go on."""
    parent = server.pid
    children = Path(f"/proc/{parent}/task/{parent}/children")
    os.kill(parent, number)
    for child in children.read_text().split():
        with contextlib.suppress(ProcessLookupError):  # one that served a connection may be gone
            os.kill(int(child), number)


def judge(
    outcome: Outcome, before: Phase, away: Phase, after: Phase, drained_seconds: float
) -> None:
    """What the times say, and the figures; `away` and `after` are held against `before`."""
    normal = before.quantile(0.99)
    slowest = max(away.quantile(1.0), after.quantile(1.0))
    going, coming = FINDING_OUT_TURNS
    meanwhile = (
        Phase(prepared=sorted(away.prepared)[:-going]),
        Phase(prepared=sorted(after.prepared)[:-coming]),
    )
    grace = HANG_GRACE_SECONDS if outcome.scenario == "hang" else GRACE_SECONDS
    worst = max(phase.quantile(MEANWHILE_SHARE) for phase in meanwhile)
    allowed = _patience(before) if outcome.scenario == "hang" else normal + FINDING_OUT_SECONDS
    if slowest > allowed:
        outcome.problems.append(f"a prepare took {slowest * 1000:.0f} ms to find out")
    if worst > normal + grace:
        outcome.problems.append(
            f"a prepare took {worst * 1000:.0f} ms; {normal * 1000:.0f} ms are normal"
        )
    if drained_seconds >= DRAIN_SECONDS:
        outcome.problems.append("the spool did not drain")
    if "spool" not in away.archived:
        outcome.problems.append("the spool was never used: the server was not away")
    outcome.figures = {
        "turns_before": len(before.prepared),
        "turns_away": len(away.prepared),
        "spooled": (away.archived + after.archived).count("spool"),
        "prepare_p50_ms": round(before.quantile(0.5) * 1000, 1),
        "prepare_p99_ms": round(normal * 1000, 1),
        "away_p50_ms": round(away.quantile(0.5) * 1000, 1),
        "away_p99_ms": round(away.quantile(0.99) * 1000, 1),
        "away_worst_ms": round(worst * 1000, 1),
        "finding_out_ms": round(slowest * 1000, 1),
        "observe_worst_ms": round(max([*away.observed, *after.observed, 0.0]) * 1000, 1),
        "drained_after_s": round(drained_seconds, 2),
    }
