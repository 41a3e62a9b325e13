"""Explanations of sessions and receipts of compactions as lines of plain text. The inspector draws
the same values as pictures. Text of messages never makes a line wider than the given width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from rich.cells import cell_len, set_cell_size

from recollect.core.formats.json_text import when
from recollect.core.values.compaction import Receipt
from recollect.hosts.inspect.explained import Explained, turn_line
from recollect.hosts.inspect.sessions import KIND_NAMES, STANDINGS, ReceiptPage, standing_of
from recollect.hosts.inspect.turns import (
    FATES,
    MessageFate,
    reason_text,
    span_text,
    stretches,
    why_text,
)
from recollect.system.plain_text import number_of, plain_line

MIN_WIDTH: Final = 60
"""The columns of numbers need this width."""
_MAX_STRETCHES: Final = 16
"""If there are more stretches than this, stretches with the same reason are joined."""
# Not measured: the most that a person reads at once; `--json` has all.
_MAX_LISTED: Final = 40
_MAX_TOOLS: Final = 6
_MAX_MATCHES: Final = 5
_FILE_KINDS: Final = {
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


def clip_text(text: str, cells: int) -> str:
    """Cut a text to this many cells of a terminal. Wide characters take two."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - 1)).rstrip() + "…" if cells > 0 else ""


def percent(part: int, total: int) -> str:
    """Format a share in at most four characters."""
    share = part / total if total else 0.0
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def session_lines(explanation: Explained, width: int, *, lists_all: bool = False) -> Iterator[str]:
    """Describe a session at one turn. If `every` is true, each message has its own line."""
    yield from _recording_lines(explanation, width)
    yield from _token_lines(explanation)
    if explanation.largest:
        largest_tokens = sum(fate.tokens_before for fate in explanation.largest)
        share = percent(largest_tokens, explanation.came_tokens)
        yield f"\nThe largest messages: {share} of the received tokens"
        yield from (_message_line(fate, width) for fate in explanation.largest)
    counts = Counter(fate.fate for fate in explanation.fates)
    outcomes_text = ", ".join(f"{counts[fate]:,} {fate}" for fate in FATES if counts[fate])
    yield f"\nOutcomes of the messages: {outcomes_text}"
    if lists_all:
        yield from (_message_line(fate, width, reason=True) for fate in explanation.fates)
    else:
        yield from stretch_lines(explanation.fates, width)
    yield ""
    yield from wrap(turn_line(explanation), width)
    for stage in explanation.stages:
        if stage.outcome in ("failed", "late") and stage.stage != "check":
            yield from wrap(f"! {stage.stage}: {reason_text(stage.reasons)}", width)
    yield "Next: --turn N another turn, --window N a tighter fit, --all"


def _recording_lines(explanation: Explained, width: int) -> Iterator[str]:
    recording, window = explanation.recording, explanation.window
    turn = f"turn {explanation.turn:,} of {explanation.turns:,}"
    turn = "the next request" if explanation.next_request else turn
    yield f"{clip_text(recording.file, width - len(turn) - 2)}: {turn}"
    facts = [
        _FILE_KINDS.get(recording.kind, recording.kind),
        *([f"the first of {recording.runs:,} runs"] if recording.runs > 1 else []),
        *([f"{recording.format} format"] if recording.format != recording.kind else []),
        *([recording.model] if recording.model else []),
        number_of(recording.messages, "message"),
        number_of(recording.requests, "request"),
        *([number_of(recording.compactions, "compaction")] if recording.compactions else []),
    ]
    if recording.is_reconstructed:
        text = (
            "a reconstruction: the agent sends its requests itself, and this file has only messages"
        )
        if recording.added_blocks:
            text += f"; Recollect's hooks added {number_of(recording.added_blocks, 'block')}, "
            text += f"{recording.added_tokens:,} tokens, which are not part of this replay"
        yield from wrap(text, width)
    source = _SOURCES.get(window.source, f"assumed for {recording.model}")
    yield from wrap(", ".join(facts), width)
    yield from wrap(
        f"window {window.tokens:,} ({source}), limit {window.limit_tokens:,}, "
        f"preset {explanation.preset}",
        width,
    )
    if explanation.skipped_turns:
        skipped_turns, before = explanation.skipped_turns, explanation.turn - 1
        text = f"{skipped_turns:,} of the {before:,} turns before were not replayed, to save time"
        yield from wrap(text, width)
    for line in recording.passed_over[:2]:
        yield clip_text(f"! {line}", width)
    if (rest_count := len(recording.passed_over) - 2) > 0:
        yield f"! {rest_count:,} more lines skipped (--json lists them)"


