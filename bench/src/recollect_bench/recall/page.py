"""Writes runs of the recall bench as sections of a page of figures, each with a heading of its own.

Owns how a run reads as Markdown, and how it is read back from what `--json` printed. It must never
hold a text of a set: misses are left out. Always holds: a figure that a run did not measure has an
empty cell, never a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from recollect_bench.recall.ask import Outcome, StrangerOutcome
from recollect_bench.recall.draw import number
from recollect_bench.recall.floors import floors_of
from recollect_bench.recall.judge import Verdict
from recollect_bench.recall.result import RecallResult, SetResult, run_note
from recollect_bench.recall.sets import Question

# Turns what became of the questions into flat figures: whole, by split and by category.
#
# Owns the names of the figures. Pure. Always holds: a figure is the mean over the questions it
# names, and one that has no question is left out.


_MEASURES: Final[Mapping[str, Callable[[Verdict], float]]] = {
    "all_4k": lambda verdict: float(verdict.all_in),
    "strict_4k": lambda verdict: float(verdict.strict),
    "recall_at_10": lambda verdict: verdict.recall_at_10,
}
MEASURES: Final = tuple(_MEASURES)
GATED: Final = {"all_4k": "all_4k_gated", "strict_4k": "strict_4k_gated"}
"""What is measured behind the gate too, as a turn has it, and the name of that figure."""


def recall_figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """What recall found asked outright and behind its gate, and what the gate lost."""
    figures: dict[str, float] = {}
    for name, measure in _MEASURES.items():
        figures |= by_part(name, [(one.question, measure(one.verdict)) for one in outcomes])
        if name in GATED:
            behind = [(one.question, measure(one.behind)) for one in outcomes]
            figures |= by_part(GATED[name], behind)
    figures |= by_part("lost", [(one.question, float(one.lost)) for one in outcomes])
    return _whole_first(figures)


def verdict_figures(judged: Sequence[tuple[Question, Verdict]]) -> dict[str, float]:
    """The three measures of what was found: whole first, then by split and category."""
    figures: dict[str, float] = {}
    for name, measure in _MEASURES.items():
        figures |= by_part(name, [(question, measure(found)) for question, found in judged])
    return _whole_first(figures)


def _whole_first(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: figures[name] for name in sorted(figures, key=lambda name: "." in name)}


def stranger_figures(outcomes: Sequence[StrangerOutcome]) -> dict[str, float]:
    """The share of other chats' questions that recalled something."""
    if not outcomes:
        return {}
    figures = {"false_recall": _mean(float(one.recalled) for one in outcomes)}
    splits = sorted({one.split for one in outcomes})
    if len(splits) > 1:
        for split in splits:
            share = _mean(float(one.recalled) for one in outcomes if one.split == split)
            figures[f"false_recall.{split}"] = share
    return figures


def by_part(name: str, values: Sequence[tuple[Question, float]]) -> dict[str, float]:
    """A figure over all of these questions, then over each split and category of them."""
    if not values:
        return {}
    figures = {name: _mean(value for _, value in values)}
    for part in (_split, _category):
        named = sorted({part(question) for question, _ in values})
        if len(named) > 1:
            for one in named:
                held = [value for question, value in values if part(question) == one]
                figures[f"{name}.{one}"] = _mean(held)
    return figures


def _split(question: Question) -> str:
    return question.split


def _category(question: Question) -> str:
    return question.category


def _mean(values: Iterable[float]) -> float:
    return round(fmean(values), 4)


_SHARES: Final = (
    "all_4k",
    "all_4k_gated",
    "strict_4k",
    "strict_4k_gated",
    "recall_at_10",
    "found",
    "lost",
    "false_recall",
    "same_top_50",
    "worst_score_difference",
)
_BY_PART: Final = (
    "all_4k",
    "all_4k_gated",
    "strict_4k",
    "strict_4k_gated",
    "recall_at_10",
    "found",
    "lost",
)
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
            if who not in ("floor", "aim"):
                baselines.setdefault(who, {})[measure] = value
        sets.append(
            SetResult(
                name=name,
                embedder=run["embedder"],
                store=run["store"],
                figures=_under(prefix, held["figures"]),
                baselines=baselines,
                floors={
                    figure: floor
                    for figure, floor in floors_of(name, run["embedder"]).items()
                    if f"floor.{figure}" in beside
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
    written = [part for result in results for one in result.sets for part in _section(one)]
    notes = list(dict.fromkeys(note for result in results for note in _lasting_notes(result)))
    return [*written, "## What the figures of recall mean\n", "\n".join(_bullets(notes)) + "\n"]


def _section(one: SetResult) -> Iterable[str]:
    stores = "--compare" if "," in one.store else "--store"
    yield f"## Recall: {one.name}, {one.embedder}, {one.store.replace(',', ' beside ')}\n"
    yield (
        f"`recollect bench recall --set {one.name} --embedder {one.embedder} {stores} {one.store}"
        + (" --paths …`\n" if one.name == "own" else "`\n")
    )
    yield _whole(one)
    counted = [
        f"{one.figures[name]:,.0f} {words}"
        for name, words in _COUNTS.items()
        if name in one.figures
    ]
    yield ", ".join(counted) + ".\n"
    parts = _parts(one)
    if parts:
        yield parts


def _whole(one: SetResult) -> str:
    """A row a figure, with the baselines and, where there are any, the floors beside it."""
    floors = ["floor", "aim"] if one.floors else []
    rows: list[list[str]] = []
    for name in _SHARES:
        if name in one.figures:
            beside = [_cell(figures.get(name)) for figures in one.baselines.values()]
            floor = one.floors.get(name)
            side = "" if floor is None else "≤ " if floor.at_most else "≥ "
            wanted = ["", ""] if floor is None else [f"{side}{floor.floor:g}", f"{floor.aim:g}"]
            rows.append([name, _cell(one.figures[name]), *beside, *wanted[: len(floors)]])
    return _table(["figure", "recall", *one.baselines, *floors], rows)


def _parts(one: SetResult) -> str:
    """A row a split and a category, in the order of the run."""
    columns = [name for name in _BY_PART if any(f.startswith(f"{name}.") for f in one.figures)]
    labels = dict.fromkeys(
        figure.removeprefix(f"{name}.")
        for name in columns
        for figure in one.figures
        if figure.startswith(f"{name}.")
    )
    rows = [
        [label, *(_cell(one.figures.get(f"{name}.{label}")) for name in columns)]
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
    told = {run_note(result.sets), *(note for one in result.sets for note in one.floor_notes())}
    return [note for note in result.notes if note not in told]


def _bullets(notes: Sequence[str]) -> list[str]:
    """A note that begins with spaces goes on from the one before it."""
    return [note if note.startswith("  ") else f"- {note}" for note in notes]
