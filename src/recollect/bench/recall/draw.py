"""Draws a run of the recall bench for the terminal: figures beside baselines, floors, misses.

Owns the tables. It must never print a text of a set unless misses were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect.bench.recall.figures import MEASURES
from recollect.bench.recall.result import Miss, RecallResult, SetResult, floor_words

_SHOWN_CHARS = 220


def draw(result: RecallResult) -> None:
    """Everything the run came to."""
    console = Console()
    for one in result.sets:
        console.print(_table(one))
        for table in _parts(one):
            console.print(table)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    for one in result.sets:
        for miss in one.misses:
            _draw_miss(console, miss)


def _table(one: SetResult) -> Table:
    """A row a figure: recall, what it is held against, and whether its floor is met."""
    table = _headed(f"recollect bench recall --set {one.name} --embedder {one.embedder}", one)
    table.add_column("floor")
    for name, value in one.figures.items():
        if "." not in name:
            floor = one.floors.get(name)
            words = "" if floor is None else floor_words(floor, value)
            style = "" if floor is None else "green" if floor.met(value) else "bold red"
            table.add_row(
                Text(name, style="bold"),
                Text(_number(value), style="bold"),
                *_beside(one, name),
                Text(words, style=style),
            )
    return table


def _parts(one: SetResult) -> Iterator[Table]:
    """A table for each figure that is told by split and category."""
    for name in (*MEASURES, "found", "lost", "false_recall"):
        parts = [figure for figure in one.figures if figure.startswith(f"{name}.")]
        if parts:
            table = _headed(name, one)
            for figure in parts:
                label = figure.removeprefix(f"{name}.")
                table.add_row(label, _number(one.figures[figure]), *_beside(one, figure))
            yield table


def _headed(title: str, one: SetResult) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("figure", min_width=26)
    table.add_column("recall", justify="right")
    for baseline in one.baselines:
        table.add_column(baseline, justify="right", style="dim")
    return table


def _beside(one: SetResult, name: str) -> list[str]:
    held = [figures.get(name) for figures in one.baselines.values()]
    return ["" if value is None else _number(value) for value in held]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value > 1 else f"{value:.3f}" if value >= 0.001 else f"{value:.3g}"


def _draw_miss(console: Console, miss: Miss) -> None:
    def say(words: str, style: str = "") -> None:
        console.print(Text(words, style=style), soft_wrap=True)

    say("")
    say(f"{miss.set_name} {miss.memory} {miss.category}: {_short(miss.question)}", "bold")
    if miss.answer:
        say(f"  answer: {_short(miss.answer)}")
    for text, rank, shown in miss.gold:
        where = "below rank 50" if rank is None else f"rank {rank}"
        say(f"  {'shown ' if shown else 'MISSED'} {where}: {_short(text)}", "" if shown else "red")
    for text in miss.instead:
        say(f"  instead: {_short(text)}", "dim")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…"
