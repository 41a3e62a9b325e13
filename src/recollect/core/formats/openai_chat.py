"""Codec of OpenAI Chat Completions: messages, replies, streams, and pi's messages in this format.
The older `function_call` is paired by name. Servers may stream calls without an index, reasoning
under several names, and usage in any chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from recollect.core.formats.blocks import (
    SourcedMessage,
    WireMessage,
    blocks_of,
    call_id,
    data_address,
    first_tool,
    fit_result,
    images_of,
    mapping,
    mappings,
    read_arguments,
    read_content,
    read_result_content,
    read_wire,
    reword_answer,
    rewrite_flaws,
    text_block,
    texts_of,
    thinking_block,
    tool_call_block,
    wire_flaws,
    word,
    write_blocks,
)
from recollect.core.formats.json_text import Fields, canonical, encode, plain_mapping, text_of
from recollect.core.formats.summaries import is_summary
from recollect.core.values.history import KeptPart, OwnText, RewordedPart, Slot, StandIn
from recollect.core.values.message import (
    CallId,
    Message,
    Other,
    Part,
    Role,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import CallStarted, ReplyEvent, TextDelta, ThinkingDelta, WireRules

RULES = WireRules(format="openai-chat")

LEGACY = "function_call"

SAYS_OTHERWISE = ("tool_calls", LEGACY, "refusal", "audio")

_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "function": "tool",
    "system": "system",
    "tool": "tool",
    "user": "user",
}

ID_CHARACTERS = r"!-{}~"

LONGEST_ID = 40
"""OpenAI's limit on `tool_call_id`."""
_write_id = partial(call_id, allowed_chars=ID_CHARACTERS, max_chars=LONGEST_ID)

REASONING_FIELD = "reasoning_content"

NO_TEXT = "(no text)"

WITH_IMAGES = "(an image follows)"

ROLES: Final = frozenset(_ROLES)
_OWN_ROLES: Final = frozenset({"tool", "function", "system", "developer"})
_OWN_TYPES: Final = frozenset({"image_url", "input_audio", "refusal"})
_WHOLE: Final = frozenset({"role", "id", "type", "index", "name", "format"})
"""Fields that a stream's chunks repeat whole. Other strings arrive in parts that are joined."""

_CHAT_THINKING: Final = ("reasoning_content", "reasoning")


