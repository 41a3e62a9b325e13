"""Calls of tools that a provider runs itself: search, code, MCP servers, and what belongs to them.

Their results come from the provider, in the same message or a later one; meanwhile the code that
runs may call the client's tools. Owns what of such a pair cannot stand without the rest. Never
invents a result. Always holds: a block of a type that nobody knows is no misfit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recollect.values.history import Entry
from recollect.values.message import CallId, EntryKey, Other, Part, ToolCall
from recollect.values.reason import Cause, Reason
from recollect.values.slot import Arranged, Kept, Reworded
from recollect.values.wire import WireRules

NO_CALL = Reason(Cause.SERVER_RESULT_ALONE)
SECOND_CALL = Reason(Cause.SERVER_CALL_TOLD_AGAIN)
SECOND_RESULT = Reason(Cause.SERVER_RESULT_SECOND)
NO_RESULT = Reason(Cause.SERVER_CALL_ALONE)
CALLER_GONE = Reason(Cause.CALLER_GONE)


@dataclass(frozen=True, slots=True)
class Misfits:
    """Parts, by message and place, that go and why; and calls whose caller is not shown."""

    out: Mapping[EntryKey, Mapping[int, Reason]] = field(default_factory=dict)
    direct: Mapping[EntryKey, frozenset[int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.out or self.direct)

    def touches(self, entry: Entry | None) -> bool:
        """Whether anything of a message does not fit."""
        return entry is not None and (entry.key in self.out or entry.key in self.direct)


NONE = Misfits()


def misfits(rows: Sequence[Arranged], rules: WireRules, *, continues: bool = False) -> Misfits:
    """What of provider-run calls cannot stay as it is. With `continues` the provider holds
    earlier items itself, so a result or a caller may be there."""
    linked = [(row, entry) for row in rows if (entry := _linked(row)) is not None]
    if not linked:
        return NONE
    out: dict[EntryKey, dict[int, Reason]] = {}
    calls, answered = _matched(linked, out, continues=continues)
    if rules.provider_calls_answered:
        for call in [call for call in calls if call not in answered]:
            key, at = calls[call]
            if not _is_at_work(call, key, rows):
                out.setdefault(key, {})[at] = NO_RESULT
                del calls[call]
    direct = {} if continues else _without_caller(linked, calls)
    return Misfits(out, direct) if out or direct else NONE


def _without_caller(
    linked: Sequence[tuple[Arranged, Entry]], calls: Mapping[CallId, tuple[EntryKey, int]]
) -> dict[EntryKey, frozenset[int]]:
    """The calls, by message, whose code does not stand before them."""
    before: set[CallId] = set()
    direct: dict[EntryKey, frozenset[int]] = {}
    for row, entry in linked:
        gone: set[int] = set()
        for at, part in _parts(row):
            if isinstance(part, Other) and part.opens is not None:
                whole = part.opens not in entry.message.opens
                if whole or calls.get(part.opens) == (entry.key, at):
                    before.add(part.opens)
            elif isinstance(part, ToolCall) and part.caller not in (None, *before):
                gone.add(at)
        if gone:
            direct[entry.key] = frozenset(gone)
    return direct


def _matched(
    linked: Sequence[tuple[Arranged, Entry]],
    out: dict[EntryKey, dict[int, Reason]],
    *,
    continues: bool,
) -> tuple[dict[CallId, tuple[EntryKey, int]], set[CallId]]:
    """Every call and its place, and which of them are answered; results of none go into `out`."""
    calls: dict[CallId, tuple[EntryKey, int]] = {}
    answered: set[CallId] = set()
    for row, entry in linked:
        for at, part in _parts(row):
            if not isinstance(part, Other) or not (
                part.opens in entry.message.opens or part.answers in entry.message.joins
            ):
                continue  # a pair within its message is nobody else's
            if part.opens in calls:
                out.setdefault(entry.key, {})[at] = SECOND_CALL
            elif part.opens is not None:
                calls[part.opens] = (entry.key, at)
            elif part.answers is None:
                continue
            elif part.certain and part.answers not in calls and not continues:
                out.setdefault(entry.key, {})[at] = NO_CALL
            elif part.certain and part.answers in answered:
                out.setdefault(entry.key, {})[at] = SECOND_RESULT
            else:
                answered.add(part.answers)
    return calls, answered


def calls_at_work(entries: Iterable[Entry]) -> frozenset[CallId]:
    """Provider-run calls that wait for their result at the end of a history."""
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


def _linked(row: Arranged) -> Entry | None:
    entry = row if isinstance(row, Entry) else row.base
    if entry is None or not (entry.message.opens or entry.message.joins):
        return None
    return entry


def _parts(row: Arranged) -> Iterator[tuple[int, Part]]:
    """What a row shows of its own message, with its places."""
    if isinstance(row, Entry):
        yield from enumerate(row.parts)
        return
    for piece in row.pieces:
        if isinstance(piece, Kept | Reworded) and piece.entry is row.base:
            yield piece.part, piece.entry.parts[piece.part]


def _is_at_work(call: CallId, key: EntryKey, rows: Sequence[Arranged]) -> bool:
    """Whether nothing but the work of this call follows it: the client's calls that were made
    beside it or by its code, and their results."""
    called: set[CallId] | None = None
    for row in rows:
        entry = row if isinstance(row, Entry) else row.base
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
