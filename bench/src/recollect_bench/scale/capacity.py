"""What the figures of one machine mean for a fleet: nodes, disks, memory and money, line by line.

Owns the arithmetic, its assumptions, and the page that shows both (docs/operations/capacity.md),
which `python -m tools.reference` writes from docs/contributing/figures/scale.json. Every line of it
names what it is made of, so that a reader with other habits or prices can put in their own. It must
never measure anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from recollect_bench.result import BenchResult, figure_text
from recollect_bench.scale.load import MIX

FLEETS: Final[Mapping[str, int]] = {"1k": 1_000, "1M": 1_000_000, "100M": 100_000_000}
DAY_SECONDS: Final = 86_400
HOURS_PER_MONTH: Final = 730
_DATA: Final = "../contributing/figures/scale.json"
_PICTURES: Final = ("images/capacity_rate.svg", "images/capacity_flat.svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleResult(BenchResult):
    """A run of the bench: its figures, the day and the machine."""

    measured_on: str = ""
    machine: str = ""

    def as_json(self) -> dict[str, Any]:
        """As every bench's object, and where and when it ran."""
        # Not `super()`: a slotted dataclass is made anew, and its methods keep the first one.
        where = {"measured_on": self.measured_on, "machine": self.machine}
        return BenchResult.as_json(self) | where

    @classmethod
    def read(cls, held: Mapping[str, Any]) -> Self:
        """A run from the object that it printed."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in held.items() if name in known}
        return cls(**{**given, "notes": tuple(held["notes"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is not measured: how people use it, how it is run, and what things cost."""

    active_share: float = 0.1
    """Of all spaces, those with a turn on a day."""
    turns_per_day: float = 20.0
    """Of an active space."""
    peak_factor: float = 3.0
    """The busiest second against the average one."""
    utilization: float = 0.6
    """Of a processor at the peak, so that one node may fail."""
    ledger_days: float = 30.0
    """`ledger.retention_days`: how long what a turn wrote beside its messages is kept."""
    copies: float = 2.0
    """Of the data on disks: the primary and a standby for each."""
    head_room: float = 1.5
    """Of a disk, for vacuum, new indexes and moving shards."""
    wal_disk_gb: float = 16.0
    """Of each database node."""
    wal_days: float = 7.0
    """Of the archived WAL, to restore any moment of them."""
    citus_factor: float = 1.8
    """What a statement costs on Citus against plain PostgreSQL, at more than one database node."""
    database_cpus: float = 16.0
    """Virtual processors of a database node."""
    database_gb: float = 128.0
    """Memory of a database node; half of it caches pages."""
    database_disk_gb: float = 4_000.0
    """The most that one database node should hold."""
    node_cpus: float = 4.0
    """Virtual processors of a machine for nodes, one node each."""
    cpu_hour: float = 0.04
    """US dollars for a virtual processor and hour."""
    memory_gb_hour: float = 0.005
    """For a GB of memory and hour."""
    disk_gb_month: float = 0.10
    """For a GB of disk and month."""
    archive_gb_month: float = 0.025
    """For a GB of object storage and month."""


