"""Draws sessions and receipts in a terminal, with rich. Every color has its own character, so a
drawing without colors shows the same. Text is always `rich.text.Text`, never markup. No line is
wider than the sheet."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from textwrap import wrap
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from recollect.core.compaction.receipt import compare
from recollect.core.formats.json_text import when
from recollect.core.turn.token_kinds import TokenKind, apportioned
from recollect.core.values.compaction import Receipt
from recollect.core.values.report import FateKind
from recollect.hosts.inspect.explained import Explained, turn_line
from recollect.hosts.inspect.sessions import KIND_NAMES, STANDINGS, ReceiptPage, standing_of
from recollect.hosts.inspect.turns import (
    FATES,
    MessageFate,
    Stretch,
    reason_text,
    span_text,
    stretches,
    why_text,
)
from recollect.system.plain_text import number_of, plain_line

QUIET = "#7d8694"
ACCENT = "bold #4b8bf5"
LIMIT = "#e0475b"
MARK = "#d98a16"
GOOD = "#2fa57b"
KIND_STYLES: Final[dict[TokenKind, tuple[str, str]]] = {
    "system": ("=", "#8b95a5"),
    "tools": ("%", "#b08968"),
    "not recorded": ("?", "#aab2c0"),
    "user": ("░", "#4b8bf5"),
    "assistant": ("▒", "#2fb183"),
    "thinking": ("~", "#a879f0"),
    "tool calls": ("▓", "#eda63a"),
    "tool results": ("█", "#ee7355"),
    "images": ("#", "#e667a8"),
    "summaries": ("≡", "#27b3c4"),
    "ours": ("+", "#c9525f"),
    "other": (":", "#6f7c91"),
}
FATE_STYLES: Final[dict[FateKind, tuple[str, str]]] = {
    "kept": ("▇", "#4d9a83"),
    "changed": ("▃", "#d98a16"),
    "left out": ("▁", "#e0475b"),
    "summarized": ("≡", "#a879f0"),
    "inserted": ("+", "#4b8bf5"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The width of a drawing, and whether it has colors."""

    width: int
    coloured: bool = False

    @classmethod
    def of(cls, console: Console) -> Sheet:
        """Return the sheet of a console."""
        return cls(
            width=max(40, console.width),
            coloured=console.color_system is not None and not console.no_color,
        )

    def filled(self, cells: int, colour: str, sign: str) -> Text:
        """Draw a solid bar: a colored background, or characters on a sheet without colors."""
        return Text(" " * cells, style=f"on {colour}") if self.coloured else Text(sign * cells)


def as_text(drawing: Iterable[RenderableType], *, width: int = 100) -> str:
    """Render a drawing as plain text."""
    console = Console(
        file=io.StringIO(), width=width, color_system=None, highlight=False, markup=False
    )
    for line in drawing:
        console.print(line)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def in_runs(cells: Iterable[tuple[str, str]]) -> Text:
    """Join characters with their styles into one text; neighbors with the same style become one
    span."""
    text = Text()
    for style, run in groupby(cells, key=itemgetter(1)):
        text.append("".join(sign for sign, _ in run), style=style)
    return text


def clipped(text: str, cells: int) -> str:
    """Cut a text to this many cells. Wide characters take two."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - 1)).rstrip() + "…" if cells > 0 else ""


def heading(title: str, note: Text | str, sheet: Sheet) -> Text:
    """Draw a section's title, a rule to the edge, and a note."""
    right = Text(note, style=QUIET) if isinstance(note, str) else note
    rule = sheet.width - cell_len(title) - right.cell_len - 2
    if rule < 3:
        return Text(title, style=ACCENT)
    return Text.assemble((title, ACCENT), " ", ("─" * (rule - 1), QUIET), "  ", right)


def percent(part: int, whole: int) -> str:
    """Format a share in at most four characters."""
    share = part / whole if whole else 0.0
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def _grid(*columns: str) -> Table:
    table = Table.grid(padding=(0, 1))
    for column in columns:
        if column == "fold":
            table.add_column(overflow="fold")
        else:
            table.add_column(justify="right" if column == "right" else "left", no_wrap=True)
    return table


_MARGIN: Final = 1
_MOST_STRETCHES: Final = 16
"""If there are more stretches than this, stretches with the same reason are joined."""
_LABEL: Final = 18  # width of "received 168,031 " before a bar
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_KINDS: Final = {
    "pi": "pi session",
    "claude-code": "Claude Code session",
    "codex": "Codex rollout",
    "request": "request body",
    "messages": "list of messages",
}
_SOURCES: Final = {
    "argument": "by --window",
    "settings": "by your settings",
    "recording": "as recorded",
    "default": "assumed",
}


