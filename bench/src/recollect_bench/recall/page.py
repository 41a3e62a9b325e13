"""Writes runs of the recall bench as sections of a page of figures, each with a heading of its own.

Owns how a run reads as Markdown, and how it is read back from what `--json` printed. It must never
hold a text of a set: misses are left out. Always holds: a figure that a run did not measure has an
empty cell, never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from recollect_bench.recall.draw import MAIN_FIGURES, number
from recollect_bench.recall.result import RecallResult, SetResult, run_note
from recollect_bench.recall.thresholds import thresholds_of

_SHARES: Final = (
    *MAIN_FIGURES,
    "lost",
    "false_recall",
    "same_top_50",
    "worst_score_difference",
)
_BY_PART: Final = (*MAIN_FIGURES, "lost")
_COUNTS: Final = {
    "sessions": "sessions",
    "questions": "questions",
    "references": "references",
    "other_questions": "questions of other chats",
    "passages": "passages",
}


def read_recall(held: Mapping[str, Any]) -> RecallResult:
    """A run from the object that it printed."""
    run = held["run"]
    names: list[str] = run["sets"]
    sets: list[SetResult] = []
    for name in names:
        prefix = f"{name}." if len(names) > 1 else ""
        beside = _under(prefix, held["baselines"])
        baselines: dict[str, dict[str, float]] = {}
        for figure, value in beside.items():
            who, _, measure = figure.partition(".")
            if who not in ("threshold", "aim"):
                baselines.setdefault(who, {})[measure] = value
        sets.append(
            SetResult(
                name=name,
                embedder=run["embedder"],
                store=run["store"],
                figures=_under(prefix, held["figures"]),
                baselines=baselines,
                thresholds={
                    figure: threshold
                    for figure, threshold in thresholds_of(name, run["embedder"]).items()
                    if f"threshold.{figure}" in beside
                },
            )
        )
    return RecallResult(
        bench=held["bench"],
        version=held["version"],
        figures=held["figures"],
        baselines=held["baselines"],
        notes=tuple(held["notes"]),
        sets=tuple(sets),
    )


def _under(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {
        name.removeprefix(prefix): value
        for name, value in figures.items()
        if name.startswith(prefix)
    }


def sections(results: Sequence[RecallResult]) -> list[str]:
    """A section for every set of every run, then what the figures mean, once."""
    written = [
        part for result in results for set_result in result.sets for part in _section(set_result)
    ]
    notes = list(dict.fromkeys(note for result in results for note in _lasting_notes(result)))
    return [*written, "## What the figures of recall mean\n", "\n".join(_bullets(notes)) + "\n"]


def _section(result: SetResult) -> Iterable[str]:
    stores = "--compare" if "," in result.store else "--store"
    yield f"## Recall: {result.name}, {result.embedder}, {result.store.replace(',', ' beside ')}\n"
    yield (
        f"`recollect bench recall --set {result.name} --embedder {result.embedder}"
        f" {stores} {result.store}" + (" --paths …`\n" if result.name == "own" else "`\n")
    )
    yield _whole(result)
    counted = [
        f"{result.figures[name]:,.0f} {words}"
        for name, words in _COUNTS.items()
        if name in result.figures
    ]
    yield ", ".join(counted) + ".\n"
    parts = _parts(result)
    if parts:
        yield parts


def _whole(result: SetResult) -> str:
    """A row a figure, with the baselines and, where there are any, the thresholds beside it."""
    thresholds = ["threshold", "aim"] if result.thresholds else []
    rows: list[list[str]] = []
    for name in _SHARES:
        if name in result.figures:
            beside = [_cell(figures.get(name)) for figures in result.baselines.values()]
            threshold = result.thresholds.get(name)
            side = "" if threshold is None else "≤ " if threshold.at_most else "≥ "
            wanted = (
                ["", ""]
                if threshold is None
                else [f"{side}{threshold.threshold:g}", f"{threshold.aim:g}"]
            )
            rows.append([name, _cell(result.figures[name]), *beside, *wanted[: len(thresholds)]])
    return _table(["figure", "recall", *result.baselines, *thresholds], rows)


def _parts(result: SetResult) -> str:
    """A row a split and a category, in the order of the run."""
    columns = [name for name in _BY_PART if any(f.startswith(f"{name}.") for f in result.figures)]
    labels = dict.fromkeys(
        figure.removeprefix(f"{name}.")
        for name in columns
        for figure in result.figures
        if figure.startswith(f"{name}.")
    )
    rows = [
        [label, *(_cell(result.figures.get(f"{name}.{label}")) for name in columns)]
        for label in labels
    ]
    return _table(["part", *columns], rows) if rows else ""


def _cell(value: float | None) -> str:
    return "" if value is None else number(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _lasting_notes(result: RecallResult) -> list[str]:
    """The notes that a heading or a table does not say already."""
    told = {
        run_note(result.sets),
        *(note for set_result in result.sets for note in set_result.threshold_notes()),
    }
    return [note for note in result.notes if note not in told]


def _bullets(notes: Sequence[str]) -> list[str]:
    """A note that begins with spaces goes on from the one before it."""
    return [note if note.startswith("  ") else f"- {note}" for note in notes]
