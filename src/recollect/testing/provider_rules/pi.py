"""pi and OpenClaw messages: what must hold before pi hands them to a provider.

Source: docs/contributing/sources.md (message shapes, replay) and B (transcript repair): results
follow their call at once, aborted and failed answers are left out, nothing is answered twice. pi
itself repairs some of this when it replays; what we hand out needs no repair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.testing.provider_rules.violation import (
    CALL_TYPES,
    Violation,
    call_id,
    is_blank,
    mappings,
    repeated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RULES = (
    "messages-empty",
    "role-unknown",
    "assistant-aborted",
    "assistant-empty",
    "call-id-duplicate",
    "call-unanswered",
    "result-orphan",
    "result-duplicate",
)

ROLES = frozenset(
    {
        "user",
        "assistant",
        "toolResult",
        "bashExecution",
        "custom",
        "branchSummary",
        "compactionSummary",
    }
)


def check(body: Mapping[str, Any]) -> list[Violation]:
    """Every rule of pi's replay that `body` breaks."""
    messages = [message for _, message in mappings(body.get("messages"))]
    if not messages:
        return [_broken("messages-empty", "messages", "At least one message is required.")]
    return [*_forms(messages), *_pairs(messages)]


def reused_ids(body: Mapping[str, Any]) -> list[Violation]:
    """Call ids used more than once: pi keys results by `toolCallId` (oh-my-pi#2055)."""
    return repeated(
        (call_id(block), f"messages[{place}].content[{index}]")
        for place, message in mappings(body.get("messages"))
        for index, block in _calls(message)
    )


def _broken(rule: str, where: str, sentence: str) -> Violation:
    return Violation(rule=rule, where=where, sentence=sentence)


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if message.get("role") == "assistant":
        for index, block in mappings(message.get("content")):
            if block.get("type") in CALL_TYPES:
                yield index, block


def _forms(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Known roles, no failed answers, no empty ones."""
    for place, message in enumerate(messages):
        role, where = message.get("role"), f"messages[{place}]"
        if role not in ROLES:
            yield _broken("role-unknown", f"{where}.role", f"A role cannot be {role!r}.")
        if role != "assistant":
            continue
        if message.get("stopReason") in ("error", "aborted"):
            yield _broken("assistant-aborted", where, "A failed answer is not replayed.")
        elif _says_nothing(message.get("content")):
            yield _broken("assistant-empty", where, "The answer says nothing.")


def _says_nothing(content: Any) -> bool:
    if isinstance(content, str):
        return is_blank(content)
    for _, block in mappings(content):
        kind = block.get("type")
        if kind == "text":
            if not is_blank(block.get("text", "")):
                return False
        elif kind == "thinking":
            if not is_blank(block.get("thinking", "")) or block.get("thinkingSignature"):
                return False
        else:
            return False
    return True


def _pairs(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Results stand right behind the answer that called for them, one each."""
    waiting: dict[str, str] = {}
    answered: set[str] = set()
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if message.get("role") == "toolResult":
            identity = call_id(message)
            if waiting.pop(identity, None) is not None:
                answered.add(identity)
            elif identity in answered:
                yield _broken("result-duplicate", where, f"{identity!r} is answered already.")
            else:
                yield _broken("result-orphan", where, f"No open call {identity!r} before it.")
            continue
        yield from _unanswered(waiting)
        waiting, answered = {}, set()
        for index, block in _calls(message):
            here, identity = f"{where}.content[{index}]", call_id(block)
            if identity in waiting:
                yield _broken("call-id-duplicate", here, f"Two calls share {identity!r}.")
            waiting[identity] = here
    yield from _unanswered(waiting)


def _unanswered(waiting: Mapping[str, str]) -> Iterator[Violation]:
    for identity, where in waiting.items():
        yield _broken("call-unanswered", where, f"No toolResult answers {identity!r} at once.")