def draw_session(explained: Explained, console: Console, *, every: bool = False) -> None:
    """Draw a session at one turn. If `every` is true, each message has its own line."""
    outer = Sheet.of(console)
    sheet = Sheet(width=outer.width - 2 * _MARGIN, coloured=outer.coloured)
    for section in (
        _header(explained, sheet),
        _tokens(explained, sheet),
        _filling(explained, sheet),
        _largest(explained, sheet),
        _fates(explained, sheet, every=every),
        _close(explained, sheet),
    ):
        for at, line in enumerate(section):
            if not at:
                console.print()
            console.print(Padding(line, (0, _MARGIN), expand=False))
    console.print()


def _header(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    recording, window = explained.recording, explained.window
    turn = f"turn {explained.turn:,} of {explained.turns:,}"
    turn = "the next request" if explained.next_request else turn
    name = clipped(recording.file, sheet.width - len(turn) - 22)
    gap = max(2, sheet.width - 19 - cell_len(name) - len(turn))
    yield Text.assemble(("recollect explain  ", ACCENT), (name, "bold"), " " * gap, (turn, "bold"))
    facts = [
        _KINDS.get(recording.kind, recording.kind),
        *([f"the first of {recording.runs:,} runs"] if recording.runs > 1 else []),
        *([f"{recording.format} format"] if recording.format != recording.kind else []),
        *([recording.model] if recording.model else []),
        number_of(recording.messages, "message"),
        number_of(recording.requests, "request"),
        *([number_of(recording.compactions, "compaction")] if recording.compactions else []),
    ]
    yield Text(" · ".join(facts))
    source = _SOURCES.get(window.source, f"assumed for {recording.model}")
    yield Text(
        f"window {window.tokens:,} ({source}) · limit {window.limit_tokens:,} · "
        f"preset {explained.preset}"
    )
    if explained.skipped_turns:
        yield Text(
            f"{explained.skipped_turns:,} of the {explained.turn - 1:,} turns before were not "
            "replayed, to save time",
            style=QUIET,
        )
    for line in recording.passed_over[:2]:
        yield Text.assemble(("! ", MARK), line)
    if (more := len(recording.passed_over) - 2) > 0:
        yield Text.assemble(("! ", MARK), f"{more:,} more lines skipped (--json lists them)")


def _tokens(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    came, sent, limit = explained.came_tokens, explained.sent_tokens, explained.window.limit_tokens
    share = Text(f"{percent(sent, limit)} of the limit", style=LIMIT if sent > limit else QUIET)
    yield heading("Where the tokens go", share, sheet)
    cells, scale = sheet.width - _LABEL, max(came, sent, 1)
    received = [kind.came_tokens for kind in explained.kinds]
    kept = [kind.sent_tokens for kind in explained.kinds]
    for label, tokens, amounts in (("received", came, received), ("sent", sent, kept)):
        bar = Text.assemble((f"{label:<8} ", QUIET), (f"{tokens:>8,} ", "bold"))
        widths = apportioned(amounts, cells * tokens // scale)
        for kind, width in zip(explained.kinds, widths, strict=True):
            sign, colour = KIND_STYLES[kind.kind]
            bar.append_text(sheet.filled(width, colour, sign))
        yield bar
    table = _grid("left", "left", *["right"] * 4)
    table.add_row("", *(Text(text, style=QUIET) for text in ("", "received", "", "sent", "")))
    shown = [kind for kind in explained.kinds if kind.came_tokens or kind.sent_tokens]
    for kind in sorted(shown, key=lambda kind: -kind.came_tokens):
        sign, colour = KIND_STYLES[kind.kind]
        table.add_row(
            Text("■" if sheet.coloured else sign, style=colour),
            "by recollect" if kind.kind == "ours" else kind.kind,
            Text(f"{kind.came_tokens:,}", style="bold"),
            Text(percent(kind.came_tokens, came), style=QUIET),
            f"{kind.sent_tokens:,}",
            Text(percent(kind.sent_tokens, sent), style=QUIET),
        )
    for tool in explained.tools[:6]:
        table.add_row(
            "",
            Text(clipped(f"  {tool.tool}, {number_of(tool.results, 'result')}", 34), style=QUIET),
            *(Text(f"{tool.came_tokens:,}", style=QUIET), ""),
            *(Text(f"{tool.sent_tokens:,}", style=QUIET), ""),
        )
    yield table
    if explained.reported_tokens is not None:
        text = f"The provider counted {explained.reported_tokens:,} tokens for this request."
        yield Text(text, style=QUIET)


def _filling(explained: Explained, sheet: Sheet) -> Iterator[Text]:
    points, limit = explained.filling, explained.window.limit_tokens
    if len(points) < 2:
        return
    cells = min(sheet.width - _LABEL, len(points))
    groups = [
        points[at * len(points) // cells : (at + 1) * len(points) // cells] for at in range(cells)
    ]
    highest = max(limit, *(max(point.came_tokens, point.sent_tokens) for point in points))
    yield heading("How the window filled", f"█ is {highest:,} tokens", sheet)
    for label, name, colour in (("received", "came", LIMIT), ("sent", "sent", "#4b8bf5")):
        sizes = [max(getattr(point, f"{name}_tokens") for point in group) for group in groups]
        signs = "".join(_LEVELS[min(7, 8 * size // (highest + 1))] for size in sizes)
        yield Text.assemble((f"{label:<8} {max(sizes):>8,} ", QUIET), (signs, colour))
    marks = [
        ("▲", LIMIT)
        if any(point.moment is not None and point.new_edits for point in group)
        else ("·", QUIET)
        for group in groups
    ]
    yield Text.assemble((f"{'turn':{_LABEL}}", QUIET), in_runs(marks))
    yield Text(f"{'':{_LABEL}}▲ edited in a batch", style=QUIET)


def _largest(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    if not explained.largest:
        return
    whole = sum(item.tokens_before for item in explained.largest)
    share = f"{percent(whole, explained.came_tokens)} of the received tokens"
    yield heading("The largest messages", share, sheet)
    yield from (_message(item, sheet) for item in explained.largest)


def _fates(explained: Explained, sheet: Sheet, *, every: bool) -> Iterator[RenderableType]:
    fates = explained.fates
    counted = Counter(fate.fate for fate in fates)
    counts = Text()
    for fate in FATES:
        if counted[fate]:
            sign, colour = FATE_STYLES[fate]
            counts.append(f"  {sign} ", style=colour).append(f"{fate} {counted[fate]:,}")
    title = "Each message's outcome" if every else "Outcomes of the messages"
    yield heading(title, counts, sheet)
    if every:
        yield from (_message(fate, sheet, reason=True) for fate in fates)
        return
    runs = stretches(fates)
    yield _table(runs if len(runs) <= _MOST_STRETCHES else stretches(fates, together=True))


def _message(item: MessageFate, sheet: Sheet, *, reason: bool = False) -> Text:
    sign, colour = FATE_STYLES[item.fate]
    kept = item.fate == "kept"
    after = "" if kept else f" → {item.tokens_after:,}"
    line = Text.assemble(
        (f"{f'#{item.number:,}' if item.number else '':>6} ", QUIET),
        (f"{sign} {item.fate if reason else '':<{10 if reason else 0}}", colour),
        f"{clipped(item.what, 20):<20} ",
        (f"{item.tokens_before:>8,}{after}  ", "bold"),
        "" if kept or not reason else f"{reason_text(item.reasons)}  ",
    )
    line.append(clipped(item.excerpt, sheet.width - line.cell_len), style=QUIET)
    return line


def _table(found: Sequence[Stretch]) -> Table:
    table = _grid("left", "left", "right", "left", "right", "right", "fold")
    for stretch in found:
        sign, colour = FATE_STYLES[stretch.fate]
        table.add_row(
            Text(sign, style=colour),
            Text(stretch.fate, style=f"bold {colour}"),
            Text(f"{stretch.count:,}", style="bold"),
            Text(span_text(stretch), style=QUIET),
            f"{stretch.tokens_before:,}" if stretch.tokens_before else "",
            Text("" if stretch.fate == "kept" else f"→ {stretch.tokens_after:,}", style=colour),
            Text(why_text(stretch)),
        )
    return table


def _close(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    over = explained.sent_tokens > explained.window.limit_tokens
    yield Text("─" * sheet.width, style=QUIET)
    yield Text(turn_line(explained), style=f"bold {LIMIT}" if over else "bold")
    for stage in explained.stages:
        if stage.outcome in ("failed", "late") and stage.stage != "check":
            yield Text.assemble((f"! {stage.stage}: ", LIMIT), reason_text(stage.reasons))
    yield Text("Next: --turn N another turn, --window N a tighter fit, --all every message", QUIET)


_MOST_LISTED: Final = 40


def draw_receipt(page: ReceiptPage, sheet: Sheet) -> Iterator[RenderableType]:
    """Draw a compaction: lost content first, because a user may have to repeat it."""
    result, receipt = page.recorded.result, page.recorded.result.receipt
    title = f"Compaction {page.number} of {page.of}{', undone' if page.undone else ''}  "
    at = when(page.recorded.at)
    name = clipped(plain_line(page.session), max(8, sheet.width - len(title) - len(at) - 2))
    yield Text.assemble((title, ACCENT), (name, "bold"), "  ", (at, QUIET))
    spent = result.spent
    text = f"{result.trigger}, before turn {page.recorded.turn}: {plain_line(str(result.reason))}"
    text += "; a turn was split" if result.splits_a_turn else ""
    if spent.calls:
        text += f"; {number_of(spent.calls, 'call')}, {spent.input_tokens:,} tokens in, "
        text += f"{spent.output_tokens:,} out"
    yield from (
        Text(line, style=QUIET) for line in wrap(f"{text}; {result.seconds:.1f} s", sheet.width)
    )
    before, after = result.tokens_before, result.tokens_after
    cells = max(10, sheet.width - 25)
    for label, tokens, colour, sign in (("before", before, MARK, "▒"), ("after", after, GOOD, "█")):
        line = Text.assemble((f"{label:6} ", QUIET), (f"{tokens:>9,} ", "bold"))
        width = max(1, cells * tokens // max(before, after, 1))
        line.append_text(sheet.filled(width, colour, sign))
        yield line.append(f" {percent(after, before)}" if label == "after" else "", style=QUIET)
    if receipt is None:
        yield Text("No receipt was made for this compaction.", style=MARK)
    else:
        yield from _standings(receipt, sheet)
        yield from _listed("lost", receipt, sheet)
        note = f", {receipt.pinned_tokens:,} tokens added to the summary"
        yield from _listed("pinned", receipt, sheet, note)
    yield from _summary(page, sheet)
    for note in (*(receipt.notes if receipt else ()), *result.notes):
        yield from (
            Text(f"! {line}", style=MARK) for line in wrap(plain_line(note), sheet.width - 2)
        )


def _standings(receipt: Receipt, sheet: Sheet) -> Iterator[RenderableType]:
    of = f" of {receipt.details:,}" if receipt.details else ""
    yield heading("Details checked", f"{receipt.checked:,}{of}", sheet)
    counts = Counter((finding.probe.kind, standing_of(finding)) for finding in receipt.findings)
    table = _grid("left", *["right"] * len(STANDINGS))
    table.add_row("", *(Text(title, style=QUIET) for title in STANDINGS))
    for kind, name in KIND_NAMES.items():
        row = [counts[kind, title] for title in STANDINGS]
        if any(row):
            table.add_row(name, *(f"{count:,}" if count else "·" for count in row))
    sums = [sum(counts[kind, title] for kind in KIND_NAMES) for title in STANDINGS]
    table.add_row("all", *(Text(f"{count:,}", style="bold") for count in sums))
    yield table
    if receipt.not_checked:
        rest = f"Not checked: {number_of(receipt.not_checked, 'more detail')} of these messages."
        yield from (Text(line, style=QUIET) for line in wrap(rest, sheet.width))


def _listed(standing: str, receipt: Receipt, sheet: Sheet, note: str = "") -> Iterator[Text]:
    found = [finding for finding in receipt.findings if standing_of(finding) == standing]
    if not found and standing != "lost":
        return
    yield heading(standing.capitalize(), f"{len(found)}{note}", sheet)
    if not found:
        none = "No checked detail is lost: each is in the summary or was recalled."
        yield from (Text(line, style=GOOD) for line in wrap(none, sheet.width))
    colour, sign = (LIMIT, "✗") if standing == "lost" else (MARK, "+")
    for one in found[:_MOST_LISTED]:
        text, sentence = plain_line(one.probe.text), plain_line(one.probe.sentence)
        kind = f"{sign} {one.probe.kind:10} "
        yield Text.assemble((kind, colour), (clipped(text, sheet.width - len(kind)), "bold"))
        if sentence not in ("", text):
            indent = len(kind)
            yield Text(" " * indent + clipped(sentence, sheet.width - indent), style=QUIET)
    yield from _rest(len(found) - _MOST_LISTED)


def _summary(page: ReceiptPage, sheet: Sheet) -> Iterator[Text]:
    summary = page.recorded.result.summary
    signs = {"dropped": ("- ", LIMIT), "new": ("+ ", GOOD), "kept": ("", "")}
    if page.previous_number is None:
        why = (
            "the first of this session"
            if page.number == 1
            else "the previous summary is not stored"
        )
        yield heading("Summary", why, sheet)
        lines = [("", "", line) for line in summary.splitlines()]
    else:
        diff = compare(page.previous_summary, summary)
        count = Counter(line.change for line in diff)
        note = f"{count['dropped']} dropped, {count['new']} new, {count['kept']} kept"
        yield heading(f"Against summary {page.previous_number}", note, sheet)
        lines = [(*signs[line.change], line.text) for line in diff if line.change != "kept"]
    for sign, colour, text in lines[:_MOST_LISTED]:
        yield Text(sign + clipped(plain_line(text), sheet.width - 2), style=colour)
    yield from _rest(len(lines) - _MOST_LISTED)


def _rest(count: int) -> Iterator[Text]:
    if count > 0:
        yield Text(f"  … and {count:,} more; --json has them all", style=QUIET)
