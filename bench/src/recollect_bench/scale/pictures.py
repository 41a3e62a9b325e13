"""The pictures of the capacity page: latency against rate, and against the number of spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from recollect_bench.svg import svg_document, svg_text

HELD_MS: Final = 250.0
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 300, 56, 56, 44
_LEAST_MS: Final = 1.0
_MOST_MS: Final = 10_000.0
_STYLE: Final = """
text { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2430 }
.title { font-size: 14px; font-weight: 600 }
.faint { fill: #667085 }
.grid { stroke: #d5d9e0; stroke-width: 1 } .limit { stroke: #c0392b; stroke-dasharray: 5 4 }
.one { stroke: #2f6fe4; fill: #2f6fe4 } .two { stroke: #d98a16; fill: #d98a16 }
.line { fill: none; stroke-width: 2 } .half { stroke-dasharray: 2 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #dee2e9 } .faint { fill: #98a2b3 } .grid { stroke: #343a46 }
  .one { stroke: #6ea0ff; fill: #6ea0ff } .two { stroke: #e0a040; fill: #e0a040 }
  .line { fill: none }
}
"""


def _y(milliseconds: float) -> float:
    """Upwards in tenfolds."""
    span = math.log(_MOST_MS / _LEAST_MS)
    at = math.log(min(_MOST_MS, max(_LEAST_MS, milliseconds)) / _LEAST_MS) / span
    return _HEIGHT - _BOTTOM - at * (_HEIGHT - _TOP - _BOTTOM)


def _frame(title: str, below: str) -> list[str]:
    body = [svg_text(12, 20, title, style="title")]
    for tenfold in (1, 10, 100, 1_000, 10_000):
        y = _y(tenfold)
        body.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - 12}"/>')
        body.append(svg_text(_LEFT - 6, y + 4, f"{tenfold:,} ms", style="faint", anchor="end"))
    body.append(svg_text((_LEFT + _WIDTH) / 2, _HEIGHT - 8, below, style="faint", anchor="middle"))
    return body


def _curve(points: Sequence[tuple[float, float]], style: str) -> list[str]:
    if not points:
        return []
    path = " ".join(f"{'ML'[at > 0]}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(points))
    dots = [f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
    return [f'<path class="{style} line" d="{path}"/>', *dots]


def rate_points(figures: Mapping[str, float], start: str) -> list[tuple[int, float]]:
    """Rate and milliseconds, of figures that begin so."""
    return sorted(
        (int(name.removeprefix(start)), value)
        for name, value in figures.items()
        if name.startswith(start)
    )


def rate_picture(figures: Mapping[str, float]) -> str:
    """p50 and p99 over requests a second, of the mix and of prepare alone."""
    body = _frame("latency against rate: p99 (line) and p50 (dotted)", "requests a second")
    body.append(f'<path class="limit" d="M{_LEFT} {_y(HELD_MS):.1f}H{_WIDTH - 12}"/>')
    body.append(svg_text(_WIDTH - 14, _y(HELD_MS) - 5, "250 ms", style="faint", anchor="end"))
    curves = {
        (name, share): rate_points(figures, f"{name}_p{share}_ms_at_")
        for name in ("mix", "prepare")
        for share in (50, 99)
    }
    most = max((rate for points in curves.values() for rate, _ in points), default=1)
    room = _WIDTH - _LEFT - 30
    for (name, share), points in curves.items():
        style = ("one" if name == "mix" else "two") + (" half" if share == 50 else "")
        body += _curve([(_LEFT + room * rate / most, _y(value)) for rate, value in points], style)
    for rate in sorted({rate for points in curves.values() for rate, _ in points})[::2]:
        body.append(
            svg_text(
                _LEFT + room * rate / most, _HEIGHT - 26, str(rate), style="faint", anchor="middle"
            )
        )
    for x, style, words in ((12, "one", "mix of requests"), (150, "two", "prepare alone")):
        body.append(f'<circle class="{style}" cx="{x + 5}" cy="38" r="5"/>')
        body.append(svg_text(x + 15, 42, words, style="faint"))
    label = "latency against requests a second"
    return svg_document(_WIDTH, _HEIGHT, label, _STYLE, body)


def flat_picture(points: Sequence[tuple[int, float, float]]) -> str:
    """p50 and p99 of prepare beside few and beside many spaces."""
    body = _frame("prepare beside few and many spaces: p99 (line) and p50 (dotted)", "spaces")
    room = (_WIDTH - _LEFT - 60) / max(1, len(points) - 1)
    places = [_LEFT + 30 + room * at for at in range(len(points))]
    for style, of in (("one half", 1), ("one", 2)):
        body += _curve([(x, _y(point[of])) for x, point in zip(places, points, strict=True)], style)
        for x, point in zip(places, points, strict=True):
            body.append(svg_text(x, _y(point[of]) - 8, f"{point[of]:.0f} ms", anchor="middle"))
    for x, (count, _, _) in zip(places, points, strict=True):
        body.append(svg_text(x, _HEIGHT - 26, f"{count:,}", style="faint", anchor="middle"))
    return svg_document(_WIDTH, _HEIGHT, "prepare by number of spaces", _STYLE, body)
