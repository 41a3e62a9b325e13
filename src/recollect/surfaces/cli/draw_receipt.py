"""Draws the page of a receipt: how small the view became, what is lost, what changed.

What is lost comes first, because it is what somebody may have to say again. Text is clipped to
the width, without colours every standing has a sign of its own.
"""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from recollect.compaction.receipt import compare
from recollect.surfaces.cli.draw_paint import (
    ACCENT,
    GOOD,
    LIMIT,
    MARK,
    QUIET,
    Sheet,
    clipped,
    heading,
    percent,
)
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.store_options import when

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from recollect.surfaces.cli.receipt_page import ReceiptPage
    from recollect.values.compaction import CompactionResult, ProbeFinding, ProbeKind, Receipt

KIND_NAMES: Final[dict[ProbeKind, str]] = {
    "constraint": "constraints",
    "decision": "decisions",
    "task": "open tasks",
    "attempt": "failed attempts",
    "error": "errors",
    "path": "paths",
    "url": "addresses",
    "symbol": "symbols",
    "hash": "hashes",
    "number": "numbers",
}
_MOST_LISTED: Final = 40
_MOST_DIFF: Final = 60
_BAR_LABEL: Final = 17  # "before  168,031  "


def draw_receipt(page: ReceiptPage, sheet: Sheet) -> Iterator[RenderableType]:
    """The page, part by part."""
    result = page.recorded.result
    yield _title(page, sheet)
    for line in wrap(_what_happened(page), sheet.width):
        yield Text(line, style=QUIET)
    yield Text()
    yield from _bars(result, sheet)
    if result.receipt is None:
        yield Text()
        yield Text("No receipt was made for this compaction.", style=MARK)
    else:
        yield from _standings(result.receipt, sheet)
        yield from _listed("Lost", "lost", result.receipt, sheet)
        yield from _listed("Pinned", "pinned", result.receipt, sheet)
    yield from _diff(page, sheet)
    for note in (*(result.receipt.notes if result.receipt else ()), *result.notes):
        for at, line in enumerate(wrap(plain_line(note), sheet.width - 2)):
            yield Text.assemble(("! " if at == 0 else "  ", MARK), line)


def _title(page: ReceiptPage, sheet: Sheet) -> Text:
    said = when(page.recorded.at)
    undone = ", undone" if page.undone else ""
    title = f"Compaction {page.number} of {page.of}{undone}  "
    name = clipped(plain_line(page.session), max(8, sheet.width - len(title) - len(said) - 2))
    return Text.assemble((title, ACCENT), (name, "bold"), "  ", (said, QUIET))


def _what_happened(page: ReceiptPage) -> str:
    result = page.recorded.result
    said = f"{result.trigger}, before turn {page.recorded.turn}: {plain_line(str(result.reason))}"
    if result.splits_a_turn:
        said += "; a turn was split"
    spent = result.spent
    if spent.calls:
        calls = "call" if spent.calls == 1 else "calls"
        said += (
            f"; {spent.calls} {calls}, {spent.input_tokens:,} tokens in, "
            f"{spent.output_tokens:,} out"
        )
    return f"{said}; {result.seconds:.1f} s"


