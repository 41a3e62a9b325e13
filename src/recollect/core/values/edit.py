"""Changes to a session's history as it is shown, and the text that code carries over a cut.

Edits are anchored to entry keys and parts, never to positions, so a client that resends its history
gets the same view again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from recollect.core.values.message import CallId, EntryKey, MessageId
from recollect.core.values.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailure:
    """A tool call that failed: carried along by code, so that it is not tried again."""

    tool: str
    said: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedLine:
    """A line about a name that it mentions, with its speaker."""

    speaker: Literal["user", "assistant", "call", "tool"]
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Text that code, not the model, carries over a cut."""

    read_files: tuple[str, ...] = field(default=(), repr=False)
    modified_files: tuple[str, ...] = field(default=(), repr=False)
    failures: tuple[ToolFailure, ...] = ()
    identifiers: tuple[str, ...] = field(default=(), repr=False)
    lines: tuple[QuotedLine, ...] = ()

    def details(self) -> dict[str, Any]:
        """As OpenClaw's `details` spell it."""
        return {
            "readFiles": list(self.read_files),
            "modifiedFiles": list(self.modified_files),
            "toolFailures": [
                {"toolName": failure.tool, "summary": failure.said} for failure in self.failures
            ],
        }


StageName: TypeAlias = Literal[
    "load",
    "read",
    "align",
    "pair",
    "ingest",
    "prune",
    "trim",
    "query",
    "recall",
    "inject",
    "stand",
    "compact",
    "extract",
    "jobs",
    "check",
    "send",
]
Placement: TypeAlias = Literal["before", "after", "head"]
RepairKind: TypeAlias = Literal["left-out", "moved", "synthesised", "merged", "opened", "respelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOut:
    """A part, or a whole message, is not shown."""

    anchor: EntryKey
    part: int | None
    stage: StageName
    reason: Reason
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shorten:
    """The text of a part is shown as `text` instead."""

    anchor: EntryKey
    part: int
    text: str = field(repr=False)
    stage: StageName
    reason: Reason
    turn: int
    hard: bool = False
    """The result is cleared: at most one line of it is left in `text`, and then it is quoted."""
    quotes: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """A block of our own before or after a message, or at the start of the view."""

    anchor: EntryKey | None
    placement: Placement
    text: str = field(repr=False)
    stage: StageName
    reason: Reason
    turn: int
    quotes: tuple[MessageId, ...] = ()
    recalled: tuple[str, ...] = ()
    """The names of the passages that stand in it (`values.recall.passage_name`): they need not
    be recalled again. A segment's bare id stands for all of it; a standing block names the
    messages that it tells to the last word by their keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Everything before `anchor` is shown as a summary."""

    anchor: EntryKey
    summary: str = field(repr=False)
    stage: StageName
    reason: Reason
    turn: int
    number: int = 0
    before: int = 0
    """Which one made the cut that lies behind it; 0 where none does."""
    covers: tuple[MessageId, ...] = field(default=(), repr=False)
    """The messages that its summary stands for, those of the cut before included. Nothing else is
    hidden by it: what a client changed or put in before the anchor is shown."""
    ended: tuple[Insert, ...] = ()
    """The blocks it took out of the view; undoing it brings them back."""
    carried: Carried | None = None


Edit: TypeAlias = LeaveOut | Shorten | Insert | Cut

_AT_ONCE: Final = 256


def edits_only_in(edits: Sequence[Edit], others: Sequence[Edit]) -> tuple[Edit, ...]:
    """The edits that are not among the others. Most are the same objects from turn to turn, so
    identity is checked first."""
    if edits is others:
        return ()
    shared = _shared(edits, others)
    same = set(map(id, others[shared:]))
    new = [edit for edit in edits[shared:] if id(edit) not in same]
    if not new:
        return ()
    anchors = {edit.anchor for edit in new}
    known = {edit for edit in others if edit.anchor in anchors}
    return tuple([edit for edit in new if edit not in known])


def _shared(edits: Sequence[Edit], others: Sequence[Edit]) -> int:
    """The number of equal edits at the start, about; slices are compared at once."""
    shared = 0
    while shared < len(edits):
        some = edits[shared : shared + _AT_ONCE]
        if some != others[shared : shared + _AT_ONCE]:
            break
        shared += len(some)
    return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What pairing and the provider's rules changed; derived anew from the history each turn.

    `moved` and `synthesised` are edits in the sense of the glossary. They are not stored as
    standing edits because the same history always yields the same repairs, and a result that
    arrives late must be able to replace its stand-in.
    """

    kind: RepairKind
    anchor: EntryKey | None
    part: int | None
    reason: Reason
    call_id: CallId | None = None
