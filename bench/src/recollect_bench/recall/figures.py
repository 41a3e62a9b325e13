"""Turns what became of the questions into flat figures: whole, by split and by category.

Owns the names of the figures. Pure. Always holds: a figure is the mean over the questions it
names, and one that has no question is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from recollect_bench.recall.ask import Outcome, StrangerOutcome
from recollect_bench.recall.judge import Verdict
from recollect_bench.recall.sets import Question

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
