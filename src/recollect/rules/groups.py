"""What leaves a view together: a call with its results, a run of items with its reasoning, a
provider-run call with its result and all that was called for it.

Groups partition the parts of a history. Leaving out a whole group never parts a pair; words
of the user that share a message with results form a group of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.values.history import Entry
from recollect.values.message import CallId, EntryKey, ToolResult
from recollect.values.wire import WireRules


@dataclass(slots=True, eq=False)
class Group:
    """Members are whole messages (part None) or single parts; `first` is their place."""

    first: int
    members: list[tuple[EntryKey, int | None]] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    calls: bool = False


def group(entries: Sequence[Entry], rules: WireRules) -> list[Group]:
    """The groups of a history, by place of their first member."""
    groups: list[Group] = []
    caller: dict[CallId, Group] = {}
    opened: dict[CallId, Group] = {}
    run: Group | None = None
    for at, entry in enumerate(entries):
        if entry.results:
            _join_callers(entry, at, caller, groups)
            run = None
            continue
        in_run = rules.thinking_leads and run is not None and entry.role == "assistant"
        joined = next((opened[c] for c in entry.message.joins if c in opened), None)
        if joined is not None:
            if in_run and run is not None and run is not joined:
                _merge(joined, run, (caller, opened))
                groups.remove(run)
            run = joined
        elif not in_run:
            run = Group(first=at)
            groups.append(run)
        assert run is not None
        run.members.append((entry.key, None))
        run.entries.append(at)
        for call_id in entry.calls:
            run.calls = True
            caller[call_id] = run
        for call_id in entry.message.opens:
            run.calls = True
            opened[call_id] = run
        if entry.role != "assistant":
            run = None
    return groups


def _merge(group: Group, other: Group, owners: tuple[dict[CallId, Group], ...]) -> None:
    """Put another group's members into a group, and let it own what the other owned."""
    group.members += other.members
    group.entries += other.entries
    group.calls |= other.calls
    for owned in owners:
        owned.update({call_id: group for call_id, owner in owned.items() if owner is other})


def _join_callers(entry: Entry, at: int, caller: dict[CallId, Group], groups: list[Group]) -> None:
    """Results join the group of their call; the rest of the message stands alone."""
    owners = {id(found): found for c in entry.results if (found := caller.get(c)) is not None}
    only_results = all(isinstance(part, ToolResult) for part in entry.parts)
    if only_results and len(owners) == 1:
        owner = next(iter(owners.values()))
        owner.members.append((entry.key, None))
        owner.entries.append(at)
        return
    rest = Group(first=at)
    for part_at, part in enumerate(entry.parts):
        found = caller.get(part.call_id) if isinstance(part, ToolResult) else None
        target = found or rest
        target.members.append((entry.key, part_at))
        if at not in target.entries:
            target.entries.append(at)
    if rest.members:
        groups.append(rest)