def _bars(result: CompactionResult, sheet: Sheet) -> Iterator[Text]:
    before, after = result.tokens_before, result.tokens_after
    cells = max(10, sheet.width - _BAR_LABEL - 8)
    scale = max(before, after, 1)
    for label, tokens, colour, sign in (("before", before, MARK, "▒"), ("after", after, GOOD, "█")):
        line = Text.assemble((f"{label:6} ", QUIET), (f"{tokens:>9,} ", "bold"))
        line.append_text(sheet.filled(max(1, cells * tokens // scale), colour, sign))
        if label == "after":
            line.append(f" {percent(after, before)}", style=QUIET)
        yield line


def _standings(made: Receipt, sheet: Sheet) -> Iterator[RenderableType]:
    yield Text()
    total = len(made.findings)
    yield heading("What was known", Text(f"{total} probes", style=QUIET), sheet)
    if not total:
        yield Text("Nothing exact was found in what was cut.", style=QUIET)
        return
    counts = Counter((one.probe.kind, _standing_of(one)) for one in made.findings)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(4):
        table.add_column(justify="right", no_wrap=True)
    titles = ("in summary", "pinned", "recallable", "lost")
    table.add_row("", *(Text(title, style=QUIET) for title in titles))
    shown = [kind for kind in KIND_NAMES if any(counts[kind, title] for title in titles)]
    for kind in shown:
        row = [_counted(counts[kind, title], title) for title in titles]
        table.add_row(KIND_NAMES[kind], *row)
    if len(shown) > 1:
        sums = [sum(counts[kind, title] for kind in shown) for title in titles]
        row = [_counted(one, title) for one, title in zip(sums, titles, strict=True)]
        table.add_row(Text("all", style="bold"), *row)
    yield table


def _counted(count: int, title: str) -> Text:
    if not count:
        return Text("·", style=QUIET)
    return Text(f"{count:,}", style=f"bold {LIMIT}" if title == "lost" else "bold")


def _standing_of(one: ProbeFinding) -> str:
    return "pinned" if one.pinned else one.standing


def _listed(title: str, standing: str, made: Receipt, sheet: Sheet) -> Iterator[RenderableType]:
    held = [one for one in made.findings if _standing_of(one) == standing]
    if not held and standing != "lost":
        return
    yield Text()
    said = f"{len(held)}"
    if standing == "pinned":
        said += f", {made.pinned_tokens:,} tokens added to the summary"
    yield heading(title, Text(said, style=QUIET), sheet)
    if not held:
        yield Text("Nothing: all of it stands in the summary or was recalled.", style=GOOD)
    colour, sign = (LIMIT, "✗") if standing == "lost" else (MARK, "+")
    yield from _findings(held[:_MOST_LISTED], sheet, f"{sign} ", colour)
    if len(held) > _MOST_LISTED:
        left = len(held) - _MOST_LISTED
        yield Text(f"  … and {left:,} more; --json has them all", style=QUIET)


def _findings(held: Sequence[ProbeFinding], sheet: Sheet, sign: str, colour: str) -> Iterator[Text]:
    for one in held:
        text, sentence = plain_line(one.probe.text), plain_line(one.probe.sentence)
        kind = f"{one.probe.kind:10} "
        yield Text.assemble(
            (sign, colour),
            (kind, QUIET),
            (clipped(text, sheet.width - len(sign) - len(kind)), "bold"),
        )
        if sentence and sentence != text:
            indent = len(sign) + len(kind)
            yield Text(" " * indent + clipped(sentence, sheet.width - indent), style=QUIET)


def _diff(page: ReceiptPage, sheet: Sheet) -> Iterator[RenderableType]:
    yield Text()
    if page.previous_number is None:
        first = page.number == 1
        note = "the first of this session" if first else "the one before it is no longer kept"
        yield heading("Summary", Text(note, style=QUIET), sheet)
        for line in page.recorded.result.summary.splitlines()[:_MOST_DIFF]:
            yield Text(clipped(plain_line(line), sheet.width))
        return
    lines = compare(page.previous_summary, page.recorded.result.summary)
    changed = [one for one in lines if one.change != "kept"]
    count = Counter(one.change for one in lines)
    said = f"{count['dropped']} dropped, {count['new']} new, {count['kept']} kept"
    title = f"Against summary {page.previous_number}"
    yield heading(title, Text(said, style=QUIET), sheet)
    signs = {"dropped": ("- ", LIMIT), "new": ("+ ", GOOD)}
    for one in changed[:_MOST_DIFF]:
        sign, colour = signs[one.change]
        yield Text(sign + clipped(plain_line(one.text), sheet.width - 2), style=colour)
    if len(changed) > _MOST_DIFF:
        left = len(changed) - _MOST_DIFF
        yield Text(f"  … and {left:,} more; --json has them all", style=QUIET)
