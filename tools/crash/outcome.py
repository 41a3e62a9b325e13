"""What a scenario found, as a row of the table and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from tools.crash.verify import Verdict

Tell: TypeAlias = Callable[[str], None]
"""Says how far a scenario has come."""

SHOWN_PROBLEMS = 8


def silent(_: str) -> None:
    """Tell nobody."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One scenario on one store."""

    scenario: str
    store: str
    kills: int = 0
    acknowledged: int = 0
    """Messages, or effects of jobs."""
    lost: int = 0
    duplicated: int = 0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing lost, nothing twice, nothing wrong."""
        return not (self.lost or self.duplicated or self.problems)

    def take(self, verdict: Verdict) -> None:
        """Add what a comparison with the store found."""
        self.acknowledged += verdict.acknowledged
        self.lost += verdict.lost
        self.duplicated += verdict.duplicated
        self.problems += verdict.problems
        for name in ("strangers", "half_batches", "out_of_order"):
            if count := getattr(verdict, name):
                self.problems.append(f"{count} {name.replace('_', ' ')}")

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "clean": self.clean}


HEADINGS = ("scenario", "store", "kills", "acked", "lost", "twice", "problems", "seconds")


def table(outcomes: Sequence[Outcome]) -> str:
    """All outcomes, a line each, and what was wrong below."""
    rows = [HEADINGS, *(_row(outcome) for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        figures = outcomes[number - 1].figures if number else {}
        told = ", ".join(f"{name} {value:g}" for name, value in figures.items())
        lines.append("  ".join([*cells, told]).rstrip())
    for outcome in outcomes:
        lines += [
            f"{outcome.scenario} on {outcome.store}: {problem}"
            for problem in outcome.problems[:SHOWN_PROBLEMS]
        ]
    return "\n".join(lines)


def _row(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.scenario,
        outcome.store,
        str(outcome.kills),
        str(outcome.acknowledged),
        str(outcome.lost),
        str(outcome.duplicated),
        str(len(outcome.problems)),
        f"{outcome.seconds:.1f}",
    )
