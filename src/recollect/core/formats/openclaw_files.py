"""Reader and writer of OpenClaw's `segments.jsonl` and `knowledge.jsonl`. An imported line is
exported byte for byte unless its fact changed. Only a restore takes a fact's trust level, author
and pin from the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from recollect.core.formats.json_text import number_at, object_lines, stringify, text_at
from recollect.core.values.fact import Change, EvidenceSpan, Fact, FactType, MadeBy
from recollect.core.values.message import Role
from recollect.core.values.segment import Segment, SegmentId, Trust

SEGMENTS: Final = "segments.jsonl"
KNOWLEDGE: Final = "knowledge.jsonl"


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
class SegmentLine:
    """One line of `segments.jsonl`."""

    number: int
    line: str = field(repr=False)
    value: dict[str, Any] = field(repr=False)
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
        named = {key: text_at(value, key) for key in ("id", "sessionId", "content")}
        role = _ROLES.get(text_at(value, "role") or "")
        missing = [key for key, text in named.items() if text is None]
        if missing or role is None:
            what = f"no text in {' and '.join(missing)}" if missing else "a role that is not known"
            passed_over.append(f"line {line.number}: {what}")
            continue
        tokens, said_at = number_at(value, "tokens"), number_at(value, "timestamp")
        yield SegmentLine(
            number=line.number,
            line=line.line,
            value=value,
            id=named["id"] or "",
            session=named["sessionId"] or "",
            role=role,
            content=named["content"] or "",
            said_at=None if said_at is None else said_at / 1000,
            tokens=None if tokens is None or not 0 <= tokens < 2**53 else int(tokens),
        )


def write_segment_line(segment: Segment) -> str:
    if segment.foreign is not None and segment.source != "note":
        return segment.foreign
    own = {
        "id": segment.id,
        "sessionId": segment.session,
        "timestamp": round(segment.said_at * 1000),
        "role": segment.role,
        "content": segment.text,
        "tokens": segment.tokens,
        "metadata": {"topics": [], "entities": []},
    }
    return stringify(own) + "\n"


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
    said: dict[str, tuple[Any, bool]] = {
        "trust": (fact.trust, fact.trust != "medium"),
        "validTo": (_milliseconds(fact.valid_to), fact.valid_to is not None),
        "recordedAt": (_milliseconds(fact.recorded_at), fact.recorded_at is not None),
        "subject": (fact.subject, bool(fact.subject)),
        "attribute": (fact.attribute, bool(fact.attribute)),
        "sources": (list(fact.sources), bool(fact.sources)),
        "evidence": (
            [
                {"segment": span.segment, "start": span.start, "end": span.end}
                for span in fact.evidence
            ],
            bool(fact.evidence),
        ),
        "madeBy": (fact.made_by, fact.made_by != "import"),
        "change": (fact.change, fact.change is not None),
        "session": (fact.session, fact.session is not None),
        "pinned": (True, fact.pinned),
        "joint": (True, fact.joint),
    }
    return {key: value for key, (value, stands) in said.items() if stands}


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
    found = number_at(line, key)
    return None if found is None or abs(found) > _NUMBER_MAX else found / 1000


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
class KnowledgeLine:
    """One line of `knowledge.jsonl`."""

    number: int
    line: str = field(repr=False)
    value: dict[str, Any] = field(repr=False)
    id: str
    type: FactType
    content: str = field(repr=False)
    context: str = field(repr=False)
    at: float | None
    superseded_by: str | None


def read_knowledge_lines(lines: Iterable[bytes], passed_over: list[str]) -> Iterator[KnowledgeLine]:
    for line in object_lines(lines, passed_over):
        value = line.value
        name, content = text_at(value, "id"), text_at(value, "content")
        kind = _TYPES.get(text_at(value, "type") or "")
        if name is None or content is None or kind is None:
            what = "a type that is not known" if kind is None else "no text in id or content"
            passed_over.append(f"line {line.number}: {what}")
            continue
        at = number_at(value, "timestamp")
        yield KnowledgeLine(
            number=line.number,
            line=line.line,
            value=value,
            id=name,
            type=kind,
            content=content,
            context=text_at(value, "context") or "",
            at=None if at is None else at / 1000,
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
        return _up_to_date(fact, split_foreign(fact.foreign)[1])
    own: dict[str, Any] = {
        "id": fact.id,
        "type": fact.type,
        "content": fact.content,
        "context": fact.context,
        "timestamp": round(fact.at * 1000),
    }
    if fact.superseded_by is not None:
        own["supersededBy"] = fact.superseded_by
    return stringify({**own, **own_keys(fact)}) + "\n"


def _up_to_date(fact: Fact, line: str) -> str:
    object_line = next(object_lines([line.encode()], []), None)
    if object_line is None:
        return line
    said, now = own_keys(with_own_keys(fact, object_line.value, restored=True)), own_keys(fact)
    if object_line.value.get("supersededBy") == fact.superseded_by and said == now:
        return line
    changing = OWN_KEYS | {"supersededBy"}
    value = {key: item for key, item in object_line.value.items() if key not in changing}
    if fact.superseded_by is not None:
        value["supersededBy"] = fact.superseded_by
    return stringify({**value, **now}) + "\n"


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """Sort facts: imported ones by line number, then others by time and id."""

    def place(fact: Fact) -> tuple[int, int, float, str]:
        number, _ = split_foreign(fact.foreign or "")
        return (0, int(number), fact.at, fact.id) if number else (1, 0, fact.at, fact.id)

    return sorted(facts, key=place)
