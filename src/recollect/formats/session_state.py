"""A session's state as bytes, for those who keep it between processes.

JSON with a version; a reader refuses what a newer version wrote instead of guessing. What was
said does not stand in it, but for the text of edits: shortened results and recalled blocks.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, fields, replace
from typing import Any

from recollect.errors import FormatError
from recollect.formats.json_spans import decode, encode
from recollect.values.calibration import Calibration
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
_NAMES = {kind: name for name, kind in _EDITS.items()}


def write_state(state: SessionState) -> bytes:
    """The state as bytes that `read_state` takes back."""
    held = {field.name: getattr(state, field.name) for field in fields(state)}
    held["edits"] = [_written(edit) for edit in state.edits]
    held["dormant"] = [[_written(edit), since] for edit, since in state.dormant]
    held["calibration"] = asdict(state.calibration)
    return encode({"version": VERSION, **held})


def read_state(raw: bytes) -> SessionState:
    """The state that `write_state` wrote; FormatError for anything else."""
    held = decode(raw)
    if not isinstance(held, dict) or held.pop("version", None) != VERSION:
        raise FormatError(f"not a session state of version {VERSION}: it may be a newer one's")
    try:
        calibration = dict(held["calibration"])
        calibration["earlier"] = tuple((a, b) for a, b in calibration["earlier"])
        return SessionState(
            **{
                **held,
                "path": tuple(EntryKey(key) for key in held["path"]),
                "ids": tuple(MessageId(identity) for identity in held["ids"]),
                "aliases": dict(held["aliases"]),
                "edits": tuple(_read(edit) for edit in held["edits"]),
                "dormant": tuple((_read(edit), since) for edit, since in held["dormant"]),
                "calibration": Calibration(**calibration),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
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


def _written(edit: Edit) -> dict[str, Any]:
    return {"kind": _NAMES[type(edit)], **asdict(edit)}


def _read(held: dict[str, Any]) -> Edit:
    given = dict(held)
    for listed in ("quotes", "recalled"):
        if listed in given:
            given[listed] = tuple(given[listed])
    return _EDITS[given.pop("kind")](**given)
