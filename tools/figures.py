"""`python -m tools.figures [NAME …]`: run the benches that the docs quote, and write their figures.

Each run of `RUNS` becomes docs/contributing/figures/NAME.json: what the bench printed, its command,
commit, day and machine. `python -m tools.reference` writes pages and charts from these files. A run
whose file has the commit of the present sources is skipped, so start the command again after an
interruption. `--compare` writes the files to .cache/figures instead, and fails if a figure that the
docs show differs from a fresh run by more than two points (shares) or 10% (anything else).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

from recollect_bench.scale.capacity import WANTED
from recollect_bench.scale.fleet import machine

ROOT: Final = Path(__file__).parent.parent
FIGURES: Final = ROOT / "docs/contributing/figures"
TEMPLATE: Final = FIGURES / "benchmarks.template"
FRESH: Final = ROOT / ".cache/figures"
SOURCES: Final = ("src", "bench/src")
"""A change elsewhere changes no figure."""
SHARE_POINTS: Final = 0.02
"""Smaller differences of a share are noise between runs of the same code."""
RATIO: Final = 0.1
"""Times of the same code differ by up to a tenth between runs on a shared machine."""
DIGITS: Final = 4

_AGENT: Final = "--embedder static --summaries junk --strategy recollect --strategy recall-off"
RUNS: Final[Mapping[str, str]] = {
    "recall": "recall --set locomo --set longmemeval --set beam --embedder minilm+static",
    "recall_static": "recall --set locomo --embedder static",
    "recall_words": "recall --set locomo --embedder hash",
    "recall_stores": "recall --compare sqlite,pg18 --set locomo --embedder static",
    "live_agent": f"live --set agent --half held-out {_AGENT}",
    "live_assistant": f"live --set assistant --window 16k {_AGENT}",
    "live_locomo": "live --set locomo --window 16k --embedder static --most-questions 300 "
    "--strategy recollect",
    "live_beam": "live --set beam --embedder minilm --strategy recollect",
    "cost": "cost",
    "turn": "turn",
    "turn_recall": "turn --recall",
    "hooks": "hooks",
    "store_sqlite": "store --store sqlite:",
    "store_postgres": "store --store pg18 --spaces 20000",
    "gateway": "gateway --peers",
    "redaction": "redaction",
    "tokens": "tokens",
    "scale": "scale",
}
"""Arguments of `recollect bench`, by the name of the file."""

Kind: TypeAlias = Literal["share", "ratio", "ms", "count", "percent"]
_PLACE: Final = re.compile(rf"\{{(\w+) (\S+) ({'|'.join(get_args(Kind))})\}}")
_SHARES: Final[frozenset[Kind]] = frozenset({"share", "percent"})


class Shown(NamedTuple):
    """A figure that a page shows: the run, the figure's name in it, and how it is written."""

    run: str
    figure: str
    kind: Kind