ASSUMED: Final[Mapping[str, str]] = {
    "active_share": "share of all spaces that have a turn on a given day",
    "turns_per_day": "turns per active space and day",
    "peak_factor": "rate in the busiest second, divided by the average rate",
    "utilization": "share of a processor in use at the peak; the rest is spare if a node fails",
    "ledger_days": "days for which the ledger keeps a turn (`ledger.retention_days`)",
    "copies": "copies of the data on disks: each primary has a standby",
    "head_room": "size of the disks divided by the data, for vacuum, new indexes and moving shards",
    "wal_disk_gb": "GB of WAL on the disk of a database node",
    "wal_days": "days of archived WAL",
    "citus_factor": "processor time on Citus, divided by plain PostgreSQL (trial: 1.6 to 1.9)",
    "database_cpus": "largest number of virtual processors of a database node",
    "database_gb": "GB of RAM of a database node of that size, half of it for cached pages",
    "database_disk_gb": "maximum GB of data on one database node",
    "node_cpus": "virtual processors of a machine for nodes if more than two nodes are needed",
    "cpu_hour": "dollars per virtual processor and hour (an example: use your own price)",
    "memory_gb_hour": "dollars per GB of RAM and hour (an example)",
    "disk_gb_month": "dollars per GB of disk and month (an example)",
    "archive_gb_month": "dollars per GB of object storage and month (an example)",
}
WANTED: Final[Mapping[str, tuple[str, float | None]]] = {
    "mix_rate_held": ("requests per second with a p99 under 250 ms, mixed operations", None),
    "prepare_rate_held": ("requests per second with a p99 under 250 ms, only `prepare`", None),
    "prepare_cpu_ms_node": ("processor time of the node per `prepare`, in ms", 12.0),
    "prepare_cpu_ms_database": ("processor time of PostgreSQL per `prepare`, in ms", 6.0),
    "transactions_per_prepare": ("transactions per `prepare`", 3.0),
    "round_trips_per_prepare": ("round trips per `prepare`", 6.0),
    "statements_per_prepare": ("statements per `prepare`", 25.0),
    "prepare_p50_ms": ("`prepare` in spaces chosen at random, p50 in ms", None),
    "prepare_p99_ms": ("`prepare` in spaces chosen at random, p99 in ms", None),
    "large_prepare_p50_ms": ("`prepare` in the large spaces, p50 in ms", None),
    "large_prepare_p99_ms": ("`prepare` in the large spaces, p99 in ms", None),
    "engine_ratio": (
        "time of the engine's transactions, divided by the same SQL without the engine",
        1.5,
    ),
    "engine_ratio_http": ("time of a whole `prepare` over HTTP, divided by the same SQL", None),
    "flatness": ("p50 of `prepare` with the most spaces, divided by that with the fewest", 1.1),
    "flatness_p99": (
        "p99 of `prepare` with the most spaces, divided by that with the fewest",
        None,
    ),
    "fairness": (
        "p99 of other tenants while one tenant floods the node, divided by p99 without it",
        1.5,
    ),
    "first_turn_10k_messages_seconds": ("first turn with 10,000 messages, slowest in s", 3.0),
    "first_turn_10k_messages_others_p99": (
        "p99 of other tenants while first turns with 10,000 messages run, divided by p99 without",
        1.3,
    ),
    "first_turn_2_mb_seconds": ("first turn with one message of 2 MB, slowest in s", 3.0),
    "first_turn_2_mb_others_p99": (
        "p99 of other tenants while first turns with 2 MB run, divided by p99 without",
        1.3,
    ),
    "failed": ("failed requests in all of these runs", 0.0),
    "ingest_peak_mb": ("highest RAM of a node during 50 ingests at once, in MB", 512.0),
    "ingest_refused_at_first": ("refusals among these 50 ingests before a retry", 0.0),
    "idle_growth_mb_per_hour": ("RAM that an idle node gains per hour, in MB", 1.0),
    "bytes_space_100": ("size of a space of 100 passages with its indexes, in bytes", 200_000.0),
}
"""What the page shows of the run, and the most that is wanted of it."""
LEAST: Final[Mapping[str, float]] = {"mix_rate_held": 50.0, "prepare_rate_held": 20.0}
"""The least that is wanted of some of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One step of the arithmetic, for one fleet."""

    name: str
    how: str
    """What it is made of."""
    value: float


