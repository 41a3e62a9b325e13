"""Shows runs of `recollect bench recall --facts`: on the terminal, and as a page of figures.

Owns how such a run reads: a row a category, a column a way of reading. It must never hold a text of
a set. Always holds: a figure that was not measured has an empty cell, and the number of questions
stands beside every share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    written = [HEAD, f"Version {results[0]['version']}.\n"]
    notes: dict[str, None] = {}
    for result in results:
        run = result["run"]
        for name in run["sets"]:
            prefix = f"{name}." if len(run["sets"]) > 1 else ""
            figures = {
                figure.removeprefix(prefix): value
                for figure, value in result["figures"].items()
                if figure.startswith(prefix)
            }
            written += _section(name, run, figures)
        notes |= dict.fromkeys(note for note in result["notes"] if not note.startswith("set "))
    lines = [note if note.startswith("  ") else f"- {note}" for note in notes]
    return "\n".join([*written, "## What the figures mean\n", "\n".join(lines) + "\n"])


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
    read = f" ({figures['messages_read']:,.0f} read)" if "messages_read" in figures else ""
    yield (
        f"{figures['memories']:,.0f} memories, {figures['messages']:,.0f} messages{read}, "
        f"{figures['questions']:,.0f} questions.\n"
    )
    yield _markdown(*_shares(figures))
    for by in BY:
        changes = _changes(by, figures)
        if changes:
            yield f"How often facts by {by} changed something:\n"
            yield _markdown(["part", *CHANGED], changes)
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
