"""Writes docs/figures.md: what every bench measured, with the command beside it.

    python -m recollect_bench.figures > docs/figures.md
    python -m recollect_bench.figures RESULT.json … > docs/figures.md

The second form takes what `recollect bench NAME --json` printed, for runs that take long. Runs of
the recall bench and of the live bench have a heading each; a page of nothing else is named after
them (docs/figures_recall.md, docs/figures_live.md), and one of the gateway's bench alone after
that. The page is never edited by hand; the machine is described so that a reader can judge times.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path

from recollect_bench.command import BENCHES
from recollect_bench.live.result import LiveResult, read_live
from recollect_bench.live.result import sections as live_sections
from recollect_bench.recall.page import read_recall, sections
from recollect_bench.recall.result import RecallResult
from recollect_bench.result import BenchResult

HEAD = """# {title}

Measured by the commands named here; run them to check. Shares are fractions, times are ratios
against work of the same run.
"""


def page(results: list[BenchResult]) -> str:
    """The page for these results."""
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    recalls = [result for result in results if isinstance(result, RecallResult) and result.sets]
    lives = [result for result in results if isinstance(result, LiveResult)]
    others = [result for result in results if result not in recalls and result not in lives]
    title = "Figures" if others else "Figures of recall" if recalls else "Figures of live sessions"
    if {result.bench for result in results} == {"gateway"}:
        title = "Figures of the gateway"
    written = [HEAD.format(title=title), f"Version {results[0].version}; {machine}.\n"]
    for result in others:
        command = f"recollect bench {result.bench}"
        written.append(f"## `{command}`\n\n{BENCHES[result.bench]}\n")
        written.append(_table("figure", result.figures))
        if result.baselines:
            written.append(_table("baseline", result.baselines))
        written.append("\n".join(f"- {note}" for note in result.notes) + "\n")
    if recalls:
        written += sections(recalls)
    written += live_sections(lives)
    return "\n".join(written)


def _table(title: str, figures: dict[str, float]) -> str:
    rows = [f"| {name} | {value:.4g} |" for name, value in figures.items()]
    return "\n".join([f"| {title} | value |", "|---|---:|", *rows]) + "\n"


def read_result(path: Path) -> BenchResult:
    """A result that a bench printed as JSON."""
    held = json.loads(path.read_text(encoding="utf-8"))
    if held["bench"] == "live":
        return read_live(held)
    if "run" in held:
        return read_recall(held)
    return BenchResult(
        bench=held["bench"],
        version=held["version"],
        figures=held["figures"],
        baselines=held["baselines"],
        notes=tuple(held["notes"]),
    )


def main() -> None:
    """Run every bench, or read what they printed, and print the page."""
    results: list[BenchResult] = [read_result(Path(name)) for name in sys.argv[1:]]
    if results:
        sys.stdout.write(page(results))
        return
    for name in sorted(BENCHES):
        sys.stderr.write(f"bench {name}\n")
        module = importlib.import_module(f"recollect_bench.{name}")
        results.append(module.run(lambda *_: None))
    sys.stdout.write(page(results))


if __name__ == "__main__":
    main()
