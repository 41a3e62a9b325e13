"""What of a transcript is the conversation: the history that every request begins from.

Pure. Always holds: our own compactions hide nothing here (the engine's cut does that, and undo
must find what it hides); a compaction that another program wrote counts as it does for pi. Each
message comes with the entry that it is from.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.formats.pi_session import PiEntry, PiShown, build_context, build_history, path_to
from recollect.session.undo import standing_compactions

MARK = "recollect"
"""Key in a compaction's `details`: the engine made it, and its cut stands in the store."""


def history_of(entries: Sequence[PiEntry], leaf: str | None = None) -> tuple[PiShown, ...]:
    """The conversation on the path to the leaf."""
    path = path_to(entries, leaf)
    foreign = [at for at in standing_compactions(path) if not is_own(path[at])]
    if not foreign:
        return build_history(entries, leaf).shown
    last = foreign[-1]
    before = build_context(path[: last + 1], path[last].id).shown
    after = [entry for entry in path[last + 1 :] if entry.kind != "compaction"]
    return before + build_history(_relinked(after)).shown


def is_own(entry: PiEntry) -> bool:
    """Whether a compaction was made by our engine."""
    details = entry.value.get("details")
    return isinstance(details, dict) and MARK in details


def _relinked(entries: Sequence[PiEntry]) -> list[PiEntry]:
    """A stretch of a path as a path of its own."""
    linked: list[PiEntry] = []
    parent: str | None = None
    for entry in entries:
        value = {**entry.value, "parentId": parent}
        linked.append(PiEntry(number=entry.number, line=entry.line, value=value))
        parent = entry.id
    return linked
