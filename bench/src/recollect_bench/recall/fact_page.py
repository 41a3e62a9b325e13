"""Shows runs of `recollect bench recall --facts`: on the terminal, and as a page of figures.

    python -m recollect_bench.recall.fact_page RESULT.json … > docs/figures_recall_facts.md

Takes what `--json` printed; the page is never edited by hand and holds no text of a set. A figure
that was not measured has an empty cell, the number of questions stands beside every share, and
what a run cannot show (digests that never arose, a part that was chosen by the answers) is said in
words, from its figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

BY: Final = ("none", "rules", "model")
SHOWN: Final = (
    "all_4k",
    "with_facts_all_4k",
    "answer_words_4k",
    "all_4k_gated",
    "with_facts_all_4k_gated",
    "answer_words_4k_gated",
)
CHANGED: Final = ("gained", "lost", "better", "worse", "facts_shown")
COUNTED: Final = (
    "messages_read",
    "facts",
    "digests",
    "superseded",
    "dead_jobs",
    "digests_shown",
    "fact_tokens",
    "reading_seconds",
)
HEAD: Final = """# What facts and digests bring to recall

Measured by the commands named here; run them to check. Shares are fractions. The same questions are
asked of the same memory before anything was extracted (none), after rules read it (rules), and
after rules and a model did (model); every block has 4,000 tokens, whatever stands in it.
"""


def is_of_facts(figures: Mapping[str, float]) -> bool:
    """Whether these are figures of a run with facts."""
    return any(name.startswith(("none.", "rules.")) or ".rules." in name for name in figures)


def draw_facts(name: str, figures: Mapping[str, float]) -> None:
    """A table for the terminal."""
    console = Console()
    head, rows = _shares(figures)
    table = Table(title=f"recollect bench recall --facts: {name}", title_justify="left", box=None)
    for at, column in enumerate(head):
        table.add_column(column, justify="left" if at == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for by in BY:
        counted = _counted(by, figures)
        if counted:
            console.print(f"  {counted}", style="dim", highlight=False)


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The page of these runs, as `--json` printed them."""
    runs = [(result["run"], *other) for result in results for other in _sets(result)]
    digests = _about_digests([figures for _, _, figures in runs])
    written = [HEAD, digests, f"Version {results[0]['version']}.\n"]
    notes: dict[str, None] = {}
    for run, name, figures in runs:
        written += _section(name, run, figures)
    for result in results:
        notes |= dict.fromkeys(note for note in result["notes"] if not note.startswith("set "))
    lines = [note if note.startswith("  ") else f"- {note}" for note in notes]
    return "\n".join([*written, "## What the figures mean\n", "\n".join(lines) + "\n"])


def _sets(result: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, float]]]:
    """The sets of a run, each with its own figures."""
    sets = result["run"]["sets"]
    for name in sets:
        prefix = f"{name}." if len(sets) > 1 else ""
        yield (
            name,
            {
                figure.removeprefix(prefix): value
                for figure, value in result["figures"].items()
                if figure.startswith(prefix)
            },
        )


def _about_digests(runs: Iterable[Mapping[str, float]]) -> str:
    """In how many of the model's runs a digest arose: rules write none."""
    made = [run["model.digests"] for run in runs if "model.digests" in run]
    if not made:
        return "Digests need a model; no run here had one, so nothing here is about digests.\n"
    if not any(made):
        return (
            "**No digest arose in any of the model's runs here (0 digests), so nothing on this "
            "page shows what digests bring or cost.** Rules write none.\n"
        )
    return (
        f"Digests arose in {sum(one > 0 for one in made)} of the model's {len(made)} runs here "
        f"({sum(made):,.0f} digests); the other figures are of single facts. Rules write none.\n"
    )


