"""Draws an explained session as an SVG picture, for the README.

    recollect explain SESSION.jsonl --window 128k --svg docs/images/explain.svg

Owns how the terminal drawing becomes a picture that looks the same everywhere: no fonts and
nothing else is fetched, and block signs become rectangles, because fonts disagree about them.
"""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from recollect.surfaces.cli.draw_session import draw_session

if TYPE_CHECKING:
    from pathlib import Path

    from recollect.surfaces.cli.explained import Explained

PICTURE_CELLS = 100
_CHAR_WIDTH = 12.2  # rich draws at 20 pixels with an aspect ratio of 0.61
_LINE_HEIGHT = 24.4
_BASELINE = 20.0
_THEME = TerminalTheme(
    (20, 22, 28),
    (222, 226, 233),
    [(20, 22, 28), (224, 71, 91), (47, 177, 131), (192, 122, 16)] * 2,
)
_FONTS = (
    "ui-monospace, SFMono-Regular, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', "
    "'Liberation Mono', monospace"
)
_SVG = (
    """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: """
    + _FONTS
    + """; font-size: {char_height}px; white-space: pre; }}
.{unique_id}-title {{ font-size: 16px; font-family: """
    + _FONTS
    + """; opacity: 0.7; }}
rect {{ shape-rendering: crispEdges; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
)
_TEXT = re.compile(
    r'<text class="(?P<style>[^"]+)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" '
    r'textLength="[\d.]+" clip-path="[^"]+">(?P<words>[^<]*)</text>'
)
_LINE_CLIP = re.compile(r' clip-path="url\(#recollect-line-\d+\)"')  # no line is too long
_BLOCKS = " ▁▂▃▄▅▆▇█"
_RULES = {"─": (0.0, 1.0), "╌": (0.15, 0.7), "■": (0.12, 0.76)}


def write_picture(
    explained: Explained, path: Path, *, title: str = "", every: bool = False
) -> None:
    """Draw the session and write it as SVG."""
    console = Console(
        record=True,
        file=io.StringIO(),
        width=PICTURE_CELLS,
        color_system="truecolor",
        force_terminal=True,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    draw_session(explained, console, every=every)
    svg = console.export_svg(
        title=title,
        theme=_THEME,
        code_format=_SVG,
        unique_id="recollect",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    svg = _TEXT.sub(_drawn, svg).replace(' shape-rendering="crispEdges"', "")
    path.write_text(_LINE_CLIP.sub("", svg), encoding="utf-8")


def _drawn(found: re.Match[str]) -> str:
    """A run of block signs as rectangles, anything else as it is."""
    words = html.unescape(found["words"]).replace("\xa0", " ")
    if not words.strip(" ") or any(sign not in _BLOCKS and sign not in _RULES for sign in words):
        return found[0]
    top = float(found["y"]) - _BASELINE + 1.5
    shapes: list[str] = []
    at = 0
    while at < len(words):
        sign = words[at]
        end = at
        while end < len(words) and words[end] == sign:
            end += 1
        x = float(found["x"]) + at * _CHAR_WIDTH
        shapes.append(_shape(sign, x, top, end - at, found["style"]))
        at = end
    return "".join(shapes)


def _shape(sign: str, x: float, top: float, count: int, style: str) -> str:
    if sign == " ":
        return ""
    if sign in _BLOCKS:
        height = _LINE_HEIGHT * _BLOCKS.index(sign) / 8
        return _rect(style, x, top + _LINE_HEIGHT - height, count * _CHAR_WIDTH, height + 0.25)
    inset, share = _RULES[sign]
    if sign == "─":
        return _rect(style, x, top + _LINE_HEIGHT / 2, count * _CHAR_WIDTH, 1.5)
    each: list[str] = []
    for at in range(count):
        left = x + (at + inset) * _CHAR_WIDTH
        if sign == "■":
            side = _CHAR_WIDTH * share
            each.append(_rect(style, left, top + (_LINE_HEIGHT - side) / 2, side, side))
        else:
            each.append(_rect(style, left, top + _LINE_HEIGHT / 2, _CHAR_WIDTH * share, 1.6))
    return "".join(each)


def _rect(style: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{style}" x="{x:.1f}" y="{y:.2f}" width="{width:.1f}" height="{height:.2f}"/>'
    )
