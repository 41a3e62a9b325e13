"""Reader and writer of OpenClaw's `segments.jsonl`, `knowledge.jsonl` and `vectors.bin`.

An imported line is exported byte for byte unless its fact changed. Only a restore takes a fact's
trust level, author and pin from the file. `vectors.bin` is VMEM version 1, little-endian: a header
of magic, version, dimensions and count, then per vector the length of its id, its id, and float32
numbers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, get_args

from recollect.core.formats.json_text import (
    ObjectLine,
    decode,
    number_at,
    object_lines,
    stringify,
    text_at,
)
from recollect.core.values.fact import Change, EvidenceSpan, Fact, FactType, MadeBy, type_named
from recollect.core.values.message import Role
from recollect.core.values.segment import FLOAT_BYTES, Segment, SegmentId, Trust
from recollect.errors import FormatError

SEGMENTS: Final = "segments.jsonl"
KNOWLEDGE: Final = "knowledge.jsonl"
VECTORS: Final = "vectors.bin"

_VMEM: Final = struct.Struct("<4sIII")
_VMEM_MAGIC: Final = b"VMEM"
_VMEM_VERSION: Final = 1
"""The version of OpenClaw's `vectors.bin` that we read and write."""
_ID_LENGTH: Final = struct.Struct("<H")


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFile:
    """The content of a `vectors.bin`."""

    dimensions: int
    offsets: Mapping[str, int] = field(repr=False)
    """Where each id's numbers begin, in the order of the file."""
    data: bytes = field(repr=False)
    passed_over: tuple[str, ...] = ()

    def values(self, name: str) -> bytes:
        start = self.offsets[name]
        return self.data[start : start + self.dimensions * FLOAT_BYTES]


def read_vectors(data: bytes) -> VectorFile:
    """Find the vectors of a `vectors.bin`. Raise FormatError if the file is not VMEM version 1. A
    truncated end is reported, and the vectors before it are kept."""
    if len(data) < _VMEM.size or not data.startswith(_VMEM_MAGIC):
        raise FormatError(f"{VECTORS} must begin with VMEM and have a header of 16 bytes")
    _, version, dimensions, count = _VMEM.unpack_from(data)
    if version != _VMEM_VERSION or not dimensions:
        raise FormatError(
            f"{VECTORS} must have version {_VMEM_VERSION} and dimensions, not version {version} "
            f"and {dimensions} dimensions"
        )
    offsets: dict[str, int] = {}
    offset = _VMEM.size
    while len(offsets) < count and offset + _ID_LENGTH.size <= len(data):
        name_at = offset + _ID_LENGTH.size
        start = name_at + _ID_LENGTH.unpack_from(data, offset)[0]
        if start + dimensions * FLOAT_BYTES > len(data):
            break
        offsets[data[name_at:start].decode("utf-8", "surrogateescape")] = start
        offset = start + dimensions * FLOAT_BYTES
    left_bytes = len(data) - offset
    notice = (
        f"{VECTORS}: {len(offsets):,} of {count:,} vectors read, {left_bytes:,} bytes passed over"
    )
    passed_over = (notice,) if left_bytes or len(offsets) < count else ()
    return VectorFile(dimensions=dimensions, offsets=offsets, data=data, passed_over=passed_over)


def write_vectors(vectors: Sequence[tuple[str, bytes]], *, dimensions: int) -> Iterator[bytes]:
    """Write a `vectors.bin` in pieces."""
    yield _VMEM.pack(_VMEM_MAGIC, _VMEM_VERSION, dimensions, len(vectors))
    for name, values in vectors:
        encoded_name = name.encode("utf-8", "surrogateescape")
        yield _ID_LENGTH.pack(len(encoded_name)) + encoded_name + values


