"""What counts as an identifier in the cost bench: paths, symbols, hashes, addresses, codes.

Owns the measure, which is that of the study (docs/sources.md) and not the product's own: what is
measured must not choose what it is measured by. Must never count what every message of a tool
says anyway: names of tools and keys of their JSON are left out. Always pure.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from recollect.values.message import Message, Other, Part, Text, Thinking, ToolCall, ToolResult

LEAST_CHARS: Final = 4
COMMON_RESULTS: Final = 10
"""A key that so many results hold is the tool's own word; in fewer it is what they are about."""
_SHAPES: Final = tuple(
    re.compile(shape)
    for shape in (
        r"https?://[^\s\"'<>)\]}`]+",
        r"(?:[\w.@~-]{0,80}/){1,20}[\w.@-]{1,80}\.[A-Za-z]\w{0,5}\b",
        r"\b[\w-]{1,80}\.(?:tsx?|m?js|jsonl?|md|py|sh|css|html|ya?ml|toml|lock|txt)\b",
        r"\b[A-Za-z_$][A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*\b",
        r"\b[A-Za-z]\w*_\w+\b",
        r"\b[A-Za-z_]\w{3,}(?=\()",
        r"\b(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}\b",
        r"\b\d{5,}\b",
        r"\b(?:E[A-Z]{4,}|TS\d{3,5}|ERR_[A-Z_]+|[A-Z]{1,5}-?\d{3,})\b",
        r"\b(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{6,}\b",
    )
)
_KEYS_DEPTH: Final = 8


class Naming:
    """Finds identifiers in the texts of one conversation."""

    def __init__(self, common: Iterable[str] = (), folder: str = "") -> None:
        """`common` names say nothing; paths below `folder` are the same without it."""
        self._common = frozenset(common)
        self._folder = folder.rstrip("/") + "/" if folder.strip("/") else ""
        self._known: dict[str, frozenset[str]] = {}

    def __reduce__(self) -> tuple[type[Naming], tuple[frozenset[str], str]]:
        return Naming, (self._common, self._folder)

    def names_in(self, text: str) -> frozenset[str]:
        """The identifiers of a text; each text is read once."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self.read(text)
        return known

    def without_folder(self, text: str) -> str:
        """The text with the paths of the session as they are named without its folder."""
        return text.replace(self._folder, "") if self._folder else text

    def read(self, text: str) -> frozenset[str]:
        """The same for a text that nobody asks about twice."""
        text = self.without_folder(text)
        found: set[str] = set()
        for shape in _SHAPES:
            for match in shape.finditer(text):
                name = match[0].rstrip(".,:;")
                if len(name) >= LEAST_CHARS and name not in self._common and not _is_word(name):
                    found.add(name)
        return frozenset(found)


def _is_word(name: str) -> bool:
    return name.isalpha() and name.islower()


def part_text(part: Part) -> str:
    """What a part says, as a reader sees it: arguments of a call without JSON's escapes."""
    if isinstance(part, Text | Thinking):
        return part.text
    if isinstance(part, ToolCall):
        return f"{part.name} {_spelled(part.arguments)}"
    if isinstance(part, ToolResult):
        return part.text
    return _spelled(part.payload) if isinstance(part, Other) else ""


def message_text(message: Message) -> str:
    """All that a message says."""
    return "\n".join(filter(None, map(part_text, message.parts)))


def common_names(messages: Iterable[Message]) -> set[str]:
    """Names of tools, and the keys of what they are given and answer."""
    names: set[str] = set()
    answered: Counter[str] = Counter()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names.add(part.name)
                names.update(_keys(_decoded(part.arguments)))
            elif isinstance(part, ToolResult):
                answered.update(set(_keys(_decoded(part.text))))
    return names | {key for key, times in answered.items() if times >= COMMON_RESULTS}


def _spelled(text: str) -> str:
    value = _decoded(text)
    return text if value is None else "\n".join(_strings(value))


def _decoded(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, dict) and depth < _KEYS_DEPTH:
        for key, held in value.items():
            yield f"{key}: {' '.join(_strings(held, depth + 1))}"
    elif isinstance(value, list) and depth < _KEYS_DEPTH:
        for held in value:
            yield from _strings(held, depth + 1)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def _keys(value: Any, depth: int = 0) -> Iterator[str]:
    if depth == _KEYS_DEPTH:
        return
    if isinstance(value, dict):
        for key, held in value.items():
            if not any(sign.isdigit() for sign in key):
                yield key
            yield from _keys(held, depth + 1)
    elif isinstance(value, list):
        for held in value:
            yield from _keys(held, depth + 1)
