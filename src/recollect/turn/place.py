"""Place what is our own in a view: the summary, notes at gaps, recalled blocks.

Never parts a call from its result, nor a thought from the item it led to; where the format
wants turns to alternate, a block joins the user's message instead of standing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.formats.summaries import PI_CLOSING, PI_OPENING
from recollect.rules.units import is_result, pieces_of
from recollect.turn.compose import keys_of, shown_part
from recollect.values.edit import Cut, Insert
from recollect.values.history import Entry
from recollect.values.message import EntryKey, Thinking, ToolCall, ToolResult
from recollect.values.slot import Arranged, Slot, Written
from recollect.values.wire import WireRules


def gap_note(count: int) -> str:
    """What stands where `count` messages were left out of the view."""
    messages = "message" if count == 1 else "messages"
    return f"[recollect] {count} earlier {messages} left out here to fit the window."


def place(
    rows: list[Arranged],
    cut: Cut | None,
    inserts: list[Insert],
    missing: dict[EntryKey | None, int],
    rules: WireRules,
) -> list[Arranged]:
    """Put summary, notes and blocks among the rows.

    `missing` counts the messages left out before the one it names (None: at the end).
    """
    if cut is None and not missing and not inserts:
        return rows
    before: dict[EntryKey, list[Written]] = {}
    after: dict[EntryKey, list[Written]] = {}
    head: list[Written] = []
    if cut is not None:
        text = PI_OPENING + cut.summary + PI_CLOSING
        head.append(Written(text=text, note="summary"))
    tail: list[Written] = []
    for key, count in missing.items():
        note = Written(text=gap_note(count), note="gap")
        if key is None:
            tail.append(note)
        else:
            before.setdefault(key, []).append(note)
    for edit in inserts:
        block = Written(text=edit.text, note=edit.stage)
        if edit.placement == "head" or edit.anchor is None:
            head.append(block)
        else:
            place = before if edit.placement == "before" else after
            place.setdefault(edit.anchor, []).append(block)
    return _placed(rows, head, before, after, tail, rules)


def _placed(
    rows: list[Arranged],
    head: list[Written],
    before: dict[EntryKey, list[Written]],
    after: dict[EntryKey, list[Written]],
    tail: list[Written],
    rules: WireRules,
) -> list[Arranged]:
    out: list[Arranged] = []
    waiting = list(head)
    due: list[Written] = []
    openings = _Openings(rules.thinking_leads)
    for row in rows:
        if waiting and row.role != "system" and not _is_summary(row):
            out.extend(_own_row(block) for block in waiting)
            waiting = []
        keys = keys_of(row)
        blocks = [block for key in keys for block in before.get(key, ())]
        if blocks and rules.alternates and row.role == "user":
            row = _with_blocks(row, blocks)
        elif blocks:
            at = openings.last_whole(len(out))
            out[at:at] = [_own_row(block) for block in blocks]
        out.append(row)
        openings.pass_by(row, len(out))
        due.extend(block for key in keys for block in after.get(key, ()))
        if due and openings.last_whole(len(out)) == len(out):
            out.extend(_own_row(block) for block in due)
            due = []
    out.extend(_own_row(block) for block in (*waiting, *due, *tail))
    return out


@dataclass(slots=True)
class _Openings:
    """Where rows may be put in without parting a call from its result or a thought from its
    item."""

    thinking_leads: bool
    unanswered: set[str] = field(default_factory=set)
    whole_at: int = 0
    parted: bool = False

    def pass_by(self, row: Arranged, position: int) -> None:
        if isinstance(row, Entry):
            leads = isinstance(row.message.parts[-1], Thinking)
            self.unanswered.update(row.calls)
            self.unanswered.difference_update(row.results)
        else:
            leads = False
            for piece in row.pieces:
                part = shown_part(piece)
                leads = isinstance(part, Thinking)
                if isinstance(part, ToolCall):
                    self.unanswered.add(part.id)
                elif isinstance(part, ToolResult):
                    self.unanswered.discard(part.call_id)
        self.parted = (leads and self.thinking_leads) or bool(self.unanswered)
        if not self.parted:
            self.whole_at = position

    def last_whole(self, position: int) -> int:
        return self.whole_at if self.parted else position


def _is_summary(row: Arranged) -> bool:
    base = row if isinstance(row, Entry) else row.base
    return base is not None and base.message.summary


def _own_row(block: Written) -> Slot:
    return Slot(role="user", pieces=(block,))


def _with_blocks(row: Arranged, blocks: list[Written]) -> Slot:
    """The user's message with our blocks before its own words, behind any results."""
    pieces = pieces_of(row)
    lead = 0
    while lead < len(pieces) and is_result(pieces[lead]):
        lead += 1
    base = row if isinstance(row, Entry) else row.base
    return Slot(role="user", pieces=(*pieces[:lead], *blocks, *pieces[lead:]), base=base)
