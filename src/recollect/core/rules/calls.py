"""Groups calls with their results, and checks whether a conversation needs repair. Removing whole
`Group`s keeps calls and results together. Most histories pass the fast `is_well_formed`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from recollect.core.values.history import Entry, KeptPart, RewordedPart, Row, base_of
from recollect.core.values.message import (
    UNREADABLE_KINDS,
    CallId,
    EntryKey,
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason

NO_CALL = Reason(Cause.SERVER_RESULT_ALONE)
SECOND_CALL = Reason(Cause.SERVER_CALL_TOLD_AGAIN)
SECOND_RESULT = Reason(Cause.SERVER_RESULT_SECOND)
NO_RESULT = Reason(Cause.SERVER_CALL_ALONE)
CALLER_GONE = Reason(Cause.CALLER_GONE)


@dataclass(frozen=True, slots=True)
class Misfits:
    """Parts that must be removed, by message and position, with reasons; and calls whose caller is
    missing from the request."""

    out: Mapping[EntryKey, Mapping[int, Reason]] = field(default_factory=dict)
    direct: Mapping[EntryKey, frozenset[int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.out or self.direct)

    def touches(self, entry: Entry | None) -> bool:
        return entry is not None and (entry.key in self.out or entry.key in self.direct)


NONE = Misfits()


def misfits(rows: Sequence[Row], rules: WireRules, *, continues: bool = False) -> Misfits:
    """Find parts of provider-run calls that break the rules. With `continues`, the provider stores
    earlier items, so they may hold a missing result or caller."""
    if not any(map(_is_linked, rows)):
        return NONE
    based_rows = [(base, row) for row in rows if (base := base_of(row)) is not None]
    links = _Links(continues=continues, answered=rules.provider_calls_answered)
    for entry, row in based_rows:
        links.read(entry, row)
    out = links.out
    if rules.provider_calls_answered:
        for call, (key, part_index) in links.waiting.items():
            if not _is_at_work(call, key, rows):
                out.setdefault(key, {})[part_index] = NO_RESULT
    direct = {} if continues else _without_caller(based_rows, out)
    return Misfits(out, direct) if out or direct else NONE


def _without_caller(
    based_rows: Sequence[tuple[Entry, Row]], out: Mapping[EntryKey, Mapping[int, Reason]]
) -> dict[EntryKey, frozenset[int]]:
    open_ids: set[CallId] = set()
    direct: dict[EntryKey, frozenset[int]] = {}
    for entry, row in based_rows:
        missing_indexes: set[int] = set()
        for part_index, part in _parts(row):
            if isinstance(part, Other) and part.opens is not None:
                if part_index not in out.get(entry.key, {}):
                    open_ids.add(part.opens)
            elif isinstance(part, ToolCall) and part.caller not in (None, *open_ids):
                missing_indexes.add(part_index)
        if missing_indexes:
            direct[entry.key] = frozenset(missing_indexes)
    return direct


@dataclass(slots=True)
class _Links:
    continues: bool
    answered: bool
    waiting: dict[CallId, tuple[EntryKey, int]] = field(default_factory=dict)
    done: set[CallId] = field(default_factory=set)
    out: dict[EntryKey, dict[int, Reason]] = field(default_factory=dict)

    def read(self, entry: Entry, row: Row) -> None:
        pairs = _pairs_inside(row)
        for part_index, part in _parts(row):
            if not isinstance(part, Other):
                continue
            if part.opens is not None:
                self._call(part.opens, entry.key, part_index, paired=part_index in pairs)
            elif part.answers is not None and part_index not in pairs:
                reason = self._answer(part.answers, certain=part.certain)
                if reason is not None:
                    self.out.setdefault(entry.key, {})[part_index] = reason

    def _call(self, call: CallId, key: EntryKey, part_index: int, *, paired: bool) -> None:
        if paired:  # an earlier call with the same id gets no result
            if call in self.waiting and self.answered:
                open_key, open_index = self.waiting.pop(call)
                self.out.setdefault(open_key, {})[open_index] = NO_RESULT
            self.done.add(call)
        elif call in self.waiting or call in self.done:
            self.out.setdefault(key, {})[part_index] = SECOND_CALL
        else:
            self.waiting[call] = (key, part_index)

    def _answer(self, call: CallId, *, certain: bool) -> Reason | None:
        if self.waiting.pop(call, None) is None and certain:
            if call in self.done:
                return SECOND_RESULT
            if not self.continues:
                return NO_CALL
        self.done.add(call)
        return None


def _pairs_inside(row: Row) -> set[int]:
    waiting: dict[CallId, int] = {}
    pairs: set[int] = set()
    for part_index, part in _parts(row):
        if not isinstance(part, Other):
            continue
        if part.opens is not None:
            waiting[part.opens] = part_index
        elif part.answers in waiting:
            pairs.update((waiting.pop(part.answers), part_index))
    return pairs


def calls_at_work(entries: Iterable[Entry]) -> frozenset[CallId]:
    """Return provider-run calls that wait for their result at the end of a history."""
    waiting: set[CallId] = set()
    for entry in entries:
        if entry.message.joins:
            waiting.difference_update(
                part.answers
                for part in entry.parts
                if isinstance(part, Other) and part.answers is not None
            )
        waiting.update(entry.message.opens)
        if waiting and entry.role == "user" and not entry.results:
            waiting.clear()
    return frozenset(waiting)


def _is_linked(row: Row) -> bool:
    entry = base_of(row)
    return entry is not None and bool(entry.message.opens or entry.message.joins)


def _parts(row: Row) -> Iterator[tuple[int, Part]]:
    if isinstance(row, Entry):
        yield from enumerate(row.parts)
        return
    for piece in row.pieces:
        if isinstance(piece, KeptPart | RewordedPart) and piece.entry is row.base:
            yield piece.part, piece.entry.parts[piece.part]


def _is_at_work(call: CallId, key: EntryKey, rows: Sequence[Row]) -> bool:
    """Return whether a provider-run call is still running: it is followed only by calls to the
    client, made next to it or by its code, and by their results."""
    called: set[CallId] | None = None
    for row in rows:
        entry = base_of(row)
        if called is None:
            if entry is not None and entry.key == key:
                called = set(entry.calls)
        elif entry is None:
            return False
        elif row.role == "assistant":
            if call not in entry.message.joins:
                return False
            called = set(entry.calls)
        elif called.isdisjoint(entry.results):
            return False
    return True


@dataclass(slots=True, eq=False)
class Group:
    """Messages or parts that are only removed together. A member is a whole message (part None) or
    one part. `first` is the position of the first member."""

    first: int
    members: list[tuple[EntryKey, int | None]] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    calls: bool = False


def group(entries: Sequence[Entry], rules: WireRules) -> list[Group]:
    groups: list[Group] = []
    caller: dict[CallId, Group] = {}
    opened: dict[CallId, Group] = {}
    run: Group | None = None
    for index, entry in enumerate(entries):
        if entry.results:
            _join_callers(entry, index, caller, groups)
            run = None
            continue
        in_run = rules.thinking_leads and run is not None and entry.role == "assistant"
        opened_group = next((opened[c] for c in entry.message.joins if c in opened), None)
        if opened_group is not None:
            if in_run and run is not None and run is not opened_group:
                _merge(opened_group, run, (caller, opened))
                groups.remove(run)
            run = opened_group
        elif not in_run:
            run = Group(first=index)
            groups.append(run)
        assert run is not None
        run.members.append((entry.key, None))
        run.entries.append(index)
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
    group.members += other.members
    group.entries += other.entries
    group.calls |= other.calls
    for group_by_call in owners:
        group_by_call.update(
            {call_id: group for call_id, owner in group_by_call.items() if owner is other}
        )


def _join_callers(
    entry: Entry, index: int, caller: dict[CallId, Group], groups: list[Group]
) -> None:
    owners = {
        id(found_group): found_group
        for c in entry.results
        if (found_group := caller.get(c)) is not None
    }
    if all(isinstance(part, ToolResult) for part in entry.parts) and len(owners) == 1:
        owner = next(iter(owners.values()))
        owner.members.append((entry.key, None))
        owner.entries.append(index)
        return
    loose_group = Group(first=index)
    for part_index, part in enumerate(entry.parts):
        found_group = caller.get(part.call_id) if isinstance(part, ToolResult) else None
        target = found_group or loose_group
        target.members.append((entry.key, part_index))
        if index not in target.entries:
            target.entries.append(index)
    if loose_group.members:
        groups.append(loose_group)


def is_odd(message: Message, rules: WireRules) -> bool:
    """Return whether the message must be repaired: unfinished, empty, blank or badly ordered."""
    parts = message.parts
    if message.role == "system" and rules.system_inside:
        return bool(message.flaws)
    if message.ending != "complete" or not parts or message.flaws:
        return True
    role = message.role
    if role == "system" and rules.alternates:
        return True
    if len(parts) == 1 and isinstance(part := parts[0], Text):
        refused = rules.refuses_blank_text or role == "assistant"
        return refused and (not part.text or part.text.isspace())
    if any(map(misfit_of, parts, repeat(role))) or _has_blank(message, rules):
        return True
    if role == "assistant":
        if all(isinstance(part, Text) and not part.text.strip() for part in parts):
            return True
        calls = call_ids(message)
        return len(calls) != len(set(calls))
    return rules.results_share_a_message and _results_not_first(message)


def misfit_of(part: Part, role: Role) -> Cause | None:
    """Return why the part is invalid in a message of this role. Calls need an id and a name."""
    if isinstance(part, Other):
        return Cause.PART_EMPTY if part.kind in UNREADABLE_KINDS else None
    if role != "assistant":
        return Cause.MISPLACED_PART if isinstance(part, ToolCall | Thinking) else None
    if isinstance(part, ToolCall) and not (part.id and part.name):
        return Cause.PART_EMPTY
    return Cause.MISPLACED_PART if isinstance(part, ToolResult) else None


def call_ids(message: Message) -> tuple[CallId, ...]:
    return tuple([part.id for part in message.parts if isinstance(part, ToolCall)])


def result_ids(message: Message) -> tuple[CallId, ...]:
    return tuple([part.call_id for part in message.parts if isinstance(part, ToolResult)])


def is_well_formed(entries: Sequence[Entry], rules: WireRules) -> bool:
    """Return whether the messages need no repair: no result is missing, every part is valid."""
    if not entries or misfits(entries, rules):
        return False
    if rules.results_share_a_message:
        return _shared(entries, rules)
    if rules.results_adjacent:
        return _adjacent(entries)
    return _loose(entries)


def _shared(entries: Sequence[Entry], rules: WireRules) -> bool:
    """Return whether messages fit a format with results first in the user message after the calls.
    Roles must alternate and the user must begin. A system message must follow a user's message."""
    pending: tuple[CallId, ...] = ()
    expected_role = "user"
    for entry in entries:
        inside = rules.system_inside and entry.role == "system"
        if inside and not entry.odd and expected_role == "assistant":
            continue
        if entry.odd or entry.role != expected_role:
            return False
        if entry.results != pending and sorted(entry.results) != sorted(pending):
            return False
        pending = entry.calls
        expected_role = "assistant" if expected_role == "user" else "user"
    return not pending and not _ends_badly(entries[-1])


