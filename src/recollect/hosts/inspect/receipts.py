"""Receipts of compactions: what each kept, what can be recalled, and what is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.core.compaction.receipt import compare
from recollect.core.formats.json_text import instant
from recollect.core.formats.stored_records import RecordedCompaction, join_state, read_record
from recollect.core.ports import Store
from recollect.core.values.batch import StoredSession
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.history import newest_cut
from recollect.errors import FormatError, RecollectError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptPage:
    """One compaction, and the summary before it."""

    session: str
    number: int
    of: int
    """The number of the session's newest compaction."""
    undone: bool = False
    """It was undone, or its messages were forgotten."""
    recorded: RecordedCompaction
    previous_summary: str = field(default="", repr=False)
    previous_number: int | None = None
    """None: it is the first, or the record before it is no longer kept."""

    def as_json(self) -> dict[str, Any]:
        """The page as `--json` prints it."""
        result = self.recorded.result
        diff = compare(self.previous_summary, result.summary) if self.previous_number else ()
        return {
            "session": self.session,
            **result.to_dict(),
            "undone": self.undone,
            "at": instant(self.recorded.at),
            "turn": self.recorded.turn,
            "previous_number": self.previous_number,
            "diff": [
                {"change": line.change, "text": line.text} for line in diff if line.change != "kept"
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """The compactions of a session that are kept, the oldest first."""

    session: str
    records: Sequence[CompactionRecord]
    shown: int | None
    """The compaction whose summary the view shows, 0 for none; None if that is not known."""
    is_known: bool
    """Whether the store holds state of the session."""

    def page(self, number: int | None = None) -> ReceiptPage:
        """The page of this compaction, or of the newest; RecollectError if it is not kept."""
        numbers = [record.number for record in self.records]
        wanted = number if number is not None else max(numbers, default=0)
        if wanted not in numbers:
            kept = ", ".join(map(str, numbers)) or "none"
            raise RecollectError(f"there is no compaction {wanted}; there are {kept}")
        at = numbers.index(wanted)
        # without the record right before it a diff would show what an older one had
        before = self.records[at - 1] if at and numbers[at - 1] == wanted - 1 else None
        return ReceiptPage(
            session=self.session,
            number=wanted,
            of=numbers[-1],
            undone=self._is_undone(wanted),
            recorded=_read(self.records[at]),
            previous_summary="" if before is None else _read(before).result.summary,
            previous_number=None if before is None else before.number,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per compaction, ready for JSON."""
        return [self._row(record) for record in self.records]

    def _row(self, record: CompactionRecord) -> dict[str, Any]:
        result = _read(record).result
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
            "undone": self._is_undone(record.number),
        }

    def _is_undone(self, number: int) -> bool:
        return self.shown is not None and number > self.shown


async def read_receipts(store: Store, session: str) -> Receipts:
    """The compactions of a session."""
    state = await store.session(session)
    records = await store.compactions(session)
    return Receipts(
        session=session, records=records, shown=shown_number(state), is_known=state is not None
    )


def shown_number(state: StoredSession | None) -> int | None:
    """The number of the compaction whose summary the view shows; None if it is not known."""
    if state is None:
        return None
    try:
        cut = newest_cut(join_state(state.state, state.path, state.ids).edits)
    except FormatError:
        return None
    return 0 if cut is None else cut.number


def _read(record: CompactionRecord) -> RecordedCompaction:
    try:
        return read_record(record.body)
    except FormatError as error:
        raise RecollectError(f"compaction {record.number} cannot be read: {error}") from error