SEGMENT_FIELDS: Final = frozenset(
    {"id", "sessionId", "sessionKey", "timestamp", "role", "content", "tokens", "metadata"}
)
_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "toolResult": "tool",
    "tool_result": "tool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLine(ObjectLine):
    """One line of `segments.jsonl`."""

    id: str
    session: str
    role: Role
    content: str = field(repr=False)
    said_at: float | None
    tokens: int | None


def read_segment_lines(lines: Iterable[bytes], passed_over: list[str]) -> Iterator[SegmentLine]:
    """Read lines one by one. Invalid lines are added to `passed_over`."""
    for line in object_lines(lines, passed_over):
        value = line.value
        texts = {key: text_at(value, key) for key in ("id", "sessionId", "content")}
        role = _ROLES.get(text_at(value, "role") or "")
        missing = [key for key, text in texts.items() if text is None]
        if missing or role is None:
            problem = (
                f"no text in {' and '.join(missing)}" if missing else "a role that is not known"
            )
            passed_over.append(f"line {line.number}: {problem}")
            continue
        tokens = number_at(value, "tokens")
        yield SegmentLine(
            number=line.number,
            line=line.line,
            value=value,
            id=texts["id"] or "",
            session=texts["sessionId"] or "",
            role=role,
            content=texts["content"] or "",
            said_at=_seconds(value, "timestamp"),
            tokens=None if tokens is None or not 0 <= tokens < 2**53 else int(tokens),
        )


def write_segment_line(segment: Segment, metadata: Mapping[str, Any] | None = None) -> str:
    """Return a message's imported line, or a new one with this metadata."""
    if segment.foreign is not None and segment.source != "note":
        return segment.foreign
    fields = {
        "id": segment.id,
        "sessionId": segment.session,
        "timestamp": round(segment.said_at * 1000),
        "role": segment.role,
        "content": segment.text,
        "tokens": segment.tokens,
        "metadata": metadata or {"topics": [], "entities": []},
    }
    return stringify(fields) + "\n"


def read_line_id(line: str) -> str:
    """Return the id in a line of `segments.jsonl`."""
    value = next(iter(object_lines([line.encode()], [])), None)
    return "" if value is None else str(value.value.get("id"))


OWN_KEYS: Final = frozenset(
    {"trust", "validTo", "recordedAt", "subject", "attribute", "sources", "evidence", "madeBy",
     "change", "session", "pinned", "joint"}
)  # fmt: skip
# Integers that every JSON reader reads exactly. Stores accept no larger ones.
_NUMBER_MAX: Final = 2**53
_TRUSTS: Final[dict[str, Trust]] = {name: name for name in get_args(Trust)}
_MAKERS: Final[dict[str, MadeBy]] = {name: name for name in get_args(MadeBy)}
_CHANGES: Final[dict[str, Change]] = {name: name for name in get_args(Change)}


def own_keys(fact: Fact) -> dict[str, Any]:
    """Return a fact's values under keys of Recollect, with times in milliseconds."""
    spans = [
        {"segment": span.segment, "start": span.start, "end": span.end} for span in fact.evidence
    ]
    values = {
        "trust": None if fact.trust == "medium" else fact.trust,
        "validTo": _milliseconds(fact.valid_to),
        "recordedAt": _milliseconds(fact.recorded_at),
        "subject": fact.subject or None,
        "attribute": fact.attribute or None,
        "sources": list(fact.sources) or None,
        "evidence": spans or None,
        "madeBy": None if fact.made_by == "import" else fact.made_by,
        "change": fact.change,
        "session": fact.session,
        "pinned": fact.pinned or None,
        "joint": fact.joint or None,
    }
    return {key: value for key, value in values.items() if value is not None}