def _token_lines(explanation: Explained) -> Iterator[str]:
    received_tokens, sent_tokens = explanation.came_tokens, explanation.sent_tokens
    rows = [
        ("by recollect" if kind.kind == "ours" else kind.kind, kind.came_tokens, kind.sent_tokens)
        for kind in sorted(explanation.kinds, key=lambda kind: -kind.came_tokens)
        if kind.came_tokens or kind.sent_tokens
    ]
    tools = [
        (
            clip_text(f"  {tool.tool}, {number_of(tool.results, 'result')}", 26),
            tool.came_tokens,
            tool.sent_tokens,
        )
        for tool in explanation.tools[:_MAX_TOOLS]
    ]
    yield f"\n{'Where the tokens go':26}{'received':>13}{'sent':>18}"
    for name, received_count, sent_count in (*rows, *tools, ("all", received_tokens, sent_tokens)):
        shares = percent(received_count, received_tokens), percent(sent_count, sent_tokens)
        yield f"{name:26}{received_count:>13,} {shares[0]:>4}{sent_count:>13,} {shares[1]:>4}"
    yield f"The request takes {percent(sent_tokens, explanation.window.limit_tokens)} of the limit."
    if explanation.reported_tokens is not None:
        yield f"The provider counted {explanation.reported_tokens:,} tokens for it."


def _message_line(fate: MessageFate, width: int, *, reason: bool = False) -> str:
    number = "" if fate.number is None else f"#{fate.number:,}"
    after = "" if fate.fate == "kept" else f" → {fate.tokens_after:,}"
    reason_words = f"{reason_text(fate.reasons)}  " if reason and fate.fate != "kept" else ""
    outcome = f"{fate.fate:10} " if reason else ""
    start = f"{number:>7} {outcome}{clip_text(fate.what, 20):20} {fate.tokens_before:>8,}{after}  "
    return clip_text(start + reason_words + fate.excerpt, width).rstrip()


def message_lines(fates: Sequence[MessageFate], width: int) -> Iterator[str]:
    """Describe a few messages, each with its reason."""
    for fate in fates[:_MAX_MATCHES]:
        yield _message_line(fate, width)
        yield from _hanging(f"{'':8}{fate.fate}: ", reason_text(fate.reasons), width)
    if len(fates) > _MAX_MATCHES:
        yield f"… and {len(fates) - _MAX_MATCHES} more contain these words."


def stretch_lines(fates: Sequence[MessageFate], width: int) -> Iterator[str]:
    """Describe all messages of a request: those with the same outcome and reason in one line."""
    found_stretches = stretches(fates)
    if len(found_stretches) > _MAX_STRETCHES:
        found_stretches = stretches(fates, joins_all=True)
    for stretch in found_stretches:
        sizes = f"{stretch.tokens_before:>9,}" if stretch.tokens_before else " " * 9
        after = "" if stretch.fate == "kept" else f"→ {stretch.tokens_after:,}"
        start = f"{stretch.fate:10} {stretch.count:>6,} {span_text(stretch):15}{sizes} {after:10} "
        yield from _hanging(start, why_text(stretch), width)


