"""Forgetting within one transcript: which of its entries go, and what the file is without them.

Pure: bytes in, bytes out. Must never take an entry out of the chain. Always holds: ids, parents
and times stay as they were; a line that nobody meant keeps its own bytes; a summary that stood
for something forgotten is withdrawn with it; forgetting twice changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from recollect.formats.js_json import stringify
from recollect.formats.pi_context import kept_from
from recollect.formats.pi_entries import entry_line
from recollect.formats.pi_session import PiEntry, PiHeader, PiSession, path_to, read_session
from recollect.session.forget_blank import (
    FORGOTTEN,
    WITHDRAWN,
    blank_entry,
    blank_message,
    blank_summary,
    named_in,
)
from recollect.session.forget_search import EntrySearch, MeantEntries, comparable, text_of
from recollect.session.undo import UNDONE_SUMMARY

_HEADER_TEXTS: Final = ("cwd", "parentSession")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesForgotten:
    """A transcript afterwards, and what was done to it."""

    data: bytes = field(repr=False)
    entries: int = 0
    """Entries whose content went, and lines that nobody could read."""
    summaries: int = 0
    """Summaries that were withdrawn because of them."""
    header_changed: bool = False
    left_in_names: bool = False
    """The text stands in an id, or in the name of a model, a tool or the session, which stay."""

    @property
    def changed(self) -> bool:
        """Whether the file has to be written anew."""
        return bool(self.entries or self.summaries or self.header_changed)


def forget_entries(data: bytes, meant: MeantEntries) -> EntriesForgotten:
    """Forget what is meant in the bytes of a session file."""
    if meant.nothing:
        return EntriesForgotten(data=data)
    session = read_session(data)
    search = EntrySearch(meant)
    values = _forgotten(session, search)
    entries = len(values)
    values |= _withdrawn(session.entries, values)
    summaries = len(values) - entries
    header = None if session.header is None else _header(session.header, search)
    lines, unread = _lines(data, session, values, header, search)
    done = EntriesForgotten(
        data=b"\n".join(lines),
        entries=entries + unread,
        summaries=summaries,
        header_changed=header is not None,
        left_in_names=_left(session, values, header, search),
    )
    return done if done.changed else EntriesForgotten(data=data, left_in_names=done.left_in_names)


def _forgotten(session: PiSession, search: EntrySearch) -> dict[int, dict[str, Any]]:
    """By line number, the entries that go, as they are afterwards."""
    meant = {entry.number for entry in session.entries if search.entry(entry)}
    meant |= _in_pieces(session.entries, search.said)
    meant |= _aged(session, search)
    gone: dict[int, dict[str, Any]] = {}
    spelled: set[str] = set()
    for entry in session.entries:
        if entry.number not in meant:
            continue
        left = blank_entry(entry.value)
        if left != entry.value:
            gone[entry.number] = left
            spelled.add(stringify(entry.value.get("message")))
    for entry in session.entries:
        if entry.number in gone or entry.retained_tail is None:
            continue
        tail = [
            blank_message(one)
            if isinstance(one, Mapping) and (search.message(one) or stringify(one) in spelled)
            else one
            for one in entry.value["retainedTail"]
        ]
        if tail != entry.value["retainedTail"]:
            gone[entry.number] = blank_summary(entry.value, tail=tail)
    return gone


def _in_pieces(entries: Sequence[PiEntry], said: tuple[str, ...]) -> set[int]:
    """Results that follow each other and were one message together, short ones too."""
    found: set[int] = set()
    runs = groupby(entries if said else (), key=lambda entry: entry.role == "toolResult")
    for run in [list(run) for results, run in runs if results]:
        texts = [comparable(text_of(entry) or "") for entry in run]
        for start in range(len(run)):
            for end in range(start + 2, len(run) + 1):
                if "\n".join(texts[start:end]) in said:
                    found.update(entry.number for entry in run[start:end])
    return found


def _aged(session: PiSession, search: EntrySearch) -> set[int]:
    """Entries that go by their time; one without a time is as old as the one before it."""
    header = session.header
    at = PiEntry(number=0, line=b"", value=header.value).milliseconds if header else 0
    found: set[int] = set()
    for entry in session.entries:
        at = entry.milliseconds or at
        if search.is_timely(at):
            found.add(entry.number)
    return found


def _withdrawn(
    entries: Sequence[PiEntry], gone: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Summaries that stood for what went, or that were made from one that did."""
    found: dict[int, dict[str, Any]] = {}
    for entry in entries:
        if entry.number in gone or entry.kind not in ("compaction", "branch_summary"):
            continue
        if entry.text("summary") in (None, UNDONE_SUMMARY, WITHDRAWN):
            continue
        covered = {one.number for one in _covered(entries, entry)}
        if not covered.isdisjoint(gone) or not covered.isdisjoint(found):
            found[entry.number] = blank_summary(entry.value)
    return found


def _covered(entries: Sequence[PiEntry], summary: PiEntry) -> list[PiEntry]:
    """What a summary may have been made from: all before what it keeps, and earlier summaries."""
    earlier = [one for one in entries if one.number < summary.number]
    if summary.id is None:
        return earlier
    path = path_to(entries, summary.id)
    if summary.kind == "branch_summary":  # of a branch that is not its own; which one, is not said
        own = {one.number for one in path}
        return [one for one in earlier if one.number not in own]
    cut = len(path) - 1
    kept = cut if summary.retained_tail is not None else kept_from(path, cut)
    return [*path[:kept], *(one for one in path[kept:cut] if one.kind == "compaction")]


def _header(header: PiHeader, search: EntrySearch) -> bytes | None:
    """The first line anew; None where it stays."""
    value = {
        key: FORGOTTEN
        if key in _HEADER_TEXTS and isinstance(held, str) and search.holds(held)
        else held
        for key, held in header.value.items()
    }
    return None if value == header.value else entry_line(value)


def _lines(
    data: bytes,
    session: PiSession,
    values: Mapping[int, Mapping[str, Any]],
    header: bytes | None,
    search: EntrySearch,
) -> tuple[list[bytes], int]:
    """The file's lines afterwards, and how many went that nobody could read."""
    known = {entry.number for entry in session.entries}
    aged = _aged(session, search)
    oldest = max(aged, default=0) if search.by_age_alone else 0
    lines = data.split(b"\n")
    first = 0 if session.header is None else lines.index(session.header.line) + 1
    left: list[bytes] = []
    unread = before = 0
    for number, line in enumerate(lines, 1):
        if number in values:
            left.append(entry_line(values[number]))
        elif number == first and header is not None:
            left.append(header)
        elif number in known or number == first or not line.strip():
            left.append(line)
        elif before in aged or number < oldest or search.unread_line(line):
            unread += 1
            if number == len(lines):
                left.append(b"")  # the line before it keeps its end
        else:
            left.append(line)
        before = number if number in known else before
    return left, unread


def _left(
    session: PiSession,
    values: Mapping[int, Mapping[str, Any]],
    header: bytes | None,
    search: EntrySearch,
) -> bool:
    names = [values.get(entry.number, entry.value) for entry in session.entries]
    if session.header is not None:
        held = session.header.value
        names.append(
            held
            if header is None
            else {key: one for key, one in held.items() if key not in _HEADER_TEXTS}
        )
    return any(search.holds(text) for value in names for text in named_in(value))
