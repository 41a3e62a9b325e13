"""Rules of the providers, checked on a decoded request body. `violations` names every rule that the
body breaks. This module never imports the code that it checks. Each rule's docstring names its
source. If hosts of one format differ, the strictest rule applies."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.testing.openai_rules import (
    CALL_TYPES,
    RESULT_TYPES,
    Violation,
    call_id,
    check_chat,
    check_pi,
    check_responses,
    find_repeated_ids,
    find_reused_chat_ids,
    find_reused_pi_ids,
    is_blank,
    mappings,
)

__all__ = ["FORMAT_NAMES", "Violation", "violations"]

_Check = Callable[[Mapping[str, Any]], list[Violation]]
FORMAT_NAMES = ("anthropic", "openai-chat", "openai-responses", "pi")


def violations(
    format_name: str,
    body: Mapping[str, Any],
    *,
    ids_unique_across_messages: bool = False,
    betas: Iterable[str] = (),
) -> list[Violation]:
    """Name every rule of `format_name` that `body` breaks; empty if it would be accepted. With
    `ids_unique_across_messages`, report a call id that is reused later, which Anthropic refuses
    (openclaw#4700, #43370; NeMo Switchyard#502). `betas` are the beta features that the request's
    headers name."""
    checks: dict[str, tuple[_Check, _Check]] = {
        "anthropic": (lambda request: _check_anthropic(request, betas), _find_reused_anthropic_ids),
        "openai-chat": (check_chat, find_reused_chat_ids),
        "openai-responses": (check_responses, lambda _: []),  # always checked
        "pi": (check_pi, find_reused_pi_ids),
    }
    if format_name not in checks:
        raise ValueError(f"{format_name!r} is none of {', '.join(FORMAT_NAMES)}")
    check, reused_ids = checks[format_name]
    return check(body) + (reused_ids(body) if ids_unique_across_messages else [])


# Bedrock and other hosts refuse two messages of the same role in a row, so strict alternation is
# required for all. Two rules depend on the model and are not checked: whether the last message may
# be the assistant's, and that a tool loop under extended thinking begins with a thinking block.

_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_SERVER_RESULTS = {
    "web_search_tool_result": "server_tool_use",
    "web_fetch_tool_result": "server_tool_use",
    "code_execution_tool_result": "server_tool_use",
    "bash_code_execution_tool_result": "server_tool_use",
    "text_editor_code_execution_tool_result": "server_tool_use",
    "tool_search_tool_result": "server_tool_use",
    "advisor_tool_result": "server_tool_use",
    "mcp_tool_result": "mcp_tool_use",
}
"""Results that the API sends itself, and the kind of call that each needs."""
_THINKING = frozenset({"thinking", "redacted_thinking"})
_HOMES = {
    **dict.fromkeys((*RESULT_TYPES, "image", "document", "search_result"), "user"),
    "container_upload": "user",
    **dict.fromkeys((*CALL_TYPES, *_THINKING, *_SERVER_CALLS, *_SERVER_RESULTS), "assistant"),
}
"""The role that a message must have to contain a block of this type."""
# opencode#1279: "String should match pattern '^[a-zA-Z0-9_-]+$'".
_ID_PATTERN = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MOST_CACHE_MARKS = 4  # "A maximum of 4 blocks with cache_control may be provided."
_UNMARKED = frozenset({*_THINKING, "fallback", "mcp_tool_listing"})
"""Blocks that must not have `cache_control`, by the fields of anthropic-sdk-python 2.8."""
_SYSTEM_INSIDE_BETAS = ("per-turn-control-", "mid-conversation-")
"""Names (without dates) of beta features with which Claude Code sends system messages between the
turns."""


@dataclass(frozen=True, slots=True)
class _Message:
    place: int
    wire: Mapping[str, Any]

    @property
    def role(self) -> Any:
        return self.wire.get("role")

    def blocks(self, kinds: Container[str] | None = None) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the blocks of these types with their places. A plain string is one text block."""
        content, path = self.wire.get("content"), f"messages[{self.place}].content"
        if isinstance(content, str):
            all_blocks: list[tuple[str, Mapping[str, Any]]] = [
                (path, {"type": "text", "text": content})
            ]
        else:
            all_blocks = [(f"{path}[{index}]", block) for index, block in mappings(content)]
        return [
            located_block
            for located_block in all_blocks
            if kinds is None or str(located_block[1].get("type")) in kinds
        ]


def _messages_of(body: Mapping[str, Any]) -> list[_Message]:
    return [_Message(place, message) for place, message in mappings(body.get("messages"))]


def _check_anthropic(body: Mapping[str, Any], betas: Iterable[str] = ()) -> list[Violation]:
    """List the rules of Anthropic Messages that `body` breaks. With the beta feature for system
    messages between turns (in the headers or in a client library's mapping), those messages have
    their own rule, and other rules ignore them."""
    all_messages = _messages_of(body)
    beta_names = (*betas, *(body.get("betas") or ()))
    system_inside = any(str(name).startswith(_SYSTEM_INSIDE_BETAS) for name in beta_names)
    messages = [
        message for message in all_messages if not (system_inside and message.role == "system")
    ]
    if not messages:
        return [Violation("messages-empty", "messages", "At least one message is required.")]
    return [
        *_roles(all_messages, system_inside=system_inside),
        *_contents(messages),
        *_block_homes(messages),
        *_pairs(messages),
        *_server_pairs(messages),
        *_callers(messages),
        *_block_forms(messages, signed="claude" in str(body.get("model")).lower()),
        *_final(body, messages[-1]),
        *_cache_marks(body, all_messages),
    ]


def _find_reused_anthropic_ids(body: Mapping[str, Any]) -> list[Violation]:
    """Errors: "`tool_use` ids must be unique"."""
    calls = (
        located_block
        for message in _messages_of(body)
        for located_block in message.blocks(CALL_TYPES)
    )
    return find_repeated_ids((call_id(block), path) for path, block in calls)


def _roles(messages: list[_Message], *, system_inside: bool = False) -> Iterator[Violation]:
    """`roles must alternate between "user" and "assistant"`; the first must be the user's. With
    `system_inside` system messages may follow a user's, as captured of Claude Code 2.1.325, and
    roles restart after them. Several system messages in a row were not seen, but are accepted. A
    system message needs content or settings (anthropic-sdk-python, `BetaSystemMessageParam`)."""
    before = None
    for count, message in enumerate(messages):
        role, path = message.role, f"messages[{message.place}].role"
        if system_inside and role == "system":
            if count and before not in ("user", "system"):
                yield Violation("system-not-behind-user", path, f"It must not follow {before}.")
            if not message.wire.get("content") and not message.wire.get("output_config"):
                yield Violation("content-empty", path, "It has neither content nor settings.")
        elif role not in ("user", "assistant"):
            yield Violation("role-unknown", path, f"A message's role cannot be {role!r}.")
        elif role == before:
            yield Violation("roles-not-alternating", path, f"Two {role} messages in a row.")
        if count == 0 and role != "user":
            yield Violation("first-not-user", path, "The first message must be the user's.")
        before = role


def _contents(messages: list[_Message]) -> Iterator[Violation]:
    """Errors: "all messages must have non-empty content except for the optional final assistant
    message" (claude-code#3196; the exception is refused here too, because hosts differ), "text
    content blocks must be non-empty" and "text content blocks must contain non-whitespace text"
    (claude-code#23440). A result without content is documented, a blank text block inside one is
    not (hermes-agent#41985)."""
    for message in messages:
        if not message.blocks() or message.wire.get("content") == "":
            path = f"messages[{message.place}].content"
            yield Violation("content-empty", path, "The message is empty.")
            continue
        for path, block in message.blocks(("text",)):
            if is_blank(block.get("text", "")):
                yield Violation("text-blank", path, "A text block needs non-whitespace text.")
        for path, block in message.blocks(RESULT_TYPES):
            for index, inner in mappings(block.get("content")):
                if inner.get("type") == "text" and is_blank(inner.get("text", "")):
                    inside = "A text block inside a tool result needs non-whitespace text."
                    yield Violation("text-blank-in-result", f"{path}.content[{index}]", inside)


def _block_homes(messages: list[_Message]) -> Iterator[Violation]:
    for message in messages:
        for path, block in message.blocks(_HOMES):
            kind = block["type"]
            if message.role != _HOMES[kind]:
                sentence = f"{kind} is only for {_HOMES[kind]} messages."
                yield Violation("block-in-wrong-role", path, sentence)


def _pairs(messages: list[_Message]) -> Iterator[Violation]:
    """Errors: "`tool_use` ids were found without `tool_result` blocks immediately after … Each
    `tool_use` block must have a corresponding `tool_result` block in the next message"; "unexpected
    `tool_use_id` found in `tool_result` blocks … must have a corresponding `tool_use` block in the
    previous message" (claude-code#5989, #13460). "each tool_use must have a single result"
    (hindsight#4250). "`tool_use` ids must be unique" (claude-code#21094)."""
    open_ids: set[str] = set()
    for message, following in zip(messages, [*messages[1:], None], strict=True):
        yield from _results_against(open_ids, message)
        open_ids = set()
        if message.role != "assistant":
            continue
        answered: set[str] = set()
        if following is not None and following.role == "user":
            answered = {call_id(block) for _, block in following.blocks(RESULT_TYPES)}
        for path, block in message.blocks(CALL_TYPES):
            identity = call_id(block)
            if not _ID_PATTERN.fullmatch(identity):
                yield Violation("call-id-malformed", path, f"{identity!r} is no call id.")
            if identity in open_ids:
                yield Violation("call-id-duplicate", path, f"Two calls share the id {identity!r}.")
            open_ids.add(identity)
            if identity not in answered:
                yield Violation("call-unanswered", path, f"The next message lacks {identity!r}.")


def _results_against(open_ids: set[str], message: _Message) -> Iterator[Violation]:
    """Results come first: text before them is answered with the same "without `tool_result` blocks
    immediately after" (hermes-agent#65369, qwen-code#8161)."""
    seen: set[str] = set()
    results = message.blocks(RESULT_TYPES)
    for path, block in results:
        identity = call_id(block)
        if identity not in open_ids:
            yield Violation("result-orphan", path, f"No call {identity!r} in the message before.")
        elif identity in seen:
            yield Violation("result-duplicate", path, f"The call {identity!r} has two results.")
        seen.add(identity)
    first = {path for path, _ in message.blocks()[: len(results)]}
    for path, _ in results:
        if path not in first:
            yield Violation("result-not-first", path, "Results come before everything else.")


def _server_pairs(messages: list[_Message]) -> Iterator[Violation]:
    """Errors: "Each `advisor_tool_result` block must have a corresponding `server_tool_use` block
    before it" (claude-code#62577; the same wording for `web_search_tool_result`). A paused turn may
    end on its call. Code may call the client's tools while it runs ("Programmatic tool calling" of
    the documentation): until its result, only calls of that code and their results follow. Types
    that are not listed are not judged."""
    waiting: dict[tuple[str, str], tuple[int, str]] = {}
    answered: set[tuple[str, str]] = set()
    for place, message in enumerate(messages):
        for path, block in message.blocks((*_SERVER_CALLS, *_SERVER_RESULTS)):
            kind, identity = str(block["type"]), call_id(block)
            pair = (_SERVER_RESULTS.get(kind, kind), identity)
            if kind in _SERVER_CALLS:
                if pair in waiting:
                    sentence = f"{identity!r} is still unanswered."
                    yield Violation("server-call-duplicate", path, sentence)
                waiting[pair] = (place, path)
            elif waiting.pop(pair, None) is not None:
                answered.add(pair)
            elif pair in answered:
                yield Violation("server-result-duplicate", path, "Its call has two results.")
            else:
                yield Violation("server-result-orphan", path, f"No {pair[0]} before it.")
    for (_, identity), (place, path) in waiting.items():
        if not _still_running(identity, messages[place:]):
            yield Violation("server-call-unanswered", path, "Its result is in no message.")


def _still_running(identity: str, messages: list[_Message]) -> bool:
    """Return whether a call without a result may still be running: only results of the calls next
    to it, and replies in which its code makes more calls, follow."""
    calls: set[str] = set()
    for place, message in enumerate(messages):
        if place % 2:
            if not calls & {call_id(block) for _, block in message.blocks(RESULT_TYPES)}:
                return False
            continue
        own_blocks = message.blocks()
        if not own_blocks or (
            place and identity not in {_caller(block) for _, block in own_blocks}
        ):
            return False
        calls = {call_id(block) for _, block in message.blocks(CALL_TYPES)}
    return True


def _caller(block: Mapping[str, Any]) -> str:
    caller = block.get("caller")
    return str(caller.get("tool_id") or "") if isinstance(caller, Mapping) else ""


def _callers(messages: list[_Message]) -> Iterator[Violation]:
    """An invalid `caller` is refused with 400, a call without the field is accepted (both measured
    by others; the documentation on programmatic tool calling shows the field on every call)."""
    known: set[str] = set()
    for path, block in (
        located_block for message in messages for located_block in message.blocks()
    ):
        if block.get("type") == "server_tool_use":
            known.add(call_id(block))
        elif _caller(block) and _caller(block) not in known:
            yield Violation("caller-missing", path, "The code that made this call is missing.")


def _block_forms(messages: list[_Message], *, signed: bool) -> Iterator[Violation]:
    """Errors: `thinking.thinking: Field required` (LibreChat agents#279), `thinking.signature:
    Field required` (dirge#821), `thinking.cache_control: Extra inputs are not permitted`
    (litellm#39815), `tool_use.input: Input should be a valid dictionary` (claude-code#6696). Claude
    demands signatures (`signed`); other hosts of the format send none and expect their blocks back
    unchanged. Other fields are those of anthropic-sdk-python 2.8."""
    for path, block in (
        located_block for message in messages for located_block in message.blocks()
    ):
        kind = str(block.get("type"))
        signature = block.get("signature") if signed else "not required"
        if kind in _UNMARKED and "cache_control" in block:
            yield Violation("cache-mark-misplaced", path, f"{kind} has no cache_control.")
        if kind == "thinking" and not isinstance(block.get("thinking"), str):
            yield Violation("thinking-malformed", path, "thinking needs its text.")
        if kind == "thinking" and not (isinstance(signature, str) and signature):
            yield Violation("thinking-malformed", path, "thinking needs its signature.")
        if kind == "redacted_thinking" and not isinstance(block.get("data"), str):
            yield Violation("thinking-malformed", path, "redacted_thinking needs its data.")
        if kind == "text" and not isinstance(block.get("text", ""), str):
            yield Violation("text-malformed", path, "A text block needs its text.")
        if kind == "compaction" and block.get("content") == "":
            yield Violation("compaction-empty", path, "A summary cannot be empty.")
        if kind in ("tool_use", *_SERVER_CALLS):
            if not isinstance(block.get("input"), Mapping):
                yield Violation("input-not-object", path, "The input of a tool is an object.")
            if not _TOOL_NAME.fullmatch(str(block.get("name") or "")):
                yield Violation("tool-name-malformed", path, f"{block.get('name')!r} is no name.")
        if kind == "tool_result":
            yield from _result_forms(path, block)


def _result_forms(path: str, block: Mapping[str, Any]) -> Iterator[Violation]:
    content = block.get("content", "")
    if not isinstance(content, str | list):
        yield Violation("result-malformed", path, "A result's content is a string or a list.")
    for index, inner in enumerate(content if isinstance(content, list) else ()):
        kind = inner.get("type") if isinstance(inner, Mapping) else None
        if kind is None or kind in CALL_TYPES | RESULT_TYPES | _THINKING:
            inside = f"{path}.content[{index}]"
            yield Violation("block-in-wrong-place", inside, f"A result cannot contain {kind}.")


def _final(body: Mapping[str, Any], message: _Message) -> Iterator[Violation]:
    """Errors: "The final block in an assistant message cannot be `thinking`", measured to hold for
    the last message only (CLIProxyAPI#5321). "When thinking is disabled, an `assistant` message in
    the final position cannot contain `thinking`" (forgecode#1195). "final assistant content cannot
    end with trailing whitespace" (forgecode#1872)."""
    if message.role != "assistant" or not message.blocks():
        return
    path, last = message.blocks()[-1]
    if last.get("type") in _THINKING:
        yield Violation("final-thinking-last", path, "The last block cannot be thinking.")
    text = last.get("text")
    if last.get("type") == "text" and isinstance(text, str) and text != text.rstrip():
        yield Violation("final-trailing-whitespace", path, "The last text ends in whitespace.")
    switch = body.get("thinking")
    enabled = isinstance(switch, Mapping) and switch.get("type") in ("enabled", "adaptive")
    for place, _ in message.blocks(_THINKING) if not enabled else []:
        yield Violation("final-thinking-disabled", place, "Thinking is not enabled.")


def _cache_marks(body: Mapping[str, Any], messages: list[_Message]) -> Iterator[Violation]:
    """At most four blocks may have `cache_control`, including blocks inside results. A mark of the
    whole request takes one of the four."""
    blocks = [body, *(block for message in messages for _, block in message.blocks())]
    blocks += [inner for block in blocks for _, inner in mappings(block.get("content"))]
    blocks += [block for key in ("system", "tools") for _, block in mappings(body.get(key))]
    count = sum(bool(block.get("cache_control")) for block in blocks)
    if count > _MOST_CACHE_MARKS:
        yield Violation("cache-marks-over-four", "messages", f"{count} blocks carry cache_control.")
