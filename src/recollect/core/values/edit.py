"""Edits of a session's history, and the text that code adds after a summary. An edit refers to
entry keys and parts, never to positions, so that a client that resends its history gets the same
request again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from recollect.core.values.message import CallId, EntryKey, MessageId
from recollect.core.values.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailure:
    """A failed tool call, listed after the summary so that the model does not repeat it."""

    tool: str
    said: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedLine:
    """A quoted line that contains a name, with its speaker."""

    speaker: Literal["user", "assistant", "call", "tool"]
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Text that code, not the model, adds after a summary."""

    read_files: tuple[str, ...] = field(default=(), repr=False)
    modified_files: tuple[str, ...] = field(default=(), repr=False)
    failures: tuple[ToolFailure, ...] = ()
    identifiers: tuple[str, ...] = field(default=(), repr=False)
    lines: tuple[QuotedLine, ...] = ()

    def details(self) -> dict[str, Any]:
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
    """Removes a part or a whole message from the request."""

    anchor: EntryKey
    part: int | None
    stage: StageName
    reason: Reason
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shorten:
    """Replaces the text of a part by `text`."""

    anchor: EntryKey
    part: int
    text: str = field(repr=False)
    stage: StageName
    reason: Reason
    turn: int
    hard: bool = False
    """True if the result is cleared: `text` quotes at most one line of it."""
    quotes: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """A block that Recollect adds before or after a message, or at the start of the request."""

    anchor: EntryKey | None
    placement: Placement
    text: str = field(repr=False)
    stage: StageName
    reason: Reason
    turn: int
    quotes: tuple[MessageId, ...] = ()
    recalled: tuple[str, ...] = ()
    """Names of the quoted passages (`values.recall.passage_name`), so that they are not recalled
    again. A bare segment id means the whole segment. A standing block lists the keys of messages
    that it quotes in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Replaces the messages before `anchor` by a summary."""

    anchor: EntryKey
    summary: str = field(repr=False)
    stage: StageName
    reason: Reason
    turn: int
    number: int = 0
    before: int = 0
    """Number of the compaction that made the previous cut; 0 if there is none."""
    covers: tuple[MessageId, ...] = field(default=(), repr=False)
    """Messages that the summary covers, including those of the previous cut. Only covered messages
    are removed from the request. A message that the client changed or added later is still sent."""
    ended: tuple[Insert, ...] = ()
    """Recalled blocks that the cut removed, and that undo restores."""
    carried: Carried | None = None


Edit: TypeAlias = LeaveOut | Shorten | Insert | Cut

_SLICE_EDITS: Final = 256
"""Not measured; a slice is compared in C, and one changed edit costs at most a slice."""


def edits_only_in(edits: Sequence[Edit], other_edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Return the edits that are not among the others. Objects are compared by identity first,
    because most edits are the same object in each turn."""
    if edits is other_edits:
        return ()
    shared = _count_shared(edits, other_edits)
    other_ids = set(map(id, other_edits[shared:]))
    new_edits = [edit for edit in edits[shared:] if id(edit) not in other_ids]
    if not new_edits:
        return ()
    anchors = {edit.anchor for edit in new_edits}
    known_edits = {edit for edit in other_edits if edit.anchor in anchors}
    return tuple([edit for edit in new_edits if edit not in known_edits])


def _count_shared(edits: Sequence[Edit], other_edits: Sequence[Edit]) -> int:
    """Count equal edits at the start of both, in whole slices: the count may be too low."""
    shared = 0
    while shared < len(edits):
        edit_slice = edits[shared : shared + _SLICE_EDITS]
        if edit_slice != other_edits[shared : shared + _SLICE_EDITS]:
            break
        shared += len(edit_slice)
    return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A change that the provider's rules require, such as a result for every call. Repairs are
    computed each turn instead of stored, so that a late result can replace a placeholder."""

    kind: RepairKind
    anchor: EntryKey | None
    part: int | None
    reason: Reason
    call_id: CallId | None = None
