"""The measurements of the scale bench, each with its clock: rates, floods, memory, flatness."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeAlias

from recollect.errors import RecollectError
from recollect_bench.gateway.measure import quantile
from recollect_bench.gateway.processes import ServerProcess
from recollect_bench.scale.fleet import CORES, BenchTenant, dumped, messages
from recollect_bench.scale.load import (
    MIX,
    Connections,
    Meter,
    Mix,
    Offered,
    Traffic,
    http_post,
    offer,
)

Progress: TypeAlias = Callable[[str], None]

HELD_MS: Final = 250.0
"""p99 has to stay under it."""
STEP: Final = 1.4
"""From one rate to the next."""
FINER: Final = 2
"""So often the gap between what is held and what is not is halved."""
FULL_SHARE: Final = 0.85
"""A processor is full from here."""
FLOOD: Final = 48
"""Requests that a flooding tenant always has under way; below what a node lets wait."""
SETTLE_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 60.0
QUIET_SHARE: Final = 0.05
"""Of a second: a node that takes less does nothing of note."""
INGEST_SECONDS: Final = 300.0
"""How long a client that ingests tries again."""
MOST_FAILED_SHARE: Final = 0.05
"""Of the prepares of one part: where more fail, that is what there is to tell."""
_OK: Final = 200
_AGAIN: Final = (429, 503, 504)


class Limit(Enum):
    """What a higher rate would need more of."""

    PROCESSOR = "the processor: all cores were busy"
    GENERATOR = "the generator, not the service"
    REFUSED = "requests that the node refused"
    WAITING = "waiting for the disk, locks or other programs, because no processor was fully used"


@dataclass(slots=True, kw_only=True)
class Held:
    """The highest rate that was held, and all that were tried."""

    rate: float
    limit: Limit
    at_rate: Offered | None
    tried: dict[int, tuple[float, float]] = field(default_factory=dict)
    """p50 and p99 in milliseconds, by rate."""
    turns: int = 0
    """Prepares that were sent in all."""

    def figures(self, name: str) -> dict[str, float]:
        """Under the name of the mix."""
        told = {f"{name}_rate_held": self.rate}
        if self.at_rate is not None:
            answered = len(self.at_rate.answers) / self.at_rate.wall_seconds
            for part, cores in self.at_rate.cores.items():
                told[f"{name}_cores_{part}"] = cores
                told[f"{name}_cpu_ms_{part}"] = cores / answered * 1_000
        for rate, (half, most) in sorted(self.tried.items()):
            told[f"{name}_p50_ms_at_{rate}"] = half
            told[f"{name}_p99_ms_at_{rate}"] = most
        return told


async def held_rate(
    connections: Connections,
    traffic: Traffic,
    *,
    first: float,
    seconds: float,
    most_steps: int,
    tries: int,
    mix: Mix,
    meter: Meter,
    progress: Progress,
) -> Held:
    """Step up until p99 is not held any more, then halve the gap."""
    held = Held(rate=0.0, limit=Limit.WAITING, at_rate=None)

    async def holds(rate: int) -> bool:
        runs: list[Offered] = []
        while len(runs) < tries:
            progress(f"{', '.join(mix)} at {rate} a second")
            seed = rate * 10 + len(runs)
            runs.append(
                await offer(
                    connections, traffic, rate=rate, seconds=seconds, mix=mix, meter=meter,
                    seed=seed,
                )
            )  # fmt: skip
            await asyncio.sleep(SETTLE_SECONDS)
            most = runs[-1].milliseconds(0.99)
            if len(runs) == 1 and (most < HELD_MS * 0.6 or most > HELD_MS * 4):
                break
        runs.sort(key=lambda one: one.milliseconds(0.99))
        middle = runs[len(runs) // 2]
        held.tried[rate] = (middle.milliseconds(0.5), middle.milliseconds(0.99))
        held.turns += sum(one.kind == "prepare" for run in runs for one in run.answers)
        good = middle.milliseconds(0.99) < HELD_MS and not middle.failed and not middle.given_up
        if good and rate > held.rate:
            held.rate, held.at_rate = float(rate), middle
        if not good:
            held.limit = _limit(middle)
            held.at_rate = held.at_rate or middle
        return good

    rate, fails = max(2, round(first)), 0
    while len(held.tried) < most_steps:
        if await holds(rate):
            rate = max(rate + 1, round(rate * STEP))
            continue
        fails = rate
        if held.rate or rate <= 2:
            break
        rate = max(2, rate // 2)
    for _ in range(FINER):
        rate = round(math.sqrt(max(1.0, held.rate) * fails))
        if not fails or len(held.tried) >= most_steps or rate in held.tried or rate <= held.rate:
            break
        if not await holds(rate):
            fails = rate
    return held


def _limit(run: Offered) -> Limit:
    """What was full in a run that was not held."""
    if run.cores["generator"] > FULL_SHARE:
        return Limit.GENERATOR
    if sum(run.cores.values()) > FULL_SHARE * CORES:
        return Limit.PROCESSOR
    return Limit.REFUSED if run.failed else Limit.WAITING


Load: TypeAlias = Callable[[Connections, int], Coroutine[Any, Any, int]]
"""Sends requests until it is cancelled, and returns the number of answers. It gets the number of
the run."""
OthersBeside: TypeAlias = Callable[
    [Load], Coroutine[Any, Any, tuple[dict[bool, list[float]], int, float]]
]
"""`beside`, for tenants that are chosen already."""


async def beside(
    load: Load,
    node: ServerProcess,
    others: Sequence[BenchTenant],
    *,
    spaces: Sequence[str],
    rate: float,
    seconds: float,
    pairs: int,
    passages: int,
    meter: Meter,
) -> tuple[dict[bool, list[float]], int, float]:
    """Latencies of some tenants in ms, with and without the load of another tenant. Also return how
    many of their requests failed beside the load, and how many answers per second the load got."""
    connections, loaded = Connections(node.port), Connections(node.port)
    taken: dict[bool, list[float]] = {False: [], True: []}
    served = failed = 0
    try:
        traffic = Traffic(others, spaces, seed=11, passages=passages)
        for number in range(-1 if pairs > 1 else 0, pairs):  # the first pair warms up
            for with_load in (number % 2 == 0, number % 2 != 0):
                task = asyncio.create_task(load(loaded, number))
                if not with_load:
                    task.cancel()
                run = await offer(
                    connections, traffic, rate=rate, seconds=3 * seconds, mix=MIX, meter=meter,
                    seed=number + 50,
                )  # fmt: skip
                task.cancel()
                done = await asyncio.gather(task, return_exceptions=True)
                if isinstance(done[0], Exception):
                    raise done[0]
                await asyncio.sleep(SETTLE_SECONDS)
                if number < 0:
                    continue
                taken[with_load] += [answer.seconds * 1_000 for answer in run.answers]
                if with_load:
                    failed += run.failed
                    served += done[0] if isinstance(done[0], int) else 0
    finally:
        await connections.close()
        await loaded.close()
    return taken, failed, served / (pairs * 3 * seconds)


async def beside_a_flood(
    others_beside: OthersBeside, flooding: BenchTenant, *, spaces: Sequence[str], passages: int
) -> dict[str, float]:
    """p99 of some tenants with and without another that asks for all it can get."""

    def flood(connections: Connections, number: int) -> Coroutine[Any, Any, int]:
        return _flood(connections, flooding, spaces, passages=passages, seed=number)

    taken, failed, served = await others_beside(flood)
    alone_ms, flooded_ms = quantile(taken[False], 0.99), quantile(taken[True], 0.99)
    return {
        "fairness": flooded_ms / alone_ms,
        "fairness_p50": quantile(taken[True], 0.5) / quantile(taken[False], 0.5),
        "others_p99_ms_alone": alone_ms,
        "others_p99_ms_flooded": flooded_ms,
        "others_asked_flooded": float(len(taken[True])),
        "others_failed_flooded": float(failed),
        "flood_served_per_second": served,
    }


LARGE_TURNS: Final[Mapping[str, Callable[[int], Sequence[str]]]] = {
    "10k_messages": lambda scale: [text[:35] for text in messages(10_000 // scale)],
    "2_mb": lambda scale: ["\n".join(messages(6_000 // scale))[: 2_000_000 // scale]],
}
"""Messages of a first turn that is large, or smaller by a factor."""


async def beside_large_turns(
    others_beside: OthersBeside, large: BenchTenant, *, scale: int, seconds: float
) -> dict[str, float]:
    """How long large first turns take, one after the other, and how much they slow down others."""
    figures: dict[str, float] = {}
    for name, texts in LARGE_TURNS.items():
        said = [
            {"role": ("user", "assistant")[at % 2], "content": text}
            for at, text in enumerate([*texts(scale)])
        ]
        if len(said) % 2 == 0:
            said.append({"role": "user", "content": "Where were we?"})
        body = dumped({"request": {"model": "claude-sonnet-4-5", "messages": said}})
        took: list[float] = []

        async def send(
            connections: Connections, number: int, name: str = name, body: bytes = body,
            took: list[float] = took,
        ) -> int:  # fmt: skip
            served = 0
            while True:
                path = f"/v1/spaces/{name}-{number}-{time.time_ns():x}/sessions/first/prepare"
                begun = time.perf_counter()
                try:
                    status, answer = await connections.ask(http_post(path, large.key, body))
                except asyncio.CancelledError:
                    return served
                if status != _OK:
                    raise RecollectError(f"a large turn was answered {status}: {answer[:300]!r}")
                if number >= 0:
                    took.append(time.perf_counter() - begun)
                served += 1

        taken, failed, _ = await others_beside(send)
        figures |= {
            f"first_turn_{name}_seconds": max(took, default=3 * seconds),
            f"first_turn_{name}_answers": float(len(took)),
            f"first_turn_{name}_others_p99": (
                quantile(taken[True], 0.99) / quantile(taken[False], 0.99)
            ),
            f"first_turn_{name}_failed": float(failed),
        }
    return figures


async def _flood(
    connections: Connections,
    tenant: BenchTenant,
    spaces: Sequence[str],
    *,
    passages: int,
    seed: int,
) -> int:
    """Always so many requests under way, until it is cancelled; how many were answered."""
    traffic = Traffic([tenant], spaces, seed=seed, passages=passages)
    served = 0

    async def worker() -> None:
        nonlocal served
        while True:
            talk, request = traffic.prepare()
            status, _ = await connections.ask(request)
            served += status == _OK
            traffic.answered(talk, 0, observed=False)

    workers = [asyncio.create_task(worker()) for _ in range(FLOOD)]
    try:
        await asyncio.gather(*workers)
    except asyncio.CancelledError:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return served


async def parallel_ingests(
    node: ServerProcess, tenant: BenchTenant, *, count: int, messages: int
) -> dict[str, float]:
    """Most resident memory of a node while so many requests to keep messages come at once."""
    before = node.held().resident_mb
    connections = Connections(node.port)
    bodies = [_ingest(number, messages, tenant) for number in range(count)]
    begun = time.perf_counter()
    refused = 0

    async def sent(body: bytes) -> None:
        """As a client does: what is refused for now is sent again, and nothing is kept twice."""
        nonlocal refused
        until = time.monotonic() + INGEST_SECONDS
        while True:
            status, answer = await connections.ask(body)
            if status == _OK:
                return
            if status not in _AGAIN or time.monotonic() > until:
                raise RecollectError(f"an ingest was answered {status}: {answer[:300]!r}")
            refused += 1
            await asyncio.sleep(1.0)

    try:
        await asyncio.gather(*map(sent, bodies))
    finally:
        await connections.close()
    seconds = time.perf_counter() - begun
    return {
        "ingest_refused_at_first": float(refused),
        "node_started_mb": before,
        "ingest_peak_mb": _peak_mb(node.pid),
        "ingest_after_mb": node.held().resident_mb,
        "ingest_passages_per_second": count * messages / seconds,
    }


def _ingest(number: int, count: int, tenant: BenchTenant) -> bytes:
    """A history of its own for a space of its own."""
    said = [
        {"role": ("user", "assistant")[at % 2], "content": text}
        for at, text in enumerate(messages(count, first=number * count))
    ]
    path = f"/v1/spaces/ingested-{number}/sessions/history/ingest"
    return http_post(path, tenant.key, dumped({"messages": said}), seconds=120)


def _peak_mb(pid: int) -> float:
    return _status_kb(pid, "VmHWM") * 1_024 / 1e6


def _status_kb(pid: int, name: str) -> int:
    """A figure of /proc/PID/status; 0 where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


