"""A session's state as bytes, for those who keep it between processes.

JSON with a version; a reader refuses what a newer version wrote instead of guessing. What was
said does not stand in it, but for the text of edits: shortened results and recalled blocks.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

import msgspec

from recollect.errors import FormatError
from recollect.formats.json_spans import decode, encode
from recollect.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.values.history import SessionState
from recollect.values.message import EntryKey, MessageId

VERSION = 1
PACK_BYTES = 4096
_PACKED = b"Z1"
_EDITS: dict[str, type[Edit]] = {
    "left-out": LeaveOut,
    "shortened": Shorten,
    "inserted": Insert,
    "cut": Cut,
}
_FIELDS = {name: frozenset(field.name for field in fields(kind)) for name, kind in _EDITS.items()}
_NAMES = {kind: name for name, kind in _EDITS.items()}


def write_state(state: SessionState) -> bytes:
    """The state as bytes that `read_state` takes back."""
    held = {field.name: _plain(getattr(state, field.name)) for field in fields(state)}
    held["edits"] = [_written(edit) for edit in state.edits]
    held["dormant"] = [[_written(edit), since] for edit, since in state.dormant]
    return encode({"version": VERSION, **held})


def read_state(raw: bytes) -> SessionState:
    """The state that `write_state` wrote; FormatError for anything else.

    A field that was not there yet when it was written has its default; one that is not known
    here is a newer program's, and refused.
    """
    held = decode(raw)
    if not isinstance(held, dict) or held.pop("version", None) != VERSION:
        raise FormatError(f"not a session state of version {VERSION}: it may be a newer one's")
    try:
        edits = tuple(_read(edit) for edit in held.pop("edits"))
        dormant = tuple((_read(edit), int(since)) for edit, since in held.pop("dormant"))
        kept = {name: msgspec.convert(value, _types()[name]) for name, value in held.items()}
        return SessionState(**kept, edits=edits, dormant=dormant)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise FormatError(f"not a session state: {type(error).__name__}") from error


def split_state(state: SessionState) -> bytes:
    """The state without its path, for a store that keeps the path apart.

    A long one is packed: a session that left out thousands of messages has an edit for each,
    and its state is written every turn.
    """
    return _packed(write_state(replace(state, path=(), ids=())))


def join_state(raw: bytes, path: tuple[EntryKey, ...], ids: tuple[MessageId, ...]) -> SessionState:
    """What `split_state` wrote, with its path again."""
    return replace(read_state(_unpacked(raw)), path=path, ids=ids)


def without_quotes(raw: bytes, forgotten: frozenset[EntryKey]) -> bytes:
    """A stored state that quotes none of these messages any more.

    Shortened results of them go; so does every recalled block, every cut, whose summary may
    quote them, and whatever is shortened on a branch that rests, whose keys the caller may not
    know. The view shows the history itself again.
    """
    state = read_state(_unpacked(raw))

    def stays(edit: Edit) -> bool:
        if isinstance(edit, Shorten):
            return edit.hard or edit.anchor not in forgotten
        return not isinstance(edit, Insert | Cut)

    return _packed(
        write_state(
            replace(
                state,
                edits=tuple(edit for edit in state.edits if stays(edit)),
                dormant=tuple(
                    (edit, since)
                    for edit, since in state.dormant
                    if stays(edit) and (not isinstance(edit, Shorten) or edit.hard)
                ),
            )
        )
    )


def _packed(raw: bytes) -> bytes:
    return _PACKED + zlib.compress(raw, 1) if len(raw) > PACK_BYTES else raw


def _unpacked(raw: bytes) -> bytes:
    if not raw.startswith(_PACKED):
        return raw
    try:
        return zlib.decompress(raw[len(_PACKED) :])
    except zlib.error as error:
        raise FormatError("not a session state: it cannot be unpacked") from error


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _types() -> dict[str, Any]:
    """What each field of a state is."""
    return get_type_hints(SessionState)


def _written(edit: Edit) -> dict[str, Any]:
    return {"kind": _NAMES[type(edit)], **asdict(edit)}


def _read(held: dict[str, Any]) -> Edit:
    given = dict(held)
    kind = given.pop("kind")
    if not given.keys() <= _FIELDS[kind]:
        raise ValueError("a newer program's edit")
    return msgspec.convert(given, _EDITS[kind])