def reckon(figures: Mapping[str, float], spaces: int, assumed: Assumptions) -> list[Line]:
    """Everything that a fleet of so many spaces needs, each line made of those before it."""
    a, lines = assumed, list[Line]()
    known: dict[str, float] = {}

    def line(name: str, how: str, value: float) -> float:
        lines.append(Line(name=name, how=how, value=value))
        known[name] = value
        return value

    per_turn = 1 / MIX["prepare"]
    space_bytes = figures[f"bytes_space_{figures['passages']:.0f}"]
    active = line("active spaces", "spaces × active_share", spaces * a.active_share)
    turns = line("turns per day", "active spaces × turns_per_day", active * a.turns_per_day)
    peak = line(
        "turns per second at the peak",
        "turns per day / 86,400 × peak_factor",
        turns / DAY_SECONDS * a.peak_factor,
    )
    asked = line(
        "requests per second at the peak",
        f"turns per second × {per_turn:.2f} (requests per turn in the measured mix)",
        peak * per_turn,
    )
    # Nodes
    request_ms = figures["mix_cpu_ms_node"] + figures["mix_cpu_ms_worker"]
    node_cpus = line(
        "processors for nodes and workers",
        f"requests per second × {request_ms:.1f} ms / utilization",
        asked * request_ms / 1_000 / a.utilization,
    )
    nodes = line(
        "nodes",
        "processors for nodes and workers, rounded up, at least 2: one process uses one processor",
        max(2, math.ceil(node_cpus)),
    )
    node_size = line(
        "processors of a machine for nodes",
        "1 if two nodes are enough, else node_cpus",
        1 if nodes == 2 else a.node_cpus,
    )
    node_machines = line(
        "machines for nodes",
        "nodes / processors of a machine for nodes, rounded up, at least 2",
        max(2, math.ceil(nodes / node_size)),
    )
    node_gb = line(
        "RAM for nodes, GB",
        f"nodes × {figures['ingest_peak_mb']:.0f} MB",
        nodes * figures["ingest_peak_mb"] / 1_000,
    )
    # Data
    stored = line("data, GB", f"spaces × {space_bytes / 1_000:.0f} KB", spaces * space_bytes / 1e9)
    ledger = line(
        "ledger, GB",
        f"turns per day × ledger_days × {figures['stored_bytes_per_turn'] / 1_000:.1f} KB",
        turns * a.ledger_days * max(0.0, figures["stored_bytes_per_turn"]) / 1e9,
    )
    hot = line(
        "data of active spaces, GB",
        "(data + ledger) × active_share: the data that the turns of a day read",
        (stored + ledger) * a.active_share,
    )
    # Database nodes
    plain_cpus = asked * figures["mix_cpu_ms_database"] / 1_000 / a.utilization
    one = (
        plain_cpus <= a.database_cpus
        and stored + ledger <= a.database_disk_gb
        and hot <= a.database_gb / 2
    )
    database_cpus = line(
        "processors for the database",
        f"requests per second × {figures['mix_cpu_ms_database']:.1f} ms / utilization"
        " (× citus_factor if one node is not enough)",
        plain_cpus * (1 if one else a.citus_factor),
    )
    by_cpu = math.ceil(database_cpus / a.database_cpus)
    by_disk = math.ceil((stored + ledger) / a.database_disk_gb)
    by_memory = math.ceil(hot / (a.database_gb / 2))
    primaries = line(
        "database nodes",
        "the largest of three numbers, each rounded up: processors for the database /"
        " database_cpus; (data + ledger) / database_disk_gb; data of active spaces / half of"
        " database_gb. If that is over 1, plus one Citus coordinator",
        1 if one else max(by_cpu, by_disk, by_memory) + 1,
    )
    database_size = line(
        "processors of a database node",
        "database_cpus; if one node is enough, the smallest of 2, 4, 8 … that covers the"
        " processors for the database and keeps the data of active spaces in half of the RAM",
        _small(database_cpus, hot, a) if one else a.database_cpus,
    )
    database_gb = line(
        "RAM of a database node, GB",
        "processors of a database node × database_gb / database_cpus",
        database_size * a.database_gb / a.database_cpus,
    )
    machines = line("database nodes with standbys", "database nodes × copies", primaries * a.copies)
    disk = line(
        "disks, GB",
        "((data + ledger) × head_room + database nodes × wal_disk_gb) × copies",
        ((stored + ledger) * a.head_room + primaries * a.wal_disk_gb) * a.copies,
    )
    wal = line(
        "WAL per day, GB",
        f"turns per day × {figures['wal_bytes_per_turn'] / 1_000:.0f} KB",
        turns * figures["wal_bytes_per_turn"] / 1e9,
    )
    archive = line("archive, GB", "WAL per day × wal_days + data + ledger",
                   wal * a.wal_days + stored + ledger)  # fmt: skip
    # Money
    money = line(
        "nodes, $ per month",
        "(machines for nodes × processors of a machine for nodes × cpu_hour"
        " + RAM for nodes × memory_gb_hour) × 730 hours",
        (node_machines * node_size * a.cpu_hour + node_gb * a.memory_gb_hour) * HOURS_PER_MONTH,
    )
    money += line(
        "database, $ per month",
        "database nodes with standbys × (processors of a database node × cpu_hour"
        " + RAM of a database node × memory_gb_hour) × 730 hours",
        machines * (database_size * a.cpu_hour + database_gb * a.memory_gb_hour) * HOURS_PER_MONTH,
    )
    money += line("disks, $ per month", "disks × disk_gb_month", disk * a.disk_gb_month)
    money += line(
        "archive, $ per month", "archive × archive_gb_month", archive * a.archive_gb_month
    )
    line("all, $ per month", "nodes + database + disks + archive, $ per month", money)
    line(
        "$ per month for 1,000 spaces", "all, $ per month / spaces × 1,000", money / spaces * 1_000
    )
    return lines


