"""Anthropic Messages: what the API refuses in `messages`.

Sources: the error wordings of docs/contributing/sources.md and of the issues named beside each
rule; the documentation's "handle tool calls" page (results first in the message). Bedrock and other
hosts still refuse two messages of one role in a row, so strict alternation holds here for all. Not
held, because it depends on the model or on what the model once answered: whether the last message
may be the assistant's at all, and that a tool loop under extended thinking begins with a thinking
block (see `faithful`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recollect.testing.provider_rules.violation import (
    CALL_TYPES,
    RESULT_TYPES,
    Violation,
    call_id,
    is_blank,
    mappings,
    repeated,
)

RULES = (
    "messages-empty",
    "role-unknown",
    "first-not-user",
    "roles-not-alternating",
    "system-not-behind-user",
    "content-empty",
    "text-blank",
    "text-blank-in-result",
    "block-in-wrong-role",
    "call-unanswered",
    "result-orphan",
    "result-duplicate",
    "result-not-first",
    "call-id-duplicate",
    "call-id-malformed",
    "thinking-malformed",
    "final-thinking-last",
    "final-thinking-disabled",
    "final-trailing-whitespace",
    "server-result-orphan",
    "server-result-duplicate",
    "server-call-unanswered",
    "server-call-duplicate",
    "caller-missing",
    "cache-marks-over-four",
)

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
THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
# opencode#1279: "String should match pattern '^[a-zA-Z0-9_-]+$'".
_ID_PATTERN = re.compile(r"[a-zA-Z0-9_-]+")
_MOST_CACHE_MARKS = 4  # "A maximum of 4 blocks with cache_control may be provided."
_SYSTEM_INSIDE_BETAS = ("per-turn-control-", "mid-conversation-")
"""The betas, less their dates, under which Claude Code sends system messages between the turns."""
_Block = tuple[str, Mapping[str, Any]]
_Numbered = list[tuple[int, Mapping[str, Any]]]


def check(body: Mapping[str, Any], betas: Iterable[str] = ()) -> list[Violation]:
    """Every rule of the Messages API that `body` breaks.

    Under the beta of system messages between the turns, which the headers name or the mapping that
    a client library is called with, those are judged by a rule of their own, and everything else as
    if they were not there.
    """
    numbered = list(mappings(body.get("messages")))
    broken = _roles(numbered)
    marked = [_blocks(place, message) for place, message in numbered]
    named = (*betas, *(body.get("betas") or ()))
    if any(str(name).startswith(_SYSTEM_INSIDE_BETAS) for name in named):
        broken = _roles(numbered, system_inside=True)
        numbered = [pair for pair in numbered if pair[1].get("role") != "system"]
    if not numbered:
        return [_broken("messages-empty", "messages", "At least one message is required.")]
    messages = [message for _, message in numbered]
    blocks = [_blocks(place, message) for place, message in numbered]
    return [
        *broken,
        *_contents(numbered, blocks),
        *_block_homes(messages, blocks),
        *_pairs(messages, blocks),
        *_server_pairs(blocks),
        *_callers(blocks),
        *_thinking(blocks),
        *_final(body, messages, blocks),
        *_cache_marks(body, marked),
    ]


def reused_ids(body: Mapping[str, Any]) -> list[Violation]:
    """Call ids used more than once in the request: "`tool_use` ids must be unique"."""
    return repeated(
        (call_id(block), where)
        for place, message in mappings(body.get("messages"))
        for where, block in _blocks(place, message)
        if block.get("type") in CALL_TYPES
    )


def _broken(rule: str, where: str, sentence: str) -> Violation:
    return Violation(rule=rule, where=where, sentence=sentence)


def _blocks(place: int, message: Mapping[str, Any]) -> list[_Block]:
    """A message's blocks with their paths; a plain string is one text block."""
    content = message.get("content")
    where = f"messages[{place}].content"
    if isinstance(content, str):
        return [(where, {"type": "text", "text": content})]
    return [(f"{where}[{index}]", block) for index, block in mappings(content)]


def _roles(numbered: _Numbered, *, system_inside: bool = False) -> Iterator[Violation]:
    """`roles must alternate between "user" and "assistant"`; the first must be the user's.

    With `system_inside` system messages may stand behind a user's, as in all that was captured of
    Claude Code 2.1.325, and what follows them begins anew. More than one in a row was not seen;
    whoever sends that knows that it is taken.
    """
    before = None
    for count, (place, message) in enumerate(numbered):
        role, where = message.get("role"), f"messages[{place}].role"
        if system_inside and role == "system":
            if count and before not in ("user", "system"):
                yield _broken("system-not-behind-user", where, f"It stands behind {before}.")
        elif role not in ("user", "assistant"):
            yield _broken("role-unknown", where, f"A message's role cannot be {role!r}.")
        elif role == before:
            yield _broken("roles-not-alternating", where, f"Two {role} messages in a row.")
        if count == 0 and role != "user":
            yield _broken("first-not-user", where, "The first message must be the user's.")
        before = role


