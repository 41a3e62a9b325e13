"""What a run of the facts bench comes to, beside its figures: single slips, where asked for.

Always holds: what `--json` prints is what every bench prints (`BenchResult`), and no slip.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect_bench.result import BenchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A fact that was missed, or one that nobody stated."""

    case: str
    missed: bool
    type: str
    said: str = field(repr=False)
    """The keys of what was missed, or the words of what was made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsResult(BenchResult):
    """One run."""

    slips: tuple[Slip, ...] = field(default=(), repr=False)
