"""`recollect bench scale`: what one machine serves, and what that means for a fleet.

PostgreSQL 18, `recollect serve` and the load generator share the cores of this machine. Requests
come over HTTP, with real keys, when they come (open model): latencies count from the moment at
which a request was due. The figures are what docs/operations/capacity.md computes nodes, disks and
money from.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

import click
import psycopg

from recollect.errors import RecollectError
from recollect_bench.gateway.processes import ServerProcess
from recollect_bench.postgres_server import PostgresServer, TestDatabase
from recollect_bench.result import BenchResult, Parts, figure_text
from recollect_bench.scale import fleet
from recollect_bench.scale.capacity import (
    QUICK_NOTE,
    ScaleResult,
    capacity_figures,
    page,
)
from recollect_bench.scale.fleet import BenchTenant
from recollect_bench.scale.load import (
    MIX,
    PREPARE_ALONE,
    Connections,
    Meter,
    Traffic,
    offer,
)
from recollect_bench.scale.measure import (
    Held,
    IdleGrowth,
    beside,
    beside_a_flood,
    beside_large_turns,
    held_rate,
    parallel_ingests,
    prepare_in_turn,
    quiet,
)
from recollect_bench.scale.straight import compare, ratio_spaces

Progress: TypeAlias = Callable[[str], None]

TENANT: Final = "scale"
NOTES: Final = (
    "PostgreSQL, a node of `recollect serve` with a process per core, a `recollect worker` and the",
    "  load generator shared the machine's cores.",
    "The generator sent requests over HTTP on a Poisson schedule. A latency starts when the",
    "  request was due.",
    "`mix`: 45% prepare, 45% observe, 5% search, 5% ingest of two messages; conversations have 6",
    "  turns.",
    "`X_rate_held`: the highest rate per second with a p99 under 250 ms and no failed request. All",
    "  requests came from one tenant, which may use half of a node's slots.",
    "`X_cores_Y`: the number of cores that the program Y kept busy at that rate. `X_cpu_ms_Y`: the",
    "  processor time that Y used per request.",
    "One space was filled through the API and copied in the database (INSERT … SELECT over every",
    "  table of spaces). The store's own check was run on some of the copies.",
    "`prepare_pNN`: in spaces chosen at random, so almost every space was new to the node.",
    "  `large_prepare_pNN`: in the spaces of many passages. Both ran at a third of the highest",
    "  rate.",
    "`engine_ratio`: the time of all transactions of a prepare, divided by the time of the same",
    "  statements in the same round trips on a bare psycopg connection. It includes the wait for",
    "  a connection. `engine_ratio_application` measures the whole request without HTTP,",
    "  `engine_ratio_http` with HTTP.",
    "`flat_pNN_ms_N`: prepare in 100 spaces of a database of N spaces. The databases took turns.",
    "`fairness`: the p99 of eight tenants while a ninth always had 48 requests waiting, divided by",
    "  their p99 without the ninth. Runs with and without it alternated.",
    "`first_turn_X`: the first turn of a session with 10,000 short messages (0.6 MB), or with one",
    "  message of 2 MB. One tenant sent such turns one after the other. The seconds are those of",
    "  the slowest; `others_p99` is the p99 of eight other tenants meanwhile, divided by their p99",
    "  without it.",
    "`ingest_peak_mb`: the highest RAM of a node of one process while 50 requests of 400 messages",
    "  arrived at once.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is loaded and measured."""

    spaces: int = 10_000
    passages: int = 200
    large_spaces: int = 5
    large_passages: int = 20_000
    flat: tuple[int, ...] = (100, 1_000, 20_000)
    flat_asked: int = 100
    """Spaces that are asked in each database, and how often: this times three."""
    sized_copies: int = 60
    seconds: float = 8.0
    first_rate: float = 10.0
    most_steps: int = 14
    tries: int = 3
    """Of a rate whose p99 is near the limit; the median counts."""
    ratio_copies: int = 40
    ingests: int = 50
    ingest_messages: int = 400
    tenants: int = 8
    large_turn_scale: int = 1
    """By which large first turns are divided."""
    repeats: int = 3
    """Of what is a median of runs."""
    idle_seconds: float = 60.0
    """At least; it is what the rest takes where that is longer."""


QUICK: Final = Sizes(
    spaces=12,
    passages=20,
    large_spaces=1,
    large_passages=60,
    flat=(4, 16),
    flat_asked=4,
    sized_copies=4,
    seconds=0.4,
    first_rate=6.0,
    most_steps=2,
    tries=1,
    ratio_copies=2,
    ingests=6,
    ingest_messages=20,
    tenants=2,
    large_turn_scale=100,
    repeats=1,
    idle_seconds=0.5,
)


