"""The scale bench: it runs whole at a small size, its arithmetic adds up, its page is generated."""

import asyncio
import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from tests.sizes import only_in_full

from recollect.adapters.stores.postgres.pool import Pool
from recollect.errors import RecollectError
from recollect_bench import scale
from recollect_bench.command import bench
from recollect_bench.postgres_server import PostgresServer
from recollect_bench.result import BenchResult, Parts
from recollect_bench.scale import straight
from recollect_bench.scale.capacity import (
    ASSUMED,
    FLEETS,
    QUICK_NOTE,
    Assumptions,
    ScaleResult,
    page,
    reckon,
)

DOCS = Path(__file__).parents[2] / "docs"


def committed() -> ScaleResult:
    return ScaleResult.read(json.loads((DOCS / "contributing/figures/scale.json").read_text()))


@only_in_full
def test_a_small_run_measures_everything() -> None:
    result = scale.run(quick=True)
    figures = result.figures
    assert figures.keys() >= {
        *("prepare_p50_ms", "prepare_p99_ms", "large_prepare_p50_ms", "large_prepare_p99_ms"),
        *("mix_rate_held", "prepare_rate_held", "mix_cpu_ms_node", "mix_cpu_ms_database"),
        *("engine_ratio", "engine_ratio_http", "flatness", "flatness_p99", "fairness"),
        *("ingest_peak_mb", "idle_growth_mb_per_hour", "bytes_space_20", "bytes_space_10"),
        *("wal_bytes_per_turn", "stored_bytes_per_turn"),
    }
    assert all(math.isfinite(value) for value in figures.values())
    assert figures["prepare_failed"] == figures["others_failed_flooded"] == 0
    assert 0 < figures["prepare_p50_ms"] <= figures["prepare_p99_ms"]
    assert figures["bytes_space_20"] > figures["bytes_space_10"] > 0
    assert figures["checked_spaces"] >= 1
    assert figures["engine_ratio"] > 0.2
    assert figures["engine_ratio_http"] > figures["engine_ratio"] / 3
    assert 50 < figures["ingest_peak_mb"] < 512
    assert figures["statements_per_prepare"] > figures["round_trips_per_prepare"] > 1
    assert result.failures == ()
    assert isinstance(result, ScaleResult)
    assert QUICK_NOTE in page(result)


async def test_transactions_that_do_not_commit_in_time_are_sent_straight_all_the_same(
    server: PostgresServer,
) -> None:
    """A turn may end a search at its deadline, and leave work behind for which no request waits."""
    database = await server.migrated_database()
    pool = Pool(database.app_url, size=4)
    recorder, space = straight.Recorder(pool), uuid4()

    async def ask(query: str, seconds: float) -> None:
        async with asyncio.timeout(seconds), pool.transaction(space, read=True) as work:
            await work.rows("SELECT 1")
            await work.rows(query)

    bare = straight.Straight(database.app_url)
    try:
        for query, seconds in (
            ("SELECT pg_sleep(30)", 0.3),
            ("SELECT 1 / 0", 30),
            ("SELECT pg_sleep(0.4)", 30),
        ):
            unfinished = asyncio.create_task(ask(query, seconds))
            await asyncio.sleep(0.1)
            await ask("SELECT 2", 30)
            sent = await recorder.take()
            await asyncio.gather(unfinished, return_exceptions=True)
            assert len(sent) == (2 if "0.4" in query else 1)
            assert await asyncio.to_thread(bare.seconds, sent, []) > 0
            assert await recorder.take() == []
    finally:
        bare.close()
        await pool.close()


class BrokenError(Exception):
    """No error that the benches know."""


def test_a_bench_that_fails_late_prints_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(progress: object) -> BenchResult:
        figures, parts = {}, Parts()
        for name in ("first", "second", "third"):
            with parts.part(name):
                if name == "second":
                    raise BrokenError("it broke")
                figures[name] = 1.0
        return BenchResult(bench="tokens", figures=figures, failures=tuple(parts.failures))

    monkeypatch.setattr("recollect_bench.tokens.run", run)
    done = CliRunner().invoke(bench, ["tokens", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["figures"] == {"first": 1.0, "third": 1.0}
    assert "not measured: second: BrokenError: it broke" in done.stderr


@only_in_full
def test_a_part_that_fails_keeps_the_figures_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench once ended after 17 minutes without a figure."""

    async def compare(*_: object, **__: object) -> None:
        raise RecollectError("sent straight it failed")

    monkeypatch.setattr(scale, "compare", compare)
    result = scale.run(quick=True)
    part = "the same statements sent straight"
    assert result.failures == (f"{part}: RecollectError: sent straight it failed",)
    assert {"mix_rate_held", "fairness", "flatness", "failed"} <= result.figures.keys()


def test_the_committed_page_is_of_a_run_at_its_full_size() -> None:
    told, full = committed(), scale.Sizes()
    assert QUICK_NOTE not in told.notes
    assert told.figures["spaces"] == full.spaces
    assert told.figures["passages"] == full.passages
    assert told.figures["large_passages"] == full.large_passages


@pytest.mark.parametrize("spaces", FLEETS.values())
def test_a_printed_formula_gives_the_printed_number(spaces: int) -> None:
    """Put the printed values into each formula that is plain arithmetic."""
    lines = reckon(committed().figures, spaces, Assumptions())
    known = asdict(Assumptions()) | {"spaces": float(spaces)}
    checked = set[str]()
    for line in lines:
        formula = line.how.replace(" hours", "").replace("86,400", "86400").replace("1,000", "1000")
        for name in sorted(known, key=len, reverse=True):
            formula = formula.replace(name, f"({known[name]!r})")
        formula = formula.replace("×", "*")
        if not re.search("[a-zA-Z_]", formula):
            assert eval(formula) == pytest.approx(line.value, rel=1e-6), line.name
            checked.add(line.name)
        known[line.name] = known[line.name.removesuffix(", GB")] = line.value
    assert checked >= {
        *("database nodes with standbys", "disks, GB", "nodes, $ per month"),
        *("database, $ per month", "disks, $ per month", "archive, $ per month"),
        "$ per month for 1,000 spaces",
    }


def test_the_arithmetic_adds_up() -> None:
    figures = {
        "passages": 200.0,
        "bytes_space_200": 500_000.0,
        "mix_cpu_ms_node": 8.0,
        "mix_cpu_ms_worker": 2.0,
        "mix_cpu_ms_database": 20.0,
        "ingest_peak_mb": 250.0,
        "stored_bytes_per_turn": 5_000.0,
        "wal_bytes_per_turn": 30_000.0,
    }
    lines = {line.name: line.value for line in reckon(figures, 1_000_000, Assumptions())}
    assert lines["turns per day"] == 2_000_000
    assert lines["turns per second at the peak"] == pytest.approx(69.4, rel=0.01)
    assert lines["requests per second at the peak"] == pytest.approx(154.3, rel=0.01)
    assert lines["processors for nodes and workers"] == pytest.approx(2.57, rel=0.01)
    assert lines["nodes"] == 3
    assert lines["data, GB"] == 500
    assert lines["ledger, GB"] == 300
    assert lines["WAL per day, GB"] == 60
    assert lines["all, $ per month"] == pytest.approx(
        sum(value for name, value in lines.items() if name.endswith(", $ per month")) / 2
    )
    costs = [
        next(one.value for one in reckon(figures, spaces, Assumptions()) if one.name == "nodes")
        for spaces in FLEETS.values()
    ]
    assert costs == sorted(costs)
    assert ASSUMED.keys() == set(Assumptions.__dataclass_fields__)
