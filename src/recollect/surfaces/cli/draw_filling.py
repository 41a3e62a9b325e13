"""Draws how the window filled over the session: what came, what was sent, and the limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from recollect.surfaces.cli.draw_paint import (
    CAME,
    GOOD,
    LIMIT,
    MARK,
    QUIET,
    SENT,
    Sheet,
    heading,
    in_runs,
    short_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recollect.surfaces.cli.explained import Explained, TurnPoint

_ROWS = 10
_MOST_ROOM_RATIO = 1.3
_AXIS_CELLS = 7  # "  128k ┤"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
BATCH, COMPACTED, REPAIRED = "▲", "◆", "+"


@dataclass(slots=True)
class _Column:
    """Turns that share one column of the chart: the highest of them, and their marks."""

    came: int = 0
    sent: int = 0
    batch: bool = False
    compacted: bool = False
    repaired: bool = False

    def add(self, point: TurnPoint) -> None:
        self.came = max(self.came, point.came_tokens, point.sent_tokens)
        self.sent = max(self.sent, point.sent_tokens)
        self.batch = self.batch or (point.moment is not None and point.new_edits > 0)
        self.compacted = self.compacted or point.compacted
        self.repaired = self.repaired or point.new_repairs > 0


def draw_filling(explained: Explained, sheet: Sheet) -> Iterator[Text]:
    """The section, line by line; nothing for a session of one turn."""
    if len(explained.filling) < 2:
        return
    columns = _columns(explained.filling, explained.turn, sheet.width - _AXIS_CELLS)
    limit = explained.window.limit_tokens
    unit, limit_row, sign = _scale(max(column.came for column in columns), limit)
    yield heading("How the window filled", _key(sheet), sheet)
    yield Text()
    for row in range(_ROWS - 1, -1, -1):
        shown = sign if row == limit_row else ""
        cells = [_cell(column, row, unit, sheet, limit_sign=shown) for column in columns]
        yield Text.assemble(_axis(row, unit, limit_row, limit), in_runs(cells))
    yield _marks(columns)
    yield _turns(explained, len(columns))


def _scale(highest: int, limit: int) -> tuple[float, int, str]:
    """Tokens a row, the limit's row, and the sign that is drawn there.

    Where it wastes little room, the scale puts the limit into the middle of its row; else the
    sign is the one nearest to where in its row the limit is.
    """
    top = max(highest, limit * (_ROWS - 1) // (_ROWS - 2), 1)
    row = max(0, int(limit * _ROWS / top - 0.5))
    unit = limit / (row + 0.5)
    if top <= unit * _ROWS <= top * _MOST_ROOM_RATIO:
        return unit, row, "╌"
    unit = top / _ROWS
    row = min(_ROWS - 1, int(limit / unit))
    return unit, row, "_╌‾"[min(2, int(3 * (limit / unit - row)))]


def _columns(points: Sequence[TurnPoint], turn: int, cells: int) -> list[_Column]:
    """The turns on as many columns as fit; few turns are drawn wider than one."""
    wide = max(1, min(6, cells // max(1, turn)))
    count = min(cells // wide, turn)
    columns = [_Column() for _ in range(count)]
    for point in points:
        columns[(point.turn - 1) * count // turn].add(point)
    for at in range(1, count):
        if not columns[at].came:  # not replayed: as the turn before it
            columns[at].came, columns[at].sent = columns[at - 1].came, columns[at - 1].sent
    if wide == 1:
        return columns
    spread: list[_Column] = []
    for column in columns:
        spread.append(column)
        spread += [_Column(came=column.came, sent=column.sent) for _ in range(wide - 1)]
    return spread


def _axis(row: int, unit: float, limit_row: int, limit: int) -> Text:
    if row == limit_row:
        return Text(f"{short_tokens(limit):>5} ┤", style=LIMIT)
    is_labelled = row == _ROWS - 1 and limit_row < row - 1
    if is_labelled:
        return Text(f"{short_tokens(round(unit * _ROWS)):>5} ┤", style=QUIET)
    return Text("      │" if row else "    0 ┤", style=QUIET)


def _cell(
    column: _Column, row: int, unit: float, sheet: Sheet, *, limit_sign: str
) -> tuple[str, str]:
    """The sign of one cell and its style."""
    low, high = row * unit, (row + 1) * unit
    above = f" on {CAME}" if sheet.coloured and column.came >= high else ""
    sent, came = (round(8 * (tokens - low) / unit) for tokens in (column.sent, column.came))
    if column.sent >= high:
        cell = (" ", f"on {SENT}") if sheet.coloured else ("█", "")
    elif sent > 0:
        cell = (_EIGHTHS[sent], f"{SENT}{above}")
    elif column.came >= high and not limit_sign:
        cell = (" ", f"on {CAME}") if sheet.coloured else ("░", "")
    elif came > 0 and not above:
        cell = (_EIGHTHS[came] if sheet.coloured else "░", CAME)
    else:
        cell = (limit_sign or " ", f"{LIMIT}{above}")
    return cell


def _marks(columns: list[_Column]) -> Text:
    marks: list[tuple[str, str]] = []
    for column in columns:
        if column.compacted:
            marks.append((COMPACTED, MARK))
        elif column.batch:
            marks.append((BATCH, LIMIT))
        elif column.repaired:
            marks.append((REPAIRED, GOOD))
        else:
            marks.append(("─", QUIET))
    return Text.assemble(("      └", QUIET), in_runs(marks))


def _turns(explained: Explained, cells: int) -> Text:
    first, last = "turn 1", f"{explained.turn:,}"
    line = Text(" " * _AXIS_CELLS + first, style=QUIET)
    marks: list[tuple[str, str, str]] = []
    points = explained.filling
    batches = sum(point.moment is not None and point.new_edits > 0 for point in points)
    compactions = sum(point.compacted for point in points)
    repairs = sum(point.new_repairs > 0 for point in points)
    for sign, style, count, word in (
        (BATCH, LIMIT, batches, "edited in a batch"),
        (COMPACTED, MARK, compactions, "compacted by its client"),
        (REPAIRED, GOOD, repairs, "repaired"),
    ):
        if count:
            marks.append((f"   {sign} ", style, f"{word} {count}×" if count > 1 else word))
    for sign, style, said in marks:
        if line.cell_len + len(sign) + len(said) + len(last) + 2 <= _AXIS_CELLS + cells:
            line.append(sign, style=style)
            line.append(said, style=QUIET)
    gap = _AXIS_CELLS + cells - line.cell_len - len(last)
    return line.append(" " * max(1, gap) + last, style=QUIET)


def _key(sheet: Sheet) -> Text:
    return Text.assemble(
        ("■" if sheet.coloured else "░", CAME),
        (" as it came  ", QUIET),
        ("■" if sheet.coloured else "█", SENT),
        (" as sent  ", QUIET),
        ("╌", LIMIT),
        (" limit", QUIET),
    )
