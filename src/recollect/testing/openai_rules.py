"""Rules of OpenAI's two APIs and of pi, and helpers that all rules share. Sources are in
docs/contributing/sources.md and in the issues named at each rule. In Chat Completions, roles need
not alternate. In Responses, an output may be anywhere after its call, and is paired by call id. In
pi, results directly follow their call, and aborted and failed answers are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule broken at one place."""

    rule: str
    where: str
    """A path into the body, such as `messages[3].content[1]`."""
    sentence: str


CALL_TYPES = frozenset({"tool_use", "toolUse", "toolCall", "functionCall"})
"""All types of call blocks that OpenClaw's design lists."""
RESULT_TYPES = frozenset({"tool_result", "toolResult"})
TEXT_TYPES = frozenset({"text", "input_text", "output_text"})


def mappings(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the mappings in a list with their positions; nothing for other values."""
    if isinstance(value, list):
        for place, item in enumerate(value):
            if isinstance(item, Mapping):
                yield place, item


def call_id(block: Mapping[str, Any]) -> str:
    """Return the id of a call block, or of the call that a result block answers."""
    for key in ("tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "id", "call_id"):
        value = block.get(key)
        if isinstance(value, str):
            return value
    return ""


def is_blank(text: Any) -> bool:
    """Return whether a text is empty or whitespace only."""
    return isinstance(text, str) and not text.strip()


def find_repeated_ids(ids: Iterable[tuple[str, str]]) -> list[Violation]:
    """Return a violation for every (id, position) whose id was used before."""
    seen: dict[str, str] = {}
    violations = []
    for identity, path in ids:
        if identity in seen:
            sentence = f"The call id {identity!r} was already used at {seen[identity]}."
            violations.append(Violation("call-id-reused", path, sentence))
        seen.setdefault(identity, path)
    return violations


_CHAT_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")


def check_chat(body: Mapping[str, Any]) -> list[Violation]:
    """List the rules of Chat Completions that `body` breaks."""
    messages = [message for _, message in mappings(body.get("messages"))]
    if not messages:
        return [Violation("messages-empty", "messages", "At least one message is required.")]
    return [
        *_chat_forms(messages),
        *_chat_calls(messages),
        *_chat_pairs(messages),
        *_chat_functions(messages),
    ]


def find_reused_chat_ids(body: Mapping[str, Any]) -> list[Violation]:
    """List call ids used more than once, which Mistral and others refuse (hermes#11722)."""
    return find_repeated_ids(
        (str(call.get("id")), f"messages[{place}].tool_calls[{index}]")
        for place, message in mappings(body.get("messages"))
        for index, call in mappings(message.get("tool_calls"))
    )


def _chat_forms(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Errors: "Invalid value for 'content': expected a string, got null" (langchainjs#4153), except
    for an assistant with other content; "Invalid 'messages[4].content': empty array. Expected an
    array with minimum length 1" (langchainjs#11416)."""
    for place, message in enumerate(messages):
        role, content, path = message.get("role"), message.get("content"), f"messages[{place}]"
        if role not in _CHAT_ROLES:
            yield Violation("role-unknown", f"{path}.role", f"A role cannot be {role!r}.")
        if content == []:
            yield Violation("content-empty-list", f"{path}.content", "The list of parts is empty.")
        yield from _text_forms(f"{path}.content", content)
        excused = role == "assistant" and any(message.get(key) for key in _INSTEAD_OF_CONTENT)
        if content is None and not excused:
            yield Violation("content-missing", f"{path}.content", "Content cannot be null here.")


def _text_forms(path: str, content: Any) -> Iterator[Violation]:
    for index, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind is None or (kind in TEXT_TYPES and not isinstance(part.get("text"), str)):
            yield Violation("text-malformed", f"{path}[{index}]", "A text part needs its text.")


def _chat_calls(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Errors: "Invalid 'messages[1].tool_calls': empty array" (openai-node#1341), "expected an
    array of objects, but got null"; arguments, and a custom tool's input, are JSON strings by the
    schema, never objects; `type` is required."""
    for place, message in enumerate(messages):
        path = f"messages[{place}].tool_calls"
        if not message.get("tool_calls", [{}]):
            yield Violation("tool-calls-empty", path, "An empty list of calls is refused.")
        for index, call in enumerate(message.get("tool_calls") or ()):
            call_path = f"{path}[{index}]"
            if not isinstance(call, Mapping) or call.get("type") not in call:
                yield Violation(
                    "call-type-missing", call_path, "A call names its type: function, custom."
                )
                continue
            if not isinstance(call.get("id"), str) or not call["id"]:
                yield Violation("call-id-missing", call_path, "A call needs an id.")
        for call_path, holder in _chat_argument_holders(place, message):
            payload = holder.get("arguments", holder.get("input"))
            if not isinstance(payload, str):
                yield Violation("arguments-not-string", call_path, "Arguments are a JSON string.")


def _chat_argument_holders(
    place: int, message: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for index, call in mappings(message.get("tool_calls")):
        for key in ("function", "custom"):
            if isinstance(call.get(key), Mapping):
                yield f"messages[{place}].tool_calls[{index}].{key}", call[key]
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        yield f"messages[{place}].function_call", legacy


def _chat_pairs(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Errors: "An assistant message with 'tool_calls' must be followed by tool messages responding
    to each 'tool_call_id'"; "messages with role 'tool' must be a response to a preceeding message
    with 'tool_calls'" (morphic#136); "Duplicate value for 'tool_call_id'" (agno#5116). The tool
    messages may be in any order."""

    def calls(place: int, message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if message.get("role") == "assistant":
            for index, call in mappings(message.get("tool_calls")):
                yield str(call.get("id")), f"messages[{place}].tool_calls[{index}]"

    return _check_answers(messages, "tool", lambda message: str(message.get("tool_call_id")), calls)


def _check_answers(
    messages: list[Mapping[str, Any]],
    result_role: str,
    answered_id: Callable[[Mapping[str, Any]], str],
    calls: Callable[[int, Mapping[str, Any]], Iterator[tuple[str, str]]],
) -> Iterator[Violation]:
    waiting: dict[str, str] = {}
    answered: set[str] = set()
    for place, message in enumerate([*messages, {}]):
        path = f"messages[{place}]"
        if message.get("role") == result_role:
            identity = answered_id(message)
            if waiting.pop(identity, None) is not None:
                answered.add(identity)
            elif identity in answered:
                yield Violation("result-duplicate", path, f"{identity!r} is answered already.")
            else:
                yield Violation("result-orphan", path, f"No open call {identity!r} before it.")
            continue
        for identity, called_at in waiting.items():
            yield Violation("call-unanswered", called_at, f"No result of {identity!r} follows.")
        answered, waiting = set(), {}
        for identity, called_at in calls(place, message):
            if identity in waiting:
                yield Violation("call-id-duplicate", called_at, f"Two calls share {identity!r}.")
            waiting[identity] = called_at


def _chat_functions(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """A legacy `function_call` must be followed directly by the `function` message of that name."""
    for place, message in enumerate(messages):
        legacy = message.get("function_call")
        after = messages[place + 1] if place + 1 < len(messages) else {}
        if isinstance(legacy, Mapping) and not _chat_answers(after, legacy):
            yield Violation(
                "function-call-unanswered",
                f"messages[{place}].function_call",
                f"The next message is not the result of {legacy.get('name')!r}.",
            )
        if message.get("role") != "function":
            continue
        earlier_call = messages[place - 1].get("function_call") if place else None
        if not isinstance(earlier_call, Mapping) or not _chat_answers(message, earlier_call):
            yield Violation(
                "function-orphan", f"messages[{place}]", "No function_call directly before it."
            )


def _chat_answers(message: Mapping[str, Any], legacy: Mapping[str, Any]) -> bool:
    return message.get("role") == "function" and message.get("name") == legacy.get("name")


_RESPONSES_ROLES = frozenset({"system", "developer", "user", "assistant"})
_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "function_call": ("function_call_output",),
    "custom_tool_call": ("custom_tool_call_output",),
    # Codex answers local shell calls with function outputs (see its ensure_call_outputs_present).
    "local_shell_call": ("local_shell_call_output", "function_call_output"),
    "shell_call": ("shell_call_output",),
    "apply_patch_call": ("apply_patch_call_output",),
    "computer_call": ("computer_call_output",),
    "tool_search_call": ("tool_search_output",),
}
"""Calls that the client must answer, and the types of items that answer them."""
_OUTPUTS = frozenset(kind for kinds in _ANSWERS.values() for kind in kinds)
_OUTPUT_FORMS: Mapping[str, tuple[type, ...]] = {
    "function_call_output": (str, list),
    "custom_tool_call_output": (str, list),
    "local_shell_call_output": (str,),
    "shell_call_output": (list,),
    "computer_call_output": (dict,),
}
"""Types of `output` by openai-python 3.49. A patch is answered by its status, a tool search by its
tools."""
_CONTENT_TYPES = {
    "assistant": ("output_text", "refusal"),
    **dict.fromkeys(("user", "system", "developer"), ("input_text", "input_image", "input_file")),
}
_OTHER_CONTENT = frozenset({"text", *(kind for kinds in _CONTENT_TYPES.values() for kind in kinds)})
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_PROVIDER_CALLS = {
    "program": "call_id",
    "multi_agent_call": "call_id",
    "mcp_approval_request": "id",
}
"""Calls that the server runs, and the field with their id."""
_PROVIDER_RESULTS = {
    "program_output": ("program", "call_id"),
    "multi_agent_call_output": ("multi_agent_call", "call_id"),
    "mcp_approval_response": ("mcp_approval_request", "approval_request_id"),
}
_LOCAL_SHELL = ("local_shell_call", "local_shell_call_output")
_TOOL_SEARCH = ("tool_search_call", "tool_search_output")
_Item = tuple[str, Mapping[str, Any]]


def check_responses(body: Mapping[str, Any]) -> list[Violation]:
    """List the rules of the Responses API that `body` breaks."""
    request_input = body.get("input")
    continues = bool(body.get("previous_response_id") or body.get("conversation"))
    if isinstance(request_input, str) and request_input:
        return []
    if request_input is None and (continues or body.get("prompt")):
        return []
    items = [(f"input[{place}]", item) for place, item in mappings(request_input)]
    if not items:
        return [Violation("input-empty", "input", "The input is empty.")]
    return [
        *_responses_forms(items),
        *_responses_pairs(items, continues=continues),
        *_provider_pairs(items, continues=continues),
        *_responses_reasoning(items),
        *_responses_item_ids(items),
        # "Duplicate function_call_output for call_id" (hermes-agent#102629, openai/gpt-oss#309)
        *find_repeated_ids(
            (identity, path)
            for path, item in items
            if item.get("type") in _ANSWERS and (identity := _pair_id(item))
        ),
    ]


def _pair_id(item: Mapping[str, Any]) -> str:
    """Return the id that pairs an item. By its schema, a local shell's output names the call in
    `id`."""
    if item.get("type") in _LOCAL_SHELL and not item.get("call_id"):
        return str(item.get("id") or "")
    return str(item.get("call_id") or "")


def _is_message(item: Mapping[str, Any]) -> bool:
    return item.get("type", "message") == "message" and "role" in item


def _responses_forms(items: list[_Item]) -> Iterator[Violation]:
    """Errors: "Invalid type for 'input[xx].content': expected one of an array of objects or string,
    but got null" (new-api#4776); "Invalid value: 'input_text'. Supported values are: 'output_text'
    and 'refusal'." Arguments and a custom tool's input are strings by the schema."""
    for path, item in items:
        kind = str(item.get("type"))
        if _is_message(item):
            if item.get("role") not in _RESPONSES_ROLES:
                yield Violation("role-unknown", path, f"A role cannot be {item.get('role')!r}.")
            if item.get("content") is None:
                yield Violation("content-missing", path, "Content cannot be null.")
            yield from _text_forms(f"{path}.content", item.get("content"))
            for index, part in mappings(item.get("content")):
                allowed_types = _CONTENT_TYPES.get(str(item.get("role")), ())
                if part.get("type") in _OTHER_CONTENT and part["type"] not in allowed_types:
                    inside = f"{path}.content[{index}]"
                    yield Violation("content-type-wrong", inside, f"{part['type']} is not for it.")
        if kind == "function_call" and not isinstance(item.get("arguments"), str):
            yield Violation("arguments-not-string", path, "Arguments are a JSON string.")
        if kind == "custom_tool_call" and not isinstance(item.get("input"), str):
            yield Violation("arguments-not-string", path, "A custom tool's input is a string.")
        output = item.get("output")
        if kind in _OUTPUT_FORMS and not isinstance(output, _OUTPUT_FORMS[kind]):
            yield Violation("output-malformed", path, f"Its output cannot be {type(output)}.")
        if kind == "function_call" and not _TOOL_NAME.fullmatch(str(item.get("name") or "")):
            yield Violation("tool-name-malformed", path, f"{item.get('name')!r} is no name.")
        if kind == "reasoning" and not isinstance(item.get("summary"), list):
            yield Violation(
                "summary-missing", path, "Reasoning needs a summary, which may be empty."
            )


def _responses_pairs(items: list[_Item], *, continues: bool) -> Iterator[Violation]:
    """Errors: "No tool output found for function call …"; "No tool call found for function call
    output with call_id …" (continue#10092). The server may hold the call through
    `previous_response_id`, a conversation, or an `item_reference` before the output."""
    waiting: dict[tuple[str, str], str] = {}
    answered: set[tuple[str, str]] = set()
    for path, item in items:
        kind = str(item.get("type"))
        continues = continues or kind == "item_reference"
        if kind not in _ANSWERS and kind not in _OUTPUTS:
            continue
        identity = _pair_id(item)
        if kind in _TOOL_SEARCH and (not identity or item.get("execution") == "server"):
            continue  # the server ran the search
        if not identity:
            yield Violation("call-id-missing", path, "The item has no call_id.")
        elif kind in _ANSWERS:
            waiting[kind, identity] = path
        else:
            rule = _settle(kind, identity, waiting, answered, continues=continues)
            if rule:
                yield Violation(rule, path, f"No open call {identity!r} before it.")
    for (_, identity), path in waiting.items():
        yield Violation("call-unanswered", path, f"No output found for {identity!r}.")


def _settle(
    kind: str,
    identity: str,
    waiting: dict[tuple[str, str], str],
    answered: set[tuple[str, str]],
    *,
    continues: bool,
) -> str | None:
    for call_kind, kinds in _ANSWERS.items():
        if kind in kinds and waiting.pop((call_kind, identity), None) is not None:
            answered.add((kind, identity))
            return None
    if (kind, identity) in answered:
        return "result-duplicate"
    if not continues:
        return "result-orphan"
    answered.add((kind, identity))
    return None


def _provider_pairs(items: list[_Item], *, continues: bool) -> Iterator[Violation]:
    """Sources are the fields' descriptions in openai-python (`program_output.call_id`,
    `caller.caller_id`, `mcp_approval_response.approval_request_id`). A call that the server runs
    may lack its output while it runs."""
    known: set[tuple[str, str]] = set()
    for path, item in items:
        kind = str(item.get("type"))
        continues = continues or kind == "item_reference"
        if kind in _PROVIDER_CALLS:
            known.add((kind, str(item.get(_PROVIDER_CALLS[kind]) or "")))
        if continues:
            continue
        if kind in _PROVIDER_RESULTS:
            call, field = _PROVIDER_RESULTS[kind]
            if (call, str(item.get(field) or "")) not in known:
                yield Violation("provider-result-orphan", path, f"No {call} before it.")
        caller = item.get("caller")
        caller_id = caller.get("caller_id") if isinstance(caller, Mapping) else None
        if caller_id and ("program", str(caller_id)) not in known:
            yield Violation("caller-missing", path, "The program that made this call is missing.")


def _responses_reasoning(items: list[_Item]) -> Iterator[Violation]:
    """Errors: "Item 'rs_…' of type 'reasoning' was provided without its required following item"
    (openai-node#1567, vercel/ai#7099). The following item is the model's own: more reasoning, an
    assistant message or a call, never the end, a user's message or a tool's output."""
    for place, (path, item) in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        after = items[place + 1][1] if place + 1 < len(items) else None
        output = after is not None and after.get("type") in _OUTPUTS
        by_client = output and after.get("execution") != "server"  # type: ignore[union-attr]
        if after is None or by_client or (_is_message(after) and after.get("role") != "assistant"):
            yield Violation(
                "reasoning-without-item",
                path,
                "The item that this reasoning produced does not follow.",
            )


def _responses_item_ids(items: list[_Item]) -> Iterator[Violation]:
    """Errors: "Duplicate item found with id …" (vercel/ai#7883)."""
    seen: set[str] = set()
    for path, item in items:
        identity = item.get("id")
        if item.get("type") == "local_shell_call_output" or not isinstance(identity, str):
            continue
        if identity in seen:
            yield Violation("item-id-duplicate", path, f"{identity!r} was used before.")
        seen.add(identity)


_PI_ROLES = frozenset(
    {"user", "assistant", "toolResult", "bashExecution", "custom"}
    | {"branchSummary", "compactionSummary"}
)


def check_pi(body: Mapping[str, Any]) -> list[Violation]:
    """List the rules of pi's replay that `body` breaks."""
    messages = [message for _, message in mappings(body.get("messages"))]
    if not messages:
        return [Violation("messages-empty", "messages", "At least one message is required.")]
    return [*_pi_forms(messages), *_pi_pairs(messages)]


def find_reused_pi_ids(body: Mapping[str, Any]) -> list[Violation]:
    """List call ids used more than once: pi finds results by `toolCallId` (oh-my-pi#2055)."""
    return find_repeated_ids(
        (call_id(block), f"messages[{place}].content[{index}]")
        for place, message in mappings(body.get("messages"))
        for index, block in _pi_calls(message)
    )


def _pi_calls(message: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if message.get("role") == "assistant":
        for index, block in mappings(message.get("content")):
            if block.get("type") in CALL_TYPES:
                yield index, block


def _pi_forms(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:
    for place, message in enumerate(messages):
        role, path = message.get("role"), f"messages[{place}]"
        if role not in _PI_ROLES:
            yield Violation("role-unknown", f"{path}.role", f"A role cannot be {role!r}.")
        is_list = isinstance(message.get("content"), list)
        if role in ("assistant", "toolResult") and not is_list:
            yield Violation("content-not-list", path, f"The content of {role} is a list.")
        yield from _text_forms(f"{path}.content", message.get("content"))
        for index, call in _pi_calls(message):
            if call["type"] == "toolCall" and not isinstance(call.get("arguments"), Mapping):
                call_path = f"{path}.content[{index}]"
                yield Violation("input-not-object", call_path, "The arguments are an object.")
        if role != "assistant":
            continue
        if message.get("stopReason") in ("error", "aborted"):
            yield Violation("assistant-aborted", path, "A failed reply must not be sent again.")
        elif _pi_says_nothing(message.get("content")):
            yield Violation("assistant-empty", path, "The reply has no content.")


def _pi_says_nothing(content: Any) -> bool:
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


def _pi_pairs(messages: list[Mapping[str, Any]]) -> Iterator[Violation]:

    def calls(place: int, message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for index, block in _pi_calls(message):
            yield call_id(block), f"messages[{place}].content[{index}]"

    return _check_answers(messages, "toolResult", call_id, calls)