def _contents(numbered: _Numbered, blocks: list[list[_Block]]) -> Iterator[Violation]:
    """Empty messages and blank texts.

    "all messages must have non-empty content except for the optional final assistant message"
    (claude-code#3196; we refuse the exception too, hosts differ), "text content blocks must be
    non-empty" and "text content blocks must contain non-whitespace text" (claude-code#23440). A
    result without content is documented, a blank text block inside one is not (hermes-agent#41985).
    """
    for (place, message), own in zip(numbered, blocks, strict=True):
        if not own or message.get("content") == "":
            yield _broken("content-empty", f"messages[{place}].content", "The message is empty.")
            continue
        for where, block in own:
            if block.get("type") == "text" and is_blank(block.get("text", "")):
                yield _broken("text-blank", where, "A text block needs non-whitespace text.")
            if block.get("type") in RESULT_TYPES:
                for index, inner in mappings(block.get("content")):
                    if inner.get("type") == "text" and is_blank(inner.get("text", "")):
                        yield _broken(
                            "text-blank-in-result",
                            f"{where}.content[{index}]",
                            "A text block inside a tool result needs non-whitespace text.",
                        )


def _block_homes(
    messages: list[Mapping[str, Any]], blocks: list[list[_Block]]
) -> Iterator[Violation]:
    """Calls, thinking and server tools are the assistant's, results the user's."""
    for message, own in zip(messages, blocks, strict=True):
        for where, block in own:
            kind = block.get("type")
            if kind in RESULT_TYPES:
                home = "user"
            elif (
                kind in CALL_TYPES
                or kind in THINKING_TYPES
                or kind in _SERVER_CALLS
                or kind in _SERVER_RESULTS
            ):
                home = "assistant"
            else:
                continue
            if message.get("role") != home:
                yield _broken("block-in-wrong-role", where, f"{kind} is only for {home} messages.")


def _pairs(messages: list[Mapping[str, Any]], blocks: list[list[_Block]]) -> Iterator[Violation]:
    """Calls and results, in both directions.

    "`tool_use` ids were found without `tool_result` blocks immediately after … Each `tool_use`
    block must have a corresponding `tool_result` block in the next message"; "unexpected
    `tool_use_id` found in `tool_result` blocks … must have a corresponding `tool_use` block in the
    previous message" (claude-code#5989, #13460). "each tool_use must have a single result"
    (hindsight#4250). "`tool_use` ids must be unique" (claude-code#21094).
    """
    open_ids: set[str] = set()
    for place, message in enumerate(messages):
        results = [item for item in blocks[place] if item[1].get("type") in RESULT_TYPES]
        yield from _results_against(open_ids, results, blocks[place])
        open_ids = set()
        if message.get("role") != "assistant":
            continue
        following = blocks[place + 1] if place + 1 < len(blocks) else []
        answered = {call_id(b) for _, b in following if b.get("type") in RESULT_TYPES}
        if place + 1 < len(messages) and messages[place + 1].get("role") != "user":
            answered = set()
        for where, block in blocks[place]:
            if block.get("type") not in CALL_TYPES:
                continue
            identity = call_id(block)
            if not _ID_PATTERN.fullmatch(identity):
                yield _broken("call-id-malformed", where, f"{identity!r} is no call id.")
            if identity in open_ids:
                yield _broken("call-id-duplicate", where, f"Two calls share the id {identity!r}.")
            open_ids.add(identity)
            if identity not in answered:
                yield _broken("call-unanswered", where, f"The next message lacks {identity!r}.")


def _results_against(
    open_ids: set[str], results: list[_Block], own: list[_Block]
) -> Iterator[Violation]:
    """Results of one message against the calls of the message before it.

    They must come first: text before them is answered with the same "without `tool_result` blocks
    immediately after" (hermes-agent#65369, qwen-code#8161).
    """
    seen: set[str] = set()
    for where, block in results:
        identity = call_id(block)
        if identity not in open_ids:
            yield _broken("result-orphan", where, f"No call {identity!r} in the message before.")
        elif identity in seen:
            yield _broken("result-duplicate", where, f"The call {identity!r} has two results.")
        seen.add(identity)
    for where, _ in results:
        if where not in {place for place, _ in own[: len(results)]}:
            yield _broken("result-not-first", where, "Results come before everything else.")


