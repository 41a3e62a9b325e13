"""Records that stores and the spool contain: session states, compactions, batches. Every record has
a version, and a reader refuses newer versions. Callers redact records before they store them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any, Final, get_type_hints

import msgspec

from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.turn_records import texts_of_outcomes
from recollect.core.values.batch import Batch
from recollect.core.values.compaction import CompactionResult, Probe
from recollect.core.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import Reason
from recollect.errors import FormatError

STATE_VERSION = 1
"""Raised if earlier programs would misread a state."""
PACK_BYTES = 4096
"""Not measured; a smaller state fits a database page uncompressed."""
_PACKED = b"Z1"
_DEFLATED = b"Z2"
"""First bytes of a compressed state. Edits are compressed in chunks, to reuse unchanged ones."""
_CHUNK_EDITS: Final = 256
"""Not measured; bounds how many edits are compressed again after one of them changed."""
_ID_CHARS = 32
"""Number of characters in a message id: 16 bytes in hex (rules/identity.py)."""
_EDITS: dict[str, type[Edit]] = {
    "left-out": LeaveOut,
    "shortened": Shorten,
    "inserted": Insert,
    "cut": Cut,
}
_CONTENT_FIELDS = frozenset(
    {"text", "summary", "said", "read_files", "modified_files", "identifiers"}
)
"""Fields of edits that contain message content."""
_LEFT_OUT: Final = "left-outs"
"""Kind of the record that holds several edits, each of which leaves out a whole message."""
_MIN_COLUMN_EDITS: Final = 16
"""Not measured; a shorter run saves few bytes as one record."""
_FIELDS = {name: [field.name for field in fields(kind)] for name, kind in _EDITS.items()}
_NAMES = {kind: name for name, kind in _EDITS.items()}


def write_state(
    state: SessionState, *, apart: Sequence[str] = (), path: Sequence[EntryKey] = ()
) -> bytes:
    """Return a session's state as bytes for `read_state`.

    The bytes contain no messages, but the text of shortened results and recalled blocks. Ids in
    `apart` and keys in `path` are omitted, because the caller stores them elsewhere.
    """
    writer = _EditWriter(widest_cut=_find_widest_cut(state), stored_ids=apart)
    writer.know_path(path or state.path)
    edits = [writer.write_edits(state.edits)] if state.edits else []
    return b"".join(_around_edits(state, writer, edits))


def _around_edits(state: SessionState, writer: _EditWriter, edits: Sequence[bytes]) -> list[bytes]:
    names = [field.name for field in fields(state) if field.name not in ("edits", "dormant")]
    record = {name: _to_plain(getattr(state, name)) for name in names}
    dormant = [
        b"[" + writer.write_edit(edit) + b"," + encode(since) + b"]"
        for edit, since in state.dormant
    ]
    opening = encode({"version": STATE_VERSION, **record})[:-1] + b',"edits":['
    between = [stretch for edit in edits for stretch in (edit, b",")][:-1]
    return [opening, *between, b'],"dormant":[' + b",".join(dormant) + b"]}"]


class StateWriter:
    """Writes the states of one session, turn by turn. Compressed bytes of unchanged edits are
    reused, because an edit may contain a thousand texts."""

    def __init__(self) -> None:
        self._writer = _EditWriter(widest_cut=None, stored_ids=())
        self._packed_by_id: dict[int, tuple[tuple[Edit, ...], bytes]] = {}
        """Compressed chunks by the id() of their first edit. Storing the edits keeps ids unique."""
        self._dormant: dict[int, tuple[Edit, Edit]] = {}

    def split(self, state: SessionState, mask: Callable[[Edit], Edit]) -> bytes:
        """Write the state as `split_state` does, with its edits masked by `mask`."""
        writer, widest_cut = self._writer, _find_widest_cut(state)
        if not writer.know_path(state.path) or widest_cut is not writer.widest_cut:
            self._packed_by_id = {}
        writer.widest_cut, writer.stored_ids = widest_cut, state.ids
        masked_dormant = self._mask_dormant(state, mask)
        if widest_cut is None and len(state.edits) <= _CHUNK_EDITS:
            edits = tuple([mask(edit) for edit in state.edits])
            return split_state(replace(state, edits=edits, dormant=masked_dormant))
        bare_state = replace(state, path=(), ids=(), dormant=masked_dormant)
        opening, closing = _around_edits(bare_state, writer, ())
        return b"".join(
            [
                _DEFLATED,
                _deflate(opening),
                *self._pack_edits(state.edits, mask),
                _deflate(closing, zlib.Z_FINISH),
            ]
        )

    def _mask_dormant(
        self, state: SessionState, mask: Callable[[Edit], Edit]
    ) -> tuple[tuple[Edit, int], ...]:
        old_dormant = self._dormant
        self._dormant = {
            id(edit): old_dormant.get(id(edit)) or (edit, mask(edit)) for edit, _ in state.dormant
        }
        return tuple([(self._dormant[id(edit)][1], since) for edit, since in state.dormant])

    def _pack_edits(self, edits: tuple[Edit, ...], mask: Callable[[Edit], Edit]) -> list[bytes]:
        packed_by_id, self._packed_by_id = self._packed_by_id, {}
        for group in _split_chunks(edits):
            packed_group = packed_by_id.get(id(group[0]))
            if packed_group is None or packed_group[0] != group:
                packed_group = (
                    group,
                    _deflate(self._writer.write_edits([mask(edit) for edit in group])),
                )
            self._packed_by_id[id(group[0])] = packed_group
        chunks = [packed_group for _, packed_group in self._packed_by_id.values()]
        return [part for chunk in chunks for part in (_COMMA, chunk)][1:]


def _split_chunks(edits: tuple[Edit, ...]) -> Iterator[tuple[Edit, ...]]:
    """Split edits so that new ones change few chunks: one chunk per cut, or per hundreds of
    others."""
    for is_cut, stretch in groupby(edits, lambda edit: isinstance(edit, Cut)):
        group, size = tuple(stretch), 1 if is_cut else _CHUNK_EDITS
        yield from (group[index : index + size] for index in range(0, len(group), size))


def _deflate(raw: bytes, flush_mode: int = zlib.Z_FULL_FLUSH) -> bytes:
    packer = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    return packer.compress(raw) + packer.flush(flush_mode)


_COMMA: Final = _deflate(b",")


def read_state(
    raw: bytes, *, apart: Sequence[str] = (), path: Sequence[EntryKey] = ()
) -> SessionState:
    """Read the state that `write_state` wrote. Raise FormatError for anything else."""
    record = _state_record(raw)
    try:
        edit_records, dormant_records = record.pop("edits"), record.pop("dormant")
        record.pop("outcomes", None)  # in states of earlier versions
        covered_ids = _find_widest_ids(
            (*edit_records, *(edit for edit, _ in dormant_records)), apart
        )
        known_path = path or record.get("path", ())
        edits: list[Edit] = []
        for edit in edit_records:
            if edit["kind"] == _LEFT_OUT:
                edits += _read_left_out(edit, known_path)
            else:
                edits.append(_read_edit(edit, covered_ids))
        dormant = tuple(
            (_read_edit(edit, covered_ids), int(since)) for edit, since in dormant_records
        )
        values = {name: msgspec.convert(value, _types()[name]) for name, value in record.items()}
        return SessionState(**values, edits=tuple(edits), dormant=dormant)
    except _UNREADABLE as error:
        raise FormatError(f"not a session state: {type(error).__name__}") from error


def _state_record(raw: bytes) -> dict[str, Any]:
    record = decode(raw)
    if not isinstance(record, dict) or record.pop("version", None) != STATE_VERSION:
        raise FormatError(
            f"not a session state of version {STATE_VERSION}: it may be of a newer version"
        )
    return record


def split_state(state: SessionState) -> bytes:
    """Write the state without its path, for a store that keeps the path separately. A long state is
    compressed, because it is written every turn."""
    return _pack(write_state(replace(state, path=(), ids=()), apart=state.ids, path=state.path))


def join_state(raw: bytes, path: tuple[EntryKey, ...], ids: tuple[MessageId, ...]) -> SessionState:
    """Join a state from `split_state` with its path. Without the path, the state lacks some
    messages that its edits name."""
    return replace(read_state(_unpack(raw), apart=ids, path=path), path=path, ids=ids)


def without_quotes(raw: bytes, forgotten_keys: frozenset[EntryKey]) -> bytes:
    """Remove quotes of these messages from a stored state: shortened results, all recalled blocks
    and summaries, and shortened texts of dormant branches. Requests then have the full history."""
    record = _state_record(_unpack(raw))

    def stays(edit: dict[str, Any], *, resting: bool = False) -> bool:
        if edit["kind"] == _NAMES[Shorten]:
            says_nothing = edit.get("hard", False) and not edit.get("quotes")
            return says_nothing or (not resting and edit["anchor"] not in forgotten_keys)
        return edit["kind"] in (_NAMES[LeaveOut], _LEFT_OUT)

    try:
        record["edits"] = [edit for edit in record["edits"] if stays(edit)]
        record["dormant"] = [
            [edit, since] for edit, since in record["dormant"] if stays(edit, resting=True)
        ]
    except _UNREADABLE as error:
        raise FormatError(f"not a session state: {type(error).__name__}") from error
    return _pack(encode({"version": STATE_VERSION, **record}))


def with_texts(raw: bytes, change: Callable[[str], str]) -> bytes:
    """Apply `change` to the texts of a stored state. Return the same bytes if no text changed."""
    record = _state_record(_unpack(raw))
    changed = False

    def walk(value: Any, *, is_content: bool) -> Any:
        nonlocal changed
        if isinstance(value, str) and is_content:
            new_text = change(value)
            changed = changed or new_text != value
            return new_text
        if isinstance(value, list):
            return [walk(item, is_content=is_content) for item in value]
        if isinstance(value, dict):
            return {
                key: walk(item, is_content=key in _CONTENT_FIELDS) for key, item in value.items()
            }
        return value

    new_record = {
        key: walk(value, is_content=False) if key in ("edits", "dormant") else value
        for key, value in record.items()
    }
    return _pack(encode({"version": STATE_VERSION, **new_record})) if changed else raw


def _pack(raw: bytes) -> bytes:
    return _PACKED + zlib.compress(raw, 1) if len(raw) > PACK_BYTES else raw


def _unpack(raw: bytes) -> bytes:
    if not raw.startswith((_PACKED, _DEFLATED)):
        return raw
    try:
        if raw.startswith(_DEFLATED):
            return zlib.decompress(raw[len(_DEFLATED) :], wbits=-zlib.MAX_WBITS)
        return zlib.decompress(raw[len(_PACKED) :])
    except zlib.error as error:
        raise FormatError("not a session state: it cannot be unpacked") from error


def _to_plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(SessionState)


def _find_widest_cut(state: SessionState) -> Cut | None:
    edits = (*state.edits, *(edit for edit, _ in state.dormant))
    cuts = (edit for edit in edits if isinstance(edit, Cut))
    return max(cuts, key=lambda cut: len(cut.covers), default=None)


_UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, msgspec.MsgspecError)


class _EditWriter:
    def __init__(self, *, widest_cut: Cut | None, stored_ids: Sequence[str]) -> None:
        self.widest_cut, self.stored_ids = widest_cut, stored_ids
        self._path: Sequence[EntryKey] = ()
        self._position_by_key: dict[EntryKey, int] = {}

    def know_path(self, path: Sequence[EntryKey]) -> bool:
        known_count = len(self._path)
        grew = path[:known_count] == self._path
        if not grew:
            known_count, self._position_by_key = 0, {}
        self._position_by_key.update(
            {key: position for position, key in enumerate(path[known_count:], known_count)}
        )
        self._path = path
        return grew

    def write_edits(self, edits: Sequence[Edit]) -> bytes:
        """Encode edits in order, with commas between. Consecutive left-out messages share a
        record."""
        records: list[bytes] = []
        for is_one, stretch in groupby(edits, self._is_left_out):
            group = list(stretch)
            if is_one and len(group) > _MIN_COLUMN_EDITS:
                records.append(encode(self._columns(group)))
            else:
                records += map(self.write_edit, group)
        return b",".join(records)

    def write_edit(self, edit: Edit) -> bytes:
        record = {"kind": _NAMES[type(edit)], **_fields_of(edit)}
        if isinstance(edit, Cut):
            record["ended"] = [_fields_of(block) for block in edit.ended]
            record["carried"] = msgspec.to_builtins(edit.carried)
            del record["covers"]
            if edit.covers:
                record["covers"] = _shorten_ids(edit, self.widest_cut, self.stored_ids)
        return encode(record)

    def _is_left_out(self, edit: Edit) -> bool:
        return (
            type(edit) is LeaveOut
            and edit.part is None
            and edit.stage == "trim"
            and edit.anchor in self._position_by_key
        )

    def _columns(self, edits: Sequence[Edit]) -> dict[str, Any]:
        reasons = {id(edit.reason): edit.reason for edit in edits}
        numbers = {reason: number for number, reason in enumerate(reasons)}
        return {
            "kind": _LEFT_OUT,
            "places": [
                self._position_by_key[edit.anchor] for edit in edits if edit.anchor is not None
            ],
            "why": [numbers[id(edit.reason)] for edit in edits],
            "turns": [edit.turn for edit in edits],
            "reasons": [reason.to_dict() for reason in reasons.values()],
        }


def _read_left_out(record: Mapping[str, Any], path: Sequence[EntryKey]) -> list[Edit]:
    if not path:
        return []
    reasons = [Reason.from_dict(reason_record) for reason_record in record["reasons"]]
    columns = zip(record["places"], record["why"], record["turns"], strict=True)
    return [
        LeaveOut(
            anchor=path[place], part=None, stage="trim", reason=reasons[number], turn=int(turn)
        )
        for place, number, turn in columns
    ]


def _fields_of(edit: Edit) -> dict[str, Any]:
    record = {field: getattr(edit, field) for field in _FIELDS[_NAMES[type(edit)]]}
    return {**record, "reason": edit.reason.to_dict()}


def _shorten_ids(cut: Cut, widest_cut: Cut | None, stored_ids: Sequence[str]) -> Any:
    """Return a short form of the ids that a cut covers. If the widest cut begins with the same ids:
    their number. Else: their range in `stored_ids`, and the remaining ids as one string."""
    covers = cut.covers
    if (
        widest_cut is not None
        and cut is not widest_cut
        and widest_cut.covers[: len(covers)] == covers
    ):
        return len(covers)
    start = stored_ids.index(covers[0]) if covers[0] in stored_ids else len(stored_ids)
    shared = 0
    for covered_id, stored_id in zip(covers, stored_ids[start:], strict=False):
        if covered_id != stored_id:
            break
        shared += 1
    other_ids = covers[shared:]
    is_joinable = all(
        len(message_id) == _ID_CHARS and message_id.isascii() for message_id in other_ids
    )
    listed_ids = "".join(other_ids) if is_joinable else list(other_ids)
    return {"from": start, "run": shared, "and": listed_ids} if shared else listed_ids


def _read_edit(record: dict[str, Any], covered_ids: Sequence[str] | None) -> Edit:
    values = dict(record)
    kind = values.pop("kind")
    if not values.keys() <= set(_FIELDS[kind]):
        raise ValueError("a newer program's edit")
    if "covers" in values:
        values["covers"] = _read_covers(values["covers"], covered_ids)
    return msgspec.convert(values, _EDITS[kind], dec_hook=_reason)


def _reason(kind: type, value: Any) -> Any:
    if kind is not Reason:
        raise TypeError(f"a {kind.__name__} in an edit")
    return Reason.from_dict(value)


def _find_widest_ids(
    edit_records: Sequence[dict[str, Any]], stored_ids: Sequence[str]
) -> Sequence[str] | None:
    """Return the ids that the widest cut covers, with which those of other cuts begin; None if the
    ids are stored separately."""
    is_unknown = False
    for edit in edit_records:
        if isinstance(edit.get("covers"), dict):
            is_unknown = is_unknown or not stored_ids
            edit["covers"] = _join_ids(edit["covers"], stored_ids)
    if is_unknown:
        return None
    cover_values = (edit.get("covers", []) for edit in edit_records)
    id_lists = (_read_covers(value, ()) for value in cover_values if not isinstance(value, int))
    return max(id_lists, key=len, default=())


def _join_ids(record: dict[str, Any], stored_ids: Sequence[str]) -> Sequence[str]:
    if not stored_ids and record.keys() == {"from", "run", "and"}:
        return []
    start, run = int(record["from"]), int(record["run"])
    if not 0 <= start <= start + run <= len(stored_ids):
        raise ValueError("a cut that covers more than is known")
    return [*stored_ids[start : start + run], *_read_covers(record["and"], ())]


def _read_covers(value: Any, covered_ids: Sequence[str] | None) -> Sequence[str]:
    if isinstance(value, int):
        if covered_ids is None:
            return []
        if not 0 < value <= len(covered_ids):
            raise ValueError("a cut that covers more than is known")
        return covered_ids[:value]
    if isinstance(value, list):
        return value
    if not isinstance(value, str) or len(value) % _ID_CHARS:
        raise ValueError("no identities")
    return [value[offset : offset + _ID_CHARS] for offset in range(0, len(value), _ID_CHARS)]


_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SHORT: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
# Number of times to undo JSON escapes. Arguments of tool calls are JSON inside a JSON string, so
# they are escaped twice.
_LEVELS: Final = 3


class SoughtText:
    """A text to forget. Case and JSON escapes are ignored. An uncertain match counts as one."""

    __slots__ = ("_folded_text",)

    def __init__(self, text: str) -> None:
        self._folded_text = text.casefold()

    def __repr__(self) -> str:
        return "SoughtText(...)"

    def occurs_in(self, content: bytes | str | None) -> bool:
        if not content or not self._folded_text:
            return False
        if isinstance(content, bytes):
            try:
                content = texts_of_outcomes(content) or content
            except FormatError:
                return True
        text = content if isinstance(content, str) else content.decode("utf-8", "replace")
        for _ in range(_LEVELS):
            if self._folded_text in text.casefold():
                return True
            if "\\" not in text:
                return False
            text = _unescape(text)
        return self._folded_text in text.casefold()

    def remove_from(self, state: bytes) -> bytes | None:
        """Remove texts that match from a session's state. Return None if a text still matches
        afterwards. An unreadable state is searched as bytes."""
        try:
            content = _unpack(state)
            edits = _state_record(content)["edits"]
            if not self.occurs_in(content):
                return state
            shorten_edits = (edit for edit in edits if edit.get("kind") == _NAMES[Shorten])
            cleaned_state = without_quotes(
                state, frozenset(edit["anchor"] for edit in shorten_edits)
            )
            cleaned_content = _unpack(cleaned_state)
        except FormatError:
            return None if self.occurs_in(state) else state
        return None if self.occurs_in(cleaned_content) else cleaned_state


def _unescape(text: str) -> str:
    plain = _ESCAPE.sub(_unescape_one, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescape_one(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _SHORT.get(escape[2], escape[2])


RECORD_VERSION: Final = 1
"""Raised if earlier programs would misread a compaction."""
_RESULT_FIELDS: Final = frozenset(field.name for field in fields(CompactionResult))
_PROBE_FIELDS: Final = frozenset(field.name for field in fields(Probe))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCompaction:
    """A compaction and its time."""

    result: CompactionResult = field(repr=False)
    turn: int
    at: float


def write_record(result: CompactionResult, *, turn: int, written_at: float) -> bytes:
    record = {name: _to_plain(getattr(result, name)) for name in sorted(_RESULT_FIELDS)}
    record["reason"] = result.reason.to_dict()
    record["details"] = dict(result.details)
    if result.receipt is not None:
        record["receipt"]["findings"] = [
            {**asdict(finding.probe), "standing": finding.standing, "pinned": finding.pinned}
            for finding in result.receipt.findings
        ]
    return encode({"version": RECORD_VERSION, "turn": turn, "at": written_at, **record})


def read_record(raw: bytes) -> RecordedCompaction:
    record = decode(raw)
    if not isinstance(record, dict) or record.pop("version", None) != RECORD_VERSION:
        raise FormatError(
            f"not a compaction of version {RECORD_VERSION}: it may be of a newer version"
        )
    if record.keys() != _RESULT_FIELDS | {"turn", "at"}:
        raise FormatError("not a compaction: it has the fields of another version")
    try:
        head = {"turn": record.pop("turn"), "at": record.pop("at")}
        if record["receipt"] is not None:
            findings = [_nest_probe(finding) for finding in record["receipt"]["findings"]]
            record["receipt"] = {**record["receipt"], "findings": findings}
        return msgspec.convert({**head, "result": record}, RecordedCompaction, dec_hook=_reason)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise FormatError(f"not a compaction: {type(error).__name__}") from error


def _nest_probe(finding: Mapping[str, Any]) -> dict[str, Any]:
    other_fields = {name: value for name, value in finding.items() if name not in _PROBE_FIELDS}
    return {**other_fields, "probe": {name: finding[name] for name in _PROBE_FIELDS}}


_BATCH_VERSION: Final = b"B1"
_BATCHES: Final = msgspec.msgpack.Decoder(Batch)


def write_batch(batch: Batch) -> bytes:
    """Write the batch as bytes for `read_batch`: a version, then MessagePack."""
    return _BATCH_VERSION + msgspec.msgpack.encode(batch)


def read_batch(record: bytes) -> Batch:
    """Read a batch that `write_batch` wrote. Raise FormatError for anything else, so that the spool
    of a newer version is not deleted."""
    if not record.startswith(_BATCH_VERSION):
        raise FormatError("not a batch of this version: it may be of a newer version")
    try:
        return _BATCHES.decode(record[len(_BATCH_VERSION) :])
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a batch: {type(error).__name__}") from error
