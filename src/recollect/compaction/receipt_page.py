"""One compaction's receipt as a page: what `recollect receipt` draws, and what programs read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.compaction.receipt import compare
from recollect.errors import FormatError, RecollectError
from recollect.formats.json_text import instant
from recollect.formats.stored_records import RecordedCompaction, join_state, read_record
from recollect.values.batch import StoredSession
from recollect.values.compaction import CompactionRecord
from recollect.values.history import newest_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptPage:
    """One compaction, and the summary that stood before it."""

    session: str
    number: int
    of: int
    """The number of the session's newest compaction."""
    undone: bool = False
    """It was taken back, or what it stood for was forgotten."""
    recorded: RecordedCompaction
    previous_summary: str = field(default="", repr=False)
    previous_number: int | None = None
    """None: it is the first, or the record before it is no longer kept."""


def standing_number(state: StoredSession | None) -> int | None:
    """The number of the compaction whose summary the view shows; None where it is not known."""
    if state is None:
        return None
    try:
        cut = newest_cut(join_state(state.state, state.path, state.ids).edits)
    except FormatError:
        return None
    return 0 if cut is None else cut.number


def page_of(
    session: str,
    records: Sequence[CompactionRecord],
    number: int | None,
    standing: int | None = None,
) -> ReceiptPage:
    """The page of this compaction, or of the newest; `standing` is the one that the view shows."""
    newest = records[-1].number
    wanted = newest if number is None else number
    at = next((at for at, compaction in enumerate(records) if compaction.number == wanted), None)
    if at is None:
        kept = ", ".join(str(compaction.number) for compaction in records)
        raise RecollectError(f"--number {wanted}: no such compaction is kept; there are {kept}")
    # without the record right before it a diff would show what an older one had
    before = records[at - 1] if at and records[at - 1].number == wanted - 1 else None
    return ReceiptPage(
        session=session,
        number=wanted,
        of=newest,
        undone=standing is not None and wanted > standing,
        recorded=read_record(records[at].body),
        previous_summary="" if before is None else read_record(before.body).result.summary,
        previous_number=None if before is None else before.number,
    )


def as_object(page: ReceiptPage) -> dict[str, Any]:
    """The page as `--json` prints it."""
    result = page.recorded.result
    diff = compare(page.previous_summary, result.summary) if page.previous_number else ()
    return {
        "session": page.session,
        **result.to_dict(),
        "undone": page.undone,
        "at": instant(page.recorded.at),
        "turn": page.recorded.turn,
        "previous_number": page.previous_number,
        "diff": [
            {"change": line.change, "text": line.text} for line in diff if line.change != "kept"
        ],
    }
