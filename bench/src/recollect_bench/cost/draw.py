"""Shows a run of the cost bench as a table in the terminal: each window, each who keeps what.

Owns the table. Must never show what was said.
"""

from __future__ import annotations

import math
from typing import Final

from rich.console import Console
from rich.table import Table

from recollect_bench.cost.result import MEASURES, OURS, STRATEGIES, CostResult, misses

_WHO: Final = {OURS: "recollect", "plain": "plain compaction", "openclaw": 'preset = "openclaw"'}
_MEANT: Final = {
    "cost": "cost (plain = 1)",
    "useful": "useful: told about, of what left and is relied on",
    "recovered": "recovered: named, of what left",
    "retention": "retention",
}


def draw(result: CostResult) -> None:
    """The figures, pooled first, then by transcript; then what they mean."""
    console = Console()
    windows = sorted({one.window_tokens for one in result.replays})
    names = list(dict.fromkeys(one.transcript for one in result.replays))
    held = {one.transcript for one in result.replays if one.held_out}
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
                table.add_row(label, _WHO[strategy], *map(_number, values), style=style)
                label = ""
        console.print(table)
        console.print()
    for missed in misses(result):
        console.print(f"  floor missed: {missed}", style="red", highlight=False)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"