def _about_part(figures: Mapping[str, float]) -> str:
    """That a part was read, who chose it, and how much of it was really read."""
    chosen = figures["messages_chosen"]
    read = " and ".join(
        f"{figures[name]:,.0f} by {by}" for by in BY if (name := f"{by}.messages_read") in figures
    )
    return (
        f"**Only a part was read for facts, and gold chose it**: {chosen:,.0f} of the messages, "
        f"those that the asked questions' answers rest on and users' messages next to them "
        f"({read} were really read). No fact of the other messages competes, which flatters "
        "facts.\n"
    )


def _section(name: str, run: Mapping[str, Any], figures: Mapping[str, float]) -> Iterable[str]:
    facts = run["facts"]
    bounds = "".join(
        f" --{option} {run[option.replace('-', '_')]}"
        for option in ("most-memories", "most-messages")
        if run.get(option.replace("-", "_"))
    )
    asked = f" ({run['model']})" if run.get("model") else ""
    yield f"## {name}, facts by {facts}{asked}\n"
    weights = " --gguf FILE" if facts == "model" else ""
    yield (
        f"`recollect bench recall --set {name} --embedder {run['embedder']} --facts {facts}"
        f"{weights}{bounds}`\n"
    )
    yield (
        f"{figures['memories']:,.0f} memories, {figures['messages']:,.0f} messages, "
        f"{figures['questions']:,.0f} questions.\n"
    )
    if "messages_chosen" in figures:
        yield _about_part(figures)
    if figures.get("model.digests") == 0:
        yield "No digest arose in this run: what is told of the model is told of its facts.\n"
    yield _markdown(*_shares(figures))
    for by in BY:
        changes = _changes(by, figures)
        if changes:
            yield f"How often facts by {by} changed something:\n"
            yield _markdown(["part", *CHANGED], changes)
        if changes and not any(figures.get(f"{by}.{name}") for name in CHANGED[:4]):
            yield f"Facts by {by} changed no question, neither for the better nor for the worse.\n"
        counted = _counted(by, figures)
        if counted:
            yield f"{counted}\n"


def _parts(figures: Mapping[str, float]) -> list[str]:
    """The whole, then the categories that are asked about."""
    start = "questions."
    return ["", *(name.removeprefix(start) for name in figures if name.startswith(start))]


def _shares(figures: Mapping[str, float]) -> tuple[list[str], list[list[str]]]:
    """A row a measure and part, a column a way of reading."""
    by = [one for one in BY if any(name.startswith(f"{one}.") for name in figures)]
    rows: list[list[str]] = []
    for measure in SHOWN:
        for part in _parts(figures):
            name = f"{measure}.{part}" if part else measure
            cells = [_cell(figures.get(f"{one}.{name}")) for one in by]
            if any(cells):
                counted = "worded" if measure.startswith("answer_words") else "questions"
                asked = figures.get(f"{counted}.{part}" if part else counted, 0)
                rows.append([measure, part or "all", f"{asked:,.0f}", *cells])
    return ["figure", "part", "questions", *by], rows


def _changes(by: str, figures: Mapping[str, float]) -> list[list[str]]:
    rows: list[list[str]] = []
    for part in _parts(figures):
        end = f".{part}" if part else ""
        cells = [_cell(figures.get(f"{by}.{name}{end}")) for name in CHANGED]
        if any(cells):
            rows.append([part or "all", *cells])
    return rows


def _counted(by: str, figures: Mapping[str, float]) -> str:
    held = [
        f"{name.replace('_', ' ')} {_count(figures[f'{by}.{name}'])}"
        for name in COUNTED
        if f"{by}.{name}" in figures
    ]
    return f"By {by}: {', '.join(held)}." if held else ""


def _count(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruler = ["---" if name in ("figure", "part") else "---:" for name in head]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *rows)) + "\n"


# The page of figures


def main() -> None:
    """Print the page of the results that are named."""
    if len(sys.argv) < 2:
        sys.exit("name the files that `recollect bench recall --facts … --json` printed")
    read = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    sys.stdout.write(page(read))


if __name__ == "__main__":
    main()
