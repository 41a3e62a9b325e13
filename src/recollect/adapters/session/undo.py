"""Undoing a compaction in a transcript that is only ever appended to.

Owns which compactions of a path still stand and what a further one has to say so that the view
before the last of them is shown again, by pi as well. Pure. Always holds: every message that was
shown before the undone compaction is shown again, and so is everything said since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.core.formats.pi_session import PiEntry, build_history, kept_from

UNDOES: Final = "undoes"
"""Key in a compaction's `details`: the id of the compaction that it takes back."""
UNDONE_SUMMARY: Final = (
    "Nothing is left out here: an earlier compaction was undone, and the whole conversation "
    "follows."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """The compaction that restores the view before another one."""

    undone_id: str
    restored_id: str | None
    """The compaction that counts again; None where there was none before."""
    summary: str = field(repr=False)
    first_kept_entry_id: str
    tokens_before: int
    details: Mapping[str, Any] = field(repr=False)
    from_hook: bool | None
    retained_tail: tuple[Mapping[str, Any], ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToUndo:
    """No compaction of the path still stands, and why."""

    reason: str


def plan_undo(path: Sequence[PiEntry]) -> UndoPlan | NothingToUndo:
    """What to append to the path so that its last standing compaction counts no more."""
    standing = standing_compactions(path)
    if not standing:
        return NothingToUndo(reason="nothing of this session is compacted")
    undone = path[standing[-1]]
    assert undone.id is not None, "entries of a path have ids"
    if len(standing) == 1:
        first = path[0].id
        assert first is not None, "entries of a path have ids"
        return UndoPlan(
            undone_id=undone.id,
            restored_id=None,
            summary=UNDONE_SUMMARY,
            first_kept_entry_id=first,
            tokens_before=_tokens_before(undone),
            details={UNDOES: undone.id},
            from_hook=True,
        )
    return _restoring(path, standing[-2], undone)


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


def _restoring(path: Sequence[PiEntry], at: int, undone: PiEntry) -> UndoPlan:
    restored = path[at]
    assert undone.id is not None, "entries of a path have ids"
    kept = kept_from(path, at)
    # Where it kept nothing before itself, what counts again begins right behind it.
    first = path[kept if kept < at else at + 1].id
    assert first is not None, "entries of a path have ids"
    tail = restored.retained_tail
    if tail is not None:
        tail += build_history(path[at + 1 :]).messages
        first = path[at + 1].id or first
    details = restored.value.get("details")
    from_hook = restored.value.get("fromHook")
    return UndoPlan(
        undone_id=undone.id,
        restored_id=restored.id,
        summary=restored.text("summary") or "",
        first_kept_entry_id=first,
        tokens_before=_tokens_before(undone),
        details={**(details if isinstance(details, dict) else {}), UNDOES: undone.id},
        from_hook=from_hook if isinstance(from_hook, bool) else None,
        retained_tail=tail,
    )


def _tokens_before(entry: PiEntry) -> int:
    value = entry.value.get("tokensBefore")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
