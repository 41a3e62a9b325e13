"""The value every rule reports, and the few readings of a body that all formats share.

Never judges: what a block means to a format is decided in that format's module. Rules that need
the request as the client sent it compare two bodies: providers sign what the model thought and
refuse a replay that alters it, and one body alone cannot show that a signature was lost.
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
        value = block.get(key)
        if isinstance(value, str):
            return value
    return ""


def is_blank(text: Any) -> bool:
    """Whether a text is empty or whitespace only."""
    return isinstance(text, str) and not text.strip()


def repeated(ids: Iterable[tuple[str, str]]) -> list[Violation]:
    """`call-id-reused` for every (id, place) whose id came before."""
    seen: dict[str, str] = {}
    violations = []
    for identity, where in ids:
        if identity in seen:
            violations.append(
                Violation(
                    rule="call-id-reused",
                    where=where,
                    sentence=f"The call id {identity!r} was already used at {seen[identity]}.",
                )
            )
        seen.setdefault(identity, where)
    return violations


# Rules that compare with the request as the client sent it

_THINKING = frozenset({"thinking", "redacted_thinking"})
RULES = (
    "thinking-altered",
    "thinking-lost-in-latest",
    "item-without-its-reasoning",
    "ends-with-assistant",
    "results-not-alone",
    "trigger-not-last",
)


def unfaithful(
    format_name: str, original: Mapping[str, Any], body: Mapping[str, Any]
) -> list[Violation]:
    """Rules that `body` breaks as a replay of `original`, beyond those `violations` names."""
    violations = [*_ends_with_assistant(original, body), *_words_added(original, body)]
    if format_name in ("anthropic", "pi"):
        violations += [*_altered(original, body), *_lost_in_latest(original, body)]
    if format_name == "openai-responses":
        violations += _without_reasoning(original, body)
    return violations


def _ends_with_assistant(
    original: Mapping[str, Any], body: Mapping[str, Any]
) -> Iterator[Violation]:
    """Whoever spoke last came from the client: an answer at the end is one to be continued.

    "This model does not support assistant message prefill. The conversation must end with a user
    message." (cortexkit/magic-context#511; through OpenAI's format aj47/SpeakMCP#1037).
    """
    came = [message.get("role") for _, message in mappings(original.get("messages"))]
    went = [message.get("role") for _, message in mappings(body.get("messages"))]
    if went and went[-1] == "assistant" and came and came[-1] != "assistant":
        yield Violation(
            rule="ends-with-assistant",
            where=f"messages[{len(went) - 1}]",
            sentence="The assistant speaks last, and did not in the request that came.",
        )


def _words_added(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """What must end a request alone still does.

    While code runs, "your response message must contain only `tool_result` blocks" (Anthropic's
    documentation on programmatic tool calling); `compaction_trigger` "Must be the final input
    item" (openai-python).
    """
    if _answers_code(original) == {True} and _answers_code(body) == {True, False}:
        yield Violation(
            rule="results-not-alone",
            where="messages[-1]",
            sentence="The code that runs waits for results alone.",
        )
    came = [item.get("type") for _, item in mappings(original.get("input"))]
    went = [item.get("type") for _, item in mappings(body.get("input"))]
    if came[-1:] == ["compaction_trigger"] != went[-1:]:
        yield Violation(rule="trigger-not-last", where="input[-1]", sentence="Items follow it.")


def _answers_code(body: Mapping[str, Any]) -> set[bool]:
    """Of every block of a last message of the user's, whether it answers a call of code's."""
    messages = [message for _, message in mappings(body.get("messages"))]
    if len(messages) < 2 or messages[-1].get("role") != "user":
        return set()
    by_code = {
        call_id(block)
        for _, block in mappings(messages[-2].get("content"))
        if isinstance(block.get("caller"), Mapping) and block["caller"].get("tool_id")
    }
    return {
        block.get("type") == "tool_result" and call_id(block) in by_code
        for _, block in mappings(messages[-1].get("content"))
    }


def _thinking_of(message: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """A message's thinking blocks without their cache marks."""
    return [
        (index, {key: block[key] for key in block if key != "cache_control"})
        for index, block in mappings(message.get("content"))
        if block.get("type") in _THINKING
    ]


def _altered(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """Every thinking block that goes out is one that came in, signature and data included."""
    known = [
        block
        for _, message in mappings(original.get("messages"))
        for _, block in _thinking_of(message)
    ]
    for place, message in mappings(body.get("messages")):
        for index, block in _thinking_of(message):
            if block not in known:
                yield Violation(
                    rule="thinking-altered",
                    where=f"messages[{place}].content[{index}]",
                    sentence="This thinking block is none of those that came in.",
                )


def _lost_in_latest(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """The answer whose results are still being read keeps all its thinking.

    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"
    (claude-code#19539), and under extended thinking that message must begin with them
    (opencode#3077). Messages are matched by the calls they hold.
    """
    answers = [
        item for item in mappings(body.get("messages")) if item[1].get("role") == "assistant"
    ]
    if not answers:
        return
    place, latest = answers[-1]
    ids = _call_ids(latest)
    kept = [block for _, block in _thinking_of(latest)]
    twins = [m for _, m in mappings(original.get("messages")) if ids & _call_ids(m)]
    for twin in twins[-1:]:
        for _, block in _thinking_of(twin):
            if block not in kept:
                yield Violation(
                    rule="thinking-lost-in-latest",
                    where=f"messages[{place}]",
                    sentence="The latest answer lost a thinking block of its own.",
                )


def _call_ids(message: Mapping[str, Any]) -> set[str]:
    return {
        call_id(block)
        for _, block in mappings(message.get("content"))
        if block.get("type") in CALL_TYPES
    }


def _without_reasoning(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """An item keeps the reasoning it was made with.

    "Item 'fc_…' of type 'function_call' was provided without its required 'reasoning' item: 'rs_…'"
    (mastra#10713, cline#12242). The server knows the link by the items' ids, so an item without an
    id of its own is free, and one whose id a different item has too is not known by it. The same
    item sent twice is known: its reasoning stands before it.
    """
    known: dict[str, Mapping[str, Any]] = {}
    unclear: set[str] = set()
    needs: dict[str, str] = {}
    reasoning: str | None = None
    for _, item in mappings(original.get("input")):
        identity = item.get("id")
        if isinstance(identity, str) and known.setdefault(identity, item) != item:
            unclear.add(identity)
        if item.get("type") == "reasoning":
            reasoning = identity if isinstance(identity, str) else None
        else:
            if isinstance(identity, str) and reasoning:
                needs.setdefault(identity, reasoning)
            reasoning = None
    before: set[str] = set()
    for place, item in mappings(body.get("input")):
        identity = str(item.get("id"))
        wanted = needs.get(identity)
        if wanted and identity not in unclear and wanted not in before:
            yield Violation(
                rule="item-without-its-reasoning",
                where=f"input[{place}]",
                sentence=f"The item came with the reasoning {wanted!r}, which is not before it.",
            )
        before.add(identity)
