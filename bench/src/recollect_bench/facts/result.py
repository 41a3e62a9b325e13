"""What a run of the facts bench comes to: tables for the terminal, single slips where asked for.

Must never print a word of a case unless misses were asked for. What `--json` prints is what every
bench prints (`BenchResult`), and no slip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect_bench.result import BenchResult, figure_text


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


# Draws a run of the facts bench for the terminal


_HALVES: Final = ("held_out", "tune")
_BY_SESSION: Final = "session_scope"


def draw(result: FactsResult) -> None:
    """Everything the run came to."""
    console = Console()
    halves = [one for one in _HALVES if f"{one}.found" in result.figures]
    titles = ("rules alone", halves), ("with the model", [f"model.{halve}" for halve in halves])
    for title, columns in titles:
        held = [column for column in columns if f"{column}.found" in result.figures]
        if held:
            beside = [
                f"keywords.{one}" for one in held if f"keywords.{one}.found" in result.baselines
            ]
            console.print(_table(title, [*held, *beside], {**result.figures, **result.baselines}))
    for title, name in (("among noise", "noise"), ("chains of corrections", "chains")):
        columns = [f"{name}.{_BY_SESSION}", name]
        if any(figure.startswith(f"{name}.") for figure in result.figures):
            console.print(_table(title, columns, result.figures))
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    for slip in result.slips:
        kind = "missed " if slip.missed else "made up"
        console.print(Text(f"{kind} {slip.case} [{slip.type}] {slip.said}"), soft_wrap=True)


def _table(title: str, columns: Sequence[str], figures: Mapping[str, float]) -> Table:
    table = Table(title=f"recollect bench facts: {title}", title_justify="left", box=None)
    table.add_column("figure")
    for column in columns:
        table.add_column(column, justify="right")
    names = dict.fromkeys(
        figure.removeprefix(f"{column}.")
        for column in columns
        for figure in figures
        if figure.startswith(f"{column}.") and (_BY_SESSION in column) == (_BY_SESSION in figure)
    )
    for name in names:
        values = [figures.get(f"{column}.{name}") for column in columns]
        style = "" if "." in name else "bold"
        table.add_row(
            name, *("" if one is None else figure_text(one) for one in values), style=style
        )
    return table
