"""Rules that a request must keep as a replay of what the client sent, beyond those of
`recollect.testing.provider_rules`. This module never imports the code that it checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.testing.openai_rules import CALL_TYPES, Violation, call_id, mappings

_THINKING = frozenset({"thinking", "redacted_thinking"})


def unfaithful(
    format_name: str, original: Mapping[str, Any], body: Mapping[str, Any]
) -> list[Violation]:
    """List rules that `body` breaks as a replay of `original`, beyond those of `violations`."""
    violations = [*_ends_with_assistant(original, body), *_words_added(original, body)]
    if format_name in ("anthropic", "pi"):
        violations += [*_altered(original, body), *_lost_in_latest(original, body)]
    if format_name == "openai-responses":
        violations += _without_reasoning(original, body)
    return violations


def _ends_with_assistant(
    original: Mapping[str, Any], body: Mapping[str, Any]
) -> Iterator[Violation]:
    """An answer at the end must come from the client: "This model does not support assistant
    message prefill. The conversation must end with a user message." (cortexkit/magic-context#511;
    through OpenAI's format aj47/SpeakMCP#1037)."""
    came = [message.get("role") for _, message in mappings(original.get("messages"))]
    went = [message.get("role") for _, message in mappings(body.get("messages"))]
    if went and went[-1] == "assistant" and came and came[-1] != "assistant":
        yield Violation(
            "ends-with-assistant",
            f"messages[{len(went) - 1}]",
            "The assistant is last, but was not last in the received request.",
        )


def _words_added(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """While code runs, "your response message must contain only `tool_result` blocks" (Anthropic's
    documentation on programmatic tool calling); `compaction_trigger` "Must be the final input item"
    (openai-python)."""
    if _answers_code(original) == {True} and _answers_code(body) == {True, False}:
        yield Violation(
            "results-not-alone", "messages[-1]", "The running code accepts only results."
        )
    came = [item.get("type") for _, item in mappings(original.get("input"))]
    went = [item.get("type") for _, item in mappings(body.get("input"))]
    if came[-1:] == ["compaction_trigger"] != went[-1:]:
        yield Violation("trigger-not-last", "input[-1]", "Items follow it.")


def _answers_code(body: Mapping[str, Any]) -> set[bool]:
    """For every block of a last user message, return whether it answers a call made by code."""
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
    return [
        (index, {key: block[key] for key in block if key != "cache_control"})
        for index, block in mappings(message.get("content"))
        if block.get("type") in _THINKING
    ]


def _altered(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """Every thinking block that is sent must have been received, with the same signature and
    data."""
    known = [
        block
        for _, message in mappings(original.get("messages"))
        for _, block in _thinking_of(message)
    ]
    for place, message in mappings(body.get("messages")):
        for index, block in _thinking_of(message):
            if block not in known:
                yield Violation(
                    "thinking-altered",
                    f"messages[{place}].content[{index}]",
                    "This thinking block was not in the received request.",
                )


def _lost_in_latest(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """Errors: "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be
    modified" (claude-code#19539), and under extended thinking that message must begin with them
    (opencode#3077). Messages are matched by the calls they hold."""
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
            if block not in kept and _is_accepted(original, block):
                yield Violation(
                    "thinking-lost-in-latest",
                    f"messages[{place}]",
                    "The latest reply lost one of its thinking blocks.",
                )


def _is_accepted(body: Mapping[str, Any], block: Mapping[str, Any]) -> bool:
    """Return whether the provider accepts a thinking block, which must stay only then."""
    if block["type"] == "redacted_thinking":
        return isinstance(block.get("data"), str)
    signed = isinstance(block.get("signature"), str) and bool(block["signature"])
    is_claude = "claude" in str(body.get("model")).lower()
    return isinstance(block.get("thinking"), str) and (signed or not is_claude)


def _call_ids(message: Mapping[str, Any]) -> set[str]:
    return {
        call_id(block)
        for _, block in mappings(message.get("content"))
        if block.get("type") in CALL_TYPES
    }


def _without_reasoning(original: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    """Errors: "Item 'fc_…' of type 'function_call' was provided without its required 'reasoning'
    item: 'rs_…'" (mastra#10713, cline#12242). The server links items by id, so an item without an
    id, or with an id that a different item shares, is free. The same item sent twice is known: its
    reasoning precedes it."""
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
            is_models = item.get("type") != "configuration_update"  # a program changes settings
            if isinstance(identity, str) and reasoning and is_models:
                needs.setdefault(identity, reasoning)
            reasoning = None
    before: set[str] = set()
    for place, item in mappings(body.get("input")):
        identity = str(item.get("id"))
        wanted = needs.get(identity)
        if wanted and identity not in unclear and wanted not in before:
            yield Violation(
                "item-without-its-reasoning",
                f"input[{place}]",
                f"The reasoning {wanted!r} must come directly before its item.",
            )
        before.add(identity)
