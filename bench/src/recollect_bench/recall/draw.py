"""Draws a run of the recall bench for the terminal: figures beside baselines, floors, misses.

Owns the tables. It must never print a text of a set unless misses were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect_bench.recall.fact_page import draw_facts, is_of_facts
from recollect_bench.recall.figures import GATED, MEASURES
from recollect_bench.recall.floors import Floor
from recollect_bench.recall.result import Miss, RecallResult, SetResult

_SHOWN_CHARS = 220


def draw(result: RecallResult) -> None:
    """Everything the run came to."""
    console = Console()
    for one in result.sets:
        if is_of_facts(one.figures):
            draw_facts(one.name, one.figures)
            continue
        title = f"recollect bench recall --set {one.name} --embedder {one.embedder}"
        console.print(Text(title, style="italic"), soft_wrap=True)
        console.print(_table(one))
        for table in _parts(one):
            console.print(table)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    for one in result.sets:
        for miss in one.misses:
            _draw_miss(console, miss)


def _table(one: SetResult) -> Table:
    """A row a figure: recall, what it is held against, its floor, what the gate takes of it."""
    table = _headed(None, one)
    outright = {behind: name for name, behind in GATED.items()}
    if one.floors or any(name in one.figures for name in outright):
        table.add_column("floor, gate" if one.floors else "gate", no_wrap=True)
    for name, value in one.figures.items():
        if "." not in name:
            words = Text("")
            if name in outright:
                words = Text(_gate_words(outright[name], one.figures[outright[name]], value))
            elif name in one.floors:
                words = _short_floor(one.floors[name], value)
            table.add_row(
                Text(name, style="bold"),
                Text(number(value), style="bold"),
                *_beside(one, name),
                *[words][: len(table.columns) - 2 - len(one.baselines)],
            )
    return table


def _gate_words(name: str, outright: float, behind: float) -> str:
    """How a figure behind the gate differs from the same without it."""
    gap = outright - behind
    if round(gap, 3) == 0:
        return f"as {name}"
    return f"{abs(gap):.3f} {'below' if gap > 0 else 'ABOVE'} {name}"


def _short_floor(floor: Floor, value: float) -> Text:
    """Whether a floor is met, in the width of a column; a note says it in full."""
    side = "≤" if floor.at_most else "≥"
    if not floor.met(value):
        return Text(f"{side}{floor.floor:g} NOT MET", style="bold red")
    if floor.aimed(value):
        return Text(f"aim {side}{floor.aim:g} reached", style="green")
    return Text(f"{side}{floor.floor:g} met, aim {floor.aim:g}", style="green")


def _parts(one: SetResult) -> Iterator[Table]:
    """A table for each figure that is told by split and category."""
    for name in (*MEASURES, "found", "lost", "false_recall"):
        parts = [figure for figure in one.figures if figure.startswith(f"{name}.")]
        if parts:
            gated = GATED.get(name) if GATED.get(name) in one.figures else None
            table = _headed(name, one, gated=gated is not None)
            for figure in parts:
                label = figure.removeprefix(f"{name}.")
                behind = [] if gated is None else [number(one.figures[f"{gated}.{label}"])]
                table.add_row(label, number(one.figures[figure]), *behind, *_beside(one, figure))
            yield table


def _headed(title: str | None, one: SetResult, *, gated: bool = False) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("figure", min_width=26 if gated else 15)
    table.add_column("recall", justify="right")
    if gated:
        table.add_column("gated", justify="right")
    for baseline in one.baselines:
        table.add_column(baseline, justify="right", style="dim")
    return table


def _beside(one: SetResult, name: str) -> list[str]:
    held = [figures.get(name) for figures in one.baselines.values()]
    return ["" if value is None else number(value) for value in held]


def number(value: float) -> str:
    """A count as a whole number, a share with three places, what is tiny as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if value == 0 or value >= 0.001 else f"{value:.3g}"


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
