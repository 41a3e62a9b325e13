"""What is broken under load, and whether the service came back by itself with everything it
had acknowledged.

A trial runs at a pace that the nodes hold, or at twice that: then the fault happens, the overload
lasts some seconds more, and the pace falls to half of what they hold. Judged are what is stored
against what was acknowledged, every answer against its deadline, and how soon requests are served
as before.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from tools.service_faults.backup import forget_something, sent_again
from tools.service_faults.fleet import Fleet, kill_server
from tools.service_faults.load import DEADLINE_SECONDS, Answer, Load, stored_tokens

GRACE_SECONDS: Final = 1.0
"""Clients, nodes and PostgreSQL share two cores: so much an answer may be later than it is due."""
RECOVERY_SECONDS: Final = 60.0
"""Time that a trial waits for the service to recover."""
SERVED_SECONDS: Final = 10.0
"""Maximum time from the repair, and the end of the overload, until prepare is served as before."""
LIMIT_SECONDS: Final = 0.5
"""The p99 of prepare at a pace that the nodes hold, on two cores shared with the load; twice what
it was without a fault, where that is more."""
EASED_PART: Final = 0.5
"""Of the pace that nodes hold, what follows an overload."""
CLIENTS: Final = 16
HELD_PART: Final = 0.7
"""The pace that nodes hold is this part of what they do for clients that wait for their answers."""
WINDOW_SECONDS: Final = 5.0
"""Served as before is what a window of so many seconds shows."""
AWAY_SECONDS: Final = 3.0
"""How long what was killed stays away."""
REFUSALS: Final = frozenset({429, 503})
SHOWN: Final = 5
SCENARIOS: Final = ("none", "postgres", "promote", "node", "worker", "pooler", "rotation")


@dataclass(slots=True, kw_only=True)
class FaultOutcome:
    """One fault at one pace."""

    scenario: str
    pace: float
    """Arrivals a second."""
    times_held: float
    """How many times the pace that the nodes hold."""
    limit_ms: float
    """The p99 of prepare that counts as served."""
    requests: int = 0
    acknowledged: int = 0
    """Messages."""
    lost: int = 0
    duplicated: int = 0
    late: int = 0
    """Answers that came after their deadline and the grace, or never."""
    slowest_seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    refused_without_when: int = 0
    """Answers 429 and 503 that did not say when to come again."""
    given_up: int = 0
    prepare_p50_ms: float = 0.0
    prepare_p99_ms: float = 0.0
    """Before the fault."""
    goodput_before: float = 0.0
    """Requests answered with 200, a second."""
    goodput_after: float = 0.0
    recovered_seconds: float | None = None
    """After the repair and the end of the overload, until prepare was served as before."""
    jobs_waiting: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing lost, nothing twice, nothing late, and it came back."""
        back = self.recovered_seconds is not None and self.recovered_seconds <= SERVED_SECONDS
        wrong = self.lost or self.duplicated or self.late or self.refused_without_when
        return back and not wrong and not self.problems

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "clean": self.clean}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long the phases of a trial are."""

    before_seconds: float = 10.0
    overload_seconds: float = 10.0
    """After the fault, at twice the pace."""
    after_seconds: float = 10.0
    """At the least, at the pace that is held."""
    away_seconds: float = AWAY_SECONDS


def fault_of(scenario: str, fleet: Fleet, away_seconds: float) -> Callable[[], None]:
    """Breaks something, waits, and brings back what a supervisor would bring back."""

    def postgres() -> None:
        fleet.server.stop("immediate")
        time.sleep(away_seconds)
        fleet.server.start()

    def promote() -> None:
        assert fleet.standby is not None
        kill_server(fleet.server)
        time.sleep(away_seconds)
        fleet.standby.promote()

    def node() -> None:
        fleet.nodes[0].kill()
        time.sleep(away_seconds)
        fleet.nodes[0].start()

    def worker() -> None:
        fleet.worker.kill()
        time.sleep(away_seconds)
        fleet.worker.start()

    def pooler() -> None:
        assert fleet.pooler is not None
        fleet.pooler.kill()
        time.sleep(away_seconds)
        fleet.pooler.start()

    return {
        "none": lambda: time.sleep(away_seconds),
        "postgres": postgres, "promote": promote, "node": node, "worker": worker,
        "pooler": pooler, "rotation": fleet.rotate_secret,
    }[scenario]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A pace that the nodes hold here and now, and the p99 of prepare that they may have at it."""

    pace: float
    limit_seconds: float = LIMIT_SECONDS


