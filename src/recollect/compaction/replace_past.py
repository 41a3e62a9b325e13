"""Replace the past by a summary: the edits that stand after a compaction.

Recalled blocks end and are kept in the cut, so that undoing it brings them back. Two cuts stay,
the new one and the one before, which undoing needs; what only mattered behind the older one is
dropped, so that a session's state stays small over any number of compactions.
Must never drop an edit that any view still within reach depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from recollect.values.edit import Cut, Edit, Insert
from recollect.values.history import Entry, behind_cut
from recollect.values.message import EntryKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceResult:
    """The edits that stand now, the cut as it was kept, and what went."""

    edits: tuple[Edit, ...] = field(repr=False)
    cut: Cut = field(repr=False)
    dropped: int
    """Edits that no view within reach depends on any more."""
    reason: str


def replace_past(
    edits: Sequence[Edit],
    cut: Cut,
    entries: Sequence[Entry],
    *,
    keep_blocks: AbstractSet[EntryKey] = frozenset(),
) -> ReplaceResult:
    """Let `cut` stand over the `entries` of the session.

    Blocks at the messages of `keep_blocks`, the current turn's, stay in the view.
    """
    blocks = [edit for edit in edits if isinstance(edit, Insert)]
    leaving = [block for block in blocks if block.anchor not in keep_blocks]
    ended = tuple(block for block in leaving if block.stage != "stand")  # that one is made anew
    kept_blocks = [block for block in blocks if block.anchor in keep_blocks]
    standing = replace(cut, ended=ended)
    cuts = [edit for edit in edits if isinstance(edit, Cut)]
    others = [edit for edit in edits if not isinstance(edit, Cut | Insert)]
    older = cuts[-1:]
    hidden: AbstractSet[EntryKey] = frozenset()
    if len(cuts) > 1:
        # The view before the older cut is out of reach now, and its blocks with it.
        older = [replace(cuts[-1], ended=())]
    if older:
        hidden = _hidden_by(older[0], entries)
    needed = [edit for edit in others if edit.anchor not in hidden]
    dropped = len(cuts) - len(older) + len(others) - len(needed)
    return ReplaceResult(
        edits=(*needed, *kept_blocks, *older, standing),
        cut=standing,
        dropped=dropped,
        reason=f"{len(ended)} blocks ended, {dropped} edits behind older summaries dropped",
    )


def _hidden_by(cut: Cut, entries: Sequence[Entry]) -> frozenset[EntryKey]:
    """Messages that a cut takes out of the view; none where its own message is gone."""
    return behind_cut(entries, (cut,))
