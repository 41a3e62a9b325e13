"""Draws a run of the recall bench: tables for the terminal, and an SVG picture.

It must never show a text of a set unless misses were asked for. In the picture every bar is a
figure of the run, on one scale from 0 to 1; nothing is fetched, and its colours follow the
reader's light or dark page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect_bench.recall.result import GATED, MEASURES, Miss, RecallResult, SetResult
from recollect_bench.recall.thresholds import Threshold
from recollect_bench.svg import svg_document, svg_text

_SHOWN_CHARS = 220


def draw(result: RecallResult) -> None:
    """Everything the run came to."""
    console = Console()
    for set_result in result.sets:
        title = f"recollect bench recall --set {set_result.name} --embedder {set_result.embedder}"
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


# The SVG picture


_WIDTH: Final = 800
_LEFT: Final = 225
_RIGHT: Final = 70
_SCALE: Final = _WIDTH - _LEFT - _RIGHT
_BAR: Final = 13
_GAP: Final = 12
_TOP: Final = 30
_AXIS: Final = 26
MAIN_FIGURES: Final = (
    "all_4k",
    "all_4k_gated",
    "strict_4k",
    "strict_4k_gated",
    "recall_at_10",
    "found",
)
_ERRORS: Final = ("false_recall", "lost")
_WHO: Final = {
    "recall": "recall",
    "openclaw": "OpenClaw’s 0.7/0.3",
    "vectors": "vectors alone",
    "bm25": "BM25 alone",
    "recency": "the newest",
    "random": "by chance",
}
_STYLE: Final = """
text { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2430 }
.title { font-size: 14px; font-weight: 600 }
.faint { fill: #667085 }
.grid { stroke: #d5d9e0; stroke-width: 1 }
.recall { fill: #2f6fe4 } .openclaw { fill: #d98a16 } .vectors { fill: #8a63d2 }
.bm25 { fill: #8c95a4 } .recency { fill: #27a3b4 } .random { fill: #c3c9d3 }
.threshold { stroke: #c0392b; stroke-width: 2 } .aim { stroke: #2fa57b; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #dee2e9 } .faint { fill: #98a2b3 } .grid { stroke: #343a46 }
  .recall { fill: #6ea0ff } .bm25 { fill: #6c7584 } .random { fill: #4a5160 }
  .threshold { stroke: #ff6b5e } .aim { stroke: #4fd1a1 }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """One figure of one who finds."""

    who: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Bars of the same figure, and what must and should be reached."""

    label: str
    bars: tuple[_Bar, ...]
    threshold: float | None = None
    aim: float | None = None

    @property
    def height(self) -> int:
        return len(self.bars) * _BAR + _GAP


def plot(result: RecallResult) -> str:
    """The picture of a run, a panel a set; of several sets only their first figures."""
    body: list[str] = []
    top = 0
    for set_result in result.sets:
        panel, height = _panel(set_result, top, briefly=len(result.sets) > 1)
        body += panel
        top += height
    return svg_document(_WIDTH, top, "recall beside its baselines", _STYLE, body)


def _panel(result: SetResult, top: int, *, briefly: bool) -> tuple[list[str], int]:
    groups = list(_first_groups(result) if briefly else _groups(result))
    height = _TOP + sum(group.height for group in groups) + _AXIS
    bottom = top + height - _AXIS
    drawn = [
        svg_text(12, top + 20, f"{result.name}, {result.embedder}", style="title"),
        *_axis(top + _TOP, bottom),
        *_legend(groups, top + 20),
    ]
    at = top + _TOP
    for group in groups:
        drawn += _drawn(group, at)
        at += group.height
    return drawn, height


def _first_groups(result: SetResult) -> Iterator[_Group]:
    """What has a threshold, and `all_4k`."""
    for name in (*MAIN_FIGURES, *_ERRORS):
        if name in result.figures and (name == "all_4k" or name in result.thresholds):
            yield _group(result, name, name if name in MAIN_FIGURES else f"{name} (less is better)")


def _groups(result: SetResult) -> Iterator[_Group]:
    """The figures of the whole set first, then by part, then the gate's errors."""
    for name in MAIN_FIGURES:
        if name in result.figures:
            yield _group(result, name, name)
    first = next((name for name in MAIN_FIGURES if name in result.figures), "")
    parts = [name for name in result.figures if name.startswith(f"{first}.")]
    for name in parts:
        yield _group(result, name, f"{first}, {name.partition('.')[2]}")
    for name in _ERRORS:
        if name in result.figures:
            yield _group(result, name, f"{name} (less is better)")


def _group(result: SetResult, name: str, label: str) -> _Group:
    bars = [_Bar(who="recall", value=result.figures[name])]
    held = {who: figures[name] for who, figures in result.baselines.items() if name in figures}
    bars += [_Bar(who=who, value=held[who]) for who in _WHO if who in held]
    threshold = result.thresholds.get(name)
    return _Group(
        label=label,
        bars=tuple(bars),
        threshold=None if threshold is None else threshold.threshold,
        aim=None if threshold is None else threshold.aim,
    )


def _axis(top: int, bottom: int) -> Iterator[str]:
    for tenth in range(0, 11, 2):
        x = _x(tenth / 10)
        yield f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
        yield svg_text(x, bottom + 14, f"{tenth / 10:g}", style="faint", anchor="middle")


def _legend(groups: Sequence[_Group], y: int) -> Iterator[str]:
    shown = [who for who in _WHO if any(bar.who == who for g in groups for bar in g.bars)]
    x = _LEFT
    for who in shown:
        yield f'<rect class="{who}" x="{x}" y="{y - 10}" width="10" height="10"/>'
        yield svg_text(x + 14, y - 1, _WHO[who], style="faint")
        x += 30 + 7 * len(_WHO[who])
    for mark in ("threshold", "aim"):
        if any(getattr(group, mark) is not None for group in groups):
            yield f'<line class="{mark}" x1="{x + 4}" y1="{y - 11}" x2="{x + 4}" y2="{y + 1}"/>'
            yield svg_text(x + 10, y - 1, mark, style="faint")
            x += 24 + 7 * len(mark)


def _drawn(group: _Group, top: int) -> Iterator[str]:
    middle = top + len(group.bars) * _BAR / 2 + 4
    yield svg_text(_LEFT - 10, middle, group.label, anchor="end")
    for place, bar in enumerate(group.bars):
        y = top + place * _BAR
        width = max(1.0, bar.value * _SCALE)
        yield (
            f'<rect class="{bar.who}" x="{_LEFT}" y="{y}" width="{width:.1f}" '
            f'height="{_BAR - 2}"><title>{escape(_WHO[bar.who])}: {bar.value:.3f}</title></rect>'
        )
        style = "" if bar.who == "recall" else "faint"
        yield svg_text(_x(bar.value) + 5, y + 10, f"{bar.value:.3f}", style=style)
    bottom = top + len(group.bars) * _BAR
    for mark, value in (("threshold", group.threshold), ("aim", group.aim)):
        if value is not None:
            x = _x(value)
            yield (f'<line class="{mark}" x1="{x:.1f}" y1="{top - 2}" x2="{x:.1f}" y2="{bottom}"/>')


def _x(value: float) -> float:
    return _LEFT + value * _SCALE
