"""Converts values to columns and back: ids, texts, words, segments, facts, bodies.

Ids of 32 hexadecimal digits are packed to 16 bytes; all other ids are stored as JSON. Text that
UTF-8 cannot encode is stored as bytes. Readers skip an unreadable row, and `check` reports it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple, TypeVar, get_args

from recollect.adapters.stores.invariants import pack_evidence, unpack_evidence
from recollect.adapters.stores.sqlite.database import Row
from recollect.adapters.stores.sqlite.schema import ESCAPE_SIGN
from recollect.core.formats.turn_records import join_keys, split_keys
from recollect.core.values.fact import Change, Fact, FactType, MadeBy
from recollect.core.values.message import Role
from recollect.core.values.segment import Segment, Source, StoredSegment, Trust


def pack_ids(ids: Sequence[str]) -> bytes | str | None:
    packed_ids = join_keys(ids) if ids else None
    return json.dumps(packed_ids) if isinstance(packed_ids, list) else packed_ids


def unpack_ids(packed_ids: bytes | str | None) -> list[str]:
    return split_keys(packed_ids) if isinstance(packed_ids, bytes) else unpack_list(packed_ids)


def pack_list(items: Sequence[str]) -> str | None:
    return json.dumps(list(items)) if items else None


def unpack_list(packed_list: str | bytes | None) -> list[str]:
    if packed_list is None:
        return []
    items = json.loads(packed_list)
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("not a list of texts")
    return items


def pack_text(text: str | None) -> str | bytes | None:
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unpack_text(packed_text: str | bytes | None) -> str | None:
    """Decode a text that `pack_text` encoded. Columns of free text are read as bytes."""
    if packed_text is None or isinstance(packed_text, str):
        return packed_text
    return packed_text.decode("utf-8", "surrogatepass")


def text_of(packed_text: Any) -> str:
    text = unpack_text(packed_text)
    if text is None:
        raise ValueError("a text is missing")
    return text


def pack_long_text(text: str) -> str | bytes | None:
    plain_text = text.encode("utf-8", "surrogatepass")
    packed_text = pack_body(plain_text)
    return packed_text if packed_text is not plain_text else pack_text(text)


def unpack_long_text(packed_text: bytes) -> str:
    return text_of(unpack_body(packed_text))


def json_list(items: Iterable[Any]) -> str:
    return json.dumps(list(items))


_SPECIAL = re.compile("[\\x00-\\x20\\x7fA-Z'\"\ud800-\udfff]")
_SPECIAL_IN_BAG = re.compile("[\\x00-\\x1f\\x7fA-Z'\"\ud800-\udfff]")


def bag_of(words: Sequence[str]) -> str:
    bag = " ".join(words)
    if bag.count(" ") < len(words) and _SPECIAL_IN_BAG.search(bag) is None:
        return bag
    return " ".join(map(form_of, words))


def form_of(word: str) -> str:
    return _SPECIAL.sub(lambda sign: f"{ESCAPE_SIGN}{ord(sign[0]):x}{ESCAPE_SIGN}", word)


T = TypeVar("T")


def read_rows(rows: Iterable[Row], read: Callable[[Row], T]) -> list[T]:
    """Decode each row, and skip rows that cannot be decoded."""
    values = []
    for row in rows:
        try:
            values.append(read(row))
        except (ValueError, TypeError):
            continue
    return values


def find_quoting_keys(
    rows: Iterable[Row],
    forgotten_ids: AbstractSet[str],
    unpack: Callable[[bytes | str | None], list[str]] = unpack_ids,
) -> list[Any]:
    """Return the keys of rows (key, packed ids) that quote such a message or cannot be read."""
    keys = []
    for key, packed_ids in rows:
        try:
            quotes = not forgotten_ids.isdisjoint(unpack(packed_ids))
        except (ValueError, TypeError):
            quotes = True
        if quotes:
            keys.append(key)
    return keys


class _Column(NamedTuple):
    name: str
    field: str
    pack: Callable[[Any], Any]
    read: Callable[[Any], Any]

    def to_sql(self, table: str = "") -> str:
        return (
            f"CAST({table}{self.name} AS BLOB)" if self.pack is not _identity else table + self.name
        )


def _identity(value: Any) -> Any:
    return value


def _one_of(words: Any) -> Callable[[Any], Any]:
    allowed_words = frozenset(get_args(words))

    def read(value: Any) -> Any:
        if value not in allowed_words:
            raise ValueError("not one of the allowed words")
        return value

    return read


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _column(name: str, read: Callable[[Any], Any] = _identity, *, field: str = "") -> _Column:
    return _Column(name, field or name, _identity, read)


def _text(name: str, read: Callable[[Any], Any] = text_of, *, field: str = "") -> _Column:
    return _Column(name, field or name, pack_text, read)


def _list(name: str) -> _Column:
    return _Column(name, name, pack_list, lambda value: tuple(unpack_list(value)))


_SEGMENT: Final = (
    _column("id"),
    _column("key"),
    _column("message_id"),
    _column("role", _one_of(Role)),
    _column("tokens", int),
    _column("said_at", float),
    _column("source", _one_of(Source)),
    _column("trust", _one_of(Trust)),
    _text("noise", unpack_text),
    _text("tool", unpack_text),
    _text("origin", unpack_text),
    _Column("text", "text", pack_long_text, unpack_long_text),
    _text("foreign_line", unpack_text, field="foreign"),
)
_FACT: Final = (
    _column("id"),
    _column("type", _one_of(FactType)),
    _column("at", float),
    _column("superseded_by"),
    _column("trust", _one_of(Trust)),
    _list("sources"),
    _list("words"),
    _text("content"),
    _text("context"),
    _text("foreign_line", unpack_text, field="foreign"),
    _column("valid_to", _optional(float)),
    _column("recorded_at", _optional(float)),
    _text("subject"),
    _text("attribute"),
    _Column("evidence", "evidence", pack_evidence, unpack_evidence),
    _column("made_by", _one_of(MadeBy)),
    _column("change", _optional(_one_of(Change))),
    _text("session", unpack_text),
    _column("pinned", bool),
    _column("joint", bool),
)


def _insert(table: str, first: str, columns: Sequence[_Column]) -> str:
    names = [first, *(column.name for column in columns)]
    marks = ", ".join("?" * (len(columns) + 2))
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608


INSERT_SEGMENT: Final = _insert("segment", "sequence, session", _SEGMENT)
INSERT_FACT: Final = _insert("fact", "number, current", _FACT)
SELECT_SEGMENT: Final = f"""
SELECT g.sequence, CAST(s.name AS BLOB), {", ".join(c.to_sql("g.") for c in _SEGMENT)}
FROM segment AS g JOIN session AS s ON s.number = g.session
"""  # noqa: S608
SELECT_FACT: Final = f"SELECT number, {', '.join(c.to_sql() for c in _FACT)} FROM fact "  # noqa: S608
_NAMING: Final = [
    index for index, column in enumerate(_FACT, 1) if column.name in ("sources", "evidence")
]


def segment_row(segment: Segment, sequence: int, session: int) -> Row:
    return (sequence, session, *_pack_columns(segment, _SEGMENT))


def read_segment(row: Row) -> StoredSegment:
    """Decode a row of `SELECT_SEGMENT`. Raise ValueError or TypeError for a damaged row."""
    sequence, session, *values = row
    segment = Segment(session=text_of(session), **_unpack_columns(values, _SEGMENT))
    return StoredSegment(segment=segment, sequence=sequence)


def fact_row(fact: Fact, number: int) -> Row:
    return (number, fact.current, *_pack_columns(fact, _FACT))


def read_fact(row: Row) -> Fact:
    """Decode a row of `SELECT_FACT`. Raise ValueError or TypeError for a damaged row."""
    return Fact(**_unpack_columns(row[1:], _FACT))


def read_numbered(row: Row) -> tuple[int, Fact]:
    return row[0], read_fact(row)


def names_segment(row: Row, segments: Sequence[bytes]) -> bool:
    """Return True if an unreadable row of `SELECT_FACT` names one of these segments."""
    raw_columns = b"".join(row[index] for index in _NAMING if isinstance(row[index], bytes))
    return any(segment in raw_columns for segment in segments)


def _pack_columns(value: Segment | Fact, columns: Sequence[_Column]) -> Iterator[Any]:
    return (column.pack(getattr(value, column.field)) for column in columns)


def _unpack_columns(values: Sequence[Any], columns: Sequence[_Column]) -> dict[str, Any]:
    return {column.field: column.read(value) for column, value in zip(columns, values, strict=True)}


# Bodies in the ledger are compressed with a dictionary of common content, which never changes: a
# new one would need a new mark. An earlier version wrote bodies without the mark.
_MARK: Final = b"\x01Z"
_MIN_BYTES: Final = 64
# The most common content is last (RFC 1950): a typical report, and a message.
_DICTIONARY: Final = (
    b'{"tool_calls":[{"function":{"name":"arguments"}}],"function_call_output","call_id":"call_'
    b'"is_error":true,"thinking":"signature":"cache_control":{"type":"ephemeral"}'
    b'["trim","done",["compact","skipped",["ingest","failed",["stand","done",["check","failed",'
    b'"moment":"over-limit","moment":"room","moment":"cache-expired",[["over_limit",{"limit":'
    b'[["no_compaction",{"why":["no_model"]}]][["trimmed",{"messages":[["pruned",{"results":'
    b'[["durable",{"where":"store"}]][["standing_found",{"facts":[["standing_block",{"facts":'
    b'[["not_recalled",{"gate":["words_apart",{"certainty":0.[["nothing_recalled"]]'
    b'[["found_by",{"facts":0,"passages":,"gate":["certain",{"certainty":0.,"threshold":0.'
    b'["terms_lost",{"terms":1}]}]]],["inject","done",0.00'
    b'[["recalled_block",{"tokens":,"fill":"everything"}]]],["pair","done",0.00'
    b'[["asked_before"]][["query_too_short"]],["recall","nothing",0.0,[["has_block"]]],'
    b'["load","done",0.0,[["session_loaded",{"messages":,"turn":'
    b'{"version":2,"turn":,"window_tokens":,"limit_tokens":,"tokens_before":,"tokens_after":,'
    b'"calibration_ratio":1.0,"moment":null,"lines":[["read","done",0.00,[["request_read",'
    b'{"messages":,"format":"anthropic"}]]],["read","done",0.000,[["messages_read",{"known":,'
    b'"fresh":2}]]],["align","done",0.000,[["aligned",{"course":"continued","shared":}]]],'
    b'["pair","done",0.000,[["view_made",{"rows":}],["repaired",{"repairs":}]]],["query","done",'
    b'0.000,[["asked",{"messages":3}]]],["recall","done",0.0,[["send","done",0.000,[["sent",'
    b'{"messages":}]]]],"recalled":[]}'
    b'{"role":"assistant","content":[{"type":"text","text":"\\n"},{"type":"tool_use","id":"toolu_'
    b'","name":"","input":{"path":"}}]}{"role":"user","content":[{"type":"tool_result",'
    b'"tool_use_id":"toolu_","content":"\\n    return self.\\n\\n        if \\n    def \\"'
    b'{"role":"user","content":[{"type":"text","text":" and the of "}]}'
)


def pack_body(body: bytes) -> bytes:
    if len(body) < _MIN_BYTES and not body.startswith(_MARK):
        return body
    packer = zlib.compressobj(zdict=_DICTIONARY)
    packed_body = _MARK + packer.compress(body) + packer.flush()
    return packed_body if len(packed_body) < len(body) or body.startswith(_MARK) else body


def unpack_body(packed_body: bytes) -> bytes:
    if not packed_body.startswith(_MARK):
        return packed_body
    try:
        unpacker = zlib.decompressobj(zdict=_DICTIONARY)
        body = unpacker.decompress(packed_body[len(_MARK) :]) + unpacker.flush()
    except zlib.error as error:
        raise ValueError("a body is incomplete") from error
    if not unpacker.eof:
        raise ValueError("a body is incomplete")
    return body
