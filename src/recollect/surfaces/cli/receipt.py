"""`recollect receipt SESSION`: what a compaction did to what was known, as a page.

Reads only. Data goes to standard output; text from a memory is printed so that it cannot move
the cursor. What the page shows and what `--json` prints are the same record. What is lost comes
first, because it is what somebody may have to say again; every standing has a sign of its own.
"""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table
from rich.text import Text

from recollect.compaction.receipt import compare
from recollect.compaction.receipt_page import ReceiptPage, as_object, page_of, standing_number
from recollect.errors import FormatError, RecollectError
from recollect.inspect.sessions import stored_session
from recollect.plain_text import plain_line
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
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    instant,
    meant_session,
    print_json,
    session_store_options,
    when,
    with_store,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from recollect.ports import Store
    from recollect.values.batch import StoredSession
    from recollect.values.compaction import (
        CompactionRecord,
        CompactionResult,
        ProbeFinding,
        ProbeKind,
        Receipt,
    )


# The drawn page


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
    text = when(page.recorded.at)
    undone = ", undone" if page.undone else ""
    title = f"Compaction {page.number} of {page.of}{undone}  "
    name = clipped(plain_line(page.session), max(8, sheet.width - len(title) - len(text) - 2))
    return Text.assemble((title, ACCENT), (name, "bold"), "  ", (text, QUIET))


def _what_happened(page: ReceiptPage) -> str:
    result = page.recorded.result
    text = f"{result.trigger}, before turn {page.recorded.turn}: {plain_line(str(result.reason))}"
    if result.splits_a_turn:
        text += "; a turn was split"
    spent = result.spent
    if spent.calls:
        calls = "call" if spent.calls == 1 else "calls"
        text += (
            f"; {spent.calls} {calls}, {spent.input_tokens:,} tokens in, "
            f"{spent.output_tokens:,} out"
        )
    return f"{text}; {result.seconds:.1f} s"


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
    counts = Counter((finding.probe.kind, _standing_of(finding)) for finding in made.findings)
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


def _standing_of(finding: ProbeFinding) -> str:
    return "pinned" if finding.pinned else finding.standing


def _listed(title: str, standing: str, made: Receipt, sheet: Sheet) -> Iterator[RenderableType]:
    findings = [finding for finding in made.findings if _standing_of(finding) == standing]
    if not findings and standing != "lost":
        return
    yield Text()
    text = f"{len(findings)}"
    if standing == "pinned":
        text += f", {made.pinned_tokens:,} tokens added to the summary"
    yield heading(title, Text(text, style=QUIET), sheet)
    if not findings:
        yield Text("Nothing: all of it stands in the summary or was recalled.", style=GOOD)
    colour, sign = (LIMIT, "✗") if standing == "lost" else (MARK, "+")
    yield from _findings(findings[:_MOST_LISTED], sheet, f"{sign} ", colour)
    if len(findings) > _MOST_LISTED:
        left = len(findings) - _MOST_LISTED
        yield Text(f"  … and {left:,} more; --json has them all", style=QUIET)


def _findings(
    findings: Sequence[ProbeFinding], sheet: Sheet, sign: str, colour: str
) -> Iterator[Text]:
    for finding in findings:
        text, sentence = plain_line(finding.probe.text), plain_line(finding.probe.sentence)
        kind = f"{finding.probe.kind:10} "
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
    changed = [line for line in lines if line.change != "kept"]
    count = Counter(line.change for line in lines)
    text = f"{count['dropped']} dropped, {count['new']} new, {count['kept']} kept"
    title = f"Against summary {page.previous_number}"
    yield heading(title, Text(text, style=QUIET), sheet)
    signs = {"dropped": ("- ", LIMIT), "new": ("+ ", GOOD)}
    for diff_line in changed[:_MOST_DIFF]:
        sign, colour = signs[diff_line.change]
        yield Text(sign + clipped(plain_line(diff_line.text), sheet.width - 2), style=colour)
    if len(changed) > _MOST_DIFF:
        left = len(changed) - _MOST_DIFF
        yield Text(f"  … and {left:,} more; --json has them all", style=QUIET)


@click.command("receipt")
@click.option("--number", type=click.IntRange(min=1), metavar="N", help="Not the newest, this one.")
@click.option("--list", "listed", is_flag=True, help="List the session's compactions.")
@session_store_options
def receipt(
    *,
    session: str,
    number: int | None,
    listed: bool,
    url: str | None,
    space: str | None,
    workspace: Path,
    as_json: bool,
) -> None:
    """Show what a compaction kept, what can be recalled, and what is lost."""
    session, where = meant_session(session, space, workspace, url)

    async def work(
        store: Store, place: Place
    ) -> tuple[str, Sequence[CompactionRecord], StoredSession | None]:
        del place
        name = await stored_session(store, session)
        return name, await store.compactions(name), await store.session(name)

    session, records, state = with_store(url, where, work, spool="told")
    standing = standing_number(state)
    if listed:
        _list(session, records, standing, as_json=as_json)
        return
    if not records and state is not None:
        name = plain_line(session)
        raise RecollectError(
            f"no compaction of session {name!r} is kept in this space: a receipt is made of every "
            "compaction of ours, and of none that an agent does itself; what such a summary "
            f"dropped is in memory all the same: `recollect memory show {shlex.quote(name)}`"
        )
    if not records:
        raise RecollectError(
            f"no compaction of session {plain_line(session)!r} is kept in this space; "
            "`recollect memory sessions` lists the sessions"
        )
    page = page_of(session, records, number, standing)
    if as_json:
        print_json(as_object(page))
        return
    from recollect.surfaces.cli.draw_paint import Sheet

    out = console()
    for line in draw_receipt(page, Sheet.of(out)):
        out.print(line)


def _list(
    session: str, records: Sequence[CompactionRecord], standing: int | None, *, as_json: bool
) -> None:
    rows = [
        {**_row(compaction), "undone": standing is not None and compaction.number > standing}
        for compaction in records
    ]
    if as_json:
        print_json({"session": session, "compactions": rows})
        return
    if not rows:
        click.echo(f"No compaction of session {plain_line(session)!r} is kept in this space.")
        return
    click.echo("   n  when              trigger     tokens             lost  recallable  pinned")
    for record, row in zip(records, rows, strict=True):
        tokens = f"{row['tokens_before']:>8,} → {row['tokens_after']:<8,}"
        click.echo(
            f"{record.number:>4}  {when(record.at):16}  {row['trigger']:10}{tokens} "
            f"{row['lost']:>5}  {row['recallable']:>10}  {row['pinned']:>6}"
            + ("  undone" if row["undone"] else "")
        )


def _row(record: CompactionRecord) -> dict[str, Any]:
    from recollect.formats.stored_records import read_record

    try:
        result = read_record(record.body).result
    except FormatError as error:
        raise RecollectError(f"compaction {record.number} cannot be read: {error}") from error
    findings = result.receipt.findings if result.receipt else ()
    standings = Counter(finding.standing for finding in findings)
    return {
        "number": record.number,
        "at": instant(record.at),
        "trigger": result.trigger,
        "tokens_before": result.tokens_before,
        "tokens_after": result.tokens_after,
        "in_summary": standings["in summary"],
        "recallable": standings["recallable"],
        "lost": standings["lost"],
        "pinned": sum(finding.pinned for finding in findings),
    }
