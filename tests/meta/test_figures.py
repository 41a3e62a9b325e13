"""Figures of the docs come from runs, and a run that differs from them is named."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from tools import figures
from tools.figures import FIGURES, RUNS, TEMPLATE, differences, read, shown, value

CONDITIONS = {
    *("1", "16,000", "64,000", "128,000", "200,000", "200", "4,000", "50", "250", "10,000"),
    *("20,000", "20000", "1,000", "1.2", "900", "0.1", "1.25", "0", "0.02", ".02", "95", "99", "3"),
}
"""What was measured, such as a window; never what came out."""


def test_no_figure_of_the_benchmarks_page_is_typed_in() -> None:
    text = re.sub(r"\{\w+ \S+ \w+\}|\{\w+\}", "", TEMPLATE.read_text())
    names = ("o200k", "sqlite,pg18", "pg18")
    for name in names:
        text = text.replace(name, "")
    numbers = set(re.findall(r"(?<![\w.])\.?\d(?:[\d.,]*\d)?", text))
    assert numbers <= CONDITIONS, "write a figure as {run name kind}"


def test_every_run_names_its_command_commit_day_and_machine() -> None:
    assert {file.stem for file in FIGURES.glob("*.json")} == {*RUNS, "long_sessions"}
    for name, arguments in RUNS.items():
        run = read(name)
        assert run["command"] == f"recollect bench {arguments}", name
        assert re.fullmatch(r"\d{4}-\d\d(-\d\d)?", run["measured_on"]), name
        assert re.fullmatch(r"[0-9a-f]{8,}|", run["commit"]), name
        assert run["machine"]
        assert "failures" not in run, name


def test_every_figure_that_a_page_shows_is_in_its_run() -> None:
    places = list(shown())
    assert {place.run for place in places} == RUNS.keys()
    for name in RUNS:
        run = read(name)
        if not run["commit"]:
            continue  # copied from the page before figures named their commit
        missing = [f for r, f, _ in places if r == name and value(run, f) is None]
        assert missing == [], name


def test_the_pages_on_benchmarks_and_capacity_agree() -> None:
    page, capacity = ((FIGURES.parents[1] / name).read_text()
        for name in ("contributing/benchmarks.md", "operations/capacity.md"))  # fmt: skip
    rate = re.search(r"10,000 spaces, p99 under 250 ms \| ([\d,]+) \|", page)
    assert rate
    assert f"**Measured: {rate[1]} requests per second**" in capacity


@pytest.mark.parametrize(
    ("run", "figure", "old", "new", "differs"),
    [
        ("cost", "recovered_64k", 0.64, 0.655, False),
        ("cost", "recovered_64k", 0.64, 0.62, False),
        ("cost", "recovered_64k", 0.86, 0.64, True),
        ("cost", "plain.recovered_64k", 0.31, 0.35, True),
        ("cost", "cost_64k", 1.09, 1.19, False),
        ("cost", "cost_64k", 1.09, 1.21, True),
        ("hooks", "socket_p50", 56.0, 50.5, False),
        ("hooks", "socket_p50", 56.0, 49.0, True),
        ("scale", "mix_rate_held", 30.0, 10.0, True),
        ("scale", "failed", 0.0, 0.0, False),
        ("scale", "failed", 0.0, 1.0, True),
        ("tokens", "calibrated_error_most", 0.042, 0.065, True),
        ("cost", "recovered_64k", 0.64, None, True),
        ("cost", "recovered_64k", None, 0.64, True),
    ],
)
def test_a_fresh_run_that_differs_is_named(
    run: str, figure: str, old: float | None, new: float | None, differs: bool
) -> None:
    def held(number: float | None) -> dict[str, Any]:
        part = "baselines" if figure.startswith("plain.") else "figures"
        figure_values = {} if number is None else {figure: number}
        return {"figures": {}, "baselines": {}, part: figure_values}

    problems = differences({run: held(old)}, {run: held(new)})
    assert len(problems) == differs
    assert all(problem.startswith(f"{run}: {figure} ") for problem in problems)


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (0.8641, "share", ".86"),
        (0.0, "share", "0"),
        (1.0, "share", "1.00"),
        (0.003, "share", ".003"),
        (0.0552, "share", ".055"),
        (0.06, "share", ".06"),
        (1.087, "ratio", "1.09"),
        (3.918, "ratio", "3.9"),
        (2.62, "ms", "2.6"),
        (1342.4, "ms", "1,342"),
        (0.0423, "percent", "4.2%"),
        (30.0, "count", "30"),
    ],
)
def test_figures_are_written_alike(number: float, kind: figures.Kind, text: str) -> None:
    assert figures.written(number, kind) == text


def test_an_interrupted_command_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A run of these sources is not repeated, one of other sources is."""
    for name, commit in (("tokens", figures.source_commit()), ("turn", "0ld00000")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"commit": commit}))
    ran: list[str] = []

    def fail(command: list[str], **_: Any) -> Any:
        ran.append(command[4])
        return subprocess.CompletedProcess(command, 1, stdout="")

    commit = figures.source_commit()
    monkeypatch.setattr(figures, "source_commit", lambda: commit)
    monkeypatch.setattr(subprocess, "run", fail)
    assert figures.measured("tokens", tmp_path)
    assert not figures.measured("turn", tmp_path)
    assert ran == ["turn"]
    assert json.loads((tmp_path / "turn.json").read_text()) == {"commit": "0ld00000"}


def test_the_command_refuses_a_run_that_there_is_not() -> None:
    command = [sys.executable, "-m", "tools.figures", "cost", "dearth"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no such run: dearth" in done.stderr
