"""Draws an explained session on a console, section by section.

Reads nothing but the `Explained` it is given; what is on the screen is in `--json` too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from recollect.surfaces.cli.draw_paint import (
    ACCENT,
    CAME,
    DARK_INK,
    FATE_COLOURS,
    FATE_SIGNS,
    GOOD,
    KIND_COLOURS,
    KIND_SIGNS,
    LIMIT,
    MARK,
    QUIET,
    SENT,
    Sheet,
    clipped,
    heading,
    in_runs,
    percent,
    short_tokens,
    spread,
)
from recollect.surfaces.cli.explained import apportioned, shown_text
from recollect.values.reason import Reason, joined_reasons

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, RenderableType

    from recollect.surfaces.cli.explained import (
        Explained,
        KindShare,
        MessageFate,
        ToolShare,
        TurnPoint,
    )
    from recollect.values.report import FateKind


# Draws what became of each message: a map of the request, and the reasons.


_MAP_ROWS = 6
_MOST_RUNS = 16
"""So many stretches are listed one by one; of more, those with one reason are told together."""
_FATES: tuple[FateKind, ...] = ("kept", "changed", "left out", "summarised", "inserted")


@dataclass(slots=True)
class Stretch:
    """Messages with the same fate for the same reason."""

    fate: FateKind
    kind: tuple[object, ...]
    members: list[MessageFate] = field(default_factory=list)

    @property
    def span(self) -> str:
        """From where to where they stand."""
        numbers = [member.number for member in self.members if member.number is not None]
        if not numbers:
            return f"{len(self.members)} of ours" if len(self.members) > 1 else "ours"
        ends = (numbers[0], numbers[-1])
        return f"#{ends[0]:,}" if ends[0] == ends[1] else f"#{ends[0]:,}–#{ends[1]:,}"

    @property
    def why(self) -> str:
        """The reason, with the range of scores where they differ."""
        whys = [reason for fate in self.members for reason in fate.reasons]
        scores = [
            float(str(reason.numbers["score"])) for reason in whys if "score" in reason.numbers
        ]
        if not scores:
            return self.members[0].reason
        low, high = f"{min(scores):.2f}", f"{max(scores):.2f}"
        ends = low if low == high else f"{low} to {high}"
        shown = [
            Reason(reason.cause, **{**reason.numbers, "score": ends})
            for reason in self.members[0].reasons
        ]
        return shown_text(joined_reasons(tuple(shown)))


def stretches(fates: Sequence[MessageFate], *, together: bool = False) -> list[Stretch]:
    """Neighbours of one fate and reason; `together` joins them over the whole request."""
    found_stretches: list[Stretch] = []
    known: dict[tuple[object, ...], Stretch] = {}
    for fate in fates:
        key = (fate.fate, *map(_without_score, fate.reasons))
        if together and key in known:
            stretch = known[key]
        elif not together and found_stretches and found_stretches[-1].kind == key:
            stretch = found_stretches[-1]
        else:
            stretch = known[key] = Stretch(fate=fate.fate, kind=key)
            found_stretches.append(stretch)
        stretch.members.append(fate)
    if together:
        found_stretches.sort(key=lambda one: (_FATES.index(one.fate), -len(one.members)))
    return found_stretches


def _without_score(reason: Reason) -> Reason:
    """A reason without the score that differs from message to message."""
    return Reason(reason.cause, **{k: v for k, v in reason.numbers.items() if k != "score"})


def draw_fates(
    explained: Explained, sheet: Sheet, *, every: bool = False
) -> Iterator[RenderableType]:
    """The section: the map, then stretches with their reasons, or every message."""
    fates = explained.fates
    title = "Each message's fate" if every else "What became of the messages"
    yield heading(title, _counts(fates), sheet)
    yield Text()
    if len(fates) > 1:
        yield from _map(fates, sheet)
        yield Text()
    if every:
        yield from _every(fates, sheet)
        return
    runs = stretches(fates)
    together = len(runs) > _MOST_RUNS
    yield _table(stretches(fates, together=True) if together else runs, together=together)


def draw_largest(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    """The largest messages, what they are, and what was done to them."""
    if not explained.largest:
        return
    whole = sum(item.tokens_before for item in explained.largest)
    share = Text(f"{percent(whole, explained.came_tokens)} of what came", style=QUIET)
    yield heading("The largest messages", share, sheet)
    yield Text()
    afters = max(len(_after(item)) for item in explained.largest)
    numbers = max(len(f"#{item.number:,}") for item in explained.largest)
    names = min(22, max(cell_len(item.what) for item in explained.largest))
    for item in explained.largest:
        style = FATE_COLOURS[item.fate]
        line = Text.assemble(
            (f"{f'#{item.number:,}':>{numbers}} ", QUIET),
            (f"{FATE_SIGNS[item.fate]} ", style),
            _named(item.what, names),
            (f" {item.tokens_before:>8,}", "bold"),
            (f" {percent(item.tokens_before, explained.came_tokens):>4}", QUIET),
            (f"{_after(item):<{afters}}  ", style),
        )
        line.append(clipped(item.excerpt, sheet.width - line.cell_len), style=QUIET)
        yield line


def _after(item: MessageFate) -> str:
    return "" if item.fate == "kept" else f" → {item.tokens_after:,}"


def _counts(fates: Sequence[MessageFate]) -> Text:
    counted = Counter(fate.fate for fate in fates)
    text = Text()
    for fate in _FATES:
        if counted[fate]:
            text.append("  " if text else "")
            text.append(f"{FATE_SIGNS[fate]} ", style=FATE_COLOURS[fate])
            text.append(f"{fate} {counted[fate]:,}", style=QUIET)
    return text


def _map(fates: Sequence[MessageFate], sheet: Sheet) -> Iterator[Text]:
    """One cell a message, or as many messages a cell as it takes to stay within some rows."""
    label = len(f"#{len(fates):,} ")
    cells = (sheet.width - label) // 10 * 10 or 10
    each = -(-len(fates) // (cells * _MAP_ROWS))
    number = 1
    for start in range(0, len(fates), cells * each):
        row = fates[start : start + cells * each]
        cell_fates = [_most_telling(row[at : at + each]) for at in range(0, len(row), each)]
        signs = in_runs((FATE_SIGNS[fate], FATE_COLOURS[fate]) for fate in cell_fates)
        yield Text.assemble((f"{f'#{number:,}':>{label - 1}} ", QUIET), signs)
        number += sum(fate.number is not None for fate in row)
    if each > 1:
        yield Text(f"{'':>{label}}each sign stands for {each} messages", style=QUIET)


def _most_telling(fates: Sequence[MessageFate]) -> FateKind:
    """What most of them met with; among equals what is rarer."""
    counted = Counter(fate.fate for fate in fates)
    return max(_FATES, key=lambda fate: (counted[fate], _FATES.index(fate)))


def _table(found_stretches: list[Stretch], *, together: bool) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    if together:
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for stretch in found_stretches:
        style = FATE_COLOURS[stretch.fate]
        before = sum(member.tokens_before for member in stretch.members)
        after = sum(member.tokens_after for member in stretch.members)
        changed = stretch.fate != "kept"
        row = [
            Text(FATE_SIGNS[stretch.fate], style=style),
            Text(stretch.fate, style=f"bold {style}"),
            Text(stretch.span, style=QUIET),
            Text(f"{before:,}" if before else ""),
            Text(f"→ {after:,}" if changed else "", style=style),
            Text(stretch.why),
        ]
        if together:
            row.insert(2, Text(f"{len(stretch.members):,}", style="bold"))
        table.add_row(*row)
    return table


def _every(fates: Sequence[MessageFate], sheet: Sheet) -> Iterator[Text]:
    numbers = len(f"#{len(fates):,}")
    for fate in fates:
        style = FATE_COLOURS[fate.fate]
        kept = fate.fate == "kept"
        tokens = (
            f"{fate.tokens_before:,}"
            if kept
            else (f"{fate.tokens_before:,} → {fate.tokens_after:,}")
        )
        line = Text.assemble(
            (f"{f'#{fate.number:,}' if fate.number else '':>{numbers}} ", QUIET),
            (f"{FATE_SIGNS[fate.fate]} {fate.fate:<9}", style),
            _named(fate.what, 18),
            f" {tokens:>15}  ",
        )
        if not kept:
            line.append(f"{fate.reason}  ")
        line.append(clipped(fate.excerpt, sheet.width - line.cell_len), style=QUIET)
        yield line


def _named(what: str, cells: int) -> str:
    """A tool's name clipped so that it still shows whether this is its call or its result."""
    tool, space, word = what.rpartition(" ")
    if cell_len(what) > cells and tool:
        what = clipped(tool, cells - cell_len(word) - 1) + space + word
    what = clipped(what, cells)
    return what + " " * (cells - cell_len(what))