def _small(cpus: float, hot: float, a: Assumptions) -> float:
    """Processors of a single database machine that is no larger than needed: 2, 4, 8 …"""
    size = 2.0
    while size < min(a.database_cpus, max(cpus, 2 * hot / (a.database_gb / a.database_cpus))):
        size *= 2
    return size


def capacity_figures(result: BenchResult, assumed: Assumptions | None = None) -> dict[str, float]:
    """The arithmetic as flat figures."""
    return {
        f"{fleet}: {line.name}": line.value
        for fleet, spaces in FLEETS.items()
        for line in reckon(result.figures, spaces, assumed or Assumptions())
    }


def page(result: ScaleResult, assumed: Assumptions | None = None) -> str:
    """docs/operations/capacity.md."""
    assumed = assumed or Assumptions()
    return "\n".join(
        [
            *_head(result),
            *_measured(result),
            *_arithmetic(result.figures, assumed),
            *_assumptions(assumed),
            *_UNKNOWN,
            "",
        ]
    )


QUICK_NOTE: Final = "a quick run: small sizes; its figures are not to be quoted"


def _head(result: ScaleResult) -> Iterator[str]:
    figures = result.figures
    yield "# Capacity and cost of a service"
    yield ""
    yield "This page shows how many requests a service answers, what machines it needs, and what"
    yield "they cost. `python -m tools.reference` generates the page from"
    yield f"[its figures]({_DATA}). These figures were measured on {result.measured_on} on"
    yield f"{result.machine}. PostgreSQL 18, one node of `recollect serve`"
    yield "with a process per core, one `recollect worker` and the load generator shared this"
    yield "machine."
    yield "The generator sent requests at random times (Poisson), without waiting for answers."
    yield ""
    if QUICK_NOTE in result.notes:  # before the tables, where a reader sees it
        yield f"**This is {QUICK_NOTE}.** `just figures scale` measures at the stated sizes."
        yield ""
    yield f"![Latency against rate](../{_PICTURES[0]})"
    yield ""
    yield f"![Latency against the number of spaces](../{_PICTURES[1]})"
    yield ""
    shown = " | ".join(f"{fleet} spaces" for fleet in FLEETS)
    yield f"| | {shown} |"
    yield "|---|" + "---:|" * len(FLEETS)
    wanted = ("nodes", "database nodes", "database nodes with standbys", "disks, GB",
              "all, $ per month", "$ per month for 1,000 spaces")  # fmt: skip
    reckoned = {
        fleet: {line.name: line.value for line in reckon(figures, spaces, Assumptions())}
        for fleet, spaces in FLEETS.items()
    }
    for name in wanted:
        values = " | ".join(_shown(reckoned[fleet][name]) for fleet in FLEETS)
        yield f"| {name} | {values} |"
    yield ""
    yield "The table is an example with example prices. The [assumptions](#assumptions) below list"
    yield "them; use your own in `Assumptions` (`bench/src/recollect_bench/scale/capacity.py`)."
    yield ""
    yield from _rates(result, Assumptions())


def _rates(result: ScaleResult, assumed: Assumptions) -> Iterator[str]:
    """Why the page's rates differ, and which of them to use."""
    figures = result.figures
    if "mix_rate_held" not in figures:
        return
    held = _shown(figures["mix_rate_held"])
    request_ms = figures["mix_cpu_ms_node"] + figures["mix_cpu_ms_worker"]
    computed = assumed.utilization / request_ms * 1_000
    yield f"- **Measured: {held} requests per second** with a p99 under 250 ms. One machine ran"
    yield "  node, worker and database. What limited the rate is [below](#what-was-measured)."
    yield f"- **Calculated: {computed:.0f} requests per second and process.** The table above"
    yield "  derives the number of nodes from processor time alone. It counts a process on one"
    yield "  processor as a node, with a database on machines of its own. No such fleet was"
    yield "  measured."
    yield "- The higher rates in [faults](faults.md#faults) are for a few spaces of short messages,"
    yield "  and have no limit on latency."
    yield ""


