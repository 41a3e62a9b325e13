"""Shows a run of the cost bench: a table in the terminal, and an SVG picture.

Must never show what was said. In the picture every mark is a pooled figure of the run; further
left is cheaper, higher keeps more; a dot is what is named again (recovered), a ring what is told
about (useful). Nothing is fetched, colours follow the reader's light or dark page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from rich.console import Console
from rich.table import Table

from recollect_bench.cost.result import (
    MEASURES,
    OURS,
    STRATEGIES,
    THRESHOLDS,
    CostResult,
    figure_name,
    misses,
)
from recollect_bench.svg import svg_document, svg_text

# The SVG picture


_WIDTH: Final = 860
_PANEL: Final = 270
_HEIGHT: Final = 300
_TOP: Final = 62
_BOTTOM: Final = 44
_LEFT: Final = 38
_MOST_COST: Final = 8.0
_NAMES: Final = {
    OURS: "recollect",
    "plain": "plain compaction",
    "openclaw": "openclaw",
    "gateway": "through the gateway",
}
_STYLE: Final = """
text { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2430 }
.title { font-size: 14px; font-weight: 600 }
.faint { fill: #667085 }
.grid { stroke: #d5d9e0; stroke-width: 1 }
.goal { fill: #2fa57b; fill-opacity: 0.12 }
.recollect { fill: #2f6fe4; stroke: #2f6fe4 } .plain { fill: #8c95a4; stroke: #8c95a4 }
.openclaw { fill: #d98a16; stroke: #d98a16 } .gateway { fill: #2f9e6e; stroke: #2f9e6e }
.ring { fill: none; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #dee2e9 } .faint { fill: #98a2b3 } .grid { stroke: #343a46 }
  .recollect { fill: #6ea0ff; stroke: #6ea0ff } .plain { fill: #6c7584; stroke: #6c7584 }
  .openclaw { fill: #e0a040; stroke: #e0a040 } .gateway { fill: #5bb98c; stroke: #5bb98c }
  .ring { fill: none }
}
"""


def plot(result: CostResult) -> str:
    """The picture: a panel a window, cost across (in doublings), what came back upwards."""
    windows = sorted({replay.window_tokens for replay in result.replays})
    title = "of what left the window: named again (dot), told about (ring), by cost"
    body = [svg_text(12, 20, title, style="title")]
    x = 12
    replayed = {replay.strategy for replay in result.replays}
    for strategy in (name for name in STRATEGIES if name in replayed):
        body.append(f'<circle class="{strategy}" cx="{x + 5}" cy="38" r="5"/>')
        body.append(svg_text(x + 15, 42, _NAMES[strategy], style="faint"))
        x += 40 + 7 * len(_NAMES[strategy])
    body.append(f'<rect class="goal" x="{x}" y="32" width="14" height="12"/>')
    body.append(svg_text(x + 19, 42, "threshold reached", style="faint"))
    for place, window in enumerate(windows):
        body += _Panel(result=result, window=window, left=_LEFT + place * _PANEL).drawn()
    width = max(_WIDTH, _LEFT + _PANEL * len(windows) + 10)
    label = "cost and what is recovered, beside plain compaction and OpenClaw"
    return svg_document(width, _HEIGHT + 12, label, _STYLE, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """One window."""

    result: CostResult
    window: int
    left: int

    def drawn(self) -> Iterator[str]:
        bottom, right = _HEIGHT - _BOTTOM, self.left + _PANEL - 50
        yield from self._goal()
        for tenth in range(0, 11, 2):
            y = _y(tenth / 10)
            yield _line(self.left, y, right, y)
            yield svg_text(self.left - 6, y + 4, f"{tenth / 10:g}", style="faint", anchor="end")
        for cost in (1, 2, 4, 8):
            x = self._x(cost)
            yield _line(x, _TOP, x, bottom)
            yield svg_text(x, bottom + 16, f"{cost}×", style="faint", anchor="middle")
        middle = (self.left + right) / 2
        yield svg_text(middle, bottom + 34, f"{self.window // 1000}k window", anchor="middle")
        for strategy in STRATEGIES:
            yield from self._mark(strategy)

    def _goal(self) -> Iterator[str]:
        cost = THRESHOLDS.get(figure_name("cost", self.window))
        recovered = THRESHOLDS.get(figure_name("recovered", self.window))
        if cost and recovered:
            x, y = self._x(0.8), _y(1.0)
            width, height = self._x(cost.threshold) - x, _y(recovered.threshold) - y
            yield (
                f'<rect class="goal" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}"/>'
            )

    def _mark(self, strategy: str) -> Iterator[str]:
        cost = self.result.value(strategy, "cost", self.window)
        recovered = self.result.value(strategy, "recovered", self.window)
        if math.isnan(cost) or math.isnan(recovered):
            return
        kept = self.result.value(strategy, "retention", self.window)
        x, y = self._x(cost), _y(recovered)
        text = (
            f"{_NAMES[strategy]}: cost {cost:.2f}, recovered {recovered:.2f}, retention {kept:.3f}"
        )
        useful = self.result.value(strategy, "useful", self.window)
        if not math.isnan(useful):
            text += f", useful {useful:.2f}"
            yield f'<circle class="{strategy} ring" cx="{x:.1f}" cy="{_y(useful):.1f}" r="5"/>'
        yield (
            f'<circle class="{strategy}" cx="{x:.1f}" cy="{y:.1f}" r="6">'
            f"<title>{escape(text)}</title></circle>"
        )
        yield svg_text(x + 9, y + 4, f"{cost:.2f}× · {recovered:.2f}", style="faint")

    def _x(self, cost: float) -> float:
        room = _PANEL - 60
        doublings = math.log2(min(max(cost, 0.8), _MOST_COST) / 0.8)
        return self.left + 4 + room * doublings / math.log2(_MOST_COST / 0.8)


def _y(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _BOTTOM - _TOP)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


_LONG_NAMES: Final = {
    OURS: "recollect",
    "plain": "plain compaction",
    "openclaw": 'preset = "openclaw"',
    "gateway": "recollect, through the gateway",
}
_MEANT: Final = {
    "cost": "cost (plain = 1)",
    "useful": "useful: told about, of what left and is relied on",
    "recovered": "recovered: named, of what left",
    "retention": "retention",
}

_NOTHING: Final = {
    "cost": "nothing was replayed",
    "useful": "nothing that a message relies on left the view in this run",
    "recovered": "nothing that is named again left the view in this run",
    "retention": "no message of this run names what was named more than five messages before",
}
"""Why a run has no figure of a measure: mostly because it is too short."""


def draw(result: CostResult) -> None:
    """The figures, pooled first, then by transcript; then what they mean."""
    console = Console()
    windows = sorted({replay.window_tokens for replay in result.replays})
    names = list(dict.fromkeys(replay.transcript for replay in result.replays))
    held = {replay.transcript for replay in result.replays if replay.held_out}
    for measure in MEASURES:
        table = Table(title=_MEANT[measure], title_justify="left", box=None)
        table.add_column("")
        table.add_column("")
        for window in windows:
            table.add_column(f"{window // 1000}k", justify="right")
        for transcript in ("", *names):
            label = transcript or "pooled"
            label += " (held out)" if transcript in held else ""
            for strategy in STRATEGIES:
                values = [result.value(strategy, measure, w, transcript) for w in windows]
                if all(map(math.isnan, values)):
                    continue
                style = "bold" if strategy == OURS and not transcript else None
                table.add_row(label, _LONG_NAMES[strategy], *map(_number, values), style=style)
                label = ""
        if table.row_count:
            console.print(table)
        else:
            said = f"{_MEANT[measure]}: left out, {_NOTHING[measure]}"
            console.print(said, soft_wrap=True, highlight=False)
        console.print()
    for missed in misses(result):
        console.print(f"  threshold missed: {missed}", style="red", highlight=False)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"
