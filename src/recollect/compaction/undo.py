"""Undo the last compaction: the view as it was before it.

Nothing was lost by a cut, so nothing has to be made anew: its edit goes, the edits that it hid
act again, and the blocks that it ended come back. What was decided after it stays.
Always holds: replacing the past and undoing it at once gives the same view, byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from recollect.values.edit import Cut, Edit, Insert
from recollect.values.message import EntryKey
from recollect.values.reason import Cause, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    """The edits that stand now, the cut that went, and why if none did."""

    edits: tuple[Edit, ...] = field(repr=False)
    undone: Cut | None = field(repr=False)
    reason: Reason

    def __str__(self) -> str:
        return str(self.reason)


def undo(edits: Sequence[Edit], *, known: Collection[EntryKey] | None = None) -> UndoResult:
    """Take back the newest cut; the one before it stands again if there is one.

    `known` are the messages of the history: a block whose message is gone does not come back.
    """
    at = max((at for at, edit in enumerate(edits) if isinstance(edit, Cut)), default=None)
    if at is None:
        return UndoResult(edits=tuple(edits), undone=None, reason=Reason(Cause.NOTHING_TO_UNDO))
    undone = edits[at]
    assert isinstance(undone, Cut)
    if undone.before and not any(isinstance(edit, Cut) for edit in edits[:at]):
        return UndoResult(
            edits=tuple(edits),
            undone=None,
            reason=Reason(Cause.UNDO_LOST, number=undone.number),
        )
    rest = [*edits[:at], *edits[at + 1 :]]
    back = [block for block in undone.ended if _has_a_place(block, known) and block not in rest]
    older = any(isinstance(edit, Cut) for edit in rest)
    return UndoResult(
        # Older blocks first: where two stand at one message, this is the order they came in.
        edits=(*back, *rest),
        undone=undone,
        reason=Reason(Cause.UNDONE_TO_SUMMARY if older else Cause.UNDONE, number=undone.number),
    )


def _has_a_place(block: Insert, known: Collection[EntryKey] | None) -> bool:
    return known is None or block.anchor is None or block.anchor in known