def _measured(result: ScaleResult) -> Iterator[str]:
    figures = result.figures
    yield "## What was measured"
    yield ""
    yield (
        f"The database had {figures['spaces']:,.0f} spaces of {figures['passages']:,.0f} passages, "
        f"and {figures['large_spaces']:,.0f} of {figures['large_passages']:,.0f}."
    )
    yield ""
    yield "| | figure | target |"
    yield "|---|---:|---:|"
    for name, (text, most) in WANTED.items():
        if name in figures:
            target = (
                f"≥ {LEAST[name]:g}" if name in LEAST else "" if most is None else f"≤ {most:,g}"
            )
            yield f"| {text} | {_shown(figures[name])} | {target} |"
    for name in figures:
        if name.startswith("bytes_space_") and name not in WANTED:
            count = name.removeprefix("bytes_space_")
            kilobytes = f"{figures[name] / 1e3:.0f}"
            yield f"| size of a space of {count} passages with its indexes, in KB | {kilobytes} | |"
    for beside, half, most_ms in flat_points(figures):
        both = f"{half:.0f} / {most_ms:.0f}"
        yield f"| `prepare` in a database of {beside:,} spaces, p50 / p99 in ms | {both} | |"
    yield ""
    missed = [
        f"{text} ({_shown(figures[name])})"
        for name, (text, most) in WANTED.items()
        if (most is not None and figures.get(name, 0.0) > most)
        or figures.get(name, LEAST.get(name, 0.0)) < LEAST.get(name, 0.0)
    ]
    if missed:
        yield f"**Missed targets:** {'; '.join(missed)}. These misses are not fixed yet."
        yield ""
    yield "How it was measured. The names in code style are keys of"
    yield f"[the figures]({_DATA}):"
    yield ""
    yield from (f"- {note.strip()}" for note in _joined(result.notes))
    yield ""


def _joined(notes: Sequence[str]) -> list[str]:
    """Notes with the lines that go on joined to those before."""
    joined: list[str] = []
    for note in notes:
        if note.startswith("  ") and joined:
            joined[-1] += f" {note.strip()}"
        else:
            joined.append(note)
    return joined


def flat_points(figures: Mapping[str, float]) -> list[tuple[int, float, float]]:
    """Number of spaces, p50 and p99 of prepare beside them."""
    start = "flat_p50_ms_"
    counts = sorted(int(name.removeprefix(start)) for name in figures if name.startswith(start))
    return [
        (count, figures[f"{start}{count}"], figures[f"flat_p99_ms_{count}"]) for count in counts
    ]


def _arithmetic(figures: Mapping[str, float], assumed: Assumptions) -> Iterator[str]:
    yield "## Calculation"
    yield ""
    yield f"| | formula | {' | '.join(f'{fleet} spaces' for fleet in FLEETS)} |"
    yield "|---|---|" + "---:|" * len(FLEETS)
    columns = [reckon(figures, spaces, assumed) for spaces in FLEETS.values()]
    for row in zip(*columns, strict=True):
        how = row[-1].how
        yield f"| {row[-1].name} | {how} | {' | '.join(_shown(line.value) for line in row)} |"
    yield ""


def _assumptions(assumed: Assumptions) -> Iterator[str]:
    yield "## Assumptions"
    yield ""
    yield "| name | value | meaning |"
    yield "|---|---:|---|"
    for name, value in asdict(assumed).items():
        yield f"| `{name}` | {value:g} | {ASSUMED[name]} |"
    yield ""


_UNKNOWN: Final = (
    "## What cannot be measured on one machine",
    "",
    "- Several machines: the network between node and database adds its latency to each round",
    "  trip of a request, but no processor time.",
    "- Citus: `citus_factor` comes from an earlier trial on one machine with two workers.",
    "- A cold cache: here all data fit into RAM. PostgreSQL first has to read a space from disk",
    "  if it was not used recently.",
    "- More spaces than in the largest database above: those figures are calculated.",
    "- Standbys: there was no replication, so no commit waited for a standby to write to its disk.",
    "- A model: compaction and fact extraction wait for the model, outside of any transaction.",
    "- Your conversations: long histories need more time in the node, many facts more in the",
    "  database.",
)


def _shown(value: float) -> str:
    """A figure as the page shows it: three digits, large ones with commas."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return figure_text(float(f"{value:.3g}"))