def _server_pairs(blocks: list[list[_Block]]) -> Iterator[Violation]:
    """A server tool's result has its call before it, in this message or an earlier one.

    "Each `advisor_tool_result` block must have a corresponding `server_tool_use` block before it"
    (claude-code#62577; the same wording for `web_search_tool_result`). A paused turn may end on
    its call. Code may call the client's tools while it runs ("Programmatic tool calling" of the
    documentation): the result then comes in a later message, and until it does only calls of that
    code and their results follow. Types that are not listed are not judged.
    """
    waiting: dict[tuple[str, str], tuple[int, str]] = {}
    answered: set[tuple[str, str]] = set()
    for place, own in enumerate(blocks):
        for where, block in own:
            kind, identity = str(block.get("type")), call_id(block)
            if kind in _SERVER_CALLS:
                if (kind, identity) in waiting:
                    yield _broken(
                        "server-call-duplicate", where, f"{identity!r} is still unanswered."
                    )
                waiting[kind, identity] = (place, where)
            elif kind in _SERVER_RESULTS:
                pair = (_SERVER_RESULTS[kind], identity)
                if waiting.pop(pair, None) is not None:
                    answered.add(pair)
                elif pair in answered:
                    yield _broken("server-result-duplicate", where, "Its call has two results.")
                else:
                    yield _broken("server-result-orphan", where, f"No {pair[0]} before it.")
    for (_, identity), (place, where) in waiting.items():
        if not _still_running(identity, blocks[place:]):
            yield _broken("server-call-unanswered", where, "Its result is in no message.")


def _still_running(identity: str, blocks: list[list[_Block]]) -> bool:
    """Whether a call without result may be at work at the end: behind it stand only results of
    the calls beside it, and answers in which its code calls again."""
    calls: set[str] = set()
    for place, own in enumerate(blocks):
        kinds = {str(block.get("type")) for _, block in own}
        if place % 2:
            if not calls & {call_id(b) for _, b in own if b.get("type") in RESULT_TYPES}:
                return False
            continue
        if place and identity not in {_caller(block) for _, block in own}:
            return False
        calls = {call_id(b) for _, b in own if b.get("type") in CALL_TYPES}
        if not kinds:
            return False
    return True


def _caller(block: Mapping[str, Any]) -> str:
    """The code execution that a call says it comes from."""
    caller = block.get("caller")
    return str(caller.get("tool_id") or "") if isinstance(caller, Mapping) else ""


def _callers(blocks: list[list[_Block]]) -> Iterator[Violation]:
    """A call made by code names a `server_tool_use` before it.

    An invalid `caller` is refused with 400, a call without the field is taken (both measured by
    others; the documentation on programmatic tool calling shows the field on every call).
    """
    known: set[str] = set()
    for own in blocks:
        for where, block in own:
            if block.get("type") == "server_tool_use":
                known.add(call_id(block))
            elif _caller(block) and _caller(block) not in known:
                yield _broken("caller-missing", where, "The code that called is not there.")


def _thinking(blocks: list[list[_Block]]) -> Iterator[Violation]:
    """`thinking.thinking: Field required` (LibreChat agents#279); `redacted_thinking` needs data.

    A signature is checked for its form only: Anthropic demands one, other hosts of the format send
    none and want their blocks back as they were. That none is lost is `faithful`'s to say.
    """
    for own in blocks:
        for where, block in own:
            kind = block.get("type")
            if kind == "redacted_thinking" and not isinstance(block.get("data"), str):
                yield _broken("thinking-malformed", where, "redacted_thinking needs its data.")
            if kind != "thinking":
                continue
            if not isinstance(block.get("thinking"), str):
                yield _broken("thinking-malformed", where, "thinking needs its text.")
            if not isinstance(block.get("signature", ""), str):
                yield _broken("thinking-malformed", where, "A signature is a string.")


def _final(
    body: Mapping[str, Any], messages: list[Mapping[str, Any]], blocks: list[list[_Block]]
) -> Iterator[Violation]:
    """What the last message may not be when it is the assistant's.

    "The final block in an assistant message cannot be `thinking`", measured to hold for the last
    message only (CLIProxyAPI#5321). "When thinking is disabled, an `assistant` message in the final
    position cannot contain `thinking`" (forgecode#1195). "final assistant content cannot end with
    trailing whitespace" (forgecode#1872).
    """
    if messages[-1].get("role") != "assistant" or not blocks[-1]:
        return
    where, last = blocks[-1][-1]
    if last.get("type") in THINKING_TYPES:
        yield _broken("final-thinking-last", where, "The last block cannot be thinking.")
    text = last.get("text")
    if last.get("type") == "text" and isinstance(text, str) and text != text.rstrip():
        yield _broken("final-trailing-whitespace", where, "The last text ends in whitespace.")
    switch = body.get("thinking")
    enabled = isinstance(switch, Mapping) and switch.get("type") in ("enabled", "adaptive")
    for place, block in blocks[-1] if not enabled else []:
        if block.get("type") in THINKING_TYPES:
            yield _broken("final-thinking-disabled", place, "Thinking is not enabled.")


def _cache_marks(body: Mapping[str, Any], blocks: list[list[_Block]]) -> Iterator[Violation]:
    """At most four blocks carry `cache_control`, those inside results among them."""
    marked = [block for own in blocks for _, block in own]
    marked += [inner for block in marked for _, inner in mappings(block.get("content"))]
    marked += [block for key in ("system", "tools") for _, block in mappings(body.get(key))]
    count = Counter(bool(block.get("cache_control")) for block in marked)[True]
    if count > _MOST_CACHE_MARKS:
        yield _broken("cache-marks-over-four", "messages", f"{count} blocks carry cache_control.")
