"""OpenClaw's `knowledge.jsonl`: one fact a line, both ways.

As `segments_jsonl`, but a store keeps facts by time and not by arrival: an imported fact
carries the number of its line in front of the line itself, so that an export can put them
back in order.

A fact of our own has more to say than OpenClaw's six keys: further keys, each only where it says
something (`knowledge_own`). Always holds: a line that came in goes out byte for byte, unless its
fact was closed, pinned or otherwise changed here, or the line claims more than it was granted.
Digests are made of other facts and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from recollect.formats.js_json import number_at, object_lines, stringify, text_at
from recollect.formats.knowledge_own import OWN_KEYS, own_keys, with_own_keys
from recollect.values.fact import Fact, FactType

FIELDS: Final = OWN_KEYS | {"id", "type", "content", "context", "timestamp", "supersededBy"}
_TYPES: Final[dict[str, FactType]] = {name: name for name in get_args(FactType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeLine:
    """One line, read."""

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
    """Read lines one by one; what is none is told in `passed_over`."""
    for found in object_lines(lines, passed_over):
        value = found.value
        name, content = text_at(value, "id"), text_at(value, "content")
        kind = _TYPES.get(text_at(value, "type") or "")
        if name is None or content is None or kind is None:
            what = "a type that is not known" if kind is None else "no text in id or content"
            passed_over.append(f"line {found.number}: {what}")
            continue
        at = number_at(value, "timestamp")
        yield KnowledgeLine(
            number=found.number,
            line=found.line,
            value=value,
            id=name,
            type=kind,
            content=content,
            context=text_at(value, "context") or "",
            at=None if at is None else at / 1000,
            superseded_by=text_at(value, "supersededBy"),
        )


def foreign_of(number: int, line: str) -> str:
    """What a fact keeps of the line it came as."""
    return f"{number}\t{line}"


def split_foreign(foreign: str) -> tuple[str, str]:
    """What `foreign_of` made, taken apart: the number with its tab, and the line; a line that has
    no number comes with an empty one."""
    number, tab, line = foreign.partition("\t")
    if tab and number.isascii() and number.isdigit():
        return number + tab, line
    return "", foreign


def line_of(foreign: str) -> str:
    """The line a fact came as, without its number."""
    return foreign.partition("\t")[2] or foreign


def write_knowledge_line(fact: Fact) -> str:
    """A fact as its line; one of our own ends with a newline."""
    if fact.foreign is not None:
        return _up_to_date(fact, line_of(fact.foreign))
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
    """The line a fact came as, unless it was superseded or otherwise changed since."""
    found = next(object_lines([line.encode()], []), None)
    if found is None:
        return line
    said, now = own_keys(with_own_keys(fact, found.value, restored=True)), own_keys(fact)
    if found.value.get("supersededBy") == fact.superseded_by and said == now:
        return line
    changing = OWN_KEYS | {"supersededBy"}
    value = {key: item for key, item in found.value.items() if key not in changing}
    if fact.superseded_by is not None:
        value["supersededBy"] = fact.superseded_by
    return stringify({**value, **now}) + "\n"


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """Imported facts in the order of their file, then our own by time and id; no digests."""

    def place(fact: Fact) -> tuple[int, int, float, str]:
        number, tab, _ = (fact.foreign or "").partition("\t")
        if tab and number.isascii() and number.isdigit():
            return 0, int(number), fact.at, fact.id
        return 1, 0, fact.at, fact.id

    return sorted((fact for fact in facts if fact.type != "digest"), key=place)
