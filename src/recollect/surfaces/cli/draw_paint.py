"""Colours, signs and clipping for drawings on a terminal.

Owns the palette: mid tones that can be read on a dark and on a light ground, and a sign of
its own for everything that colour tells apart, so that nothing is lost without colours.
Text is always `rich.text.Text`, never markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from recollect.surfaces.cli.explained import TokenKind
    from recollect.values.report import FateKind

QUIET = "#7d8694"
ACCENT = "bold #4b8bf5"
LIMIT = "#e0475b"
CAME = "#f2b8a0"
SENT = "#4b8bf5"
MARK = "#d98a16"
GOOD = "#2fa57b"
DARK_INK = "#14161b"

KIND_COLOURS: dict[TokenKind, str] = {
    "system": "#8b95a5",
    "tools": "#b08968",
    "not recorded": "#aab2c0",
    "user": "#4b8bf5",
    "assistant": "#2fb183",
    "thinking": "#a879f0",
    "tool calls": "#eda63a",
    "tool results": "#ee7355",
    "images": "#e667a8",
    "summaries": "#27b3c4",
    "ours": "#c9525f",
    "other": "#6f7c91",
}
KIND_SIGNS: dict[TokenKind, str] = {
    "system": "=",
    "tools": "%",
    "not recorded": "?",
    "user": "░",
    "assistant": "▒",
    "thinking": "~",
    "tool calls": "▓",
    "tool results": "█",
    "images": "#",
    "summaries": "≡",
    "ours": "+",
    "other": ":",
}
FATE_COLOURS: dict[FateKind, str] = {
    "kept": "#4d9a83",
    "changed": "#d98a16",
    "left out": "#e0475b",
    "summarised": "#a879f0",
    "inserted": "#4b8bf5",
}
FATE_SIGNS: dict[FateKind, str] = {
    "kept": "▇",
    "changed": "▃",
    "left out": "▁",
    "summarised": "≡",
    "inserted": "+",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What is drawn on: how wide it is, and whether it has colours."""

    width: int
    coloured: bool

    @classmethod
    def of(cls, console: Console) -> Sheet:
        """The sheet that a console is."""
        return cls(
            width=max(40, console.width),
            coloured=console.color_system is not None and not console.no_color,
        )

    def filled(self, cells: int, colour: str, sign: str) -> Text:
        """A solid stretch: a coloured ground, or signs where there are no colours."""
        if self.coloured:
            return Text(" " * cells, style=f"on {colour}")
        return Text(sign * cells)


def in_runs(cells: Iterable[tuple[str, str]]) -> Text:
    """Signs with their styles as one text, neighbours of one style in one piece."""
    text = Text()
    for style, run in groupby(cells, key=itemgetter(1)):
        text.append("".join(sign for sign, _ in run), style=style)
    return text


def clipped(text: str, cells: int) -> str:
    """The text's beginning within so many cells; wide signs count two."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - 1)).rstrip() + "…" if cells > 0 else ""


def spread(left: Text, right: Text, cells: int) -> Text:
    """Two texts at both ends of a line, if they fit on one."""
    gap = cells - left.cell_len - right.cell_len
    if gap < 2:
        return left
    return Text.assemble(left, " " * gap, right)


def heading(title: str, note: Text, sheet: Sheet) -> Text:
    """The title of a section, a rule to the edge, and what it comes to."""
    rule = sheet.width - cell_len(title) - note.cell_len - 2
    if rule < 3:
        return Text(title, style=ACCENT)
    return Text.assemble((title, ACCENT), " ", ("─" * (rule - 1), QUIET), "  ", note)


def short_tokens(tokens: int) -> str:
    """A number of tokens in at most five signs: 950, 9.6k, 168k, 1M, 1.05M."""
    if tokens < 1000:
        return str(tokens)
    if tokens < 9_950:
        return f"{tokens / 1000:.1f}".removesuffix(".0") + "k"
    if tokens < 999_500:
        return f"{round(tokens / 1000)}k"
    return f"{tokens / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"


def percent(part: int, whole: int) -> str:
    """A share in at most four signs."""
    share = part / whole if whole else 0.0
    if 0 < share < 0.01:
        return "<1%"
    return f"{share:.0%}"