async def quiet(node: ServerProcess, *, seconds: float = QUIET_SECONDS) -> None:
    """Until a node has done what its last requests left it to do, at most so long."""
    until = time.monotonic() + min(seconds, QUIET_SECONDS)
    while time.monotonic() < until:
        used = node.processor_seconds()
        await asyncio.sleep(1.0)
        if node.processor_seconds() - used < QUIET_SHARE:
            return


class IdleGrowth:
    """How much a node grows that nobody asks anything, from when this is made."""

    def __init__(self, node: ServerProcess) -> None:
        self._node = node
        self._begun = time.monotonic()
        self._first_kb = _status_kb(node.pid, "RssAnon")

    def figures(self) -> dict[str, float]:
        """Since then, for an hour."""
        hours = (time.monotonic() - self._begun) / 3_600
        grown = (_status_kb(self._node.pid, "RssAnon") - self._first_kb) * 1_024 / 1e6
        return {"idle_seconds": hours * 3_600, "idle_growth_mb_per_hour": grown / hours}


async def prepare_in_turn(
    ports: Mapping[int, int],
    tenant: BenchTenant,
    *,
    names: Mapping[int, Sequence[str]],
    rounds: int,
    passages: int,
) -> tuple[dict[int, dict[int, float]], int]:
    """p50 and p99 of prepare on several nodes, asked one after the other, in turn; and how many
    were not answered with 200."""
    connections = {name: Connections(port) for name, port in ports.items()}
    traffic = {name: Traffic([tenant], names[name], seed=21, passages=passages) for name in ports}
    order = list(ports)
    taken: dict[int, list[float]] = {name: [] for name in ports}
    warm = max(1, rounds // 5)
    failed = 0
    try:
        for number in range(warm + rounds):
            for at in range(len(order)):
                name = order[(at + number) % len(order)]
                talk, request = traffic[name].prepare()
                begun = time.perf_counter()
                status, body = await connections[name].ask(request)
                seconds = time.perf_counter() - begun
                traffic[name].answered(talk, 0, observed=False)
                if number >= warm and status == _OK:
                    taken[name].append(seconds * 1_000)
                failed += status != _OK
                if failed > MOST_FAILED_SHARE * rounds:
                    raise RecollectError(
                        f"{failed} prepares failed: the last, in {talk.space} beside {name:,} "
                        f"spaces, was answered {status} after {seconds:.1f} s: {body[:300]!r}"
                    )
    finally:
        for one in connections.values():
            await one.close()
    return {
        name: {50: quantile(values, 0.5), 99: quantile(values, 0.99)}
        for name, values in taken.items()
    }, failed