# Draws how the window filled over the session: what came, what was sent, and the limit.


_ROWS = 10
_MOST_ROOM_RATIO = 1.3
_AXIS_CELLS = 7  # "  128k ┤"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
BATCH, COMPACTED, REPAIRED = "▲", "◆", "+"


@dataclass(slots=True)
class _WindowColumn:
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


def _columns(points: Sequence[TurnPoint], turn: int, cells: int) -> list[_WindowColumn]:
    """The turns on as many columns as fit; few turns are drawn wider than one."""
    wide = max(1, min(6, cells // max(1, turn)))
    count = min(cells // wide, turn)
    columns = [_WindowColumn() for _ in range(count)]
    for point in points:
        columns[(point.turn - 1) * count // turn].add(point)
    for at in range(1, count):
        if not columns[at].came:  # not replayed: as the turn before it
            columns[at].came, columns[at].sent = columns[at - 1].came, columns[at - 1].sent
    if wide == 1:
        return columns
    spread: list[_WindowColumn] = []
    for column in columns:
        spread.append(column)
        spread += [_WindowColumn(came=column.came, sent=column.sent) for _ in range(wide - 1)]
    return spread


def _axis(row: int, unit: float, limit_row: int, limit: int) -> Text:
    if row == limit_row:
        return Text(f"{short_tokens(limit):>5} ┤", style=LIMIT)
    is_labelled = row == _ROWS - 1 and limit_row < row - 1
    if is_labelled:
        return Text(f"{short_tokens(round(unit * _ROWS)):>5} ┤", style=QUIET)
    return Text("      │" if row else "    0 ┤", style=QUIET)


def _cell(
    column: _WindowColumn, row: int, unit: float, sheet: Sheet, *, limit_sign: str
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


def _marks(columns: list[_WindowColumn]) -> Text:
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
    for sign, style, text in marks:
        if line.cell_len + len(sign) + len(text) + len(last) + 2 <= _AXIS_CELLS + cells:
            line.append(sign, style=style)
            line.append(text, style=QUIET)
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


# Draws where the tokens go: stacked bars by kind, their legend, and the tools beside it.


_TOOLS = 6
_LABEL_CELLS = 14  # "sent  168,031 " before the bar
_KIND_CELLS = 27  # "■ tool results 168,031 100%"
_SENT_CELLS = 10  # " → 168,031"


def draw_tokens(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    """The section, line by line."""
    came, sent = explained.came_tokens, explained.sent_tokens
    yield heading("Where the tokens go", _verdict(explained), sheet)
    yield Text()
    changed = [share.came_tokens for share in explained.kinds] != [
        share.sent_tokens for share in explained.kinds
    ]
    cells = sheet.width - _LABEL_CELLS
    scale = max(came, sent, 1)
    if changed:
        shares = [(share, share.came_tokens) for share in explained.kinds]
        yield _bar("came", came, shares, cells * came // scale, sheet)
        yield Text()
    shares = [(share, share.sent_tokens) for share in explained.kinds]
    bar = _bar("sent", sent, shares, cells * sent // scale, sheet)
    limit_at = cells * explained.window.limit_tokens // scale
    if bar.cell_len - _LABEL_CELLS < limit_at < cells - 8:
        bar.append(" " * (_LABEL_CELLS + limit_at - bar.cell_len))
        bar.append("┊ limit", style=LIMIT)
    yield bar
    yield Text()
    yield _legend(explained, sheet, changed=changed)
    note = _reported(explained)
    if note is not None:
        yield Text()
        yield note


def _verdict(explained: Explained) -> Text:
    sent, limit = explained.sent_tokens, explained.window.limit_tokens
    style = LIMIT if sent > limit else ""
    return Text.assemble((f"{percent(sent, limit)} of the limit", style or QUIET))


def _bar(
    label: str, tokens: int, shares: list[tuple[KindShare, int]], cells: int, sheet: Sheet
) -> Text:
    """One stacked bar; a segment wide enough carries its name."""
    text = Text.assemble((f"{label} ", QUIET), (f"{tokens:>8,} ", "bold"))
    widths = apportioned([amount for _, amount in shares], cells)
    for (share, amount), width in zip(shares, widths, strict=True):
        name = f" {share.kind} {percent(amount, tokens)}"
        if sheet.coloured and len(name) < width:
            style = f"{DARK_INK} on {KIND_COLOURS[share.kind]}"
            text.append(name.ljust(width), style=style)
        else:
            text.append_text(sheet.filled(width, KIND_COLOURS[share.kind], KIND_SIGNS[share.kind]))
    return text


def _legend(explained: Explained, sheet: Sheet, *, changed: bool) -> RenderableType:
    kinds = Table.grid(padding=(0, 1))
    kinds.add_column()
    kinds.add_column(no_wrap=True)
    for _ in range(2):
        kinds.add_column(justify="right", no_wrap=True)
    if changed:
        kinds.add_column(justify="right", no_wrap=True)
        kinds.add_row("", "", *[Text(word, style=QUIET) for word in ("came", "", "sent")])
    shown = [share for share in explained.kinds if share.came_tokens or share.sent_tokens]
    for share in sorted(shown, key=lambda share: -share.came_tokens):
        kinds.add_row(*_kind_row(share, explained.came_tokens, sheet, changed=changed))
    both = Table.grid(padding=(0, 0), expand=False)
    both.add_column()
    if not explained.tools:
        both.add_row(kinds)
        return both
    gap = 3 if sheet.width < 90 else 6
    both.add_column(width=gap)
    both.add_column()
    used = _KIND_CELLS + (_SENT_CELLS if changed else 0)
    both.add_row(kinds, "", _tools(explained.tools, sheet.width - used - gap))
    return both


def _kind_row(share: KindShare, came: int, sheet: Sheet, *, changed: bool) -> list[Text]:
    sign = (
        Text("■", style=KIND_COLOURS[share.kind])
        if sheet.coloured
        else Text(KIND_SIGNS[share.kind])
    )
    name = "by recollect" if share.kind == "ours" else share.kind
    row = [
        sign,
        Text(name),
        Text(f"{share.came_tokens:,}", style="bold" if share.came_tokens else QUIET),
        Text(percent(share.came_tokens, came), style=QUIET),
    ]
    if changed:
        same = share.sent_tokens == share.came_tokens
        row.append(Text(f"→ {share.sent_tokens:>7,}", style=QUIET if same else ""))
    return row


def _tools(tools: tuple[ToolShare, ...], cells: int) -> Table:
    """The tools whose results are largest, each with a bar beside its numbers."""
    whole = sum(tool.came_tokens for tool in tools)
    names = min(max(cell_len(tool.tool) for tool in tools[:_TOOLS]), max(8, cells // 3))
    bars = cells - max(names, 10) - 13  # the columns of numbers and what parts them
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(Text("results of", style=QUIET))
    for tool in tools[:_TOOLS]:
        width = max(0, round(bars * tool.came_tokens / max(1, tools[0].came_tokens)))
        table.add_row(
            Text(clipped(tool.tool, names)),
            Text(f"{tool.came_tokens:,}", style="bold"),
            Text(percent(tool.came_tokens, whole), style=QUIET),
            Text("▆" * width, style=KIND_COLOURS["tool results"]),
        )
    rest = tools[_TOOLS:]
    if rest:
        table.add_row(
            Text(f"{len(rest)} more", style=QUIET),
            Text(f"{sum(tool.came_tokens for tool in rest):,}", style=QUIET),
        )
    return table


def _reported(explained: Explained) -> Text | None:
    """How far our count is from the provider's, where the recording knows it."""
    reported = explained.reported_tokens
    if reported is None or not explained.came_tokens:
        return None
    text = f"The provider counted {reported:,} tokens for this request"
    missing = reported - explained.came_tokens
    if missing > reported // 4:
        text += f", {missing:,} of them in no message of the file"
    if any(share.kind == "not recorded" and share.came_tokens for share in explained.kinds):
        text += "; not recorded: system prompt, tools"
    return Text(f"{text}.", style=QUIET)


_MARGIN = 1
_KINDS = {
    "pi": "pi session",
    "claude-code": "Claude Code session",
    "codex": "Codex rollout",
    "opencode": "opencode session",
    "aider": "aider chat",
    "flat": "flat log",
    "request": "request body",
    "messages": "list of messages",
}
_SOURCES = {
    "argument": "by --window",
    "settings": "by your settings",
    "recording": "as recorded",
    "default": "assumed",
}
_DONE = {
    "left-out": "left out",
    "moved": "moved to its call",
    "synthesised": "answered by a stand-in",
    "merged": "joined",
    "opened": "an opening put before",
    "trimmed-space": "the space taken off",
}
_ROUND_WINDOWS = (1_000_000, 400_000, 200_000, 128_000, 64_000, 32_000, 16_000, 8_000, 4_000)


def draw_session(explained: Explained, console: Console, *, every: bool = False) -> None:
    """Draw the whole of it."""
    outer = Sheet.of(console)
    sheet = Sheet(width=outer.width - 2 * _MARGIN, coloured=outer.coloured)
    for section in (
        _header(explained, sheet),
        draw_tokens(explained, sheet),
        draw_filling(explained, sheet),
        draw_largest(explained, sheet),
        draw_fates(explained, sheet, every=every),
        _repairs(explained, sheet),
        _close(explained, sheet),
    ):
        lines = list(section)
        if lines:
            console.print()
        for line in lines:
            blank = isinstance(line, Text) and not line
            console.print("" if blank else Padding(line, (0, _MARGIN), expand=False))
    console.print()


def _header(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    recording = explained.recording
    turn = (
        "the next request"
        if explained.next_request
        else f"turn {explained.turn:,} of {explained.turns:,}"
    )
    name = clipped(recording.file, sheet.width - len(turn) - 22)
    left = Text.assemble(("recollect explain  ", ACCENT), (name, "bold"))
    yield spread(left, Text(turn, style="bold"), sheet.width)
    facts = [_KINDS.get(recording.kind, recording.kind)]
    if recording.version and recording.kind == "pi":
        facts[0] += f" v{recording.version}"
    if recording.runs > 1:
        facts.append(f"run {recording.run:,} of {recording.runs:,}")
    if recording.format != recording.kind:
        facts.append(f"{recording.format} format")
    if recording.model:
        facts.append(recording.model)
    facts += [_counted(recording.messages, "message"), _counted(recording.requests, "request")]
    if recording.compactions:
        facts.append(f"{_counted(recording.compactions, 'compaction')} recorded")
    yield Text(" · ".join(facts))
    window = explained.window
    source = _SOURCES.get(window.source, f"assumed for {recording.model}")
    line = Text.assemble(
        "window ",
        (f"{window.tokens:,}", "bold"),
        f" ({source}) · limit ",
        (f"{window.limit_tokens:,}", "bold"),
    )
    for more in (f" · preset {explained.preset}", " · the rest is left for the reply"):
        if line.cell_len + len(more) <= sheet.width:
            line.append(more)
    yield line
    if explained.skipped_turns:
        yield Text(
            f"{explained.skipped_turns:,} of the {explained.turn - 1:,} turns before were not "
            "replayed, to save time",
            style=QUIET,
        )
    yield from _passed_over(recording.passed_over)


def _passed_over(lines: tuple[str, ...]) -> Iterator[Text]:
    for line in lines[:2]:
        yield Text.assemble(("! ", MARK), line)
    if len(lines) > 2:
        yield Text.assemble(("! ", MARK), f"{len(lines) - 2:,} more lines passed over (--json)")


def _repairs(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    if not explained.repairs:
        return
    yield heading("Repairs", Text("what was put right for the provider", style=QUIET), sheet)
    yield Text()
    texts = [
        Text.assemble(repair.reason, (f" → {_DONE.get(repair.kind, repair.kind)}", GOOD))
        for repair in explained.repairs
    ]
    widest = max(text.cell_len for text in texts)
    for repair, text in zip(explained.repairs, texts, strict=True):
        times = f"{repair.this_turn:,}×" if repair.this_turn else "–"
        line = Text.assemble((f"{times:>5} ", "bold"), text)
        line.append(" " * (widest - text.cell_len))
        if repair.session != repair.this_turn:
            line.append(f"  {repair.session:,} in all", style=QUIET)
        places = "  " + " ".join(f"#{number:,}" for number in repair.numbers)
        line.append(clipped(places, sheet.width - line.cell_len), style=QUIET)
        yield line


def _close(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    over = explained.sent_tokens > explained.window.limit_tokens
    yield Text("─" * sheet.width, style=QUIET)
    yield Text(explained.said, style=f"bold {LIMIT}" if over else "bold")
    for stage in explained.stages:
        if stage.outcome in ("failed", "late") and stage.stage != "check":
            yield Text.assemble((f"! {stage.stage}: ", LIMIT), stage.reason)
    yield Text.assemble(("Next: ", QUIET), *_hints(explained))


def _hints(explained: Explained) -> list[Text | tuple[str, str]]:
    """What to try next: the turn where most happened, a window that would make a difference."""
    hints: list[tuple[str, str]] = []
    edited = [p.turn for p in explained.filling if p.new_edits and p.turn < explained.turn]
    if edited:
        hints.append((f"--turn {edited[-1]}", "the last batch of edits"))
    elif explained.turns > 1 and explained.turn == explained.turns:
        hints.append((f"--turn {max(1, explained.turn // 2)}", "the middle of the session"))
    smaller = min(explained.came_tokens, explained.window.tokens - 1)
    window = next((tokens for tokens in _ROUND_WINDOWS if tokens <= smaller), None)
    if window is not None:
        hints.append((f"--window {short_tokens(window)}", "a tighter fit"))
    if explained.recording.runs > 1:
        other = explained.recording.run % explained.recording.runs + 1
        hints.append((f"--run {other}", "another run"))
    hints.append(("--all", "every message"))
    pieces: list[Text | tuple[str, str]] = []
    for option, why in hints:
        pieces += [(option, ACCENT), (f" {why}   ", QUIET)]
    return pieces


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