async def held_pace(fleet: Fleet, *, seconds: float = 6.0) -> Held:
    """The pace that leaves a part of what saturated nodes do."""
    load = Load(fleet.urls, fleet.keys, seed=99)
    await load.fill()
    await load.saturate(CLIENTS, seconds / 2)  # everything is opened and imported
    pace = HELD_PART * await load.saturate(CLIENTS, seconds)
    load.pace, stop, began = pace, asyncio.Event(), time.monotonic()
    running = asyncio.create_task(load.run(stop))
    await asyncio.sleep(seconds)
    stop.set()
    await running
    p99 = _quantile(_prepared(load.record.answers, began + seconds / 4, began + seconds), 0.99)
    return Held(pace=pace, limit_seconds=max(LIMIT_SECONDS, 2 * min(p99, 1.0)))


async def tried(
    fleet: Fleet, scenario: str, *, held: Held, times: float, plan: Plan, seed: int = 1
) -> FaultOutcome:
    """Break one thing under load; then compare."""
    outcome = FaultOutcome(
        scenario=scenario,
        pace=round(held.pace * times, 1),
        times_held=times,
        limit_ms=round(held.limit_seconds * 1000),
    )
    patience = RECOVERY_SECONDS if times <= 1 else 15.0
    forgetful = (fleet.urls[0], fleet.keys[0])
    await asyncio.to_thread(forget_something, *forgetful)
    load = Load(fleet.urls, fleet.keys, patience_seconds=patience, seed=seed)
    load.pace, stop = held.pace * times, asyncio.Event()
    began = time.monotonic()
    running = asyncio.create_task(load.run(stop))
    await asyncio.sleep(plan.before_seconds)
    broken = time.monotonic()
    await asyncio.to_thread(fault_of(scenario, fleet, plan.away_seconds))
    mended = time.monotonic()
    if times > 1:
        await asyncio.sleep(plan.overload_seconds)
        load.pace = EASED_PART * held.pace
    eased = time.monotonic()
    outcome.recovered_seconds = await _recovered(
        load, eased, at_least=plan.after_seconds, limit=held.limit_seconds
    )
    stop.set()
    ended = time.monotonic()
    await running
    answers = load.record.answers
    warm = began + min(2.0, plan.before_seconds / 2)
    before = _prepared(answers, warm, broken - DEADLINE_SECONDS / 5)
    outcome.prepare_p50_ms = round(_quantile(before, 0.5) * 1000, 1)
    outcome.prepare_p99_ms = round(_quantile(before, 0.99) * 1000, 1)
    outcome.goodput_before = _goodput(answers, warm, broken)
    outcome.goodput_after = _goodput(answers, mended + 2.0, eased if times > 1 else ended)
    await _judge(outcome, fleet, load)
    outcome.problems += await asyncio.to_thread(sent_again, *forgetful)
    return outcome


async def _recovered(load: Load, eased: float, *, at_least: float, limit: float) -> float | None:
    """Measure from the repair, or the end of the overload if that is later, to the first window in
    which prepare is served."""
    while True:
        await asyncio.sleep(0.5)
        now = time.monotonic()
        found = served_again(load.record.answers, eased, now, limit)
        if found is not None and now - eased >= at_least:
            return round(found - eased, 1)
        if now - eased > RECOVERY_SECONDS + WINDOW_SECONDS + at_least:
            return None if found is None else round(found - eased, 1)


def served_again(answers: Sequence[Answer], since: float, now: float, limit: float) -> float | None:
    """The beginning of the first window, since then, whose first tries of prepare were answered
    with 200, 99 of a hundred within the limit."""
    at = since
    while at + WINDOW_SECONDS <= now - limit:
        seconds = _prepared(answers, at, at + WINDOW_SECONDS)
        if len(seconds) >= 5 and _quantile(seconds, 0.99) <= limit:
            return at
        at += 0.5
    return None


def _prepared(answers: Sequence[Answer], since: float, until: float) -> list[float]:
    """How long first tries of prepare took; for ever, where they were not answered with 200."""
    return [
        one.seconds if one.status == 200 else float("inf")
        for one in answers
        if one.operation == "prepare" and one.first and since <= one.at < until
    ]