class OpenAIChatCodec:
    """Reads and writes `messages`. Parts are ordered as content, other fields, calls."""

    rules = RULES
    api = "openai-completions"
    provider = "openai"

    def assembling(self) -> ChatAssembling:
        return ChatAssembling()

    def is_event(self, event: Mapping[str, Any]) -> bool:
        return event.get("object") == "chat.completion.chunk" or "choices" in event

    def claims_body(self, body: Fields) -> bool:
        """Detect the format by the form of the first tool."""
        return "function" in first_tool(body)

    def claims_message(self, message: Fields) -> bool:
        """Detect the format by role or `tool_calls`."""
        return text_of(message, "role") in _OWN_ROLES or "tool_calls" in message

    def claims_block(self, block: Fields) -> bool:
        return text_of(block, "type") in _OWN_TYPES

    def reply_messages(self, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
        choices = fields.get("choices")
        if not isinstance(choices, list | tuple) or not choices:
            return ()
        message = plain_mapping(plain_mapping(choices[0]).get("message"))
        message_fields = {name: value for name, value in message.items() if value is not None}
        if message_fields.get("role", "assistant") != "assistant":
            return ()
        if not any(value for name, value in message_fields.items() if name != "role"):
            return ()
        return (encode({"content": None, **message_fields, "role": "assistant"}),)

    def from_pi(self, history: Sequence[SourcedMessage]) -> list[WireMessage]:
        messages: list[WireMessage] = []
        images: list[tuple[int, tuple[str, str]]] = []
        for index, message, is_own in history:
            role = message["role"]
            if role != "toolResult" and images:
                messages.append(_images_behind(images))
                images = []
            if role == "toolResult":
                messages.append(WireMessage(body=_write_result(message), source=index))
                images.extend((index, image) for image in images_of(blocks_of(message)))
                continue
            body = _write_reply(message, is_own) if role == "assistant" else _write_user(message)
            if body is not None:
                messages.append(WireMessage(body=body, source=index))
        if images:
            messages.append(_images_behind(images))
        return messages

    def to_pi(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        choices = mappings(reply.get("choices")) or [{}]
        message = mapping(choices[0].get("message"))
        blocks: list[dict[str, Any]] = []
        reasoning = message.get(REASONING_FIELD)
        if isinstance(reasoning, str) and reasoning:
            blocks.append(thinking_block(reasoning, REASONING_FIELD))
        content = message.get("content")
        if isinstance(content, str) and content:
            blocks.append(text_block(content))
        texts = [part.get("text") for part in mappings(content)]
        blocks.extend(text_block(text) for text in texts if isinstance(text, str) and text)
        for call in mappings(message.get("tool_calls")):
            fields = mapping(call.get("function"))
            blocks.append(
                tool_call_block(call.get("id"), fields.get("name"), fields.get("arguments"))
            )
        return blocks

    def as_reply(self, reply: Mapping[str, Any], sent: list[dict[str, Any]]) -> Mapping[str, Any]:
        return {**reply, "choices": [{"message": sent[0]}]}

    def read(self, raw: bytes) -> Message:
        raw_wire = read_wire(raw)
        wire = _fit(raw_wire)
        flaws = (*rewrite_flaws(raw_wire, wire), *wire_flaws(raw))
        role = _ROLES.get(word(wire, "role"), "user")
        if role == "tool":
            return Message(role="tool", parts=(_result(wire),), raw=raw, flaws=flaws)
        parts = read_content(wire.get("content"))
        if role == "assistant":
            parts = (*parts, *_extras(wire), *_calls(wire))
        return Message(
            role=role,
            parts=parts,
            raw=raw,
            flaws=flaws,
            summary=is_summary(role, parts),
        )

    def compose(self, slot: Slot) -> bytes:
        if slot.base is None:
            return self._encode_own(slot)
        wire = _fit(read_wire(slot.base.raw))
        if slot.base.role == "tool":
            return reword_answer(wire, "content", slot)
        return encode(_rebuild(wire, slot))

    def _encode_own(self, slot: Slot) -> bytes:
        piece = slot.pieces[0]
        if isinstance(piece, StandIn):
            if piece.call.variant == LEGACY:
                return encode({"role": "function", "name": piece.call.name, "content": piece.text})
            return encode({"role": "tool", "tool_call_id": piece.call.id, "content": piece.text})
        texts = [piece.text for piece in slot.pieces if isinstance(piece, OwnText)]
        return encode({"role": slot.role, "content": "\n\n".join(texts)})


def _fit(wire: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the fields of a message that the provider would refuse."""
    if _ROLES.get(word(wire, "role")) == "tool":
        return {**wire, "content": fit_result(wire.get("content") or "")}
    calls = [_fit_call(call) for call in mappings(wire.get("tool_calls"))]
    fit = {name: value for name, value in wire.items() if name != "tool_calls"}
    fit |= {"tool_calls": calls} if calls else {}
    if isinstance(wire.get(LEGACY), dict):
        fit[LEGACY] = _with_text(wire[LEGACY], "arguments")
    if wire.get("content") == []:
        fit["content"] = None
    says_otherwise = any(fit.get(name) for name in SAYS_OTHERWISE)
    if fit.get("content") is None and wire.get("reasoning_content") and not says_otherwise:
        fit["content"] = ""
    return fit


def _fit_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = "custom" if "custom" in call else "function"
    typed_call = call if call.get("type") in call else {**call, "type": kind}
    if not isinstance(call.get(kind), dict):
        return typed_call
    fields = _with_text(call[kind], "input" if kind == "custom" else "arguments")
    return typed_call if fields is call[kind] else {**typed_call, kind: fields}


def _with_text(fields: dict[str, Any], name: str) -> dict[str, Any]:
    if isinstance(fields.get(name), str):
        return fields
    return {**fields, name: read_arguments(fields.get(name))}


def _result(wire: dict[str, Any]) -> ToolResult:
    name = wire.get("name") if isinstance(wire.get("name"), str) else None
    if wire.get("role") == "function":
        call_id = CallId(f"{LEGACY}:{name}")
    else:
        call_id = CallId(str(wire.get("tool_call_id") or ""))
    return ToolResult(call_id=call_id, content=read_result_content(wire.get("content")), name=name)


def _extras(wire: dict[str, Any]) -> list[Thinking | Other]:
    parts: list[Thinking | Other] = []
    reasoning = wire.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        parts.append(Thinking(text=reasoning))
    names = [name for name in ("refusal", "audio") if wire.get(name)]
    return [*parts, *(Other(kind=name, payload=canonical(wire[name])) for name in names)]


def _calls(wire: dict[str, Any]) -> list[Part]:
    parts: list[Part] = []
    for call in wire.get("tool_calls") or ():
        function = call.get("function", call.get("custom"))
        fields = function if isinstance(function, dict) else call
        arguments = fields.get("arguments", fields.get("input"))
        parts.append(
            ToolCall(
                id=CallId(str(call.get("id") or "")),
                name=str(fields.get("name") or ""),
                arguments=read_arguments(arguments),
            )
        )
    legacy = wire.get(LEGACY)
    if isinstance(legacy, dict):
        name = str(legacy.get("name") or "")
        parts.append(
            ToolCall(
                id=CallId(f"{LEGACY}:{name}"),
                name=name,
                arguments=read_arguments(legacy.get("arguments")),
                variant=LEGACY,
            )
        )
    return parts


def _rebuild(wire: dict[str, Any], slot: Slot) -> dict[str, Any]:
    content = wire.get("content")
    content_end = len(read_content(content))
    extras = _extras(wire)
    first_call = content_end + len(extras)
    calls = wire.get("tool_calls") or []
    sent_parts = {piece.part for piece in slot.pieces if isinstance(piece, KeptPart | RewordedPart)}
    content_blocks = _content_blocks(content, slot, content_end)
    if "tool_calls" in wire:
        wire["tool_calls"] = [
            call for index, call in enumerate(calls, first_call) if index in sent_parts
        ]
        if not wire["tool_calls"]:
            del wire["tool_calls"]
    if LEGACY in wire and first_call + len(calls) not in sent_parts:
        del wire[LEGACY]
    for index, extra in enumerate(extras, content_end):
        if index not in sent_parts:
            wire.pop("reasoning_content" if isinstance(extra, Thinking) else extra.kind, None)
    _put_content(wire, content_blocks)
    return wire


def _content_blocks(content: Any, slot: Slot, content_end: int) -> list[Any]:
    blocks = content if isinstance(content, list) else [content]
    sent_blocks: list[Any] = []
    for piece in slot.pieces:
        if isinstance(piece, OwnText):
            sent_blocks.append({"type": "text", "text": piece.text})
        elif isinstance(piece, KeptPart | RewordedPart) and piece.part < content_end:
            block: Any = blocks[piece.part]
            if isinstance(piece, RewordedPart):
                block = piece.text if isinstance(block, str) else {**block, "text": piece.text}
            sent_blocks.append(block)
    return sent_blocks


def _put_content(wire: dict[str, Any], blocks: list[Any]) -> None:
    if not blocks:
        wire["content"] = None if any(wire.get(key) for key in SAYS_OTHERWISE) else ""
    elif len(blocks) == 1 and isinstance(blocks[0], str):
        wire["content"] = blocks[0]
    else:
        wire["content"] = [
            {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
        ]


def _images_behind(images: Sequence[tuple[int, tuple[str, str]]]) -> WireMessage:
    content = [_write_image(image) for _, image in images]
    return WireMessage(body={"role": "user", "content": content}, source=images[0][0])


def _write_image(image: tuple[str, str]) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_address(image)}}


def _write_user(message: Mapping[str, Any]) -> dict[str, Any] | None:
    blocks = blocks_of(message)
    if not images_of(blocks):
        texts = texts_of(blocks)
        return {"role": "user", "content": "\n".join(texts)} if texts else None
    return {"role": "user", "content": write_blocks(blocks, "text", _write_image)}


def _write_reply(message: Mapping[str, Any], is_own: bool) -> dict[str, Any] | None:  # noqa: FBT001
    blocks = blocks_of(message)
    text = "\n".join(texts_of(blocks))
    body: dict[str, Any] = {"role": "assistant", "content": text or None}
    thoughts = [
        str(block.get("thinking") or "")
        for block in blocks
        if block.get("type") == "thinking" and block.get("thinkingSignature") == REASONING_FIELD
    ]
    if is_own and any(thoughts):
        body[REASONING_FIELD] = "\n".join(thoughts)
    calls = [_write_call(block) for block in blocks if block.get("type") == "toolCall"]
    if calls:
        body["tool_calls"] = calls
    return body if text or calls else None


def _write_call(block: Mapping[str, Any]) -> dict[str, Any]:
    raw_arguments = block.get("arguments")
    arguments = encode(raw_arguments if isinstance(raw_arguments, Mapping) else {}).decode()
    return {
        "id": _write_id(block.get("id")),
        "type": "function",
        "function": {"name": str(block.get("name") or ""), "arguments": arguments},
    }


def _write_result(message: Mapping[str, Any]) -> dict[str, Any]:
    blocks = blocks_of(message)
    placeholder = WITH_IMAGES if images_of(blocks) else NO_TEXT
    return {
        "role": "tool",
        "tool_call_id": _write_id(message.get("toolCallId")),
        "content": "\n".join(texts_of(blocks)) or placeholder,
    }


class ChatAssembling:
    """Assembles one streamed completion."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    @property
    def complete(self) -> bool:
        """False before the stream's end, because token usage arrives after the last choice."""
        return False

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        for name, value in event.items():
            if name not in ("choices", "object") and value is not None:
                self._top[name] = value
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            fields = mapping(choice)
            raw_index = fields.get("index", 0)
            index = raw_index if isinstance(raw_index, int) else 0
            events = list(self._choose(index, fields))
            if index == 0:
                yield from events

    def reply(self) -> Mapping[str, Any] | None:
        choices = self._choices.values()
        if not choices or any(choice["finish_reason"] is None for choice in choices):
            return None
        return self.partial()

    def partial(self) -> Mapping[str, Any]:
        choices = [self._choices[index] for index in sorted(self._choices)]
        clean_choices = [
            {**choice, "message": _without_indexes(choice["message"])} for choice in choices
        ]
        return {"object": "chat.completion", **self._top, "choices": clean_choices}

    def _choose(self, index: int, fields: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        message = {"role": "assistant", "content": None}
        empty = {"index": index, "message": message, "finish_reason": None}
        choice = self._choices.setdefault(index, empty)
        for name, value in fields.items():
            if name == "logprobs" and isinstance(value, Mapping):
                choice[name] = dict(choice.get(name) or {})
                _merge(choice[name], value)
            elif name not in ("delta", "message", "index") and value is not None:
                choice[name] = value
        delta = mapping(fields.get("delta") or fields.get("message"))
        yield from _chat_words(delta)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield from _take_call(choice["message"], mapping(call))
        _merge(choice["message"], {name: delta[name] for name in delta if name != "tool_calls"})


def _without_indexes(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = [
        {name: value for name, value in call.items() if name != "index"}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _take_call(message: dict[str, Any], chunk: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
    call = _call_of(calls, chunk)
    if call is None:
        call = {"index": chunk.get("index", len(calls)), "id": "", "type": "function"}
        call["function"] = {"name": "", "arguments": ""}
        calls.append(call)
    known_name = call["function"]["name"]
    _merge(call, {**chunk, "function": _function(chunk)})
    if not known_name and call["function"]["name"]:
        yield CallStarted(id=str(call["id"]), name=str(call["function"]["name"]))


def _call_of(calls: list[dict[str, Any]], chunk: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the call that a chunk belongs to. A new id starts a new call even if the index is
    known, because some servers give every call the index 0."""
    index, call_id = chunk.get("index"), chunk.get("id")
    matches = [call for call in calls if index is None or call["index"] == index]
    if not matches:
        return None
    last = matches[-1]
    return None if call_id and last["id"] and call_id != last["id"] else last


def _function(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    function = mapping(chunk.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        return {**function, "arguments": encode(arguments).decode()}
    return function


def _merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        old_value = into.get(name)
        if value is None or (name in _WHOLE and old_value and not value):
            into.setdefault(name, value)
        elif isinstance(old_value, str) and isinstance(value, str) and name not in _WHOLE:
            into[name] = old_value + value
        elif isinstance(old_value, Mapping) and isinstance(value, Mapping):
            merged_value = dict(old_value)
            _merge(merged_value, value)
            into[name] = merged_value
        elif isinstance(old_value, list) and isinstance(value, list):
            into[name] = _join_lists(old_value, value)
        else:
            into[name] = value


def _join_lists(items: list[Any], new_items: list[Any]) -> list[Any]:
    joined_items = [dict(item) if isinstance(item, Mapping) else item for item in items]
    for item in new_items:
        index = mapping(item).get("index")
        open_items = [
            open_item for open_item in joined_items if mapping(open_item).get("index") == index
        ]
        if index is not None and open_items:
            _merge(open_items[-1], item)
        else:
            joined_items.append(item)
    return joined_items


def _chat_words(delta: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    thinking = chat_thinking(delta)
    if thinking:
        yield ThinkingDelta(text=thinking)
    for text in (chat_text(delta.get("content")), delta.get("refusal")):
        if text and isinstance(text, str):
            yield TextDelta(text=text)


def chat_thinking(fields: Mapping[str, Any]) -> str:
    """Return the reasoning text from the first of its possible fields, because servers that use
    both names send the same text twice."""
    texts = (fields.get(name) for name in _CHAT_THINKING)
    return next((text for text in texts if text and isinstance(text, str)), "")


def chat_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [mapping(part) for part in content] if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