def _adjacent(entries: Sequence[Entry]) -> bool:
    """Return whether messages fit a format with results directly after their call, and unique
    ids."""
    pending: set[CallId] = set()
    for entry in entries:
        if entry.odd:
            return False
        if entry.role == "tool":
            if entry.results[0] not in pending:
                return False
            pending.discard(entry.results[0])
        elif pending:
            return False
        elif entry.calls:
            pending = set(entry.calls)
    return not pending


def _loose(entries: Sequence[Entry]) -> bool:
    """Return whether messages fit a format with a later result for every call, and the produced
    item after every reasoning item."""
    pending: set[CallId] = set()
    item_ids: set[str] = set()
    leading = False
    for entry in entries:
        if entry.odd or (leading and entry.role != "assistant"):
            return False
        item_id = entry.message.wire_id
        if item_id is not None:
            if item_id in item_ids:
                return False
            item_ids.add(item_id)
        leading = False
        if entry.role == "tool":
            if entry.results[0] not in pending:
                return False
            pending.discard(entry.results[0])
        elif entry.calls:
            if entry.calls[0] in pending:
                return False
            pending.add(entry.calls[0])
        elif isinstance(entry.message.parts[0], Thinking):
            leading = True
    return not pending and not leading


def _results_not_first(message: Message) -> bool:
    is_result = [isinstance(part, ToolResult) for part in message.parts]
    return is_result != sorted(is_result, reverse=True)


def _has_blank(message: Message, rules: WireRules) -> bool:
    if not rules.refuses_blank_text:
        return False
    return any(isinstance(part, Text) and not part.text.strip() for part in message.parts)


def _ends_badly(entry: Entry) -> bool:
    """Return whether the last message is an invalid message of the assistant: it ends with white
    space, or contains thinking where that is not allowed."""
    if entry.role != "assistant":
        return False
    last = entry.message.parts[-1]
    if isinstance(last, Text) and last.text[-1:].isspace():
        return True
    return any(isinstance(part, Thinking) for part in entry.message.parts)
