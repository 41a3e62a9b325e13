"""Draws an explained session on a console, section by section.

Reads nothing but the `Explained` it is given; what is on the screen is in `--json` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from recollect.surfaces.cli.draw_fates import draw_fates, draw_largest
from recollect.surfaces.cli.draw_filling import draw_filling
from recollect.surfaces.cli.draw_paint import (
    ACCENT,
    GOOD,
    LIMIT,
    MARK,
    QUIET,
    Sheet,
    clipped,
    heading,
    short_tokens,
    spread,
)
from recollect.surfaces.cli.draw_tokens import draw_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from recollect.surfaces.cli.explained import Explained

_MARGIN = 1
_KINDS = {
    "pi": "pi session",
    "claude-code": "Claude Code session",
    "codex": "Codex rollout",
    "flat": "flat log",
    "request": "request body",
    "messages": "list of messages",
    "tau-bench": "tau-bench run",
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
    told = [
        Text.assemble(repair.reason, (f" → {_DONE.get(repair.kind, repair.kind)}", GOOD))
        for repair in explained.repairs
    ]
    widest = max(text.cell_len for text in told)
    for repair, text in zip(explained.repairs, told, strict=True):
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
