"""Plain compaction, the baseline: over the limit all but the newest 20,000 tokens become a summary.

As coding agents do it (notes/cost.md): no recall, no pruning, nothing changed in between. Must
never part a tool's results from their call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from recollect.rules.budget import RESERVE_SHARE
from recollect_bench.cost.data import Conversation
from recollect_bench.cost.meter import SYSTEM_TOKENS, Meter, SentRow, Tally
from recollect_bench.cost.notes import NoteTaker

RESERVE_TOKENS: Final = 16_000
KEPT_TOKENS: Final = 20_000
KEPT_SHARE: Final = 0.45
"""Of the limit, for windows so small that the rest could not be summarised."""


def replay_plain(
    conversation: Conversation,
    window_tokens: int,
    *,
    reserve_tokens: int = RESERVE_TOKENS,
    kept_tokens: int = KEPT_TOKENS,
    behind: Callable[[int, int], str] = lambda _moment, _cut: "",
    progress: Callable[[int], None] = lambda _: None,
) -> Tally:
    """What plain compaction costs on this conversation, and what it keeps.

    `behind` is given the moment and the first row that is kept, and says what stands behind the
    summary: nothing in plain compaction, what an oracle would put there where one is measured.
    """
    meter = Meter(conversation)
    taker = NoteTaker(conversation.naming)
    rows = [meter.row(row.raw) for row in conversation.rows]
    limit = window_tokens - min(reserve_tokens, window_tokens // RESERVE_SHARE)
    kept_tokens = min(kept_tokens, int(limit * KEPT_SHARE))
    first = 0
    summary: SentRow | None = None
    text = ""
    for done, moment in enumerate(conversation.moments):
        progress(done)
        held = SYSTEM_TOKENS + sum(row.tokens for row in rows[first : moment.row])
        if held + (summary.tokens if summary else 0) > limit:
            at = _cut(conversation, first, moment.row, kept_tokens)
            if at > first:
                gone = conversation.rows[first:at]
                meter.asked(sum(row.tokens for row in gone) + (summary.tokens if summary else 0))
                text = taker.note(((row.role, row.text) for row in gone), [text])
                told = behind(done, at)
                summary = meter.summary_row(f"{text}\n{told}" if told else text)
                first = at
        sent = [summary] if summary else []
        meter.sent([*sent, *rows[first : moment.row]], moment)
    return meter.tally


def _cut(conversation: Conversation, first: int, end: int, kept_tokens: int) -> int:
    """The first row that is kept: where enough is, but not at a tool's result."""
    rows = conversation.rows
    at, kept = end, 0
    while at > first and kept < kept_tokens:
        at -= 1
        kept += rows[at].tokens
    cut = at
    while cut < end and not _may_begin(conversation, cut):
        cut += 1
    if cut == end:  # only results fit: their call stays with them
        cut = end - 1
        while cut > first and not _may_begin(conversation, cut):
            cut -= 1
    return cut


def _may_begin(conversation: Conversation, at: int) -> bool:
    """Not with a result, nor within a run of rows that the model wrote at once."""
    rows = conversation.rows
    if rows[at].answers_a_call:
        return False
    return not (rows[at].role == "assistant" and at and rows[at - 1].role == "assistant")
