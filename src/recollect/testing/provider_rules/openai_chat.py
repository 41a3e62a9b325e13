"""OpenAI Chat Completions: what the API refuses in `messages`.

Sources: docs/contributing/sources.md for the pairing wording, the issues named beside the rules for
the rest. The legacy `function_call` with its `function` message is held to the same order as tools.
Not held: roles need not alternate here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.testing.provider_rules.violation import Violation, mappings, repeated

RULES = (
    "messages-empty",
    "role-unknown",
    "content-missing",
    "content-empty-list",
    "tool-calls-empty",
    "arguments-not-string",
    "call-id-missing",
    "call-id-duplicate",
    "call-unanswered",
    "result-orphan",
    "result-duplicate",
    "function-call-unanswered",
    "function-orphan",
)

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")


def check(body: Mapping[str, Any]) -> list[Violation]:
    """Every rule of Chat Completions that `body` breaks."""
    messages = [message for _, message in mappings(body.get("messages"))]
    if not messages:
        return [_broken("messages-empty", "messages", "At least one message is required.")]
    return [*_forms(messages), *_calls(messages), *_pairs(messages), *_functions(messages)]


def reused_ids(body: Mapping[str, Any]) -> list[Violation]:
    """Call ids used more than once in the request (Mistral and others refuse: hermes#11722)."""
    return repeated(
        (str(call.get("id")), f"messages[{place}].tool_calls[{index}]")
        for place, message in mappings(body.get("messages"))
        for index, call in mappings(message.get("tool_calls"))
    )


def _broken(rule: str, where: str, sentence: str) -> Violation:
    return Violation(rule=rule, where=where, sentence=sentence)


def _forms(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Roles and contents.

    "Invalid value for 'content': expected a string, got null" (langchainjs#4153), allowed only for
    an assistant that says something another way; "Invalid 'messages[4].content': empty array.
    Expected an array with minimum length 1" (langchainjs#11416).
    """
    for place, message in enumerate(messages):
        role, content, where = message.get("role"), message.get("content"), f"messages[{place}]"
        if role not in ROLES:
            yield _broken("role-unknown", f"{where}.role", f"A role cannot be {role!r}.")
        if content == []:
            yield _broken("content-empty-list", f"{where}.content", "The list of parts is empty.")
        excused = role == "assistant" and any(message.get(key) for key in _INSTEAD_OF_CONTENT)
        if content is None and not excused:
            yield _broken("content-missing", f"{where}.content", "Content cannot be null here.")


def _calls(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """The calls themselves.

    "Invalid 'messages[1].tool_calls': empty array" (openai-node#1341); arguments, and a custom
    tool's input, are JSON strings by the schema, never objects.
    """
    for place, message in enumerate(messages):
        where = f"messages[{place}].tool_calls"
        if message.get("tool_calls") == []:
            yield _broken("tool-calls-empty", where, "An empty list of calls is refused.")
        seen: set[Any] = set()
        for index, call in mappings(message.get("tool_calls")):
            here = f"{where}[{index}]"
            if not isinstance(call.get("id"), str) or not call["id"]:
                yield _broken("call-id-missing", here, "A call needs an id.")
                continue
            if call["id"] in seen:
                yield _broken("call-id-duplicate", here, f"Two calls share {call['id']!r}.")
            seen.add(call["id"])
        for here, holder in _argument_holders(place, message):
            payload = holder.get("arguments", holder.get("input"))
            if not isinstance(payload, str):
                yield _broken("arguments-not-string", here, "Arguments are a JSON string.")


def _argument_holders(
    place: int, message: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for index, call in mappings(message.get("tool_calls")):
        for key in ("function", "custom"):
            if isinstance(call.get(key), Mapping):
                yield f"messages[{place}].tool_calls[{index}].{key}", call[key]
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        yield f"messages[{place}].function_call", legacy


def _pairs(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Every call is answered at once, once, and nothing else is.

    "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'"; "messages with role 'tool' must be a response to a preceeding message with
    'tool_calls'" (morphic#136); "Duplicate value for 'tool_call_id'" (agno#5116). Any order.
    """
    waiting: dict[str, str] = {}
    answered: set[str] = set()
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if message.get("role") == "tool":
            identity = str(message.get("tool_call_id"))
            if waiting.pop(identity, None) is not None:
                answered.add(identity)
            elif identity in answered:
                yield _broken("result-duplicate", where, f"{identity!r} is answered already.")
            else:
                yield _broken("result-orphan", where, f"No open call {identity!r} before it.")
            continue
        yield from _unanswered(waiting)
        answered = set()
        calls = mappings(message.get("tool_calls")) if message.get("role") == "assistant" else ()
        waiting = {str(call.get("id")): f"{where}.tool_calls[{index}]" for index, call in calls}
    yield from _unanswered(waiting)


def _unanswered(waiting: Mapping[str, str]) -> Iterator[Violation]:
    for identity, where in waiting.items():
        yield _broken("call-unanswered", where, f"No tool message answers {identity!r} at once.")


def _functions(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """The legacy pair: a `function_call` and, right after it, the `function` of that name."""
    for place, message in enumerate(messages):
        legacy = message.get("function_call")
        after = messages[place + 1] if place + 1 < len(messages) else {}
        if isinstance(legacy, Mapping) and not _answers(after, legacy):
            yield _broken(
                "function-call-unanswered",
                f"messages[{place}].function_call",
                f"The next message is not the result of {legacy.get('name')!r}.",
            )
        if message.get("role") != "function":
            continue
        called = messages[place - 1].get("function_call") if place else None
        if not isinstance(called, Mapping) or not _answers(message, called):
            yield _broken("function-orphan", f"messages[{place}]", "No function_call right before.")


def _answers(message: Mapping[str, Any], legacy: Mapping[str, Any]) -> bool:
    return message.get("role") == "function" and message.get("name") == legacy.get("name")
