"""What a run of the recall bench came to: figures whole, by split and by category.

Owns the names under which they go into the one flat object of `--json`. A run of one set uses
them bare; of several, each begins with its set. A figure is the mean over the questions it names
and is left out where there are none; every threshold is reported as met or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from recollect_bench.recall.ask import Outcome, StrangerOutcome
from recollect_bench.recall.judge import Verdict
from recollect_bench.recall.sets import Question
from recollect_bench.recall.thresholds import Threshold
from recollect_bench.result import BenchResult

# Turns what became of the questions into flat figures


FIRST_SESSIONS: Final = 5
"""Others publish the right session among the first one and the first five."""
_MEASURES: Final[Mapping[str, Callable[[Verdict], float]]] = {
    "all_4k": lambda verdict: float(verdict.all_in),
    "strict_4k": lambda verdict: float(verdict.strict),
    "recall_at_10": lambda verdict: verdict.recall_at_10,
    "session_at_1": lambda verdict: float(verdict.session_rank == 1),
    "session_at_5": lambda verdict: float((verdict.session_rank or math.inf) <= FIRST_SESSIONS),
}
MEASURES: Final = tuple(_MEASURES)
TITLES: Final = {"longmemeval": "LongMemEval evidence turns"}
"""The set holds no distractors, so it is not the protocol of the benchmark of that name."""
GATED: Final = {"all_4k": "all_4k_gated", "strict_4k": "strict_4k_gated"}
"""What is measured behind the gate too, as a turn has it, and the name of that figure."""


def recall_figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """What recall found asked outright and behind its gate, and what the gate lost."""
    figures: dict[str, float] = {}
    for name, measure in _MEASURES.items():
        figures |= by_part(
            name, [(outcome.question, measure(outcome.verdict)) for outcome in outcomes]
        )
        if name in GATED:
            behind = [(outcome.question, measure(outcome.behind)) for outcome in outcomes]
            figures |= by_part(GATED[name], behind)
    figures |= by_part("lost", [(outcome.question, float(outcome.lost)) for outcome in outcomes])
    return _whole_first(figures)


def verdict_figures(judged: Sequence[tuple[Question, Verdict]]) -> dict[str, float]:
    """The three measures of what was found: whole first, then by split and category."""
    figures: dict[str, float] = {}
    for name, measure in _MEASURES.items():
        figures |= by_part(name, [(question, measure(verdict)) for question, verdict in judged])
    return _whole_first(figures)


def _whole_first(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: figures[name] for name in sorted(figures, key=lambda name: "." in name)}


def stranger_figures(outcomes: Sequence[StrangerOutcome]) -> dict[str, float]:
    """The share of other chats' questions that recalled something."""
    if not outcomes:
        return {}
    figures = {"false_recall": _mean(float(outcome.recalled) for outcome in outcomes)}
    splits = sorted({outcome.split for outcome in outcomes})
    if len(splits) > 1:
        for split in splits:
            share = _mean(float(outcome.recalled) for outcome in outcomes if outcome.split == split)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A question whose gold is not all in the block; for looking at, never for keeping."""

    set_name: str
    memory: str
    category: str
    question: str = field(repr=False)
    answer: str = field(repr=False)
    gold: tuple[tuple[str, int | None, bool], ...] = field(repr=False)
    """Each gold message, its rank, and whether it is in the block."""
    instead: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, set_name: str, outcome: Outcome, texts: Sequence[str]) -> Miss:
        """A miss from what became of the question; `texts` are its gold messages."""
        verdict = outcome.verdict
        return cls(
            set_name=set_name,
            memory=outcome.memory,
            category=outcome.question.category,
            question=outcome.question.text,
            answer=outcome.question.answer,
            gold=tuple(zip(texts, verdict.ranks, verdict.packed, strict=True)),
            instead=outcome.instead,
        )

    def as_json(self) -> dict[str, Any]:
        """The object that `--misses --json` prints."""
        gold = [{"text": text, "rank": rank, "shown": shown} for text, rank, shown in self.gold]
        return {
            "set": self.set_name,
            "memory": self.memory,
            "category": self.category,
            "question": self.question,
            "answer": self.answer,
            "gold": gold,
            "instead": list(self.instead),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """One set, measured."""

    name: str
    embedder: str
    store: str = "sqlite"
    """One store, or two with a comma between them where they were compared."""
    figures: dict[str, float]
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    """The figures of each baseline, by its name."""
    thresholds: dict[str, Threshold] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    misses: tuple[Miss, ...] = field(default=(), repr=False)

    def flat_baselines(self) -> dict[str, float]:
        """What the figures are held against, thresholds and aims among them."""
        flat = {
            f"{baseline}.{name}": value
            for baseline, figures in self.baselines.items()
            for name, value in figures.items()
        }
        for name, threshold in self.thresholds.items():
            flat |= {f"threshold.{name}": threshold.threshold, f"aim.{name}": threshold.aim}
        return flat

    def threshold_notes(self) -> list[str]:
        """For every figure with a threshold: whether it is met, and what of it a turn gets."""
        return [
            f"{self.name} {name} {self.figures[name]:.3f}: "
            f"{threshold_words(threshold, self.figures[name])}{self._gated_words(name)}"
            for name, threshold in self.thresholds.items()
            if name in self.figures
        ]

    def _gated_words(self, name: str) -> str:
        behind = self.figures.get(GATED.get(name, ""))
        return "" if behind is None else f"; behind the gate {behind:.3f}"


def threshold_words(threshold: Threshold, value: float) -> str:
    """Whether a figure meets its threshold and reaches its aim, in words."""
    side = "at most" if threshold.at_most else "at least"
    met = "met" if threshold.met(value) else "NOT MET"
    aimed = "reached" if threshold.aimed(value) else "not reached"
    return f"threshold {side} {threshold.threshold:g} {met}, aim {threshold.aim:g} {aimed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult(BenchResult):
    """All sets of a run."""

    sets: tuple[SetResult, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """As every bench's object, and what was run; the misses that were asked for come too."""
        # Not `super()`: a slotted dataclass is made anew, and its methods keep the first one.
        told = BenchResult.as_json(self)
        if self.sets:
            first = self.sets[0]
            names = [result.name for result in self.sets]
            told["run"] = {"sets": names, "embedder": first.embedder, "store": first.store}
        misses = [miss.as_json() for result in self.sets for miss in result.misses]
        return told | {"misses": misses} if misses else told


def run_note(sets: Sequence[SetResult]) -> str:
    """What was run, in words."""
    first, names = sets[0], ", ".join(result.name for result in sets)
    stores = first.store.replace(",", " beside ")
    store = stores if "," in first.store else f"store {stores}"
    return f"set {names}; embedder {first.embedder}; {store}"


def joined(sets: Sequence[SetResult], *, notes: Sequence[str]) -> RecallResult:
    """The sets of a run as one result."""
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    lines = [run_note(sets), *notes]
    for result in sets:
        prefix = f"{result.name}." if len(sets) > 1 else ""
        figures |= {f"{prefix}{name}": value for name, value in result.figures.items()}
        baselines |= {f"{prefix}{name}": value for name, value in result.flat_baselines().items()}
        lines += [*result.notes, *result.threshold_notes()]
    return RecallResult(
        bench="recall",
        figures=figures,
        baselines=baselines,
        notes=tuple(dict.fromkeys(lines)),
        sets=tuple(sets),
    )