def _hanging(start: str, text: str, width: int) -> list[str]:
    """Wrap a text below its first line; if there is little space beside it, below its start."""
    indent = " " * (len(start) if width - len(start) >= MIN_WIDTH // 2 else 11)
    return wrap(start + text, width, subsequent_indent=indent, drop_whitespace=True)


def receipt_lines(page: ReceiptPage, width: int) -> Iterator[str]:
    """Describe a compaction: lost content first, because a user may have to repeat it."""
    result, receipt = page.recorded.result, page.recorded.result.receipt
    title = f"Compaction {page.number} of {page.of}{', undone' if page.undone else ''}"
    made_at = when(page.recorded.at)
    session = clip_text(plain_line(page.session), width - len(title) - len(made_at) - 4)
    yield f"{title}  {session}  {made_at}"
    usage = result.spent
    text = f"{page.host} compacted by itself ({result.trigger})" if page.host else result.trigger
    text += f", before turn {page.recorded.turn}" if page.recorded.turn else ""
    text += f": {plain_line(str(result.reason))}"
    text += "; a turn was split" if result.splits_a_turn else ""
    if usage.calls:
        text += f"; {number_of(usage.calls, 'call')}, {usage.input_tokens:,} tokens in, "
        text += f"{usage.output_tokens:,} out"
    yield from wrap(f"{text}; {result.seconds:.1f} s", width)
    before, after = result.tokens_before, result.tokens_after
    yield f"tokens before {before:,}, after {after:,} ({percent(after, before)})"
    if receipt is None:
        yield "\nNo receipt was made for this compaction."
    else:
        yield from _standing_lines(receipt, page.pinned_word, width)
        yield from _finding_lines("lost", "lost", receipt, width)
        where = "after the summary" if page.host else "to the summary"
        note = f", {receipt.pinned_tokens:,} tokens added {where}"
        yield from _finding_lines("pinned", page.pinned_word, receipt, width, note)
    yield from _summary_lines(page, width)
    for note in (*(receipt.notes if receipt else ()), *result.notes):
        yield from wrap(f"! {plain_line(note)}", width)


def _standing_lines(receipt: Receipt, pinned_word: str, width: int) -> Iterator[str]:
    of = f" of {receipt.details:,}" if receipt.details else ""
    yield f"\nDetails checked  {receipt.checked:,}{of}"
    titles = [pinned_word if standing == "pinned" else standing for standing in STANDINGS]
    yield " " * 15 + "".join(f"{title:>11}" for title in titles)
    counts = Counter((finding.probe.kind, standing_of(finding)) for finding in receipt.findings)
    for kind, name in KIND_NAMES.items():
        row = [counts[kind, standing] for standing in STANDINGS]
        if any(row):
            yield f"{name:15}" + "".join(f"{count or '·':>11}" for count in row)
    sums = [sum(counts[kind, standing] for kind in KIND_NAMES) for standing in STANDINGS]
    yield f"{'all':15}" + "".join(f"{count:>11,}" for count in sums)
    if receipt.not_checked:
        unchecked_text = number_of(receipt.not_checked, "more detail")
        yield from wrap(f"Not checked: {unchecked_text} of these messages.", width)


def _finding_lines(
    standing: str, title: str, receipt: Receipt, width: int, note: str = ""
) -> Iterator[str]:
    probes = [finding.probe for finding in receipt.findings if standing_of(finding) == standing]
    if not probes and standing != "lost":
        return
    yield f"\n{title.capitalize()}  {len(probes)}{note}"
    if not probes:
        nothing_lost = "No checked detail is lost: each is in the summary or was recalled."
        yield from wrap(nothing_lost, width)
    for probe in probes[:_MAX_LISTED]:
        text, sentence = plain_line(probe.text), plain_line(probe.sentence)
        start = f"{'✗' if standing == 'lost' else '+'} {probe.kind:10} "
        yield clip_text(start + text, width)
        if sentence not in ("", text):
            yield clip_text(" " * len(start) + sentence, width)
    yield from _line_for_rest(len(probes) - _MAX_LISTED)


def _summary_lines(page: ReceiptPage, width: int) -> Iterator[str]:
    if page.previous_number is None:
        first = page.number == 1
        cause = "the first of this session" if first else "the previous summary is not stored"
        yield f"\nSummary  {cause}"
        lines = page.recorded.result.summary.splitlines()
    else:
        signs = {"dropped": "- ", "new": "+ "}
        diff = page.diff()
        count = Counter(line.change for line in diff)
        counts_text = f"{count['dropped']} dropped, {count['new']} new, {count['kept']} kept"
        yield f"\nAgainst summary {page.previous_number}  {counts_text}"
        lines = [signs[line.change] + line.text for line in diff if line.change in signs]
    for line in lines[:_MAX_LISTED]:
        yield clip_text(plain_line(line), width)
    yield from _line_for_rest(len(lines) - _MAX_LISTED)


def _line_for_rest(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  … and {count:,} more; --json has them all"
