"""The value every rule reports, and the few readings of a body that all formats share.

Never: judges. What a block means to a format is decided in that format's module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule broken at one place."""

    rule: str
    where: str
    """A path into the body, such as `messages[3].content[1]`."""
    sentence: str


CALL_TYPES = frozenset({"tool_use", "toolUse", "toolCall", "functionCall"})
"""Every spelling of a call block that OpenClaw's design names (pairing)."""
RESULT_TYPES = frozenset({"tool_result", "toolResult"})
TEXT_TYPES = frozenset({"text", "input_text", "output_text"})


def mappings(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The mappings of a list with their places; nothing when it is no list."""
    if isinstance(value, list):
        for place, item in enumerate(value):
            if isinstance(item, Mapping):
                yield place, item


def call_id(block: Mapping[str, Any]) -> str:
    """The id of a call block, or of the call a result block answers."""
    for key in ("tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "id", "call_id"):
        found = block.get(key)
        if isinstance(found, str):
            return found
    return ""


def is_blank(text: Any) -> bool:
    """Whether a text is empty or whitespace only."""
    return isinstance(text, str) and not text.strip()


def repeated(ids: Iterable[tuple[str, str]]) -> list[Violation]:
    """`call-id-reused` for every (id, place) whose id came before."""
    seen: dict[str, str] = {}
    found = []
    for identity, where in ids:
        if identity in seen:
            found.append(
                Violation(
                    rule="call-id-reused",
                    where=where,
                    sentence=f"The call id {identity!r} was already used at {seen[identity]}.",
                )
            )
        seen.setdefault(identity, where)
    return found
