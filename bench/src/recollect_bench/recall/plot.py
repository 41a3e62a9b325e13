"""Draws a run of the recall bench as an SVG picture: recall beside baselines, floors and aims.

Owns the picture. It is plain SVG written here: no fonts and nothing else is fetched, and its
colours follow the reader's light or dark page. It must never hold a text of a set. Always
holds: every bar is a figure of the run, drawn on one scale from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from recollect_bench.recall.result import RecallResult, SetResult

_WIDTH: Final = 800
_LEFT: Final = 225
_RIGHT: Final = 70
_SCALE: Final = _WIDTH - _LEFT - _RIGHT
_BAR: Final = 13
_GAP: Final = 12
_TOP: Final = 30
_AXIS: Final = 26
_MAIN: Final = (
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
.floor { stroke: #c0392b; stroke-width: 2 } .aim { stroke: #2fa57b; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #dee2e9 } .faint { fill: #98a2b3 } .grid { stroke: #343a46 }
  .recall { fill: #6ea0ff } .bm25 { fill: #6c7584 } .random { fill: #4a5160 }
  .floor { stroke: #ff6b5e } .aim { stroke: #4fd1a1 }
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
    floor: float | None = None
    aim: float | None = None

    @property
    def height(self) -> int:
        return len(self.bars) * _BAR + _GAP


def write_plot(result: RecallResult, path: Path) -> None:
    """Write the picture of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(plot(result), encoding="utf-8")


def plot(result: RecallResult) -> str:
    """The picture of a run, a panel a set; of several sets only their first figures."""
    body: list[str] = []
    top = 0
    for one in result.sets:
        panel, height = _panel(one, top, briefly=len(result.sets) > 1)
        body += panel
        top += height
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" role="img" '
        'aria-label="recall beside its baselines">'
    )
    return "\n".join([opening, f"<style>{_STYLE}</style>", *body, "</svg>\n"])


def _panel(one: SetResult, top: int, *, briefly: bool) -> tuple[list[str], int]:
    groups = list(_first_groups(one) if briefly else _groups(one))
    height = _TOP + sum(group.height for group in groups) + _AXIS
    bottom = top + height - _AXIS
    drawn = [
        _text(12, top + 20, f"{one.name}, {one.embedder}", style="title"),
        *_axis(top + _TOP, bottom),
        *_legend(groups, top + 20),
    ]
    at = top + _TOP
    for group in groups:
        drawn += _drawn(group, at)
        at += group.height
    return drawn, height


def _first_groups(one: SetResult) -> Iterator[_Group]:
    """What has a floor, and `all_4k`."""
    for name in (*_MAIN, *_ERRORS):
        if name in one.figures and (name == "all_4k" or name in one.floors):
            yield _group(one, name, name if name in _MAIN else f"{name} (less is better)")


def _groups(one: SetResult) -> Iterator[_Group]:
    """The figures of the whole set first, then by part, then the gate's errors."""
    for name in _MAIN:
        if name in one.figures:
            yield _group(one, name, name)
    first = next((name for name in _MAIN if name in one.figures), "")
    parts = [name for name in one.figures if name.startswith(f"{first}.")]
    for name in parts:
        yield _group(one, name, f"{first}, {name.partition('.')[2]}")
    for name in _ERRORS:
        if name in one.figures:
            yield _group(one, name, f"{name} (less is better)")


def _group(one: SetResult, name: str, label: str) -> _Group:
    bars = [_Bar(who="recall", value=one.figures[name])]
    held = {who: figures[name] for who, figures in one.baselines.items() if name in figures}
    bars += [_Bar(who=who, value=held[who]) for who in _WHO if who in held]
    floor = one.floors.get(name)
    return _Group(
        label=label,
        bars=tuple(bars),
        floor=None if floor is None else floor.floor,
        aim=None if floor is None else floor.aim,
    )


def _axis(top: int, bottom: int) -> Iterator[str]:
    for tenth in range(0, 11, 2):
        x = _x(tenth / 10)
        yield f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
        yield _text(x, bottom + 14, f"{tenth / 10:g}", style="faint", anchor="middle")


def _legend(groups: Sequence[_Group], y: int) -> Iterator[str]:
    shown = [who for who in _WHO if any(bar.who == who for g in groups for bar in g.bars)]
    x = _LEFT
    for who in shown:
        yield f'<rect class="{who}" x="{x}" y="{y - 10}" width="10" height="10"/>'
        yield _text(x + 14, y - 1, _WHO[who], style="faint")
        x += 30 + 7 * len(_WHO[who])
    for mark in ("floor", "aim"):
        if any(getattr(group, mark) is not None for group in groups):
            yield f'<line class="{mark}" x1="{x + 4}" y1="{y - 11}" x2="{x + 4}" y2="{y + 1}"/>'
            yield _text(x + 10, y - 1, mark, style="faint")
            x += 24 + 7 * len(mark)


def _drawn(group: _Group, top: int) -> Iterator[str]:
    middle = top + len(group.bars) * _BAR / 2 + 4
    yield _text(_LEFT - 10, middle, group.label, anchor="end")
    for place, bar in enumerate(group.bars):
        y = top + place * _BAR
        width = max(1.0, bar.value * _SCALE)
        yield (
            f'<rect class="{bar.who}" x="{_LEFT}" y="{y}" width="{width:.1f}" '
            f'height="{_BAR - 2}"><title>{escape(_WHO[bar.who])}: {bar.value:.3f}</title></rect>'
        )
        style = "" if bar.who == "recall" else "faint"
        yield _text(_x(bar.value) + 5, y + 10, f"{bar.value:.3f}", style=style)
    bottom = top + len(group.bars) * _BAR
    for mark, value in (("floor", group.floor), ("aim", group.aim)):
        if value is not None:
            x = _x(value)
            yield (f'<line class="{mark}" x1="{x:.1f}" y1="{top - 2}" x2="{x:.1f}" y2="{bottom}"/>')


def _x(value: float) -> float:
    return _LEFT + value * _SCALE


def _text(x: float, y: float, words: str, *, style: str = "", anchor: str = "") -> str:
    marks = (f' class="{style}"' if style else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{marks}>{escape(words)}</text>'
