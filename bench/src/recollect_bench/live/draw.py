"""Draws a run of the live bench: for the terminal, and as sections of a page of figures."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect_bench.live.result import LivePart, LiveResult, Missed

_SHOWN_CHARS = 200


def draw(result: LiveResult) -> None:
    """A table a part: figures down, strategies across; then what was missed."""
    console = Console()
    for part in result.parts:
        table = Table(title=f"recollect bench live: {part.name}", title_justify="left", box=None)
        table.add_column("figure")
        for strategy in part.figures:
            table.add_column(strategy, justify="right")
        for name, *values in _rows(part):
            table.add_row(Text(name, style="bold"), *values)
        console.print(table)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    for part in result.parts:
        for miss in part.misses:
            _draw_miss(console, miss)


def _draw_miss(console: Console, miss: Missed) -> None:
    said = Text(f"\n{miss.part} {miss.kind} ({miss.lost_by}): ", style="bold")
    said.append(miss.ask, style="not bold")
    console.print(said, soft_wrap=True)
    for text in miss.absent:
        console.print(Text(f"  absent: {' '.join(text.split())[:_SHOWN_CHARS]}"), soft_wrap=True)
    tokens = f"  {miss.block_tokens} tokens of blocks in {miss.request_tokens}"
    console.print(Text(tokens, style="dim"))


def _rows(part: LivePart) -> list[list[str]]:
    return [
        [name, *(_number(held.get(name)) for held in part.figures.values())] for name in part.rows
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    whole = float(value).is_integer() and abs(value) >= 2
    return f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3f}"


def sections(results: Sequence[LiveResult]) -> list[str]:
    """Each part of each run as a section of Markdown; its command stands above it."""
    written: list[str] = []
    for result in results:
        for part in result.parts:
            written.append(f"## {part.name}\n\n`{command_of(result)}`\n")
            shown = ["figure", *part.figures]
            written.append(
                "\n".join(
                    [
                        f"| {' | '.join(shown)} |",
                        f"|---|{'---:|' * len(part.figures)}",
                        *(f"| {' | '.join(row)} |" for row in _rows(part)),
                    ]
                )
                + "\n"
            )
    if results:
        written.append("\n".join(f"- {note}" for note in results[0].notes) + "\n")
    return written


def command_of(result: LiveResult) -> str:
    """The command that gives these figures again."""
    words = ["recollect bench live"]
    for option, value in result.chosen.items():
        values = value if isinstance(value, list | tuple) else [value]
        words += [f"--{option}" if one is True else f"--{option} {one}" for one in values]
    return " ".join(words)
