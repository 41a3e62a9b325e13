"""Draws sessions as SVG: the timeline, sparklines and bars. Colors are classes of the inspector's
stylesheet; an exported picture contains its own stylesheet. A picture shows no message content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recollect.hosts.inspect.timeline import (
    EVENT_WORDS,
    SHOWN_KINDS,
    SPARK_TURNS,
    EventKind,
    ShownKind,
    dollars,
)
from recollect.system.plain_text import short_tokens

if TYPE_CHECKING:
    from recollect.hosts.inspect.timeline import Timeline

MAX_COLUMNS: Final = 400
"""With more turns than this, each column shows the largest request of several turns."""
LANES: Final[dict[EventKind, str]] = {
    EventKind.EDITED: "Shortened",
    EventKind.RECALLED: "Recalled",
    EventKind.COMPACTED: "Compacted",
    EventKind.CACHE: "Cache broken",
    EventKind.FAILED: "Failed",
}
_LANE_OF: Final = {EventKind.CLIENT: EventKind.COMPACTED}
_MARKS: Final[dict[EventKind, str]] = {
    EventKind.EDITED: "M-4.5 4.5L0 -4.5L4.5 4.5z",
    EventKind.RECALLED: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    EventKind.COMPACTED: "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
    EventKind.CLIENT: "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
    EventKind.CACHE: "M-4.5 -4.5L4.5 4.5M4.5 -4.5L-4.5 4.5",
    EventKind.FAILED: "M-4.5 -4.5H4.5V4.5H-4.5z",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSize:
    """The measures of a timeline in pixels."""

    left: int
    right: int
    plot: int
    ticks: int
    name: str

    @property
    def cells(self) -> int:
        return self.right - self.left

    def rule(self, y: float, words: str, style: str = "lane") -> str:
        """Draw a line over the whole width, with words at its left."""
        return (
            f'<path class="{style}" d="M{self.left} {y:.1f}H{self.right}"/>'
            f'<text x="{self.left - 8}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'
        )


WIDE: Final = ChartSize(left=104, right=1296, plot=300, ticks=9, name="wide")
NARROW: Final = ChartSize(left=96, right=346, plot=180, ticks=3, name="narrow")
# In pixels: space for half a line of text, and for a mark with space around it.
_TOP: Final = 14
_LANE: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    first: int
    last: int
    x: float
    came: int
    kinds: Mapping[ShownKind, int]
    dollars: float


def timeline(
    session_timeline: Timeline, sheet: ChartSize = WIDE, *, link: str = "", legend: bool = False
) -> str:
    """Draw the tokens per turn by kind, with one lane per kind of event. `link` is the address of a
    turn without its number: each mark links to its turn. If `legend` is true, add the names of the
    kinds."""
    if not session_timeline.lines:
        return ""
    columns = _columns(session_timeline, sheet)
    highest = max(
        *(max(column.came, sum(column.kinds.values())) for column in columns),
        min(session_timeline.limit_tokens, 2 * max(column.came for column in columns)),
        1,
    )
    step = _round_up(75 * highest / sheet.plot)
    top = step * -(-highest // step)
    base = _TOP + sheet.plot

    def y(tokens: float) -> float:
        return base - sheet.plot * tokens / top

    parts = [_axis(session_timeline, columns, sheet, step=step, top=top, base=base)]
    parts += _areas(columns, y)
    parts.append(
        f'<path class="received-line" d="{_steps(columns, [y(c.came) for c in columns])}"/>'
    )
    if session_timeline.limit_tokens <= top:
        limit_y = y(session_timeline.limit_tokens)
        label = f"limit {short_tokens(session_timeline.limit_tokens)}"
        parts.append(
            f'<path class="limit-line" d="M{sheet.left} {limit_y:.1f}H{sheet.right}"/>'
            f'<text class="limit-text" x="{sheet.left + 6}" y="{limit_y - 6:.1f}">{label}</text>'
        )
    lanes = base + 26 + _LANE / 2
    parts.append(_lanes(session_timeline, sheet, lanes, link))
    parts.append(_costs(columns, sheet, base + 30 + _LANE * len(LANES)))
    height = round(base + 38 + _LANE * (len(LANES) + 1))
    if legend:
        parts.append(_legend(sheet, height + 12))
        height += 24
    words = (
        f"Tokens per turn, {session_timeline.turns:,} turns: at most "
        f"{session_timeline.peak_tokens:,} tokens sent, limit {session_timeline.limit_tokens:,}"
    )
    return (
        f'<svg class="chart {sheet.name}" viewBox="0 0 {sheet.right + 14} {height}" role="group" '
        f'aria-label="{words}">{"".join(parts)}</svg>'
    )


def _columns(timeline: Timeline, sheet: ChartSize) -> list[_Column]:
    lines = timeline.lines
    count = min(len(lines), MAX_COLUMNS, sheet.cells)
    columns = []
    for index in range(count):
        group = lines[index * len(lines) // count : (index + 1) * len(lines) // count]
        largest = max(group, key=lambda line: line.sizes.sent_tokens)
        columns.append(
            _Column(
                first=group[0].turn,
                last=group[-1].turn,
                x=sheet.left + sheet.cells * index / count,
                came=max(line.sizes.came_tokens for line in group),
                kinds=largest.kinds(),
                dollars=max(line.dollars or 0.0 for line in group),
            )
        )
    end = columns[-1].last + 1
    return [*columns, replace(columns[-1], first=end, last=end, x=float(sheet.right))]


def _areas(columns: Sequence[_Column], y: Callable[[float], float]) -> list[str]:
    below = [0] * len(columns)
    areas = []
    for kind, title in SHOWN_KINDS.items():
        above = [
            low + column.kinds.get(kind, 0) for low, column in zip(below, columns, strict=True)
        ]
        if above != below:
            upper = _steps(columns, [y(value) for value in above])
            lower = _steps(columns, [y(value) for value in below], back=True)
            areas.append(
                f'<path class="area k-{kind}" d="{upper}{lower}z"><title>{title}</title></path>'
            )
        below = above
    return areas


def _steps(columns: Sequence[_Column], heights: Sequence[float], *, back: bool = False) -> str:
    """Draw a line over the columns. Neighbors of equal height share one stroke."""
    points = [(column.x, height) for column, height in zip(columns, heights, strict=True)]
    if back:
        points.reverse()
    drawn_points = [
        point
        for index, point in enumerate(points)
        if index in (0, len(points) - 1)
        or abs(point[1] - points[index - 1][1]) > 0.04
        or abs(point[1] - points[index + 1][1]) > 0.04
    ]
    start = "L" if back else "M"
    return start + "L".join(f"{x:.1f} {height:.1f}" for x, height in drawn_points)


def _costs(columns: Sequence[_Column], sheet: ChartSize, top: float) -> str:
    max_dollars, base = max(column.dollars for column in columns), top + _LANE
    lane = sheet.rule(base, "Cost")
    if not max_dollars:
        return lane
    line = _steps(columns, [base - _LANE * column.dollars / max_dollars for column in columns])
    area = f"{line}L{sheet.right} {base:.1f}L{sheet.left} {base:.1f}z"
    words = f"Cost per turn, at most {dollars(max_dollars)}"
    return f'{lane}<path class="m-cost" d="{area}"><title>{words}</title></path>'


def _legend(sheet: ChartSize, y: float) -> str:
    entry_width = sheet.cells / len(SHOWN_KINDS)
    return "".join(
        f'<rect class="k-{kind}" x="{sheet.left + index * entry_width:.1f}" y="{y - 11:.1f}" '
        f'width="12" height="12"/><text x="{sheet.left + index * entry_width + 18:.1f}" '
        f'y="{y:.1f}">{title}</text>'
        for index, (kind, title) in enumerate(SHOWN_KINDS.items())
    )


def _axis(
    timeline: Timeline,
    columns: Sequence[_Column],
    sheet: ChartSize,
    *,
    step: int,
    top: int,
    base: float,
) -> str:
    parts = []
    for tokens in range(0, top + 1, step):
        line_y = base - sheet.plot * tokens / top
        parts.append(sheet.rule(line_y, short_tokens(tokens), "grid" if tokens else "axis"))
    first, last = timeline.lines[0].turn, timeline.lines[-1].turn
    turn_step = _round_up(max(1, (last - first) / sheet.ticks))
    parts.append(f'<text x="{sheet.left}" y="{base + 17:.0f}">turn {first:,}</text>')
    clear: float = sheet.left + 60
    for column in columns[:-1]:
        turn = -(-column.first // turn_step) * turn_step
        if turn <= column.last and clear < column.x < sheet.right - 16:
            clear = column.x + 50
            parts.append(
                f'<text x="{column.x:.1f}" y="{base + 17:.0f}" text-anchor="middle">{turn:,}</text>'
            )
    return "".join(parts)


def _lanes(timeline: Timeline, sheet: ChartSize, first: float, link: str) -> str:
    parts: list[str] = []
    places: dict[EventKind, float] = {}
    for number, (kind, title) in enumerate(LANES.items()):
        places[kind] = lane_y = first + number * _LANE
        parts.append(sheet.rule(lane_y, title))
    drawn: dict[tuple[EventKind, int], None] = {}
    count = len(timeline.lines)
    for place, line in enumerate(timeline.lines):
        x = sheet.left + sheet.cells * (place + 0.5) / count
        for kind in sorted(line.event_kinds, key=lambda event_kind: event_kind.value):
            if (kind, round(x / 5)) in drawn:  # marks on one spot are one mark
                continue
            drawn[kind, round(x / 5)] = None
            middle = places[_LANE_OF.get(kind, kind)]
            mark = (
                f'<path class="m-{kind.value}" transform="translate({x:.1f} {middle:.1f})" '
                f'd="{_MARKS[kind]}"/>'
            )
            name = f"Turn {line.turn:,}: {EVENT_WORDS[kind].lower()}"
            if link:
                mark = f'<a href="{escape(link)}{line.turn}" aria-label="{name}">{mark}</a>'
            parts.append(mark)
    return "".join(parts)


def spark(timeline: Timeline) -> str:
    """Draw the tokens of a few turns, received and sent, against the limit."""
    if not timeline.lines:
        return ""
    last = len(timeline.lines) - 1
    points = max(1, min(len(timeline.lines), SPARK_TURNS) - 1)
    lines = [timeline.lines[round(index * last / points)] for index in range(points + 1)]
    limit = timeline.limit_tokens
    highest = max(max(line.sizes.came_tokens for line in lines), 1)
    top = max(highest, min(limit, 3 * highest))

    def area(sizes: Sequence[int]) -> str:
        step = 200 / (len(sizes) - 1)
        line = "L".join(
            f"{index * step:.1f} {36 - 34 * size / top:.1f}" for index, size in enumerate(sizes)
        )
        return f"M0 36L{line}L200 36z"

    received_area = area([line.sizes.came_tokens for line in lines])
    sent_area = area([line.sizes.sent_tokens for line in lines])
    limit_y = 36 - 34 * limit / top
    line = f'<path class="limit-line" d="M0 {limit_y:.1f}H200"/>' if limit <= top else ""
    words = (
        f"{timeline.turns:,} turns, at most {timeline.peak_tokens:,} tokens sent, limit {limit:,}"
    )
    return (
        f'<svg class="spark" viewBox="0 0 200 36" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}"><path class="received-area" d="{received_area}"/>'
        f'<path class="k-user" d="{sent_area}"/>{line}</svg>'
    )


def bar(kinds: Mapping[ShownKind, int], scale: int, label: str) -> str:
    """Draw one bar of token kinds. `scale` is the width of the whole picture in tokens."""
    x, parts = 0.0, []
    for kind, title in SHOWN_KINDS.items():
        width = 1000 * kinds.get(kind, 0) / max(1, scale)
        if width:
            title_text = f"{title}: {kinds[kind]:,} tokens"
            parts.append(
                f'<rect class="k-{kind} area" x="{x:.2f}" width="{width:.2f}" height="22">'
                f"<title>{title_text}</title></rect>"
            )
        x += width
    return (
        f'<svg class="bar" viewBox="0 0 1000 22" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _round_up(least: float) -> int:
    size = 1
    while True:
        for factor in (1, 2, 5):
            if size * factor >= least:
                return size * factor
        size *= 10


def stylesheet() -> str:
    """Return the colors and lines of pictures, as CSS."""
    return (Path(__file__).parent / "picture.css").read_text(encoding="utf-8")


def standalone_svg(picture: str) -> str:
    """Return a picture as a separate SVG file that contains the colors."""
    opening = '<svg xmlns="http://www.w3.org/2000/svg" '
    style_element = f"><style>{stylesheet()}</style>"
    return picture.replace("<svg ", opening, 1).replace(">", style_element, 1) + "\n"
