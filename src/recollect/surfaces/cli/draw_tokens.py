"""Draws where the tokens go: stacked bars by kind, their legend, and the tools beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from recollect.surfaces.cli.draw_paint import (
    DARK_INK,
    KIND_COLOURS,
    KIND_SIGNS,
    LIMIT,
    QUIET,
    Sheet,
    clipped,
    heading,
    percent,
)
from recollect.surfaces.cli.explain_kinds import apportioned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from recollect.surfaces.cli.explained import Explained, KindShare, ToolShare

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
    return Text.assemble(
        (f"{percent(sent, limit)} of the limit", style or QUIET),
    )


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
    said = f"The provider counted {reported:,} tokens for this request"
    missing = reported - explained.came_tokens
    if missing > reported // 4:
        said += f", {missing:,} of them in no message of the file"
    if any(share.kind == "not recorded" and share.came_tokens for share in explained.kinds):
        said += "; not recorded: system prompt, tools"
    return Text(f"{said}.", style=QUIET)
