"""What a run of the recall bench came to: figures a set, beside baselines and floors.

Owns the names under which they go into the one flat object of `--json`. A run of one set uses
them bare; of several, each begins with its set. Always holds: a floor is told as met or not for
every figure that has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect_bench.recall.ask import Outcome
from recollect_bench.recall.floors import Floor
from recollect_bench.recall.page import GATED
from recollect_bench.result import BenchResult


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
    floors: dict[str, Floor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    told: Mapping[str, str | int] = field(default_factory=dict)
    """What else was chosen for the run, for the object of `--json`."""
    misses: tuple[Miss, ...] = field(default=(), repr=False)

    def flat_baselines(self) -> dict[str, float]:
        """What the figures are held against, floors and aims among them."""
        flat = {
            f"{baseline}.{name}": value
            for baseline, figures in self.baselines.items()
            for name, value in figures.items()
        }
        for name, floor in self.floors.items():
            flat |= {f"floor.{name}": floor.floor, f"aim.{name}": floor.aim}
        return flat

    def floor_notes(self) -> list[str]:
        """For every figure with a floor: whether it is met, and what of it a turn gets."""
        return [
            f"{self.name} {name} {self.figures[name]:.3f}: "
            f"{floor_words(floor, self.figures[name])}{self._gated_words(name)}"
            for name, floor in self.floors.items()
            if name in self.figures
        ]

    def _gated_words(self, name: str) -> str:
        behind = self.figures.get(GATED.get(name, ""))
        return "" if behind is None else f"; behind the gate {behind:.3f}"


def floor_words(floor: Floor, value: float) -> str:
    """Whether a figure meets its floor and reaches its aim, in words."""
    side = "at most" if floor.at_most else "at least"
    met = "met" if floor.met(value) else "NOT MET"
    aimed = "reached" if floor.aimed(value) else "not reached"
    return f"floor {side} {floor.floor:g} {met}, aim {floor.aim:g} {aimed}"


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
            names = [one.name for one in self.sets]
            run = {"sets": names, "embedder": first.embedder, "store": first.store}
            told["run"] = run | dict(first.told)
        misses = [miss.as_json() for one in self.sets for miss in one.misses]
        return told | {"misses": misses} if misses else told


def run_note(sets: Sequence[SetResult]) -> str:
    """What was run, in words."""
    first, names = sets[0], ", ".join(one.name for one in sets)
    stores = first.store.replace(",", " beside ")
    store = stores if "," in first.store else f"store {stores}"
    return f"set {names}; embedder {first.embedder}; {store}"


def joined(sets: Sequence[SetResult], *, notes: Sequence[str]) -> RecallResult:
    """The sets of a run as one result."""
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    told = [run_note(sets), *notes]
    for one in sets:
        prefix = f"{one.name}." if len(sets) > 1 else ""
        figures |= {f"{prefix}{name}": value for name, value in one.figures.items()}
        baselines |= {f"{prefix}{name}": value for name, value in one.flat_baselines().items()}
        told += [*one.notes, *one.floor_notes()]
    return RecallResult(
        bench="recall",
        figures=figures,
        baselines=baselines,
        notes=tuple(dict.fromkeys(told)),
        sets=tuple(sets),
    )