def with_own_keys(fact: Fact, value: Mapping[str, Any], *, restored: bool) -> Fact:
    """Return the fact, completed by the values under Recollect's own keys in its line. The line's
    trust level, author and pin are used only if `restored`."""
    line = dict(value)
    made_by = _MAKERS.get(text_at(line, "madeBy") or "", "import")
    trust = _TRUSTS.get(text_at(line, "trust") or "", "medium")
    return replace(
        fact,
        trust="medium" if trust == "high" and not restored else trust,
        valid_to=_seconds(line, "validTo"),
        recorded_at=_seconds(line, "recordedAt"),
        subject=text_at(line, "subject") or "",
        attribute=text_at(line, "attribute") or "",
        sources=tuple(
            SegmentId(value) for value in _items(line, "sources") if isinstance(value, str)
        ),
        evidence=tuple(span for value in _items(line, "evidence") for span in _spans(value)),
        made_by=made_by if restored else "import",
        change=_CHANGES.get(text_at(line, "change") or ""),
        session=text_at(line, "session"),
        pinned=restored and line.get("pinned") is True,
        joint=line.get("joint") is True,
    )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _seconds(line: dict[str, Any], key: str) -> float | None:
    milliseconds = number_at(line, key)
    return None if milliseconds is None or abs(milliseconds) > _NUMBER_MAX else milliseconds / 1000


def _items(line: dict[str, Any], key: str) -> list[Any]:
    value = line.get(key)
    return value if isinstance(value, list) else []


def _spans(item: object) -> tuple[EvidenceSpan, ...]:
    match item:
        case {"segment": str(segment), "start": int(start), "end": int(end)} if (
            0 <= start <= end <= _NUMBER_MAX
        ):
            return (EvidenceSpan(segment=SegmentId(segment), start=start, end=end),)
    return ()


