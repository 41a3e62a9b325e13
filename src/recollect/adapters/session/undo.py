"""Undoing a compaction in a transcript that is only ever appended to.

Owns which compactions of a path still stand and what a further one has to say so that the view
before the last of them is shown again, by pi as well. Pure. Always holds: every message that was
shown before the undone compaction is shown again, and so is everything said since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from recollect.core.formats.pi_session import PiEntry, build_history, kept_from

UNDOES: Final = "undoes"
"""Key in a compaction's `details`: the id of the compaction that it takes back."""
UNDONE_SUMMARY: Final = (
    "Nothing is left out here: an earlier compaction was undone, and the whole conversation "
    "follows."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToUndo:
    """No compaction of the path still stands, and why."""

    reason: str


def plan_undo(path: Sequence[PiEntry]) -> dict[str, Any] | NothingToUndo:
    """The fields of the compaction to append so that the last standing one counts no more."""
    standing = standing_compactions(path)
    if not standing:
        return NothingToUndo(reason="nothing of this session is compacted")
    undone = path[standing[-1]]
    tokens = undone.value.get("tokensBefore")
    fields: dict[str, Any] = {
        "summary": UNDONE_SUMMARY,
        "first_kept_entry_id": path[0].id,
        "tokens_before": tokens if isinstance(tokens, int) else 0,
        "details": {UNDOES: undone.id},
        "from_hook": True,
    }
    return fields if len(standing) == 1 else fields | _restoring(path, standing[-2], undone)


def standing_compactions(path: Sequence[PiEntry]) -> tuple[int, ...]:
    """Where on the path the compactions stand that were not undone; the last one counts."""
    standing: list[int] = []
    for position, entry in enumerate(path):
        if entry.kind != "compaction":
            continue
        if not is_undo(entry):
            standing.append(position)
        elif standing:
            standing.pop()
    return tuple(standing)


def is_undo(entry: PiEntry) -> bool:
    """Whether a compaction only takes back another one."""
    details = entry.value.get("details")
    return isinstance(details, dict) and isinstance(details.get(UNDOES), str)


def _restoring(path: Sequence[PiEntry], at: int, undone: PiEntry) -> dict[str, Any]:
    restored = path[at]
    kept = kept_from(path, at)
    # If it kept nothing before itself, what counts again begins right after it.
    first = path[kept if kept < at else at + 1].id
    tail = restored.retained_tail
    if tail is not None:
        tail += build_history(path[at + 1 :]).messages
        first = path[at + 1].id or first
    details = restored.value.get("details")
    from_hook = restored.value.get("fromHook")
    return {
        "summary": restored.text("summary") or "",
        "first_kept_entry_id": first,
        "details": {**(details if isinstance(details, dict) else {}), UNDOES: undone.id},
        "from_hook": from_hook if isinstance(from_hook, bool) else None,
        "retained_tail": tail,
    }