def _quantile(values: Sequence[float], share: float) -> float:
    if not values:
        return float("inf")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _goodput(answers: Sequence[Answer], since: float, until: float) -> float:
    done = sum(1 for one in answers if one.status == 200 and since <= one.at + one.seconds < until)
    return round(done / max(0.1, until - since), 1)


async def _judge(outcome: FaultOutcome, fleet: Fleet, load: Load) -> None:
    record = load.record
    await asyncio.to_thread(fleet.wait_until_ready)
    outcome.requests = len(record.answers)
    statuses = Counter(str(one.status) for one in record.answers)
    outcome.statuses = dict(sorted(statuses.items()))
    answered = [one for one in record.answers if one.status != 0]
    outcome.slowest_seconds = round(max(one.seconds for one in answered), 2)
    outcome.late = sum(
        1 for one in answered if one.seconds > DEADLINE_SECONDS + GRACE_SECONDS or one.status < 0
    )
    outcome.refused_without_when = sum(
        1 for one in answered if one.status in REFUSALS and not one.retry_after
    )
    outcome.given_up = record.given_up.total()
    outcome.problems += [f"{count} × {text}" for text, count in record.problems.items()]
    outcome.acknowledged = len(record.acknowledged)
    spaces = sorted(record.spaces)
    found = await stored_tokens(fleet.urls, fleet.keys, spaces)
    lost = [token for token in record.acknowledged if not found[token]]
    twice = [token for token in record.sent if found[token] > 1]
    outcome.lost, outcome.duplicated = len(lost), len(twice)
    outcome.problems += [f"lost: {one}: {record.origins[one]}" for one in lost[:SHOWN]]
    outcome.problems += [f"twice: {one}: {record.origins[one]}" for one in twice[:SHOWN]]
    if strangers := sum(1 for one in found if load.sends(one) and one not in record.sent):
        outcome.problems.append(f"{strangers} messages that nobody sent")
    await asyncio.sleep(2.0)
    again = await stored_tokens(fleet.urls, fleet.keys, spaces)
    if again != found:
        outcome.problems.append("something was written long after its request")
    for process in (*fleet.nodes, fleet.worker):
        if spooled := process.spooled_files():
            outcome.problems.append(f"{process.name} left {len(spooled)} files in its spool")
        if not process.alive:
            outcome.problems.append(f"{process.name} ended:\n{process.log()[-500:]}")
        if "Traceback" in process.log():
            outcome.problems.append(f"{process.name}:\n{process.log()[-1500:]}")
    outcome.jobs_waiting = await asyncio.to_thread(_jobs_left, fleet)
    if outcome.jobs_waiting:
        outcome.problems.append(f"{outcome.jobs_waiting} jobs are due and nobody does them")


def _jobs_left(fleet: Fleet) -> int:
    """Jobs that are still due after the worker had time for them."""
    server = fleet.server if fleet.server.running else fleet.standby
    assert server is not None
    until = time.monotonic() + RECOVERY_SECONDS
    asked = "SELECT count(*) FROM recollect.jobs WHERE state <> 'dead' AND run_at < %s"
    with psycopg.connect(server.url(fleet.database.name), autocommit=True) as connection:
        while True:
            row = connection.execute(asked, (time.time(),)).fetchone()
            assert row is not None
            if not row[0] or time.monotonic() > until:
                return int(row[0])
            time.sleep(0.5)


def try_scenario(
    scenario: str,
    folder: Path,
    *,
    times: Sequence[float] = (1.0, 2.0),
    plan: Plan | None = None,
    held: Held | None = None,
    tell: Callable[[FaultOutcome], None] = lambda _: None,
) -> list[FaultOutcome]:
    """A scenario at each pace, on a fleet of its own each time."""
    outcomes: list[FaultOutcome] = []
    for number, each in enumerate(times):
        with Fleet.start(
            folder / f"{scenario}-{number}",
            with_standby=scenario == "promote",
            with_pooler=scenario == "pooler",
        ) as fleet:
            now_held = held or asyncio.run(held_pace(fleet))
            outcome = asyncio.run(
                tried(
                    fleet, scenario, held=now_held, times=each, plan=plan or Plan(), seed=number + 1
                )
            )
        outcomes.append(outcome)
        tell(outcome)
    return outcomes
