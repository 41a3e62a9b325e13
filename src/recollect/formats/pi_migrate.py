"""pi session files of versions 1 and 2 as version 3.

Owns the two steps that pi itself takes when it opens an older file, down to where a new key
stands in its line. Pure. Always holds: a file of version 3 comes back as it is; every entry of
an older one is there, in its order, spelled as JavaScript would; the same file gives the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from recollect.formats.pi_entries import entry_line
from recollect.formats.pi_session import (
    PI_VERSION,
    PiHeader,
    PiSession,
    entry_id_from,
)

_FIRST_WITH_IDS: Final = 2
_FIRST_WITH_CUSTOM: Final = 3


def migrate(session: PiSession) -> PiSession:
    """The session as version 3; what had to be changed stands in the notes."""
    if session.version >= PI_VERSION:
        return session
    values = [dict(entry.value) for entry in session.entries]
    notes = [*session.notes, f"read as version {session.version}, migrated to {PI_VERSION}"]
    if session.version < _FIRST_WITH_IDS:
        _give_ids(values, session, notes)
    if session.version < _FIRST_WITH_CUSTOM:
        values = [_with_custom_role(value) for value in values]
    header = session.header
    if header is not None:
        value = {**header.value, "version": PI_VERSION}
        header = PiHeader(line=entry_line(value), value=value)
    entries = [
        replace(entry, value=value, line=entry_line(value))
        for entry, value in zip(session.entries, values, strict=True)
    ]
    return replace(
        session, header=header, entries=tuple(entries), version=PI_VERSION, notes=tuple(notes)
    )


def session_bytes(session: PiSession) -> bytes:
    """The session as a file: each line as it stands, or as migration spelled it."""
    lines = [session.header.line] if session.header is not None else []
    lines += [entry.line for entry in session.entries]
    return b"".join(line + b"\n" for line in lines)


def _give_ids(values: list[dict[str, Any]], session: PiSession, notes: list[str]) -> None:
    """Version 2: a chain of ids, and compactions that name an entry instead of a line."""
    seed = session.header.id if session.header is not None else ""
    before_header = 1 if session.header is not None else 0  # the index counts the header
    taken: set[str] = set()
    parent: str | None = None
    for position, value in enumerate(values):
        if value.get("type") == "session":  # a second header has no place in the chain
            continue
        own = entry_id_from(f"{seed}\0{position}", taken)
        taken.add(own)
        value["id"], value["parentId"] = own, parent
        parent = own
        if value.get("type") != "compaction":
            continue
        index = value.get("firstKeptEntryIndex")
        if isinstance(index, bool) or not isinstance(index, int | float):
            continue
        target = _entry_at(index - before_header, values[:position])
        if target is None:
            line = session.entries[position].number
            notes.append(
                f"line {line}: the first entry this compaction kept is not before it, "
                "so only its summary stands for the past"
            )
        else:
            value["firstKeptEntryId"] = target["id"]
        del value["firstKeptEntryIndex"]


def _entry_at(position: float, values: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if position != int(position) or not 0 <= position < len(values):
        return None
    found = values[int(position)]
    return found if found.get("type") != "session" else None


def _with_custom_role(value: dict[str, Any]) -> dict[str, Any]:
    """Version 3: what was a hook's message is a custom one."""
    message = value.get("message")
    if value.get("type") == "session":  # a second header, which pi takes along as well
        return {**value, "version": PI_VERSION}
    if value.get("type") != "message" or not isinstance(message, dict):
        return value
    if message.get("role") != "hookMessage":
        return value
    return {**value, "message": {**message, "role": "custom"}}
