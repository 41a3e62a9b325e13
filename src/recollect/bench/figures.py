"""Writes docs/figures.md: what every bench measured, with the command beside it.

    python -m recollect.bench.figures > docs/figures.md

The page is never edited by hand; the machine is described so that a reader can judge times.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys

from recollect.bench.command import BENCHES
from recollect.bench.result import BenchResult

HEAD = """# Figures

Measured by the commands named here; run them to check. Shares are fractions, times are ratios
against work of the same run.
"""


def page(results: list[BenchResult]) -> str:
    """The page for these results."""
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    sections = [HEAD, f"Version {results[0].version}; {machine}.\n"]
    for result in results:
        sections.append(f"## `recollect bench {result.bench}`\n\n{BENCHES[result.bench]}\n")
        sections.append(_table("figure", result.figures))
        if result.baselines:
            sections.append(_table("baseline", result.baselines))
        sections.append("\n".join(f"- {note}" for note in result.notes) + "\n")
    return "\n".join(sections)


def _table(title: str, figures: dict[str, float]) -> str:
    rows = [f"| {name} | {value:.4g} |" for name, value in figures.items()]
    return "\n".join([f"| {title} | value |", "|---|---:|", *rows]) + "\n"


def main() -> None:
    """Run every bench and print the page."""
    results: list[BenchResult] = []
    for name in sorted(BENCHES):
        sys.stderr.write(f"bench {name}\n")
        module = importlib.import_module(f"recollect.bench.{name}")
        results.append(module.run(lambda _: None))
    sys.stdout.write(page(results))


if __name__ == "__main__":
    main()
