"""OpenAI Responses: what the API refuses in `input`.

Sources: docs/contributing/sources.md and the issues named beside the rules. Pairs are found by call
id anywhere after the call, as OpenAI does; some hosts want them adjacent, which we do not hold. Not
held: that a stored item comes with the reasoning item it was made with needs the request as it was
(see `faithful`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.testing.provider_rules.violation import Violation, mappings, repeated

RULES = (
    "input-empty",
    "role-unknown",
    "content-missing",
    "arguments-not-string",
    "output-missing",
    "call-id-missing",
    "call-id-duplicate",
    "call-unanswered",
    "result-orphan",
    "result-duplicate",
    "reasoning-without-item",
    "item-id-duplicate",
    "provider-result-orphan",
    "caller-missing",
)

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "function_call": ("function_call_output",),
    "custom_tool_call": ("custom_tool_call_output",),
    # Codex answers local shell calls with function outputs (CX, ensure_call_outputs_present).
    "local_shell_call": ("local_shell_call_output", "function_call_output"),
    "shell_call": ("shell_call_output",),
    "apply_patch_call": ("apply_patch_call_output",),
    "computer_call": ("computer_call_output",),
    "tool_search_call": ("tool_search_output",),
}
"""Calls the client must answer, and the items that answer them."""
_OUTPUTS = frozenset(kind for kinds in _ANSWERS.values() for kind in kinds)
# A patch may be answered by its status alone, a tool search by its tools.
_WITH_OUTPUT = _OUTPUTS - {"apply_patch_call_output", "tool_search_output"}
_PROVIDER_CALLS = {
    "program": "call_id",
    "multi_agent_call": "call_id",
    "mcp_approval_request": "id",
}
"""Calls that the server runs, and where their id stands."""
_PROVIDER_RESULTS = {
    "program_output": ("program", "call_id"),
    "multi_agent_call_output": ("multi_agent_call", "call_id"),
    "mcp_approval_response": ("mcp_approval_request", "approval_request_id"),
}
_LOCAL_SHELL = ("local_shell_call", "local_shell_call_output")
_TOOL_SEARCH = ("tool_search_call", "tool_search_output")
_Item = tuple[str, Mapping[str, Any]]


def check(body: Mapping[str, Any]) -> list[Violation]:
    """Every rule of the Responses API that `body` breaks."""
    given = body.get("input")
    continues = bool(body.get("previous_response_id") or body.get("conversation"))
    if isinstance(given, str) and given:
        return []
    if given is None and (continues or body.get("prompt")):
        return []
    items = [(f"input[{place}]", item) for place, item in mappings(given)]
    if not items:
        return [_broken("input-empty", "input", "The input is empty.")]
    return [
        *_forms(items),
        *_pairs(items, continues=continues),
        *_provider_pairs(items, continues=continues),
        *_reasoning(items),
        *_item_ids(items),
    ]


def reused_ids(body: Mapping[str, Any]) -> list[Violation]:
    """Call ids used by more than one call (openai/gpt-oss#309 answers 422)."""
    return repeated(
        (_pair_id(item), f"input[{place}]")
        for place, item in mappings(body.get("input"))
        if item.get("type") in _ANSWERS
    )


def _broken(rule: str, where: str, sentence: str) -> Violation:
    return Violation(rule=rule, where=where, sentence=sentence)


def _pair_id(item: Mapping[str, Any]) -> str:
    """`call_id`; by its schema a local shell's output names the call in `id`."""
    if item.get("type") in _LOCAL_SHELL and not item.get("call_id"):
        return str(item.get("id") or "")
    return str(item.get("call_id") or "")


def _is_message(item: Mapping[str, Any]) -> bool:
    return item.get("type", "message") == "message" and "role" in item


def _forms(items: list[_Item]) -> Iterator[Violation]:
    """What every item must hold.

    "Invalid type for 'input[xx].content': expected one of an array of objects or string, but got
    null" (new-api#4776). Arguments and a custom tool's input are strings by the schema.
    """
    for where, item in items:
        kind = item.get("type")
        if _is_message(item):
            if item.get("role") not in _ROLES:
                yield _broken("role-unknown", where, f"A role cannot be {item.get('role')!r}.")
            if item.get("content") is None:
                yield _broken("content-missing", where, "Content cannot be null.")
        if kind == "function_call" and not isinstance(item.get("arguments"), str):
            yield _broken("arguments-not-string", where, "Arguments are a JSON string.")
        if kind == "custom_tool_call" and not isinstance(item.get("input"), str):
            yield _broken("arguments-not-string", where, "A custom tool's input is a string.")
        if kind in _WITH_OUTPUT and item.get("output") is None:
            yield _broken("output-missing", where, "An output item needs its output.")


def _pairs(items: list[_Item], *, continues: bool) -> Iterator[Violation]:
    """Each call is answered once, after it; an output needs its call unless the server holds it.

    "No tool output found for function call …"; "No tool call found for function call output with
    call_id …" (continue#10092). The server may hold the call through `previous_response_id`, a
    conversation, or an `item_reference` before the output.
    """
    waiting: dict[tuple[str, str], str] = {}
    answered: set[tuple[str, str]] = set()
    for where, item in items:
        kind = str(item.get("type"))
        continues = continues or kind == "item_reference"
        if kind not in _ANSWERS and kind not in _OUTPUTS:
            continue
        identity = _pair_id(item)
        if kind in _TOOL_SEARCH and (not identity or item.get("execution") == "server"):
            continue  # the server searched by itself
        if not identity:
            yield _broken("call-id-missing", where, "The item has no call_id.")
        elif kind in _ANSWERS:
            if (kind, identity) in waiting:
                yield _broken("call-id-duplicate", where, f"{identity!r} is still unanswered.")
            waiting[kind, identity] = where
        else:
            rule = _settle(kind, identity, waiting, answered, continues=continues)
            if rule:
                yield _broken(rule, where, f"No open call {identity!r} before it.")
    for (_, identity), where in waiting.items():
        yield _broken("call-unanswered", where, f"No output found for {identity!r}.")


def _settle(
    kind: str,
    identity: str,
    waiting: dict[tuple[str, str], str],
    answered: set[tuple[str, str]],
    *,
    continues: bool,
) -> str | None:
    """Take the call an output answers off the waiting list, or say which rule it breaks."""
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
    """What the server runs: an item that answers, or was called by, another has it before it.

    From the fields' descriptions in openai-python (`program_output.call_id`, `caller.caller_id`,
    `mcp_approval_response.approval_request_id`). A call that the server runs may be without its
    output while it runs.
    """
    known: set[tuple[str, str]] = set()
    for where, item in items:
        kind = str(item.get("type"))
        continues = continues or kind == "item_reference"
        if kind in _PROVIDER_CALLS:
            known.add((kind, str(item.get(_PROVIDER_CALLS[kind]) or "")))
        if continues:
            continue
        if kind in _PROVIDER_RESULTS:
            call, field = _PROVIDER_RESULTS[kind]
            if (call, str(item.get(field) or "")) not in known:
                yield _broken("provider-result-orphan", where, f"No {call} before it.")
        caller = item.get("caller")
        named = caller.get("caller_id") if isinstance(caller, Mapping) else None
        if named and ("program", str(named)) not in known:
            yield _broken("caller-missing", where, "The program that called is not there.")


def _reasoning(items: list[_Item]) -> Iterator[Violation]:
    """Reasoning stays with what it led to.

    "Item 'rs_…' of type 'reasoning' was provided without its required following item"
    (openai-node#1567, vercel/ai#7099). That item is the model's own: more reasoning, an assistant
    message or a call, never the end, a user's message or a tool's output.
    """
    for place, (where, item) in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        after = items[place + 1][1] if place + 1 < len(items) else None
        output = after is not None and after.get("type") in _OUTPUTS
        by_client = output and after.get("execution") != "server"  # type: ignore[union-attr]
        if after is None or by_client or _is_client_message(after):
            yield _broken("reasoning-without-item", where, "The item it led to does not follow.")


def _is_client_message(item: Mapping[str, Any]) -> bool:
    return _is_message(item) and item.get("role") != "assistant"


def _item_ids(items: list[_Item]) -> Iterator[Violation]:
    """No item comes twice: "Duplicate item found with id …" (vercel/ai#7883)."""
    seen: set[str] = set()
    for where, item in items:
        identity = item.get("id")
        if item.get("type") == "local_shell_call_output" or not isinstance(identity, str):
            continue
        if identity in seen:
            yield _broken("item-id-duplicate", where, f"The id {identity!r} came before.")
        seen.add(identity)
