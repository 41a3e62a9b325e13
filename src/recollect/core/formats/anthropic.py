"""Codec of Anthropic Messages: messages, replies, streams, and pi's messages in this format. Block
types are those of anthropic-sdk-python, November 2026."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from recollect.core.formats.blocks import (
    RESULT_TYPES,
    BlockType,
    SourcedMessage,
    WireMessage,
    arguments_object,
    blocks_of,
    call_id,
    call_type,
    first_tool,
    fit_result,
    mapping,
    mappings,
    other_types,
    read_content,
    read_wire,
    removal_of,
    result_type,
    reword_result,
    rewrite_flaws,
    text_block,
    text_in,
    thinking_block,
    tool_call_block,
    tool_name,
    wire_flaws,
    word,
    write_blocks,
)
from recollect.core.formats.json_text import Fields, encode, text_of
from recollect.core.formats.summaries import is_summary
from recollect.core.values.history import KeptPart, OwnText, Slot, SlotPiece, StandIn
from recollect.core.values.message import CallId, Flaw, Message, Other, Part, Role, Text, ToolCall
from recollect.core.values.model import CallStarted, ReplyEvent, TextDelta, ThinkingDelta, WireRules
from recollect.core.values.reason import Cause, Reason

RULES = WireRules(
    format="anthropic",
    alternates=True,
    results_share_a_message=True,
    refuses_blank_text=True,
    ids_unique=True,
    ids_plain=True,
    most_marks=4,
    provider_calls_answered=True,
)

SYSTEM_INSIDE_BETAS = ("per-turn-control-", "mid-conversation-")
"""Prefixes of the beta features that allow system messages inside a history."""

_USERS_TYPES = frozenset({"image", "document", "search_result", "container_upload"})
_UNMARKED_TYPES = frozenset({"thinking", "redacted_thinking", "fallback", "mcp_tool_listing"})
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})

_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
    "user": "user",
}

ROLES: Final = frozenset(_ROLES)

_OWN_ROLES = frozenset({"assistant", "system", "user"})

ID_CHARACTERS = "A-Za-z0-9_-"

LONGEST_ID = 64
"""Length limit of call ids, which must match `^[a-zA-Z0-9_-]+$`."""
_write_id = partial(call_id, allowed_chars=ID_CHARACTERS, max_chars=LONGEST_ID)

_OWN_TYPES: Final = frozenset(
    {"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "document"}
)
_EVENTS: Final = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop"}
    | {"message_delta", "message_stop"}
)


def _server_results(call: str, *names: str) -> Iterator[BlockType]:
    return (result_type(name, "provider", (call,), "tool_use_id", "assistant") for name in names)


BLOCK_TYPES: Final = (
    *other_types("user", "text", "image", "document", "search_result", "container_upload"),
    *other_types("user", "mid_conv_system", "tool_addition", "tool_removal"),
    *other_types("assistant", "thinking", "redacted_thinking", "compaction", "fallback"),
    *other_types("assistant", "mcp_tool_listing"),
    call_type("tool_use", "client", "id"),
    result_type("tool_result", "client", ("tool_use",), "tool_use_id", "user"),
    call_type("server_tool_use", "provider", "id"),
    *_server_results("server_tool_use", "web_search_tool_result", "web_fetch_tool_result"),
    *_server_results("server_tool_use", "code_execution_tool_result", "tool_search_tool_result"),
    *_server_results("server_tool_use", "bash_code_execution_tool_result", "advisor_tool_result"),
    *_server_results("server_tool_use", "text_editor_code_execution_tool_result"),
    call_type("mcp_tool_use", "provider", "id"),
    *_server_results("mcp_tool_use", "mcp_tool_result"),
)

ANTHROPIC_TYPES: Final = {row.name: row for row in BLOCK_TYPES}


class AnthropicCodec:
    """Reads and writes `messages` of Anthropic's API."""

    api = "anthropic-messages"
    provider = "anthropic"

    def __init__(self, rules: WireRules = RULES) -> None:
        self.rules = rules

    def assembling(self) -> AnthropicAssembling:
        return AnthropicAssembling()

    def is_event(self, event: Mapping[str, Any]) -> bool:
        return str(event.get("type")) in _EVENTS

    def claims_body(self, body: Fields) -> bool:
        """Detect the format by keys, or by the form of the first tool."""
        if body.keys() & {"system", "anthropic_version", "stop_sequences", "context_management"}:
            return True
        return "input_schema" in first_tool(body)

    def claims_message(self, message: Fields) -> bool:  # noqa: ARG002
        """Return False: only content blocks identify this format."""
        return False

    def claims_block(self, block: Fields) -> bool:
        kind = text_of(block, "type")
        if kind == "image":
            return "source" in block
        return kind in _OWN_TYPES or (kind == "thinking" and "thinkingSignature" not in block)

    def reply_messages(self, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
        content = fields.get("content")
        if fields.get("role") != "assistant" or not isinstance(content, list | str) or not content:
            return ()
        return (encode({"role": "assistant", "content": content}),)

    def from_pi(self, history: Sequence[SourcedMessage]) -> list[WireMessage]:
        messages: list[WireMessage] = []
        answering = False
        for index, message, is_own in history:
            role = message["role"]
            if role == "toolResult":
                block = _write_result(message)
                if answering:
                    messages[-1].body["content"].append(block)
                else:
                    messages.append(
                        WireMessage(body={"role": "user", "content": [block]}, source=index)
                    )
                answering = True
                continue
            content = _write_reply(message, is_own) if role == "assistant" else _write_user(message)
            if content:
                messages.append(WireMessage(body={"role": role, "content": content}, source=index))
                answering = False
        return messages

    def to_pi(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        content = reply.get("content")
        if isinstance(content, str):
            return [text_block(content)] if content else []
        blocks: list[dict[str, Any]] = []
        for block in mappings(content):
            kind = block.get("type")
            if kind == "text" and block.get("text"):
                blocks.append(text_block(str(block["text"])))
            elif kind == "thinking":
                text, signature = block.get("thinking"), block.get("signature")
                blocks.append(thinking_block(str(text or ""), str(signature or "")))
            elif kind == "redacted_thinking":
                sealed_block = thinking_block("", str(block.get("data") or ""))
                blocks.append({**sealed_block, "redacted": True})
            elif kind == "tool_use":
                blocks.append(
                    tool_call_block(block.get("id"), block.get("name"), block.get("input"))
                )
        return blocks

    def as_reply(self, reply: Mapping[str, Any], sent: list[dict[str, Any]]) -> Mapping[str, Any]:
        return {**reply, **sent[0]}

    def read(self, raw: bytes) -> Message:
        wire = _read_message(raw)
        role = _ROLES.get(word(wire, "role"), "user")
        content = wire.get("content")
        flaws = wire_flaws(raw)
        if word(wire, "role") not in _OWN_ROLES and not flaws:
            flaws = (Flaw(part=None, reason=Reason(Cause.ROLE_FOREIGN)),)
        parts = read_content(content)
        opens: tuple[CallId, ...] = ()
        joins: tuple[CallId, ...] = ()
        marks: tuple[int, ...] = ()
        if role == "system" and self.rules.system_inside and not wire.get("output_config"):
            flaws += () if content else (Flaw(part=None, reason=Reason(Cause.EMPTY_MESSAGE)),)
        if isinstance(content, list):
            flaws += _flaws(content, role, self.rules)
            if b'"cache_control"' in raw:
                marks = tuple(
                    [index for index, b in enumerate(content) for _ in range(_count_marks(b))]
                )
            parts = tuple(
                [_link_part(part, block) for part, block in zip(parts, content, strict=True)]
            )
            opens, joins = _links(parts)
        return Message(
            role=role,
            parts=parts,
            raw=raw,
            flaws=flaws,
            summary=is_summary(role, parts),
            marks=marks,
            opens=opens,
            joins=joins,
        )

    def compose(self, slot: Slot) -> bytes:
        wires: dict[int, Any] = {}
        blocks = [self._block(piece, wires) for piece in slot.pieces]
        envelope = {} if slot.base is None else _wire(slot.base.raw, wires)
        return encode({**envelope, "role": slot.role, "content": blocks})

    def _block(self, piece: SlotPiece, wires: dict[int, Any]) -> Any:
        if isinstance(piece, OwnText):
            return {"type": "text", "text": piece.text}
        if isinstance(piece, StandIn):
            return {
                "type": "tool_result",
                "tool_use_id": piece.call.id,
                "content": piece.text,
                "is_error": True,
            }
        block = _fit(_source_block(piece.entry.raw, piece.part, wires))
        block = _with_id(_without_cache_mark(block) if piece.unmarked else block, piece.call_id)
        if isinstance(piece, KeptPart):
            return {k: v for k, v in block.items() if k != "caller"} if piece.direct else block
        if isinstance(piece.entry.parts[piece.part], Text):
            return {**block, "text": piece.text}
        return {**block, "content": reword_result(block.get("content"), piece.text)}


def _with_id(block: Any, call_id: CallId | None) -> Any:
    if call_id is None:
        return block
    result_key = next((k for k in ("tool_use_id", "toolUseId", "toolCallId") if k in block), "id")
    key = result_key if str(block.get("type")) in RESULT_TYPES else "id"
    return {**block, key: call_id}


def _read_message(raw: bytes) -> dict[str, Any]:
    wire = read_wire(raw)
    call_id = word(wire, "tool_call_id") or word(wire, "tool_use_id")
    if word(wire, "role") != "tool" or not call_id:
        return wire
    result = {"type": "tool_result", "tool_use_id": call_id, "content": wire.get("content") or ""}
    return {"role": "tool", "content": [result]}


def _flaws(blocks: list[Any], role: Role, rules: WireRules) -> tuple[Flaw, ...]:
    flaws: list[Flaw] = []
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            flaws.append(Flaw(part=None, reason=Reason(Cause.BLOCK_NO_OBJECT)))
            continue
        kind = word(block, "type")
        row = ANTHROPIC_TYPES.get(kind)
        flaws += rewrite_flaws(block, _fit(block))
        if kind in _USERS_TYPES if role == "assistant" else row and row.run_by == "provider":
            flaws.append(removal_of(index, Cause.MISPLACED_PART))
        elif kind == "compaction" and block.get("content") == "":
            flaws.append(removal_of(index))
        elif not _is_whole(kind, block, signed=rules.thinking_signed):
            flaws.append(removal_of(index, Cause.THINKING_UNSIGNED))
    return tuple(flaws)


def _is_whole(kind: str, block: Mapping[str, Any], *, signed: bool) -> bool:
    """Return whether thinking has what the provider requires. Only Claude requires signatures:
    other servers of the format send none, and expect their blocks back unchanged."""
    if kind == "thinking":
        is_signed = not signed or bool(word(block, "signature"))
        return is_signed and isinstance(block.get("thinking"), str)
    return kind != "redacted_thinking" or isinstance(block.get("data"), str)


def _fit(block: Any) -> Any:
    """Rewrite the fields of a block that the provider would refuse."""
    kind = str(block.get("type")) if isinstance(block, dict) else ""
    if kind in _UNMARKED_TYPES and "cache_control" in block:
        return _without_cache_mark(block)
    if kind in RESULT_TYPES and "content" in block:
        return {**block, "content": fit_result(block["content"], blank=False)}
    if kind in _CALLS:
        arguments, name = arguments_object(block.get("input")), tool_name(block.get("name"))
        return {**block, "input": arguments, "name": name}
    return block


def _without_cache_mark(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    fields = {name: value for name, value in block.items() if name != "cache_control"}
    if isinstance(fields.get("content"), list):
        fields["content"] = [_without_cache_mark(inner) for inner in fields["content"]]
    return fields


def _count_marks(block: Any) -> int:
    if not isinstance(block, dict) or word(block, "type") in _UNMARKED_TYPES:
        return 0
    inside = block.get("content")
    return bool(block.get("cache_control")) + sum(
        map(_count_marks, inside if isinstance(inside, list) else ())
    )


def _link_part(part: Part, block: Any) -> Part:
    if isinstance(part, ToolCall):
        caller = block.get("caller")
        made_by = word(caller, "tool_id") if isinstance(caller, dict) else ""
        return replace(part, caller=CallId(made_by)) if made_by else part
    if not isinstance(part, Other) or not isinstance(block, dict):
        return part
    row = ANTHROPIC_TYPES.get(part.kind)
    if row is None:
        link_id = word(block, "tool_use_id")
        return replace(part, answers=CallId(link_id), certain=False) if link_id else part
    if row.run_by != "provider":
        return part
    link_id = word(block, row.id_field)
    if row.pair == "call":
        return replace(part, opens=_make_link(part.kind, link_id))
    return replace(part, answers=_make_link(part.kind, link_id))


def _make_link(kind: str, link_id: str) -> CallId:
    """Return the id that links a provider-run call to its result. Calls of MCP servers get a
    prefix, because only MCP results answer them."""
    return CallId(f"mcp:{link_id}" if kind.startswith("mcp_") else link_id)


def _links(parts: tuple[Part, ...]) -> tuple[tuple[CallId, ...], tuple[CallId, ...]]:
    opened: dict[CallId, None] = {}
    left: dict[CallId, None] = {}  # call ids used again before their result
    called: set[CallId] = set()
    joined: dict[CallId, None] = {}
    for part in parts:
        if isinstance(part, ToolCall) and part.caller is not None and part.caller not in called:
            joined.setdefault(part.caller)
        if not isinstance(part, Other):
            continue
        if part.opens is not None:
            (left if part.opens in opened else opened).setdefault(part.opens)
            called.add(part.opens)
        elif part.answers in opened:
            del opened[part.answers]
        elif part.answers is not None:
            joined.setdefault(part.answers)
    return tuple({**opened, **left}), tuple(joined)


def _wire(raw: bytes, wires: dict[int, Any]) -> Any:
    if id(raw) not in wires:
        wires[id(raw)] = _read_message(raw)
    return wires[id(raw)]


def _source_block(raw: bytes, part: int, wires: dict[int, Any]) -> Any:
    content = _wire(raw, wires).get("content")
    if isinstance(content, list):
        block = content[part]
        return {"type": "text", "text": block} if isinstance(block, str) else block
    if isinstance(content, str):
        return {"type": "text", "text": content}
    return content


def _write_user(message: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return write_blocks(blocks_of(message), "text", _write_image)


def _write_image(image: tuple[str, str]) -> dict[str, Any]:
    media_type, data = image
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


def _write_reply(message: Mapping[str, Any], is_own: bool) -> list[dict[str, Any]]:  # noqa: FBT001
    blocks: list[dict[str, Any]] = []
    for block in blocks_of(message):
        kind = block.get("type")
        if kind == "toolCall":
            arguments = block.get("arguments")
            blocks.append(
                {
                    "type": "tool_use",
                    "id": _write_id(block.get("id")),
                    "name": str(block.get("name") or ""),
                    "input": arguments if isinstance(arguments, Mapping) else {},
                }
            )
        elif kind == "thinking":
            blocks.extend(_write_thinking(block) if is_own else ())
        elif text := text_in(block):
            blocks.append({"type": "text", "text": text})
    has_content = any(not block["type"].endswith("thinking") for block in blocks)
    return (
        blocks if has_content else []
    )  # some hosts of the API refuse a message that has only thinking


def _write_thinking(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a thinking block as a list, or an empty list if it has no signature (in an aborted
    reply), because the API would refuse it."""
    signature = block.get("thinkingSignature")
    if not isinstance(signature, str) or not signature:
        return []
    if block.get("redacted") is True:
        return [{"type": "redacted_thinking", "data": signature}]
    thinking = block.get("thinking")
    text = thinking if isinstance(thinking, str) else ""
    return [{"type": "thinking", "thinking": text, "signature": signature}]


def _write_result(message: Mapping[str, Any]) -> dict[str, Any]:
    content = write_blocks(blocks_of(message), "text", _write_image)
    only_text = len(content) == 1 and content[0]["type"] == "text"
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _write_id(message.get("toolCallId")),
        "content": content[0]["text"] if only_text else content,
    }
    if message.get("isError") is True:
        result["is_error"] = True
    return result


class AnthropicAssembling:
    """Assembles one streamed message."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._complete = False

    @property
    def complete(self) -> bool:
        return self._complete

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        kind = event.get("type")
        raw_index = event.get("index")
        index = raw_index if isinstance(raw_index, int) else 0
        if kind == "message_start":
            self._start(mapping(event.get("message")))
        elif kind == "content_block_start":
            yield from self._start_block(index, dict(mapping(event.get("content_block"))))
        elif kind == "content_block_delta":
            yield from self._extend(index, mapping(event.get("delta")))
        elif kind == "message_delta":
            self._settle(event)
        elif kind == "message_stop":
            self._complete = True

    def reply(self) -> Mapping[str, Any] | None:
        return None if self._message.get("stop_reason") is None else self.partial()

    def partial(self) -> Mapping[str, Any]:
        """Return the blocks that have begun. The input of an interrupted call becomes text."""
        content = []
        for index in sorted(self._blocks):
            call_input = (
                {"input": arguments_object(self._inputs[index])} if index in self._inputs else {}
            )
            content.append({**self._blocks[index], **call_input})
        return {**self._message, "content": content}

    def _start(self, message: Mapping[str, Any]) -> None:
        self._message = {"type": "message", "role": "assistant", **message}
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            self._blocks[index] = dict(mapping(block))

    def _start_block(self, index: int, block: dict[str, Any]) -> Iterator[ReplyEvent]:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            yield CallStarted(id=str(block.get("id", "")), name=str(block.get("name", "")))
        yield from _anthropic_words(block)

    def _extend(self, index: int, delta: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        for name, value in delta.items():
            if name == "partial_json":
                self._inputs[index] = self._inputs.get(index, "") + str(value)
            elif name == "citation":
                block["citations"] = [*(block.get("citations") or ()), value]
            elif name != "type" and isinstance(value, str):
                block[name] = str(block.get(name) or "") + value
        yield from _anthropic_words(delta)

    def _settle(self, event: Mapping[str, Any]) -> None:
        usage_items = mapping(event.get("usage")).items()
        usage = dict(mapping(self._message.get("usage")))
        usage.update((name, value) for name, value in usage_items if value is not None)
        further = {key: event[key] for key in event if key not in ("type", "delta", "usage")}
        self._message = {**self._message, **further, **mapping(event.get("delta")), "usage": usage}


def _anthropic_words(fields: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    text, thinking = fields.get("text"), fields.get("thinking")
    if text and isinstance(text, str):
        yield TextDelta(text=text)
    if thinking and isinstance(thinking, str):
        yield ThinkingDelta(text=thinking)