KNOWLEDGE_FIELDS: Final = OWN_KEYS | {
    "id",
    "type",
    "content",
    "context",
    "timestamp",
    "supersededBy",
}
_TYPES: Final[dict[str, FactType]] = {name: name for name in get_args(FactType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeLine(ObjectLine):
    """One line of `knowledge.jsonl`."""

    id: str
    type: FactType
    said_at: float | None
    superseded_by: str | None


def read_knowledge_lines(lines: Iterable[bytes], passed_over: list[str]) -> Iterator[KnowledgeLine]:
    for line in object_lines(lines, passed_over):
        value = line.value
        name = text_at(value, "id")
        kind = _TYPES.get(text_at(value, "type") or "")
        if name is None or text_at(value, "content") is None or kind is None:
            problem = "a type that is not known" if kind is None else "no text in id or content"
            passed_over.append(f"line {line.number}: {problem}")
            continue
        yield KnowledgeLine(
            number=line.number,
            line=line.line,
            value=value,
            id=name,
            type=kind,
            said_at=_seconds(value, "timestamp"),
            superseded_by=text_at(value, "supersededBy"),
        )


def foreign_of(number: int, line: str) -> str:
    """Return an imported line with its number in front, to be stored with its fact."""
    return f"{number}\t{line}"


def split_foreign(foreign: str) -> tuple[str, str]:
    """Split the result of `foreign_of` into the number (may be empty) with its tab, and the
    line."""
    number, tab, line = foreign.partition("\t")
    if tab and number.isascii() and number.isdigit():
        return number + tab, line
    return "", foreign


def write_knowledge_line(fact: Fact) -> str:
    if fact.foreign is not None:
        return _update_line(fact, split_foreign(fact.foreign)[1])
    fields: dict[str, Any] = {
        "id": fact.id,
        "type": fact.type,
        "content": fact.content,
        "context": fact.context,
        "timestamp": round(fact.at * 1000),
    }
    if fact.superseded_by is not None:
        fields["supersededBy"] = fact.superseded_by
    return stringify({**fields, **own_keys(fact)}) + "\n"


def _update_line(fact: Fact, line: str) -> str:
    object_line = next(object_lines([line.encode()], []), None)
    if object_line is None:
        return line
    old_keys, new_keys = (
        own_keys(with_own_keys(fact, object_line.value, restored=True)),
        own_keys(fact),
    )
    if object_line.value.get("supersededBy") == fact.superseded_by and old_keys == new_keys:
        return line
    changing = OWN_KEYS | {"supersededBy"}
    value = {key: item for key, item in object_line.value.items() if key not in changing}
    if fact.superseded_by is not None:
        value["supersededBy"] = fact.superseded_by
    return stringify({**value, **new_keys}) + "\n"


def sort_facts(facts: Iterable[Fact]) -> list[Fact]:
    """Sort facts: imported ones by line number, then others by time and id."""

    def place(fact: Fact) -> tuple[int, int, float, str]:
        number, _ = split_foreign(fact.foreign or "")
        return (0, int(number), fact.at, fact.id) if number else (1, 0, fact.at, fact.id)

    return sorted(facts, key=place)


_FILE_VALUES: Final = frozenset({"type", "content", "sources", "validTo", "pinned"})
"""Values of a line that a fact's file has as text, or under names of the Open Knowledge Format."""


def write_fact_file(fact: Fact) -> str:
    """Write a fact as Markdown with front matter in the style of the Open Knowledge Format 0.2.
    Each value is JSON on one line, which YAML can read, too."""
    line = next(object_lines([write_knowledge_line(fact).encode()], [])).value
    by = "human:user" if fact.made_by == "user" else f"process:{fact.made_by}"
    author = {"by": by, "at": _iso_time(fact.at)}
    head = {
        "type": fact.type,
        "sources": [{"resource": f"message:{source}"} for source in fact.sources],
        "generated": author,
        "verified": [author] if fact.made_by == "user" else [],
        "stale_after": fact.valid_to is not None and _iso_time(fact.valid_to),
        "pinned": fact.pinned,
        "recollect": {key: value for key, value in line.items() if key not in _FILE_VALUES},
    }
    lines = [f"{name}: {stringify(value)}" for name, value in head.items() if value]
    return "\n".join(["---", *lines, "---", "", fact.content, ""])


_YEAR_9999: Final = 253_370_764_800.0
"""A time after the year 9999 cannot be a `datetime`."""


def _iso_time(seconds: float) -> str:
    in_range = 0.0 <= seconds < _YEAR_9999  # an imported time may be any number
    exact = round(seconds, 3) if in_range else 0.0
    return datetime.fromtimestamp(exact, UTC).isoformat(timespec="milliseconds")


def read_fact_file(data: bytes) -> dict[str, Any]:
    """Return the values of a fact's file under the names of `knowledge.jsonl`. Raise FormatError if
    the file is no fact."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n") + "\n"
    front, closing, body = text.removeprefix("---\n").partition("\n---\n")
    if not closing or not text.startswith("---\n"):
        raise FormatError("it must begin with front matter between two lines ---")
    head: dict[str, Any] = {}
    for number, line in enumerate(front.split("\n"), 2):
        name, colon, value = line.partition(":")
        if not colon or line[0] in " \t-":
            raise FormatError(f"line {number} must be NAME: VALUE, on one line")
        try:
            head[name] = decode(value.encode())
        except FormatError:
            head[name] = value.strip().strip("'\"")
    own_values, kind, valid_to = head.get("recollect"), type_named(str(head.get("type"))), None
    if kind not in _TYPES:
        raise FormatError(f"type must be one of {', '.join(_TYPES)}, not {kind!r}")
    try:
        if head.get("stale_after"):
            valid_to = datetime.fromisoformat(str(head["stale_after"])).timestamp() * 1000
    except (ValueError, OverflowError):
        raise FormatError(f"{head['stale_after']!r} must be a date or an ISO time") from None
    sources = [item.get("resource") for item in _items(head, "sources") if isinstance(item, dict)]
    return {
        **(own_values if isinstance(own_values, dict) else {}),
        "type": kind,
        "content": body.strip(),
        "sources": [str(source).removeprefix("message:") for source in sources],
        "pinned": head.get("pinned") is True,
        "validTo": valid_to,
    }
