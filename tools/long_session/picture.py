"""Draws how sessions grow, before a change and after it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from recollect_bench.svg import svg_document, svg_text

_WIDTH, _HEIGHT = 760, 300
_TOP, _BOTTOM, _GAP, _LEFT, _RIGHT = 48, 40, 64, 52, 16
_STYLE: Final = """
text { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2430 }
.title { font-size: 14px; font-weight: 600 } .faint { fill: #667085 }
.grid { stroke: #d5d9e0 } .line { fill: none; stroke-width: 2 }
.before { stroke: #c0392b } .after { stroke: #2f6fe4 } .wide { stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #dee2e9 } .faint { fill: #98a2b3 } .grid { stroke: #343a46 }
  .before { stroke: #e57368 } .after { stroke: #6ea0ff }
}
"""
Points = Sequence[tuple[float, float]]


def growth_picture(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The data folder, and the CPU of `prepare`, over the turns of each session."""
    body: list[str] = []
    panels = (
        ("data folder, times the archived text", (1, 10, 100), _folder),
        ("CPU of prepare, median, ms", (10, 100, 1_000), _cpu),
    )
    width = (_WIDTH - _GAP - _LEFT - _RIGHT) / 2
    turns = max(result["turns"] for key, result in after.items() if key != "chat")
    for number, (title, marks, points_of) in enumerate(panels):
        left = _LEFT + number * (width + _GAP)
        body += _frame(title, left, width, marks, turns)
        for style, results in (("before", before), ("after", after)):
            for window, result in results.items():
                if window == "chat":
                    continue
                wide = " wide" if int(window) > 32_000 else ""
                path = _path(points_of(result), left, width, marks, turns)
                body.append(f'<path class="line {style}{wide}" d="{path}"/>')
    body.append(svg_text(_LEFT, 44, "red: before, blue: after; dashed: 64k window", style="faint"))
    label = "Growth of long sessions before and after"
    return svg_document(_WIDTH, _HEIGHT, label, _STYLE, body)


def _folder(result: Mapping[str, Any]) -> Points:
    return [
        (sample["turn"], sample["folder_bytes"] / sample["archived_bytes"])
        for sample in result["samples"]
    ]


def _cpu(result: Mapping[str, Any]) -> Points:
    turns = [sample["turn"] for sample in result["samples"]]
    return list(zip(turns, result["cpu_p50_ms"], strict=False))


def _y(value: float, marks: Sequence[int]) -> float:
    """Upwards in tenfolds, from the first mark to three times the last."""
    span = math.log(3 * marks[-1] / marks[0])
    at = math.log(max(marks[0], value) / marks[0]) / span
    return _HEIGHT - _BOTTOM - min(1.0, at) * (_HEIGHT - _TOP - _BOTTOM)


def _frame(title: str, left: float, width: float, marks: Sequence[int], turns: int) -> list[str]:
    body = [svg_text(left, 22, title, style="title")]
    for mark in marks:
        y = _y(mark, marks)
        body.append(f'<path class="grid" d="M{left:.0f} {y:.1f}h{width:.0f}"/>')
        body.append(svg_text(left - 6, y + 4, f"{mark:,}", style="faint", anchor="end"))
    for share in (0.5, 1.0):
        text = f"{int(share * turns):,}" + (" turns" if share == 1.0 else "")
        x = left + share * width
        body.append(svg_text(x, _HEIGHT - 16, text, style="faint", anchor="end"))
    return body


def _path(points: Points, left: float, width: float, marks: Sequence[int], turns: int) -> str:
    placed = [(left + width * turn / turns, _y(value, marks)) for turn, value in points]
    return " ".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(placed))
