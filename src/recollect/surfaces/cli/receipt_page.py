"""The page of one receipt, as a value: what is drawn, and what `--json` prints."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.formats.stored_records import RecordedCompaction


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