def run(
    progress: Progress = lambda _: None,
    *,
    quick: bool = False,
    spaces: int | None = None,
    passages: int | None = None,
    seconds: float | None = None,
    idle_seconds: float | None = None,
    data_dir: str | None = None,
    capacity: str | None = None,
) -> BenchResult:
    """Measure, or compute fleets from what was measured (`capacity`)."""
    if capacity is not None:
        result = ScaleResult.read(json.loads(Path(capacity).read_text(encoding="utf-8")))
        return CapacityPage(
            bench="scale", figures=capacity_figures(result), notes=(), text=page(result)
        )
    sizes = QUICK if quick else Sizes()
    sizes = replace(
        sizes,
        spaces=spaces or sizes.spaces,
        passages=passages or sizes.passages,
        seconds=seconds or sizes.seconds,
        idle_seconds=idle_seconds or sizes.idle_seconds,
    )
    sizes = replace(sizes, flat=_flat_of(sizes))
    result = asyncio.run(_measured(sizes, data_dir, progress))
    return replace(result, notes=(*result.notes, *((QUICK_NOTE,) if quick else ())))


def _flat_of(sizes: Sizes) -> tuple[int, ...]:
    """Twice the spaces are the most of all; smaller databases only where they are smaller."""
    smaller = [count for count in sizes.flat[:-1] if count < sizes.spaces]
    return (*(smaller or [max(1, sizes.spaces // 2)]), 2 * sizes.spaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPage(BenchResult):
    """What the figures mean for fleets, as the page says it."""

    text: str = ""


def draw(result: BenchResult) -> None:
    """The page, or the figures as a list."""
    if isinstance(result, CapacityPage):
        click.echo(result.text, nl=False)
        return
    for name, value in result.figures.items():
        click.echo(f"{name:<36}{figure_text(value):>14}")
    for note in result.notes:
        click.echo(f"  {note}")


@dataclass(slots=True, kw_only=True)
class _Bench:
    """What all parts of a run share."""

    sizes: Sizes
    server: PostgresServer
    folder: Path
    progress: Progress
    database: TestDatabase
    tenant: BenchTenant
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    parts: Parts = field(default_factory=Parts)

    def names(self, first: int, last: int) -> list[str]:
        return [f"space-{number:06d}" for number in range(first, last)]

    @property
    def large(self) -> list[str]:
        return [f"large-{number}" for number in range(self.sizes.large_spaces)]

    def node(self, database: TestDatabase, name: str, processes: int = 1) -> ServerProcess:
        return fleet.node(database, self.folder, name=name, processes=processes)

    async def copy(self, template: str, names: Sequence[str], *, to: BenchTenant) -> None:
        await asyncio.to_thread(
            fleet.copy_spaces,
            self.database,
            to,
            self.tenant.space_id(template),
            names,
            self.progress,
        )


async def _measured(sizes: Sizes, data_dir: str | None, progress: Progress) -> ScaleResult:
    started = time.monotonic()
    with _folder(data_dir) as folder:
        most = sizes.passages * (max(sizes.flat) + sum(sizes.flat[:-1]))
        fleet.need_room(folder, most + sizes.large_spaces * sizes.large_passages)
        settings = fleet.SERVER_SETTINGS
        with PostgresServer(18, settings=settings, folder=folder) as server:
            database = await server.migrated_database()
            bench = _Bench(
                sizes=sizes,
                server=server,
                folder=folder,
                progress=progress,
                database=database,
                tenant=await fleet.add_tenant(database, TENANT),
            )
            with bench.parts.part("filling"):
                await _filled_and_measured(bench)
    bench.figures["minutes"] = (time.monotonic() - started) / 60
    return ScaleResult(
        bench="scale",
        figures=bench.figures,
        notes=(*bench.notes, *NOTES),
        failures=tuple(bench.parts.failures),
        measured_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=fleet.machine(),
    )


@contextmanager
def _folder(data_dir: str | None) -> Iterator[Path]:
    """Where the database lies, removed at the end; short, because of its socket's path."""
    made = Path(tempfile.mkdtemp(prefix="rb-", dir=data_dir))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def _filled_and_measured(bench: _Bench) -> None:
    sizes, figures, part = bench.sizes, bench.figures, bench.parts.part
    tenants = [
        await fleet.add_tenant(bench.database, f"tenant-{number}")
        for number in range(sizes.tenants + 1)
    ]
    async with AsyncExitStack() as opened:
        node = await _entered(opened, bench.node(bench.database, "main", fleet.CORES))
        worker = await _entered(opened, fleet.worker(bench.database, bench.folder))
        meter = Meter(bench.server.pid, node, worker)
        flats = await _fill(bench, node, tenants)
        figures |= {
            "spaces": float(sizes.spaces),
            "passages": float(sizes.passages),
            "large_spaces": float(sizes.large_spaces),
            "large_passages": float(sizes.large_passages),
        }
        idle = await _entered(opened, bench.node(flats[0][1], "idle"))
        bench.progress("parallel ingests")
        with part("parallel ingests"):
            figures |= await parallel_ingests(
                idle, bench.tenant, count=sizes.ingests, messages=sizes.ingest_messages
            )
            await quiet(idle, seconds=60 * sizes.idle_seconds)
        begun = time.monotonic()
        resting = IdleGrowth(idle)
        with part("rates"):
            await _rates(bench, node, meter)
        bench.progress("the same statements sent straight")
        with part("the same statements sent straight"):
            compared = await compare(
                bench.database,
                node.port,
                bench.tenant,
                copies=sizes.ratio_copies,
                passages=sizes.passages,
            )
            figures |= compared.figures()
        with part("fairness"):
            await _fairness(bench, node, tenants, meter)
        await bench.copy("template", bench.names(sizes.spaces, sizes.flat[-1]), to=bench.tenant)
        await asyncio.to_thread(fleet.settle, bench.database, bench.progress)
        await asyncio.sleep(max(0.0, sizes.idle_seconds - (time.monotonic() - begun)))
        figures |= resting.figures()
        nodes = {flats[0][0]: idle, sizes.flat[-1]: node}
        for count, database in flats[1:]:
            nodes[count] = await _entered(opened, bench.node(database, f"flat-{count}"))
        with part("flatness"):
            await _flatness(bench, nodes)
    figures["failed"] = sum(value for name, value in figures.items() if name.endswith("_failed"))
    figures["failed"] += figures.get("others_failed_flooded", 0.0)


async def _entered(opened: AsyncExitStack, process: ServerProcess) -> ServerProcess:
    """Start a node beside the loop, and end it with the stack."""
    await asyncio.to_thread(process.__enter__)
    opened.push(process)
    return process


async def _fill(
    bench: _Bench, node: ServerProcess, tenants: Sequence[BenchTenant]
) -> list[tuple[int, TestDatabase]]:
    """Everything that is loaded; the smaller databases for flatness, by their number of spaces."""
    sizes, figures, progress = bench.sizes, bench.figures, bench.progress
    begun = time.monotonic()
    for name, passages in (
        ("half", max(1, sizes.passages // 2)),
        ("template", sizes.passages),
        *([(bench.large[0], sizes.large_passages)] if bench.large else []),
    ):
        await asyncio.to_thread(
            fleet.fill_by_api, bench.database, node, bench.tenant, name, passages, progress
        )
    sent = sizes.passages * 3 // 2 + (sizes.large_passages if bench.large else 0)
    figures["filled_passages_per_second"] = sent / (time.monotonic() - begun)
    flats: list[tuple[int, TestDatabase]] = []
    have = 0
    for count in sizes.flat[:-1]:
        await bench.copy("template", bench.names(have, count), to=bench.tenant)
        have = count
        flats.append((count, await asyncio.to_thread(_clone, bench)))
    before = fleet.bytes_of_spaces(bench.database)
    begun = time.monotonic()
    await bench.copy("template", bench.names(have, sizes.spaces), to=bench.tenant)
    after = fleet.bytes_of_spaces(bench.database)
    figures["copied_spaces_per_second"] = (sizes.spaces - have) / (time.monotonic() - begun)
    figures[f"bytes_space_{sizes.passages}"] = (after - before) / (sizes.spaces - have)
    copies = [f"half-{number:04d}" for number in range(sizes.sized_copies)]
    await bench.copy("half", copies, to=bench.tenant)
    smaller = (fleet.bytes_of_spaces(bench.database) - after) / len(copies)
    figures[f"bytes_space_{max(1, sizes.passages // 2)}"] = smaller
    await bench.copy("template", ratio_spaces(sizes.ratio_copies), to=bench.tenant)
    for tenant in tenants:
        await bench.copy("template", bench.names(0, 10), to=tenant)
    if bench.large:
        await bench.copy(bench.large[0], bench.large[1:], to=bench.tenant)
    await asyncio.to_thread(fleet.settle, bench.database, progress)
    progress("checking some of the copies")
    await _check(bench)
    return flats


def _clone(bench: _Bench) -> TestDatabase:
    fleet.settle(bench.database, bench.progress)
    return fleet.clone_database(bench.server, bench.database)


async def _check(bench: _Bench) -> None:
    step = max(1, bench.sizes.spaces // fleet.CHECKED)
    some = bench.names(0, bench.sizes.spaces)[::step]
    passages, problems = await fleet.check_spaces(bench.database, bench.tenant, some)
    if problems or passages != bench.sizes.passages:
        raise RecollectError(f"a copied space has {passages} passages and {problems or 'no'} fault")
    bench.figures["checked_spaces"] = float(len(some))


async def _rates(bench: _Bench, node: ServerProcess, meter: Meter) -> None:
    """What rates are held, and what a prepare takes well below them."""
    sizes = bench.sizes
    connections = Connections(node.port)
    everywhere = bench.names(0, sizes.spaces)
    traffic = Traffic([bench.tenant], everywhere, seed=1, passages=sizes.passages)
    try:
        bench.progress("warming up")
        await offer(
            connections, traffic, rate=sizes.first_rate / 2, seconds=sizes.seconds,
            mix=MIX, meter=meter, seed=0,
        )  # fmt: skip
        held: dict[str, Held] = {}
        for name, mix in (("prepare", PREPARE_ALONE), ("mix", MIX)):
            before = _written(bench.database)
            found = await held_rate(
                connections, traffic, first=sizes.first_rate, seconds=sizes.seconds,
                most_steps=sizes.most_steps, tries=sizes.tries, mix=mix, meter=meter,
                progress=bench.progress,
            )  # fmt: skip
            held[name] = found
            bench.figures |= found.figures(name)
            bench.notes.append(f"`{name}`: the rate was limited by {found.limit.value}.")
            if name == "mix":
                wal, size = _written(bench.database)
                turns = max(1, found.turns)
                bench.figures["wal_bytes_per_turn"] = (wal - before[0]) / turns
                bench.figures["stored_bytes_per_turn"] = (size - before[1]) / turns
        rate = max(1.0, held["prepare"].rate / 3)
        for name, spaces in (("prepare", everywhere), ("large_prepare", bench.large)):
            if not spaces:
                continue
            bench.progress(f"{name} in {len(spaces):,} spaces at {rate:.0f} a second")
            asked = Traffic([bench.tenant], spaces, seed=2, passages=sizes.passages)
            runs = [
                await offer(
                    connections, asked, rate=rate, seconds=2 * sizes.seconds,
                    mix=PREPARE_ALONE, meter=meter, seed=number,
                )
                for number in range(sizes.repeats)
            ]  # fmt: skip
            for share in (50, 99):
                bench.figures[f"{name}_p{share}_ms"] = median(
                    one.milliseconds(share / 100) for one in runs
                )
            bench.figures[f"{name}_failed"] = float(sum(one.failed for one in runs))
    finally:
        await connections.close()


def _written(database: TestDatabase) -> tuple[int, int]:
    """Bytes of WAL that the server wrote so far, and bytes of all tables of spaces."""
    with psycopg.connect(database.admin_url) as connection:
        (wal,) = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone() or (0,)
    return int(wal), fleet.bytes_of_spaces(database)


async def _fairness(
    bench: _Bench, node: ServerProcess, tenants: Sequence[BenchTenant], meter: Meter
) -> None:
    sizes, spaces = bench.sizes, bench.names(0, 10)
    *others, loading = tenants
    others_beside = partial(
        beside,
        node=node,
        others=others,
        spaces=spaces,
        rate=max(1.0, bench.figures["mix_rate_held"] / 3),
        seconds=sizes.seconds,
        pairs=sizes.repeats,
        passages=sizes.passages,
        meter=meter,
    )
    bench.progress("one tenant floods the node")
    bench.figures |= await beside_a_flood(
        others_beside, loading, spaces=spaces, passages=sizes.passages
    )
    bench.progress("one tenant sends large first turns")
    bench.figures |= await beside_large_turns(
        others_beside, loading, scale=sizes.large_turn_scale, seconds=sizes.seconds
    )


async def _flatness(bench: _Bench, nodes: dict[int, ServerProcess]) -> None:
    """The same prepares in databases of few and of many spaces."""
    sizes, most = bench.sizes, max(nodes)
    bench.progress("prepare beside few and beside many spaces")
    taken, failed = await prepare_in_turn(
        {count: one.port for count, one in nodes.items()},
        bench.tenant,
        names={
            count: bench.names(0, count)[:: max(1, count // sizes.flat_asked)][: sizes.flat_asked]
            for count in nodes
        },
        rounds=3 * sizes.flat_asked,
        passages=sizes.passages,
    )
    for count, values in taken.items():
        for share in (50, 99):
            bench.figures[f"flat_p{share}_ms_{count}"] = values[share]
    bench.figures["flat_failed"] = float(failed)
    least = min(taken)
    bench.figures["flatness"] = taken[most][50] / taken[least][50]
    bench.figures["flatness_p99"] = taken[most][99] / taken[least][99]
