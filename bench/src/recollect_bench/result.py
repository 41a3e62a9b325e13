"""What every bench returns, and how it is written as JSON (docs/design.md, "Benches are commands").

Figures are flat names to numbers; shares are fractions between 0 and 1; times are ratios
against work done in the same run. A bench never types a figure in by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import recollect


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """One run of one bench: its figures, what they are held against, and remarks."""

    bench: str
    figures: dict[str, float]
    baselines: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    version: str = recollect.__version__
    failures: tuple[str, ...] = ()
    """Parts that failed; their figures are missing."""

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        ordered = ["bench", "version", "figures", "baselines", "notes"]
        ordered += ["failures"] if self.failures else []
        fields = asdict(self)
        return {name: fields[name] for name in ordered}


@dataclass(slots=True)
class Parts:
    """Runs the parts of a bench. If a part fails, the figures of the others are kept."""

    failures: list[str] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Note a failure of the block, and continue after it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no error is worth minutes of other figures
            self.failures.append(f"{name}: {type(error).__name__}: {error}")


def figure_text(value: float) -> str:
    """A figure as tables show it: large whole numbers with commas, others with four digits."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 10 else f"{value:.4g}"
