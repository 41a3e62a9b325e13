"""The scale bench: it runs whole at a small size, its arithmetic adds up, its page is generated."""

import json
import math
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.sizes import only_in_full

from recollect_bench import scale
from recollect_bench.scale.capacity import (
    ASSUMED,
    FLEETS,
    QUICK_NOTE,
    Assumptions,
    ScaleResult,
    generated,
    reckon,
)

DOCS = Path(__file__).parents[2] / "docs"


def committed() -> ScaleResult:
    return ScaleResult.read(json.loads((DOCS / "operations/capacity.json").read_text("utf-8")))


@only_in_full
def test_a_small_run_measures_everything(tmp_path: Path) -> None:
    result = scale.run(quick=True, write=str(tmp_path))
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
    written = ScaleResult.read(json.loads((tmp_path / "operations/capacity.json").read_text()))
    assert written.figures == figures
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == {
        *generated(written),
        "operations/capacity.json",
    }


def test_the_page_and_its_pictures_follow_from_the_committed_figures() -> None:
    for name, text in generated(committed()).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, (
            f"{name} is generated: recollect bench scale --capacity FILE --write docs"
        )


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
