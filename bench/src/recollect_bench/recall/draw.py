"""Shows a run of the recall bench in the terminal.

It must never show a text of a set unless misses were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect_bench.recall.result import GATED, MEASURES, TITLES, Miss, RecallResult, SetResult
from recollect_bench.recall.thresholds import Threshold

_SHOWN_CHARS = 220


def draw(result: RecallResult) -> None:
    """Everything the run came to."""
    console = Console()
    for set_result in result.sets:
        title = f"recollect bench recall --set {set_result.name} --embedder {set_result.embedder}"
        if set_result.name in TITLES:
            title += f" ({TITLES[set_result.name]})"
        console.print(Text(title, style="italic"), soft_wrap=True)
        console.print(_table(set_result))
        for table in _parts(set_result):
            console.print(table)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    for set_result in result.sets:
        for miss in set_result.misses:
            _draw_miss(console, miss)


def _table(result: SetResult) -> Table:
    """A row a figure: recall, what it is held against, its threshold, what the gate takes of it."""
    table = _headed(None, result)
    outright = {behind: name for name, behind in GATED.items()}
    if result.thresholds or any(name in result.figures for name in outright):
        table.add_column("threshold, gate" if result.thresholds else "gate", no_wrap=True)
    for name, value in result.figures.items():
        if "." not in name:
            words = Text("")
            if name in outright:
                words = Text(_gate_words(outright[name], result.figures[outright[name]], value))
            elif name in result.thresholds:
                words = _short_threshold(result.thresholds[name], value)
            table.add_row(
                Text(name, style="bold"),
                Text(number(value), style="bold"),
                *_beside(result, name),
                *[words][: len(table.columns) - 2 - len(result.baselines)],
            )
    return table


def _gate_words(name: str, outright: float, behind: float) -> str:
    """How a figure behind the gate differs from the same without it."""
    gap = outright - behind
    if round(gap, 3) == 0:
        return f"as {name}"
    return f"{abs(gap):.3f} {'below' if gap > 0 else 'ABOVE'} {name}"


def _short_threshold(threshold: Threshold, value: float) -> Text:
    """Whether a threshold is met, in the width of a column; a note says it in full."""
    side = "≤" if threshold.at_most else "≥"
    if not threshold.met(value):
        return Text(f"{side}{threshold.threshold:g} NOT MET", style="bold red")
    if threshold.aimed(value):
        return Text(f"aim {side}{threshold.aim:g} reached", style="green")
    return Text(f"{side}{threshold.threshold:g} met, aim {threshold.aim:g}", style="green")


def _parts(result: SetResult) -> Iterator[Table]:
    """A table for each figure that is told by split and category."""
    for name in (*MEASURES, "found", "lost", "false_recall"):
        parts = [figure for figure in result.figures if figure.startswith(f"{name}.")]
        if parts:
            gated = GATED.get(name) if GATED.get(name) in result.figures else None
            table = _headed(name, result, gated=gated is not None)
            for figure in parts:
                label = figure.removeprefix(f"{name}.")
                behind = [] if gated is None else [number(result.figures[f"{gated}.{label}"])]
                table.add_row(
                    label, number(result.figures[figure]), *behind, *_beside(result, figure)
                )
            yield table


def _headed(title: str | None, result: SetResult, *, gated: bool = False) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("figure", min_width=26 if gated else 15)
    table.add_column("recall", justify="right")
    if gated:
        table.add_column("gated", justify="right")
    for baseline in result.baselines:
        table.add_column(baseline, justify="right", style="dim")
    return table


def _beside(result: SetResult, name: str) -> list[str]:
    held = [figures.get(name) for figures in result.baselines.values()]
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