def main() -> int:
    """Run, write and, with --compare, compare; 1 if a run failed or a figure differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)}")
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    names = options.names or list(RUNS)
    if unknown := set(names) - RUNS.keys():
        parser.error(f"no such run: {', '.join(sorted(unknown))}")
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *SOURCES], cwd=ROOT).returncode:
        parser.error(f"commit your changes in {' and '.join(SOURCES)} first: figures name a commit")
    folder = FRESH if options.compare else FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    failed = [name for name in names if not measured(name, folder)]
    problems = [f"{name}: the run failed" for name in failed]
    if options.compare:
        fresh = {name: read(name, FRESH) for name in names if name not in failed}
        problems += differences({name: read(name) for name in fresh}, fresh)
    for problem in problems:
        print(problem)
    if not options.compare:
        print("Now run `python -m tools.reference`.")
    return int(bool(problems))


def measured(name: str, folder: Path) -> bool:
    """Run the bench, unless its file is of these sources; False if it failed."""
    file, commit = folder / f"{name}.json", source_commit()
    if file.exists() and json.loads(file.read_text("utf-8"))["commit"] == commit:
        print(f"{name}: measured at {commit} already", flush=True)
        return True
    print(f"{name}: recollect bench {RUNS[name]}", flush=True)
    began, used = time.monotonic(), _child_seconds()
    command = [sys.executable, "-m", "recollect", "bench", *RUNS[name].split(), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(done.stdout, flush=True)
        return False
    taken = {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "processor_minutes": round((_child_seconds() - used) / 60, 1),
    }
    write(file, {**json.loads(done.stdout), **origin(f"recollect bench {RUNS[name]}"), **taken})
    return True


def origin(command: str) -> dict[str, str]:
    """Where figures that are measured now come from."""
    day = datetime.now(UTC).date().isoformat()
    return {
        "command": command,
        "commit": source_commit(),
        "measured_on": day,
        "machine": machine(),
    }


def source_commit() -> str:
    """The newest commit that changed the sources."""
    command = ["git", "log", "-1", "--format=%h", "--abbrev=8", "--", *SOURCES]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout[:-1]


def _child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write(file: Path, run: Mapping[str, Any]) -> None:
    """Write a run with as many digits as a page may show."""
    digits = {
        part: {name: float(f"{value:.{DIGITS}g}") for name, value in run[part].items()}
        for part in ("figures", "baselines")
    }
    text = json.dumps({**run, **digits}, indent=1, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")


def read(name: str, folder: Path = FIGURES) -> dict[str, Any]:
    """A run as it was written."""
    run: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return run


def value(run: Mapping[str, Any], figure: str) -> float | None:
    """A figure of a run, ours or a baseline's."""
    found = run["figures"].get(figure, run["baselines"].get(figure))
    return None if found is None else float(found)


def shown() -> list[Shown]:
    """Every figure that the pages show, once."""
    places = [Shown("scale", figure, "ratio") for figure in WANTED]
    found = _PLACE.findall(TEMPLATE.read_text("utf-8"))
    places += [Shown(run, figure, cast("Kind", kind)) for run, figure, kind in found]
    return list({place[:2]: place for place in places}.values())


def differences(
    published: Mapping[str, Mapping[str, Any]], fresh: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The figures of these runs that a fresh run does not reproduce, each with both values."""
    problems = []
    for run, figure, kind in shown():
        if run not in fresh:
            continue
        old, new = value(published[run], figure), value(fresh[run], figure)
        if old is None and new is None:
            continue
        if old is None or new is None:
            problems.append(f"{run}: {figure} is {new}, published is {old}")
            continue
        limit = SHARE_POINTS if kind in _SHARES else RATIO * abs(old)
        if abs(new - old) > limit + 1e-9:
            problems.append(f"{run}: {figure} is {new:.4g}, published is {old:.4g}")
    return problems


def written(number: float, kind: Kind) -> str:
    """A figure as a page shows it."""
    if kind == "share":
        text = f"{number:.2f}" if number >= 0.1 else f"{number:.3f}".removesuffix("0")
        return text.removeprefix("0") if number else "0"
    if kind == "percent":
        return f"{100 * number:.1f}%"
    if kind == "ratio":
        return f"{number:.2f}" if number < 2 else f"{number:.1f}"
    return f"{number:.1f}" if kind == "ms" and number < 10 else f"{number:,.0f}"


def benchmarks_page() -> str:
    """docs/contributing/benchmarks.md: the template with the figures, and where they come from."""
    runs = {name: read(name) for name in RUNS}

    def fill(place: re.Match[str]) -> str:
        run, figure, kind = place.groups()
        number = value(runs[run], figure)
        return "–" if number is None else written(number, cast("Kind", kind))

    text = _PLACE.sub(fill, TEMPLATE.read_text("utf-8"))
    commits = {run["commit"] or "unknown" for run in runs.values()}
    origin = f"All runs are of commit {commits.pop()}."
    if commits or "unknown" in origin:
        origin = (
            "The runs name their commits. If a run shows `unknown`, its figures were copied from "
            "an earlier page; `just figures` measures them again."
        )
    rows = [
        f"| [{name}](figures/{name}.json) | `{run['command']}` | {run['commit'] or 'unknown'} "
        f"| {run['measured_on']} | {run['machine']} |"
        for name, run in runs.items()
    ]
    return text.replace("{runs}", "\n".join(rows)).replace("{commits}", origin)


if __name__ == "__main__":
    sys.exit(main())
