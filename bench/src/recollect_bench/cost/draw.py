"""Shows a run of the cost bench as tables in the terminal. Must never show message content."""

from __future__ import annotations

import math
from typing import Final

from rich.console import Console
from rich.table import Table

from recollect_bench.cost.result import MEASURES, OURS, STRATEGIES, CostResult, misses

_NAMES: Final = {
    OURS: "recollect",
    "plain": "plain compaction",
    "openclaw": 'preset = "openclaw"',
    "gateway": "recollect, through the gateway",
}
_MEANT: Final = {
    "cost": "cost (plain = 1)",
    "useful": "useful: share of relied-on statements",
    "recovered": "recovered: share of identifiers",
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
                table.add_row(label, _NAMES[strategy], *map(_number, values), style=style)
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
